"""Processors of a pool: their number on each node, their occupants, and when each is free.

A processor is a place ``(node, slot)``; places of one node are equal. An occupant keeps its place until its pod has
ended or is gone, whether or not its job still owns the units. What a pod requests beyond its place, and all that a pod
without a place requests, is taken from its node before its processors are counted. The Pool and the planner use it; it
makes no decisions.

Where pods share processors (``admission: Utilization``), a node has more places than processors: a place is then the
memory and the extended resources of one pod.

A node with a taint is *closed*: its processors are there only for jobs that tolerate the taint, and the pool's numbers
do not count them.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from punctual import reasons
from punctual.errors import InvariantError
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.node_rules import ANY_NODE, Eligible, NodeRules
from punctual.scheduling.model.pool_spec import NodeProcessors, PoolSpec
from punctual.scheduling.model.resources import NOTHING, Quotients, Resources, Scarcity


class Place(NamedTuple):
    """One processor."""

    node: str
    slot: int


class Occupant(NamedTuple):
    """A pod on a place, by its identity in the core: job uid and chunk key."""

    job: str
    kind: str
    begin: int
    attempt: int


Key = tuple[str, str, int, int]
"""An occupant, or a tuple equal to one: lookups are more frequent than new occupants."""


def node_with(name: str, processors: int, spec: PoolSpec) -> NodeObserved:
    """Return an empty node with so many processors of a pool and nothing else: pods without rules may run there."""
    places = processors * spec.parts
    return NodeObserved(
        name=name,
        ready=True,
        cpu=processors * spec.cpu,
        memory=places * spec.memory,
        others=(Resources(others=spec.others) * places).others,
        pods=places,
    )


def _quotients(node: NodeObserved, spec: PoolSpec) -> Quotients | None:
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


def places_of(node: NodeObserved, spec: PoolSpec) -> int:
    """Return how many pods a node may have at a time: one per processor, or more where pods share processors."""
    return _places(_quotients(node, spec), spec)


def _processors(there: Quotients | None) -> int:
    """Return a node's processors: ⌊(allocatable − foreign pods' requests) / processor⌋, at most its free pod places.

    The resource with the least quotient counts.
    """
    return max(0, min(there.values())) if there else 0


def _places(there: Quotients | None, spec: PoolSpec) -> int:
    count = _processors(there)
    if not there or not count or spec.parts == 1:
        return count
    return min(count * spec.parts, *(n for name, n in there.items() if name != "cpu"))


def _rules_see(node: NodeObserved) -> tuple[Any, ...]:
    return node.labels, node.taints, node.ports, node.others


class Taken(NamedTuple):
    """What a pod of the pool takes of its node."""

    requests: Resources
    placed: bool
    """It is on a place, so a processor's share of its requests is counted there."""

    def beyond(self, share: Resources) -> Resources:
        """Return what it takes beyond its place."""
        return self.requests - share if self.placed else self.requests


NO_POD = Taken(NOTHING, placed=False)


