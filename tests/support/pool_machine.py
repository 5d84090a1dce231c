"""The life of a Pool, in rules for hypothesis: jobs, nodes, pods and leaders come and go."""

from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kept import checked_pools
from world import Worker, World, job

from punctual.runtime.actor import SET_BACK
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.events import JobApplied, PodObserved
from punctual.scheduling.model.ranges import Ranges

admissions = st.sampled_from([{}, {"admission": "Fast"}, {"admission": "Hybrid", "threshold": 3}])


class PoolMachine(RuleBasedStateMachine):
    """Jobs, nodes, pods and leaders come and go; the ledger stays sound and the Pool can be rebuilt."""

    def __init__(self):
        super().__init__()
        self.checks = ExitStack()
        self.checks.enter_context(checked_pools())

    @initialize(cpu=st.integers(1, 4), admission=admissions, network=st.sampled_from(["Concurrent", "OnePort"]))
    def start(self, cpu, admission, network):
        self.w = World(now=10_000.0)  # there is time before it
        self.one_port = network == "OnePort"
        self.w.edit_pool(replace(self.w.spec, generation=2, discipline=Discipline(network=network), **admission))
        self.w.node("n0", cpu)
        self.w.tick()
        self.serial = 0
        self.latest = self.w.now
        self.manners = st.none()
        self.next_worker = Worker()
        self.w.workers = lambda _u, _c: self.next_worker

    @rule(
        units=st.integers(1, 60),
        chi=st.sampled_from([None, 0.2, 1.0]),
        deadline=st.integers(5, 200),
        restart=st.sampled_from(["Redo", "Resume"]),
        reduce=st.booleans(),
        dry=st.sampled_from([False, False, False, True]),
        most=st.sampled_from([None, None, 1, 2]),
        fetches=st.booleans(),
        unit_pods=st.sampled_from([False, False, True]),
    )
    def apply(self, *, units, chi, deadline, restart, reduce, dry, most, fetches, unit_pods):
        self.serial += 1
        reduce, fetches = reduce and not unit_pods, fetches and not unit_pods
        self.w.apply(
            job(
                f"j{self.serial}",
                units=units,
                chi=chi,
                arrival=self.w.now,
                deadline=self.w.now + deadline,
                restart=restart,
                reduce_duration=2.0 if reduce else None,
                dry_run=dry,
                max_processors=most,
                fetches=fetches,
                tau=0.05 if fetches else 0.0,
                stall_timeout=20.0,
                unit_pods=unit_pods,
            )
        )

    @rule(
        worker=st.sampled_from(
            [
                Worker(),
                Worker(),
                Worker(pace=0.3),
                Worker(pace=2.5),
                Worker(answers=False),
                Worker(answer=0),
                Worker(fails_after=2.0),
                Worker(hangs=True),
                Worker(never_starts="ImagePullBackOff"),
                Worker(never_starts="Unschedulable"),
                Worker(fetch=7.0),
                Worker(fetch_hangs=True),
            ]
        )
    )
    def manners_change(self, worker):
        self.next_worker = worker

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0, 11.0, 40.0]))
    def time_passes(self, seconds):
        self.w.run(self.w.now + seconds)

    @rule(seconds=st.sampled_from([0.25, 6.0, 100.0]))
    def clock_is_set_back(self, seconds):
        self.latest = max(self.latest, self.w.now)
        self.w.set_back(seconds)
        if self.w.now < self.latest - SET_BACK:  # the actor ends there
            self.latest = self.w.now
            self._take_over()

    @rule(
        headroom=st.sampled_from([0.0, 0.125, 0.5]),
        margin=st.sampled_from([0.0, 2.0, 5.0]),
        order=st.sampled_from(["EDF", "FIFO", "MWF"]),
    )
    def edit_pool(self, headroom, margin, order):
        old = self.w.spec
        discipline = old.discipline if old.admission != "Exact" else replace(old.discipline, order=order)
        self.w.edit_pool(
            replace(old, generation=old.generation + 1, headroom=headroom, margin=margin, discipline=discipline)
        )

    @rule(n=st.integers(0, 3), cpu=st.integers(0, 4), ready=st.sampled_from([True, True, False]))
    def node_is(self, n, cpu, ready):
        self.w.node(f"n{n}", cpu, ready=ready)

    @precondition(lambda self: len(self.w.nodes) > 1)
    @rule(data=st.data())
    def node_goes(self, data):
        self.w.lose(data.draw(st.sampled_from(sorted(self.w.nodes))))

    @precondition(lambda self: self.w.jobs)
    @rule(data=st.data(), change=st.sampled_from(["tighter", "looser", "suspend", "resume", "fewer", "delete"]))
    def edit(self, data, change):
        uid = data.draw(st.sampled_from(sorted(self.w.jobs)))
        old = self.w.jobs[uid]
        if change == "delete":
            self.w.delete(uid)
            return
        new = replace(old, generation=old.generation + 1)
        if change in {"tighter", "looser"}:
            new = replace(new, deadline=old.deadline + (-5 if change == "tighter" else 20))
        elif change == "fewer":
            record = self.w.records.get(uid)
            if record is None or record.promise is not None or record.ended:  # the API refuses it
                return
            new = replace(new, units=max(1, old.units // 2))
            ranges = [(r.begin, r.end) for r in (*record.completed.parts, *record.chunks)]
            if old.reduce_duration is not None and any(begin < new.units < end for begin, end in ranges):
                return  # and that
        else:
            new = replace(new, suspend=change == "suspend")
        self.w.apply(new)

    @rule(
        ahead=st.sampled_from([0.0, 5.0, 40.0]),
        length=st.sampled_from([3.0, 20.0, 100.0]),
        processors=st.integers(1, 4),
        sends=st.booleans(),
    )
    def reserve(self, *, ahead, length, processors, sends):
        self.serial += 1
        begin = self.w.now + ahead
        io_ratio = 0.25 if sends and self.one_port else 0.0
        self.w.reserve(f"r{self.serial}", begin, begin + length, processors, io_ratio=io_ratio)

    @precondition(lambda self: self.w.reserved)
    @rule(data=st.data())
    def unreserve(self, data):
        self.w.unreserve(data.draw(st.sampled_from(sorted(self.w.reserved))))

    @precondition(lambda self: any(not p.deleting for p in self.w.pods.values()))
    @rule(data=st.data(), how=st.sampled_from(["delete", "evict", "kill"]))
    def pod_dies(self, data, how):
        pod = self.w.pods[data.draw(st.sampled_from(sorted(n for n, p in self.w.pods.items() if not p.deleting)))]
        if how == "delete":
            pod.deleting, pod.ends_at = True, self.w.now + 0.25
        elif pod.phase in {"Pending", "Running"}:
            pod.phase = "Failed"
            pod.reason, pod.exit_code = ("Evicted", None) if how == "evict" else ("", 137)
        self.w.inbox.append(pod.observed())

    @rule(blind=st.booleans())
    def crash(self, blind):
        self._take_over(blind=blind)

    @rule(data=st.data(), nth=st.integers(1, 8), again=st.booleans())
    def interrupted(self, data, nth, again):
        """The leader dies at any point of its writes, perhaps the next one while it takes over."""
        reached = _any_part(data)
        self.w.interrupted(reached, nth=nth)
        if again:
            self.w.crash(reached)
        self._take_over()

    @rule(data=st.data(), nth=st.integers(1, 8), later=st.sampled_from([0.0, 0.25, 3.0]))
    def two_leaders(self, data, nth, later):
        """What an old leader had under way arrives when the new one has begun, or some time after."""
        rest = self.w.interrupted(_any_part(data), nth=nth)
        self._take_over()
        self.w.run(self.w.now + later)
        self.w.late(rest)

    @rule()
    def split_brain(self):
        """An old leader goes on for a step with all that it sees: its writes carry the old epoch."""
        old = self.w.crash()
        seen = [*self.w.nodes.values(), *(p.observed() for p in self.w.pods.values())]
        self.w.late(self.w.lines(old.step(self.w.now, seen)))

    def _take_over(self, *, blind=False):
        """A new leader makes a Pool from what is written: the promises stand, but those that an edit asks to change.

        ``blind``: it sees the pods only behind its first step.
        """
        promised = {
            uid: record.promise.deadline
            for uid, record in self.w.records.items()
            if record.promise is not None and record.observed_generation == self.w.jobs[uid].generation
        }
        self.w.crash(unseen=lambda event: blind and isinstance(event, PodObserved))
        late, self.w.inbox = self.w.inbox, []
        self.w.tick()
        for uid, deadline in promised.items():
            if uid in self.w.records:
                assert self.w.records[uid].promise.deadline == deadline, uid
        self.w.inbox += late

    @rule()
    def twice(self):
        """A step done twice equals a step done once: the same events again change nothing that is written."""
        self.w.tick()
        before = dict(self.w.records)
        self.w.inbox += [JobApplied(j) for j in self.w.jobs.values()]
        self.w.inbox += [p.observed() for p in self.w.pods.values()]
        self.w.carry_out(self.w.pool.step(self.w.now, self.w._mail()))
        assert {u: r.completed for u, r in before.items()} == {u: r.completed for u, r in self.w.records.items()}

    @invariant()
    def the_ledger_is_sound(self):
        if not hasattr(self, "w"):
            return
        self.w.pool.check()
        for uid, record in self.w.records.items():
            wanted = self.w.jobs[uid]
            self.w.check(uid, record)
            if wanted.max_processors is not None:
                assert sum(c.kind != "Reduce" for c in record.chunks) <= wanted.max_processors, uid
            if record.completed_condition is not None:
                assert record.completed == Ranges.of((0, wanted.units)), uid
            if wanted.unit_pods:
                assert all(c.origin == c.begin + 1 for c in record.chunks), uid
            if wanted.restart == "Redo":
                assert not record.completed - Ranges.of(*self.w.processed.get(uid, ())), "accounted, but never done"

    @invariant()
    def no_two_transfers_overlap_on_one_port(self):
        if not hasattr(self, "w") or not self.one_port:
            return
        for before, after in pairwise(sorted(self.w.transfers)):
            assert before[1] <= after[0], (before, after)

    def teardown(self):
        with self.checks:
            if hasattr(self, "w"):
                self.all_ends()

    def all_ends(self):
        w = self.w
        self.next_worker = Worker(pace=0.2)
        for pod in w.pods.values():
            self.w.set_worker(pod, Worker(pace=0.2))
        for n in range(4):
            w.node(f"n{n}", 4)
        for wanted in list(w.jobs.values()):
            if wanted.suspend:
                w.apply(replace(wanted, suspend=False, generation=wanted.generation + 1))
        w.run(w.now + 500)
        for uid in w.jobs:
            note(f"{uid}: {w.records.get(uid)}")
            assert uid in w.records
            record = w.records[uid]
            if record.finished is None:
                assert record.admitted.status == "False" or record.admitted.reason == "DryRun"
            if w.jobs[uid].restart == "Redo":
                assert not record.completed - Ranges.of(*w.processed.get(uid, ())), "accounted, and no pod has done it"
            if record.completed_condition is not None and w.jobs[uid].reduce_duration is not None:
                results = [(begin, end) for u, begin, end in w.results if u == uid]
                assert _cover(results, w.jobs[uid].units), "reduce lacks units"
        quiet = [a for _ in range(8) for a in self._tick()]
        assert not quiet, quiet

    def _tick(self):
        self.w.now += 0.25
        return self.w.tick()


def _any_part(data):
    return lambda count: data.draw(st.integers(0, count))


def _cover(ranges, units):
    """Whether some of the ranges follow each other from the first unit to the last."""
    reached = {0}
    for begin, end in sorted(ranges, key=lambda r: r[1]):
        if begin in reached:
            reached.add(end)
    return units in reached
