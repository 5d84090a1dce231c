"""Whether chunks that run stay, pause or go.

On a node that becomes busy, a chunk does what its job's policy says (:mod:`punctual.linger.policy`). To go, it is cut
at what it has done, and the rest starts elsewhere: a move costs one start of a chunk, and no work. A chunk that answers
no offer loses the work that it has not saved; that is part of the cost of its move.

In the paper only idle nodes are goals. A node that is less busy is one here, too: the time to linger follows from what
its hosts use, and is infinite where they use more.
"""

from dataclasses import dataclass, replace

from punctual.guests.answers import finish
from punctual.guests.cluster import Cluster
from punctual.guests.guest import ANSWER, ChunkState, GuestState
from punctual.guests.model import Cause, Decided
from punctual.guests.nodes import NodeState
from punctual.guests.offers import at_stake, deaf, in_time, leaves, listen, missed
from punctual.guests.victims import LeavingChunk, victims
from punctual.linger.cost import Move
from punctual.linger.policy import Decision, decide, lingers
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.wording import span


@dataclass(slots=True)
class Stays:
    """Decides about the chunks of a cluster that run."""

    cluster: Cluster

    def supervise(self, now: float, st: GuestState) -> None:
        """End and cut what cannot go on, whatever its policy says."""
        for chunk in st.record.chunks:
            if st.record.failed_condition:  # another chunk failed the job, which owns nothing any more
                break
            self._supervise_one(now, st, chunk)
        if st.record.ended:
            return
        finish(now, st)

    def _supervise_one(self, now: float, st: GuestState, chunk: Chunk) -> None:
        known = st.watch(chunk)
        node = self.cluster.nodes.get(chunk.node)
        if node is not None and node.looked_at(now):
            listen(now, st, chunk)
        if (self.cluster.seen and node is None) or _overdue(now, st, chunk, node):
            st.lose(chunk, own=False)
        elif known.pod is not None and known.pod.outcome == "Succeeded":
            st.conclude(now, chunk)
        elif known.pod is not None and known.pod.waits and now - chunk.created > st.job.start_timeout:
            st.lose(chunk, own=True, message=known.pod.unstarted)
        elif node is not None and _stalled(now, known, node, st.job.stall_timeout):
            limit = span(st.job.stall_timeout)
            st.lose(chunk, own=True, message=f"neither progress nor CPU for {limit} on an idle node")
        elif node is not None and (cause := _must_stop(st, chunk, node)):
            self._stop(now, st, chunk, cause, node)

    def _stop(self, now: float, st: GuestState, chunk: Chunk, cause: Cause, node: NodeState) -> None:
        known = st.watch(chunk)
        if known.pod is None or not known.pod.runs:
            if cause != "AtRisk" and known.pod is not None:
                st.lose(chunk, own=False)  # it has done nothing yet
            return
        _tell(now, st, chunk, cause, Decision("Queue", node.age or 0.0), node)
        st.cut(now, chunk)

    def free(self, now: float, name: str, excess: int) -> None:
        """Free memory of a node: those chunks leave that lose least together, and those that have not begun to run.

        A pod that begins takes the memory that others have just freed.
        """
        node = self.cluster.nodes.get(name)
        if node is None:
            return
        excess = node.press(now, excess)
        if excess <= 0:
            return
        for st in self.cluster.guests.values():
            for chunk in list(st.record.chunks):
                pod = st.watch(chunk).pod
                if chunk.node == name and pod is not None and pod.waits:
                    st.lose(chunk, own=False)
        here = {
            (st.job.uid, *chunk.key): (st, chunk)
            for st in self.cluster.guests.values()
            for chunk, known, _ in st.running()
            if chunk.node == name and known.evicted_at is None
        }
        candidates = [
            LeavingChunk(key, at_stake(now, st, chunk, node.rate(st.job, more=False)), st.watch(chunk).memory)
            for key, (st, chunk) in here.items()
        ]
        for one in victims(candidates, excess):
            st, chunk = here[one.key]
            node.give(now, one.memory)
            _tell(now, st, chunk, "NodeFreed", Decision("Queue", node.age or 0.0), node)
            st.cut(now, chunk, evict=True)
            if _overdue(now, st, chunk, node):
                st.lose(chunk, own=False)

    def decide(self, now: float) -> None:
        """Let each chunk that runs stay, pause or go, as its policy says.

        One that goes frees its part of its node and takes a place at its goal, so those behind it decide for what is
        then left. What moves in preview would free and take does not count beyond this.
        """
        self.cluster.release(now)
        for st in self.cluster.guests.values():
            for chunk, known, _ in list(st.running()):
                self._judge(now, st, chunk, known)
        self.cluster.count()

    def _judge(self, now: float, st: GuestState, chunk: Chunk, known: ChunkState) -> None:
        node = self.cluster.nodes.get(chunk.node)
        silent = missed(now, st, chunk)
        if node is None or not node.looked_at(now) or leaves(now, st, chunk):
            return
        if node.age is None:
            known.told = None
            st.pause(chunk, paused=False)
            return
        goal = self.cluster.best(now, st.job, busy=lingers(st.job.policy), other_than=chunk.node)
        move = None if goal is None else _move(st, chunk, node, goal, silent=silent or deaf(now, st))
        # what came to a busy node is not to move on at once: it knows the node only for as long as it is there
        age = node.age if known.running_since is None else min(node.age, now - known.running_since)
        found = decide(st.job.policy, age, move)
        if not silent and st.left(chunk) == 0.0 and found.step in {"Move", "Queue"}:
            found = replace(found, step="Run")  # it has no more to hand back
        _tell(now, st, chunk, "Policy", found, node, goal=goal, move=move)
        goes = found.step in {"Move", "Queue"}
        if goes:
            node.release(st.job)
            if goal is not None:
                goal.count(st.job)
        if st.job.preview:
            return
        st.pause(chunk, paused=found.step == "Pause")
        if goes and silent:
            st.lose(chunk, own=False)
        elif goes:
            st.cut(now, chunk, None if goal is None else goal.node.name)


