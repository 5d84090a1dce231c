"""Fluid shares: jobs that share processors, each at the part of a processor that keeps it on its line.

A job has one pod. What it needs is what is left of it over the time that it has (Park and Humphrey, eqs. 9 and 13); the
needs of a node's pods add up to no more than its processors (C1). So they all end in time, however many there are.

Memory is a second limit: a node has room for a number of pods only. A job that finds no room, or no CPU, waits; then
its need rises. `arrange` therefore looks ahead: pods run on their lines until their due times, and each that ends makes
room for the waiting job with the least slack. If a job would be late, one with more slack makes way for it: it is cut
short, and goes on when there is room again. Only jobs that resume where they stopped make way.

Work is counted in seconds of a whole processor of the fastest nodes, and needs in processors.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.control.utilization import Remaining, choose
from punctual.scheduling.model.node_rules import Eligible, HostPort
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.timing import NOTICE

Floats = NDArray[np.float64]

ROUNDING: Final = 1e-6
"""Processors by which a sum of needs may exceed what there is: needs are computed from times again and again."""

Way = Literal["eager", "in turn", "later"]
"""Which waiting jobs may start: all that fit, none before a more urgent one, or none before the next pod ends.

To start a job that fits may take the CPU that a more urgent one was to get soon. So the ways are tried one by one.
"""
WAYS: Final[tuple[Way, ...]] = ("eager", "in turn", "later")


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidNode:
    """What a node has for a pool's pods."""

    name: str
    processors: int
    pods: int
    """Pods that it may have at a time."""
    taken: int = 0
    """Pods that it has, those of jobs without a promise included: these leave if they must."""
    speed: float = 1.0
    """Factor of the time of a unit."""
    closed: bool = False
    """Only jobs that name it may run there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidJob:
    """What is left of a job. Times are absolute, in seconds."""

    uid: str
    due: float
    """When its work must be done."""
    work: float
    """Processor seconds left, on a node of speed 1."""
    setup: float
    """Seconds from the creation of a pod until it computes."""
    pause: float = 0.0
    """Seconds until its running pod computes."""
    node: str | None = None
    """Where it has a pod; None: it waits."""
    leaving: bool = False
    """Its pod is being cut short; then the job waits."""
    resumes: bool = False
    """What its pod has done counts if the pod is ended."""
    not_before: float = 0.0
    """It gets no pod before this time."""
    ranges: Ranges = field(default_factory=Ranges)
    """Units that no pod has."""
    eligible: Eligible | None = None
    """Nodes on which it may run; None: all that are not closed."""
    unit_pods: bool = False
    """A pod does one unit; the next one follows it."""

    def fits(self, node: FluidNode) -> bool:
        """Whether its pod may run on a node."""
        return not node.closed if self.eligible is None else node.name in self.eligible.nodes

    @property
    def ports(self) -> frozenset[HostPort]:
        """The host ports that its pod takes."""
        return frozenset() if self.eligible is None else self.eligible.ports

    def remaining(self, at: float, speed: float, *, waits: bool) -> Remaining:
        """Return what is left of it at a time on a node of this speed, in processor seconds."""
        return Remaining(self.work * speed, self.due - at - (self.setup if waits else self.pause), gain=1.0)


class Start(NamedTuple):
    """When and where a waiting job gets its pod."""

    node: str
    at: float


class Arrangement(NamedTuple):
    """What is expected of a pool's pods."""

    kept: bool
    """Every job is in time."""
    starts: Mapping[str, Start]
    """By uid, of the jobs that wait."""
    overtaken: frozenset[str] = frozenset()
    """Jobs that make way."""


def arrange(now: float, nodes: Sequence[FluidNode], jobs: Collection[FluidJob]) -> Arrangement:
    """Return which waiting jobs get their pods when and where, and which jobs make way for them.

    No job makes way as long as all are in time without it: to begin again costs its set-up.
    """
    first = _best(now, nodes, jobs)
    found, gone = first, frozenset[str]()
    while not found.kept:
        victim = _victim(now, nodes, jobs, found.starts, gone)
        if victim is None:
            return first
        gone |= {victim}
        found = _best(now, nodes, [replace(job, leaving=True) if job.uid in gone else job for job in jobs])
    return found._replace(overtaken=gone)


def _best(now: float, nodes: Sequence[FluidNode], jobs: Collection[FluidJob]) -> Arrangement:
    """Return what is expected in the first way in which all are in time, or else in turn."""
    tried = [_arranged(now, nodes, jobs, "eager")]
    if tried[0].kept or all(job.node is not None for job in jobs):
        return tried[0]
    tried += [_arranged(now, nodes, jobs, way) for way in WAYS[1:]]
    return next((found for found in tried if found.kept), tried[1])


