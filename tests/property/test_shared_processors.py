"""Jobs that share processors: promises are kept if costs are right, caps add up, no unit is lost or counts twice."""

from dataclasses import replace

from agents import Agents
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant
from pool_machine import PoolMachine
from world import Worker, World, job

from punctual.scheduling.model.ranges import Ranges

requests = st.builds(
    # the relative deadline, by the processor seconds of the work: jobs of any size are promised, and refused
    lambda units, chi, stretch, gap, resumes: (units, chi, 5.0 + stretch * units * chi, gap, resumes),
    units=st.integers(1, 60),
    chi=st.sampled_from([0.1, 0.5, 1.0, 3.0, 7.0]),
    stretch=st.floats(1.0, 5.0),
    gap=st.floats(0, 40),  # to the next arrival
    resumes=st.booleans(),
)


# a job that fits takes the CPU that a more urgent one was to get when the next pod ends
ANOMALY = [
    (30, 0.1, 30, 22.0, True),
    (50, 1.0, 84, 0.0, True),
    (145, 0.1, 198, 5.0, False),
    (200, 0.1, 10, 0.0, False),
    (1, 0.1, 10, 0.0, False),
    (1, 0.1, 10, 38.0, False),
    (42, 1.0, 111, 0.0, False),
    (1, 0.1, 10, 20.0, False),
    (145, 0.5, 198, 0.0, False),
    (1, 0.1, 10, 0.0, False),
]
# a job that is one unit ahead near its end leaves CPU to another one, and needs it back before its next report
AHEAD = [
    (44, 0.1, 23.51, 5.67, False),
    (47, 0.5, 87.24, 0.0, True),
    (24, 0.1, 16.64, 0.0, False),
    (48, 0.5, 42.14, 0.0, True),
    (57, 7.0, 1761.65, 0.0, True),
    (1, 3.0, 20.41, 0.0, False),
    (34, 1.0, 135.49, 0.0, False),
]


def shared(w: World, pods: int) -> None:
    w.edit_pool(replace(w.spec, generation=2, admission="Utilization", pods_per_processor=pods, headroom=0.1))


@given(
    st.lists(requests, min_size=1, max_size=10),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
)
@example(ANOMALY, 1, 1, 4, False)
@example(AHEAD, 1, 1, 4, True)
def test_no_accepted_job_misses_when_costs_are_as_declared(wanted, cpu, nodes, pods, steered):
    w = World(startup=2.0, agents=Agents() if steered else None)
    shared(w, pods)
    for n in range(nodes):
        w.node(f"n{n}", cpu)
    chis = {}
    w.workers = lambda uid, _: Worker(pace=chis[uid])
    for k, (units, chi, deadline, gap, resumes) in enumerate(wanted):
        uid = f"j{k}"
        chis[uid] = chi
        w.apply(
            job(
                uid,
                units=units,
                chi=chi,
                theta_cp=2.5,
                arrival=w.now,
                deadline=w.now + deadline,
                restart="Resume" if resumes else "Redo",
            )
        )
        w.run(w.now + gap)
    latest = max(wanted.deadline for wanted in w.jobs.values())
    w.run(w.now + 1)  # each job is decided
    while w.now < latest and not all(w.done(uid) for uid, record in w.records.items() if record.promise):
        w.run(w.now + 1)
    for uid in w.jobs:
        record = w.records[uid]
        if record.promise is not None:
            assert not record.promise.given_up, (uid, record)
            assert record.finished is not None, uid
            assert record.finished <= record.promise.deadline, (uid, record)
            assert record.completed == Ranges.of((0, w.jobs[uid].units))
            # a pod that makes way may end a unit within its grace period, and the next one does it again
            if w.jobs[uid].restart == "Redo":
                assert sum(end - begin for begin, end in w.processed[uid]) == w.jobs[uid].units, "done twice"


class SharedMachine(PoolMachine):
    """The same life for a pool where jobs share processors."""

    @initialize(cpu=st.integers(1, 4), pods=st.integers(1, 4), steered=st.booleans())
    def start(self, cpu, pods, steered):
        self.w = World(now=10_000.0, agents=Agents() if steered else None)
        self.one_port = False
        shared(self.w, pods)
        self.w.node("n0", cpu)
        self.w.tick()
        self.serial = 0
        self.latest = self.w.now
        self.manners = st.none()
        self.next_worker = Worker()
        self.w.workers = lambda _u, _c: self.next_worker

    def teardown(self):
        """From now on there are agents: without them, jobs that lost their promises have next to no CPU."""
        if hasattr(self, "w") and self.w.agents is None:
            self.w.agents = Agents()
            self._take_over()  # a new leader tells all set points again
        super().teardown()

    @invariant()
    def caps_add_up(self):
        """No agent gives a node's pods more than the pool's processors there."""
        if not hasattr(self, "w") or self.w.agents is None:
            return
        for node, (cores, most) in self.w.agents.chosen.items():
            assert cores <= most + 1e-6, node

    @invariant()
    def a_job_has_one_pod(self):
        if not hasattr(self, "w"):
            return
        for uid, record in self.w.records.items():
            assert len(record.chunks) <= 1, uid


TestSharedMachine = SharedMachine.TestCase
TestSharedMachine.settings = settings(stateful_step_count=30)
