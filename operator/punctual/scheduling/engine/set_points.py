"""Set points: what the agents are told of each chunk, its CPU cap and the end that it should keep."""

from dataclasses import dataclass

from punctual.scheduling.model.actions import SetPoint
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.state.job_state import ChunkObservation
from punctual.scheduling.state.pool_state import PoolState


@dataclass(slots=True)
class SetPoints:
    """Sends set points when they change."""

    state: PoolState

    def aim(self, chunk: Chunk, watch: ChunkObservation) -> None:
        """Send the agent a set point for the chunk if it has changed."""
        assert self.state.spec is not None
        pod = watch.pod
        if pod is None or pod.phase not in {"Pending", "Running"}:
            return
        point = (self.state.spec.cpu, chunk.promised_end, pod.uid)
        if watch.set_point != point:
            watch.set_point = point
            self.state.outbox.add(
                SetPoint(
                    node=pod.node,
                    pod=pod.uid,
                    cap=self.state.spec.cpu,
                    period=self.state.spec.period,
                    units=chunk.origin - chunk.begin,
                    end=chunk.promised_end,
                )
            )
