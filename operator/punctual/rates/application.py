"""One application that is held at a rate: its pods' counts go into the law, the law's pair goes onto all its pods.

An iteration of the law is the time in which every pod that reports has progressed, WINDOW seconds at least, so a fast
program does many of its iterations in one. The rate is that of the slowest pod in it. When the pair changes, a fast
program's iteration begins anew; a slow one's goes on, and counts for the part of it under the new pair.

Where ``max_rate`` is not given, it is measured first: the pods then have all their CPU (U = 1), which is no more than
what their rate is a part of. A pod without progress is held at U = target.

A file has the end of the last iteration; Prometheus has a count at the moment of a scrape, some time after that. Two
such counts say the iterations between them to within one, so an iteration of the law then has ⌈2 / ε⌉ of the
application's at least: the rate is known to within ε / 2 of itself.

Where slices are balanced with the nodes' own work, the target is the part of the CPU for their load. There is no law:
utilization is the target. The rate is only shown, if the rate alone is known.

An aligned application has a place in the cluster's grid. Its law keeps the period of that place, and only the slice
moves. While its rate alone is measured, its pods have all their CPU and are not on the grid.

If memory of one pod of an aligned application runs short, all its pods are at the *floor* for a while: the kernel's
least quota, in the same periods, so that their phases stay. This also holds while the rate alone is measured, which
would be too low otherwise. Nothing is learned from that time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from punctual import reasons
from punctual.control.rate import (
    MOST,
    QUOTA,
    Bracketing,
    FixedPeriod,
    Iteration,
    KnownPair,
    Limits,
    Pair,
    RateDecision,
    Reason,
)
from punctual.rates.balanced import LEAST, Balance
from punctual.rates.counts import IN_FORCE, Counts
from punctual.rates.grid import Kept, Mark
from punctual.rates.model import (
    UNRECORDED,
    Grid,
    HoldPod,
    Member,
    Place,
    Record,
    ReportedPod,
    TargetRate,
    longest_run,
)
from punctual.rates.paging import BackOff
from punctual.rates.phases import PodPhases
from punctual.rates.scrapes import Scrapes
from punctual.rates.slots import PERIODS
from punctual.verdict import Verdict

WINDOW: Final = 4.0
"""Least seconds of an iteration of the law: reports are late by some hundredths of a second."""
MEASURED_SECONDS: Final = 10.0
MEASURED_ITERATIONS: Final = 3
"""So long the rate alone is measured, at least."""
SILENT_SECONDS: Final = 60.0
SILENT_ITERATIONS: Final = 10.0
"""A pod that makes no progress for so long, whichever is longer, is stalled."""
LONGEST: Final = 1.0
"""The kernel's longest period, s."""


