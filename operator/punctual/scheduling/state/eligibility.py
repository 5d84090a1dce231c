"""Eligibility: on which nodes, processors and free places a job's pods may run now."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from punctual.scheduling.model.node_rules import ANY_NODE, Eligible, Exclusions, HostPort, Ports
from punctual.scheduling.model.processors import Place
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.pool_state import PoolState

NO_PORTS: Ports = frozenset[HostPort]()


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Reads the rules of jobs against the nodes of a pool."""

    state: PoolState

    def nodes(self, st: JobState) -> Eligible | None:
        """Return the nodes on which the job's pods may run; None: those that are open to all pods."""
        return self.state.processors.eligible(st.job.rules)

    def processors(self, st: JobState) -> int:
        """Return the number of processors on which the job's pods may run."""
        there, eligible = self.state.processors, self.nodes(st)
        return there.total if eligible is None else sum(there.whole.get(node, 0) for node in eligible.nodes)

    def total(self, st: JobState) -> int:
        """Return the number of processors of the pool and of further nodes on which the job's pods may run."""
        there, eligible = self.state.processors, self.nodes(st)
        more = there.closed & eligible.nodes if eligible is not None else frozenset()
        return there.total + sum(there.whole[node] for node in more)

    def exclusions(self, st: JobState) -> Exclusions:
        """Return which of its rules exclude how many of the pool's nodes."""
        return Exclusions.of(st.job.rules, self.state.processors.nodes.values())

    def fits_no_node(self, st: JobState) -> str | None:
        """Return why the job's pods may run on no node, if its rules are the cause."""
        if st.job.rules == ANY_NODE or self.processors(st):
            return None
        found = self.exclusions(st)
        return found.no_node if found.said else None

    def opened(self) -> frozenset[str]:
        """Return the nodes, closed to pods without rules, on which a live job may run."""
        closed = self.state.processors.closed
        if not closed:
            return frozenset()
        found = (self.nodes(st) for st in self.state.live.with_rules())
        return closed & frozenset(node for eligible in found if eligible is not None for node in eligible.nodes)

    def ports(self) -> dict[str, Ports]:
        """Return the host ports that pods of this pool's jobs have, by node."""
        if not any(st.job.rules.ports for st in self.state.live.with_rules()):
            return {}
        found: dict[str, Ports] = {}
        for place, occupant in self.state.processors.occupants.items():
            if (st := self.state.jobs.get(occupant.job)) is not None and st.job.rules.ports:
                found[place.node] = found.get(place.node, NO_PORTS) | st.job.rules.ports
        return found

    def free(self, now: float) -> list[Place]:
        """Return the free places, those of closed nodes included on which a live job may run."""
        there = self.state.processors
        return [place for place in there.usable(now, opened=self.opened()) if place not in there.occupants]

    def able(self, st: JobState, free: Sequence[Place]) -> Sequence[Place]:
        """Return which free places further pods of a job may take, all at once."""
        eligible, closed = self.nodes(st), self.state.processors.closed
        if eligible is None:
            return [place for place in free if place.node not in closed] if closed else free
        able = [place for place in free if place.node in eligible.nodes]
        if eligible.one_node:
            able = _together(st, able)
        if eligible.ports:
            held = self.ports()
            able = _one_each(place for place in able if not eligible.conflicts(held.get(place.node, NO_PORTS)))
        return able


def _together(st: JobState, able: list[Place]) -> list[Place]:
    """Return the places of one node: where the job's chunks run, or else where most are free."""
    on = {chunk.node for chunk in st.record.chunks}
    counts = Counter(place.node for place in able if not on or on == {place.node})
    node = max(counts, key=lambda name: (counts[name], name), default=None)
    return [place for place in able if place.node == node]


def _one_each(places: Iterable[Place]) -> list[Place]:
    """Return the first place of each node."""
    first: dict[str, Place] = {}
    for place in places:
        first.setdefault(place.node, place)
    return list(first.values())
