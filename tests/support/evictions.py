"""Nodes full of guests that have to give back memory now and then: which chunks leave, and what that costs.

Each demand of a trace asks a node for a part of the memory that guests use there. Either the control chooses, or pods
are killed as others do it: the hungriest first, until enough is free. Jobs have units of 1, 4 and 12 CPU seconds, and
hosts use up to 56 % of a node, so not every unit ends before its pod must be gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from guest_world import GIB, Manners, World, guest

NODES, CORES = 8, 4.0
MEMORIES, COSTS = (64, 256, 1024), (1.0, 4.0, 12.0)
"""MiB of a chunk, and CPU seconds of a unit: there is a job of each pair."""


class Demand(NamedTuple):
    """After ``wait`` seconds, a node must give back a part of the memory of its guests."""

    wait: int
    node: str
    part: float


@dataclass(frozen=True)
class Cost:
    """What a trace of demands cost."""

    lost: float
    """CPU seconds of pods that were killed."""
    kills: int
    demands: int
    freed_late: int
    """Demands that were not met within ten seconds."""

    @property
    def per_eviction(self) -> float:
        return self.lost / self.demands


def trace(seed: int, many: int) -> list[Demand]:
    dice = Random(seed)
    return [Demand(dice.randint(11, 40), f"n{dice.randrange(NODES)}", dice.uniform(0.05, 0.6)) for _ in range(many)]


def used(world: World, node: str) -> int:
    return sum(pod.manners.memory for pod in world.running() if pod.chunk.node == node)


def kill_hungriest(world: World, node: str, excess: int) -> None:
    here = sorted((pod for pod in world.running() if pod.chunk.node == node), key=lambda p: (-p.manners.memory, p.name))
    for pod in here:
        if excess <= 0:
            return
        excess -= pod.manners.memory
        world.kill(pod)


def endure(
    demands: Sequence[Demand], *, hungriest: bool = False, deaf: bool = False, restart: str = "Redo"
) -> tuple[World, Cost]:
    """Run jobs through a trace, to their end. ``deaf``: their workers answer no offer."""
    world = World(NODES, CORES, 64 * GIB)
    for i, host in enumerate(world.hosts.values()):
        host.use = 0.08 * i  # from idle nodes to busy ones
    kinds = [(memory * 2**20, cost) for memory in MEMORIES for cost in COSTS]
    work = 20.0 * len(demands) * NODES * CORES / len(kinds)  # they run as long as there are demands
    for i, (memory, cost) in enumerate(kinds):
        world.manners_of[f"g{i}"] = Manners(memory=memory, deaf=deaf)
        more = {"units": int(work / cost), "cpu_per_unit": cost, "restart": restart, "policy": "LingerForever"}
        world.apply(guest(f"g{i}", memory=memory, **more))
    late = 0
    for demand in demands:
        world.run(demand.wait)
        before = used(world, demand.node)
        excess = int(demand.part * before)
        if hungriest:
            kill_hungriest(world, demand.node, excess)
            continue
        for _ in range(10):
            rest = used(world, demand.node) - (before - excess)
            if rest <= 0:
                break
            world.excess[demand.node] = rest
            world.tick()
        late += used(world, demand.node) > before - excess
        world.excess.clear()
    found = Cost(world.lost, world.kills, len(demands), late)
    world.until_done()
    world.check()
    return world, found
