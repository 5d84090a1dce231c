"""Transfer turns: the order in which inputs are fetched over one shared port (``network: OnePort``).

Pods are created when their processors are free, in the order in which the plan sends their inputs. The input step of
each pod waits for its transfer turn. The first pod in the order gets the turn. The next one gets it once the previous
pod is *seen* to have its input or to be gone. So a late transfer delays the next, and two never overlap. A transfer
that hangs is ended like any stalled chunk (:mod:`punctual.scheduling.engine.health`), and the turn passes on when its
pod is gone.

A turn is in the job's status before the pod is told. So a new leader knows which pods may be fetching, and tells those
that do not know it yet. A chunk with a transfer that would still run when a reservation keeps the port for its own
input gets no turn before that. If inputs do not share a port, a chunk gets its turn when it is created.

A job without ``spec.input`` may still declare transfer costs (τ, θcm). Its transfers cannot be controlled, so they are
assumed to happen when planned.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from punctual import reasons
from punctual.scheduling.model.actions import GiveTurn
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.processors import Occupant
from punctual.scheduling.model.timing import LOOK
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.pool_state import PoolState

Entry = tuple[JobState, Chunk]


def someone_fetches(state: PoolState) -> bool:
    """Whether any job that owns chunks has an input."""
    return any(state.jobs[uid].job.fetches for uid in state.active)


def line(state: PoolState) -> list[Entry]:
    """Return the chunks in the order of their inputs: as planned, then by job and begin."""
    standing = (state.jobs[uid] for uid in state.active)
    entries = chain.from_iterable(((st, chunk) for chunk in st.record.chunks) for st in standing)
    return sorted((e for e in entries if e[1].kind != "Reduce"), key=_place)


def _place(entry: Entry) -> tuple[float, str, int]:
    st, chunk = entry
    return (chunk.created if chunk.sent is None else chunk.sent, st.job.uid, chunk.begin)


def has_input(st: JobState, chunk: Chunk) -> bool:
    """Whether the chunk's pod was seen to have its input."""
    pod = st.watch(chunk).pod
    return pod is not None and (pod.fetched or pod.phase != "Pending")


def _seconds(st: JobState, chunk: Chunk) -> float:
    """Return the expected duration of its transfer, seconds; 0 for a pilot, which measures it."""
    return 0.0 if st.cost is None else st.cost.theta_cm + (chunk.origin - chunk.begin) * st.cost.tau


def expected_inputs(state: PoolState, now: float) -> Iterator[tuple[JobState, Chunk, float]]:
    """Yield the chunks with an input still to come, in transfer order, each with the expected time of arrival."""
    port = now
    for st, chunk in line(state):
        cost = st.cost
        if chunk.sent is None or cost is None or has_input(st, chunk):
            continue
        if not st.job.fetches:
            at = chunk.sent
        else:
            length = _seconds(st, chunk)
            begins = chunk.turn
            if begins is None:
                begins = state.ahead.sendable(max(chunk.sent - length, port), length)
            at = max(begins + length, now)
        port = max(port, at)
        yield st, chunk, at


@dataclass(slots=True)
class TransferQueue:
    """Hands transfer turns on, and moves the planned ends of chunks that wait for a late transfer."""

    state: PoolState
    looked: float = -math.inf

    def work(self, now: float) -> None:
        """Give the next transfer turn if no chunk has it."""
        state = self.state
        if not (state.outdated.record or abs(now - self.looked) >= LOOK) or not someone_fetches(state):
            return
        self.looked = now
        one_port = state.spec.discipline.one_port
        state.pods.sending = {occupant for occupant in state.pods.sending if self._may_send(occupant)}
        for st, chunk in line(state):
            if not st.job.fetches:
                if one_port and chunk.sent is not None and chunk.sent > now:
                    break
                continue
            if chunk.turn is None:
                if one_port and (state.pods.sending or st.watch(chunk).pod is None):  # its pod is being created
                    break
                if one_port and state.ahead.sendable(now, _seconds(st, chunk)) > now:
                    break
                self._give(now, st, chunk)
            self._tell(st, chunk)
        if one_port:
            self._move(now)

    def _may_send(self, occupant: Occupant) -> bool:
        """Whether the occupant may still be fetching: also a pod told to end, but no pod on a lost node."""
        processors = self.state.processors
        place = processors.places_of.get(occupant)
        node = processors.nodes.get(place.node) if place else None
        return node is not None and node.ready

    def _give(self, now: float, st: JobState, chunk: Chunk) -> None:
        st.record = st.record.changed(chunk._replace(turn=now))
        self.state.pods.sending.add(self.state.occupant(st.job.uid, chunk))
        self.state.touch(st)

    def _tell(self, st: JobState, chunk: Chunk) -> None:
        """Tell the pod of its recorded transfer turn, unless it already knows."""
        watch = st.watch(chunk)
        kept = st.chunk(*chunk.key)
        if watch.pod is None or watch.told_turn or kept is None or kept.turn is None:
            return
        watch.told_turn = True
        pod = watch.pod
        self.state.outbox.add(GiveTurn(pod.namespace, pod.name, pod.uid, kept.turn))

    def _move(self, now: float) -> None:
        """Move planned ends by the delay of a late transfer: its own job causes it, not the jobs that wait behind it.

        A pod that starts while it waits for its turn has its θcp behind it, so a delay of that length does no harm.
        """
        state, cause = self.state, ""
        for st, chunk, at in list(expected_inputs(state, now)):
            cost = st.cost
            assert cost is not None
            assert chunk.sent is not None
            if at <= chunk.sent + cost.theta_cp + state.spec.margin / 2:
                continue
            cause = cause or st.job.uid
            ends = at + chunk.size * cost.with_headroom(state.spec.headroom).chi
            st.record = st.record.changed(chunk._replace(sent=at, promised_end=max(chunk.promised_end, ends)))
            state.touch(st)
            state.outdated.times_changed()
            state.outdated.caused_by(cause, reasons.OVERRUN)
