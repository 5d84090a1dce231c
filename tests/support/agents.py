"""Agents of a World's nodes, for pools where pods share processors: the real steering, with the set points that a real
operator would answer. Each second it looks at its pods, and moves their caps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from punctual.kube.agents.set_points import SetPointStore
from punctual.scheduling.model.actions import DropSetPoint, SendSetPoint
from punctual_agent.steering import Steering

if TYPE_CHECKING:
    from world import Pod, World


@dataclass
class Agents:
    """One agent per node."""

    store: SetPointStore = field(default_factory=SetPointStore)
    steering: dict[str, Steering] = field(default_factory=dict)
    chosen: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By node, the caps of its pods together as last chosen, and what they may add up to: cores."""

    def put(self, point: SendSetPoint) -> None:
        self.store.put(point)

    def drop(self, gone: DropSetPoint) -> None:
        self.store.drop(gone)
        if gone.node in self.steering:
            self.steering[gone.node].forget(gone.pod)

    def second(self, w: World, node: str) -> None:
        """Let a second of the agent's life pass."""
        steering = self.steering.setdefault(node, Steering())
        pods: dict[str, Pod] = {p.uid: p for p in w.pods.values() if p.chunk.node == node}
        told = self.store.answer(node, now=w.now, epoch=1, pods={}).pods
        for point in told:
            if point.uid in pods:
                steering.tell(point.uid, point, w.now)
            else:
                steering.forget(point.uid)
        for uid, pod in pods.items():
            if pod.phase == "Running":
                steering.look(uid, w.now, done=pod.done, cpu=pod.cpu, cap=pod.part * w.spec.cpu)
        caps = steering.caps(w.now)
        most = max((point.mode.pool_cores for point in told if point.mode.kind == "Line"), default=0.0)
        self.chosen[node] = sum(caps.values()), most
        for uid, cap in caps.items():
            w.cap(pods[uid], cap / w.spec.cpu)
