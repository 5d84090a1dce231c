"""A job's request for a promise, and the obstacles that do not depend on what else is promised.

A chain of predicates, each named after the obstacle that it finds. The user sees the first obstacle, with its
arithmetic. Only a request without such an obstacle needs a schedule (:mod:`punctual.scheduling.admission.schedule`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from punctual import reasons
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.wording import some, span
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline


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
    processors: int
    """Number of the pool's processors, also those that cannot be planned on."""
    closed: str = ""
    """Why some of the processors cannot be planned on, for the message; empty: all can."""
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
    """Refuse a job if the pool has no processors on which work can be planned: no deadline could be kept."""
    if a.plan.places:
        return None
    why = a.closed or f"no work can be planned on the pool's {some(a.processors, 'processor')} yet"
    return Rejected(reasons.INFEASIBLE_CAPACITY, f"no deadline can be promised now: {why}")


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
    there = some(a.processors, "processor")
    if a.demand.least <= a.processors:
        there = f"{there}, and work can be planned on {len(a.plan.places)} of them"
    return Rejected(reasons.INFEASIBLE_CAPACITY, f"spec.processors.min is {a.demand.least}, but the pool has {there}")


def wants_more_processors_than_units(a: Application) -> Rejected | None:
    """Refuse a processors.min larger than the job: each processor has at least one unit."""
    if a.job.min_processors <= a.job.units:
        return None
    return Rejected(
        reasons.INVALID_SPEC,
        f"spec.processors.min is {a.job.min_processors}, but spec.units is {a.job.units}: each processor needs at "
        f"least one unit, so set processors.min to {a.job.units} or less",
    )


CHECKS = (
    refused_at_the_door,
    pool_is_going,
    has_no_processors,
    its_reservation_is_over,
    wants_more_processors_than_units,
    wants_more_processors_than_there_are,
    starts_too_late,
)


def objection(a: Application) -> Rejected | None:
    """Return the obstacle to the job that does not depend on the plan, if any."""
    return next((no for check in CHECKS if (no := check(a))), None)
