"""A rank of a parallel program, seen from the machine of its node: its iterations, its CPU, its cap, weight and phase.

All is read and written through ``/proc/PID/root`` of the node's container, so no program of the experiment runs on the
node. It writes to pods that Punctual does not hold at that time, and takes everything back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lib import testbed
from lib.machine import docker
from lib.testbed import Json

from punctual.control.phase import Move, Phase, Read, Reading, Search, Wait, change, wrap
from punctual.errors import PunctualError
from punctual_agent.cgroup import Cap, Hierarchy

RAISED = {"v1": ("cpu.shares", 262_144), "v2": ("cpu.weight", 10_000)}
"""The file with a folder's weight, and the weight of an aligned pod."""
TRIES = 8
"""Searches until a phase is found, and moves until it is where it is to be."""
NEAR = 0.002
"""Seconds by which a phase may be off: the arms are half a period apart, or at random."""
LATE = 0.02
"""Seconds after the begin of a period in which a rank is watched."""


class Seen(NamedTuple):
    """A rank's counters."""

    at: float
    """When the iterations were counted, by the wall clock."""
    iterations: int
    cpu: float
    """CPU seconds used so far."""


class Node:
    """The machine of a node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = f"/proc/{docker('inspect', '-f', '{{.State.Pid}}', name)}/root"
        self.hierarchy = Hierarchy(f"{self.root}/sys/fs/cgroup")

    def folder(self, pod: Json) -> str:
        """Return the folder of a pod. Raises PunctualError if there is none."""
        if found := self.hierarchy.find(pod["metadata"]["uid"]):
            return found
        raise PunctualError(f"{pod['metadata']['name']} has no cgroup on {self.name}")

    def cpu(self, pod: Json) -> float:
        """Return the CPU seconds that a pod has used."""
        return self.hierarchy.use(self.folder(pod), ()).cpu

    def signal(self, pod: Json, number: int) -> None:
        """Send a signal to all processes of a pod."""
        for container in self.hierarchy.containers(self.folder(pod)):
            for process in Path(container, "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), number)

    def volume(self, pod: Json) -> Path:
        """Return the pod's volume `punctual`."""
        folder = f"var/lib/kubelet/pods/{pod['metadata']['uid']}/volumes/kubernetes.io~empty-dir/punctual"
        return Path(self.root, folder)

    def common_weight(self) -> int:
        """Return the weight of the folder of all Burstable pods."""
        (folder,) = (f for f in self._classes() if "burstable" in f.name)
        return int((folder / self._weight[0]).read_text())

    @property
    def _weight(self) -> tuple[str, int]:
        return RAISED[self.hierarchy.version]

    def _classes(self) -> list[Path]:
        return [folder for base in self.hierarchy.kubepods for folder in Path(base).iterdir() if folder.is_dir()]


