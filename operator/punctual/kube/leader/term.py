"""One term of a leader: takes over the recorded state, runs each pool's actor until the term is over, and ends.

A term has an epoch, runs the loops of its `parts`, and reports its health to the replica. The parts:

    takeover, fence, late         read objects after stamping them, before anything is decided about them
    kinds                         one for each of Punctual's kinds: what follows when such an object changes
    actors, guests, executor      run the Pools of the core and the control of guests, and carry out their actions
    pods                          knows which pool is told of each chunk pod
    lost                          tells of promises that the API server's store has lost
    changes                       routes what the caches and the writer report to the parts above

A term never continues after an error: its decisions are recorded, and the next term begins from the records.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

import structlog

from punctual import wire
from punctual.errors import Fenced
from punctual.kube.leader.changes import ChangeListener
from punctual.kube.leader.lost_promises import Fall
from punctual.kube.leader.parts import Surroundings, make_parts
from punctual.kube.writes.operations import Outcome
from punctual.scheduling.view import PoolView

PROGRESS: Final = 0.25
"""Seconds between two submissions of progress, and between two ticks of the placeholders and target rates."""
PROGRESS_AT_ONCE: Final = 5
"""Maximum statuses of progress per pool and submission: as many as the writer's rate limit allows."""
HOUSEKEEPING: Final = 2.0
"""Seconds between two updates of gauges, finalizers and delayed answers."""

log = structlog.get_logger(__name__)


class Leadership(Protocol):
    """What knows whether this replica holds the Lease: an elector."""

    def leads(self, epoch: int) -> bool:
        """Return whether the term of that epoch continues."""


