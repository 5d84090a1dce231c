"""The output of a run: a line for each event, and the progress. All of it is also in a file of JSON lines."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from punctual.view.elapsed import clock

STYLES = {"fault": "yellow", "over": "dim", "job": "", "step": "bold", "good": "green", "bad": "bold red"}


class Show:
    """``with Show(console, path) as show``: a bar at the bottom of a terminal, lines elsewhere."""

    def __init__(self, console: Console, path: Path) -> None:
        self.began = time.monotonic()
        self._console = console
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        columns = (BarColumn(32), TextColumn("{task.percentage:3.0f}%  {task.description}"))
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=1.0)
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        """Begin."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._bar.stop()
        self._file.close()

    def note(self, what: str, **more: Any) -> None:
        """Write it down, and no more."""
        line = {"time": round(time.time(), 3), "at": round(time.monotonic() - self.began, 1), "what": what, **more}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def say(self, kind: str, text: str, **more: Any) -> None:
        """Say a line, and write it down."""
        self.note(kind, text=text, **more)
        at = clock(time.monotonic() - self.began)
        self._console.print(f"{at:>6}  {text}", style=STYLES.get(kind, ""), highlight=False, markup=False)

    def far(self, share: float, text: str) -> None:
        """Show how far it is; without a terminal, every half minute."""
        self._bar.update(self._task, completed=share, description=text)
        if not self._console.is_terminal and time.monotonic() > self._said + 30:
            self._said = time.monotonic()
            at = clock(time.monotonic() - self.began)
            self._console.print(f"{at:>6}  [{share:4.0%}] {text}", highlight=False, markup=False)
