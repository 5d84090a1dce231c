"""Simulation run: the operator's own Pool on a modelled cluster, driven by a trace under a virtual clock.

The Pool counts whole units, but loads here are real numbers. So a unit is a tiny part of a load: a power of two small
enough that a float holds any load exactly, and large enough for the Pool's integers. Each processor is a node of its
own. All events of one time are one step of the Pool: ends first, then faults, then one job after the other.
"""

import heapq
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from punctual.scheduling.model.actions import AnswerReservation, CreateChunk, EndPod, OfferEnd, WriteStatus
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.events import (
    Event,
    JobApplied,
    JobDeleted,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PodPhase,
    PoolApplied,
    Progress,
    Reported,
    ReservationApplied,
)
from punctual.scheduling.model.job import Job, JobRecord, Restart
from punctual.scheduling.model.pool_spec import Admission, PoolSpec
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.timing import ASKED, PATIENCE
from punctual.scheduling.pool import Pool
from punctual.sim.cluster import Cluster, Running
from punctual.sim.gc_pause import uncollected
from punctual.sim.report import Decision, Executed, Finished, Period, Result
from punctual.sim.trace import FaultLine, JobLine, ReservationLine, Trace
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

DIGITS = 52
"""Bits of a load: the largest load has as many tiny units as a float can count exactly."""
NAMESPACE = "simulated"
SECOND = 1.0
"""With tiny units: minimum seconds of work in a chunk, and between two reads of an offer by a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The simulated pool. ``speeds``: factor of χ per processor; None: all are equal."""

    processors: int = 16
    cost: Cost = field(default_factory=lambda: Cost(chi=100.0, tau=1.0))
    speeds: tuple[float, ...] | None = None
    discipline: Discipline = field(default_factory=lambda: Discipline(network="OnePort"))
    admission: Admission = "Exact"
    threshold: int = 300
    """Hybrid: number of waiting jobs from which the fast test decides."""
    bound: float | None = None
    miss_set_point: float | None = None
    sample_period: float = 100_000.0
    headroom: float = 0.0
    margin: float = 0.0
    restart: Restart = "Redo"
    actual: tuple[float, float] = (1.0, 1.0)
    """Range of the factors on estimated costs: one for τ and one for χ, per job."""
    silent_faults: bool = False
    """Whether faults are hidden from the Pool: chunks on the processors concerned never end (Mamat 2011, 7.3.2)."""
    offers: bool = True
    """Whether the earliest deadline is searched for refused jobs."""
    integer_units: bool = False
    seed: int = 0

    @property
    def spec(self) -> PoolSpec:
        """The pool's spec for the core."""
        return PoolSpec(
            name="simulated",
            cpu=1.0,
            headroom=self.headroom,
            margin=self.margin,
            discipline=self.discipline,
            admission=self.admission,
            threshold=self.threshold,
            bound=self.bound,
            miss_set_point=self.miss_set_point,
            sample_period=self.sample_period,
        )


def simulate(trace: Trace, options: Options, *, tell: Callable[[int], None] = lambda _: None) -> Result:
    """Run a trace to its end; ``tell(n)`` is called with the number of lines processed."""
    with uncollected():
        return _Run(trace, options, tell).result()


@dataclass(slots=True)
class _Away:
    processors: Sequence[int]


@dataclass(slots=True)
class _Back:
    processors: Sequence[int]


@dataclass(slots=True)
class _End:
    running: Running
    turn: int


@dataclass(slots=True)
class _Look:
    running: Running
    """Late, if it still runs."""
    turn: int


@dataclass(slots=True)
class _Open:
    """The port is free, and a chunk waits for it."""


@dataclass(slots=True)
class _Sample:
    """A period of the miss-ratio controller ends."""


@dataclass(slots=True)
class _Turn:
    """A reservation's window approaches, begins or ends."""


@dataclass(slots=True)
class _Reminder:
    """A chunk that was offered an end may have passed it."""


