"""Exact admission test: plans the whole queue with the new job and returns the answer as a value.

A chain of predicates, each named after the obstacle that it finds. The user sees the first obstacle, with its
arithmetic. A job without an obstacle is admitted together with the plan that proves it (Mamat 2011, ch. 4: the new task
is inserted in the queue, the whole queue is scheduled, and the task is rejected if any deadline is missed).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from punctual import reasons
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Placement, Timeline


class Admitted(NamedTuple):
    """Admission: the plan that keeps every promise, and the job's placement in it."""

    plan: Plan
    booking: Placement
    appended: bool
    """Whether it is behind all other placements, none of which has moved."""


class Rejected(NamedTuple):
    """Refusal. ``by_time``: another deadline or load might be accepted, so an offer is searched."""

    reason: str
    message: str
    by_time: bool = False
    placements: int = 1
    """Number of placements tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A job to be tested."""

    job: Job
    demand: Demand
    plan: Plan
    now: float
    cpu: float
    """Cores of one processor, for the message."""
    deleting: bool = False


def refused_at_the_door(a: Application) -> Rejected | None:
    """Refuse a job that the edge of the system found unable to run."""
    return Rejected(*a.job.refusal) if a.job.refusal else None


def pool_is_going(a: Application) -> Rejected | None:
    """Refuse new work for a pool that is being deleted."""
    return Rejected(reasons.POOL_DELETED, "the pool is being deleted and takes no new jobs") if a.deleting else None


def its_reservation_is_over(a: Application) -> Rejected | None:
    """Refuse a job that names a reservation without a current window."""
    if a.job.reservation is None or a.demand.inside is not None:
        return None
    return Rejected(reasons.INFEASIBLE_RESERVATION, "its reservation has no window left: name another one")


def has_no_processors(a: Application) -> Rejected | None:
    """Refuse a job if the pool has no processors."""
    if a.plan.places:
        return None
    return Rejected(
        reasons.INFEASIBLE_CAPACITY,
        "the pool has no processor; its condition Ready has the reason: kubectl describe pool",
    )


def least_seconds(demand: Demand, ground: Timeline) -> float:
    """Return the seconds that set-up and one unit take on the fastest processor; 0 if no unit is left."""
    if not demand.ranges:
        return 0.0
    quickest = 1.0 if ground.speeds is None else float(ground.speeds.min(initial=np.inf))
    return demand.cost.setup + demand.cost.tau + demand.cost.chi * quickest


def too_late(demand: Demand, ground: Timeline, now: float) -> bool:
    """Whether no processor could compute one unit by the due time, even if it were free now."""
    left = demand.due - now
    if ground.speeds is None and left >= demand.cost.seconds(1):  # the usual case, tested at every decision
        return False
    return demand.surely_late - now < least_seconds(demand, ground)


def starts_too_late(a: Application) -> Rejected | None:
    """Refuse a job if set-up, margin and one unit alone take longer than the time to the deadline."""
    if not too_late(a.demand, a.plan.ground, a.now):
        return None
    least = least_seconds(a.demand, a.plan.ground)
    left = a.demand.due - a.now
    ahead = a.job.deadline - a.now
    if ahead <= 0:
        return Rejected(reasons.INFEASIBLE_STARTUP, f"the deadline passed {span(-ahead)} ago", by_time=True)
    return Rejected(
        reasons.INFEASIBLE_STARTUP,
        f"the deadline is {span(ahead)} away; set-up and one unit take {span(least)}, "
        f"margin and reduce {span(ahead - left)} more",
        by_time=True,
    )


def wants_more_processors_than_there_are(a: Application) -> Rejected | None:
    """Refuse a processors.min larger than the pool."""
    if a.demand.least <= len(a.plan.places):
        return None
    return Rejected(
        reasons.INFEASIBLE_CAPACITY,
        f"spec.processors.min is {a.demand.least}, but the pool has {some(len(a.plan.places), 'processor')}",
    )


CHECKS = (
    refused_at_the_door,
    pool_is_going,
    has_no_processors,
    its_reservation_is_over,
    wants_more_processors_than_there_are,
    starts_too_late,
)