@dataclass(slots=True)
class Application:
    """An application, held or refused. ``record``: what an earlier leader has left."""

    rate: TargetRate
    record: Record = UNRECORDED
    members: dict[str, Member] = field(default_factory=dict)
    """By pod (uid)."""
    refusal: tuple[str, str] | None = None
    """(reason, message) why it is not held as asked."""
    target: float | None = None
    """The target in force. None: its pods are not held."""
    max_rate: float | None = None
    seen: float | None = None
    """The last rate measured, a part of the rate alone."""
    pair: Pair | None = None
    """None: its pods are not held."""
    place: Place | None = None
    """In the cluster's grid. None: it is not aligned."""
    phases: PodPhases = field(default_factory=PodPhases)
    paging: BackOff = field(default_factory=BackOff)
    scrapes: Scrapes = field(init=False)
    balance: Balance = field(default_factory=Balance)
    changed: bool = False
    """What its pods are to be held at has changed since this was last set to False."""
    _ceiling: float = 1.0
    _law: Bracketing | FixedPeriod | None = None
    _on_target: bool = False
    """The pair has held the target, as far as reports say, or as an earlier leader has said."""
    _word: Reason = "Start"
    _counts: Counts = field(default_factory=Counts)
    _asked: float = 0.0
    """When the caps were decided, or a pod came."""

    def __post_init__(self) -> None:
        self.target, self.max_rate, self.seen = self.record.target, self.record.max_rate, self.record.rate
        self._on_target = self.record.on_target
        self.scrapes = Scrapes(self.rate.query)
        self.place = placed(self.record)

    # what is asked

    def ask(self, rate: TargetRate) -> None:
        """Take in what is asked now."""
        if rate.query != self.rate.query:
            self.scrapes = Scrapes(rate.query)
            self._counts.forget()
        self._on_target &= rate.balanced == self.rate.balanced
        self.rate = rate
        if rate.balanced:  # what is in force stays until the nodes have told their loads
            self.rate = replace(rate, target=self.balance.part or self.target or LEAST)

    def weigh(self, load: float | None) -> bool:
        """Take in the load of its nodes' own work, with which it is balanced; return whether it asks for another part.

        ``load`` None: it is not known. What is not held yet asks for the least part. Then a larger one that finds no
        place is an edit that is refused.
        """
        if load is not None:
            self.balance.weigh(load)
        target = LEAST if self.target is None else self.balance.part or self.target
        if target == self.rate.target:
            return False
        self.rate = replace(self.rate, target=target)
        return True

    def select(self, members: Iterable[Member], now: float) -> None:
        """Take in which pods there are."""
        before, self.members = self.members, {m.pod: m for m in members}
        if self.members.keys() - before.keys():
            self._asked = now
        self._counts.select(self.members.values())
        self.scrapes.keep(self.members)
        self.phases.select(self.members, now)
        if self.paging.at_floor and self.paging.pod not in self.members:
            self._come_back(now)
        self.changed = True

    def hold(self, target: float, ceiling: float, now: float, place: Place | None = None) -> None:
        """Hold it at a target, with at most ``ceiling`` as utilization, and at a place in the grid."""
        self._on_target &= target == self.target
        self.target, self._ceiling = target, ceiling
        if place != self.place:
            if (place and place.period) != (self.place and self.place.period):
                self._law = None
            self.place, self.changed = place, True
            self.phases.restart(now)
        if self.rate.max_rate is not None and not _alike(self.rate.max_rate, self.max_rate):
            self.max_rate, self._law, self._on_target = self.rate.max_rate, None, False
        if self.paging.at_floor and place is None:
            self._come_back(now)
        self._aim(now)

    def release(self) -> None:
        """Hold it no longer. What was measured stays."""
        if self.pair is not None:
            self.target = self.pair = self._law = self.seen = self.place = None
            self._counts, self.paging, self.changed = Counts(), BackOff(), True
            self._counts.select(self.members.values())

    @property
    def on_grid(self) -> Place | None:
        """Where its pods have their slices. None: they are not on the grid."""
        if self.pair is None or self.place is None or self.pair.period != self.place.period:
            return None
        # while its rate alone is measured, it has all its CPU, and so more than a slot
        measured = self.max_rate is None and self.pair.utilization == 1.0
        return None if measured else self.place

    def holds(self, origin: float | None) -> list[HoldPod]:
        """Return what its pods are to be held at. ``origin``: of the grid; None: it is not decided yet."""
        if self.pair is None:
            return []
        grid = None
        if place := self.on_grid:
            begins = None if origin is None else origin + place.offset
            grid = Grid(begins, longest_run(self.members.values()) * self.pair.slice)
        period, watch = self.pair.period, self.place is not None
        return [HoldPod(m.pod, m.node, self._cap(m, self.pair), period, grid, watch) for m in self.members.values()]

    @property
    def kept(self) -> Kept | None:
        """What says where the grid of the leader before is. None: nothing."""
        if self.on_grid is None or self.on_grid != placed(self.record):
            return None
        running = [m for m in self.members.values() if m.running]
        marks = [Mark(m.node, self.phases.begins(m.pod)) for m in running]
        return Kept(*self.on_grid, marks, self.phases.half(m.pod for m in running))

    # what happens

    def observe(self, at: float, seen: ReportedPod, clock: float | None = None) -> None:
        """Take in a pod's line of a report. ``clock``: by how much its agent may be wrong about ``at``, s."""
        member = self.members.get(seen.pod)
        if member is None or self.pair is None:
            return
        if self.place and seen.memory and self.paging.report(at, member, seen.memory):
            self._go_down(at)
        self.phases.observe(at, seen, clock, at_floor=self.paging.at_floor)
        if self.rate.query is not None:
            seen = self.scrapes.counted(at, seen)
        # a pod with all its CPU may have it by its own limit, in another period
        period = self.pair.period if self.pair.utilization < 1.0 else None
        self._counts.observe(at, seen, cap=self._cap(member, self.pair), period=period)

    def step(self, now: float) -> None:
        """Decide, if there is something to decide from."""
        if self.pair is None or self.target is None:
            return
        if self.paging.is_over(now):
            self._come_back(now)
        if self.paging.at_floor:
            return
        if self.max_rate is None:
            if not self.rate.balanced:
                self._measure(now)
            return
        # where iterations are short, it costs little to leave out what ran under another pair
        self._counts.begin_in_force(only_anew=WINDOW * self.max_rate * self.target < 2.0)
        new = self.phases.new(now) if self.on_grid else ()
        window = self._counts.closed(now, WINDOW, self.rate.exact, self._patience, new=new)
        if window is None:
            return
        self.seen = window.rate / self.max_rate
        if self._law is None or (self.on_grid and not self.phases.allow(now)):
            return
        if window.share > 0.0:
            self._decide(self._law.report(Iteration(self.seen, self.pair.utilization, window.share)), now)
            self._on_target = self._law.held or (self._on_target and self._word == "Wait")

    def _measure(self, now: float) -> None:
        """Measure the rate alone, from the moment on from which the pods have their CPU."""
        self._counts.begin_in_force(only_anew=False)
        window = self._counts.closed(now, MEASURED_SECONDS, max(MEASURED_ITERATIONS, self.rate.exact), self._patience)
        if window is not None and window.share == 1.0:
            self.max_rate = window.rate
        self._aim(now)

    def _go_down(self, now: float) -> None:
        """Let all pods have the least CPU. What was measured is not what they do there."""
        self.seen, self._on_target = None, False
        self._asked, self.changed = now, True
        self._counts.change()

    def _come_back(self, now: float) -> None:
        """Let all pods have the CPU of the pair again."""
        self.paging.come_back(now)
        self._asked, self.changed = now, True
        self._counts.resume(now)

    @property
    def _patience(self) -> float:
        if self.max_rate is None or self.target is None:
            return SILENT_SECONDS
        return max(SILENT_SECONDS, SILENT_ITERATIONS / (self.max_rate * self.target))

    # what is decided

    def _aim(self, now: float) -> None:
        assert self.target is not None
        limits = self.limits(self.target)
        if self.rate.balanced:
            period = self.place.period if self.place else limits.clamp(LONGEST, self.target)
            self._law = None
            self._decide(RateDecision(Pair(period, self.target * period), "Hold"), now)
            return
        if self.max_rate is None:
            # without progress there is nothing to measure; a leader before this one may have waited for it already
            waited = self.record.max_rate is None and (self.record.utilization or 1.0) < 1.0
            silent = waited or any(c.silent > SILENT_SECONDS for c in self._counts.pods.values())
            wait = bool(self._counts.reporting) or not silent
            share, period = (1.0 if wait else self.target), limits.clamp(LONGEST, self.target)
            if self.place and not wait:
                period = self.place.period
            self._decide(RateDecision(Pair(period, share * period), "Wait"), now)
            return
        if self._law is None:
            self._law = (
                FixedPeriod(self.rate.epsilon, self.place.period, self._recorded())
                if self.place
                else Bracketing(self.rate.epsilon, 1.0 / self.max_rate, limits, self._recorded())
            )
        law = self._law
        law.epsilon = self.rate.epsilon
        if isinstance(law, Bracketing):
            law.limits, law.alone = limits, max(1.0 / self.max_rate, WINDOW * self.target)
            if law.target and law.pair.period != limits.clamp(law.pair.period, min(self.target, law.pair.utilization)):
                law.target = 0.0  # its pair is no longer allowed
        self._decide(law.aim(self.target, ceiling=self._ceiling), now)

    def _recorded(self) -> tuple[KnownPair, ...]:
        """Return the pair that an earlier leader has left."""
        target, max_rate, utilization, period, rate, *_ = self.record
        if not (target and utilization and period and self.max_rate and _alike(self.max_rate, max_rate)):
            return ()
        # it was rounded when it was written
        utilization = min(utilization, self._ceiling) if utilization <= self._ceiling * (1 + 1e-6) else utilization
        return (KnownPair(target, Pair(period, utilization * period), rate or target),)

    def limits(self, target: float) -> Limits:
        """Return the periods with which no pod's quota is below the kernel's least."""
        asked = self.rate.limits
        cpu = min([1.0, *(m.cpu for m in self.members.values())])
        least = QUOTA / (cpu * max(target - MOST * self.rate.epsilon, target / 2))
        low = min(max(asked.min_period, least if cpu < 1.0 else 0.0), LONGEST)
        return Limits(low, max(asked.max_period, low))

    def _decide(self, decision: RateDecision, now: float) -> None:
        self._word = decision.reason
        if decision.pair != self.pair:
            self.pair, self._asked, self.changed = decision.pair, now, True
            self._counts.change()

    # how it stands

    def verdict(self, now: float) -> Verdict:  # noqa: PLR0911  one for each reason
        """Return whether it is on target."""
        assert self.pair is not None
        assert self.target is not None
        running = [m for m in self.members.values() if m.running]
        if not running:
            text = "no pod matches spec.selector" if not self.members else "no selected pod runs yet"
            return Verdict("Unknown", reasons.NO_PODS, text)
        if text := self._not_in_force(running, now):
            return Verdict("False", reasons.CAP_NOT_IN_FORCE, text)
        if self.paging.at_floor:
            return Verdict("False", reasons.MEMORY_SHORT, self.paging.why)
        if self.rate.balanced:
            return self._by_load(self.target, self.pair.period)
        if flaw := self.scrapes.failing(now):
            return Verdict("Unknown", reasons.NOT_COUNTED, flaw)
        silent = [m for m in running if (c := self._counts.pods.get(m.pod)) and c.silent > self._patience]
        if silent and not self._counts.reporting:
            return Verdict("Unknown", reasons.NO_PROGRESS, _without_progress(silent, self.pair, self.rate.query))
        if silent:
            text = f"{_names(silent)} made no progress for {self._patience:.0f} s; the others are held at the rate"
            return Verdict("False", reasons.STALLED, text)
        if self.max_rate is None:
            text = (
                f"the rate alone is measured, for {MEASURED_SECONDS:.0f} s and {MEASURED_ITERATIONS} iterations at "
                "least: set spec.maxRate to save this"
            )
            return Verdict("Unknown", reasons.MEASURING, text)
        if fallen := [m for m in running if (c := self._counts.pods.get(m.pod)) and c.fell]:
            text = f"the iterations of {_names(fallen)} went back: they are counted from there"
            return Verdict("Unknown", reasons.COUNT_FELL, text)
        return self._by_law(self.target)

    def aligned(self, now: float) -> Verdict | None:
        """Return whether its slices begin together. None: it is not asked, or its rate alone is measured first."""
        if self.pair is None or self.on_grid is None:
            return None
        running = [m for m in self.members.values() if m.running]
        slice_ = longest_run(self.members.values()) * self.pair.slice
        return self.phases.verdict(now, running, slice_, fills=self.pair.utilization < 1.0)

    def _by_load(self, target: float, period: float) -> Verdict:
        used = f"its pods have {100 * target:.6g}% of their CPU, in periods of {1000 * period:.3g} ms"
        if self.balance.load is not None:
            load = f"the load of their nodes' own work is {self.balance.load:.1f} tasks per CPU"
            return Verdict("True", reasons.BALANCED, f"{used}; {load}")
        text = f"{used}, until their nodes have told the load of their own work"
        if self._on_target:  # an earlier leader has said so
            return Verdict("True", reasons.BALANCED, text)
        return Verdict("Unknown", reasons.SETTLING, text)

    def _by_law(self, target: float) -> Verdict:
        assert self.pair is not None
        assert self._law is not None
        used = f"{self.pair.utilization:.1%} of its CPU in periods of {1000 * self.pair.period:.3g} ms"
        if self.seen is None:
            return Verdict("Unknown", reasons.SETTLING, f"{used}: no iteration has ended yet")
        asked = f"asked are {target:.1%} ± {100 * self.rate.epsilon:.3g} points"
        text = f"{self.seen:.1%} of its rate alone, {asked}, with {used}"
        if self._word == "Unreachable" or self._law.given_up:
            advice = "no period and slice hold this: raise spec.epsilon, or see what it waits for"
            return Verdict("False", reasons.UNREACHABLE, f"{text}; {advice}")
        if self._on_target:
            return Verdict("True", reasons.ON_TARGET, text)
        return Verdict("False", reasons.SETTLING, text)

    def _not_in_force(self, running: list[Member], now: float) -> str:
        """Return which pod does not have the cap that it should have; empty: all have it, or will soon."""
        assert self.pair is not None
        if now - self._asked <= IN_FORCE:
            return ""
        for m in running:
            counts, cap = self._counts.pods.get(m.pod), self._cap(m, self.pair)
            if counts is None or now - counts.heard > IN_FORCE:
                return f"the agent of node {m.node} does not report pod {m.name}: see whether the agent runs there"
            if counts.in_force is None:
                has = "no cap" if counts.cap is None else f"{counts.cap:.3g} cores"
                return f"pod {m.name} has {has}, asked are {cap:.3g} cores in {1000 * self.pair.period:.3g} ms"
        return ""

    def _cap(self, member: Member, pair: Pair) -> float:
        """Return a pod's cap, cores: its slice of a pair, and no less than the kernel's least quota, the floor."""
        floor = QUOTA / pair.period
        return floor if self.paging.at_floor else max(pair.utilization * member.cpu, floor)


def placed(record: Record) -> Place | None:
    """Return where in the grid an earlier leader had an application. None: nowhere, or at a place that cannot be."""
    if record.offset is None or record.period is None or round(1e6 * record.period) not in PERIODS:
        return None
    return Place(round(record.period, 6), round(record.offset, 6))


def _alike(one: float, other: float | None) -> bool:
    """Return whether two rates are one but for what a status rounds."""
    return other is not None and abs(one - other) <= 1e-5 * one


def _without_progress(silent: list[Member], pair: Pair, query: str | None) -> str:
    held = f"only their CPU is held, at {pair.utilization:.1%}"
    if query is not None:
        return f"{_names(silent)} made no progress that Prometheus knows of: {held}"
    return (
        f"{_names(silent)} have written no number of iterations into the file progress of an emptyDir volume named "
        f"punctual: {held}"
    )


def _names(members: list[Member]) -> str:
    more = f" and {len(members) - 1} more" if len(members) > 1 else ""
    return f"pod {members[0].name}{more}"
