"""``punctual watch``: shows jobs as they run, until they have ended or the user interrupts it."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live

from punctual.cli.kubectl import Follower, Kubectl
from punctual.cli.record import WatchRecorder
from punctual.cli.screen import Teller, screen
from punctual.errors import PunctualError
from punctual.view.jobs import OVER, Board

LOOK = 0.25
"""Seconds between two updates of the screen."""
PATIENCE = 5.0
"""Seconds after which a named job that does not exist is an error."""


def watch(names: Sequence[str], *, kubectl: Kubectl, namespace: str | None, record: Path | None) -> int:
    """Show jobs until all named ones have ended. Return 0 if each met its deadline, else 1.

    Without names it runs until it is interrupted, and returns 0.
    """
    board, console, teller = Board(), Console(), Teller()
    began = time.monotonic()
    with WatchRecorder(record) as recorder, Follower(kubectl, namespace=namespace, pods=record is not None) as follower:
        live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        try:
            if live:
                live.start()
            while True:
                news = follower.wait(LOOK)
                recorder.note(news, time.time())
                board.apply(news)
                _show(board, names, console, live, teller)
                if _over(board, names, patience=PATIENCE - (time.monotonic() - began)):
                    break
        except KeyboardInterrupt:
            if names:
                return 130
        finally:
            if live:
                live.stop()
    return 0 if all(job.kept for job in board.in_order(names)) or not names else 1


def _show(board: Board, names: Sequence[str], console: Console, live: Live | None, teller: Teller) -> None:
    now = time.time()
    if live is None:
        for line in teller.tell(board, now, names=names):
            print(time.strftime("%H:%M:%S"), line)
            sys.stdout.flush()
        return
    width, height = console.size
    live.update(screen(board, now, names=names, width=width, height=height - 2), refresh=True)


def _over(board: Board, names: Sequence[str], *, patience: float) -> bool:
    """Whether all named jobs have ended, or will not begin."""
    if not names:
        return False
    jobs = board.in_order(names)
    missing = set(names) - {job.name for job in jobs}
    if missing and patience < 0:
        raise PunctualError(f"there is no job {', '.join(sorted(missing))}")
    return not missing and all(
        job.state in OVER or (job.state == "Refused" and (job.offered is not None or patience < 0)) for job in jobs
    )
