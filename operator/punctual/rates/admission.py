"""Admission of target rates: what they take on each node is at most what their pods request there.

A rate that is in force stays in force before others are considered: an edit or a new TargetRate that does not fit is
refused, and the old target stays. Otherwise the older one comes first. A pod belongs to the oldest that selects it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import floor

from punctual import reasons
from punctual.control.rate import QUOTA, Overcommitted, RateDemand, admit
from punctual.rates.application import LONGEST, Application

Refusal = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is in force of one. ``target`` None: nothing, and its pods are not held."""

    target: float | None
    ceiling: float = 1.0
    refusal: Refusal | None = None
    """Why not what is asked."""


@dataclass(slots=True)
class _Room:
    """The demands admitted so far, and what their pods request."""

    demands: dict[str, RateDemand] = field(default_factory=dict)
    requests: dict[str, dict[str, float]] = field(default_factory=dict)
    """By application (uid) and node, cores."""

    def refuses(self, app: Application, target: float) -> Refusal | None:
        """Test an application with a target beside the others; None: it fits, and is taken."""
        cpus: dict[str, float] = {}
        requests: dict[str, float] = {}
        for m in app.members.values():
            cpus[m.node] = cpus.get(m.node, 0.0) + m.cpu
            requests[m.node] = requests.get(m.node, 0.0) + m.request
        uid = app.rate.uid
        demands = {**self.demands, uid: RateDemand(app.rate.name, target, app.rate.epsilon, cpus)}
        found = admit(list(demands.values()), self._capacity({**self.requests, uid: requests}))
        if isinstance(found, Overcommitted):
            return reasons.RATES_DO_NOT_FIT, _advice(app, target, found)
        self.demands[uid], self.requests[uid] = demands[uid], requests
        return None

    def ceilings(self) -> dict[str, float]:
        """Return the most utilization of each, by name."""
        found = admit(list(self.demands.values()), self._capacity(self.requests))
        if isinstance(found, Overcommitted):  # each was tested, so this is rounding: there is nothing to spare
            return {demand.name: demand.rate for demand in self.demands.values()}
        return found.ceilings

    @staticmethod
    def _capacity(requests: dict[str, dict[str, float]]) -> dict[str, float]:
        found: dict[str, float] = {}
        for nodes in requests.values():
            for node, cores in nodes.items():
                found[node] = found.get(node, 0.0) + cores
        return found


def answers(applications: Iterable[Application]) -> dict[str, Answer]:
    """Return the answer to each application, by uid."""
    room, owners, refusals = _Room(), dict[str, str](), dict[str, Refusal]()
    asking: list[Application] = []
    by_age = sorted(applications, key=lambda app: app.rate.age)
    for app in by_age:
        if refusal := app.rate.refusal or _shared(app, owners) or _unfit(app):
            refusals[app.rate.uid] = refusal
        else:
            asking.append(app)
    for app in asking:
        if app.target is not None and (refusal := room.refuses(app, min(app.target, app.rate.target))):
            refusals[app.rate.uid] = refusal
    for app in asking:
        uid, before = app.rate.uid, room.demands.get(app.rate.uid)
        if uid in refusals or (before and before.rate == app.rate.target):
            continue
        if refusal := room.refuses(app, app.rate.target):
            refusals[uid] = refusal
            if before:
                refusals[uid] = (
                    reasons.EDIT_REFUSED,
                    f"spec.rate: {refusal[1]}; {100 * before.rate:.6g}% stays in force",
                )
    ceilings, none = room.ceilings(), Answer(None)
    found = {
        app.rate.uid: Answer(room.demands[app.rate.uid].rate, ceilings[app.rate.name])
        for app in asking
        if app.rate.uid in room.demands
    }
    return {app.rate.uid: replace(found.get(app.rate.uid, none), refusal=refusals.get(app.rate.uid)) for app in by_age}


def _shared(app: Application, owners: dict[str, str]) -> Refusal | None:
    """Return the refusal of an application with a pod of an older one; else note that its pods are its own."""
    for m in app.members.values():
        if m.pod in owners:
            text = f"spec.selector: the older TargetRate {owners[m.pod]} selects pod {m.name}: change one of both"
            return reasons.POD_SHARED, text
    owners |= dict.fromkeys(app.members, app.rate.name)
    return None


def _unfit(app: Application) -> Refusal | None:
    """Return the refusal of an application with a pod that cannot be held."""
    for m in app.members.values():
        if not m.in_pool:
            text = f"pod {m.name} is on node {m.node}, which is not of the pool: give the pods the pool's nodeSelector"
            return reasons.POD_OUTSIDE_POOL, text
        least = QUOTA / LONGEST
        if app.rate.target * m.cpu < least:
            text = (
                f"spec.rate: {100 * app.rate.target:.6g}% of the {m.cpu:.6g} CPU of pod {m.name} is below {least:.3g} "
                f"CPU, the least that the kernel gives: ask for {100 * least / m.cpu:.6g}% at least"
            )
            return reasons.INVALID_SPEC, text
    return None


def _advice(app: Application, target: float, over: Overcommitted) -> str:
    """Return a refusal with the rate that would fit."""
    cpu = sum(m.cpu for m in app.members.values() if m.node == over.node)
    fits = floor(1e4 * (target - (over.asked - over.has) / cpu)) / 100  # per cent
    would = f"{fits:.6g}% would fit there" if fits > 0.0 else "no rate would fit there"
    return f"{over}; {would}, or pods that request more CPU"