@dataclass(slots=True)
class Processors:
    """All places of a pool."""

    nodes: dict[str, NodeObserved] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Node -> its number of places."""
    whole: dict[str, int] = field(default_factory=dict)
    """Node -> its number of processors. It differs from its places only where pods share processors."""
    occupants: dict[Place, Occupant] = field(default_factory=dict)
    places_of: dict[Key, Place] = field(default_factory=dict)
    blocked_until: dict[str, float] = field(default_factory=dict)
    """Node -> time before which no pod is tried there again, because one could not be placed."""
    pods: dict[str, dict[str, "Taken"]] = field(default_factory=dict)
    """Node -> uid of a pod of the pool that is bound to it -> what it takes there."""
    strays: set[Place] = field(default_factory=set)
    """Places in use beyond their node's processors."""
    closed: frozenset[str] = frozenset()
    """Nodes with processors on which pods without rules may not run."""
    _regular: list[Place] | None = None
    """All places of all nodes, by (slot, node), ignoring strays and blocked nodes."""
    _open: frozenset[str] | None = None
    """Cache of :attr:`open_nodes`."""
    _eligible: dict[NodeRules, Eligible | None] = field(default_factory=dict)
    """Cache of the nodes on which pods with these rules may run."""
    _lines: tuple[Mapping[str, float], tuple[NodeProcessors, ...]] | None = None
    """Cache of the nodes' status lines, and the placeholder times that it was made with."""
    scarcity: Scarcity = field(default_factory=Scarcity)
    """Which resource limits the number of processors."""

    def observe(self, node: NodeObserved, spec: PoolSpec) -> bool:
        """Process a node; return whether the number or the speed of its processors, or its taints, have changed."""
        before = self.nodes.get(node.name)
        self.nodes[node.name] = node
        self._lines = None
        changed = self._count(node, spec)
        if before is None or _rules_see(before) != _rules_see(node):
            self._eligible.clear()
        if before is None:
            return changed
        return changed or before.speed != node.speed or (self.counts[node.name] > 0 and before.taints != node.taints)

    def _count(self, node: NodeObserved, spec: PoolSpec) -> bool:
        """Count the processors of a node; return whether their number has changed."""
        there = _quotients(self._left(node, spec), spec)
        self.scarcity.observe(node.name, there, tainted=bool(node.taints))
        count, whole = _places(there, spec), _processors(there)
        changed = self.counts.get(node.name, 0) != count or self.whole.get(node.name, 0) != whole
        self.counts[node.name], self.whole[node.name] = count, whole
        if (node.name in self.closed) != (closed := bool(node.taints) and count > 0):
            self.closed = self.closed | {node.name} if closed else self.closed - {node.name}
            changed = True
        if changed:
            self._count_anew()
        return changed

    def _left(self, node: NodeObserved, spec: PoolSpec) -> NodeObserved:
        """Return a node without what pods of the pool take of it beyond their places."""
        more = Resources.sum(pod.beyond(spec.share) for pod in self.pods.get(node.name, {}).values())
        if not more:
            return node
        left = node.left - more
        return replace(node, cpu=round(left.cpu, 6), memory=left.memory, others=left.others)

    def note_taken(self, pod: str, node: str, taken: Taken, spec: PoolSpec) -> bool:
        """Note what a pod (uid) takes of its node; return whether the node's processors have changed."""
        there = self.pods.get(node, {})
        before = there.pop(pod, NO_POD)
        if taken.requests:
            self.pods.setdefault(node, there)[pod] = taken
        elif not there:
            self.pods.pop(node, None)
        known = self.nodes.get(node)
        if known is None or before.beyond(spec.share) == taken.beyond(spec.share):
            return False
        return self._count(known, spec)

    def forget(self, name: str) -> bool:
        """Drop a node that is gone; return whether it had processors. Occupants stay until their pods are gone."""
        self.nodes.pop(name, None)
        self.blocked_until.pop(name, None)
        self.whole.pop(name, None)
        self.scarcity.observe(name, None, tainted=False)
        counted = self.counts.pop(name, 0) > 0
        self.closed -= {name}
        self._count_anew()
        return counted

    def resize(self, spec: PoolSpec) -> None:
        """Compute the processors again for another processor size."""
        there = {name: _quotients(self._left(node, spec), spec) for name, node in self.nodes.items()}
        self.counts = {name: _places(found, spec) for name, found in there.items()}
        self.whole = {name: _processors(found) for name, found in there.items()}
        self.scarcity = Scarcity()
        for name, found in there.items():
            self.scarcity.observe(name, found, tainted=bool(self.nodes[name].taints))
        self.closed = frozenset(name for name, node in self.nodes.items() if node.taints and self.counts[name])
        self._count_anew()

    def under(self, spec: PoolSpec, coming: Iterable[NodeObserved]) -> "Processors":
        """Return the processors under another spec, with more nodes; this object does not change."""
        after = replace(
            self,
            nodes=dict(self.nodes),
            counts=dict(self.counts),
            whole=dict(self.whole),
            occupants=dict(self.occupants),
            places_of=dict(self.places_of),
            blocked_until=dict(self.blocked_until),
            pods={node: dict(pods) for node, pods in self.pods.items()},
            strays=set(self.strays),
            _eligible={},
        )
        for node in coming:
            after.nodes[node.name] = node
        after.resize(spec)
        return after

    def _count_anew(self) -> None:
        self._regular = self._lines = self._open = None
        self._eligible.clear()
        self.strays = {place for place in self.occupants if place.slot >= self.counts.get(place.node, 0)}

    def seat(self, occupant: Occupant, node: str) -> Place:
        """Give the occupant a free place on the node, or one beyond its processors if all are occupied."""
        if occupant in self.places_of:
            return self.places_of[occupant]
        slot = 0
        while Place(node, slot) in self.occupants:
            slot += 1
        self.seat_at(occupant, Place(node, slot))
        return Place(node, slot)

    def seat_at(self, occupant: Occupant, place: Place) -> None:
        """Give the occupant this free place."""
        if place in self.occupants:
            raise InvariantError(f"{place} is occupied by {self.occupants[place]}")
        self.occupants[place] = occupant
        self.places_of[occupant] = place
        if place.slot >= self.counts.get(place.node, 0):
            self.strays.add(place)

    def leave(self, occupant: Occupant) -> bool:
        """Free the place of an occupant with a pod that has ended or is gone; return whether it had one."""
        place = self.places_of.pop(occupant, None)
        if place is None:
            return False
        del self.occupants[place]
        self.strays.discard(place)
        return True

    @property
    def open_counts(self) -> Mapping[str, int]:
        """Node -> its number of places for pods without rules."""
        closed = self.closed
        return {node: n for node, n in self.counts.items() if node not in closed} if closed else self.counts

    @property
    def open_nodes(self) -> frozenset[str]:
        """The nodes with places for pods without rules."""
        if self._open is None:
            self._open = frozenset(node for node, count in self.open_counts.items() if count)
        return self._open

    def eligible(self, rules: NodeRules) -> Eligible | None:
        """Return the nodes on which pods with these rules may run; None: those that are open to all pods."""
        if rules is ANY_NODE:
            return None
        try:
            return self._eligible[rules]
        except KeyError:
            found = self._eligible[rules] = self._eligible_anew(rules)
            return found

    def _eligible_anew(self, rules: NodeRules) -> Eligible | None:
        there = self.open_nodes | self.closed
        allowed = frozenset(name for name in there if rules.objection(self.nodes[name]) is None)
        if rules.devices:
            wanted = Resources(others=rules.devices)
            shares = {name: Resources(others=self.nodes[name].others) // self.counts[name] for name in allowed}
            allowed = frozenset(name for name, share in shares.items() if wanted.fits(share))
        together = bool(rules.one_node) and len(allowed) > 1
        if not together and not rules.ports and allowed == self.open_nodes:
            return None
        return Eligible(allowed, one_node=together, ports=rules.ports)

    def usable(
        self, now: float, ends: Mapping[Place, float] | None = None, *, opened: Collection[str] = ()
    ) -> list[Place]:
        """Return the places that planning may use, by (slot, node): as many per node as it has processors.

        ``opened``: closed nodes that are wanted, too.

        By slot first, so that chunks that start together spread over the nodes. If a node has more occupants than
        processors (a foreign pod came), the places with the latest ends count (``ends``: by place); the others vanish
        with their occupants. A node on which a pod could not be placed recently offers no free place.
        """
        if self._regular is None:
            regular = (Place(node, i) for node, count in self.counts.items() for i in range(count))
            self._regular = sorted(regular, key=lambda p: (p.slot, p.node))
        blocked = {node for node, until in self.blocked_until.items() if until > now}
        odd = (blocked | {place.node for place in self.strays}) & self.counts.keys()
        if shut := self.closed.difference(opened):
            return [place for place in self._usable(odd, blocked, ends) if place.node not in shut]
        return self._usable(odd, blocked, ends)

    def _usable(
        self, odd: Collection[str], blocked: Collection[str], ends: Mapping[Place, float] | None
    ) -> list[Place]:
        """Return the places of all nodes, of those that are ``odd`` the ones that remain."""
        assert self._regular is not None
        if not odd:
            return self._regular.copy()
        taken: dict[str, list[Place]] = {node: [] for node in odd}
        for place in sorted(self.occupants, key=lambda p: (-ends.get(p, 0.0) if ends else 0.0, p.slot)):
            if place.node in odd:
                taken[place.node].append(place)
        out = [place for place in self._regular if place.node not in odd]
        for node, sat in taken.items():
            count = self.counts[node]
            out.extend(sat[:count])
            if node not in blocked:
                free = (p for i in range(count + len(sat)) if (p := Place(node, i)) not in self.occupants)
                out.extend(islice(free, max(0, count - len(sat))))
        out.sort(key=lambda p: (p.slot, p.node))
        return out

    def speeds(self, places: Sequence[Place]) -> NDArray[np.float64] | None:
        """Return the factor of the time of a unit on each place; None: all are equal."""
        slow = {name: node.speed for name, node in self.nodes.items() if node.speed != 1.0}
        return np.array([slow.get(place.node, 1.0) for place in places]) if slow else None

    def unblock(self, now: float) -> bool:
        """Unblock nodes that have been blocked long enough; return whether there was one."""
        over = [node for node, until in self.blocked_until.items() if until <= now]
        for node in over:
            del self.blocked_until[node]
        return bool(over)

    @property
    def total(self) -> int:
        """Number of processors for pods without rules."""
        return sum(self.whole.values()) - sum(self.whole[node] for node in self.closed)

    @property
    def free(self) -> int:
        """Number of unoccupied processors. Where pods share processors, each counts as if it had one for itself."""
        closed = self.closed
        if not self.strays and self.whole == self.counts and not closed:
            return self.total - len(self.occupants)
        taken = self.taken()
        return sum(max(0, count - taken.get(node, 0)) for node, count in self.whole.items() if node not in closed)

    def taken(self) -> Mapping[str, int]:
        """Return the number of occupied places by node; a node without any may be missing."""
        return Counter(place.node for place in self.occupants)

    def room(self) -> dict[str, int]:
        """Return the number of unoccupied processors of each node that has any processors at all."""
        left = {node: count for node, count in self.open_counts.items() if count}
        for place in self.occupants:
            if left.get(place.node):
                left[place.node] -= 1
        return left

    def lines(self, since: Mapping[str, float]) -> tuple[NodeProcessors, ...]:
        """Return one line per node for the pool's status. ``since``: node -> start of its placeholders."""
        if self._lines is None or self._lines[0] != since:
            lines = tuple(
                NodeProcessors(
                    name=name,
                    processors=0 if node.taints else self.whole.get(name, 0),
                    pods=None if node.taints or self.whole.get(name) == self.counts.get(name) else self.counts[name],
                    speed=node.speed,
                    reason=_why_left_out(node),
                    held_since=since.get(name),
                )
                for name, node in sorted(self.nodes.items())
            )
            self._lines = dict(since), lines
        return self._lines[1]

    def check(self) -> None:
        """Raise InvariantError unless places and occupants map to each other."""
        if {o: p for p, o in self.occupants.items()} != self.places_of:
            raise InvariantError("two occupants on one processor, or one on two")
        if self.strays != {p for p in self.occupants if p.slot >= self.counts.get(p.node, 0)}:
            raise InvariantError("a place beyond its node's processors was overlooked")
        if self.closed != {name for name, node in self.nodes.items() if node.taints and self.counts.get(name)}:
            raise InvariantError("a node with a taint was overlooked")


def with_one_more(processors: Processors, node: NodeObserved, spec: PoolSpec) -> Processors:
    """Return the processors of a pool that has one more node, open to all pods; the given ones do not change."""
    there = _quotients(node, spec)
    return replace(
        processors,
        nodes={**processors.nodes, node.name: node},
        counts={**processors.counts, node.name: _places(there, spec)},
        whole={**processors.whole, node.name: _processors(there)},
        _regular=None,
        _open=None,
        _eligible={},
        _lines=None,
    )


def _why_left_out(node: NodeObserved) -> str | None:
    """Return the reason why pods without rules may not run on a node; None: they may."""
    if node.left_out is not None:
        return node.left_out
    if not node.ready:
        return "NotReady"
    return reasons.NODE_TAINTED if node.taints else None