@dataclass(slots=True)
class _Used:
    """What is in use of a node at one time."""

    node: FluidNode
    needed: float = 0.0
    pods: int = 0
    ports: tuple[frozenset[HostPort], ...] = ()
    """Host ports that its pods have, by pod."""

    @property
    def fits(self) -> bool:
        """Whether the node has what is in use."""
        return self.needed <= self.node.processors + ROUNDING and self.pods <= self.node.pods

    def occupy(self, ports: frozenset[HostPort]) -> None:
        """Note that a pod takes these host ports."""
        if ports:
            self.ports += (ports,)

    def leave(self, ports: frozenset[HostPort]) -> None:
        """Note that a pod gives them back."""
        if ports:
            at = self.ports.index(ports)
            self.ports = self.ports[:at] + self.ports[at + 1 :]

    @property
    def spare(self) -> float:
        """Processors that one more pod may need; below zero: there is no room for it."""
        return self.node.processors + ROUNDING - self.needed if self.pods < self.node.pods else -1.0

    def need(self, job: FluidJob, at: float) -> float | None:
        """Return what the job would need here, in processors; None: there is no room, or it would be late."""
        left = job.remaining(at, self.node.speed, waits=True)
        if self.pods >= self.node.pods or left.fraction > 1.0 + ROUNDING or not job.fits(self.node):
            return None
        if job.eligible is not None and any(map(job.eligible.conflicts, self.ports)):
            return None
        return left.needed if self.needed + left.needed <= self.node.processors + ROUNDING else None


class _End(NamedTuple):
    """The end of a pod, or a time from which a job may have one."""

    at: float
    node: str = ""
    need: float = 0.0
    ports: frozenset[HostPort] = frozenset()


@dataclass(slots=True)
class _Queue:
    """The jobs that wait, in order of slack. All slacks fall at one rate, so the order stays.

    It finds the jobs for which there is CPU by vectors: a look at each job at the end of each pod takes quadratic time.
    """

    jobs: Sequence[FluidJob]
    kind: NDArray[np.intp]
    """Jobs with the same rules about nodes are of one kind."""
    allowed: Mapping[float, NDArray[np.bool_]]
    """Whether a job may run on a node and the node is of this speed, by kind and node."""
    work: Floats
    until: Floats
    """Its due time less its set-up."""
    latest: Floats
    """When it must begin on a node of the fastest."""
    not_before: Floats
    waits: NDArray[np.bool_]
    """It has not started yet."""
    first: int = 0
    """The most urgent job that waits; the number of jobs: none does."""

    @classmethod
    def of(cls, jobs: Iterable[FluidJob], nodes: Sequence[FluidNode]) -> "_Queue":
        """Return the queue of these jobs."""
        quickest = min((node.speed for node in nodes), default=1.0)
        line = sorted(jobs, key=lambda job: (job.remaining(0.0, quickest, waits=True).slack, job.uid))
        kinds: dict[Eligible | None, FluidJob] = {}
        for job in line:
            kinds.setdefault(job.eligible, job)
        numbers = {eligible: number for number, eligible in enumerate(kinds)}
        return cls(
            jobs=line,
            kind=np.array([numbers[job.eligible] for job in line], dtype=np.intp),
            allowed={
                speed: np.array([[job.fits(node) and node.speed == speed for node in nodes] for job in kinds.values()])
                for speed in {node.speed for node in nodes}
            },
            work=np.array([job.work for job in line]),
            until=np.array([job.due - job.setup for job in line]),
            latest=np.array([job.remaining(0.0, quickest, waits=True).slack for job in line]),
            not_before=np.array([job.not_before for job in line]),
            waits=np.full(len(line), fill_value=True),
        )

    def start(self, which: int) -> None:
        """Note that a job does not wait any more."""
        self.waits[which] = False
        while self.first < len(self.jobs) and not self.waits[self.first]:
            self.first += 1

    def next(self, begin: int, at: float, spare: Floats) -> int:
        """Return the first job from ``begin`` on for which there may be room at a time.

        The number of jobs stands for none. ``spare``: processors that one more pod may need, by node.
        """
        begin = max(begin, self.first)
        if begin == len(self.jobs) or not np.any(spare >= 0.0):
            return len(self.jobs)
        work, seconds = self.work[begin:], np.maximum(0.0, self.until[begin:] - at)
        found = np.zeros(len(work), dtype=np.bool_)
        for speed, allowed in self.allowed.items():
            most = np.where(allowed, spare, -1.0).max(axis=1)
            most = np.where(most >= 1.0, 1.0 + ROUNDING, most)  # no job has more than one processor
            found |= work * speed <= most[self.kind[begin:]] * seconds
        found &= self.waits[begin:] & (self.not_before[begin:] <= at)
        return begin + int(np.argmax(found)) if found.any() else len(self.jobs)


