"""Finds and removes everything that an engine of the project leaves on the machine, in whatever state it ended.

It runs before an engine starts and after one stopped, so neither `kill -9` of everything nor a restart of the machine
leaves anything. The project's things are: a process with its mark in its environment (the engine passes it on to its
helpers), a process in its cgroups (containers), a mount below its folder, a bridge with its prefix and the attached
interfaces, firewall rules that name such a bridge, and a cgroup of its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from lib import kernel, process
from lib.home import HOME, RUN, digest

TAG = digest(str(HOME))[:6]
MARK = "PUNCTUAL_ENGINE"  # = TAG in the environment of the engine's processes
BRIDGES = f"pn-{TAG}-"  # an interface's name has 15 characters at most
CGROUP = f"punctual-{TAG}"


def remove() -> None:
    """Take every trace away. Safe to repeat, and with nothing there."""
    for _ in range(50):  # what forks while we look is found in the next round
        if not (found := [*_marked(), *_contained()]):
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.eventually(lambda: not any(map(process.start_time, found)), within=2, every=0.02)
    for target in reversed(_mounts()):
        process.succeeds(["umount", "--lazy", target])
    shutil.rmtree(RUN / "docker", ignore_errors=True)
    for stale in ("docker.pid", "docker.sock"):
        (RUN / stale).unlink(missing_ok=True)
    for link in _links():
        process.succeeds(["ip", "link", "delete", link])
    if shutil.which("iptables-save"):
        _remove_rules()
    if not _other_engine():
        kernel.restore()
    process.eventually(_cgroups_removed, within=10)


def found() -> list[str]:
    """Name what is there, one line each; nothing after `remove`."""
    return [
        *(f"process {pid}" for pid in [*_marked(), *_contained()]),
        *(f"mount {target}" for target in _mounts()),
        *(f"interface {link}" for link in _links()),
        *(f"cgroup {folder}" for folder in _cgroups()),
    ]


def _marked() -> Iterator[int]:
    mark = f"{MARK}={TAG}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def _contained() -> Iterator[int]:
    for top in _cgroups():
        for folder in (top, *top.rglob("*/")):
            with contextlib.suppress(OSError):
                yield from map(int, (folder / "cgroup.procs").read_text().split())


def _cgroups() -> list[Path]:
    root = Path("/sys/fs/cgroup")
    return [path for path in (root / CGROUP, *root.glob(f"*/{CGROUP}")) if path.is_dir()]


FAVOURED: int = 100
"""Weight of all our containers together, in that of a process outside of any group."""


def favour(times: int = FAVOURED) -> None:
    """Give our containers the CPU before all else on this machine: nodes are to have what they advertise.

    A process outside of any group weighs as much as all our nodes together otherwise; a busy machine's pods would miss
    deadlines for want of CPU that Kubernetes believes to be theirs. Quotas keep the workers from taking more. Where a
    node has no quota, the machine would stand still beside a busy pod: then they get less weight.
    """
    for folder in _cgroups():
        for name, usual in (("cpu.shares", 1024), ("cpu.weight", 100)):  # v1, v2
            if (folder / name).exists():
                (folder / name).write_text(str(times * usual))


def _cgroups_removed() -> bool:
    for top in _cgroups():
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):  # busy until its last process is reaped
                Path(folder).rmdir()
    return not _cgroups()


def _mounts() -> list[str]:
    """List mount points below our folder, parents first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    targets = (line.split()[4].encode().decode("unicode_escape") for line in lines)
    return [target for target in targets if target.startswith(f"{HOME}/")]


def _links() -> list[str]:
    """List our bridges, and before them what is plugged into one."""
    bridges = [path for path in Path("/sys/class/net").iterdir() if path.name.startswith(BRIDGES)]
    ports = [port.name for bridge in bridges for port in bridge.glob("brif/*")]
    return [*ports, *(bridge.name for bridge in bridges)]


def _other_engine() -> bool:
    """Say whether another Docker engine runs, which needs the rules that all engines share."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (entry / "comm").read_text().strip() == "dockerd":
                return True
    return False


def _remove_rules() -> None:
    """Delete firewall rules that name our bridges, and Docker's own chains if no other engine needs them."""
    try:
        lines = process.run(["iptables-save"]).splitlines()
    except process.CommandError:
        return
    orphaned = not _other_engine() and any(BRIDGES in line for line in lines)
    # an engine that was killed leaves rules that name nothing of ours but an address
    subnets = tuple(
        f" -s {word.rpartition('.')[0]}." for line in lines if BRIDGES in line for word in line.split() if "/24" in word
    )
    edits: list[str] = []
    chains: list[str] = []
    for line in lines:
        if line.startswith("*"):
            edits.append(line)
        elif line.startswith("-A ") and (
            BRIDGES in line or any(subnet in line for subnet in subnets) or (orphaned and "DOCKER" in line)
        ):
            edits.append("-D " + line.removeprefix("-A "))
        elif line.startswith(":DOCKER") and orphaned:
            chains.append("-X " + line.removeprefix(":").split()[0])
        elif line == "COMMIT":
            edits += [*chains, line]
            chains = []
    if any(line.startswith("-") for line in edits):
        process.run(["iptables-restore", "--noflush"], stdin="\n".join(edits) + "\n")
