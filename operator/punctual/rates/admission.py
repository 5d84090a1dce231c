"""Admission of target rates: what they take on each node is at most what their pods request there.

A rate that is in force stays in force before others are considered: an edit or a new TargetRate that does not fit is
refused, and the old target stays. Otherwise the older one comes first. A pod belongs to the oldest that selects it.

An aligned application also needs a slot: a period that its pool allows, and an offset at which its nodes have cores
for its slices beside those of others. One that is in force keeps both.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import floor, inf
from typing import Final

from punctual import reasons
from punctual.control.rate import MOST, QUOTA, Overcommitted, RateDemand, admit
from punctual.rates.application import LONGEST, Application
from punctual.rates.balanced import LEAST
from punctual.rates.model import Place, longest_run
from punctual.rates.slots import PERIODS, Slot, Slots, allowed

Refusal = tuple[str, str]
_TINY: Final = 1e-9
"""Part of a CPU that is not counted."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is in force of one. ``target`` None: nothing, and its pods are not held."""

    target: float | None
    ceiling: float = 1.0
    refusal: Refusal | None = None
    """Why not what is asked."""
    place: Place | None = None
    """None: it is not aligned."""


@dataclass(slots=True)
class _Room:
    """The demands admitted so far, what their pods request, and the slots of those that are aligned."""

    slots: Slots
    demands: dict[str, RateDemand] = field(default_factory=dict)
    requests: dict[str, dict[str, float]] = field(default_factory=dict)
    """By application (uid) and node, cores."""

    def refuses(self, app: Application, target: float, period: int | None) -> Refusal | None:
        """Test an application with a target beside the others; None: it fits, and is taken.

        ``period``: of its slot, µs. None: it gets none.
        """
        cpus: dict[str, float] = {}
        requests: dict[str, float] = {}
        for m in app.members.values():
            cpus[m.node] = cpus.get(m.node, 0.0) + m.cpu
            requests[m.node] = requests.get(m.node, 0.0) + m.request
        uid = app.rate.uid
        epsilon = 0.0 if app.rate.balanced else app.rate.epsilon  # without a law, utilization is the target
        demands = {**self.demands, uid: RateDemand(app.rate.name, target, epsilon, cpus)}
        found = admit(list(demands.values()), self._capacity({**self.requests, uid: requests}))
        if isinstance(found, Overcommitted):
            return reasons.RATES_DO_NOT_FIT, _advice(app, target, found)
        if period is None:
            self.slots.placed.pop(app.rate.name, None)
        elif refusal := self._place(app, demands[uid], period, found.ceilings):
            return refusal
        self.demands[uid], self.requests[uid] = demands[uid], requests
        return None

    def _place(self, app: Application, demand: RateDemand, period: int, ceilings: dict[str, float]) -> Refusal | None:
        """Give an application a slot; None: it has one now."""
        nodes, rate = self.slots.nodes, demand.rate
        cores: dict[str, float] = {}
        for m in app.members.values():
            cores[m.node] = min(cores.get(m.node, 0.0) + m.cpus, nodes.get(m.node, inf))
        run = longest_run(app.members.values())
        gap = max(rate, (period - 1e6 * QUOTA) / (run * period))  # a slice that never ends would let nothing else run
        most = min(rate + MOST * demand.epsilon, 1e6 * app.rate.max_slice / (run * period), gap)
        slot = Slot(period, cores, rate, most, run)
        kept = _micros(app.place.offset) if app.place else None
        clash = self.slots.place(demand.name, slot, kept=kept, ceilings=ceilings)
        if clash is None:
            return None
        text = (
            f"its slice of {slot.length(rate) / 1e3:.6g} ms in each {period / 1e3:.6g} ms finds no place on node "
            f"{clash.node}: at {clash.at / 1e3:.6g} ms of the grid, {clash.other} leaves too few of its "
            f"{nodes[clash.node]:.6g} CPU; lower one of the two rates, or use other nodes"
        )
        return reasons.SLICES_DO_NOT_FIT, text

    def ceilings(self) -> dict[str, float]:
        """Return the most utilization of each, by name."""
        found = admit(list(self.demands.values()), self._capacity(self.requests))
        if isinstance(found, Overcommitted):  # each was tested, so this is rounding: there is nothing to spare
            return {demand.name: demand.rate for demand in self.demands.values()}
        shares = self.slots.shares(found.ceilings)
        return {name: min(most, shares.get(name, most)) for name, most in found.ceilings.items()}

    def place_of(self, app: Application) -> Place | None:
        """Return where an application has its slices."""
        slot = self.slots.placed.get(app.rate.name)
        return slot and Place(slot.period / 1e6, slot.offset / 1e6)

    @staticmethod
    def _capacity(requests: dict[str, dict[str, float]]) -> dict[str, float]:
        found: dict[str, float] = {}
        for nodes in requests.values():
            for node, cores in nodes.items():
                found[node] = found.get(node, 0.0) + cores
        return found


