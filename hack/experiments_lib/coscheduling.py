"""Aligned slices: a parallel program on two nodes of one CPU each, beside work that takes all CPU that it gets.

Punctual aligns the ranks (*aligned*). In the other arms the experiment itself writes caps, weights and phases, while no
TargetRate is there: the same cap and weight at random phases (*uncoordinated*) and half a period apart (*apart*), and
neither cap nor raised weight (*none*). All arms run in each block, in random order. The program runs on meanwhile, so
its iterations are the same in all arms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from random import Random
from statistics import fmean, median, quantiles

from lib import testbed
from lib.machine import docker
from lib.testbed import SYSTEM, Json

from experiments_lib.application import NAME, PERIOD, POOL, SHARE, Application, Program, run_of, target
from experiments_lib.ground import NAMESPACE, Ground
from experiments_lib.pinned import modest, pinned
from punctual.control.phase import wrap
from punctual_agent.cgroup import Cap

GRAINS = (0.2, 1.0, 5.0, 20.0)
PROGRAMS = (
    *(Program(wait, grain) for wait in ("spin", "block") for grain in GRAINS),
    Program("Open MPI", 2.0),
    Program("MPICH", 2.0),
)
SHORT = (Program("spin", 1.0), Program("block", 1.0), Program("Open MPI", 2.0))
FEW = 3
"""Blocks of a short run."""
SWEPT = (Program("spin", 1.0), Program("spin", 5.0))
ARMS = ("aligned", "uncoordinated", "apart", "none")
RUN, SETTLE = 2.5, 0.5
"""Seconds of a run, and before it."""
APART = 10
"""Phase differences of a sweep over a period."""
LONG = "100ms"
"""The pool's longest slice: no arm is to be held back by it."""
SLICES = {"50 ms": 0.1, "12.5 ms": 0.025}
"""Slices beside the interactive program, with their periods."""
SHOWN = 0.4
"""Seconds that the picture of slices shows."""
BEFORE, AFTER = 20.0, 60.0
"""Seconds before an agent is killed, and after it."""
WATCHED = 20.0
"""Seconds after a new leader began, after which phases are looked at."""


def run(ground: Ground, *, blocks: int, short: bool, kept: Json, seed: int = 1) -> Iterator[Json]:
    """Run all; yield what is known after each part. ``kept``: points of a run that was broken off, which stay."""
    random = Random(seed)
    every = set(range(os.cpu_count() or 1))
    cpus = {node: {k} for k, node in enumerate(ground.nodes)}
    image = testbed.example_image("mpi")
    with (
        modest(ground.nodes),
        pinned({node: cpus.get(node, every) for node in ground.every_node()}, own=every),
    ):
        ground.pool(POOL, *ground.nodes, maxSlice=LONG)
        experiment = Experiment(ground, Application(ground, image), random)
        experiment.application.begin()
        blocks = min(blocks, FEW) if short else blocks
        asked = {"blocks": blocks, "short": short, "run": RUN, "share": SHARE, "period": PERIOD}
        told: Json = {"programs": {}, **kept, **asked}
        for program in SHORT if short else PROGRAMS:
            if program.key in told["programs"]:
                continue
            ground.say(program.key)
            told["programs"][program.key] = experiment.arms(program, blocks)
            yield told
        if short:
            return
        told["sweep"] = {program.key: experiment.sweep(program) for program in SWEPT}
        yield told
        told |= experiment.faults(Program("spin", 1.0))
        yield told
        experiment.application.interactive()
        told["interactive"] = experiment.waits(Program("spin", 1.0), blocks)
        yield told


