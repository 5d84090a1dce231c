"""The pool's taint on its nodes (``hold: Taint``): put on, taken off, put back when somebody took it off.

What shall be is compared with what the node shows; each change is one JSON patch that tests the taints it was made
from, so that nobody else's taint gets lost. A patch that was beaten to it is refused, and the node as it is then
makes the next one. A taint of ours for a pool that is gone is taken off.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from punctual.kube.cluster.nodes import Node
from punctual.kube.cluster.pods import POOL_LABEL, label

EFFECT: Final = "NoSchedule"

Patch = list[dict[str, Any]]


class Taints:
    """Which pool holds which node. ``write(node, patch)`` carries a patch out, and :meth:`settled` must follow it.

    Serves one turn of a leader. A pool that has not spoken about a node yet leaves it as an earlier leader left it.
    """

    def __init__(self, pools: Iterable[str], write: Callable[[str, Patch], None]) -> None:
        self._write = write
        self._pools = set(pools)
        self._said: dict[str, tuple[str, bool]] = {}
        self._nodes: dict[str, Node] = {}
        self._writing: dict[str, Node] = {}  # as it was when the patch was made

    def hold(self, node: str, pool: str, *, held: bool) -> None:
        """Take in that the pool wants the node held, or held no more."""
        if held:
            self._pools.add(pool)
        before, was_held = self._said.get(node, (pool, False))
        if held or before == pool or not was_held:  # a pool that lost the node does not speak for its new one
            self._said[node] = (pool, held)
        self._compare(node)

    def observe_pool(self, pool: str, *, holding: bool) -> None:
        """Take in whether the pool's spec in force holds nodes at all."""
        if not holding:
            self.forget_pool(pool)
        else:
            self._pools.add(pool)

    def forget_pool(self, pool: str) -> None:
        """Take in that a pool is gone: it holds nothing."""
        if pool not in self._pools:
            return
        self._pools.discard(pool)
        self._said = {n: said for n, said in self._said.items() if said[0] != pool}
        for node in self._nodes:
            self._compare(node)

    def observe(self, node: Node) -> None:
        """Take in a node as it is now."""
        self._nodes[node.name] = node
        self._compare(node.name)

    def forget_node(self, name: str) -> None:
        """Take in that a node is gone."""
        self._nodes.pop(name, None)
        self._said.pop(name, None)

    def settled(self, node: str) -> None:
        """Take in that a patch is done or was refused; another is tried only if the node has changed since."""
        made_from = self._writing.pop(node, None)
        if made_from != self._nodes.get(node):
            self._compare(node)

    def _compare(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or name in self._writing:
            return
        said = self._said.get(name)
        mine = [_taint(said[0])] if said and said[1] else []
        allowed = mine if said else [_taint(pool) for pool in self._pools]
        kept = [t for t in node.taints if t["key"] != POOL_LABEL or t in allowed]
        wanted = kept + [t for t in mine if t not in kept]
        if wanted == list(node.taints):
            return
        self._writing[name] = node
        self._write(
            name,
            [
                # null: there is none
                {"op": "test", "path": "/spec/taints", "value": list(node.taints) or None},
                {"op": "add", "path": "/spec/taints", "value": wanted},
            ],
        )


def _taint(pool: str) -> dict[str, str]:
    return {"key": POOL_LABEL, "value": label(pool), "effect": EFFECT}
