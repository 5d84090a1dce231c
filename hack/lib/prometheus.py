"""Debian's Prometheus: `prometheus` and `promtool`, unpacked into the cache; nothing is installed on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from lib import debian
from lib.home import CACHE, lock

FOLDER = CACHE / f"prometheus-{debian.RELEASE}"


def program(name: str) -> Path:
    """Return the path of `prometheus` or `promtool`, fetched if it is not there."""
    with lock("prometheus"):
        if not FOLDER.exists():
            partial = FOLDER.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            debian.unpack("prometheus", partial)
            partial.rename(FOLDER)
    return FOLDER / "usr/bin" / name