def objection(a: Application) -> Rejected | None:
    """Return the obstacle to the job that does not depend on the plan, if any."""
    return next((no for check in CHECKS if (no := check(a))), None)


def admit(a: Application) -> Admitted | Rejected:
    """Return the plan with the job in it, or the first obstacle."""
    if no := objection(a):
        return no
    plan = a.plan.insert(a.demand)
    if isinstance(plan, Shortfall):
        return Rejected(reasons.INFEASIBLE_CAPACITY, _arithmetic(a, plan), by_time=True, placements=plan.placements)
    return Admitted(plan, plan.booking_of(a.demand.uid), plan.follows(a.plan))


def _arithmetic(a: Application, short: Shortfall) -> str:
    what = f"{some(a.demand.ranges.total, 'unit')} due in {span(a.demand.due - a.now)}"
    if a.demand.inside is not None and short.uid == a.demand.uid:
        return (
            f"{what}: inside the windows of its reservation "
            f"{some(short.usable, 'processor')} can begin in time, and they finish {some(short.fit, 'unit')}"
        )
    if short.uid != a.demand.uid:
        return f"{what} would fit only by breaking an earlier promise: {_broken(a, short)}"
    first = span(max(0.0, short.first_ready - a.now))
    if short.units == 0:
        return (
            f"the reduce step must begin within {span(a.demand.due - a.now)}; of {some(short.processors, 'processor')} "
            f"the first is free in {first}"
        )
    if said := _overload(a):
        return f"{what} {said}"
    if short.needed is None:
        return (
            f"{what}: none of {some(short.processors, 'processor')} is free early enough for one, the first in {first}"
        )
    most = a.demand.most
    limit = f", of which it may use {most}" if most is not None and most < short.usable else ""
    return (
        f"{what} need {some(short.needed, 'processor')} of {a.cpu:g} CPU from now; "
        f"{short.usable} of {short.processors} are free early enough{_reserved(a)}{limit}, the first in {first}, "
        f"and finish {some(short.fit, 'unit')}{_restraint(a, short)}"
    )


def _broken(a: Application, short: Shortfall) -> str:
    """Describe the broken promise by its lateness; its name may be another tenant's and stays private."""
    due = span(next(d.due for d in a.plan.demands if d.uid == short.uid) - a.now)
    if 0 <= short.fit < short.units:
        return f"a job due in {due} would finish {short.fit} of its {some(short.units, 'unit')} in time"
    return f"a job due in {due} would be late"


def _overload(a: Application) -> str | None:
    """Return the demanded and available processor time, if no order of the promised jobs can finish the load."""
    if not len(a.plan) or not a.plan.overloaded(a.demand):
        return None
    due, ready = a.demand.due, a.plan.ground.ready
    promised = [d.work for d in a.plan.demands if d.due <= due]
    room = sum(max(0.0, due - at) for at in ready.tolist())
    before = f"{span(sum(promised))} are promised to {some(len(promised), 'job')} by then, and " if promised else ""
    return (
        f"take {span(a.demand.work)} of processor time; {before}{some(ready.size, 'processor')} of {a.cpu:g} CPU "
        f"{'has' if ready.size == 1 else 'have'} {span(room)} until then"
    )


def _reserved(a: Application) -> str:
    """Return a note on reserved windows that take processors."""
    around = a.plan.ground.around
    if around is None:
        return ""
    held = len(set(around.place[around.start < a.demand.due].tolist()))
    return f" ({held} of them reserved for a time before that)" if held else ""


def _restraint(a: Application, short: Shortfall) -> str:
    """Return a note on why so many processors are not enough although their total time is."""
    if short.fit < short.units or short.usable < a.demand.least:
        return ""
    d = a.plan.ground.discipline
    by = {
        "in equal parts": d.partition == "EPR",
        "on all useful processors": d.assign == "AN",
        "all starting at the same time": d.together,
        "sending one input after the other": d.one_port,
        f"with a set-up for each of {len(a.demand.ranges.parts)} ranges": len(a.demand.ranges.parts) > 1,
    }
    return f" in total, but not {' and '.join(way for way, so in by.items() if so) or 'cut into whole units'}"