class Experiment:
    """The arms and what is measured in them."""

    def __init__(self, ground: Ground, application: Application, random: Random) -> None:
        self.application = application
        self._ground, self._random = ground, random

    # the parts

    def arms(self, program: Program, blocks: int) -> Json:
        """Run all arms of a program in each block."""
        self.application.start(program)
        found = []
        for _ in range(blocks):
            block = {}
            for arm in self._random.sample(ARMS, len(ARMS)):
                with self._arm(arm, program):
                    block[arm] = self._measured(program)
                    if arm == "aligned":
                        block[arm] |= self._seen()
            found.append(block)
        told: Json = {"runs": found, "ratios": {}}
        for arm in ARMS[1:]:
            told["ratios"][arm] = quartiles([_over(one["aligned"]["rate"], one[arm]["rate"]) for one in found])
        if program == SWEPT[0]:
            told["slices"] = {arm: self._slices(arm, program) for arm in ("uncoordinated", "aligned")}
        return told

    def sweep(self, program: Program) -> list[list[float]]:
        """Return the rate at each difference of the ranks' phases, in turn from 0 to a whole period."""
        self.application.start(program)
        found = []
        for k in self._random.sample(range(APART), APART):
            difference = k * PERIOD / APART
            with self._held(PERIOD, difference):
                found.append([round(difference, 4), self._measured(program)["rate"]])
        return sorted(found)

    def faults(self, program: Program) -> Json:
        """Kill an agent, and let another operator lead."""
        self.application.start(program)
        with self._arm("aligned", program):
            before = self._measured(program, BEFORE)
            node, agent = self.application.nodes[0].name, self.application.agents[0]
            docker("exec", node, "sh", "-ec", testbed.signalling(testbed.container(agent), "KILL"))
            after = self._measured(program, AFTER)
            moved = self._takeover()
        return {"killed": {"before": before, "after": after}, "takeover": moved}

    def waits(self, program: Program, blocks: int) -> Json:
        """Return how long an interactive program waits beside aligned and uncoordinated slices of some lengths, ms."""
        self.application.start(program)
        found: Json = {length: {arm: [] for arm in ARMS[:2]} for length in SLICES}
        for _ in range(blocks):
            for length, period in self._random.sample(sorted(SLICES.items()), len(SLICES)):
                for arm in self._random.sample(ARMS[:2], 2):
                    with self._arm(arm, program, period):
                        self._measured(program)
                        waits = self.application.waits(time.monotonic() - RUN)
                        found[length][arm].append(round(1000 * fmean(waits), 2) if waits else None)
        return found

    # the arms

    @contextmanager
    def _arm(self, arm: str, program: Program, period: float = PERIOD) -> Iterator[None]:
        context: AbstractContextManager[None]
        match arm:
            case "aligned":
                context = self._aligned(program, period)
            case "uncoordinated":
                context = self._held(period, self._random.uniform(0.0, period))
            case "apart":
                context = self._held(period, period / 2)
            case _:
                context = self._free()
        with context:
            yield

    @contextmanager
    def _aligned(self, program: Program, period: float) -> Iterator[None]:
        """Let Punctual align the ranks."""
        self._ground.create(target(program, longest=period))
        try:
            self._ground.until(self._is_aligned, within=90, what=f"the slices to be aligned: {self._status()}")
            yield
        finally:
            self._ground.kubectl.run("delete", "tr", NAME, "-n", NAMESPACE)
            self._ground.until(self._untouched, within=30, what="the pods to get their limits back")

    def _status(self) -> Json:
        found: Json = self._ground.kubectl.get("tr", NAME, "-n", NAMESPACE).get("status") or {}
        return found

    def _is_aligned(self) -> bool:
        return testbed.condition(self._status(), "Aligned").get("status") == "True"

    def _untouched(self) -> bool:
        return all(rank.untouched for rank in self.application.ranks)

    @contextmanager
    def _held(self, period: float, difference: float) -> Iterator[None]:
        """Give the ranks the same cap and weight by hand, and phases that differ by so much."""
        micros = round(1e6 * period)
        cap = Cap(round(SHARE * micros), micros)
        first, second = self.application.ranks
        try:
            for rank in (first, second):
                rank.hold(cap)
            second.steer(cap, first.phase(period).at + difference)
            yield
        finally:
            for rank in (first, second):
                rank.restore()

    @contextmanager
    def _free(self) -> Iterator[None]:
        """Let ranks and the nodes' own work compete as equals."""
        try:
            for rank in self.application.ranks:
                rank.free(rank.node.common_weight())
            yield
        finally:
            for rank in self.application.ranks:
                rank.restore()

    # what is measured

    def _measured(self, program: Program, seconds: float = RUN) -> Json:
        time.sleep(SETTLE)
        before = self.application.counters()
        time.sleep(seconds)
        return run_of(program, before, self.application.counters())

    def _seen(self) -> Json:
        """Return the difference of the phases, and how late ranks start in some periods, both in ms.

        With them what Punctual says itself: the pair, and its skew.
        """
        status = self._status()
        period = float(status["period"])
        phases = [rank.phase(period) for rank in self.application.ranks]
        starts = []
        for rank, phase in zip(self.application.ranks, phases, strict=True):
            starts += [rank.start(phase.firing(period, time.monotonic() + 0.02)) for _ in range(3)]
        return {
            "status": {name: status.get(name) for name in ("period", "quota", "offset", "skew")},
            "skew": round(1000 * wrap(phases[1].at - phases[0].at, period), 3),
            "half": round(1000 * sum(phase.half for phase in phases), 3),
            "starts": [round(1000 * one, 2) for one in starts if one is not None],
        }

    def _slices(self, arm: str, program: Program) -> list[list[list[float]]]:
        """Return the times, ms, in which each rank runs."""
        with self._arm(arm, program):
            time.sleep(SETTLE)
            clocks = [rank.cpu_clock() for rank in self.application.ranks]
            began, samples = time.monotonic(), []
            while (now := time.monotonic()) < began + SHOWN:
                samples.append((1000 * (now - began), [clock() for clock in clocks]))
                time.sleep(0.0005)
        return [slices([(at, used[k]) for at, used in samples]) for k in range(len(clocks))]

    def _takeover(self) -> list[float]:
        """Let another operator lead; return by how much the phase of each rank has moved, ms."""
        before = [rank.phase(PERIOD).at for rank in self.application.ranks]
        words = ("-n", SYSTEM, "-l", "punctual.dev/leader=true")
        old = self._ground.kubectl.get("pods", *words)["items"][0]["metadata"]["name"]
        epoch = self._status()["epoch"]
        self._ground.kubectl.run("delete", "pod", old, "-n", SYSTEM, "--wait=false")
        self._ground.until(lambda: self._status().get("epoch", 0) > epoch, within=120, what="another operator to lead")
        time.sleep(WATCHED)
        after = [rank.phase(PERIOD).at for rank in self.application.ranks]
        return [round(1000 * wrap(b - a, PERIOD), 3) for a, b in zip(before, after, strict=True)]


def slices(samples: list[tuple[float, float]]) -> list[list[float]]:
    """Return [begin, end] of the times in which a program runs, from samples of (ms, CPU seconds used).

    It runs between two samples if it used a tenth of the time at least.
    """
    found: list[list[float]] = []
    for (begin, used), (end, more) in pairwise(samples):
        if 1000 * (more - used) < 0.1 * (end - begin):
            continue
        if found and found[-1][1] == round(begin, 2):
            found[-1][1] = round(end, 2)
        else:
            found.append([round(begin, 2), round(end, 2)])
    return found


def quartiles(found: list[float]) -> Json:
    """Return the median of ratios with its quartiles."""
    low, _, high = quantiles(found, n=4, method="inclusive") if len(found) > 1 else [*found, *found, *found]
    return {"median": median(found), "low": low, "high": high, "all": [round(one, 4) for one in found]}


def _over(one: float, other: float) -> float:
    """Return a ratio of rates. A rank that stands still for a whole run counts as if it had done one iteration."""
    return one / max(other, 1e-4)
