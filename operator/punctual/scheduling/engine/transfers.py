"""Whose turn it is to fetch its input, where all inputs come over one port (``network: OnePort``).

Pods are made when their processors are free, in the order in which the plan sends their inputs; the input step of each
waits until it is told. The turn goes to the first in that order, and to the next once the one before is *seen* to have
its input or to be gone: a late transfer holds up the next, and two never overlap. One that hangs is ended like any
chunk that stalls (:mod:`punctual.scheduling.engine.health`), and the turn goes on when its pod is gone.

A turn stands in the job's status before the pod is told. So a new leader knows who may be fetching; it tells those
again whose pods do not know it yet. No turn is given to who would still fetch when a reservation keeps the port for its
input: it comes behind that. Where inputs do not share a port a chunk is made with its turn.

A job without ``spec.input`` may have declared that it sends (τ, θcm) all the same: nobody can stop it, so its transfers
are taken to be when they were planned to.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from punctual import reasons
from punctual.scheduling.engine.job_state import JobState
from punctual.scheduling.engine.lifecycle import LOOK
from punctual.scheduling.engine.state import PoolState
from punctual.scheduling.model.actions import GiveTurn
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.processors import Occupant

Entry = tuple[JobState, Chunk]


def someone_fetches(state: PoolState) -> bool:
    """Whether any job that owns chunks has an input."""
    return any(state.jobs[uid].job.fetches for uid in state.active)


def line(state: PoolState) -> list[Entry]:
    """Return the chunks in the order in which their inputs come: as planned, then by job and begin."""
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
    """Return how long its transfer is expected to take; 0 for a pilot, which is to find out."""
    return 0.0 if st.cost is None else st.cost.theta_cm + (chunk.origin - chunk.begin) * st.cost.tau


def expected_inputs(state: PoolState, now: float) -> Iterator[tuple[JobState, Chunk, float]]:
    """Give the chunks whose input is still to come, in turn, and when it is expected to be there."""
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
    """Hands turns on, and moves the ends of those who wait for a late one."""

    state: PoolState
    looked: float = -math.inf

    def work(self, now: float) -> None:
        """Give the next turn, if nobody has it."""
        state = self.state
        if not (state.changed or abs(now - self.looked) >= LOOK) or not someone_fetches(state):
            return
        assert state.spec is not None
        self.looked = now
        one_port = state.spec.discipline.one_port
        state.sending = {occupant for occupant in state.sending if self._may_send(occupant)}
        for st, chunk in line(state):
            if not st.job.fetches:
                if one_port and chunk.sent is not None and chunk.sent > now:
                    break
                continue
            if chunk.turn is None:
                if one_port and (state.sending or st.watch(chunk).pod is None):  # its pod is being made
                    break
                if one_port and state.ahead.sendable(now, _seconds(st, chunk)) > now:
                    break
                self._give(now, st, chunk)
            self._tell(st, chunk)
        if one_port:
            self._move(now)

    def _may_send(self, occupant: Occupant) -> bool:
        """Whether it still has a place: also one that was told to end, but none on a node that is lost."""
        processors = self.state.processors
        place = processors.places_of.get(occupant)
        node = processors.nodes.get(place.node) if place else None
        return node is not None and node.ready

    def _give(self, now: float, st: JobState, chunk: Chunk) -> None:
        st.record = st.record.changed(chunk._replace(turn=now))
        self.state.sending.add(self.state.occupant(st.job.uid, chunk))
        self.state.touch(st)

    def _tell(self, st: JobState, chunk: Chunk) -> None:
        """Tell the pod of a turn that stands on record, unless it knows."""
        watch = st.watch(chunk)
        kept = st.chunk(*chunk.key)
        if watch.pod is None or watch.told_turn or kept is None or kept.turn is None:
            return
        watch.told_turn = True
        pod = watch.pod
        self.state.after.append(GiveTurn(pod.namespace, pod.name, pod.uid, kept.turn))

    def _move(self, now: float) -> None:
        """Plan with what a late transfer has come to: it is the doing of its job, not of those that wait behind it.

        A pod that starts while it waits for its turn has its θcp behind it: so much later does no harm.
        """
        state, cause = self.state, ""
        assert state.spec is not None
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
            state.stale = True
            state.causes.setdefault(cause, reasons.OVERRUN)