def answers(applications: Iterable[Application]) -> dict[str, Answer]:
    """Return the answer to each application, by uid."""
    owners, refusals = dict[str, str](), dict[str, Refusal]()
    asking: list[Application] = []
    by_age = sorted(applications, key=lambda app: app.rate.age)
    cores = {m.node: m.cores for app in by_age for m in app.members.values() if m.cores is not None}
    room = _Room(Slots(cores))
    for app in by_age:
        if refusal := app.rate.refusal or _shared(app, owners) or _unfit(app):
            refusals[app.rate.uid] = refusal
        else:
            asking.append(app)
    for app in asking:
        if app.target is not None:
            target = min(app.target, app.rate.target)
            if refusal := room.refuses(app, target, _kept_period(app, target)):
                refusals[app.rate.uid] = refusal
    for app in asking:
        if app.rate.uid not in refusals and (refusal := _edit(app, room)):
            refusals[app.rate.uid] = refusal
    ceilings, none = room.ceilings(), Answer(None)
    found = {
        app.rate.uid: Answer(room.demands[app.rate.uid].rate, ceilings[app.rate.name], place=room.place_of(app))
        for app in asking
        if app.rate.uid in room.demands
    }
    return {app.rate.uid: replace(found.get(app.rate.uid, none), refusal=refusals.get(app.rate.uid)) for app in by_age}


def _edit(app: Application, room: _Room) -> Refusal | None:
    """Put what is asked in force, if that is not what is; return why it does not fit."""
    before, slot = room.demands.get(app.rate.uid), room.slots.placed.get(app.rate.name)
    period = _period(app) if app.rate.aligned else None
    if isinstance(period, tuple):
        refusal: Refusal | None = period
    elif before and before.rate == app.rate.target and period == (slot and slot.period):
        return None
    else:
        refusal = room.refuses(app, app.rate.target, period)
    if refusal is None or before is None:
        return refusal
    asked = "" if refusal[1].startswith("spec.") else "spec.rate: "
    aligned = ", not aligned," if app.rate.aligned and slot is None else ""
    return reasons.EDIT_REFUSED, f"{asked}{refusal[1]}; {100 * before.rate:.6g}%{aligned} stays in force"


def _kept_period(app: Application, target: float) -> int | None:
    """Return the period of the slot that an application has. None: it has none, or its pods cannot be aligned in it."""
    if app.place is None or not app.rate.aligned or _whole(app, target):
        return None
    period = _micros(app.place.period)
    return period if period in allowed(app.limits(target).least(target), LONGEST) else None


def _period(app: Application) -> int | Refusal:
    """Return the longest period, µs, with a slice that the pool allows."""
    target, longest = app.rate.target, 1e6 * app.rate.max_slice
    run = longest_run(app.members.values())
    low, high = app.limits(target).least(target), app.rate.limits.max_period
    # a small pod needs a longer period than is asked, and gets it
    periods = allowed(low, high) if low <= high else allowed(low, LONGEST)[:1]
    if not periods:
        text = (
            f"spec.period: aligned slices need a period of {', '.join(f'{p / 1e3:g}' for p in PERIODS[:-1])} or "
            f"{PERIODS[-1] / 1e3:g} ms, and none is from {1e3 * low:.6g} to {1e3 * max(low, high):.6g} ms"
        )
        return reasons.INVALID_SPEC, text
    if _whole(app, target):
        text = "spec.rate: a pod with all its CPU has no slice that begins or ends: ask for less, or do not align it"
        return reasons.SLICE_TOO_LONG, text
    if short := [period for period in periods if target * run * period <= longest * (1 + 1e-9)]:
        return max(short)
    whole = run * periods[0]
    fits = "" if app.rate.balanced else f"ask for {floor(1e4 * longest / whole) / 100:.6g}% at most, or "
    text = (
        f"spec.rate: its slice would be {target * whole / 1e3:.6g} ms of each {periods[0] / 1e3:.6g} ms, and "
        f"maxSlice of its pool is {longest / 1e3:.6g} ms: {fits}allow a shorter spec.period.min"
    )
    return reasons.SLICE_TOO_LONG, text


def _whole(app: Application, target: float) -> bool:
    """Return whether a pod would run all the time."""
    return target * longest_run(app.members.values()) > 1.0 - _TINY


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)


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
    target = LEAST if app.rate.balanced else app.rate.target
    for m in app.members.values():
        if not m.in_pool:
            text = f"pod {m.name} is on node {m.node}, which is not of the pool: give the pods the pool's nodeSelector"
            return reasons.POD_OUTSIDE_POOL, text
        least = QUOTA / LONGEST
        if target * m.cpu < least:
            more = "give the pod more CPU" if app.rate.balanced else f"ask for {100 * least / m.cpu:.6g}% at least"
            text = (
                f"spec.rate: {100 * target:.6g}% of the {m.cpu:.6g} CPU of pod {m.name} is below {least:.3g} CPU, the "
                f"least that the kernel gives: {more}"
            )
            return reasons.INVALID_SPEC, text
    return None


def _advice(app: Application, target: float, over: Overcommitted) -> str:
    """Return a refusal with the rate that would fit."""
    cpu = sum(m.cpu for m in app.members.values() if m.node == over.node)
    fits = floor(1e4 * (target - (over.asked - over.has) / cpu)) / 100  # per cent
    would = f"{fits:.6g}% would fit there" if fits > 0.0 else "no rate would fit there"
    return f"{over}; {would}, or pods that request more CPU"
