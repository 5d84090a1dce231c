"""The terms of a pool's promises: what its chunks may have, what their agents are told, and what the pool refuses.

    Terms             whole processors, guaranteed           admission Exact, Fast and Hybrid
    StatisticalTerms  whole processors, without a guarantee  missRatio
    SharedTerms       parts of processors, guaranteed        admission Utilization

They follow from the spec in force alone. The schedule may be of another kind for a while: until it is made again, or as
long as reservations need a plan.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from punctual import reasons
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.timing import OVERDUE
from punctual.scheduling.state.job_state import ChunkObservation, JobState
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

STEPS: Final = 50
"""A share is a multiple of this part of a processor, so that set points stay the same while a chunk is on its line."""
LEFTOVER_SHARE: Final = 0.02
"""Part of a processor that a leftover chunk has for itself where chunks share processors."""
LEFTOVER_LINE: Final = 30 * 86400.0
"""Seconds from its creation to the end of its line."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Each chunk has a processor, and each promise is guaranteed."""

    spec: PoolSpec
    reason: ClassVar[str] = reasons.FEASIBLE
    """Reason of an admission."""
    guaranteed: ClassVar[bool] = True
    shares: ClassVar[bool] = False
    """Whether chunks share processors."""
    most_chunks: ClassVar[int | None] = None
    """Most chunks of a job at a time; None: any number."""
    reserves_nothing: ClassVar[str] = ""
    """For what the pool can keep no reservation, as the spec says it; empty: it can."""

    def patience(self, now: float) -> float:
        """Return the seconds after its planned end from which a chunk is late. Without a guarantee, none is."""
        return min(self.spec.margin / 2, OVERDUE) + tolerance(now) if self.guaranteed else math.inf

    def worked(self, _watch: ChunkObservation, seconds: float) -> float:
        """Return the seconds of a processor that a chunk has had in so many seconds of running."""
        return seconds

    def measured(self, _chunk: Chunk, _watch: ChunkObservation, seconds: float) -> float:
        """Return what a chunk that ended so many seconds after its creation would take on a processor; 0: unknown."""
        return seconds

    def cap(
        self, _now: float, _st: JobState, chunk: Chunk, _watch: ChunkObservation, _nodes: Mapping[str, NodeObserved]
    ) -> tuple[float, float]:
        """Return the CPU cap of a chunk, cores, and the end that it should keep."""
        return self.spec.cpu, chunk.promised_end

    def follows(self, chunk: Chunk) -> bool:
        """Whether a chunk is kept on a line. Pilots, reduce steps and leftover chunks hold their cap."""
        return chunk.kind == "Chunk" and self.guaranteed and self.spec.feedback and not chunk.leftover

    def limits(self, _end: float, due: float) -> tuple[float | None, float]:
        """Return the ceiling of a chunk on a line, cores (None: no other than its agent's), and when it must end."""
        return None, due


@dataclass(frozen=True, slots=True)
class StatisticalTerms(Terms):
    """Each chunk has a processor. Costs are uncertain, so nothing is guaranteed, and no chunk is kept on a line."""

    reason = reasons.ADMITTED_STATISTICALLY
    guaranteed = False
    reserves_nothing = "missRatio"


@dataclass(frozen=True, slots=True)
class SharedTerms(Terms):
    """A job has one chunk, with a part of a processor. Its cap gives it what it needs."""

    shares = True
    most_chunks = 1
    reserves_nothing = "admission Utilization"

    def worked(self, watch: ChunkObservation, _seconds: float) -> float:
        """Return the seconds of a processor by the CPU that the chunk has used."""
        return watch.cpu / self.spec.cpu

    def measured(self, chunk: Chunk, watch: ChunkObservation, seconds: float) -> float:
        """Return at most ``seconds``: less CPU than on a whole processor makes no unit cheaper."""
        began = (watch.running_since or chunk.created) - chunk.created
        return min(seconds, began + watch.cpu / self.spec.cpu) if watch.cpu > 0.0 else 0.0

    def cap(
        self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation, nodes: Mapping[str, NodeObserved]
    ) -> tuple[float, float]:
        """Return what a chunk needs with the headroom, so that it ends in time without any control.

        A leftover chunk has no time by which it must end: its line ends so late that it claims next to nothing, and it
        uses what is lent.
        """
        cost = st.cost
        if chunk.leftover or st.state == "Leftover" or cost is None:
            return LEFTOVER_SHARE * self.spec.cpu, chunk.created + LEFTOVER_LINE
        node = nodes.get(chunk.node)
        part = share(chunk, watch, cost.with_headroom(self.spec.headroom), now, speed=node.speed if node else 1.0)
        return part * self.spec.cpu, chunk.promised_end

    def follows(self, chunk: Chunk) -> bool:
        """Return True for leftover chunks as well, so that all caps of a node add up."""
        return chunk.kind == "Chunk"

    def limits(self, end: float, _due: float) -> tuple[float | None, float]:
        """Return its processor, and the end of its line."""
        return self.spec.cpu, end


def terms_of(spec: PoolSpec) -> Terms:
    """Return the terms that a spec asks for."""
    if spec.fluid:
        return SharedTerms(spec)
    return StatisticalTerms(spec) if spec.loose else Terms(spec)


def units_left(chunk: Chunk, watch: ChunkObservation, setup: float, now: float, *, behind: bool = True) -> float:
    """Return the units that are left of a running chunk.

    A chunk that is ahead has a line of its own, from its last report to its planned end. Reports count whole units, so
    a chunk on its line seems to be behind by less than one unit, and then is not. ``behind``: whether a chunk that is
    further behind counts as that.
    """
    done = max(watch.done, min(chunk.done, chunk.size))
    on_line = _on_line(chunk, chunk.created + setup, 0, now)
    if watch.last_step is not None:
        on_line = min(on_line, _on_line(chunk, *watch.last_step, now))
    least = float(max(0, chunk.size - done - 1)) if behind and watch.looked_at(now) else 0.0
    return min(max(on_line, least), float(chunk.size - done))


def _on_line(chunk: Chunk, begins: float, done: int, now: float) -> float:
    """Return the units that a chunk has left on the line from what it has done at a time to its planned end."""
    planned = chunk.promised_end - begins
    part = (chunk.promised_end - max(now, begins)) / planned if planned > 0.0 else 0.0
    return (chunk.size - done) * min(1.0, max(0.0, part))


def share(chunk: Chunk, watch: ChunkObservation, cost: Cost, now: float, *, speed: float) -> float:
    """Return the part of a processor that a chunk needs until its planned end, rounded up."""
    left = units_left(chunk, watch, cost.setup, now)
    pause = max(0.0, chunk.created + cost.setup - now) if watch.done == 0 else 0.0
    seconds = chunk.promised_end - now - pause
    needed = left * cost.per_unit * speed / seconds if seconds > 0.0 else 1.0
    return min(1.0, max(1, math.ceil(STEPS * needed)) / STEPS)
