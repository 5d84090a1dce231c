"""Which resource of its nodes limits the number of a pool's processors."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.pool_spec import PoolSpec

Quotients = Mapping[str, int]
"""For how many processors there is enough of each resource, by Kubernetes' name, and of pod places ("pods")."""


def quotients(node: NodeObserved, spec: PoolSpec) -> Quotients | None:
    """Return what a node has, in processors. None: the pool may not use it now."""
    if not node.ready or node.left_out is not None:
        return None
    # 1e-9: 0.6 cores hold six processors of 0.1, despite rounding.
    found = {"cpu": math.floor(node.cpu / spec.cpu + 1e-9)}
    if spec.memory:
        found["memory"] = node.memory // spec.memory
    if spec.others:
        there = dict(node.others)
        found |= {name: there.get(name, 0) // amount for name, amount in spec.others}
    found["pods"] = node.pods
    return found


@dataclass(slots=True)
class Scarcity:
    """Sums of the nodes' quotients. They follow each change of a node, because a pool may have thousands."""

    _nodes: dict[str, tuple[bool, Quotients]] = field(default_factory=dict)
    """Usable nodes: whether they have a taint, and what they have."""
    _counts: Counter[bool] = field(default_factory=Counter)
    """Numbers of usable nodes with a taint, and without."""
    _sums: dict[bool, Counter[str]] = field(default_factory=lambda: {False: Counter(), True: Counter()})

    def observe(self, name: str, there: Quotients | None, *, tainted: bool) -> None:
        """Record what a node has. None: it is not usable, or gone."""
        if (before := self._nodes.pop(name, None)) is not None:
            self._counts[before[0]] -= 1
            self._sums[before[0]].subtract(before[1])
        if there is not None:
            self._nodes[name] = tainted, there
            self._counts[tainted] += 1
            self._sums[tainted].update(there)

    def scarcest(self) -> tuple[str, int] | None:
        """Return the resource of which the nodes have the fewest processors, and for how many. None: no usable node.

        Nodes with a taint count only if there are no others.
        """
        if not self._nodes:
            return None
        return min(self._sums[not self._counts[False]].items(), key=itemgetter(1))
