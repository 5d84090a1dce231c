"""Shows long steps while they run: a bar on a terminal, an occasional line elsewhere.

All of it goes to standard error. Standard output is for the result of a command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lib.process import CommandError

QUIET_S = 15.0  # between two lines where there is no terminal


def say(line: str) -> None:
    """One line of news."""
    print(line, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Minutes and seconds, as 3:07."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Steps:
    """A plan of named steps with their expected seconds; one runs at a time.

    A step's share is what it reports through `fraction`, else the time it took against the time expected.
    """

    def __init__(self, title: str, plan: Mapping[str, float]) -> None:
        self.title = title
        self.plan = dict(plan)
        self.fraction: float | None = None
        self.note = ""
        self._began = time.monotonic()
        self._done = 0.0
        self._name = ""
        self._step_began = 0.0
        self._tty = sys.stderr.isatty()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show the step while its block runs."""
        self._name, self._step_began, self.fraction, self.note = name, time.monotonic(), None, ""
        over = threading.Event()
        shower = threading.Thread(target=self._show_until, args=(over,), daemon=True)
        shower.start()
        try:
            yield
        finally:
            over.set()
            shower.join()
        self._done += self.plan[name]
        self._line(f"{name}: {time.monotonic() - self._step_began:.0f} s", final=True)

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        progress: Callable[[], float | None] | None = None,
    ) -> None:
        """Run a command inside a step with its output in `log`; `progress` is asked twice a second."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            process = subprocess.Popen(
                [str(word) for word in argv],
                env={**os.environ, **(env or {})},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                self.wait(process, progress=progress)
            except BaseException:  # an interrupted build must not go on alone
                process.kill()
                raise
        if process.returncode:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
            raise CommandError(f"{argv[0]} ended with {process.returncode}; the end of {log}:\n{tail}")

    def wait(self, process: subprocess.Popen[bytes], *, progress: Callable[[], float | None] | None = None) -> None:
        """Wait for a process inside a step."""
        while process.poll() is None:
            if progress:
                self.fraction = progress()
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue

    def _show_until(self, over: threading.Event) -> None:
        while not over.wait(0.2 if self._tty else QUIET_S):
            self._line(self._name + (f" ({self.note})" if self.note else ""), final=False)

    def _line(self, text: str, *, final: bool) -> None:
        now, total = time.monotonic(), sum(self.plan.values())
        expected = 0.0 if final else self.plan[self._name]
        took = now - self._step_began
        share = self.fraction if self.fraction is not None else took / (took + max(expected - took, 0.1 * expected, 1))
        done = min(self._done + expected * share, total)
        spent, left = now - self._began, total - done
        # where a tenth is done its pace tells better than the plan how long the rest takes on this machine
        estimate = left * (max(spent / done, 1) if done > total / 10 else 1)
        elapsed = f"{clock(spent)} elapsed, about {clock(estimate)} left"
        if not self._tty:
            say(f"[{done / total:4.0%}] {self.title}: {text} ({elapsed})")
            return
        columns = shutil.get_terminal_size().columns
        bar = "█" * round(24 * done / total)
        line = f"{bar:░<24} {done / total:4.0%}  {text}  {elapsed}"[: columns - 1]
        print(f"\r\033[K{line}", end="\n" if final and left <= 0 else "", file=sys.stderr, flush=True)
