"""Simulation run: the operator's own Pool on a modelled cluster, driven by a trace under a virtual clock.

Each processor is a node of its own. All events of one time are one step of the Pool: ends first, then faults, then one
job after the other.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from punctual.gc_pause import uncollected
from punctual.scheduling.model.actions import Action, AnswerReservation, CreateChunk, EndPod, OfferEnd, WriteStatus
from punctual.scheduling.model.events import (
    Event,
    JobApplied,
    JobDeleted,
    NodeGone,
    PodGone,
    PodObserved,
    PoolApplied,
    Reported,
    ReservationApplied,
)
from punctual.scheduling.model.job import Job, JobRecord
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.timing import ASKED, OVERDUE, PATIENCE
from punctual.scheduling.pool import Pool
from punctual.sim.cluster import Cluster, Running
from punctual.sim.happenings import (
    ARRIVALS,
    Away,
    Back,
    End,
    Happening,
    Happenings,
    Look,
    Open,
    Reminder,
    Report,
    Sample,
    Turn,
)
from punctual.sim.loads import SECOND, Loads
from punctual.sim.observations import NAMESPACE, node, node_name, pod, progress
from punctual.sim.options import Options
from punctual.sim.report import Decision, Executed, Finished, Period, Result
from punctual.sim.trace import FaultLine, JobLine, ReservationLine, Trace
from punctual.sim.work import Work
from punctual.theory.tolerance import tolerance

REPORT = 1.0
"""Seconds between two reports of an agent. Modelled where the Pool decides by them: before windows."""
SHOWN = 6.0
"""Seconds of reports before the Pool asks chunks to leave a window: they show a pace."""


def simulate(trace: Trace, options: Options, *, tell: Callable[[int], None] = lambda _: None) -> Result:
    """Run a trace to its end; ``tell(n)`` is called with the number of lines processed."""
    with uncollected():
        return _Run(trace, options, tell).result()


def _reports(line: ReservationLine) -> Iterator[float]:
    """Return when agents report before a window."""
    first = line.start - ASKED - SHOWN
    for k in range(math.ceil((line.start - first) / REPORT)):
        at = first + k * REPORT
        yield at + 2 * tolerance(at)


class _Holding(NamedTuple):
    """The processors of a reservation, since when, and the index of its decision."""

    decision: int
    since: float
    processors: Sequence[int]


class _Offer(NamedTuple):
    """The earliest deadline, seconds from the decision (None: there is none), and the seconds that its search took."""

    earliest: float | None
    seconds: float


class _Run:
    def __init__(self, trace: Trace, options: Options, tell: Callable[[int], None]) -> None:
        self.options = options
        self.tell = tell
        # Offers are searched for in this module, at the time of the decision.
        self.pool = Pool(1, leave=0.0, offers=False)
        self.view = self.pool.view()
        self.cluster = Cluster(one_port=options.discipline.one_port)
        self.found = Result()
        self.loads = Loads.of(trace, options)
        self.happenings = Happenings()
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
            self.happenings.at(options.sample_period, Sample())

    def _plan(self, line: object) -> None:
        match line:
            case JobLine() | ReservationLine():
                self.happenings.at(line.arrival, line)
            case FaultLine():
                self.happenings.at(line.arrival, Away(line.processors))
                if line.until is not None:  # later than all events of the same time as its arrival
                    self.happenings.at(
                        max(line.until, line.arrival + 3 * tolerance(line.arrival)), Back(line.processors)
                    )

    def result(self) -> Result:
        """Run until there are no more events."""
        self._step(0.0, [PoolApplied(self.spec), *(node(i, self.options) for i in range(self.options.processors))])
        dealt = 0
        while self.happenings:
            now, happenings = self.happenings.next()
            kinds = {type(what) for what in happenings}
            if any(self._counts(what) for what in happenings):
                self.last = max(self.last, now)
            for what in happenings:
                self._take(now, what)
            if self.mail or not kinds <= ARRIVALS:  # everything is dispatched before the next decision
                self._step(now, [])
            if Sample in kinds:
                self._sample(now)
            for line in happenings if kinds & ARRIVALS else ():
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

    def _counts(self, what: Happening) -> bool:
        """Whether the simulated time goes on to an event. Many only look whether there is something to do."""
        match what:
            case Sample() | Look() | Open() | Report() | Reminder():
                return False
            case End(running, turn):
                return running.turn == turn and running.name in self.cluster.running
            case _:
                return True

    def _take(self, now: float, what: Happening) -> None:
        match what:
            case End():
                self._finish(now, what.running, what.turn)
            case Away(processors):
                for p in processors:
                    self._take_away(now, p)
            case Back(processors):
                for p in processors:
                    self.lost += now - self.away.pop(p)
                    self.mail.append(node(p, self.options))
            case Report(reservation):
                for running in self.cluster.among(self.held[reservation].processors):
                    if running.processor not in self.away:  # otherwise its agent is silent
                        running.told = running.work.done(now)
                        self.mail.append(progress(running, running.told))
            case _:
                pass

    def _finish(self, now: float, running: Running, turn: int) -> None:
        if running.turn == turn and running.name in self.cluster.running:
            self._stop(now, running)
            self._execute(running, running.end, running.work.size)
            self.mail.append(pod(running, "Succeeded"))
            if running.offered:  # the Pool waits for its last report
                self.mail.append(progress(running, running.work.size, over=True))

    def _take_away(self, now: float, p: int) -> None:
        self.away[p] = now
        if self.options.silent_faults:
            for running in self.cluster.among((p,)):
                running.turn += 1  # its end is not reported
            return
        for running in self.cluster.among((p,)):
            done = running.work.done(now) if self.options.restart == "Resume" else 0
            if done:
                self.mail += [pod(running, "Running"), progress(running, done)]
            self._cut(now, running, done)
        self.mail.append(NodeGone(node_name(p, self.options)))

    def _cut(self, now: float, running: Running, done: int) -> None:
        self._stop(now, running)
        self._execute(running, now, done)

    def _kill(self, now: float, running: Running) -> None:
        """End a chunk that the Pool has given up; only its reported units count."""
        self._cut(now, running, min(running.told, running.work.size) if self.options.restart == "Resume" else 0)
        self.vacated = True

    def _stop(self, now: float, running: Running) -> None:
        """Remove a chunk from its processor; the chunks behind it at the port move forward and get new end events."""
        for moved in self.cluster.stop(now, running.name):
            if moved.processor not in self.away:  # otherwise its end is not reported
                self.happenings.at(moved.end, End(moved, moved.turn))

    def _execute(self, running: Running, end: float, counts: int) -> None:
        if running.send_start < end or counts:  # otherwise it never had the port
            made = Executed(
                running.job,
                running.processor,
                running.send_start,
                min(running.send_end, end),
                end,
                counts / self.loads.scale,
            )
            self.found.chunks.append(made)

    def _sample(self, now: float) -> None:
        last, periods = self.view.bound_sample, self.found.periods
        assert periods is not None
        if last is not None:
            periods.append(Period(last.time, last.miss_ratio, last.bound, 0.0))
        if self.happenings:  # otherwise nothing is left to measure
            self.happenings.at(now + self.options.sample_period, Sample())

    # jobs

    def _arrive(self, now: float, line: JobLine) -> None:
        job = self.loads.job(line)
        self.deadlines[job.uid] = job.deadline
        began = time.perf_counter()
        offer = self._step(now, [JobApplied(job)], job if self.options.offers else None)
        self.found.seconds.append(time.perf_counter() - began - (offer.seconds if offer else 0.0))
        record = self.records[line.id]
        assert record.admitted is not None
        accepted = record.admitted.status == "True"
        finish = record.promise.finish if accepted and record.promise else None
        self.found.decisions.append(
            Decision(
                id=line.id,
                time=line.arrival,
                accepted=accepted,
                reason=record.admitted.reason,
                promised_finish=finish,
                earliest_deadline=offer.earliest if offer else None,
            )
        )
        if not accepted:
            self._forget(line.id)

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
        places = sorted(int(place.node) for place in action.places)
        if (known := self.held.get(line.id)) is not None:  # faults have changed its processors
            self._book(line, known, now)
            self.held[line.id] = known._replace(since=now, processors=places)
            if now <= line.start:
                i = known.decision
                self.found.decisions[i] = replace(self.found.decisions[i], processors=places)
            return
        if accepted:
            self.held[line.id] = _Holding(len(self.found.decisions), now, places)
            for at in (line.start - ASKED, line.start, line.end):
                self.happenings.at(max(now, at + 2 * tolerance(at)), Turn())
            for at in _reports(line) if self.tells else ():
                if at > now:
                    self.happenings.at(at, Report(line.id))
        self.found.decisions.append(
            Decision(
                id=line.id,
                time=line.arrival,
                accepted=accepted,
                reason=action.answer.reason,
                processors=places if accepted else None,
            )
        )

    def _book(self, line: ReservationLine, held: "_Holding", until: float) -> None:
        """Count the processor seconds that a reservation has had since its processors last changed."""
        self.found.booked += len(held.processors) * max(0.0, min(until, line.end) - max(held.since, line.start))

    def _forget(self, uid: str) -> None:
        self.mail.append(JobDeleted(uid))
        self.records.pop(uid)

    # the Pool

    def _step(self, now: float, events: Sequence[Event], job: Job | None = None) -> "_Offer | None":
        """Step the Pool and carry out its actions until there are no more; return the offer if ``job`` is refused."""
        events, offer = [*self.mail, *events], None
        self.mail = []
        while True:
            self.pool.decide(now, events)
            if job is not None and offer is None and self.view.state(job.uid) == "Refused":
                offer = self._search(now, job)
            for action in self.pool.act(now):
                self._carry_out(now, action)
            if (opens := self.view.due) is not None and opens != self.opens:
                self.opens = opens
                self.happenings.at(opens, Open())
            news = self.vacated or any(isinstance(e, (Reported, PodObserved)) for e in self.mail)
            if not self.pool.backlog and not news:
                return offer
            events, self.mail, self.vacated = self.mail, [], False

    def _carry_out(self, now: float, action: Action) -> None:
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

    def _search(self, now: float, job: Job) -> "_Offer":
        """Search for the earliest deadline in the state in which the Pool refused the job, before it dispatches."""
        began = time.perf_counter()
        earliest = self.pool.quote(now, job).earliest_deadline()
        seconds = time.perf_counter() - began
        self.found.offer_seconds.append(seconds)
        return _Offer(earliest, seconds)

    def _create(self, now: float, action: CreateChunk) -> None:
        chunk = action.chunk
        p = int(chunk.node)
        cost = self.loads.true_cost(action.job, p)
        made = Running(action.job, chunk, p, cost, Work(chunk.size, cost.chi, now))
        self.cluster.start(now, made)
        if abs(made.end - chunk.promised_end) <= tolerance(made.end):
            made.end = max(made.send_end, chunk.promised_end)  # the same sum in another order
        if p not in self.away:  # otherwise it is silent
            self.happenings.at(made.end, End(made, 0))
        if chunk.leftover or self.tells:  # it may be asked to leave as soon as it is known to run
            self.mail.append(pod(made, "Running"))
        if made.end > chunk.promised_end and not self.spec.loose:
            late = chunk.promised_end + min(self.options.margin / 2, OVERDUE)
            self.happenings.at(late + 2 * tolerance(late), Look(made, 0))

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
            self.happenings.at(now + PATIENCE + 2 * tolerance(now), Reminder())
            return
        begin = running.chunk.begin
        done = running.told = running.work.done(now)
        running.offered = True
        begun = running.chunk.created + tolerance(now) < now
        if begun and now < running.work.begins:
            self.mail.append(progress(running, 0, begin))
            return
        look = self.loads.units(SECOND / (running.cost.chi * self.loads.scale))
        running.work.size = min(running.work.size, max(end - begin, (done // look + 1) * look))
        running.end = min(running.end, running.work.ends)
        running.turn += 1
        self.happenings.at(running.end, End(running, running.turn))
        if running.end > now + PATIENCE:
            self.happenings.at(now + PATIENCE + 2 * tolerance(now), Reminder())
        self.mail.append(progress(running, done, begin + running.work.size))

    def _note(self, now: float, uid: str, record: JobRecord) -> None:
        self.records[uid] = record
        owned = {chunk.key for chunk in record.chunks}
        for running in self.cluster.chunks_of(uid):
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
            self.found.measure_utilization(self.options.sample_period, self.options.processors)

    # what the Pool is told
