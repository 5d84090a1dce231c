"""Choice between the exact and the fast admission test, and the switch from one to the other (Mamat 2011, 6.3).

The exact test refuses least and costs more with each waiting job; the cost of the fast test is constant. Each keeps its
promises by its own way of dispatching work: as planned, or the first work in the queue to the first free processor. A
switch therefore hands all waiting work over, and happens only if the other test can keep every promise. Otherwise the
current test stays, and the switch is tried again at the next decision. A mixture would be unsound: a job that is
dispatched when a processor becomes free may take a processor that the plan counts on.

The paper (algs. 9 to 11) treats running work as a delay of the whole queue and switches at once; slacks may be negative
then.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from punctual.scheduling.admission.fast_queue import FastQueue
from punctual.scheduling.admission.slack_index import Turn
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.timeline import Timeline

Test = Literal["Exact", "Fast"]


def wanted(test: Test, waiting: int, *, threshold: int) -> Test:
    """Return the test that should decide now, given the current ``test`` and the number of waiting jobs.

    Fast from ``threshold`` waiting jobs on, Exact again below half of them. Between two switches, at least half a
    threshold of jobs have come or gone, so as many decisions pay for a switch, which looks at each waiting job.
    """
    if waiting >= threshold:
        return "Fast"
    return "Exact" if 2 * waiting < threshold else test


class Obstacle(NamedTuple):
    """Reason why the fast test cannot keep a promise."""

    uid: str
    what: str


class Case(NamedTuple):
    """A demand, and the processors available to it."""

    demand: Demand
    now: float
    processors: int


def wants_several_at_once(case: Case) -> str | None:
    """Find a demand for several processors at once: the fast test assigns one processor at a time."""
    return f"needs {case.demand.least} processors at once" if case.demand.least > 1 else None


def may_not_use_all(case: Case) -> str | None:
    """Find a maximum number of processors: the fast test assumes all processors for each job."""
    most = case.demand.most
    return f"may use {most} of {case.processors} processors" if most is not None and most < case.processors else None


def may_not_begin(case: Case) -> str | None:
    """Find a later earliest start: the fast test assumes that work can start now."""
    late = case.demand.not_before - case.now
    return f"may not begin for {late:g} s" if late > 0.0 else None


def has_more_than_its_range(case: Case) -> str | None:
    """Find work that no length contains: a hole in the units costs one more set-up, a reduce step a processor."""
    if case.demand.reduce:
        return "ends with a reduce step"
    holes = len(case.demand.ranges.parts) - 1
    return f"has its units in {holes + 1} ranges" if holes > 0 else None


def may_not_use_every_node(case: Case) -> str | None:
    """Find rules about nodes: the fast test assumes that a free processor can take any job's work."""
    return "may not run on every node of the pool" if case.demand.eligible is not None else None


CHECKS: tuple[Callable[[Case], str | None], ...] = (
    wants_several_at_once,
    may_not_use_all,
    may_not_use_every_node,
    may_not_begin,
    has_more_than_its_range,
)


def turn_of(demand: Demand) -> Turn:
    """Return a demand's queue key: by due time, whatever the pool's order, since the fast test requires it."""
    return demand.due, demand.order.arrival, demand.uid


def obstacle(demand: Demand, *, now: float, processors: int) -> Obstacle | None:
    """Return why the fast test cannot judge a demand, whatever else waits."""
    case = Case(demand, now, processors)
    return next((Obstacle(demand.uid, what) for check in CHECKS if (what := check(case))), None)


def to_fast(
    now: float, timeline: Timeline, demands: Iterable[Demand], *, grain: float = 1.0, beta: float = 1.0
) -> FastQueue | Obstacle:
    """Return the queue of all waiting demands, with slacks from the running work; or the first that it cannot promise.

    ``timeline``: when processors and the port are free of running work, without placements. ``grain``: as of the queue.
    A job with a lower β than the queue's, or one that the queue refuses only because of outdated slacks, may be tested
    by a new queue that contains it: O(n) for n waiting jobs.
    """
    processors = timeline.ready.size
    if timeline.speeds is not None:
        return Obstacle("", "processors differ in speed")
    if timeline.sites.closed:
        return Obstacle("", "some processors are for some jobs only")
    line = sorted(demands, key=turn_of)
    if no := next((no for d in line if (no := obstacle(d, now=now, processors=processors))), None):
        return no
    fast = FastQueue(
        processors,
        beta=min([beta, *(d.cost.beta for d in line)]) if timeline.discipline.one_port else None,
        grain=grain,
        ends=timeline.ready[timeline.ready > now].tolist(),
        port=timeline.port,
        origin=now,
    )
    for demand in line:
        room = fast.room(now, turn_of(demand), demand.ranges.total, demand.cost)
        if not room.fits:
            return Obstacle(demand.uid, f"could be late by {-room.slack:.3g} s")
        fast.join(turn_of(demand), room)
    return fast
