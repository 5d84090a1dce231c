"""State that outlives the agent: its pods' modes, the highest epoch and a heartbeat, as files.

The agent writes them, and its watchdog (another container of the same pod) reads them. A restarted agent reads them
too, so that it neither obeys an old leader nor forgets pods while the operator is away. A file is replaced by rename,
so a reader never sees a part of one. It is not synced to disk: it must survive the process, not the machine.

What users' own pods had before is in a folder of the node, because it must survive the agent's pod, too: nothing else
tells it. The agents of two pods share that folder, so only the one that holds the node's lock may write there. A file
of an earlier boot counts as empty: the cgroups of its pods are gone. What cannot be saved there ends no agent: it tells
so (`trouble`), and leaves users' own pods as they are.

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

from punctual_agent.cgroup import Cap, valid_uid
from punctual_agent.modes import MODES
from punctual_agent.modes.application import ApplicationMode
from punctual_agent.modes.mode import Mode

LEASE: Final = 5.0
"""Seconds for which a heartbeat is valid."""
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_SENSELESS: Final = (OSError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class Saved:
    """What the agent has saved."""

    epoch: int = 0
    lease: float = LEASE
    modes: Mapping[str, Mode] = field(default_factory=dict)
    """What each pod's mode keeps, by uid."""


class State:
    """The folders of the state: an emptyDir of the agent's pod, and one of the node (None: the same).

    Raises OSError if the first of them cannot be written.
    """

    def __init__(self, folder: str | Path, node_folder: str | Path | None = None) -> None:
        node_folder = node_folder or folder
        self._file = Path(folder, "state.json")
        self._beat = Path(folder, "heartbeat")
        self._applications = Path(node_folder, "applications.json")
        self._moves = Path(node_folder, "moves.json")
        try:
            self._boot = BOOT.read_text().strip()
        except OSError:  # no Linux, so no cgroups either
            self._boot = ""
        self._handle: int | None = None
        self._own: Mapping[str, Mode] = {}
        self.trouble = ""
        """Why the modes of users' own pods could not be saved last. Empty: they were."""

    def save(self, saved: Saved, *, own: bool = True) -> None:
        """Replace the files of the modes. ``own``: also that of users' own pods, unless there is `trouble`."""
        own_modes = {uid: mode for uid, mode in saved.modes.items() if mode.own}
        others = {uid: mode for uid, mode in saved.modes.items() if not mode.own}
        if own:
            self.trouble = self._save_own(own_modes)
        _replace(self._file, {"epoch": saved.epoch, "lease": saved.lease, "modes": _raw(others)})

    def _save_own(self, modes: Mapping[str, Mode]) -> str:
        if modes != self._own:
            try:
                _replace(self._applications, {"boot": self._boot, "modes": _raw(modes)})
            except OSError as error:
                return str(error)
            self._own = modes
        return ""

    def save_moves(self, moves: Mapping[str, Mapping[str, tuple[Cap, ...]]]) -> None:
        """Replace the file of the pairs that may be in force while slices are moved, by pod and folder.

        Another thread than that of :meth:`save` may call it. Raises OSError if the node's folder cannot be written.
        """
        pairs = {
            uid: {name: [asdict(pair) for pair in all_pairs] for name, all_pairs in folders.items()}
            for uid, folders in moves.items()
        }
        _replace(self._moves, {"boot": self._boot, "moves": pairs})

    def clear_moves(self) -> None:
        """Remove that file: none of them is in force. Raises OSError as :meth:`save_moves` does."""
        self._moves.unlink(missing_ok=True)

    def load(self) -> Saved:
        """Read the files.

        An unreadable or foreign file counts as empty: an invented rest cap would be worse than none.
        """
        own = self._load_applications()
        try:
            raw = json.loads(self._file.read_text())
            return Saved(int(raw["epoch"]), float(raw["lease"]), {**own, **_modes(raw)})
        except _SENSELESS:
            return Saved(modes=own)

    def _load_applications(self) -> dict[str, Mode]:
        self._own = {}
        try:
            raw = json.loads(self._applications.read_text())
            modes = _modes(raw) if raw["boot"] == self._boot else {}
        except _SENSELESS:
            return {}
        self._own = dict(modes)  # without moves, so that they are saved here, too
        with contextlib.suppress(*_SENSELESS):
            raw = json.loads(self._moves.read_text())
            if raw["boot"] == self._boot:
                for uid, folders in raw["moves"].items():
                    if isinstance(mode := modes.get(uid), ApplicationMode):
                        modes[uid] = mode.interrupted(folders)
        return modes

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


def _raw(modes: Mapping[str, Mode]) -> dict[str, Any]:
    return {uid: {"kind": mode.kind} | asdict(cast("Any", mode)) for uid, mode in modes.items()}


def _modes(raw: Mapping[str, Any]) -> dict[str, Mode]:
    """Return modes that were saved. Raises what senseless ones raise."""
    return {uid: MODES[one["kind"]].loaded(one) for uid, one in raw["modes"].items() if valid_uid(uid)}


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content))
    os.replace(partial, path)  # noqa: PTH105  Path.replace builds a second path
