"""A job's request for a promise, and the obstacles that do not depend on what else is promised.

A chain of predicates, each named after the obstacle that it finds. The user sees the first obstacle, with its
arithmetic. Only a request without such an obstacle needs a schedule (:mod:`punctual.scheduling.admission.schedule`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from punctual import reasons
from punctual.notation.duration import format_time
from punctual.scheduling.admission.shares import Limit
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.node_rules import ANY_NODE, Exclusions
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
class JobToTest:
    """A job to be tested."""

    job: Job
    demand: Demand
    plan: Plan
    now: float
    cpu: float
    """Cores of one processor, for the message."""
    processors: int = 1
    """Number of the processors on which its pods may run."""
    total: int = 1
    """Number of the pool's processors, also those that cannot be planned on or where its pods may not run."""
    closed: str = ""
    """Why some of the processors cannot be planned on, for the message; empty: all can."""
    excluded: Callable[[], Exclusions] = lambda: Exclusions("", 0)
    """Returns which of its rules exclude how many of the pool's nodes."""
    deleting: bool = False
    limit: Limit | None = None
    """What may be promised to its namespace; None: whatever the pool can do."""
    shared: bool = False
    """Pods share processors: a chunk runs until it is due."""

    @property
    def most(self) -> int:
        """Largest number of processors that it may use at a time."""
        return self.plan.timeline.most(self.demand)


def refused_at_the_door(a: JobToTest) -> Rejected | None:
    """Refuse a job that the edge of the system found unable to run."""
    return Rejected(*a.job.refusal) if a.job.refusal else None


def pool_is_going(a: JobToTest) -> Rejected | None:
    """Refuse new work for a pool that is being deleted."""
    return Rejected(reasons.POOL_DELETED, "the pool is being deleted and takes no new jobs") if a.deleting else None


def its_reservation_is_over(a: JobToTest) -> Rejected | None:
    """Refuse a job that names a reservation without a current window."""
    if a.job.reservation is None or a.demand.inside is not None:
        return None
    return Rejected(reasons.INFEASIBLE_RESERVATION, "its reservation has no window left: name another one")


def has_no_processors(a: JobToTest) -> Rejected | None:
    """Refuse a job if the pool has no processors on which work can be planned: no deadline could be kept."""
    if a.most or (a.job.rules != ANY_NODE and a.excluded().said):
        return None
    why = a.closed or f"no work can be planned on the pool's {some(a.total, 'processor')} yet"
    return Rejected(reasons.INFEASIBLE_CAPACITY, f"no deadline can be promised now: {why}")


def fits_no_node(a: JobToTest) -> Rejected | None:
    """Refuse a job if its pods may run on none of the pool's nodes."""
    if a.most:
        return None
    return Rejected(reasons.POD_FITS_NO_NODE, a.excluded().no_node)


def confinement(a: JobToTest) -> str:
    """Return why a job may use only some of the pool's processors at a time, as the end of a message."""
    rules, out = a.job.rules, ""
    if a.processors < a.total:
        out += f"; {a.processors} of the pool's {some(a.total, 'processor')} may run its pods ({a.excluded().said})"
    if a.demand.eligible is None:
        return out
    if a.demand.eligible.one_node:
        out += f"; all its pods must be on one node ({rules.one_node})"
    if rules.ports:
        ports = ", ".join(f"{port.port}/{port.protocol}" for port in sorted(rules.ports))
        out += f"; a node can have one of its pods at a time (host port {ports})"
    return out


def least_seconds(demand: Demand, timeline: Timeline) -> float:
    """Return the seconds that set-up and one unit take on the fastest processor; 0 if no unit is left."""
    if not demand.ranges:
        return 0.0
    speeds = timeline.allowed(demand).speeds
    quickest = 1.0 if speeds is None else float(speeds.min(initial=np.inf))
    return demand.cost.setup + demand.cost.tau + demand.cost.chi * quickest


def too_late(demand: Demand, timeline: Timeline, now: float) -> bool:
    """Whether no processor could compute one unit by the due time, even if it were free now."""
    left = demand.due - now
    if timeline.speeds is None and left >= demand.cost.seconds(1):  # the usual case, tested at every decision
        return False
    return demand.surely_late - now < least_seconds(demand, timeline)


def starts_too_late(a: JobToTest) -> Rejected | None:
    """Refuse a job if set-up, margin and one unit alone take longer than the time to the deadline."""
    if not too_late(a.demand, a.plan.timeline, a.now):
        return None
    least = least_seconds(a.demand, a.plan.timeline)
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


