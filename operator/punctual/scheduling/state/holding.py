"""Capacity that a pool keeps for itself: nodes with its taint, and processors that placeholder pods keep."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from punctual.scheduling.model.actions import HeldCapacity, HoldCapacity, HoldNode
from punctual.scheduling.model.pool_spec import PoolSpec


@dataclass(slots=True)
class Holding:
    """What the pool was told to keep."""

    tainted: set[str] = field(default_factory=set)
    """Nodes that carry this pool's taint."""
    since: dict[str, float] = field(default_factory=dict)
    """Node -> time since when placeholders keep its capacity."""
    told: HoldCapacity | None = None
    """The capacity that placeholders were told to keep; None: no action was sent yet."""

    def taint(self, nodes: Collection[str], spec: PoolSpec) -> Iterator[HoldNode]:
        """Yield the changes of taints. A pool that is being deleted keeps its taint: its promises stand until then."""
        wanted = set(nodes) if spec.hold == "Taint" else set()
        before, self.tainted = self.tainted, wanted
        yield from (HoldNode(node, held=True) for node in sorted(wanted - before))
        yield from (HoldNode(node, held=False) for node in sorted(before - wanted))

    def keep(self, now: float, free: Mapping[str, int], spec: PoolSpec) -> HoldCapacity | None:
        """Return what placeholders shall keep, if it has changed. ``free``: node -> its unoccupied processors."""
        holding = spec.hold == "Placeholder"
        self.since = {node: self.since.get(node, now) for node in free}
        nodes = {node: HeldCapacity(self.since[node], count) for node, count in free.items()}
        wanted = HoldCapacity(nodes, spec.processor)
        if wanted == self.told or not (holding or (self.told is not None and self.told.nodes)):
            return None
        self.told = wanted
        return wanted
