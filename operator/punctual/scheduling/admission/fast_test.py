"""Which test of admission is in force, exact or fast, and how one takes over from the other (Mamat 2011, 6.3).

The exact test refuses least, and costs more with each job that waits; the fast one always costs the same. Each keeps
its promises by its own way of giving work out: as planned, or whatever comes first to whoever is free. So a switch
hands all that waits to the other way, and is made only if the other can keep all of it; else it is asked for again at
the next decision, and who has promised keeps the promise. In a mixture neither's argument would hold: a job that is
given out as processors become free may take one that the plan counts on.

The paper (algs. 9 to 11) takes the delay that what runs makes for the whole line, and gives way at once; slacks may be
negative then.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from punctual.scheduling.admission.fast_queue import FastQueue
from punctual.scheduling.admission.slack_index import Turn
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.timeline import Timeline

Test = Literal["Exact", "Fast"]


def wanted(test: Test, waiting: int, *, threshold: int) -> Test:
    """Return which test should decide now, ``test`` being in force and so many jobs waiting.

    Fast from ``threshold`` jobs on, Exact again below half of them: between two switches at least half a threshold of
    jobs have come or gone, so that a hand-over, which looks at each that waits, is paid by as many decisions.
    """
    if waiting >= threshold:
        return "Fast"
    return "Exact" if 2 * waiting < threshold else test


class Obstacle(NamedTuple):
    """Why the fast way could not keep a promise."""

    uid: str
    what: str


class Case(NamedTuple):
    """A demand, and who would have to do it."""

    demand: Demand
    now: float
    processors: int


def wants_several_at_once(case: Case) -> str | None:
    """Tell how many: the line gives one processor at a time."""
    return f"needs {case.demand.least} processors at once" if case.demand.least > 1 else None


def may_not_use_all(case: Case) -> str | None:
    """Tell of how many: the line counts on all processors for each job."""
    most = case.demand.most
    return f"may use {most} of {case.processors} processors" if most is not None and most < case.processors else None


def may_not_begin(case: Case) -> str | None:
    """Tell for how long: the line counts on now."""
    late = case.demand.not_before - case.now
    return f"may not begin for {late:g} s" if late > 0.0 else None


def has_more_than_its_range(case: Case) -> str | None:
    """Tell what no length counts: a hole in its units costs one more set-up, a reduce step a processor."""
    if case.demand.reduce:
        return "ends with a reduce step"
    holes = len(case.demand.ranges.parts) - 1
    return f"has its units in {holes + 1} ranges" if holes > 0 else None


CHECKS: tuple[Callable[[Case], str | None], ...] = (
    wants_several_at_once,
    may_not_use_all,
    may_not_begin,
    has_more_than_its_range,
)


def turn_of(demand: Demand) -> Turn:
    """Return a demand's place in the line: by due time whatever the pool's order, as only so the line is right."""
    return demand.due, demand.order.arrival, demand.uid


def obstacle(demand: Demand, *, now: float, processors: int) -> Obstacle | None:
    """Return why the fast test cannot judge a demand, whatever else waits."""
    case = Case(demand, now, processors)
    return next((Obstacle(demand.uid, what) for check in CHECKS if (what := check(case))), None)


def to_fast(
    now: float, ground: Timeline, demands: Iterable[Demand], *, grain: float = 1.0, beta: float = 1.0
) -> FastQueue | Obstacle:
    """Return the line of all that waits, every slack found from what runs now; or who could not be promised by it.

    ``ground``: when processors, and the port, are free of what runs, bookings not counted; ``grain``: as of the
    line. A job with a lower β than the line's, or one that the line refuses only for what was found long ago, may be
    asked for by a new line with it in: O(n), where n wait.
    """
    processors = ground.ready.size
    if ground.speeds is not None:
        return Obstacle("", "processors differ in speed")
    line = sorted(demands, key=turn_of)
    if no := next((no for d in line if (no := obstacle(d, now=now, processors=processors))), None):
        return no
    fast = FastQueue(
        processors,
        beta=min([beta, *(d.cost.beta for d in line)]) if ground.discipline.one_port else None,
        grain=grain,
        ends=ground.ready[ground.ready > now].tolist(),
        port=ground.port,
        origin=now,
    )
    for demand in line:
        room = fast.room(now, turn_of(demand), demand.ranges.total, demand.cost)
        if not room.fits:
            return Obstacle(demand.uid, f"could be late by {-room.slack:.3g} s")
        fast.join(turn_of(demand), room)
    return fast
