"""Fast admission: tests one deadline after the other, each job on all processors (Mamat 2011, ch. 6).

The exact test partitions every waiting job again. This test asks two questions about a queue in order of deadlines.
Does the new job end in time behind the jobs before it? Does it take no more than the least slack of the jobs behind it?
A job's length is the time that all N processors together need for it. Work is dispatched differently (6.2.2): whenever
a processor is free, and the port if there is one, the first job in the queue that the processor can serve gets a chunk
that ends by that job's deadline. The test is for jobs that may run on all processors, and at any time.

Why an admitted job keeps its deadline
--------------------------------------

For a deadline d let R_j be the time from when processor j is free until d, or 0; while the port sends, no processor is
free before the transfer ends. Sorted in descending order, and with β = χ/(τ + χ), the cluster can still do by d

    Φ(d) = Σ_j β^(j−1) R_j        processor seconds, (d − now)(1 − β^N)/(1 − β) if all are free: the paper's 1/E

Let processor 1, free now with R_1 = X, get a chunk that takes the processor for o and the port for p <= (1 − β)o. Put
it back into the sorted order behind the k processors with R_j > X − o. Each of those is free when the port is free, at
the earliest, and moves forward by one place:

    β^(j−2) min(R_j, X − p) − β^(j−1) R_j  >=  β^(j−2) (1 − β)(X − o)        j = 2 … k + 1

The sum of these terms, (1 − β^k)(X − o), is what processor 1 loses by its new place. So a chunk takes no more than o
from Φ, whichever processor computes it. While time passes and all free processors wait for the port, Φ does not change.
Now let the first late job have the deadline d. It waited until d, so all work dispatched since its admission ended by d
and amounts to at least Φ(d). But the job was admitted because the queue up to it was no longer than that, a
contradiction. The paper's proof assumes that the cluster was idle before, and that every processor is blocked no longer
than by the processors before it. Here, processors may become free in any order. Concurrent processors are the case
without a port, β = 1.

Jobs differ in β: the queue uses the least. A set-up is part of o. If p is more than (1 − β)o, by x, Φ loses up to x(1 +
β + … + β^(N−2)) more. Both are charged once for each chunk. A job has no more such chunks than there are processors, as
each but its last ends at its deadline, and no more than grains in its load, if it has grains. Time before d that is too
short for a set-up and a grain on each processor is lost once, at the end, and is subtracted from the job's own slack.

The paper is wrong about running work. Algs. 8 and 10 treat it as a delay, as if it ended before anything new begins.
Alg. 6 looks at the job dispatched last, not at the times for which processors are busy. Here each deadline has its own
delay,

    slack_j = d_j − now − delay(d_j) − Σ lengths up to j,        delay(d) = d − now − Φ(d) (1 − β)/(1 − β^N)

and the slack found for a waiting job never decreases by itself, so a decision looks only at the new job's neighbours.
"""

from collections.abc import Iterable
from math import ceil, floor, inf
from typing import NamedTuple

from punctual.scheduling.admission.busy_index import BusyIndex
from punctual.scheduling.admission.slack_index import SlackIndex, Turn
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance


class SlackAnswer(NamedTuple):
    """Answer of the fast test."""

    length: float
    slack: float
    """Seconds by which the job would end before its due time; negative: too late."""
    spare: float
    """Seconds that may be taken from all jobs behind it."""
    near: float
    """Tolerance of time sums at this due time, seconds."""

    @property
    def fits(self) -> bool:
        """Whether it may be promised."""
        return self.slack >= -self.near and self.length <= self.spare + self.near


