"""Runs commands that end and daemons that stay.

A daemon is recorded by pid *and* start time. The danger: after a restart of the machine, a pid alone could name a
foreign process, which would then be stopped. The module knows nothing of the commands' meaning.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class CommandError(Exception):
    """A command ended with a status other than 0; the message carries the end of what it said."""


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> str:
    """Run to its end and return standard output.

    Raises CommandError for a status other than 0 and for a time-out (seconds).
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(f"{words[0]}: no such command") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{' '.join(words[:4])} …: no end after {timeout:.0f} s") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise CommandError(f"{' '.join(words[:6])} … ended with {done.returncode}: {said}")
    return done.stdout


def succeeds(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout: float = 20) -> bool:
    """Whether the command ends with 0 within `timeout` seconds."""
    try:
        run(argv, env=env, timeout=timeout)
    except CommandError:
        return False
    return True


def eventually(true: Callable[[], bool], *, within: float, every: float = 0.1) -> bool:
    """Whether `true()` became true within so many seconds."""
    end = time.monotonic() + within
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


def start_time(pid: int) -> str | None:
    """When the process started (clock ticks since boot, with the boot's id); None if there is none or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"


def stop(pid: int, *, within: float = 20) -> None:
    """TERM, and KILL for what still runs after `within` seconds."""
    started = start_time(pid)
    for sign, patience in ((signal.SIGTERM, within), (signal.SIGKILL, 10.0)):
        if started is None or start_time(pid) != started:
            return
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            return
        eventually(lambda: start_time(pid) != started, within=patience, every=0.02)


def _unniced() -> list[str]:
    """Give the words before a command that take back a `nice` we were started with; only root may."""
    niceness = os.nice(0)
    return ["nice", "-n", str(-niceness)] if niceness > 0 and os.geteuid() == 0 else []


@dataclass(frozen=True, slots=True)
class Daemon:
    """A background process of ours: `record` remembers it, `log` has what it says."""

    record: Path
    log: Path

    @property
    def pid(self) -> int | None:
        """Its pid while it lives, else None."""
        try:
            record = json.loads(self.record.read_text())
        except (OSError, ValueError):
            return None
        return int(record["pid"]) if start_time(record["pid"]) == record["started"] else None

    def start(self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
        """Start it in a session of its own, and at normal priority though we may run at a lower one."""
        self.record.parent.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*_unniced(), *(str(word) for word in argv)],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.record.write_text(json.dumps({"pid": process.pid, "started": start_time(process.pid)}))

    def stop(self, *, within: float = 20) -> None:
        """End it if it lives, and forget it."""
        if (pid := self.pid) is not None:
            stop(pid, within=within)
        self.record.unlink(missing_ok=True)

    def tail(self, lines: int = 15) -> str:
        """Give the last lines it said."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""
