"""The pool's taint on its nodes (``hold: Taint``): set, removed, and restored when it was removed by others.

The wanted taints are compared with the node's. Each change is one JSON patch that tests the taints it was made from, so
that no foreign taint is lost. A patch that lost a race is refused, and the next one is made from the present node. A
taint for a pool that is gone is removed.
"""

from collections.abc import Iterable
from typing import Final

from punctual.kube.api.resources import NODES
from punctual.kube.cluster.nodes import Node
from punctual.kube.cluster.pod_manifest import label
from punctual.kube.writes.keys import taints_key
from punctual.kube.writes.operations import Patch, replace_list
from punctual.kube.writes.writer import Writer
from punctual.labels import POOL_LABEL

EFFECT: Final = "NoSchedule"


class Taints:
    """Tracks which pool holds which node. :meth:`settled` must follow each patch that it submits.

    It serves one term. The taints of a pool that has not decided about a node yet stay as an earlier leader left them.
    """

    def __init__(self, pools: Iterable[str], writer: Writer) -> None:
        self._writer = writer
        self._pools = set(pools)
        self._said: dict[str, tuple[str, bool]] = {}
        self._nodes: dict[str, Node] = {}
        self._writing: dict[str, Node] = {}  # the node when the patch was made

    def hold(self, node: str, pool: str, *, held: bool) -> None:
        """Record whether the pool wants to hold the node."""
        if held:
            self._pools.add(pool)
        before, was_held = self._said.get(node, (pool, False))
        if held or before == pool or not was_held:  # a pool that lost the node does not decide for the new one
            self._said[node] = (pool, held)
        self._compare(node)

    def observe_pool(self, pool: str, *, holding: bool) -> None:
        """Record whether the pool's spec in force holds nodes at all."""
        if not holding:
            self.forget_pool(pool)
        else:
            self._pools.add(pool)

    def forget_pool(self, pool: str) -> None:
        """Remove a pool. It no longer holds a node."""
        if pool not in self._pools:
            return
        self._pools.discard(pool)
        self._said = {n: said for n, said in self._said.items() if said[0] != pool}
        for node in self._nodes:
            self._compare(node)

    def observe(self, node: Node) -> None:
        """Record the present state of a node."""
        self._nodes[node.name] = node
        self._compare(node.name)

    def forget_node(self, name: str) -> None:
        """Remove a node."""
        self._nodes.pop(name, None)
        self._said.pop(name, None)

    def settled(self, node: str) -> None:
        """Record that a patch was done or refused. Another is tried only if the node has changed since."""
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
        patch = replace_list("/spec/taints", node.taints, wanted)
        self._writer.submit(taints_key(name), Patch(NODES.path(name=name), patch))


def _taint(pool: str) -> dict[str, str]:
    return {"key": POOL_LABEL, "value": label(pool), "effect": EFFECT}