class Term:
    """A leader's term, from its epoch to its end. ``await run()`` raises what ends it."""

    def __init__(self, epoch: int, given: Surroundings, leadership: Leadership, *, fall: Fall | None = None) -> None:
        """``fall``: the term begins because epochs fell back."""
        self.epoch = epoch
        self._fall = fall
        self._given = given
        self._caches = given.caches
        self._leadership = leadership
        self._decides = False  # the takeover is done, and the term is not over
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parts = parts = make_parts(epoch, given, self)
        self._changes = ChangeListener(parts, self)
        self._writer, self._recorder = parts.tools.writer, parts.tools.recorder

    async def run(self) -> None:
        """Take over, then lead until cancelled or something fails."""
        directory = self._caches.directory
        self._caches.begin_term(self._changes)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for work in (self._writer.run(), self._recorder.run(), self._watch_for_failure()):
                    group.create_task(work)
                await self._parts.takeover.run()
                self._begin()
                log.info(
                    "term_begun",
                    epoch=self.epoch,
                    pools=len(self._parts.actors),
                    jobs=len(directory.jobs),
                    aside=sum(known.term.aside is not None for known in directory.jobs.values()),
                    seconds=round(self._parts.takeover.seconds, 3),
                )
                group.create_task(self._keep_house())
                group.create_task(self._submit_progress())
                group.create_task(self._parts.unseen.run())
        finally:
            self._caches.end_term(self._changes)
            # before the first await: if the replica loses its lease twice in a row, what follows an await may not run
            self._end()
            self._given.set_points.clear()
            self._given.metrics.end_term()
            await self._parts.gate.close()

    async def retire(self, within: float) -> None:
        """Stop deciding, and write the decisions made so far, in at most ``within`` seconds."""
        self._end()
        self._parts.actors.retire()
        self._parts.guests.retire()
        self._parts.kinds.retire()
        if not await self._writer.flush(within):
            log.warning("not_all_written", left=self._writer.depth)
        await self._recorder.flush(1.0)

    def _begin(self) -> None:
        """Start every pool. It then answers the jobs that have no decision yet."""
        self._parts.takeover.end()
        self._decides = True
        for node in self._caches.inventory.nodes():
            self._parts.tools.taints.observe(node)
        self._parts.kinds.begin()
        self._parts.lost.begin(self._fall)

    def _end(self) -> None:
        self._parts.takeover.end()
        self._decides = False

    # what a replica shows of its term

    @property
    def taking_over(self) -> float:
        """Seconds since the takeover began; 0 when it is done."""
        return self._parts.takeover.age

    @property
    def stalled(self) -> float:
        """Seconds since the takeover last read a page or took a stamp; 0 when it is done."""
        return self._parts.takeover.stalled

    @property
    def stopped(self) -> int:
        """Number of pools that decide nothing, because their status cannot be written."""
        return self._parts.pools.stopped

    @property
    def silent(self) -> float:
        """Seconds since the last step of the pool that has been silent longest."""
        return max(self._parts.actors.silent, self._parts.guests.silent, self._parts.rates.silent)

    @property
    def waiting(self) -> float:
        """Seconds that a pool has waited for its first step; 0 when all have begun."""
        return max(self._parts.actors.waiting, self._parts.guests.waiting)

    @property
    def depth(self) -> int:
        """Number of writes that wait."""
        return self._writer.depth

    @property
    def oldest_write(self) -> float:
        """Seconds that the oldest waiting write has waited."""
        return self._writer.oldest

    @property
    def began(self) -> float:
        """When a leader began to decide about what the API server's store has, on its clock; 0 before that."""
        return self._parts.lost.began

    def views(self) -> dict[str, PoolView]:
        """Return a view of each pool that this term leads, by name; none before the takeover is done."""
        return self._parts.actors.views() if self.leads else {}

    def heard(self, report: wire.Report) -> None:
        """Take in a node's report: each part is told of its own pods. Pods that are unknown there are counted."""
        node = report.node
        chunks, others = self._caches.pods.on_node(node), self._caches.inventory.pods_on(node)
        guests = self._parts.pods.reported(node, [pod for pod in report.pods if pod.uid in chunks])
        self._parts.guests.reported(node, report.host, guests)
        rest = [pod for pod in report.pods if pod.uid not in chunks]
        if own := tuple(pod for pod in rest if pod.uid in others):
            self._parts.rates.reported(report, own)
        unknown = [pod for pod in rest if pod.uid not in others]
        self._parts.lost.heard(node, unknown)
        # an agent reports a pod for a minute after its end, when its object may be gone
        self._given.metrics.refusals.labels("unknownPod").inc(sum(not pod.over for pod in unknown))

    # loops

    async def _keep_house(self) -> None:
        self._parts.tools.found.clear()  # the stamps are written
        while True:
            self._parts.kinds.tend()
            await asyncio.sleep(HOUSEKEEPING)

    async def _submit_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS)
            self._parts.actors.submit_progress(PROGRESS_AT_ONCE)
            self._parts.guests.submit_progress(PROGRESS_AT_ONCE)
            self._parts.guests.tick()
            self._parts.tools.placeholders.tick()
            self._parts.kinds.tick()

    # its end

    @property
    def leads(self) -> bool:
        """Whether the takeover is done and the term is not over."""
        # a TaskGroup that ends accepts no more tasks; at once it cancels `_watch_for_failure`, and thereby `_failure`
        return self._decides and not self._failure.done()

    # what its parts ask and tell

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task. Its failure ends the term."""
        return self._group.create_task(work)

    def leading(self) -> bool:
        """Return whether this replica holds the Lease."""
        return self._leadership.leads(self.epoch)

    def finished(self, outcome: Outcome) -> None:
        """Take in the outcome of a write."""
        self._changes.finished(outcome)

    def fenced(self) -> None:
        """End: a newer leader has written."""
        self._fail(Fenced("a newer leader has written"))

    def count_write(self, kind: str, result: str, seconds: float) -> None:
        """Count a request of the writer."""
        self._given.metrics.writes.labels(kind, result).inc()
        self._given.metrics.write_seconds.observe(seconds)

    def see_epoch(self, epoch: int) -> None:
        """End at once if a newer leader has stamped something, because writes such as deletions are not fenced."""
        if epoch > self.epoch:
            self._writer.drop_all()
            self._fail(Fenced(f"a status carries epoch {epoch}: a newer leader has begun"))

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def _watch_for_failure(self) -> None:
        await self._failure
