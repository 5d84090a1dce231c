"""The pools of a term: which are led, with what they start, and which are stopped.

A pool starts with all that is on record: its own record, its nodes, jobs, reservations and pods. If its status cannot
be stamped at the takeover, it is not led; if its status cannot be written later, it is halted. Both are tried again
every `RETRY` seconds. While a pool has promises to keep, a finalizer delays its deletion.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from punctual import reasons
from punctual.kube import api
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.directory import POOLS, KnownJob, KnownPool
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.cluster.pods import GROUP
from punctual.kube.holding.placeholders import Placeholders
from punctual.kube.holding.taints import Taints
from punctual.kube.leader.actors import PoolActors, Spawn
from punctual.kube.leader.guests import Guests
from punctual.kube.leader.jobs import Jobs
from punctual.kube.leader.pod_events import PodEvents
from punctual.kube.leader.promise_metrics import PromiseMetrics
from punctual.kube.leader.reservations import Reservations
from punctual.kube.metrics import Metrics
from punctual.kube.takeover.late import LateReader
from punctual.kube.takeover.statuses import RETRY, Statuses
from punctual.kube.translate import to_pool_spec, to_selectors
from punctual.kube.windows.controller import WindowController
from punctual.kube.writes.keys import FinalizersKey, PoolKey
from punctual.kube.writes.operations import Patch, PutStatus, replace_list
from punctual.kube.writes.writer import Writer
from punctual.scheduling.model.events import Event, PoolApplied
from punctual.scheduling.model.pool_spec import PoolSpec

FINALIZER: Final = f"{GROUP}/jobs"
"""On a pool with jobs that are promised or run: its deletion waits for them."""

log = structlog.get_logger(__name__)


class Pools:
    """All pools of the directory, for one term. ``leads()`` returns whether anything is decided yet, or still."""

    def __init__(
        self,
        *,
        caches: Caches,
        statuses: Statuses,
        actors: PoolActors,
        guests: Guests,
        jobs: Jobs,
        reservations: Reservations,
        windows: WindowController,
        pods: PodEvents,
        late: LateReader,
        taints: Taints,
        placeholders: Placeholders,
        writer: Writer,
        recorder: EventRecorder,
        metrics: Metrics,
        promise_metrics: PromiseMetrics,
        leads: Callable[[], bool],
        spawn: Spawn,
    ) -> None:
        self._caches = caches
        self._directory = caches.directory
        self._statuses = statuses
        self._actors = actors
        self._guests = guests
        self._jobs = jobs
        self._reservations = reservations
        self._windows = windows
        self._pods = pods
        self._late = late
        self._taints = taints
        self._placeholders = placeholders
        self._writer = writer
        self._recorder = recorder
        self._metrics = metrics
        self._promise_metrics = promise_metrics
        self._leads = leads
        self._spawn = spawn
        self._halted: dict[str, PutStatus | None] = {}  # halted pools, with the refused status

    @property
    def stopped(self) -> int:
        """Pools in which nothing is decided, because their status cannot be written."""
        return len(self._statuses.unstamped) + len(self._halted)

    # changes

    def begin(self) -> None:
        """Start every pool that was stamped: the takeover is done."""
        for name, known in self._directory.pools.items():
            self._placeholders.know_pool(known.uid)
            if name not in self._statuses.unstamped:
                self._start(known)

    def changed(self, known: KnownPool) -> None:
        """Take in that a pool is new, edited or being deleted."""
        if not self._leads():
            return
        name = known.pool.metadata.name
        if name in self._statuses.unstamped:
            self._spawn(self._try_stamp(name))
            return
        if self._actors.runs(name):
            self._actors.tell(name, self._applied(known))
        else:
            self._start(known)
        self._reservations.pool_changed(name)
        self._jobs.pool_changed(name)

    def gone(self, known: KnownPool) -> None:
        """Take in that a pool is gone."""
        self._statuses.gone.add(known.uid)
        name = known.pool.metadata.name
        self._guests.stop(name)
        if not self._actors.stop(name) and name not in self._statuses.unstamped:
            return
        self._statuses.unstamped.discard(name)
        self._halted.pop(name, None)
        self._taints.forget_pool(name)
        self._placeholders.forget_pool(known.uid)
        self._metrics.forget_pool(name)
        self._writer.forget(PoolKey(known.uid))
        self._jobs.pool_gone(name)
        self._reservations.pool_changed(name)

    def put_in_force(self, name: str, spec: PoolSpec) -> None:
        """Let a pool have the nodes and jobs that the spec selects which its Pool has taken."""
        known, now = self._directory.pools[name], to_selectors(spec)
        was = known.term.in_force  # may be a whole spec, which never equals a part of one
        if all(getattr(was, name) == getattr(now, name) for name in api.PoolSelectors.model_fields):
            return
        known.term.in_force = now
        self._caches.claim(known)
        self._reservations.pool_changed(name)
        self._jobs.selectors_changed(name)

    def _start(self, known: KnownPool) -> None:
        """Start a pool. Its Pool knows all decisions before its first step."""
        name = known.pool.metadata.name
        jobs, guests = self._jobs.restored(name)
        pods, lent = self._pods.restored(name)
        events: list[Event] = [self._applied(known)]
        events += self._caches.inventory.of(name)
        events += jobs
        events += self._windows.of_pool(name)
        events += pods
        self._actors.start(name, events)
        self._guests.start(name, [*guests, *lent])

    def _applied(self, known: KnownPool) -> PoolApplied:
        record = self._statuses.pool_records.pop(known.uid, None)
        return PoolApplied(to_pool_spec(known.pool), record, known.deleting, self._caches.asked(known))

    # stopped pools

    async def run(self) -> None:
        """Try again to stamp and to write the statuses of stopped pools, until cancelled."""
        while True:
            await asyncio.sleep(RETRY)
            for name in list(self._statuses.unstamped):
                await self._try_stamp(name)
            for name, write in self._halted.items():
                if write is not None:
                    self._writer.submit(PoolKey(self._directory.pools[name].uid), write)

    async def _try_stamp(self, name: str) -> None:
        """Stamp a pool that could not be stamped at the takeover, and lead it from then on."""
        if not await self._late.pool(name):
            return
        self._start(self._directory.pools[name])
        log.info("pool_goes_on", pool=name)
        self._reservations.pool_changed(name)
        self._jobs.pool_stamped(name)

    def _halt(self, name: str, why: str, write: PutStatus | None) -> None:
        """Decide nothing more in a pool until its status is written. ``write``: the refused status, to try again."""
        if name not in self._halted and self._actors.halt(name):
            about = Regarding.pool(name, self._directory.pools[name].uid)
            self._statuses.report_stopped(about, f"its status cannot be written: {why}")
        self._halted[name] = write

    # outcomes

    def status_written(self, uid: str) -> None:
        """Record that a pool's (uid) status was written: a halted one goes on."""
        name = self._named(uid)
        if name in self._halted:
            del self._halted[name]
            self._actors.go_on(name)
            log.info("pool_goes_on", pool=name)

    def status_refused(self, uid: str, write: PutStatus, why: str) -> bool:
        """Halt a pool (uid) with a status that the API server refused. Returns whether there is such a pool."""
        name = self._named(uid)
        if name:
            self._halt(name, why, write)
        return bool(name)

    def status_unfound(self, uid: str) -> None:
        """Remove a pool (uid) with a status that found no object."""
        if name := self._named(uid):
            self._caches.forget_pool(name)

    def placeholder_refused(self, uid: str, message: str) -> None:
        """Report that the API server refused a placeholder of a pool (uid)."""
        if name := self._named(uid):
            text = f"a placeholder was refused: {message}"
            self._recorder.emit(Regarding.pool(name, uid), "Warning", reasons.POD_REFUSED, text)

    def _named(self, uid: str) -> str:
        """Return the name of a pool. Empty: it is gone."""
        return next((name for name, known in self._directory.pools.items() if known.uid == uid), "")

    # housekeeping

    def tend(self) -> None:
        """Update the gauges and the finalizer of each pool, and halt those with a status that does not get written."""
        jobs: dict[str, list[KnownJob]] = {name: [] for name in self._actors}
        for job in self._directory.jobs.values():
            if job.owner.pool in jobs:
                jobs[job.owner.pool].append(job)
        for name in self._actors:
            self._promise_metrics.promises(name, jobs[name])
            if known := self._directory.pools.get(name):
                self._guard(known, wanted=any(j.open for j in jobs[name]) or self._windows.open(name))
                if name not in self._halted and (why := self._writer.stuck(PoolKey(known.uid))):
                    self._halt(name, why, None)

    def _guard(self, known: KnownPool, *, wanted: bool) -> None:
        """Delay a pool's deletion while it has promises to keep."""
        there = known.finalizers
        if wanted == (FINALIZER in there) or (wanted and known.deleting):
            return
        after = [*there, FINALIZER] if wanted else [f for f in there if f != FINALIZER]
        patch: list[Json] = [
            {"op": "test", "path": "/metadata/uid", "value": known.uid},
            *replace_list("/metadata/finalizers", there, after),
        ]
        self._writer.submit(FinalizersKey(known.uid), Patch(POOLS.path(name=known.pool.metadata.name), patch))
