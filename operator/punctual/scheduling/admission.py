"""May this job be promised its deadline? Exact test over the whole queue, answered as a value.

A chain of predicates named as the fact that stands against it; the user sees the first that fails, with its
arithmetic. What none of them objects to is admitted with the plan that proves it (Mamat 2011, ch. 4: the new task is
put into the queue, the whole queue is scheduled, and it is rejected if any deadline breaks).
"""

from dataclasses import dataclass
from typing import NamedTuple

from punctual import reasons
from punctual.scheduling.job import Job
from punctual.scheduling.placement import Booking, Demand, Shortfall
from punctual.scheduling.plan import Plan
from punctual.scheduling.words import some, span


class Admitted(NamedTuple):
    """The plan that keeps every promise, and what in it is this job's."""

    plan: Plan
    booking: Booking
    appended: bool
    """Whether it stands behind all other bookings, none of which has moved."""


class Rejected(NamedTuple):
    """Why not. ``by_time``: another deadline or load could do, so an offer is worth looking for."""

    reason: str
    message: str
    by_time: bool = False
    placements: int = 1
    """Placements it took to find out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A job before the test."""

    job: Job
    demand: Demand
    plan: Plan
    now: float
    cpu: float
    """Cores of one processor, for the message."""
    deleting: bool = False


def refused_at_the_door(a: Application) -> Rejected | None:
    """Refuse what the edge already knows cannot run."""
    return Rejected(*a.job.refusal) if a.job.refusal else None


def pool_is_going(a: Application) -> Rejected | None:
    """Refuse new work for a pool that is being deleted."""
    return Rejected(reasons.POOL_DELETED, "the pool is being deleted and takes no new jobs") if a.deleting else None


def has_no_processors(a: Application) -> Rejected | None:
    """Refuse where there is nothing to compute on."""
    if a.plan.places:
        return None
    return Rejected(
        reasons.INFEASIBLE_CAPACITY,
        "the pool has no processor; its condition Ready tells why: kubectl describe pool",
    )


def starts_too_late(a: Application) -> Rejected | None:
    """Refuse where set-up, margin and one unit alone take longer than the deadline leaves."""
    least = a.demand.cost.seconds(1)
    left = a.demand.due - a.now
    if left >= least:
        return None
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
    """Refuse a processors.min beyond the pool."""
    if a.demand.least <= len(a.plan.places):
        return None
    return Rejected(
        reasons.INFEASIBLE_CAPACITY,
        f"spec.processors.min is {a.demand.least}, the pool has {some(len(a.plan.places), 'processor')}",
    )


CHECKS = (
    refused_at_the_door,
    pool_is_going,
    has_no_processors,
    wants_more_processors_than_there_are,
    starts_too_late,
)


def objection(a: Application) -> Rejected | None:
    """Return what stands against the job whatever else is planned."""
    return next((no for check in CHECKS if (no := check(a))), None)


def admit(a: Application) -> Admitted | Rejected:
    """Answer: the plan with the job in it, or the first objection."""
    if no := objection(a):
        return no
    plan = a.plan.insert(a.demand)
    if isinstance(plan, Shortfall):
        return Rejected(reasons.INFEASIBLE_CAPACITY, _arithmetic(a, plan), by_time=True, placements=plan.placements)
    appended = plan.bookings[:-1] == a.plan.bookings
    return Admitted(plan, plan.booking_of(a.demand.uid), appended)


def _arithmetic(a: Application, short: Shortfall) -> str:
    if short.uid != a.demand.uid:
        return (
            f"{some(a.demand.ranges.total, 'unit')} due in {span(a.demand.due - a.now)} would fit only by breaking "
            "an earlier promise"
        )
    if short.units == 0:
        return (
            f"the reduce step must begin within {span(a.demand.due - a.now)}; of {some(short.processors, 'processor')} "
            f"the first is free in {span(max(0.0, short.first_ready - a.now))}"
        )
    what = f"{some(short.units, 'unit')} due in {span(a.demand.due - a.now)}"
    first = span(max(0.0, short.first_ready - a.now))
    if short.needed is None:
        return (
            f"{what}: none of {some(short.processors, 'processor')} is free early enough for one, the first in {first}"
        )
    return (
        f"{what} need {some(short.needed, 'processor')} of {a.cpu:g} CPU from now; "
        f"{short.usable} of {short.processors} are free early enough, the first in {first}, "
        f"and finish {some(short.fit, 'unit')}"
    )
