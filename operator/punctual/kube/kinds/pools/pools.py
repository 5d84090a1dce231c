"""The pools of a term: which are led, with what they start, and which are stopped.

A pool starts with all that is on record: its own record, its nodes, jobs, reservations and pods. If its status cannot
be stamped at the takeover, it is not led; if its status cannot be written later, it is halted. Both are tried again
every `RETRY` seconds. While a pool has promises to keep, a finalizer delays its deletion.
"""

from collections.abc import Iterable
from typing import Final

import orjson
import structlog

from punctual import reasons
from punctual.errors import UserError
from punctual.guests.model import GuestApplied
from punctual.kube import api
from punctual.kube.actors.actors import PoolActors
from punctual.kube.actors.guests import Guests
from punctual.kube.actors.pod_events import TermPods
from punctual.kube.actors.tools import Tools
from punctual.kube.api.conditions import transition_times
from punctual.kube.api.resources import POOLS
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.events import Regarding
from punctual.kube.known.jobs import KnownJob
from punctual.kube.known.pools import KnownPool
from punctual.kube.known.translate import to_pool_record, to_pool_spec, to_selectors
from punctual.kube.takeover.kind import Kind
from punctual.kube.writes.keys import Key, finalizers_key
from punctual.kube.writes.operations import Patch, PutStatus, replace_list
from punctual.labels import GROUP
from punctual.scheduling.model.actions import WritePool
from punctual.scheduling.model.events import Event, PoolApplied
from punctual.scheduling.model.pool_spec import PoolRecord

FINALIZER: Final = f"{GROUP}/jobs"
"""On a pool with jobs that are promised or run: its deletion waits for them."""
RETRY: Final = 30.0
"""Seconds between tries to write the status of a pool that is stopped."""

log = structlog.get_logger(__name__)