class FastQueue:
    """Queue of waiting jobs, and the running work. Queue keys start with the due time (deadline less reserves).

    beta     if inputs share one port, the least χ/(τ + χ) of the jobs; None: concurrent
    grain    pieces of a load are multiples of this; 1: whole units, 0: any size
    ends     times at which the busy processors become free
    port     time at which the port becomes free
    origin   a time near the present, on the clock of all times: sums over tens of thousands must not lose digits
    """

    def __init__(
        self,
        processors: int,
        *,
        beta: float | None = None,
        grain: float = 0.0,
        ends: Iterable[float] = (),
        port: float = -inf,
        origin: float = 0.0,
    ) -> None:
        self.processors = processors
        self.beta = beta
        self.grain = grain
        self.port = port
        self.origin = origin
        self.busy = BusyIndex((end - origin for end in ends), beta=1.0 if beta is None else beta)
        self.waiting = SlackIndex()
        self._whole = self.busy.weight(processors)
        self._others = self.busy.weight(processors - 1)

    def share(self, now: float, turn: Turn, left: float, cost: Cost) -> float:
        """Return the load that a free processor (and port) should get of a job with ``left`` waiting (6.2.2).

        The load is as much as the processor can do by the job's due time. 0 means too little: the next job in the queue
        is tried.
        """
        due = turn[0]
        share = (due - now - cost.setup) / cost.per_unit
        if share + tolerance(due) / cost.per_unit >= left:
            return left
        if self.grain:
            share = self.grain * floor((share + _near(due) / cost.per_unit) / self.grain)
        return max(0.0, share)

    def length(self, load: float, cost: Cost) -> float:
        """Return the seconds in which all processors together do ``load``, with the set-ups that it may need.

        Infinite if there is no processor. ValueError: the job's β is below the queue's.
        """
        if not self.processors:
            return inf
        if self.beta is not None and cost.beta < self.beta:
            raise ValueError(f"the queue is for jobs with a beta of at least {self.beta}, not {cost.beta}")
        return (load * cost.per_unit + self._chunks(load) * self._set_up(cost)) / self._whole

    def lost(self, load: float, cost: Cost) -> float:
        """Return the seconds before a job's due time in which no further chunk of it can begin.

        Set-ups that are part of its length are not counted again.
        """
        unpaid = min(1.0, (self.processors - self._chunks(load)) / self._whole)
        return self.grain * cost.per_unit + unpaid * cost.setup

    def delay(self, now: float, due: float) -> float:
        """Return the seconds before ``due`` that running work has taken."""
        return due - max(now, self.port) - self._left(now, due)

    def room(self, now: float, turn: Turn, load: float, cost: Cost) -> SlackAnswer:
        """Test whether a job fits into the queue at its place."""
        if not self.processors:
            return SlackAnswer(inf, -inf, inf, _near(turn[0]))
        length = self.length(load, cost)
        ahead, spare = self.waiting.around(turn)
        slack = self._left(now, turn[0]) - self.lost(load, cost) - ahead - length
        return SlackAnswer(length, slack if turn[0] > now else -inf, spare, _near(turn[0]))

    def join(self, turn: Turn, room: SlackAnswer) -> None:
        """Add a job to the queue, with its answer from `room`."""
        self.waiting.insert(turn, room.length, room.slack)

    def leave(self, turn: Turn) -> None:
        """Remove a job from the queue: all jobs behind it gain its length."""
        self.waiting.remove(turn)

    def start(self, now: float, turn: Turn, load: float, cost: Cost, *, left: float) -> float:
        """Assign a chunk of ``load`` to a processor, and return when it ends; ``left``: the load that still waits.

        No slack decreases. Time reserved for set-ups that the job did not need goes to all jobs behind it when none of
        its load waits any more. Until then it may be lost at its due time.
        """
        end = now + cost.seconds(load)
        self.busy.add(end - self.origin)
        if self.beta is not None:
            self.port = now + cost.theta_cm + load * cost.tau
        spent = (load * cost.per_unit + self._set_up(cost)) / self._whole
        if left > 0.0:
            self.waiting.shorten(turn, self.waiting.length(turn) - spent, spent=spent)
        else:
            self.waiting.remove(turn, spent=spent)
        return end

    def stop(self, end: float) -> None:
        """Note that a processor that was to be busy until ``end`` is free."""
        self.busy.remove(end - self.origin)

    def _left(self, now: float, due: float) -> float:
        """Return the seconds of work that the queue can still do until ``due``."""
        begin = max(now, self.port) - self.origin
        return self.busy.left(self.processors, begin, due - self.origin) / self._whole

    def _chunks(self, load: float) -> int:
        """Return the largest number of chunks in which a load is dispatched."""
        return min(self.processors, ceil(load / self.grain)) if self.grain else self.processors

    def _set_up(self, cost: Cost) -> float:
        """Return the processor seconds that a chunk costs in addition to its load."""
        if self.beta is None:
            return cost.setup
        beyond = cost.theta_cm - (1.0 - self.beta) * cost.setup
        return cost.setup + max(0.0, beyond) * self._others


def _near(due: float) -> float:
    """Return the seconds by which a chunk may end after its due time: less than a full tolerance, for rounding."""
    return tolerance(due) / 2
