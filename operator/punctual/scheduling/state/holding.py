"""Capacity that a pool keeps for itself: nodes with its taint, and what placeholder pods keep."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from punctual.scheduling.model.actions import HeldCapacity, HoldCapacity, HoldNode
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import Resources


@dataclass(slots=True)
class Holding:
    """What the pool was told to keep."""

    tainted: set[str] = field(default_factory=set)
    """Nodes that carry this pool's taint."""
    since: dict[str, float] = field(default_factory=dict)
    """Node -> time since when placeholders keep its unoccupied processors."""
    told: HoldCapacity | None = None
    """The capacity that placeholders were told to keep; None: no action was sent yet."""

    @property
    def has_placeholders(self) -> bool:
        """Whether placeholders may have to make way for chunks."""
        return self.told is not None and bool(self.told.nodes)

    def taint(self, nodes: Collection[str], spec: PoolSpec) -> Iterator[HoldNode]:
        """Yield the changes of taints. A pool that is being deleted keeps its taint: its promises stand until then."""
        wanted = set(nodes) if spec.hold == "Taint" else set()
        before, self.tainted = self.tainted, wanted
        yield from (HoldNode(node, held=True) for node in sorted(wanted - before))
        yield from (HoldNode(node, held=False) for node in sorted(before - wanted))

    def keep(
        self, now: float, free: Mapping[str, int], rests: Mapping[str, Sequence[Resources]], spec: PoolSpec
    ) -> HoldCapacity | None:
        """Return what placeholders shall keep, if it has changed.

        ``free``: node -> its unoccupied processors, if they are kept; ``rests``: node -> what pods leave of theirs.
        """
        self.since = {node: self.since.get(node, now) for node in free}
        nodes = {
            node: HeldCapacity(self.since.get(node), free.get(node, 0), tuple(rests.get(node, ())))
            for node in [*free, *(node for node in rests if node not in free)]
        }
        wanted, anew = HoldCapacity(nodes, spec.processor), self.told is None  # an earlier leader's may be there
        if wanted == self.told or not (anew or nodes or self.has_placeholders or spec.hold == "Placeholder"):
            return None
        self.told = wanted
        return wanted
