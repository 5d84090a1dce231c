"""The control of all target rates of a cluster: ``RateControl.step(now, events) -> actions``.

It admits applications, holds the pods of those that are admitted, and writes how each stands. Everything is decided
again from states when a TargetRate or its pods change; reports only go to the application that has the pod.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from punctual import reasons
from punctual.control.phase import wrap
from punctual.rates.admission import answers
from punctual.rates.application import Application
from punctual.rates.balanced import NodeLoads
from punctual.rates.grid import GridOrigin
from punctual.rates.model import (
    Action,
    Event,
    HoldPod,
    MembersSeen,
    PodsCounted,
    PodsReported,
    RateApplied,
    RateDeleted,
    RateStatus,
    ReleasePod,
    ReportedPod,
    WriteRate,
)
from punctual.verdict import Verdict

LOOK: Final = 1.0
"""Seconds between two looks without events."""
REWRITE: Final = 30.0
"""Seconds after which a status is written again for small changes of its numbers."""


class RateControl:
    """All applications. ``now`` of its steps and the reports' ``at`` are of one clock that is never set."""

    backlog = 0
    """It decides everything in each step."""

    def __init__(self) -> None:
        self._applications: dict[str, Application] = {}
        self._members: dict[str, MembersSeen] = {}  # of TargetRates that are not known yet
        self._owners: dict[str, Application] = {}  # by pod
        self._held: dict[str, HoldPod] = {}
        self._grid = GridOrigin()
        self._loads = NodeLoads()
        self._looked = -inf
        self._written: dict[str, tuple[float, RateStatus]] = {}

    def restore(self, now: float, events: Sequence[Event]) -> list[Action]:
        """Take the first step, from all that is on record."""
        return self.step(now, events)

    def step(self, now: float, events: Sequence[Event]) -> list[Action]:
        """Process events, and return what is to be done. Without events, only time passes: it looks once a second."""
        if not events and now - self._looked < LOOK:
            return []
        self._looked = now
        admit = False
        for event in events:
            admit |= self._take(now, event)
        if admit:
            self._admit(now)
        if self._weigh(now):
            admit = True
            self._admit(now)
        for event in events:
            if isinstance(event, PodsReported):
                self._observe(event)
            elif isinstance(event, PodsCounted) and (app := self._applications.get(event.uid)):
                app.scrapes.observe(event, app.members)
        for app in self._applications.values():
            app.step(now)
        self._settle_grid(now)
        holds = self._holds() if admit or any(app.changed for app in self._applications.values()) else []
        return [*holds, *self._statuses(now)]

    def _take(self, now: float, event: Event) -> bool:
        """Take in an event; return whether admission has to be tested again."""
        match event:
            case RateApplied(rate, record):
                app = self._applications.get(rate.uid)
                if app is None:
                    self._applications[rate.uid] = app = Application(rate, record)
                    if members := self._members.pop(rate.uid, None):
                        app.select(members.members, now)
                app.ask(rate)
            case RateDeleted(uid):
                self._applications.pop(uid, None)
                self._members.pop(uid, None)
                self._written.pop(uid, None)
            case MembersSeen(uid, members):
                if app := self._applications.get(uid):
                    app.select(members, now)
                else:
                    self._members[uid] = event
            case PodsReported(node, at, load=load):
                if load is not None:
                    self._loads.observe(node, at, load)
                return False
            case PodsCounted():
                return False
        return True

    def _admit(self, now: float) -> None:
        self._loads.forget(now)
        found = answers(self._applications.values())
        self._owners.clear()
        for uid, app in self._applications.items():
            answer = found[uid]
            app.refusal = answer.refusal
            if answer.target is None:
                app.release()
                continue
            app.hold(answer.target, answer.ceiling, now, answer.place)
            self._owners |= dict.fromkeys(app.members, app)

    def _weigh(self, now: float) -> bool:
        """Tell applications the loads of their nodes; return whether one asks for another target."""
        balanced = [app for app in self._applications.values() if app.rate.balanced]
        changed = [app.weigh(self._loads.mean({m.node for m in app.members.values()}, now)) for app in balanced]
        return any(changed)

    def _observe(self, report: PodsReported) -> None:
        for seen in report.pods:
            if app := self._owners.get(seen.pod):
                app.observe(report.at, self._judged(app, seen), report.clock)

    def _judged(self, app: Application, seen: ReportedPod) -> ReportedPod:
        """Return a pod's line with its error on the present grid: its agent may not have heard of that yet."""
        phase, place, begins = seen.phase, app.on_grid, self._grid.begins
        if phase is None or phase.error is None:
            return seen
        error = None if place is None or begins is None else wrap(phase.begins - begins - place.offset, place.period)
        return seen._replace(phase=phase._replace(error=error))

    def _settle_grid(self, now: float) -> None:
        """Decide where the grid begins, if an application is on it."""
        on_grid = sorted((app for app in self._applications.values() if app.on_grid), key=lambda app: app.rate.age)
        if on_grid and self._grid.settle(now, [kept for app in on_grid if (kept := app.kept)]):
            for app in on_grid:
                app.phases.restart(now)
                app.changed = True

    def _holds(self) -> list[Action]:
        """Return what has changed about the pods that are held."""
        wanted: dict[str, HoldPod] = {}
        for app in self._applications.values():
            wanted |= {hold.pod: hold for hold in app.holds(self._grid.begins)}
            app.changed = False
        gone: list[Action] = [ReleasePod(pod, held.node) for pod, held in self._held.items() if pod not in wanted]
        new: list[Action] = [hold for pod, hold in wanted.items() if self._held.get(pod) != hold]
        self._held = wanted
        return gone + new

    def _statuses(self, now: float) -> list[Action]:
        """Return the statuses that are worth a write."""
        found: list[Action] = []
        for uid, app in self._applications.items():
            status = _status(app, now)
            at, before = self._written.get(uid, (now, None))
            urgent = before is None or _words(before) != _words(status)
            if urgent or (before != status and (now - at >= REWRITE or _differs(app, before, status))):
                self._written[uid] = now, status
                found.append(WriteRate(uid, status, urgent))
        return found


