"""How long a node's own work waits for a CPU when it wakes up, beside a guest and beside services; prints JSON.

One CPU has the folders of a node: services, and `kubepods` with a pod of the node's own (requests half a CPU) and a
guest's (BestEffort, in the idle class where the kernel has it). The pod wakes up 150 times a second and computes for
2 ms. A guest computes all the time. The services compute for 12 ms, each 0.15 s on average. The cases take turns.
Milliseconds from the moment that a wake-up is due, of all rounds. Needs root and cgroups to make folders in.

Run: sudo .venv/bin/python tests/bench/wake_ups.py [--rounds 5] [--count 1500] [--cpu 0]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

SPIN = "while True: pass"
SERVICES = """
import random, time
while True:
    time.sleep(random.uniform(0.05, 0.25))
    end = time.thread_time() + 0.012
    while time.thread_time() < end:
        pass
"""
HOST = """
import sys, time
due, waited = time.monotonic(), []
for _ in range(int(sys.argv[1])):
    due += 1 / 150
    if (left := due - time.monotonic()) > 0:
        time.sleep(left)
        waited.append(1000 * (time.monotonic() - due))
    end = time.thread_time() + 0.002
    while time.thread_time() < end:
        pass
print(*waited)
"""
CASES = {
    "alone": (),
    "beside a guest": ("guest",),
    "beside services": ("services",),
    "beside a guest and services": ("guest", "services"),
}
SHARES = {
    "": 2 << 16,
    "services": 1024,
    "kubepods": 1024,
    "kubepods/burstable": 512,
    "kubepods/burstable/pod": 512,
    "kubepods/besteffort": 2,
    "kubepods/besteffort/pod": 2,
}
"""Weights as the kubelet gives them, in the shares of v1."""
FOLDERS = {"host": "kubepods/burstable/pod", "guest": "kubepods/besteffort/pod", "services": "services"}


@contextlib.contextmanager
def node() -> Iterator[Path]:
    """Make the folders of a node; remove them at the end."""
    root = Path("/sys/fs/cgroup")
    v1 = (root / "cpu").is_dir()
    top = (root / "cpu" if v1 else root) / f"punctual-wake-ups-{os.getpid()}"
    try:
        for name, shares in SHARES.items():
            folder = top / name
            folder.mkdir()
            if v1:
                (folder / "cpu.shares").write_text(str(shares))
            else:
                (folder.parent / "cgroup.subtree_control").write_text("+cpu")
                (folder / "cpu.weight").write_text(str(max(1, min(10_000, round(1 + (shares - 2) * 9999 / 262_142)))))
        with contextlib.suppress(OSError):  # kernels before 5.15
            (top / FOLDERS["guest"] / "cpu.idle").write_text("1")
        yield top
    finally:
        for name in reversed(SHARES):
            with contextlib.suppress(OSError):
                (top / name).rmdir()


def start(top: Path, which: str, cpu: int, program: str, *words: str) -> subprocess.Popen[str]:
    """Run a program in a folder of the node, on one CPU."""
    procs = top / FOLDERS[which] / "cgroup.procs"

    def move() -> None:
        procs.write_text(str(os.getpid()))
        os.sched_setaffinity(0, {cpu})

    command = [sys.executable, "-c", program, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=move)  # noqa: PLW1509  no threads here


def case(top: Path, beside: tuple[str, ...], cpu: int, count: int) -> list[float]:
    """Return the waits of the node's own pod beside others, ms."""
    others = [start(top, which, cpu, SPIN if which == "guest" else SERVICES) for which in beside]
    try:
        time.sleep(0.5)  # until they run
        told, _ = start(top, "host", cpu, HOST, str(count)).communicate()
    finally:
        for one in others:
            one.kill()
            one.communicate()
    return [float(word) for word in told.split()]


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--cpu", type=int, default=0)
    asked = parser.parse_args()
    waits: dict[str, list[list[float]]] = {name: [] for name in CASES}
    with node() as top:
        for _ in range(asked.rounds):
            for name, beside in CASES.items():
                waits[name].append(case(top, beside, asked.cpu, asked.count))
    found = {}
    for name, rounds in waits.items():
        p99 = [quantiles(one, n=100)[98] for one in rounds]
        every = quantiles([wait for one in rounds for wait in one], n=100)
        found[name] = {
            "p50": round(every[49], 3),
            "p99": round(every[98], 3),
            "p99 of rounds": [round(min(p99), 3), round(max(p99), 3)],
        }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
