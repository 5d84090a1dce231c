"""The logs of all operators and agents during a run, kept also when their pods are gone.

They are copied from the nodes' files every few seconds. Each container ever started has its own file, with its pod, its
name and its restart count in the path.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from pathlib import Path

from lib.testbed import SYSTEM

from chaos_lib.ground import Ground, NothingThere
from punctual.errors import PunctualError

EVERY = 4.0
BAD = re.compile(r"Traceback \(most recent call last\)|\"level\": ?\"(error|critical)\"")
PROVOKED = frozenset({"Fenced"})
"""Errors that end a replica in order: it met a newer leader's write."""


class Logs:
    """The logs of one run, in a folder."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        self.folder = folder
        self._ground = ground
        self._before: set[str] = set()
        self._sizes: dict[tuple[str, str], int] = {}

    async def begin(self) -> None:
        """Leave out what is there now: it was before the run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in self.folder.iterdir():
            file.unlink()
        for node in self._ground.workers:
            self._sizes |= {(node, path): size for path, size in (await self._list(node)).items()}

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            await self.copy()
            await asyncio.sleep(EVERY)

    async def copy(self) -> None:
        """Copy what is new."""
        for node in self._ground.workers:
            with contextlib.suppress(NothingThere, PunctualError):  # next time
                for path, size in (await self._list(node)).items():
                    have = self._sizes.get((node, path), 0)
                    if size > have:
                        new = await self._ground.on_node(node, f"tail -c +{have + 1} {path} | head -c {size - have}")
                        self._append(path, new)
                        self._sizes[node, path] = size

    async def _list(self, node: str) -> dict[str, int]:
        script = f"stat -Lc '%s %n' /var/log/pods/{SYSTEM}_*/*/*.log 2>/dev/null || true"
        lines = (line.split(" ", 1) for line in (await self._ground.on_node(node, script)).splitlines())
        return {path: int(size) for size, path in lines}

    def _append(self, path: str, text: str) -> None:
        _, pod, container, number = path.rsplit("/", 3)
        name = f"{pod.split('_')[1]}.{container}.{number}"
        lines = (line.split(" ", 3)[-1] for line in text.splitlines())  # time, stream and flag are the runtime's
        with (self.folder / name).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def text(self) -> str:
        """Return all of it."""
        return "".join(file.read_text() for file in sorted(self.folder.iterdir()))

    def errors(self) -> list[str]:
        """Return the lines that tell of something which should not be, with the file they stand in."""
        return [
            f"{file.name}: {line[:300]}"
            for file in sorted(self.folder.iterdir())
            for line in file.read_text().splitlines()
            if BAD.search(line) and not _provoked(line)
        ]


def _provoked(line: str) -> bool:
    try:
        said = json.loads(line)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("kind") in PROVOKED
