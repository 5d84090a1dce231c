"""Demands: the parts of jobs that need processors, and the shortfall of a demand that cannot be placed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.node_rules import Eligible
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Ranges
from punctual.theory.cost import Cost
from punctual.theory.tolerance import tolerance

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The part of a job that is still to be placed."""

    order: Order
    ranges: Ranges
    """Units that no chunk owns."""
    cost: Cost
    """With headroom."""
    due: float
    """Time by which chunks must end: the deadline less margin and reduce."""
    kept_back: float = 0.0
    """Seconds between that time and the deadline."""
    least: int = 1
    """Chunks to begin at one time, each with at least one unit. Over one port, their inputs follow each other."""
    most: int | None = None
    as_before: int = 1
    """Processors of the placement that it is to have again: it is placed on no fewer, if it may have as many."""
    least_chunk: int = 1
    """Units of the least chunk that is worth its set-up."""
    not_before: float = 0.0
    """No chunk may start earlier: running chunks use up processors.max until then, or the job's pods are refused."""
    full_until: float = 0.0
    """Until then running chunks use up processors.max: other chunks may follow them only on their own processors."""
    running_until: float = 0.0
    """Latest expected end of its running chunks: the reduce step waits for it."""
    apart: bool = False
    """Whether its processors have begun together already, where they must: each begins its rest when it is free."""
    reduce: float = 0.0
    """Seconds of the reduce step, set-up included; 0: none."""
    inside: int | None = None
    """Number of the reservation that it must run inside; None: it must run outside of all."""
    eligible: Eligible | None = None
    """Nodes on which it may run; None: all that take pods without rules."""
    unit_pods: bool = False
    """Each chunk is one unit: a processor does its part of the demand in one chunk after the other, and ``cost`` has no
    set-up beside that of each unit. The units of a placement are begun in their order, on any of its processors."""
    own: tuple[Place, ...] = ()
    """Places of its running chunks that count in ``most``, if its chunks are units and ``most`` is a limit: units may
    follow there, and beside them on as many other places as ``most`` leaves."""
    work: float = field(init=False, compare=False)
    """Minimum processor seconds that it takes."""
    late: float = field(init=False, compare=False)
    """Latest accepted end: a partition that ends later is late."""
    simple: bool = field(init=False, compare=False)
    """Whether it needs nothing but units computed, on any processors: no reduce step, no least number, no nodes."""
    surely_late: float = field(init=False, compare=False)
    """One tolerance after ``late``: a check before partitioning may refuse only demands that would end later than this.

    Such a check sums the same times in another order. At ``late`` itself it could refuse, by an ulp, a demand that the
    partition has in time.
    """

    def __post_init__(self) -> None:
        """Compute its work and limits once: every test reads both for all waiting demands."""
        object.__setattr__(self, "work", self.ranges.total * self.cost.per_unit)
        limited = max(self.least, self.as_before) > 1 or self.eligible is not None or bool(self.own)
        object.__setattr__(self, "simple", bool(self.ranges) and not self.reduce and not limited)
        object.__setattr__(self, "late", self.due + tolerance(self.due))
        object.__setattr__(self, "surely_late", self.due + 2.0 * tolerance(self.due))

    @property
    def uid(self) -> str:
        """The job's uid."""
        return self.order.uid

    @property
    def largest_chunk(self) -> int:
        """Units that one of its chunks may have at most."""
        return min(1, self.ranges.total) if self.unit_pods else self.ranges.total

    def begun(self, owned: Ranges, chunks: int, until: float, *, processors: int = 1) -> "Demand":
        """Return the rest of the demand when ``chunks`` chunks own these units; the last of them ends at ``until``.

        ``processors``: those of the placement that they begin.
        """
        most, full_until = self.most, self.full_until
        if self.unit_pods:
            pass  # units follow: what begins beside them is limited by ``own``
        elif most is not None and most > chunks:
            most -= chunks
        elif most is not None:
            full_until = max(full_until, until)
        left = self.ranges - owned
        return replace(
            self,
            ranges=left,
            least=1,
            as_before=max(self.as_before, processors) if self.unit_pods else 1,
            most=most,
            full_until=full_until,
            running_until=until,
            apart=True,
        )

    def beside(self, places: Sequence[Place], total: int) -> "Demand":
        """Return the demand when chunks have begun on these of ``total`` places.

        If all must be on one node, the rest follows them there.
        """
        demand = self
        if self.unit_pods and self.most is not None and self.most < total:
            demand = replace(demand, own=tuple(dict.fromkeys((*self.own, *places))))
        if self.eligible is None or not self.eligible.one_node:
            return demand
        return replace(demand, eligible=self.eligible._replace(nodes=frozenset((places[0].node,))))

    def anew(self) -> "Demand":
        """Return the demand without limits from running chunks, to be placed on any processors."""
        if self.full_until <= self.not_before and not self.apart:
            return self
        return replace(self, not_before=max(self.not_before, self.full_until), full_until=0.0, apart=False)


class Shortfall(NamedTuple):
    """Reason why a demand could not be placed: the arithmetic of a refusal."""

    uid: str
    units: int
    fit: int
    """Units that all processors together finish by the due time."""
    needed: int | None
    """Processors that would be enough if all were free now; None: no number would."""
    processors: int
    usable: int
    """Processors that become ready early enough to finish at least one unit."""
    first_ready: float
    placements: int = 1
    """Number of placements tested."""
