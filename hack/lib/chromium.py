"""Debian's Chromium, which is installed on this machine if no Chromium or Chrome is there."""

from __future__ import annotations

import shutil

from lib import debian
from lib.home import lock

NAMES = ("chromium", "chromium-browser", "google-chrome")


def program() -> str:
    """Return the path of the browser."""
    with lock("chromium"):
        if not any(map(shutil.which, NAMES)):
            debian.install(["chromium"])
    return next(path for path in map(shutil.which, NAMES) if path)