def _status(app: Application, now: float) -> RateStatus:
    admitted = Verdict("True", reasons.FEASIBLE, "its pods request what the rate takes")
    if app.refusal:
        admitted = Verdict("False" if app.pair is None else "True", *app.refusal)
    status = RateStatus(admitted=admitted, max_rate=app.max_rate, pods=len(app.members))
    if app.pair is None:
        return status
    return replace(
        status,
        on_target=app.verdict(now),
        target=app.target,
        rate=app.seen,
        utilization=app.pair.utilization,
        period=app.pair.period,
        cap=min((hold.cap for hold in app.holds(None)), default=None),
        aligned=app.aligned(now),
        offset=app.on_grid and app.on_grid.offset,
        skew=app.on_grid and app.phases.skew(m.pod for m in app.members.values() if m.running),
        load=round(app.balance.load, 1) if app.rate.balanced and app.balance.load is not None else None,
    )


def _words(status: RateStatus) -> tuple[object, ...]:
    """Return what of a status is more than numbers."""
    on_target, aligned = status.on_target, status.aligned
    return (
        status.admitted,
        on_target and (on_target.status, on_target.reason),
        aligned and (aligned.status, aligned.reason),
        status.offset,
        status.target,
        status.max_rate,
        status.pods,
    )


def _differs(app: Application, before: RateStatus | None, now: RateStatus) -> bool:
    """Return whether the pair changed, or the rate by more than a third of ε."""
    if before is None or (before.period, before.utilization) != (now.period, now.utilization):
        return True
    return abs((before.rate or 0.0) - (now.rate or 0.0)) > app.rate.epsilon / 3
