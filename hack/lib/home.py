"""The folders of the local cluster on this machine. All its files are under one of them.

`PUNCTUAL_HOME` overrides the root (default /var/lib/punctual for root, ~/.cache/punctual for others). `cache` is worth
keeping between clusters (built programs, file systems); `run` is valid only while something runs. This module neither
creates processes nor talks to any.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lib.steps import say


class MissingError(Exception):
    """Something cannot be had here. The message is one sentence: what is missing and what to do instead."""


def _home() -> Path:
    if chosen := os.environ.get("PUNCTUAL_HOME"):
        return Path(chosen).resolve()
    return Path("/var/lib/punctual") if os.geteuid() == 0 else Path("~/.cache/punctual").expanduser()


HOME = _home()
CACHE = HOME / "cache"
RUN = HOME / "run"
LOG = HOME / "log"
CLUSTERS = HOME / "clusters"
SOURCES = Path(__file__).resolve().parent.parent / "node-image"


def digest(*parts: Path | str) -> str:
    """Twelve hex digits that change when any file below the paths, or any of the strings, changes."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            state.update(part.encode() + b"\0")
            continue
        for path in sorted(p for p in ([part] if part.is_file() else part.rglob("*")) if p.is_file()):
            state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:12]


@contextmanager
def lock(name: str) -> Iterator[None]:
    """One process at a time, machine-wide; the kernel frees it when its holder dies, however it dies."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / f".{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another command of hack/ that is at work on this machine")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
