"""Runs guests on the nodes of a cluster, two seconds by two seconds (Ryu 2001, 4.2).

Each node has at most one guest. The number of guests is constant: when one is done, another one joins the queue. A
guest that moves does nothing for a while, and occupies both nodes. A guest that goes back to the queue leaves its node
while it waits there; the paper does not say how, but only so ImmediateEviction and PauseAndMigrate get the same, as
published. Hosts always run before guests.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from punctual.linger.cost import Move
from punctual.linger.episode import Interval
from punctual.linger.policy import decide, lingers
from punctual.sim.linger import parallel
from punctual.sim.linger.bursts import WINDOW, Bursts, Floats
from punctual.sim.linger.hosts import Series
from punctual.sim.linger.options import Options
from punctual.sim.linger.report import Result


@dataclass(slots=True)
class _Guest:
    left: float
    """CPU seconds."""
    submitted: float
    began: float | None = None
    """Its first start."""


@dataclass(slots=True)
class _Node:
    hosts: Interval = field(default_factory=Interval)
    guest: _Guest | None = None
    paused: bool = False
    arrives: float = 0.0
    """Seconds until the guest that moves here goes on."""
    leaves: float = 0.0
    """Seconds for which a guest that moves away still occupies the node."""

    @property
    def free(self) -> bool:
        return self.guest is None and self.leaves <= 0.0


@dataclass(slots=True)
class _Cluster:
    options: Options
    result: Result
    nodes: list[_Node]
    queue: deque[_Guest]

    def work(self, use: Floats, ours: Floats, preemptions: Floats, now: float) -> None:
        """Let guests run for a window. By node: CPU of hosts, CPU for a guest, and preemptions of it."""
        self.result.used += float(use.sum())
        self.result.states["queued"] += WINDOW * len(self.queue)
        for node, offered, preempted in zip(self.nodes, ours.tolist(), preemptions.tolist(), strict=True):
            node.leaves = max(0.0, node.leaves - WINDOW)
            if node.guest is None:
                continue
            moving = min(node.arrives, WINDOW)
            node.arrives -= moving
            state = "paused" if node.paused else "lingering" if node.hosts.busy else "running"
            self.result.states["moving"] += moving
            self.result.states[state] += WINDOW - moving
            if not node.paused and moving < WINDOW:
                self._run(node, node.guest, offered, preempted, now=now, part=1.0 - moving / WINDOW)

    def _run(self, node: _Node, guest: _Guest, offered: float, preempted: float, *, now: float, part: float) -> None:
        """Let a guest run in the last ``part`` of a window, or until it is done."""
        done = min(offered * part, guest.left)
        ran = part * (done / (offered * part) if offered > 0.0 else 1.0)
        guest.left -= done
        self.result.work += done
        self.result.delay += preempted * ran * self.options.switch
        if guest.left > 0.0:
            return
        assert guest.began is not None
        end = now + WINDOW * (1.0 - part + ran)
        self.result.completions.append(end - guest.submitted)
        self.result.executions.append(end - guest.began)
        node.guest = None
        self.queue.append(_Guest(self.options.work, end))

    def decide(self, now: float) -> None:
        """Move, pause and place guests, at the end of a window."""
        for node in self.nodes:
            if node.guest is not None and node.arrives <= 0.0:
                self._decide_one(node, node.guest)
        while self.queue and (place := self._place()) is not None:
            guest = self.queue.popleft()
            place.guest = guest
            guest.began = now if guest.began is None else guest.began

    def _decide_one(self, node: _Node, guest: _Guest) -> None:
        policy = self.options.policy
        busy = node.hosts.age if node.hosts.busy else None
        goal = self._idle() if busy is not None else None
        move = None
        if goal is not None:
            move = Move(1.0 - node.hosts.use, 1.0 - goal.hosts.use, self.options.pause, left=guest.left)
        step = decide(policy, busy, move).step
        node.paused = step == "Pause"
        if step == "Move" and goal is not None:
            self.result.migrations += 1
            self.result.lost += self.options.pause
            node.guest, node.leaves = None, self.options.pause
            goal.guest, goal.arrives, goal.paused = guest, self.options.pause, False
        elif step == "Queue":
            self.result.evictions += 1
            node.guest, node.leaves = None, self.options.pause
            self.queue.append(guest)

    def _idle(self) -> _Node | None:
        """Return the least used idle node that is free."""
        return min((n for n in self.nodes if n.free and not n.hosts.busy), key=lambda n: n.hosts.use, default=None)

    def _place(self) -> _Node | None:
        """Return the node for the next guest of the queue; None: there is none."""
        idle = self._idle()
        if idle is not None or not lingers(self.options.policy):
            return idle
        return min((n for n in self.nodes if n.free), key=lambda n: n.hosts.use, default=None)


def simulate(options: Options, *, seed: int = 0) -> Result:
    """Run a simulation."""
    rng = np.random.default_rng(seed)
    windows = max(1, ceil(options.horizon / WINDOW))
    series: Series = options.hosts.draw(options.nodes, windows, rng)
    result = Result(options.policy, windows * WINDOW, options.nodes, idle=float(1.0 - series.busy.mean()))
    if options.parallel > 1:
        return parallel.simulate(options, series, result, rng)
    queue = deque(_Guest(options.work, 0.0) for _ in range(options.guests))
    cluster = _Cluster(options, result, [_Node() for _ in range(options.nodes)], queue)
    bursts = Bursts(options.nodes, rng)
    series.tell((node.hosts for node in cluster.nodes), 0)
    cluster.decide(0.0)
    for at in range(windows):
        cluster.work(*bursts.window(series.use[:, at], options.switch), at * WINDOW)
        series.tell((node.hosts for node in cluster.nodes), at)
        cluster.decide((at + 1) * WINDOW)
    return result
