"""Set points: what the agents are told of each chunk, its CPU cap, the end that it should keep, and its line."""

from dataclasses import dataclass
from typing import Final

from punctual.control.response import Response
from punctual.scheduling.engine.planner import Planner
from punctual.scheduling.model.actions import FollowedLine, SetPoint
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.state.fluid import share
from punctual.scheduling.state.job_state import ChunkObservation, JobState
from punctual.scheduling.state.pool_state import PoolState

LEFTOVER_SHARE: Final = 0.02
"""Part of a processor that a leftover chunk has for itself where chunks share processors."""
LEFTOVER_LINE: Final = 30 * 86400.0
"""Seconds from its creation to the end of its line."""


@dataclass(slots=True)
class SetPoints:
    """Sends set points when they change."""

    state: PoolState
    planner: Planner

    def aim(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation) -> None:
        """Send the agent a set point for the chunk if it has changed."""
        spec = self.state.spec
        assert spec is not None
        pod = watch.pod
        if pod is None or pod.phase not in {"Pending", "Running"}:
            return
        cap, end = (spec.cpu, chunk.promised_end) if not spec.fluid else self._share(now, st, chunk, watch)
        point = SetPoint(
            node=pod.node,
            pod=pod.uid,
            cap=cap,
            period=spec.period,
            units=chunk.origin - chunk.begin,
            end=end,
            line=self._line(st, chunk, watch, end),
        )
        if watch.set_point != point:
            watch.set_point = point
            self.state.outbox.add(point)

    def see_response(self, st: JobState, chunk: Chunk, watch: ChunkObservation, seen: Response | None) -> None:
        """Note how a chunk on its line answers to CPU, if that can be true."""
        line = watch.set_point.line if watch.set_point else None
        node = self.state.processors.nodes.get(chunk.node)
        if seen is not None and line is not None and node is not None and seen.believable(line.cpu_per_unit):
            st.note_response(chunk, seen, node.speed)

    def _line(self, st: JobState, chunk: Chunk, watch: ChunkObservation, end: float) -> FollowedLine | None:
        """Return the line of a promised chunk. Pilots, reduce steps and leftover chunks hold their cap.

        Where chunks share processors, leftover chunks have lines as well, so that all caps of a node add up.
        """
        spec, cost = self.state.spec, st.cost
        assert spec is not None
        node = self.state.processors.nodes.get(chunk.node)
        if spec.loose or chunk.kind != "Chunk" or cost is None or node is None:
            return None
        if not spec.fluid and (not spec.feedback or chunk.leftover):
            return None
        cpu_per_unit = cost.chi * node.speed * spec.cpu
        before = watch.set_point.line if watch.set_point else None
        if before is not None and watch.running_since is not None:
            response = before.response  # its agent has begun with it, and knows more by now
        else:
            known = st.response.slower(node.speed) if st.response else None
            response = known if known and known.believable(cpu_per_unit) else None
        return FollowedLine(
            pool=spec.name,
            pool_cores=spec.cpu * self.state.processors.whole.get(chunk.node, 0),
            units=chunk.size,
            planned=chunk.promised_end - chunk.created,
            cpu_per_unit=cpu_per_unit,
            response=response,
            ceiling=spec.cpu if spec.fluid else None,
            due=end if spec.fluid else self.planner.due(st),
        )

    def _share(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation) -> tuple[float, float]:
        """Return the cap of a chunk that shares its processor, cores, and the end of its line.

        The cap is what it needs with the headroom, so it ends in time without any control. A leftover chunk has no time
        by which it must end: its line ends so late that it claims next to nothing, and it uses what is lent.
        """
        spec, cost = self.state.spec, st.cost
        assert spec is not None
        if chunk.leftover or st.state == "Leftover" or cost is None:
            return LEFTOVER_SHARE * spec.cpu, chunk.created + LEFTOVER_LINE
        node = self.state.processors.nodes.get(chunk.node)
        part = share(chunk, watch, cost.with_headroom(spec.headroom), now, speed=node.speed if node else 1.0)
        return part * spec.cpu, chunk.promised_end
