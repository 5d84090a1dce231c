"""The status that was last written under each key: its digest and resource version, and when progress was.

Only the digest is kept, because jobs are many. For a key without an entry the stored status is not known.
"""

import math
from hashlib import blake2b

import orjson

from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import PutStatus
from punctual.runtime.clock import ServerClock


class WrittenStatuses:
    """Statuses of one term. Progress of one key is written at most once per ``progress_every`` seconds."""

    def __init__(self, progress_every: float, clock: ServerClock) -> None:
        self._progress_every = progress_every
        self._clock = clock
        self._written: dict[Key, tuple[bytes, str]] = {}  # digest and resource version
        self._progress_at: dict[Key, float] = {}

    def is_stored(self, key: Key, digest: bytes) -> bool:
        """Return whether a status of this digest is the one that was last written."""
        return self._written.get(key, (b"",))[0] == digest

    def begin_write(self, key: Key) -> str:
        """Return the resource version to write over, empty if it is not known.

        If the answer gets lost, it is unknown which of two statuses is stored, so the entry is removed.
        """
        return self._written.pop(key, (b"", ""))[1]

    def note(self, key: Key, digest: bytes, version: str) -> None:
        """Record a status that was written."""
        self._written[key] = digest, version

    def note_progress(self, key: Key) -> None:
        """Record the time of a write of progress."""
        self._progress_at[key] = self._clock.monotonic()

    def progress_wait(self, key: Key) -> float:
        """Return the seconds until progress may be written again, 0 or less if it may be now."""
        return self._progress_at.get(key, -math.inf) + self._progress_every - self._clock.monotonic()

    def forget(self, key: Key) -> None:
        """Remove a key: its object is gone."""
        self._written.pop(key, None)
        self._progress_at.pop(key, None)

    def clear(self) -> None:
        """Remove everything."""
        self._written.clear()
        self._progress_at.clear()


def digest_of(write: PutStatus) -> bytes:
    """Return the digest of a status."""
    data = orjson.dumps(write.body, option=orjson.OPT_SORT_KEYS)
    return blake2b(data, digest_size=16).digest()
