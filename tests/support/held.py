"""A cluster of modelled applications under a `RateControl`: it hears of their pods each second, and sets their caps."""

import heapq
from dataclasses import dataclass, field, replace
from random import Random

from punctual.control.rate import Pair
from punctual.linger.own_load import own_load
from punctual.rates.control import RateControl
from punctual.rates.model import (
    HoldPod,
    Member,
    MembersSeen,
    PhaseSeen,
    PodsCounted,
    PodsReported,
    RateApplied,
    RateDeleted,
    ReleasePod,
    ReportedPod,
    ScrapedCount,
    TargetRate,
    WriteRate,
)
from punctual.sim.rates.application import Application
from punctual.sim.rates.scenario import EXCHANGES, App
from punctual.sim.rates.slots import Slots

SWITCH = 0.0001
STEERED = 0.0005
"""Error from which on an agent moves a phase, s."""


def rate(uid="a", target=0.4, **more):
    """Return what a TargetRate asks for."""
    return TargetRate(**{"uid": uid, "name": f"default/{uid}", "created": 0.0, "target": target, **more})


def member(pod="p0", node="n0", cpu=1.0, request=0.5, **more):
    """Return a pod."""
    return Member(pod=pod, name=f"default/{pod}", node=node, cpu=cpu, request=request, **more)


class Ranks:
    """The pods of one application, one for each rank; each has one CPU unless a cap says less."""

    def __init__(self, name, *, ranks=2, alone=0.5, ratio=1.0, pattern="all-to-all", seed=0, request=0.5):
        parts = {"compute": alone * ratio / (1 + ratio), "communicate": alone / (1 + ratio)}
        asked = {"id": name, **parts, "ranks": ranks, "pattern": pattern, "targets": [{"at": 0, "rate": 0.4}]}
        self.rng = Random(f"{seed} {name}")
        self.application = Application(App.model_validate(asked, strict=False), self.rng)
        self.pods = [member(f"{name}-{r}", f"n{r}", request=request) for r in range(ranks)]
        self.caps = [None] * ranks
        self.phases = [self.rng.random() for _ in range(ranks)]
        self.supplies = [Slots(Pair(1.0, 1.0), 0.0, 0.0)] * ranks
        self.steered = [0] * ranks
        """How often each rank's phase was moved."""
        self.counts, self.written = [0] * ranks, [0.0] * ranks
        self.base = [0] * ranks
        self.stopped = False
        self.heap = []
        self.begun = False

    def run(self, until):
        """Go on until a time."""
        if not self.begun:
            self.begun = True
            for r in range(len(self.pods)):
                self.application.begin(0.0, r)
                self._predict(r)
        while self.heap and self.heap[0][0] <= until:
            at, r, version = heapq.heappop(self.heap)
            if self.application.ranks[r].version == version:
                self._end(at, r)

    def _end(self, at, r):
        self.application.end(r, 1.0)
        done = (self.application.ranks[r].done + 1) // EXCHANGES
        if done + self.base[r] > self.counts[r] and not self.stopped:
            self.counts[r], self.written[r] = done + self.base[r], at
        free = self.application.free(r)
        for p in free:
            self.application.begin(at, p)
        for p in free:
            self._predict(p)

    def _predict(self, r):
        finish, version = self.application.predict(r, self.supplies[r], 1.0)
        heapq.heappush(self.heap, (finish, r, version))

    def cap(self, at, r, cap, period):
        """Put a cap on a rank's pod, None: take it away."""
        if self.caps[r] == (cap, period):
            return
        self.application.settle(at, r, self.supplies[r], 1.0)
        self.caps[r] = (cap, period)
        whole = cap is None or cap >= 1.0
        pair = Pair(1.0, 1.0) if whole else Pair(period, cap * period)
        self.supplies[r] = Slots(pair, self.phases[r], 0.0 if whole else SWITCH)
        if not self.application.ranks[r].waits:
            self._predict(r)

    def restart(self, r):
        """Let a rank's count begin again at 0."""
        self.base[r], self.counts[r] = self.base[r] - self.counts[r], 0

    def replace(self, r, pod):
        """Let another pod take a rank's place: its count begins at 0, and its periods at any moment."""
        self.pods[r] = self.pods[r]._replace(pod=pod, name=f"default/{pod}")
        self.restart(r)
        self.phases[r], self.caps[r], self.steered[r] = self.rng.random(), None, 0

    def steer(self, r, hold, clock):
        """Do for a pod on the grid what its agent does; return what it reports to a leader with this clock."""
        if hold.grid is None or self.caps[r] is None:
            return None
        begins, error = self.phases[r] * hold.period + clock, None
        if hold.grid.begins is not None:
            error = (begins - hold.grid.begins + hold.period / 2) % hold.period - hold.period / 2
            if abs(error) > STEERED:
                self.steered[r] += 1
                self.phases[r] = (hold.grid.begins - clock) / hold.period % 1.0
        return PhaseSeen(begins, 0.0001, error, 1.0, self.steered[r], 0)


