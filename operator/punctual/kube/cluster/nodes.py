"""Computes the capacity of each pool's nodes: allocatable minus the requests of pods that their Pools do not count.

The informers report nodes and pods here. The Pools get the derived values, and only when those change. A node belongs
to the oldest pool that selects it. A younger pool learns that it may not use the node, and why. The Pool itself
computes how many processors fit.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from punctual import reasons
from punctual.kube.cluster.pods import ForeignPod
from punctual.labels import CPU_MANAGER, POOL_LABEL
from punctual.notation.quantity import parse_bytes, parse_cores
from punctual.scheduling.model.events import NodeGone, NodeObserved
from punctual.scheduling.model.node_rules import Taint
from punctual.scheduling.model.resources import Resources

CLASS_LABEL: Final = "node.kubernetes.io/instance-type"
"""Node label of the class. Nodes of one class count as equally fast."""

HOSTNAME: Final = "kubernetes.io/hostname"
"""Node label by which pods name a node. It need not be the node's name."""

_REFUSING = ("NoSchedule", "NoExecute")

Selects = Callable[[Mapping[str, str]], bool]
"""Returns whether a selector matches these labels."""


@dataclass(frozen=True, slots=True)
class Node:
    """The stored state of a node: what it has, its pod limit, and the properties that decide its pool."""

    name: str
    ready: bool
    allocatable: Resources
    pods: int
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    """All taints of the node, because a patch must name them exactly."""
    cpus: float = 0.0
    """Its CPUs, of which not all may be allocatable. 0: they are not known."""

    @property
    def refusing(self) -> tuple[Taint, ...]:
        """Taints that keep pods off that do not tolerate them, other than a pool's own.

        A cordoned node, a control plane and a node under pressure have one, too.
        """
        return tuple(
            Taint(t["key"], t.get("value") or "", t["effect"])
            for t in self.taints
            if t["effect"] in _REFUSING and t["key"] != POOL_LABEL
        )


class _Claim(NamedTuple):
    """The claim of a pool to nodes. The oldest comes first; of two created in the same second, the first by name."""

    created: float
    name: str
    selects: Selects


def project_node(body: Mapping[str, Any]) -> Node:
    """Return the stored state of a node's body."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    allocatable = status.get("allocatable") or {}
    amounts = {name: parse_bytes(there) for name, there in allocatable.items() if name not in {"cpu", "pods"}}
    return Node(
        name=meta["name"],
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()),
        allocatable=Resources.of({**amounts, "cpu": parse_cores(allocatable.get("cpu", 0))}),
        pods=parse_bytes(allocatable.get("pods", 110)),
        labels=meta.get("labels") or {},
        taints=tuple(spec.get("taints") or ()),
        cpus=parse_cores((status.get("capacity") or allocatable).get("cpu", 0)),
    )


@dataclass(slots=True)
class _InTerm:
    """What a term has decided about the pools' nodes."""

    kept: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Where placeholders keep capacity, and since when, by pool and node."""
    speeds: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Time per unit relative to the fastest class, by pool and class."""


