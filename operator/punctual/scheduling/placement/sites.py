"""Sites: the nodes of a timeline's places, and which of them demands may use.

A demand that names no nodes may use all *open* nodes. A *closed* node has a taint: it is for demands that name it.
In most pools all nodes are open, and most demands name none: nothing here is computed then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual.scheduling.model.node_rules import Eligible, HostPort
from punctual.scheduling.model.processors import Place

Indices = NDArray[np.intp]


class PortHold(NamedTuple):
    """Host ports of a node that a pod has until a time."""

    place: Place
    """Where the pod is, or is planned."""
    ports: frozenset[HostPort]
    until: float


@dataclass(frozen=True, slots=True)
class Sites:
    """Places of a timeline by node; all copies of a timeline share them."""

    places: Sequence[Place] = ()
    open: frozenset[str] = frozenset()
    """Nodes that are for all demands."""
    closed: frozenset[str] = frozenset()
    """Nodes among the places that are for demands that name them."""
    _at: dict[frozenset[str], Indices] = field(default_factory=dict, repr=False, compare=False)
    """Cache of the places on nodes."""

    def nodes(self, eligible: Eligible | None) -> frozenset[str]:
        """Return the nodes that a demand may use."""
        return self.open if eligible is None else eligible.nodes

    def at(self, eligible: Eligible | None) -> Indices:
        """Return the places that a demand may use, ascending."""
        return self._on(self.nodes(eligible))

    def choices(self, eligible: Eligible | None) -> Iterator[Indices]:
        """Yield sets of places of which the demand must use one only: one per node if its pods must be together."""
        there = self.at(eligible)
        if eligible is None or not eligible.one_node or not there.size:
            yield there
            return
        for node in dict.fromkeys(self.places[i].node for i in there.tolist()):
            yield self._on(frozenset((node,)))

    def _on(self, nodes: frozenset[str]) -> Indices:
        found = self._at.get(nodes)
        if found is None:
            found = np.array([i for i, place in enumerate(self.places) if place.node in nodes], dtype=np.intp)
            self._at[nodes] = found
        return found