class Rank:
    """A rank in a Guaranteed pod."""

    def __init__(self, node: Node, pod: Json) -> None:
        self.node, self.pod = node, pod
        self.folder = node.folder(pod)
        self._container = next(
            folder for folder in node.hierarchy.containers(self.folder) if testbed.container(pod) in folder
        )
        self._weight = Path(self.folder, RAISED[node.hierarchy.version][0])
        self.found = self.caps(), self._weight.read_text().strip()
        """Caps and weight as its kubelet has made them."""

    @property
    def steered(self) -> str:
        """The folder that gets the cap, as under Punctual: the pod's on v2, its container's on v1."""
        return self.folder if self.node.hierarchy.version == "v2" else self._container

    def seen(self) -> Seen:
        """Return the counters."""
        file = self.node.volume(self.pod) / "progress"
        with file.open() as opened:  # count and time of one and the same file: it is replaced
            at, count = os.fstat(opened.fileno()).st_mtime, int(opened.read())
        return Seen(at, count, self.node.cpu(self.pod))

    def caps(self) -> dict[str, Cap]:
        """Return the caps of the pod's folder and of its container."""
        return {folder: self.node.hierarchy.cap(folder) for folder in (self.folder, self._container)}

    @property
    def untouched(self) -> bool:
        """Whether caps and weight are as they were found."""
        return (self.caps(), self._weight.read_text().strip()) == self.found

    def free(self, weight: int) -> None:
        """Take all caps away, and give the pod a weight."""
        self._set({folder: Cap(None) for folder in self.found[0]}, weight)

    def hold(self, cap: Cap) -> None:
        """Give the pod a cap as if Punctual held it aligned, with the raised weight, at whatever phase."""
        caps = {folder: Cap(None) for folder in self.found[0]} | {self.steered: cap}
        self._set(caps, RAISED[self.node.hierarchy.version][1])

    def restore(self) -> None:
        """Give the pod the caps and the weight back with which it was found."""
        self._set(self.found[0], int(self.found[1]))

    def _set(self, caps: dict[str, Cap], weight: int) -> None:
        there = self.caps()
        for folder in (self.folder, self._container):  # v1 refuses a child more than its parent has
            self.node.hierarchy.set_cap(folder, Cap(None), there=there[folder])
        for folder in (self.folder, self._container):
            if caps[folder].quota is not None:
                self.node.hierarchy.set_cap(folder, caps[folder], there=Cap(None))
        self._weight.write_text(str(weight))

    # the phase

    def phase(self, period: float) -> Phase:
        """Find when its periods begin, on this machine's monotonic clock."""
        with self._reader() as read:
            for _ in range(TRIES):
                search = Search.begin(time.monotonic(), period, None)
                while not search.ended:
                    _step(search, read)
                if search.phase is not None:
                    return search.phase
        raise PunctualError(f"the period timer of {self.pod['metadata']['name']} stands still")

    def steer(self, cap: Cap, begins: float) -> float:
        """Move its phase until its periods begin at a moment; return the error that is left, s."""
        period = cap.period / 1e6
        for _ in range(TRIES):
            phase = self.phase(period)
            error = wrap(phase.at - begins, period)
            d = change(error, period, cap.share)
            if abs(error) <= NEAR or d is None:
                return error
            self._move(cap, Move(period, d, phase.firing(period, time.monotonic() + period / 2)))
        raise PunctualError(f"the phase of {self.pod['metadata']['name']} cannot be moved")

    def _move(self, cap: Cap, move: Move) -> None:
        longer = round((move.period + move.d) * 1e6)
        once = Cap(round(cap.share * longer), longer)
        with self._reader() as read:
            there = cap
            while not move.ended:
                _step(move, read)
                if move.writing and there is cap:
                    self.node.hierarchy.set_cap(self.steered, once, there=cap)
                    there = once
        if there is once:
            self.node.hierarchy.set_cap(self.steered, cap, there=once)

    @contextmanager
    def _reader(self) -> Iterator[int]:
        handle = os.open(f"{self.steered}/cpu.stat", os.O_RDONLY)
        try:
            yield handle
        finally:
            os.close(handle)

    # when it runs

    def cpu_clock(self) -> Callable[[], float]:
        """Return the CPU clock of its process, the one of its pod that uses most: also what it uses at this moment."""
        processes = map(int, Path(self._container, "cgroup.procs").read_text().split())
        clocks = [_clock_of(process) for process in processes]
        return partial(time.clock_gettime, max(clocks, key=time.clock_gettime))

    def start(self, begins: float) -> float | None:
        """Wait for the begin of a period; return after how many seconds it runs. None: it ran until then."""
        clock = self.cpu_clock()
        _sleep_until(begins - 0.001)
        before = clock()
        _sleep_until(begins)
        if clock() - before > 1e-4:
            return None
        while (now := time.monotonic()) < begins + LATE:
            if clock() - before > 1e-4:
                return now - begins - 1e-4
            time.sleep(1e-4)
        return LATE


def _clock_of(process: int) -> int:
    """Return the identity of a process's CPU clock (linux/posix-timers.h: MAKE_PROCESS_CPUCLOCK, CPUCLOCK_SCHED)."""
    return ~process << 3 | 2


def _step(stage: Search | Move, handle: int) -> None:
    match stage.step(time.monotonic()):
        case Wait(until):
            _sleep_until(until)
        case Read():
            before = time.monotonic()
            words = os.pread(handle, 4096, 0).split()
            stage.take(Reading(before, time.monotonic(), int(words[words.index(b"nr_periods") + 1])))


def _sleep_until(moment: float) -> None:
    while (left := moment - time.monotonic()) > 0.0:
        time.sleep(left)
