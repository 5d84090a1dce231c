"""The demo's display: the story as lines, and the jobs as bars beneath it (or as lines without a terminal)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from demo_lib.objects import NAMESPACE
from punctual.cli.kubectl import Follower, Kubectl
from punctual.cli.record import WatchRecorder
from punctual.cli.screen import Teller, screen
from punctual.view.jobs import Board, JobView

LOOK = 0.2


class Stage:
    """Follows the demo's namespace; ``with Stage(kubectl, record=…) as stage``."""

    def __init__(self, kubectl: Kubectl, console: Console, *, record: Path) -> None:
        self.board = Board()
        self._console = console
        self._follower = Follower(kubectl, namespace=NAMESPACE)
        self._recorder = WatchRecorder(record)
        self._teller = Teller()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._recorder.__enter__()
        self._follower.__enter__()
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; the last picture stays."""
        if self._live:
            self._live.stop()
            self._console.print(screen(self.board, time.time(), width=self._console.width, height=60))
        self._follower.__exit__(kind, error, trace)
        self._recorder.__exit__(kind, error, trace)

    def say(self, line: str, style: str = "") -> None:
        """Tell a line of the story."""
        self._console.print(Text(line, style=style), soft_wrap=self._live is None)

    def look(self) -> None:
        """Take in what is new, and show it."""
        news = self._follower.wait(LOOK)
        now = time.time()
        self._recorder.note(news, now)
        self.board.apply(news)
        if self._live is None:
            for line in self._teller.tell(self.board, now):
                print(time.strftime("%H:%M:%S"), line, flush=True)
            return
        width, height = self._console.size
        self._live.update(screen(self.board, now, width=width, height=height - 4), refresh=True)

    def until(self, true: Callable[[], bool], *, within: float) -> bool:
        """Look until something is true; return whether it became so within so many seconds."""
        end = time.monotonic() + within
        while not true():
            if time.monotonic() > end:
                return False
            self.look()
        return True

    def watch(self, seconds: float) -> None:
        """Look on for so many seconds."""
        self.until(lambda: False, within=seconds)

    def job(self, name: str) -> JobView | None:
        """Return a job by name."""
        return next((job for job in self.board.jobs.values() if job.name == name), None)

    def result(self, name: str) -> str | None:
        """Return what a job's reduce has found, once it has."""
        job = self.job(name)
        return next(
            (
                pod.message
                for pod in self.board.pods.values()
                if job and pod.job == job.uid and pod.kind == "Reduce" and pod.phase == "Succeeded"
            ),
            None,
        )