_ARRIVALS = frozenset({JobLine, ReservationLine})
_Happening = _End | _Look | _Open | _Away | _Back | _Sample | _Turn | _Reminder | JobLine | ReservationLine
_RANK = {
    _End: 0, _Turn: 0, _Sample: 1, _Look: 2, _Reminder: 2, _Open: 3, _Back: 4, _Away: 5, JobLine: 6, ReservationLine: 6,
}  # fmt: skip


class _Holding(NamedTuple):
    """The processors of a reservation, since when, and the index of its decision."""

    decision: int
    since: float
    number: int


class _Run:
    def __init__(self, trace: Trace, options: Options, tell: Callable[[int], None]) -> None:
        self.options = options
        self.tell = tell
        # Offers are searched for in this module, at the time of the decision.
        self.pool = Pool(1, leave=0.0, offers=False)
        self.view = self.pool.view()
        self.cluster = Cluster(one_port=options.discipline.one_port)
        self.found = Result()
        loads = [line.load for line in trace.lines if isinstance(line, JobLine)]
        self.scale = 1.0 if options.integer_units else 2.0 ** math.floor(DIGITS - math.log2(max([1.0, *loads])))
        self.heap: list[tuple[float, int, int, _Happening]] = []
        self.count = 0
        self.rng = np.random.default_rng(options.seed)
        self.true: dict[str, Cost] = {}
        self.costs: dict[tuple[str, float], Cost] = {}
        self.records: dict[str, JobRecord] = {}
        self.deadlines: dict[str, float] = {}
        self.mail: list[Event] = []
        self.vacated = False
        """Whether the Pool has ended chunks and still needs the events that free their processors."""
        self.away: dict[int, float] = {}
        self.lost = 0.0
        self.last = 0.0
        self.opens: float | None = None
        self.asked: dict[str, ReservationLine] = {}
        self.held: dict[str, _Holding] = {}
        self.spec = options.spec
        faults = any(isinstance(line, FaultLine) for line in trace.lines)
        self.tells = (faults or options.actual != (1.0, 1.0)) and not self.spec.loose
        """Whether jobs may lose their promises: only then the Pool needs progress reports of planned chunks."""
        for line in trace.lines:
            self._plan(line)
        if options.miss_set_point is not None:
            self.found.periods = []
            self._at(options.sample_period, _Sample())

    def _plan(self, line: object) -> None:
        match line:
            case JobLine() | ReservationLine():
                self._at(line.arrival, line)
            case FaultLine():
                self._at(line.arrival, _Away(line.processors))
                if line.until is not None:  # later than all events of the same time as its arrival
                    self._at(max(line.until, line.arrival + 3 * tolerance(line.arrival)), _Back(line.processors))

    def _at(self, when: float, what: _Happening) -> None:
        self.count += 1
        heapq.heappush(self.heap, (when, _RANK[type(what)], self.count, what))

    def result(self) -> Result:
        """Run until there are no more events."""
        self._step(0.0, [PoolApplied(self.spec), *(self._node(i) for i in range(self.options.processors))])
        dealt = 0
        while self.heap:
            now, happenings = self._next()
            kinds = {type(what) for what in happenings}
            if kinds != {_Sample}:
                self.last = max(self.last, now)
            for what in happenings:
                self._take(now, what)
            if self.mail or not kinds <= _ARRIVALS:  # everything is dispatched before the next decision
                self._step(now, [])
            if _Sample in kinds:
                self._sample(now)
            for line in happenings if kinds & _ARRIVALS else ():
                if isinstance(line, JobLine):
                    self._arrive(now, line)
                elif isinstance(line, ReservationLine):
                    self._reserve(now, line)
                else:
                    continue
                dealt += 1
                self.tell(dealt)
        self._close()
        return self.found

    def _next(self) -> tuple[float, list[_Happening]]:
        """Return the next events: all that happen at one time, within the precision of floats."""
        now = self.heap[0][0]
        until = now + tolerance(now)
        heap, entries = self.heap, []
        while heap and heap[0][0] <= until:
            entries.append(heapq.heappop(heap))
        now = entries[-1][0]
        entries.sort(key=itemgetter(1))
        return now, [what for *_, what in entries]

    def _take(self, now: float, what: _Happening) -> None:
        match what:
            case _End():
                self._finish(now, what.running, what.turn)
            case _Away(processors):
                for p in processors:
                    self._take_away(now, p)
            case _Back(processors):
                for p in processors:
                    self.lost += now - self.away.pop(p)
                    self.mail.append(self._node(p))
            case _:
                pass

    def _finish(self, now: float, running: Running, turn: int) -> None:
        if running.turn == turn and running.name in self.cluster.running:
            self._stop(now, running)
            self._execute(running, running.end, running.size)
            self.mail.append(self._pod(running, "Succeeded"))
            if running.offered:  # the Pool waits for its last report
                self.mail.append(self._progress(running, running.size, over=True))

    def _take_away(self, now: float, p: int) -> None:
        self.away[p] = now
        if self.options.silent_faults:
            for running in self.cluster.on(p):
                running.turn += 1  # its end is not reported
            return
        for running in self.cluster.on(p):
            done = running.done(now) if self.options.restart == "Resume" else 0
            if done:
                self.mail += [self._pod(running, "Running"), self._progress(running, done)]
            self._cut(now, running, done)
        self.mail.append(NodeGone(self._name(p)))

    def _cut(self, now: float, running: Running, done: int) -> None:
        self._stop(now, running)
        self._execute(running, now, done)

    def _kill(self, now: float, running: Running) -> None:
        """End a chunk that the Pool has given up; only its reported units count."""
        self._cut(now, running, min(running.told, running.size) if self.options.restart == "Resume" else 0)
        self.vacated = True

    def _stop(self, now: float, running: Running) -> None:
        """Remove a chunk from its processor; the chunks behind it at the port move forward and get new end events."""
        for moved in self.cluster.stop(now, running.name):
            if moved.processor not in self.away:  # otherwise its end is not reported
                self._at(moved.end, _End(moved, moved.turn))

    def _execute(self, running: Running, end: float, counts: int) -> None:
        if running.send_start < end or counts:  # otherwise it never had the port
            made = Executed(
                running.job,
                running.processor,
                running.send_start,
                min(running.send_end, end),
                end,
                counts / self.scale,
            )
            self.found.chunks.append(made)

    def _sample(self, now: float) -> None:
        last, periods = self.view.bound_sample, self.found.periods
        assert periods is not None
        if last is not None:
            periods.append(Period(last.time, last.miss_ratio, last.bound, 0.0))
        if self.heap:  # otherwise nothing is left to measure
            self._at(now + self.options.sample_period, _Sample())

    # jobs

    def _arrive(self, now: float, line: JobLine) -> None:
        options = self.options
        estimate = replace(
            options.cost,
            **{
                name: given
                for name in ("chi", "tau", "theta_cm", "theta_cp")
                if (given := getattr(line, name)) is not None
            },
        )
        low, high = options.actual
        slow_tau, slow_chi = self.rng.uniform(low, high, 2).tolist() if low < high else (low, low)
        self.true[line.id] = replace(estimate, tau=estimate.tau * slow_tau, chi=estimate.chi * slow_chi)
        job = Job(
            uid=line.id,
            namespace=NAMESPACE,
            name=line.id,
            arrival=line.arrival,
            units=max(1, round(line.load * self.scale)),
            deadline=line.arrival + line.deadline,
            cost=replace(estimate, tau=estimate.tau / self.scale, chi=estimate.chi / self.scale),
            least_chunk=self._units(max(estimate.setup, SECOND) / estimate.per_unit),
            restart=options.restart,
            chunk_retries=2**31,
            stall_timeout=math.inf,
        )
        self.deadlines[job.uid] = job.deadline
        began = time.perf_counter()
        self._step(now, [JobApplied(job)])
        self.found.seconds.append(time.perf_counter() - began)
        record = self.records[line.id]
        assert record.admitted is not None
        accepted = record.admitted.status == "True"
        earliest = None
        if not accepted and options.offers:
            earliest = self.pool.quote(now, job).earliest_deadline()
        finish = record.promise.finish if accepted and record.promise else None
        self.found.decisions.append(
            Decision(
                id=line.id,
                time=line.arrival,
                accepted=accepted,
                reason=record.admitted.reason,
                promised_finish=finish,
                earliest_deadline=earliest,
            )
        )
        if not accepted:
            self._forget(line.id)

    def _units(self, load: float) -> int:
        """Return a load in the Pool's units; if the load has whole units, one."""
        return 1 if self.options.integer_units else max(1, round(load * self.scale))

    def _reserve(self, now: float, line: ReservationLine) -> None:
        asked = Reservation(
            uid=line.id,
            arrival=line.arrival,
            start=line.start,
            end=line.end,
            processors=line.processors,
            io_ratio=line.io_ratio if self.options.discipline.one_port else 0.0,  # without a port, nothing to keep
        )
        self.asked[line.id] = line
        began = time.perf_counter()
        self._step(now, [ReservationApplied(asked)])
        self.found.seconds.append(time.perf_counter() - began)

    def _answered(self, now: float, action: AnswerReservation) -> None:
        line = self.asked[action.uid]
        accepted = action.answer.status == "True"
        places = sorted(int(place.node) for place in action.places) if accepted else None
        if (known := self.held.get(line.id)) is not None:  # faults have changed its processors
            self._book(line, known, now)
            self.held[line.id] = known._replace(since=now, number=len(action.places))
            if now <= line.start:
                i = known.decision
                self.found.decisions[i] = replace(self.found.decisions[i], processors=places)
            return
        if accepted:
            self.held[line.id] = _Holding(len(self.found.decisions), now, len(action.places))
            for at in (line.start - ASKED, line.start, line.end):
                self._at(max(now, at + 2 * tolerance(at)), _Turn())
        self.found.decisions.append(
            Decision(id=line.id, time=line.arrival, accepted=accepted, reason=action.answer.reason, processors=places)
        )

    def _book(self, line: ReservationLine, held: "_Holding", until: float) -> None:
        """Count the processor seconds that a reservation has had since its processors last changed."""
        self.found.booked += held.number * max(0.0, min(until, line.end) - max(held.since, line.start))

    def _forget(self, uid: str) -> None:
        self.mail.append(JobDeleted(uid))
        self.records.pop(uid)

    # the Pool

    def _step(self, now: float, events: Sequence[Event]) -> None:
        """Step the Pool and carry out its actions until there are no more."""
        events = [*self.mail, *events]
        self.mail = []
        while True:
            for action in self.pool.step(now, events):
                match action:
                    case CreateChunk():
                        self._create(now, action)
                    case EndPod():
                        self._end_pod(now, action.name)
                    case OfferEnd():
                        self._offer(now, action.name, action.end)
                    case AnswerReservation():
                        self._answered(now, action)
                    case WriteStatus():
                        self._note(now, action.job, action.record)
                    case _:
                        pass
            if (opens := self.view.due) is not None and opens != self.opens:
                self.opens = opens
                self._at(opens, _Open())
            news = self.vacated or any(isinstance(e, (Reported, PodObserved)) for e in self.mail)
            if not self.pool.backlog and not news:
                return
            events, self.mail, self.vacated = self.mail, [], False

    def _create(self, now: float, action: CreateChunk) -> None:
        chunk = action.chunk
        p = int(chunk.node)
        speed = self.options.speeds[p] if self.options.speeds else 1.0
        made = Running(action.job, chunk, p, self._true(action.job, speed), size=chunk.size)
        self.cluster.start(now, made)
        if abs(made.end - chunk.promised_end) <= tolerance(made.end):
            made.end = max(made.send_end, chunk.promised_end)  # the same sum in another order
        if p not in self.away:  # otherwise it is silent
            self._at(made.end, _End(made, 0))
        if chunk.leftover or self.tells:  # it may be asked to leave as soon as it is known to run
            self.mail.append(self._pod(made, "Running"))
        if made.end > chunk.promised_end and not self.spec.loose:
            late = chunk.promised_end + self.options.margin / 2
            self._at(late + 2 * tolerance(late), _Look(made, 0))

    def _true(self, uid: str, speed: float) -> Cost:
        """Return the true cost of a unit of the Pool on a processor of that speed."""
        if (known := self.costs.get((uid, speed))) is not None:
            return known
        cost = self.true[uid]
        made = self.costs[uid, speed] = replace(cost, chi=cost.chi * speed / self.scale, tau=cost.tau / self.scale)
        return made

    def _end_pod(self, now: float, name: str) -> None:
        if (running := self.cluster.running.get(name)) is not None:
            self._kill(now, running)
        self.mail.append(PodGone(NAMESPACE, name, name))

    def _offer(self, now: float, name: str, end: int) -> None:
        """Answer an offer at once, like a worker that checks after every unit, or each second if units are tiny.

        A chunk that has not begun to compute gives its whole range back, but not at the time at which it begins: the
        Pool could repeat that forever, and no time would pass.
        """
        running = self.cluster.running[name]
        if running.processor in self.away:  # silent
            self._at(now + PATIENCE + 2 * tolerance(now), _Reminder())
            return
        begin = running.chunk.begin
        done = running.told = running.done(now)
        running.offered = True
        begun = running.chunk.created + tolerance(now) < now
        if begun and now < running.send_end + running.cost.theta_cp:
            self.mail.append(self._progress(running, 0, begin))
            return
        look = self._units(SECOND / (running.cost.chi * self.scale))
        running.size = min(running.size, max(end - begin, (done // look + 1) * look))
        running.end = min(running.end, running.send_end + running.cost.theta_cp + running.size * running.cost.chi)
        running.turn += 1
        self._at(running.end, _End(running, running.turn))
        if running.end > now + PATIENCE:
            self._at(now + PATIENCE + 2 * tolerance(now), _Reminder())
        self.mail.append(self._progress(running, done, begin + running.size))

    def _note(self, now: float, uid: str, record: JobRecord) -> None:
        self.records[uid] = record
        owned = {chunk.key for chunk in record.chunks}
        for running in self.cluster.of(uid):
            if running.chunk.key not in owned:  # given up before it was observed: it ends as soon as it is
                self._kill(now, running)
        if record.finished is not None:
            deadline = self.deadlines.pop(uid)
            met = record.finished <= deadline + tolerance(deadline)
            self.found.jobs.append(Finished(uid, record.finished, met))
            self._forget(uid)

    def _close(self) -> None:
        """Count the jobs that did not end, and the available capacity."""
        for uid, record in self.records.items():
            if record.promise is not None:
                self.found.jobs.append(Finished(uid, None, met=False))
        for uid, held in self.held.items():
            self._book(self.asked[uid], held, math.inf)
        lost = self.lost + sum(self.last - since for since in self.away.values())
        self.found.capacity = self.options.processors * self.last - lost
        if self.found.periods:
            self.found.periods = self._with_utilization(self.found.periods)

    def _with_utilization(self, periods: list[Period]) -> list[Period]:
        """Return the periods with the share of their processor seconds that was used."""
        length = self.options.sample_period
        busy = [0.0] * len(periods)
        for chunk in self.found.chunks:
            k = int(chunk.send_start / length)
            while k < len(busy) and k * length < chunk.end:
                busy[k] += min(chunk.end, (k + 1) * length) - max(chunk.send_start, k * length)
                k += 1
        whole = self.options.processors * length
        return [replace(period, utilization=used / whole) for period, used in zip(periods, busy, strict=True)]

    # what the Pool is told

    def _name(self, p: int) -> str:
        return f"{p:0{len(str(self.options.processors - 1))}d}"

    def _node(self, p: int) -> NodeObserved:
        speed = self.options.speeds[p] if self.options.speeds else 1.0
        return NodeObserved(name=self._name(p), ready=True, cpu=1.0, memory=0, speed=speed)

    def _pod(self, running: Running, phase: PodPhase) -> PodObserved:
        chunk, name = running.chunk, running.name
        key = chunk.kind, chunk.begin, chunk.origin, chunk.attempt
        # positional arguments: one call for each chunk
        return PodObserved(name, name, NAMESPACE, running.job, *key, chunk.node, phase, chunk.created)

    @staticmethod
    def _progress(running: Running, done: int, end: int | None = None, *, over: bool = False) -> Reported:
        seen = Progress(pod=running.name, done=done, end=end, cpu_seconds=float(done), over=over)
        return Reported(running.chunk.node, (seen,))
