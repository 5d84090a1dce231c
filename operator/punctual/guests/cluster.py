"""All guest jobs of a pool and all its nodes, as they are now."""

from dataclasses import dataclass, field

from punctual.guests.guest import GuestState
from punctual.guests.model import Guest, GuestNode
from punctual.guests.nodes import NodeState
from punctual.guests.offers import leaves


@dataclass(slots=True)
class Cluster:
    """Guest jobs by uid, nodes by name."""

    guests: dict[str, GuestState] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    seen: bool = False
    """Whether nodes were told at all."""

    def see(self, nodes: tuple[GuestNode, ...]) -> None:
        """Take in which nodes there are."""
        before, self.nodes, self.seen = self.nodes, {}, True
        for node in nodes:
            self.nodes[node.name] = before.get(node.name) or NodeState(node)
            self.nodes[node.name].node = node

    def count(self) -> None:
        """Count what chunks take of the nodes."""
        for node in self.nodes.values():
            node.cores, node.memory, node.leaving = 0.0, 0, 0.0
        for st in self.guests.values():
            for name in [*(c.node for c in st.record.chunks), *(arrival.node for arrival in st.arrivals)]:
                if name in self.nodes:
                    self.nodes[name].count(st.job)

    def release(self, now: float) -> None:
        """Count the chunks that were asked to leave as gone: the others soon share what they have."""
        for st in self.guests.values():
            for chunk in st.record.chunks:
                if chunk.node in self.nodes and leaves(now, st, chunk):
                    self.nodes[chunk.node].release(st.job)

    def best(self, now: float, guest: Guest, *, busy: bool, other_than: str = "") -> NodeState | None:
        """Return the node for a chunk: an idle one first, then by what it gets there, then by the use of hosts.

        ``busy``: a busy one will do. None: there is no place.
        """
        found = [n for n in self.nodes.values() if n.node.name != other_than and n.takes(now, guest, busy=busy)]
        return min(found, key=lambda n: (n.busy, -n.rate(guest, more=True), n.use, n.node.name), default=None)
