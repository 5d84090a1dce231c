"""Who may be promised on all processors, one job after the other: fast admission (Mamat 2011, ch. 6).

The exact test cuts every waiting job anew. This one asks two questions of a line in order of deadlines: does the new
job end in time behind those before it, and does it take no more than the least slack of those behind it? What a job
takes of the line is its length, the time that all N processors together need for it. Work is given out another way
(6.2.2): whenever a processor is free, and the port where there is one, the first job of the line that it can do
anything for gets a chunk that ends by that job's deadline. For jobs that may run on all processors, and at any time.

Why what is admitted is kept
----------------------------
For a deadline d let R_j be the time from when processor j is free until d, or 0; while the port sends, no processor is
free before it is done. Sorted, the largest first, and with β = χ/(τ + χ), what the cluster can still do by d is

    Φ(d) = Σ_j β^(j−1) R_j        processor seconds, (d − now)(1 − β^N)/(1 − β) where all are free: the paper's 1/E

Let processor 1, free now with R_1 = X, get a chunk that takes it for o and the port for p <= (1 − β)o. Put back into
the sorted line behind the k processors with R_j > X − o, each of which is free when the port is, at the earliest, and
comes one place nearer:

    β^(j−2) min(R_j, X − p) − β^(j−1) R_j  >=  β^(j−2) (1 − β)(X − o)        j = 2 … k + 1

whose sum (1 − β^k)(X − o) is what processor 1 loses by its new place. So a chunk takes no more than o from Φ, whichever
it is; while time passes and all processors that are free wait for the port, Φ stays as it is. Now let the first job to
be late have the deadline d. Until d it waited, so all that was given out since its admission ended by d, and was
Φ(d) at least; but it was let in because the line up to it was no more. The paper's proof takes the cluster to have been
idle before, and every processor to be blocked no longer than by those before it; free processors may come in any order
here. Concurrent processors are the case without a port, β = 1.

Jobs differ in β: the line takes the least. A set-up is part of o, and where p is more than (1 − β)o, by x, Φ loses up
to x(1 + β + … + β^(N−2)) more: both are paid once for each chunk. Of these a job has no more than there are processors,
as each but its last ends at its deadline, and no more than grains in its load, where it has such. What does not fit
before d, less than a grain and its set-up on each processor, is lost at the end, once, and is kept off the job's own
slack.

Where the paper goes wrong is what runs already: algs. 8 and 10 make a delay of it, as if it ended before anything new
begins, and alg. 6 looks at the job given out last, not at who holds processors for how long. Here each deadline has
its own delay,

    slack_j = d_j − now − delay(d_j) − Σ lengths up to j,        delay(d) = d − now − Φ(d) (1 − β)/(1 − β^N)

and what was found for a job that waits only gets better: a decision looks at the new job's neighbours alone.
"""

from collections.abc import Iterable
from math import ceil, floor, inf
from typing import NamedTuple

from punctual.scheduling.admission.busy_index import BusyIndex
from punctual.scheduling.admission.slack_index import SlackIndex, Turn
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance


class SlackAnswer(NamedTuple):
    """The answer of the test."""

    length: float
    slack: float
    """Seconds by which the job would end before its due time; negative: too late."""
    spare: float
    """Seconds that may be taken from all behind it."""
    near: float
    """Seconds by which sums of times may differ here."""

    @property
    def fits(self) -> bool:
        """Whether it may be promised."""
        return self.slack >= -self.near and self.length <= self.spare + self.near


class FastQueue:
    """The line, and what runs. Turns carry the due time (deadline less what is kept back) in front.

    beta     where inputs share one port the least χ/(τ + χ) of the jobs asked about; None: concurrent
    grain    what pieces of a load are multiples of; 1: whole units, 0: any
    ends     when the processors that run something will be free
    port     when the port will be
    origin   a moment near the present, on the clock of all times: sums over ten thousands of them must not lose digits
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
        """Return what a processor that is free, as the port is, should get of a job of which ``left`` waits (6.2.2).

        As much as it can do by the job's due time; 0: too little, the next job in the line is to be asked.
        """
        due = turn[0]
        share = (due - now - cost.setup) / cost.per_unit
        if share + tolerance(due) / cost.per_unit >= left:
            return left
        if self.grain:
            share = self.grain * floor((share + _near(due) / cost.per_unit) / self.grain)
        return max(0.0, share)

    def length(self, load: float, cost: Cost) -> float:
        """Return the seconds in which all processors together do ``load``, the set-ups it may need included.

        Infinite where there is none. ValueError: a job whose β is below the line's.
        """
        if not self.processors:
            return inf
        if self.beta is not None and cost.beta < self.beta:
            raise ValueError(f"the line is for jobs with a beta of at least {self.beta}, not {cost.beta}")
        return (load * cost.per_unit + self._chunks(load) * self._set_up(cost)) / self._whole

    def lost(self, load: float, cost: Cost) -> float:
        """Return the seconds of the line up to a job's due time in which nothing can be begun for it any more.

        Set-ups that its length has are not counted again.
        """
        unpaid = min(1.0, (self.processors - self._chunks(load)) / self._whole)
        return self.grain * cost.per_unit + unpaid * cost.setup

    def delay(self, now: float, due: float) -> float:
        """Return the seconds of the line until ``due`` that what runs has taken."""
        return due - max(now, self.port) - self._left(now, due)

    def room(self, now: float, turn: Turn, load: float, cost: Cost) -> SlackAnswer:
        """Ask whether a job fits into the line at its place."""
        if not self.processors:
            return SlackAnswer(inf, -inf, inf, _near(turn[0]))
        length = self.length(load, cost)
        ahead, spare = self.waiting.around(turn)
        slack = self._left(now, turn[0]) - self.lost(load, cost) - ahead - length
        return SlackAnswer(length, slack if turn[0] > now else -inf, spare, _near(turn[0]))

    def join(self, turn: Turn, room: SlackAnswer) -> None:
        """Let a job into the line that `room` has been found for."""
        self.waiting.insert(turn, room.length, room.slack)

    def leave(self, turn: Turn) -> None:
        """Take a job out of the line: all behind it gain its length."""
        self.waiting.remove(turn)

    def start(self, now: float, turn: Turn, load: float, cost: Cost, *, left: float) -> float:
        """Give a chunk of ``load`` to a processor, and return when it ends; ``left``: the load that waits on.

        No slack becomes less by it. What was set aside for set-ups that the job did not need goes to all behind it
        when nothing of it waits any more: until then it may be lost to it at its due time.
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
        """Note that a processor is free that was to be busy until ``end``."""
        self.busy.remove(end - self.origin)

    def _left(self, now: float, due: float) -> float:
        """Return what the line can still do until ``due``, s."""
        begin = max(now, self.port) - self.origin
        return self.busy.left(self.processors, begin, due - self.origin) / self._whole

    def _chunks(self, load: float) -> int:
        """Return in how many chunks at most a load is given out."""
        return min(self.processors, ceil(load / self.grain)) if self.grain else self.processors

    def _set_up(self, cost: Cost) -> float:
        """Return the processor seconds that a chunk costs beside its load."""
        if self.beta is None:
            return cost.setup
        beyond = cost.theta_cm - (1.0 - self.beta) * cost.setup
        return cost.setup + max(0.0, beyond) * self._others


def _near(due: float) -> float:
    """Return by how many s a chunk may end after its due time; by all that is tolerated it is late once rounded."""
    return tolerance(due) / 2