def _move(st: GuestState, chunk: Chunk, node: NodeState, goal: NodeState, *, silent: bool) -> Move:
    """Return the move of a chunk's rest. A chunk that answers no offer would lose what it has not saved."""
    return Move(
        node.rate(st.job, more=False),
        goal.rate(st.job, more=True),
        st.start.seconds,
        lost=st.loss(chunk) / st.job.cores if silent else 0.0,
        left=st.left(chunk),
    )


def _tell(  # noqa: PLR0917  each is one of those that a decision is about
    now: float,
    st: GuestState,
    chunk: Chunk,
    cause: Cause,
    decision: Decision,
    node: NodeState,
    *,
    goal: NodeState | None = None,
    move: Move | None = None,
) -> None:
    """Tell a decision, if it is another one than before."""
    known = st.watch(chunk)
    if known.pod is None or known.told == (cause, decision.step):
        return
    known.told = cause, decision.step
    told = Decided(
        job=st.job.uid,
        pod=known.pod.uid,
        node=chunk.node,
        policy=st.job.policy,
        cause=cause,
        decision=decision,
        host_use=node.use,
        goal=None if goal is None else goal.node.name,
        goal_use=None if goal is None else goal.use,
        move=move,
        left=st.left(chunk),
        loss=st.loss(chunk),
        deaf=deaf(now, st),
        acted=not (st.job.preview and cause == "Policy"),
    )
    st.told.append(told)


def _overdue(now: float, st: GuestState, chunk: Chunk, node: NodeState | None) -> bool:
    """Whether a chunk that must leave is still there. One of a deaf job goes when it has least to lose."""
    known = st.watch(chunk)
    if known.evicted_at is None:
        return st.stopped and missed(now, st, chunk)
    rest = known.evicted_at + ANSWER - now
    if node is not None and deaf(now, st) and not known.answered:
        return not in_time(now, st, chunk, node.rate(st.job, more=False), seconds=rest)
    return rest < 0.0


def _stalled(now: float, known: ChunkState, node: NodeState, limit: float) -> bool:
    """Whether a chunk does nothing although its node is idle. A silent agent is no evidence."""
    if known.running_since is None or known.paused or node.busy or not node.looked_at(now):
        known.moved = now
    return now - known.moved > limit


def _must_stop(st: GuestState, chunk: Chunk, node: NodeState) -> Cause | None:
    """Return why a chunk must hand back what it has not begun; None: it need not, or was asked."""
    if st.watch(chunk).offered_at is not None or chunk.end < chunk.origin:
        return None
    if st.stopped:
        return "Suspended"
    if not node.node.schedulable:
        return "Unschedulable"
    at_risk = st.job.restart == "Redo" and st.loss(chunk) > st.job.most_lost and st.left(chunk) > 0.0
    return "AtRisk" if at_risk else None
