"""Kubernetes events (``events.k8s.io/v1``) about Punctual's objects: one per decision that a user would ask about.

A repetition of object, reason and note within `SERIES` seconds becomes a series (its count rises) instead of another
event. Attempts that are repeated until something outside is there (`ATTEMPTS`) differ in their notes by pod and number.
There, a repetition of object and reason is enough, and the first note stands. A token bucket per object limits the
events of a job that flaps. Callers never wait and never see an error: an event that cannot be written is logged and
dropped, because events are not records. In a burst decisions are written first. Their events wait and carry the time of
the decision.
"""

import asyncio
import contextlib
import uuid
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Self

import structlog

from punctual import errors, reasons
from punctual.kube import api
from punctual.kube.api.names import LONGEST_NAME, shorten
from punctual.kube.api.resources import EVENTS
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.known.jobs import Owner
from punctual.notation.duration import format_micro_time
from punctual.runtime.bucket import Bucket

SERIES = 360.0
"""Seconds within which a repetition belongs to a series. kubectl and other clients treat a series as ended after that.
"""
ATTEMPTS = frozenset({reasons.IMAGE_UNAVAILABLE, reasons.INPUT_UNAVAILABLE, reasons.NOT_STARTED})
"""Reasons of attempts that are repeated without a bound, for one cause."""
BURST, REFILL = 25, 1 / 60
"""Limit of events about one object: a burst, then one a minute."""
QUEUED = 10_000
"""Maximum waiting events, less than a kB each. Further events are dropped."""
PATIENCE = 1.0
"""Maximum seconds that an event waits for more urgent writes. If those never end, one event a second is still written.
"""
KEPT = 1024
"""Most recently used series and buckets that are kept: near a kB each, and a series ends after minutes."""
LONGEST_NOTE = 1024
"""Limit in bytes. The API server refuses more."""
LONGEST_INSTANCE = 128
"""Limit of the reporting instance. A pod's name may have 253 characters."""
TRIES = 3

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object of an event. ``namespace`` is empty for a cluster-scoped one."""

    version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, body: Json) -> Self:
        """Return the object of a body of one of Punctual's kinds."""
        meta = body["metadata"]
        return cls(api.API_VERSION, body["kind"], meta.get("namespace", ""), meta["name"], meta["uid"])

    @classmethod
    def job(cls, owner: Owner) -> Self:
        """Return a job."""
        return cls(api.API_VERSION, "DivisibleJob", owner.namespace, owner.name, owner.uid)

    @classmethod
    def pool(cls, name: str, uid: str) -> Self:
        """Return a pool."""
        return cls(api.API_VERSION, "Pool", "", name, uid)


@dataclass(slots=True)
class _Entry:
    """One event or series: its content, its count, and the name of its object."""

    regarding: Regarding
    type: str
    reason: str
    note: str
    action: str
    first: float  # on the API server's clock
    last: float
    count: int = 1
    name: str = ""  # empty: not written yet
    queued: bool = False


class EventRecorder:
    """Writes events: ``recorder.emit(job, "Warning", "Overrun", "…")`` in the loop of ``await recorder.run()``.

    ``controller`` ("punctual.dev/operator") and ``instance`` (the pod's name) are part of every event. ``urgent()``
    returns when no more urgent write waits.
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
        self._who = {"reportingController": controller, "reportingInstance": shorten(instance, LONGEST_INSTANCE)}
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
        """Queue an event. ``action`` is the action taken (default: the reason)."""
        now = self._client.clock.now()
        key = regarding.uid, reason
        note = _short(note)
        entry = self._entries.pop(key, None)
        same = entry is not None and entry.type == type_ and (entry.note == note or reason in ATTEMPTS)
        if entry is not None and same and now - entry.last <= SERIES:
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
            return  # the count of a series is kept, and written with its next event
        entry.queued = True
        self._queue.append(entry)
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Write queued events until cancelled."""
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
        """Wait until every queued event is written. Returns False after ``within`` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _bucket(self, uid: str) -> Bucket:
        bucket = self._buckets.pop(uid, None) or Bucket(REFILL, BURST, self._client.clock)
        self._buckets[uid] = bucket
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)
        return bucket

    async def _write_patiently(self, entry: _Entry) -> None:
        """Retry temporary failures a few times only, because the next events wait behind this one."""
        for again in range(TRIES):
            try:
                entry.queued = False  # set before the write: an event emitted meanwhile is another one
                await self._write(entry)
            except (errors.Unreachable, errors.Busy) as error:
                if again == TRIES - 1:
                    raise
                await asyncio.sleep(error.retry_after)
            else:
                return

    async def _write(self, entry: _Entry) -> None:
        namespace = entry.regarding.namespace or "default"
        series = {"count": entry.count, "lastObservedTime": format_micro_time(entry.last)}
        if entry.name:
            try:
                await self._client.patch_merge(EVENTS.path(namespace=namespace, name=entry.name), {"series": series})
            except errors.NotFound:
                entry.name = ""  # events expire after an hour: create it again
            else:
                return
        about = entry.regarding
        name = event_name(about.name)
        body: Json = {
            "apiVersion": EVENTS.version,
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": format_micro_time(entry.first),
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


def event_name(about: str) -> str:
    """Return a new name for an event about an object of that name."""
    unique = uuid.uuid4().hex[:16]
    return f"{shorten(about, LONGEST_NAME - len(unique) - 1)}.{unique}"


def _short(note: str) -> str:
    data = note.encode()
    if len(data) <= LONGEST_NOTE:
        return note
    return data[: LONGEST_NOTE - len("…".encode())].decode(errors="ignore") + "…"
