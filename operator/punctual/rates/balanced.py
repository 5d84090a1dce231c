"""Balanced slices: the part of their CPU that an application's pods get follows the load of their nodes' own work.

This is the mode BALANCED of explicit coscheduling (Solsona 2002, 2.1): each node has a load index, and the mean of
those of an application's nodes gives its part, one on all nodes, by table 2.1. A small change of the mean changes
nothing, so a load that swings a little does not move the slices.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from punctual.theory.slices import STEP, load_index, parallel_part, relative_load

LEAST: Final = 0.1
"""The least part of table 2.1: it harms no owner of a node, whatever the load."""
FRESH: Final = 60.0
"""Seconds after its last report for which a node's load counts."""
_EXACT: Final = 6
"""Decimals of a load: 3.0 is not above 3.0 by a rounding."""


class _Index(NamedTuple):
    """The load index of a node, and when it told last."""

    at: float
    load: float


@dataclass(slots=True)
class NodeLoads:
    """The load indices of all nodes that have told."""

    _nodes: dict[str, _Index] = field(default_factory=dict)

    def observe(self, node: str, at: float, load: float) -> None:
        """Take in what a node reports: ready tasks of its own work for each CPU. The first report counts whole."""
        last = self._nodes.get(node)
        index = load if last is None else load_index(last.load, load, max(at - last.at, 0.0))
        self._nodes[node] = _Index(at, index)

    def mean(self, nodes: Iterable[str], now: float) -> float | None:
        """Return the relative load of nodes, of those that have told lately. None: none has."""
        told = [index for node in nodes if (index := self._nodes.get(node)) and now - index.at <= FRESH]
        return relative_load([index.load for index in told]) if told else None

    def forget(self, now: float) -> None:
        """Forget nodes that have not told lately."""
        self._nodes = {node: index for node, index in self._nodes.items() if now - index.at <= FRESH}


@dataclass(slots=True)
class Balance:
    """``load``: the last one of an application's nodes. ``part``: the one for it. None: no node has told yet."""

    load: float | None = None
    part: float | None = None
    _chosen: float = 0.0
    """The load for which the part was chosen."""

    def weigh(self, load: float) -> None:
        """Take in a load. The part changes only if the load differs by more than a step of table 2.1."""
        self.load = load
        if self.part is None or abs(load - self._chosen) > STEP:
            self._chosen, self.part = load, round(parallel_part(round(load, _EXACT)), 1)
