"""Set points: what the agents are told of each chunk, its CPU cap, the end that it should keep, and its line."""

from dataclasses import dataclass

from punctual.control.response import Response
from punctual.scheduling.engine.planner import Planner
from punctual.scheduling.model.actions import FollowedLine, SendSetPoint
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.state.job_state import ChunkObservation, JobState
from punctual.scheduling.state.pool_state import PoolState


@dataclass(slots=True)
class SetPointSender:
    """Sends set points when they change."""

    state: PoolState
    planner: Planner

    def aim(self, now: float, st: JobState, chunk: Chunk, watch: ChunkObservation) -> None:
        """Send the agent a set point for the chunk if it has changed."""
        spec = self.state.spec
        pod = watch.pod
        if pod is None or pod.phase not in {"Pending", "Running"}:
            return
        cap, end = self.state.terms.cap(now, st, chunk, watch, self.state.processors.nodes)
        own = st.job.pod.most_cpu if st.job.pod is not None else None
        limited = own is not None and own < spec.cpu
        point = SendSetPoint(
            node=pod.node,
            pod=pod.uid,
            cap=min(cap, own) if own is not None else cap,
            period=spec.period,
            units=chunk.origin - chunk.begin,
            end=end,
            # its agent would give it more than its limit to keep it on a line
            line=None if limited else self._line(st, chunk, watch, end),
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
        """Return the line of a chunk; None: it holds its cap."""
        spec, cost = self.state.spec, st.cost
        node = self.state.processors.nodes.get(chunk.node)
        if cost is None or node is None or not self.state.terms.follows(chunk):
            return None
        cpu_per_unit = cost.chi * node.speed * spec.cpu
        before = watch.set_point.line if watch.set_point else None
        if before is not None and watch.running_since is not None:
            response = before.response  # its agent has begun with it, and knows more by now
        else:
            known = st.response.slower(node.speed) if st.response else None
            response = known if known and known.believable(cpu_per_unit) else None
        ceiling, due = self.state.terms.limits(end, self.planner.due(st))
        return FollowedLine(
            pool=spec.name,
            pool_cores=spec.cpu * self.state.processors.whole.get(chunk.node, 0),
            units=chunk.size,
            planned=chunk.promised_end - chunk.created,
            cpu_per_unit=cpu_per_unit,
            response=response,
            ceiling=ceiling,
            due=due,
        )
