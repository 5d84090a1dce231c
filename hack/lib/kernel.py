"""Sets the kernel settings that nodes in containers need, and restores them when the last node is gone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from lib.home import RUN

# Three nodes use some 90 inotify instances; Debian allows root 128, and a kubelet without one does not start.
NODES = {"fs/inotify/max_user_instances": 4096, "fs/inotify/max_user_watches": 524288}
# An engine that finds forwarding off switches it on and closes FORWARD for all other traffic.
ENGINE = {"net/ipv4/ip_forward": 1}
_BEFORE = RUN / "kernel.json"


def raise_to(least: Mapping[str, int]) -> None:
    """Raise settings that are below these values, and remember what they were. Not root: leave them."""
    before = _before()
    for name, value in least.items():
        setting = Path("/proc/sys") / name
        if (now := int(setting.read_text())) >= value:
            continue
        with contextlib.suppress(PermissionError):
            setting.write_text(f"{value}\n")
            before.setdefault(name, now)
    RUN.mkdir(parents=True, exist_ok=True)
    _BEFORE.write_text(json.dumps(before))


def restore() -> None:
    """Put the settings back."""
    for name, value in _before().items():
        with contextlib.suppress(OSError):
            (Path("/proc/sys") / name).write_text(f"{value}\n")
    _BEFORE.unlink(missing_ok=True)


def _before() -> dict[str, int]:
    try:
        return dict(json.loads(_BEFORE.read_text()))
    except (OSError, ValueError):
        return {}