class Inventory:
    """Nodes, the pods on them, and the pools of the nodes. ``tell(pool, event)`` receives changes.

    Every pod is foreign, but those that the Pool of their node counts itself. ``counted_by(uid)`` returns the pool that
    counts a pod; `recount` must follow a change of it.
    """

    def __init__(
        self,
        tell: Callable[[str, NodeObserved | NodeGone], None],
        *,
        yielding: int = 0,
        counted_by: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._tell = tell
        self._counted_by = counted_by
        self._yielding = yielding
        """The highest priority of pods that yield to chunks, if placeholders keep the capacity."""
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, dict[str, ForeignPod]] = {}  # by node, then uid
        self._claims: dict[str, _Claim] = {}
        self._told: dict[str, dict[str, NodeObserved]] = {}  # by node, then pool
        self._term = _InTerm()

    def forget_term(self) -> None:
        """Forget what a term has decided. What watches said stays."""
        self._term = _InTerm()
        self._update_all()

    def observe_node(self, node: Node) -> None:
        """Record the present state of a node."""
        self._nodes[node.name] = node
        self._update(node.name)

    def forget_node(self, name: str) -> None:
        """Remove a node."""
        self._nodes.pop(name, None)
        self._update(name)

    def observe_pod(self, pod: ForeignPod) -> None:
        """Record a pod that takes capacity."""
        there = self._pods.setdefault(pod.node, {})
        if there.get(pod.uid) != pod:
            there[pod.uid] = pod
            self._update(pod.node)

    def forget_pod(self, pod: ForeignPod) -> None:
        """Remove a pod that no longer takes capacity."""
        pods = self._pods.get(pod.node, {})
        pods.pop(pod.uid, None)
        if not pods:
            self._pods.pop(pod.node, None)
        self._update(pod.node)

    def recount(self, node: str) -> None:
        """Take in that a Pool has begun or ceased to count a pod on a node."""
        self._update(node)

    def observe_pool(self, name: str, *, created: float, selects: Selects) -> None:
        """Record a pool, or a new selector of a known pool."""
        self._claims[name] = _Claim(created, name, selects)
        self._update_all()

    def forget_pool(self, name: str) -> None:
        """Remove a pool. Its nodes go to the next pool that selects them."""
        self._claims.pop(name, None)
        self._term.kept.pop(name, None)
        self._term.speeds.pop(name, None)
        self._update_all()

    def keep(self, pool: str, since: Mapping[str, float]) -> None:
        """Record where placeholders keep the pool's capacity. Later pods that yield there are not counted."""
        before = self._term.kept.get(pool, {})
        self._term.kept[pool] = since
        for node in before.keys() | since.keys():
            if before.get(node) != since.get(node):
                self._update(node)

    def observe_speeds(self, pool: str, speeds: Mapping[str, float]) -> None:
        """Record the time per unit on each class of a pool's nodes, relative to the fastest class (1)."""
        if self._term.speeds.get(pool, {}) != speeds:
            self._term.speeds[pool] = speeds
            self._update_all()

    def pods_on(self, node: str) -> Collection[str]:
        """Return the uids of the pods on a node."""
        return self._pods.get(node, {}).keys()

    def knows(self, node: str) -> bool:
        """Return whether there is such a node."""
        return node in self._nodes

    def cpus_of(self, node: str) -> float | None:
        """Return the CPUs of a node. None: they are not known."""
        known = self._nodes.get(node)
        return (known and known.cpus) or None

    def hostname(self, node: str) -> str:
        """Return the label by which pods name a node."""
        known = self._nodes.get(node)
        return known.labels.get(HOSTNAME, node) if known else node

    def class_of(self, node: str) -> str:
        """Return the class of a node. Empty: it has none, or is gone."""
        known = self._nodes.get(node)
        return known.labels.get(CLASS_LABEL, "") if known else ""

    def events_of(self, pool: str) -> list[NodeObserved]:
        """Return every node event of a pool, for one that starts."""
        for node in [node for node, told in self._told.items() if pool in told]:
            self._update(node)
        return [told[pool] for told in self._told.values() if pool in told]

    def under(self, pool: str, *, created: float, selects: Selects) -> tuple[NodeObserved, ...]:
        """Return the node events that a pool would get with this selector."""
        claims = {**self._claims, pool: _Claim(created, pool, selects)}
        seen = (self._seen(name, claims.values()).get(pool) for name in self._nodes)
        return tuple(node for node in seen if node is not None)

    def owners(self) -> dict[str, str]:
        """Return the pool of each node that belongs to one."""
        return {node: pool for node in self._told if (pool := self.owner(node))}

    def owner(self, node: str) -> str | None:
        """Return the pool of a node. None: it belongs to none."""
        told = self._told.get(node, {})
        return next((pool for pool, seen in told.items() if seen.left_out != reasons.NODES_OVERLAP), None)

    def nodes(self) -> list[Node]:
        """Return all nodes in their last seen state."""
        return list(self._nodes.values())

    def _update_all(self) -> None:
        for name in self._nodes:
            self._update(name)

    def _update(self, name: str) -> None:
        seen = self._seen(name, self._claims.values())
        told = self._told.setdefault(name, {})
        for pool in [p for p in told if p not in seen]:
            del told[pool]
            self._tell(pool, NodeGone(name))
        for pool, node in seen.items():
            if told.get(pool) != node:
                told[pool] = node
                self._tell(pool, node)
        if not told:
            del self._told[name]

    def _seen(self, name: str, asking: Iterable[_Claim]) -> dict[str, NodeObserved]:
        """Return the node as seen by each pool that selects it."""
        node = self._nodes.get(name)
        if node is None:
            return {}
        claims = sorted(c for c in asking if c.selects(node.labels))
        pods = self._pods.get(name, {}).values()
        foreign = [p for p in pods if not claims or self._counted_by(p.uid) != claims[0].name]
        if claims and (since := self._term.kept.get(claims[0].name, {}).get(name)) is not None:
            foreign = [p for p in foreign if p.since <= since or p.priority > self._yielding]
        left = node.allocatable - Resources.sum(p.requests for p in foreign)
        slots = max(0, node.pods - len(foreign))
        return {
            claim.name: NodeObserved(
                name=name,
                ready=node.ready,
                cpu=round(left.cpu, 6),
                memory=left.memory,
                pods=slots,
                others=left.others,
                speed=self._term.speeds.get(claim.name, {}).get(node.labels.get(CLASS_LABEL, ""), 1.0),
                left_out=_left_out(node) if place == 0 else reasons.NODES_OVERLAP,
                labels=node.labels,
                taints=node.refusing,
                ports=frozenset(port for pod in foreign for port in pod.ports),
            )
            for place, claim in enumerate(claims)
        }


def _left_out(node: Node) -> str | None:
    """Return the reason why the node's own pool may not use it, or None."""
    if node.labels.get(CPU_MANAGER) == "static":
        return reasons.STATIC_CPU_MANAGER
    return None
