"""Kubernetes events (``events.k8s.io/v1``) about our objects: one per decision a user would ask about.

The same object, reason and note again within `SERIES` seconds becomes a series (its count rises) in place of another
event; a token bucket per object keeps a job that flaps from drowning the others. Callers never wait and never see an
error: what cannot be written is logged and forgotten, for events are told, not kept. In a burst decisions go first:
their events wait, and carry the time of what they tell.
"""

import asyncio
import contextlib
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import structlog

from punctual import errors
from punctual.kube.cluster.client import EVENTS, ApiClient, Json
from punctual.kube.format.bucket import Bucket

SERIES = 360.0
"""Seconds within which the same again is a series: kubectl and others take it for ended after that."""
BURST, REFILL = 25, 1 / 60
"""Events about one object: so many at once, then one a minute."""
QUEUED = 10_000
"""Events that may wait, less than a kB each; more are dropped."""
PATIENCE = 1.0
"""Seconds that an event lets what is more urgent go first: where that never ends there is still an event a second."""
KEPT = 1024
"""Series and buckets remembered, the latest used: near a kB each, and a series ends by itself after minutes."""
LONGEST_NOTE = 1024
"""Bytes; the API server refuses more."""
TRIES = 3

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object an event is about; ``namespace`` is empty for a cluster-scoped one."""

    version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(slots=True)
class _Entry:
    """One event or series: what it says, how often, and the object it became."""

    regarding: Regarding
    type: str
    reason: str
    note: str
    action: str
    first: float  # API server's clock
    last: float
    count: int = 1
    name: str = ""  # empty: not written yet
    queued: bool = False


class EventRecorder:
    """``recorder.emit(job, "Warning", "Overrun", "…")`` from the loop that runs ``await recorder.run()``.

    ``controller`` ("punctual.dev/operator") and ``instance`` (the pod's name) stand in every event; ``urgent()``
    returns when nothing is to be written that is more urgent.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        controller: str,
        instance: str,
        urgent: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._who = {"reportingController": controller, "reportingInstance": instance}
        self._urgent = urgent
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()  # by uid and reason, oldest use first
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()  # by uid
        self._queue: deque[_Entry] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def emit(
        self,
        regarding: Regarding,
        type_: Literal["Normal", "Warning"],
        reason: str,
        note: str,
        *,
        action: str = "",
    ) -> None:
        """Tell it, some time; ``action`` is what was done (default: the reason)."""
        now = self._client.clock.now()
        key = regarding.uid, reason
        note = _short(note)
        entry = self._entries.pop(key, None)
        if entry is not None and entry.note == note and entry.type == type_ and now - entry.last <= SERIES:
            entry.count += 1
            entry.last = now
        else:
            entry = _Entry(regarding, type_, reason, note, action or reason, first=now, last=now)
        self._entries[key] = entry
        if len(self._entries) > KEPT:
            self._entries.popitem(last=False)
        if entry.queued:
            return
        if len(self._queue) >= QUEUED or not self._bucket(regarding.uid).take():
            return  # a series' count is kept, and written with its next one
        entry.queued = True
        self._queue.append(entry)
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Write what is emitted until cancelled."""
        while True:
            while not self._queue:
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
            entry = self._queue[0]
            if self._urgent is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        await self._urgent()
            try:
                await self._write_patiently(entry)
            except errors.ClusterError as error:
                log.warning("event_not_written", reason=entry.reason, about=entry.regarding.name, error=str(error))
            self._queue.popleft()

    async def flush(self, within: float) -> bool:
        """Wait until all that was emitted is written; False when ``within`` seconds were not enough."""
        try:
            async with asyncio.timeout(within):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _bucket(self, uid: str) -> Bucket:
        bucket = self._buckets.pop(uid, None) or Bucket(REFILL, BURST, time.monotonic)
        self._buckets[uid] = bucket
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)
        return bucket

    async def _write_patiently(self, entry: _Entry) -> None:
        """Try a few times what may get better by itself, but not for ever: the next events wait behind this one."""
        for again in range(TRIES):
            try:
                entry.queued = False  # before the write: what is emitted meanwhile is another one
                await self._write(entry)
            except (errors.Unreachable, errors.Busy) as error:
                if again == TRIES - 1:
                    raise
                await asyncio.sleep(error.retry_after)
            else:
                return

    async def _write(self, entry: _Entry) -> None:
        namespace = entry.regarding.namespace or "default"
        series = {"count": entry.count, "lastObservedTime": _stamp(entry.last)}
        if entry.name:
            try:
                await self._client.patch_merge(EVENTS.path(namespace=namespace, name=entry.name), {"series": series})
            except errors.NotFound:
                entry.name = ""  # events live an hour: tell it anew
            else:
                return
        name = f"{entry.regarding.name[:200]}.{uuid.uuid4().hex[:16]}"
        about = entry.regarding
        body: Json = {
            "apiVersion": EVENTS.version,
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": _stamp(entry.first),
            "type": entry.type,
            "reason": entry.reason,
            "action": entry.action,
            "note": entry.note,
            "regarding": {
                "apiVersion": about.version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            **self._who,
        }
        if entry.count > 1:
            body["series"] = series
        await self._client.create(EVENTS.path(namespace=namespace), body)
        entry.name = name


def _short(note: str) -> str:
    data = note.encode()
    if len(data) <= LONGEST_NOTE:
        return note
    return data[: LONGEST_NOTE - len("…".encode())].decode(errors="ignore") + "…"


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
