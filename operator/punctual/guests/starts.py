"""Where and when chunks start: on idle nodes first, for the job that has had the least CPU for its weight."""

from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from punctual.guests.cluster import Cluster
from punctual.guests.guest import ANSWER, Arrival, GuestState
from punctual.guests.nodes import NodeState
from punctual.guests.together import GuestPlace, end_together
from punctual.linger.policy import lingers
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.model.timing import BLOCKED

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
                node.cores, node.memory = node.cores - st.job.cores, node.memory - st.job.memory
                wanted = ripe and not st.stopped and bool(st.remaining)
                if wanted and node.takes(now, st.job, busy=lingers(st.job.policy)):
                    self._begin(now, st, node)

    def place(self, now: float) -> None:
        """Start chunks on free places, for the job with the least share first."""
        self._admit()
        asking = [st for st in self.cluster.guests.values() if st.wants and abs(now - st.refused_at) >= BLOCKED]
        for _ in range(STARTS):
            if not asking:
                return
            st = min(asking, key=lambda st: (st.share, st.job.uid))
            node = self.cluster.best(now, st.job, busy=lingers(st.job.policy))
            if node is None or not self._begin(now, st, node) or not st.wants:
                asking.remove(st)

    def _admit(self) -> None:
        """Give a job that begins to run the share of those that run: none has to catch up with another."""
        running = [st.served for st in self.cluster.guests.values() if st.active]
        for st in self.cluster.guests.values():
            active = bool(st.record.chunks) or st.wants
            if active and not st.active:
                st.served = max(st.served, min(running, default=0.0))
            st.active = active

    def _begin(self, now: float, st: GuestState, node: NodeState) -> bool:
        """Start a chunk: as long as the job's chunks are now, at the node's rate, but spread over all places.

        On a busy node it is to end with the job's others. Return whether that is possible.
        """
        guest, rate, least = st.job, node.rate(st.job, more=True), node.least_rate(st.job)
        cpu = st.length.seconds * rate * guest.cores
        if guest.restart == "Redo":
            cpu = min(cpu, guest.most_lost)
        size = max(1, int(cpu / st.cpu_per_unit + 1e-6))
        if node.busy:
            size = min(size, int(self._in_time(st, least) / st.cpu_per_unit + 1e-6))
        rates = sum(max(1, int(n.node.cores / guest.cores)) * n.least_rate(guest) for n in self.cluster.nodes.values())
        spread = ceil(st.remaining.total * max(least / rates, 1.0 / (guest.most or inf)) - 1e-9)
        size = min(size, spread)
        if size == 0:
            return False
        begin, end = _part(st.remaining, size)
        size = min(size, end - begin)
        node.count(guest)
        st.begin(now, node.node.name, Range(begin, begin + size), rate)
        return True

    def _in_time(self, st: GuestState, rate: float) -> float:
        """Return the CPU seconds of a new chunk that works at a rate and ends when all of the job's places do."""
        cores, start = st.job.cores, st.start.seconds
        places = [GuestPlace(start, rate)]
        for chunk in st.record.chunks:
            node = self.cluster.nodes.get(chunk.node)
            speed = 0.0 if node is None else node.rate(st.job, more=False)
            if speed > 0.0:
                places.append(GuestPlace(start + st.ahead(chunk) / cores / speed, speed))
        end = end_together(st.remaining.total * st.cpu_per_unit / cores, places)
        return max(0.0, end - start) * rate * cores


def _part(remaining: Ranges, size: int) -> tuple[int, int]:
    """Return the least part that has ``size`` units, or else the largest: rests of other chunks are short."""
    parts = sorted(remaining.parts, key=lambda part: part[1] - part[0])
    return next((part for part in parts if part[1] - part[0] >= size), parts[-1])


def _ripe(st: GuestState, arrival: Arrival) -> bool:
    """Whether the chunk has answered that a place waits for, or is over."""
    source = next((chunk for chunk in st.record.chunks if chunk.key == arrival.source), None)
    return source is None or source.end < source.origin
