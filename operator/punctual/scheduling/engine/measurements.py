"""Measurements: what chunks have taken, of observations that may be late, and what that tells of costs."""

import math
from dataclasses import dataclass

from punctual.control.cost_estimation import Fetched
from punctual.scheduling.chunks import ledger, unit_times
from punctual.scheduling.model.actions import Measured
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Chunk, PilotSample, Transfers
from punctual.scheduling.state.job_state import ChunkObservation, JobState
from punctual.scheduling.state.pool_state import PoolState

SEEN = 2.0
"""Seconds within which the observed start or end of a pod counts as its actual time."""


@dataclass(slots=True)
class Measurements:
    """Measures chunks that end."""

    state: PoolState

    def running_since(self, now: float, chunk: Chunk, pod: PodObserved) -> float:
        """Return the time since when a pod has been running: now, unless a new leader or an outage saw it late.

        A late observation uses the kubelet's time, in whole seconds on the node's clock. Impossible values are ignored.
        """
        if pod.started is None or not (self.state.outdated.pods or pod.started < now - SEEN):
            return now
        return pod.started if chunk.created <= pod.started <= now else chunk.created

    def ended(self, now: float, chunk: Chunk, watch: ChunkObservation, pod: PodObserved) -> float:
        """Return when a pod ended: now, unless it had ended some time before it was observed.

        A late observation uses the kubelet's times, in whole seconds. Only the difference between two of them is used,
        so the offset of the node's clock does not matter. This is too coarse to measure a unit: one second of a small
        pilot is a large part of the cost of each unit.
        """
        if pod.started is None or pod.finished is None:
            return now
        since = watch.running_since or self.running_since(now, chunk, pod)
        end = since + (pod.finished - pod.started) + 1.0
        return end if end < now - SEEN else now

    def record(
        self,
        now: float,
        st: JobState,
        chunk: Chunk,
        watch: ChunkObservation,
        fetched: Fetched | None,
        *,
        seen_late: bool,
    ) -> None:
        """Return what the chunk's units took. Record it for a pilot, even if seen late when no other pilot will follow.

        For a unit with a pod of its own it is recorded, too.

        A chunk that seems to end no later than it began is not a measurement: the clock was set back or stood still.
        """
        # The time that it waited for its transfer turn is not part of its cost.
        seconds = max(0.0, now - max(chunk.created, chunk.turn or chunk.created))
        seconds = self.state.terms.measured(chunk, watch, seconds)
        measure = seconds > 0.0 and not seen_late
        if measure:
            if fetched is not None and fetched.seconds >= seconds:  # an untrusted image: impossible
                fetched = None
            self.state.outbox.add(Measured(st.job.uid, chunk.node, chunk.size, seconds, fetched, watch.response))
        if chunk.kind == "Pilot" and (measure or not ledger.remaining(st.job.units, st.record)):
            st.record = st.record._replace(pilots=(*st.record.pilots, PilotSample(chunk.size, seconds)))
        elif measure and st.job.unit_pods:
            self._note_unit(st, chunk, watch, seconds)

    def _note_unit(self, st: JobState, chunk: Chunk, watch: ChunkObservation, seconds: float) -> None:
        """Note what a unit with a pod of its own has taken on a processor of speed 1, if its start-up is known.

        A start-up that is longer than the declared one, and than the job's usual ones, has waited: for an image, for a
        stopped kubelet, or for the Job to create the pod. That says nothing of the units that are left.
        """
        cost, least = st.cost, st.least_start_up
        if cost is None or watch.running_since is None or (cost.setup == 0.0 and least == math.inf):
            return  # of a measured cost, no part is known to be start-up
        least = cost.setup if least == math.inf else max(cost.setup, least)
        start_up = watch.running_since - chunk.created
        wait = start_up - least if start_up > max(cost.setup, unit_times.USUAL * least) else 0.0
        node = self.state.processors.nodes.get(chunk.node)  # a node's slowness is not the workload's
        unit = max(0.0, seconds - wait) / (node.speed if node else 1.0)
        before = st.planned_slowdown
        st.record = st.record._replace(pilots=unit_times.with_one_more(st.record.pilots, unit))
        st.as_declared = False  # with what is left now, it may fit
        if st.planned_slowdown != before:
            self.state.outdated.times_changed()

    @staticmethod
    def transferred(st: JobState, chunk: Chunk, watch: ChunkObservation) -> Fetched | None:
        """Return the total cost of its transfer.

        The port is also idle while a transfer turn is handed on. That time counts as set-up of a transfer.
        """
        seen = watch.pod.transfer if watch.pod else None
        if seen is None:
            return None
        sending = seen.seconds - seen.opening
        opening = seen.opening
        if seen.waited > 0 and chunk.turn is not None and watch.fetched_at is not None:
            opening = max(opening, watch.fetched_at - chunk.turn - sending)
        units = chunk.origin - chunk.begin
        sums = st.record.transfers or Transfers()
        st.record = st.record._replace(transfers=sums.add(units, seen.size, opening=opening, sending=sending))
        return Fetched(units, opening, opening + sending)
