"""Who may be promised on all processors, one job after the other: fast admission (Mamat 2011, ch. 6).

The exact test cuts every waiting job anew. This one asks two questions of a line in order of deadlines: does the new
job end in time behind those before it, and does it take no more than the least slack of those behind it? What a job
takes of the line is its length, the time that all N processors together need for it. Work is given out another way,
each processor that becomes free computes for the head of the line until that job's deadline, and does as much: a
processor is idle only while nobody waits, and what it gets ends by its job's deadline. So a job can only be late if the
jobs up to it need more than all processors have until its deadline, less what runs already. Where set-ups cost nothing
and loads are divided at will, the test is exact. A set-up, and the part of a unit that does not fit before the
deadline, are lost at most once for each processor and job, and are added to the length.

What runs already is where the paper's algorithm goes wrong: it takes all of it to end before anything new begins (algs.
8 and 10 make a delay of it), and so admits what cannot be met where a job with a later deadline holds processors beyond
the new one's. Here each deadline has its own delay, what runs counted up to that deadline and no further:

    slack_j = d_j − now − delay(d_j) − Σ lengths up to j

which stays as it is while time passes and chunks go from the head of the line to processors: a decision looks at the
new job's neighbours alone. For processors that fetch their inputs themselves (concurrent) and are equal.
"""

from collections.abc import Iterable
from typing import NamedTuple

from punctual.scheduling.busy import Busy
from punctual.scheduling.plan import EPSILON, Order
from punctual.scheduling.slacks import Slacks
from punctual.theory.cost import Cost


class Room(NamedTuple):
    """The answer of the test."""

    length: float
    slack: float
    """Seconds by which the job would end before its due time; negative: too late."""
    spare: float
    """Seconds that may be taken from all behind it."""

    @property
    def fits(self) -> bool:
        """Whether it may be promised."""
        return self.slack >= -EPSILON and self.length <= self.spare + EPSILON


class FastLine:
    """The line, and what runs. Orders carry the due time (deadline less what is kept back) as their deadline.

    ``grain``: the least piece of a load (1: whole units, 0: any). Times are seconds after a moment near the present:
    sums over ten thousands of them must not lose digits.
    """

    def __init__(self, processors: int, *, grain: float = 0.0, ends: Iterable[float] = ()) -> None:
        self.processors = processors
        self.grain = grain
        self.busy = Busy(ends)
        self.waiting = Slacks()

    def length(self, load: float, cost: Cost, *, given: int = 0) -> float:
        """Return the seconds in which all processors together do ``load``, what each may lose included.

        ``given``: chunks of the job that run already, or ran: their processors lose nothing more to it.
        """
        lost = (self.processors - given) * (cost.setup + self.grain * cost.per_unit)
        return (load * cost.per_unit + lost) / self.processors

    def delay(self, now: float, due: float) -> float:
        """Return the seconds of the line until ``due`` that what runs has taken."""
        return self.busy.taken(now, due) / self.processors

    def room(self, now: float, order: Order, length: float) -> Room:
        """Ask whether a job of that length fits into the line at its place."""
        due = order.deadline
        slack = due - now - self.delay(now, due) - self.waiting.ahead(order) - length
        return Room(length, slack, self.waiting.least_behind(order))

    def join(self, order: Order, room: Room) -> None:
        """Let a job into the line that `room` has been found for."""
        self.waiting.insert(order, room.length, room.slack)

    def leave(self, order: Order) -> None:
        """Take a job out of the line: all behind it gain its length."""
        self.waiting.remove(order)

    def start(self, now: float, order: Order, *, left: float, end: float) -> None:
        """Give a chunk of a job to a processor until ``end``; ``left``: the length of what waits on, 0: nothing.

        What the line loses is what processors are busy with, and no slack changes; but for what was set aside for
        set-ups that are not paid.
        """
        self.busy.add(end)
        spent = (end - now) / self.processors
        if left > 0.0:
            self.waiting.shorten(order, left, spent=spent)
        else:
            self.waiting.remove(order, spent=spent)

    def stop(self, end: float) -> None:
        """Note that a processor is free that was to be busy until ``end``."""
        self.busy.remove(end)