def wants_more_processors_than_there_are(a: JobToTest) -> Rejected | None:
    """Refuse a processors.min larger than the pool."""
    if a.demand.least <= a.most:
        return None
    if a.plan.timeline.confines(a.demand):
        text = f"spec.processors.min is {a.demand.least}, but it can use {some(a.most, 'processor')}{confinement(a)}"
        return Rejected(reasons.INFEASIBLE_CAPACITY, text)
    there = some(a.total, "processor")
    if a.demand.least <= a.total:
        there = f"{there}, and work can be planned on {len(a.plan.places)} of them"
    return Rejected(reasons.INFEASIBLE_CAPACITY, f"spec.processors.min is {a.demand.least}, but the pool has {there}")


def wants_more_processors_than_units(a: JobToTest) -> Rejected | None:
    """Refuse a processors.min larger than the job: each processor has at least one unit."""
    if a.job.min_processors <= a.job.units:
        return None
    return Rejected(
        reasons.INVALID_SPEC,
        f"spec.processors.min is {a.job.min_processors}, but spec.units is {a.job.units}: each processor needs at "
        f"least one unit, so set processors.min to {a.job.units} or less",
    )


def most_seconds(a: JobToTest) -> float:
    """Return the longest time that the plan may give one chunk: all its units on the slowest processor, until due."""
    timeline, demand, left = a.plan.timeline, a.demand, a.demand.due - a.now
    if a.shared:
        return left
    slowest = 1.0 if timeline.speeds is None else float(timeline.speeds.max(initial=0.0))
    alone = demand.cost.setup + demand.largest_chunk * (demand.cost.tau + demand.cost.chi * slowest)
    return min(alone, left)


def ends_its_own_pods(a: JobToTest) -> Rejected | None:
    """Refuse a job with pods that the cluster would end before a chunk, or the reduce step, can be done."""
    limit, reduce_limit, reduce = a.job.pod_limit, a.job.reduce_limit, a.job.reduce_duration or 0.0
    most = most_seconds(a)
    units = a.demand.largest_chunk
    if limit is not None and units and limit < most:
        text = (
            f"spec.template.spec.activeDeadlineSeconds: {span(limit)} is shorter than a chunk may take: up to "
            f"{span(most)} for {some(units, 'unit')} on one processor, its start included. Remove it, "
            "or raise it: spec.stallTimeout ends chunks that hang"
        )
    elif reduce_limit is not None and reduce_limit < reduce:
        text = (
            f"spec.reduce.template.spec.activeDeadlineSeconds: {span(reduce_limit)} is shorter than "
            f"spec.reduce.duration, {span(reduce)}: remove it, or raise it"
        )
    else:
        return None
    return Rejected(reasons.INVALID_SPEC, text)


def is_due_beyond_the_horizon(a: JobToTest) -> Rejected | None:
    """Refuse a deadline that is further ahead than the pool promises."""
    if a.limit is None or a.limit.in_time(a.job.deadline):
        return None
    return Rejected(
        reasons.DEADLINE_TOO_FAR,
        f"spec.deadline: the deadline is {span(a.job.deadline - a.now)} away, and the pool promises deadlines at most "
        f"{span(a.limit.latest - a.now)} ahead (its spec.promiseHorizon): the latest one that may be asked for now is "
        f"{format_time(int(a.limit.latest))}",
    )


def exceeds_its_share(a: JobToTest) -> Rejected | None:
    """Refuse a job that would take more of the pool than the share of its namespace."""
    if a.limit is None or a.limit.within_share(a.demand):
        return None
    asked, spare = a.limit.work(a.demand), a.limit.spare(a.demand)
    left = f"{span(spare)} of that are left" if spare > 0.0 else "nothing of that is left"
    return Rejected(
        reasons.SHARE_USED_UP,
        f"{some(a.demand.ranges.total, 'unit')} due in {span(a.demand.due - a.now)} take {span(asked)} of processor "
        f"time; {share_of(a.limit)}, and {left} until then: {span(asked - spare)} too little",
        by_time=True,
    )


def share_of(limit: Limit) -> str:
    """Return what share a namespace has, for a message."""
    part, of = f"{100 * limit.share:.4g}%", f"{limit.capacity:.4g} processor{'' if limit.capacity == 1.0 else 's'}"
    return f"namespace {limit.namespace} may be promised {part} of {of} (maxShare of the pool)"


CHECKS = (
    refused_at_the_door,
    pool_is_going,
    has_no_processors,
    fits_no_node,
    its_reservation_is_over,
    wants_more_processors_than_units,
    wants_more_processors_than_there_are,
    starts_too_late,
    ends_its_own_pods,
    is_due_beyond_the_horizon,
    exceeds_its_share,
)


def objection(a: JobToTest) -> Rejected | None:
    """Return the obstacle to the job that does not depend on the plan, if any."""
    return next((no for check in CHECKS if (no := check(a))), None)