@dataclass
class Held:
    """The cluster. ``statuses``: the last one of each TargetRate; ``holds``: what each pod is held at."""

    ranks: dict
    control: RateControl = field(default_factory=RateControl)
    now: float = 0.0
    holds: dict = field(default_factory=dict)
    statuses: dict = field(default_factory=dict)
    reports: bool = True
    silent: set = field(default_factory=set)
    """Nodes without an agent."""
    clock: float = 0.0
    """By how much the leader's clock is ahead of ``now``."""
    bound: float = 0.0003
    """How well agents know it."""
    throttled: float = 1.0
    """Part of the periods in which pods on the grid use up their slices."""
    short: dict = field(default_factory=dict)
    """What the agents report of pods that are short of memory."""
    writes: bool = True
    scrape: float = 0.0
    """Seconds between two scrapes by Prometheus, the pods one after the other; 0: the counts are read from files."""
    answers: str = ""
    """What is wrong with the answers of Prometheus."""
    scraped: dict = field(default_factory=dict)
    changes: list = field(default_factory=list)
    """(time, hold) of each set point that differs from the one before."""
    inbox: list = field(default_factory=list)
    hogs: dict = field(default_factory=dict)
    """By node, which has one CPU then: its own pods without an end. Other nodes tell no load."""
    loads: dict = field(default_factory=dict)

    def ask(self, uid, target, **more):
        """Create or edit the TargetRate of an application."""
        if self.scrape:
            more = {"query": "n", **more}
        self.inbox += [RateApplied(rate(uid, target, **more)), MembersSeen(uid, tuple(self.ranks[uid].pods))]
        return self

    def delete(self, uid):
        self.inbox.append(RateDeleted(uid))

    def run(self, seconds):
        """Go on, a second at a time: reports, a step, and the agents take over what it says a second later."""
        for _ in range(round(seconds)):
            self.now += 1.0
            for ranks in self.ranks.values():
                ranks.run(self.now)
            self.step()
        return self

    def step(self):
        events, self.inbox = self.inbox, []
        waiting = dict(self.holds)
        lines = {}
        for ranks in self.ranks.values():
            for r, pod in enumerate(ranks.pods):
                if pod.pod not in waiting:
                    ranks.cap(self.now, r, None, 0.0)
                    continue
                hold = waiting[pod.pod]
                cap, period = ranks.caps[r] or (None, None)
                done = ranks.counts[r] if self.writes else None
                written = self.now - ranks.written[r] if self.writes else None
                if cap is not None and cap >= pod.cpu:
                    period = 0.1  # the limit is the pod's own: its period, too
                phase = ranks.steer(r, hold, self.clock)
                throttled = self.throttled if hold.grid else None
                memory = self.short.get(pod.pod)
                line = ReportedPod(pod.pod, done, written, cap, period, phase, throttled, memory)
                lines.setdefault(pod.node, []).append(line)
                ranks.cap(self.now, r, hold.cap, hold.period)
        self.measure()
        if self.reports:
            heard = {node: tuple(seen) for node, seen in lines.items() if node not in self.silent}
            events += [
                PodsReported(node, self.now + self.clock, seen, self.bound, self.loads.get(node))
                for node, seen in heard.items()
            ]
        events += self.counted()
        for action in self.control.step(self.now + self.clock, events):
            match action:
                case HoldPod():
                    self.holds[action.pod] = action
                    self.changes.append((self.now, action))
                case ReleasePod():
                    del self.holds[action.pod]
                case WriteRate(uid, status):
                    self.statuses[uid] = status

    def measure(self):
        """Let agents measure the load of their nodes' own work each ten seconds, beside pods that use their caps."""
        for node, hogs in self.hogs.items() if self.now % 10 == 0 else ():
            held = sum(hold.cap for hold in self.holds.values() if hold.node == node)
            self.loads[node] = own_load([(1.0 - held) / hogs] * hogs if hogs else [], held, 1.0)

    def counted(self):
        """Let Prometheus scrape the pods that are due, and ask it every three seconds."""
        found = []
        for uid, ranks in self.ranks.items() if self.scrape else ():
            for r, pod in enumerate(ranks.pods):
                if (self.now - r) % self.scrape == 0:
                    self.scraped[pod.pod] = ScrapedCount(pod.pod, ranks.counts[r], self.now)
            if self.now % 3 == 0:
                counts = () if self.answers else tuple(c for c in self.scraped.values() if c.pod.startswith(uid))
                found.append(PodsCounted(uid, "n", self.now, counts, self.answers))
        return found

    def rate_of(self, uid, seconds):
        """Return the slowest pod's iterations a second over the next seconds."""
        before = list(self.ranks[uid].counts)
        self.run(seconds)
        return min(after - b for after, b in zip(self.ranks[uid].counts, before, strict=True)) / seconds

    def led_anew(self, *, clock=0.0):
        """Return the same cluster under a new leader. From now on, agents give moments on that leader's clock."""
        holds = {
            pod: replace(hold, grid=hold.grid and replace(hold.grid, begins=None)) for pod, hold in self.holds.items()
        }
        return replace(self, control=RateControl(), inbox=[], changes=[], statuses={}, holds=holds, clock=clock)

    def restore(self, uid, record, **more):
        """Let the leader go on from the status of a TargetRate."""
        asked = rate(uid, record.target, **more)
        self.inbox += [RateApplied(asked, record), MembersSeen(uid, tuple(self.ranks[uid].pods))]
        return self

    def elsewhere(self, record, uid):
        """Return the same cluster under a new leader, which has the status of a TargetRate to go on from."""
        return self.led_anew().restore(uid, record)
