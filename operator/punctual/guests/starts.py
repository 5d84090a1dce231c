"""Where and when chunks start: on idle nodes first, for the job that has had the least CPU for its weight."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from punctual.guests.cluster import Cluster
from punctual.guests.guest import ANSWER, REFUSED, Arrival, GuestState
from punctual.guests.nodes import NodeState
from punctual.linger.policy import lingers
from punctual.scheduling.model.ranges import Range

STARTS: Final = 200
"""Most chunks that start in one step."""


@dataclass(slots=True)
class Starts:
    """Starts the chunks of a cluster."""

    cluster: Cluster

    def arrive(self, now: float) -> None:
        """Start the rests of chunks that have answered, where places are kept for them."""
        for st in self.cluster.guests.values():
            for arrival in list(st.arrivals):
                ripe = _ripe(st, arrival)
                if not ripe and abs(now - arrival.since) <= ANSWER:
                    continue
                st.arrivals.remove(arrival)
                node = self.cluster.nodes.get(arrival.node)
                if node is None:
                    continue
                node.cores, node.memory = node.cores - st.guest.cores, node.memory - st.guest.memory
                wanted = ripe and not st.stopped and bool(st.remaining)
                if wanted and node.takes(now, st.guest, busy=lingers(st.guest.policy)):
                    self._begin(now, st, node)

    def place(self, now: float) -> None:
        """Start chunks on free places, for the job with the least share first."""
        self._admit()
        asking = [st for st in self.cluster.guests.values() if st.wants and abs(now - st.refused_at) >= REFUSED]
        for _ in range(STARTS):
            if not asking:
                return
            st = min(asking, key=lambda st: (st.share, st.uid))
            if (node := self.cluster.best(now, st.guest, busy=lingers(st.guest.policy))) is not None:
                self._begin(now, st, node)
            if node is None or not st.wants:
                asking.remove(st)

    def _admit(self) -> None:
        """Give a job that begins to run the share of those that run: none has to catch up with another."""
        running = [st.served for st in self.cluster.guests.values() if st.active]
        for st in self.cluster.guests.values():
            active = bool(st.record.chunks) or st.wants
            if active and not st.active:
                st.served = max(st.served, min(running, default=0.0))
            st.active = active

    def _begin(self, now: float, st: GuestState, node: NodeState) -> None:
        """Start a chunk: as long as the job's chunks are now, at the node's rate, but spread over all places."""
        guest, rate = st.guest, node.rate(st.guest, more=True)
        cpu = st.length.seconds * rate * guest.cores
        if guest.restart == "Redo":
            cpu = min(cpu, guest.most_lost)
        places = sum(max(1, int(n.node.cores / guest.cores)) for n in self.cluster.nodes.values())
        spread = ceil(st.remaining.total / max(1, min(places, guest.most or places)))
        begin, end = st.remaining.parts[0]
        size = max(1, min(int(cpu / st.cpu_per_unit + 1e-6), spread, end - begin))
        node.take(guest)
        st.begin(now, node.node.name, Range(begin, begin + size), rate)


def _ripe(st: GuestState, arrival: Arrival) -> bool:
    """Whether the chunk has answered that a place waits for, or is over."""
    source = next((chunk for chunk in st.record.chunks if chunk.key == arrival.source), None)
    return source is None or source.end < source.origin
