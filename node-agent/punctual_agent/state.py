"""What must outlive the agent: the rest caps, the highest epoch, and a heartbeat, as files in one folder.

The agent writes, its watchdog (another container of the same pod) reads; a restarted agent reads too, so that it
neither obeys an old leader nor forgets pods while the operator is away. The state file is replaced whole by rename, so
a reader never sees half of it. Not synced to disk: it has to survive the process, not the machine.

The heartbeat is CLOCK_MONOTONIC, which all processes of a node share. No heartbeat: the agent never began, or ended by
itself and left its pods at rest. Standard library only.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from punctual_agent.cgroup import Cap, valid_uid

LEASE: Final = 5.0
"""Seconds a heartbeat is good for."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What a pod is left with when nobody steers it: a cap in cores, its period in seconds."""

    cores: float
    period: float

    @property
    def cap(self) -> Cap:
        """As the kernel has it."""
        return Cap.of(self.cores, self.period)


@dataclass(frozen=True, slots=True)
class Saved:
    """The state file."""

    epoch: int = 0
    lease: float = LEASE
    rests: Mapping[str, Rest] = field(default_factory=dict)


class State:
    """The folder (an emptyDir of the agent's pod). Raises OSError where it cannot be written."""

    def __init__(self, folder: str | Path) -> None:
        self._file = Path(folder, "state.json")
        self._beat = Path(folder, "heartbeat")
        self._handle: int | None = None

    def save(self, saved: Saved) -> None:
        """Replace the state file."""
        self._replace(self._file, json.dumps(asdict(saved)))

    def load(self) -> Saved:
        """Read it; an unreadable or foreign file is an empty one (a rest cap made up would be worse than none)."""
        try:
            raw = json.loads(self._file.read_text())
            rests = {
                uid: Rest(float(rest["cores"]), float(rest["period"]))
                for uid, rest in raw["rests"].items()
                if valid_uid(uid)
            }
            return Saved(int(raw["epoch"]), float(raw["lease"]), rests)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Saved()

    def beat(self, now: float) -> None:
        """Say that the agent lives."""
        # in place: a rename each second would make some file systems write to disk each second
        if self._handle is None:
            self._handle = os.open(self._beat, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(self._handle, b"%020.6f" % now, 0)

    def heartbeat(self) -> float | None:
        """When it last lived; None: never, or it ended in order."""
        try:
            return float(self._beat.read_text())
        except (OSError, ValueError):
            return None

    def end(self) -> None:
        """Say that the agent ends in order, its pods at rest."""
        with contextlib.suppress(FileNotFoundError):
            self._beat.unlink()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _replace(self, path: Path, text: str) -> None:
        partial = path.with_suffix(".partial")
        partial.write_text(text)
        os.replace(partial, path)  # noqa: PTH105  Path.replace builds a second path