class Pools(Kind[KnownPool]):
    """All pools."""

    carries_out = (WritePool,)

    def __init__(self, tools: Tools, actors: PoolActors, guests: Guests, pods: TermPods) -> None:
        super().__init__(tools.directory.pools, tools.recorder)
        self._tools = tools
        self._pools = tools.directory.pools
        self._actors = actors
        self._guests = guests
        self._pods = pods
        self._kinds = tools.kinds
        self._halted: dict[str, PutStatus | None] = {}  # halted pools (uid), with the refused status
        self._retried = tools.clock.monotonic()

    @property
    def stopped(self) -> int:
        """Pools in which nothing is decided, because their status cannot be written."""
        return len(self._halted) + sum(known.term.unstamped for known in self._pools.values())

    # takeover

    async def restore(self, body: Json, unwritable: str) -> None:
        """Read the record of a pool; also of one that could not be stamped, because its nodes are its own.

        A status that cannot be read is written anew: the records of its jobs are in their own statuses.
        """
        meta = body["metadata"]
        if meta["uid"] in self._pools.gone:
            return
        self._pools.observe(body)
        try:
            status = api.parse_status(api.PoolStatus, body)
        except UserError as error:
            self.report_unreadable(body, f"its status cannot be read and is written anew: {error.message}")
            status = None
        if unwritable:
            self._report_stopped(Regarding.of(body), unwritable)
        if (known := self._pools.get(meta["uid"])) is None:
            return
        term = known.term
        term.read, term.unstamped = not unwritable, bool(unwritable)
        term.record = self._record(known, body, status) if status else None
        term.in_force = (status and status.applied) or known.spec
        self._tools.caches.claim(known)
        kept = {n.name: n.held_time for n in status.nodes if n.held_time is not None} if status else {}
        self._tools.caches.inventory.keep(known.name, kept)

    def _record(self, known: KnownPool, body: Json, status: api.PoolStatus) -> PoolRecord | None:
        known.term.transition_times = transition_times(c.manifest() for c in status.conditions)
        self._tools.found[Key(POOLS, known.uid)] = orjson.dumps(body["status"])
        return to_pool_record(known.name, status) if status.applied else None

    def begin(self) -> tuple[()]:
        """Start every pool that was stamped: the takeover is done."""
        for known in list(self._pools.values()):
            self._tools.placeholders.know_pool(known.uid)
            if not known.term.unstamped:
                self._start(known)
        for placeholder in self._tools.caches.placeholders.values():
            self._tools.placeholders.observe(placeholder)
        return ()

    # changes

    def edited(self, known: KnownPool) -> None:
        """Do nothing: a pool that could not be stamped is stamped first."""

    def must_read(self, known: KnownPool) -> bool:
        """Return whether a pool could not be stamped. Others that are new were made in this term."""
        return known.term.unstamped

    def found(self, known: KnownPool, *, aside: bool) -> None:
        """Log that a pool is led from now on."""
        log.info("pool_goes_on", pool=known.name)

    def consider(self, known: KnownPool) -> None:
        """Start a pool, or tell it how it is now."""
        if self._actors.runs(known.name):
            self._actors.tell(known.name, self._applied(known))
        else:
            self._start(known)
        self._kinds.signal("pool", known.name)

    def gone(self, known: KnownPool) -> None:
        """Take in that a pool is gone."""
        name, tools = known.name, self._tools
        self._guests.stop(name)
        if self._actors.stop(name) or known.term.unstamped:
            known.term.unstamped = False
            self._halted.pop(known.uid, None)
            tools.taints.forget_pool(name)
            tools.placeholders.forget_pool(known.uid)
            tools.metrics.forget_pool(name)
            tools.writer.forget(Key(POOLS, known.uid))
        self._kinds.signal("pool", name)

    def carry_out(self, pool: str, action: WritePool) -> None:
        """Let a pool have the nodes and jobs that the spec selects which its Pool has taken."""
        known, spec = self._pools.named(pool), action.record.applied
        if known is None or spec is None:
            return
        term, now = known.term, to_selectors(spec)
        # what is in force may be a whole spec, which never equals a part of one
        selects = any(getattr(term.in_force, name) != getattr(now, name) for name in api.PoolSelectors.model_fields)
        resized = term.spec is not None and term.spec.share != spec.share
        term.spec = spec
        if selects:
            term.in_force = now
            self._tools.caches.claim(known)
        if selects or resized:
            self._kinds.signal("pool", pool)

    def _start(self, known: KnownPool) -> None:
        """Start a pool. Its Pool knows all decisions before its first step."""
        name = known.name
        recorded = self._kinds.recorded(name)
        pods, lent = self._pods.restored(name)
        events: list[Event] = [self._applied(known), *self._tools.caches.inventory.events_of(name)]
        events += [event for event in recorded if not isinstance(event, GuestApplied)]
        self._actors.start(name, [*events, *pods])
        self._guests.start(name, [*(event for event in recorded if isinstance(event, GuestApplied)), *lent])

    def _applied(self, known: KnownPool) -> PoolApplied:
        record, known.term.record = known.term.record, None
        return PoolApplied(to_pool_spec(known), record, known.deleting, self._tools.caches.asked(known))

    # stopped pools

    def _report_stopped(self, pool: Regarding, why: str) -> None:
        log.error("pool_stopped", pool=pool.name, error=why)
        text = f"{why}; nothing is decided in this pool until it can be written, which is tried every {RETRY:.0f} s"
        self.recorder.emit(pool, "Warning", reasons.POOL_STOPPED, text)

    def _halt(self, known: KnownPool, why: str, write: PutStatus | None) -> None:
        """Decide nothing more in a pool until its status is written. ``write``: the refused status, to try again."""
        if known.uid not in self._halted and self._actors.halt(known.name):
            self._report_stopped(Regarding.pool(known.name, known.uid), f"its status cannot be written: {why}")
        self._halted[known.uid] = write

    def written(self, known: KnownPool, status: Json) -> None:
        """Let a halted pool go on: its status was written."""
        if known.uid in self._halted:
            del self._halted[known.uid]
            self._actors.go_on(known.name)
            log.info("pool_goes_on", pool=known.name)

    def refused(self, known: KnownPool, write: PutStatus, why: str) -> None:
        """Halt a pool with a status that the API server refused."""
        self._halt(known, why, write)

    # housekeeping

    def tend(self) -> Iterable[KnownPool]:
        """Update the gauges and the finalizer of each pool, and halt those with a status that does not get written.

        Returns the pools that are to be stamped again.
        """
        jobs: dict[str, list[KnownJob]] = {name: [] for name in self._actors}
        for job in self._tools.directory.jobs.values():
            if job.owner.pool in jobs:
                jobs[job.owner.pool].append(job)
        reservations = self._tools.directory.reservations.values()
        reserved = {known.pool for known in reservations if known.term.windows.held}
        for name in self._actors:
            self._tools.promise_metrics.promises(name, jobs[name])
            if known := self._pools.named(name):
                self._guard(known, wanted=any(j.open for j in jobs[name]) or name in reserved)
                if known.uid not in self._halted and (why := self._tools.writer.stuck(Key(POOLS, known.uid))):
                    self._halt(known, why, None)
        now = self._tools.clock.monotonic()
        if now < self._retried + RETRY:
            return ()
        self._retried = now
        for uid, write in self._halted.items():
            if write is not None:
                self._tools.writer.submit(Key(POOLS, uid), write)
        return [known for known in self._pools.values() if known.term.unstamped]

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
        self._tools.writer.submit(finalizers_key(known.uid), Patch(POOLS.path(name=known.name), patch))
