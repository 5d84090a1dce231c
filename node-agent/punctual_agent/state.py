"""State that outlives the agent: its pods' modes, the highest epoch and a heartbeat, as files in one folder.

The agent writes them, and its watchdog (another container of the same pod) reads them. A restarted agent reads them
too, so that it neither obeys an old leader nor forgets pods while the operator is away. The state file is replaced by
rename, so a reader never sees a partial file. It is not synced to disk: it must survive the process, not the machine.

The heartbeat is a CLOCK_MONOTONIC time, which all processes of a node share. No heartbeat means that the agent never
started, or that it shut down and left its pods at their rest caps. Standard library only.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from punctual_agent.cgroup import valid_uid
from punctual_agent.modes import MODES
from punctual_agent.modes.mode import Mode

LEASE: Final = 5.0
"""Seconds for which a heartbeat is valid."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of the state file."""

    epoch: int = 0
    lease: float = LEASE
    modes: Mapping[str, Mode] = field(default_factory=dict)
    """What each pod's mode keeps, by uid."""


class State:
    """The folder of the state, an emptyDir of the agent's pod. Raises OSError if it cannot be written."""

    def __init__(self, folder: str | Path) -> None:
        self._file = Path(folder, "state.json")
        self._beat = Path(folder, "heartbeat")
        self._handle: int | None = None

    def save(self, saved: Saved) -> None:
        """Replace the state file."""
        modes = {uid: {"kind": mode.kind} | asdict(cast("Any", mode)) for uid, mode in saved.modes.items()}
        self._replace(self._file, json.dumps({"epoch": saved.epoch, "lease": saved.lease, "modes": modes}))

    def load(self) -> Saved:
        """Read the state file.

        An unreadable or foreign file counts as empty: an invented rest cap would be worse than none.
        """
        try:
            raw = json.loads(self._file.read_text())
            modes = {uid: MODES[one["kind"]].loaded(one) for uid, one in raw["modes"].items() if valid_uid(uid)}
            return Saved(int(raw["epoch"]), float(raw["lease"]), modes)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Saved()

    def beat(self, now: float) -> None:
        """Write the heartbeat."""
        # written in place: on some file systems a rename each second would cause a disk write each second
        if self._handle is None:
            self._handle = os.open(self._beat, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(self._handle, b"%020.6f" % now, 0)

    def heartbeat(self) -> float | None:
        """Return the time of the last heartbeat. None: the agent never started, or shut down properly."""
        try:
            return float(self._beat.read_text())
        except (OSError, ValueError):
            return None

    def end(self) -> None:
        """Remove the heartbeat: the agent shuts down with its pods at their rest caps."""
        with contextlib.suppress(FileNotFoundError):
            self._beat.unlink()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _replace(self, path: Path, text: str) -> None:
        partial = path.with_suffix(".partial")
        partial.write_text(text)
        os.replace(partial, path)  # noqa: PTH105  Path.replace builds a second path
