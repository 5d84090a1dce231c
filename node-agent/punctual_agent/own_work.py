"""The load of the node's own work beside held applications, from the CPU counters of all pods.

The node's own work is every pod but the held and the guests, promised chunks included. All that runs outside of pods
counts as one pod more; so do pods that ended meanwhile. It is measured only while an application is held, and costs one
read for each pod of the node in ten seconds.
"""

import contextlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from punctual.linger.own_load import own_load
from punctual_agent.cgroup import CgroupError, Hierarchy, NodeUse
from punctual_agent.modes.application import ApplicationMode
from punctual_agent.modes.guest import GuestMode
from punctual_agent.pod import Pod

EVERY: Final = 10.0
"""Seconds over which the load is measured."""


class _Counters(NamedTuple):
    """CPU seconds that the node has used at a moment, and each of its pods, by folder."""

    at: float
    node: float
    pods: dict[str, float]


@dataclass(slots=True)
class OwnWork:
    """``load``: ready tasks for each CPU. None: not known, or no application is held."""

    hierarchy: Hierarchy
    load: float | None = None
    _before: _Counters | None = field(default=None, init=False)

    def look(self, now: float, pods: Iterable[Pod], node: NodeUse) -> None:
        """Measure, if that is due. ``pods``: all of the agent, each just read."""
        found = [pod for pod in pods if pod.held.found]
        held = {pod.held.folder for pod in found if isinstance(pod.mode, ApplicationMode)}
        if not held:
            self._before = self.load = None
        elif self._before is None or now - self._before.at >= EVERY:
            before, self._before = self._before, self._read(now, held, node)
            guests = {pod.held.folder for pod in found if isinstance(pod.mode, GuestMode)}
            if before is not None:
                self.load = _load(before, self._before, held, guests, node.cores)

    def _read(self, now: float, held: Collection[str], node: NodeUse) -> _Counters:
        """Read the counters. Where nodes share a machine, the pods of another node have a root of their own."""
        used, pods = node.cpu, dict[str, float]()
        for base in self.hierarchy.kubepods:
            if not any(folder.startswith(f"{base}/") for folder in held):
                with contextlib.suppress(CgroupError):
                    used -= self.hierarchy.used(base)
                continue
            for folder in self.hierarchy.pods(base):
                with contextlib.suppress(CgroupError):  # it has just ended
                    pods[folder] = self.hierarchy.used(folder)
        return _Counters(now, used, pods)


def _load(before: _Counters, now: _Counters, held: Collection[str], guests: Collection[str], cores: float) -> float:
    seconds = now.at - before.at
    used = {folder: max(cpu - before.pods.get(folder, 0.0), 0.0) / seconds for folder, cpu in now.pods.items()}
    rest = (now.node - before.node) / seconds - sum(used.values())
    own = [cpu for folder, cpu in used.items() if folder not in held and folder not in guests]
    return own_load([*own, rest], sum(used.get(folder, 0.0) for folder in held), cores)