@dataclass(slots=True)
class _Lookahead:
    """What is expected from ``at`` on."""

    at: float
    nodes: dict[str, _Used]
    queue: _Queue
    ends: list[_End]
    in_turn: bool = False
    """No job starts before a more urgent one."""
    starts: dict[str, Start] = field(default_factory=dict)

    def begin(self) -> None:
        """Start the jobs for which there is room, in order of slack."""
        which = self._next(0)
        while which < len(self.queue.jobs):
            if self._start(self.queue.jobs[which]):
                self.queue.start(which)
            elif self.in_turn:
                return
            which = self._next(which + 1)

    def _next(self, begin: int) -> int:
        if self.in_turn:  # all before the first one have started
            return self.queue.first
        return self.queue.next(begin, self.at, np.array([here.spare for here in self.nodes.values()]))

    def _start(self, job: FluidJob) -> bool:
        """Start a job if there is room for it.

        Of the nodes with room, the one with the least CPU to spare is taken: so jobs with high needs find room as well.
        """
        found = [(here, need) for here in self.nodes.values() if (need := here.need(job, self.at)) is not None]
        if not found or job.not_before > self.at:
            return False
        here, need = min(found, key=lambda it: (it[0].node.processors - it[0].needed - it[1], it[0].node.name))
        here.needed += need
        here.pods += 1
        here.occupy(job.ports)
        heappush(self.ends, _End(max(self.at, job.due), here.node.name, need, job.ports))
        self.starts[job.uid] = Start(here.node.name, self.at)
        return True

    def go_on(self) -> None:
        """Let the pods end that end next."""
        then = self.ends[0].at
        while self.ends and self.ends[0].at <= then:
            end = heappop(self.ends)
            if here := self.nodes.get(end.node):
                here.needed -= end.need
                here.pods -= 1
                here.leave(end.ports)
        self.at = max(self.at, then)


def _arranged(now: float, nodes: Sequence[FluidNode], jobs: Iterable[FluidJob], way: Way) -> Arrangement:
    """Return what is expected if no further job makes way."""
    there = {node.name: _Used(node) for node in nodes}
    ends: list[_End] = []
    waiting: list[FluidJob] = []
    kept = True
    for job in jobs:
        here = None if job.node is None else there.get(job.node)
        if here is not None:
            here.pods += 1
            here.occupy(job.ports)
        if here is not None and not job.leaving:
            left = job.remaining(now, here.node.speed, waits=False)
            kept = kept and left.fraction <= 1.0 + ROUNDING
            here.needed += left.needed
            ends.append(_End(max(now, job.due), here.node.name, left.needed, job.ports))
            continue
        begins = job.not_before
        if here is not None:
            begins = max(begins, now + NOTICE)
            ends.append(_End(now + NOTICE, here.node.name, 0.0, job.ports))
        if begins > now:
            ends.append(_End(begins))
        waiting.append(job if begins == job.not_before else replace(job, not_before=begins))
    kept = kept and all(here.fits for here in there.values())
    heapify(ends)
    ahead = _Lookahead(now, there, _Queue.of(waiting, nodes), ends, in_turn=way == "in turn")
    if way == "later":
        if not ends:
            return Arrangement(kept=False, starts={})
        ahead.go_on()
    ahead.begin()
    while ahead.queue.first < len(waiting):
        if not ends or ahead.queue.latest[ahead.queue.first] < ahead.at - ROUNDING:
            return Arrangement(kept=False, starts=ahead.starts)
        ahead.go_on()
        ahead.begin()
    return Arrangement(kept, ahead.starts)


def _victim(
    now: float,
    nodes: Iterable[FluidNode],
    jobs: Collection[FluidJob],
    starts: Mapping[str, Start],
    gone: Collection[str],
) -> str | None:
    """Return the job that should make way for the most urgent one that finds no room now; None: there is none."""
    waits = [
        job for job in jobs
        if job.node is None and job.not_before <= now and (job.uid not in starts or starts[job.uid].at > now)
    ]  # fmt: skip
    if not waits:
        return None
    found: list[tuple[float, str]] = []
    for node in nodes:
        here = [job for job in jobs if job.node == node.name and not job.leaving and job.uid not in gone]
        movable = [job for job in here if job.resumes]
        able = [job for job in waits if job.fits(node)]
        if not able:
            continue
        urgent = min(able, key=lambda job: job.remaining(now, node.speed, waits=True).slack)
        left = [job.remaining(now, node.speed, waits=False) for job in movable]
        left.append(urgent.remaining(now + NOTICE, node.speed, waits=True))
        running = [True] * len(movable) + [False]
        stay = choose(left, running, max(0, node.pods - len(here) + len(movable)))
        found += [(left[i].slack, job.uid) for i, job in enumerate(movable) if i not in stay]
    return max(found)[1] if found else None
