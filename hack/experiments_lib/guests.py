"""Guests on a node with work of its own: how far that work feels them, and how much of the rest they use.

The node has one CPU of the machine for itself. Its own work is a web server that is asked at a fixed rate all the time,
or a benchmark that takes the whole CPU. Guests fill the node with work that never ends. Runs without guests (*alone*)
and with them alternate. Before a benchmark with guests, the node is idle and guests have all of it, so it also shows
how fast guests yield.

Guests that only compute stand still meanwhile. Guests that fill memory or the disk are removed, as what they hold would
stay.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from random import Random
from statistics import median, quantiles
from typing import Any, NamedTuple, TypeVar

import numpy as np
from lib.testbed import Json

from experiments_lib.ground import NAMESPACE, Ground
from experiments_lib.host import PORT, SERVER, Client, ask
from experiments_lib.pinned import CPU, Counters, Watched, limited, pinned
from experiments_lib.samples import Spread

T = TypeVar("T")

POOL, JOB = "experiments-guests", "filler"
REQUESTS = ("500m", "100m")
"""What the node's own pod requests: half the node, and a tenth of it."""
RATE = 150.0
"""Requests for the web server in a second."""
ROUND = 0.002
"""CPU seconds of a request."""
BENCHMARK = 2.0
"""CPU seconds of the benchmark."""
RUN, SETTLE = 10.0, 1.5
"""Seconds of a run of the web server, and before it, until all that stood still runs."""
RAMP = 10.0
"""Seconds from a guest's start until it may have all that is left: its cap rises by a tenth of the node a second."""
FLOOR = 0.011
"""Cores: a cap below is the floor."""
DRAWS, POOLED_DRAWS = 10_000, 2000
"""Of the bootstrap: of ratios, and of runs with all their answers."""
UNIT = 0.05
"""CPU seconds of a guest's unit."""
BURNS = f"""
import time
from punctual import worker

for unit in worker.units():
    end = time.process_time() + {UNIT}
    while time.process_time() < end:
        pass
"""
HOLDS = f"""
import random, time
from punctual import worker

BLOCK = 32 << 20
held = []
for unit in worker.units():
    end = time.process_time() + {UNIT}
    if len(held) < 80:
        held.append(bytearray(BLOCK))
        held[-1][::4096] = bytes(BLOCK // 4096)
    while time.process_time() < end:
        block, at = random.choice(held), random.randrange(BLOCK - 4096)
        block[at : at + 4096] = block[at // 2 : at // 2 + 4096]
"""
"""Takes 32 MiB with each unit, up to 2.5 GiB, and writes to all of it in no order."""
WRITES = f"""
import os, time
from punctual import worker

BLOCK = os.urandom(4 << 20)
for unit in worker.units():
    end = time.process_time() + {UNIT}
    with open(f"/tmp/{{unit % 64}}", "wb") as file:
        file.write(BLOCK)
    while time.process_time() < end:
        pass
"""
"""Writes 4 MiB with each unit, into 64 files in turn."""


class Filling(NamedTuple):
    """What guests do, and when they do it."""

    program: str
    requests: tuple[str, ...]
    """What the node's own pod requests, in turn."""
    cores: float
    """CPU of the node that guests have before a benchmark."""
    stays: bool
    """The guests stand still while the node's own work is alone, in place of being removed."""
    memory: int = 0
    """MiB of the node; 0: all that the machine has."""
    available: float = 1.0
    """Part of the node's memory of which no more is available once guests have filled it."""


FILLINGS = {
    "guests": Filling(BURNS, REQUESTS, 0.85, stays=True),
    "guests-memory": Filling(HOLDS, REQUESTS[:1], 0.85, stays=False, memory=3072, available=0.13),
    "guests-disk": Filling(WRITES, REQUESTS[:1], 0.3, stays=False),
}
"""By experiment."""


class Run(NamedTuple):
    """One run: what the node's own work says of it, and what guests had."""

    value: float
    """The p99 of the answers, or the time of the benchmark; seconds."""
    guests: float
    """CPU that guests used, cores."""
    left: float
    """CPU that they used or left idle, cores."""
    rest: float
    """CPU of the node that its own work did not use, cores: also what the machine took."""
    available: float
    """Part of the node's memory that was available at the end."""
    floor: float | None = None
    """Seconds from the beginning until the cap of guests was at its floor; None: it was there before."""


class Guests:
    """The guests of a node: one job that never ends. They run, or the node's own work is alone."""

    def __init__(self, ground: Ground, watched: Watched, filling: Filling) -> None:
        self.watched = watched
        self._ground = ground
        self._filling = filling
        self._there = False

    def let(self, *, run: bool, fill: bool = False) -> bool:
        """Have the guests run, or not. With ``fill`` they have all that is left of an idle node.

        Returns whether they began anew.
        """
        anew = run and not self._there
        if anew:
            # a job's first chunks are short, and the memory of a chunk goes with it: say that units are cheap
            spec = {"cost": {"perUnit": f"{1000 * UNIT / 5:.0f}ms"}}
            self._ground.create(endless(JOB, POOL, self._ground.image, program=self._filling.program, **spec))
            self._there = True
        elif not run and self._there and not self._filling.stays:
            self._ground.kubectl.run("delete", "divisiblejob", JOB, "-n", NAMESPACE)
            self._ground.until(lambda: not self.watched.pods(), within=60, what="the guests to be gone")
            self._there = False
        self.watched.freeze(frozen=not run)
        if run:
            cores = self._filling.cores if fill else 0.0
            self._ground.until(lambda: self._full(cores), within=120, what="guests to fill the node")
        return anew

    def _full(self, cores: float) -> bool:
        before = self.watched.counters()
        time.sleep(0.5)
        after = self.watched.counters()
        if after.available > self._filling.available:
            return False
        return after.guests - before.guests > cores * (after.at - before.at)


def run(ground: Ground, name: str, pairs: int) -> Iterator[Json]:
    """Run all pairs of an experiment; yield what is known: the ratios, the harvest, and how fast guests yield."""
    filling = FILLINGS[name]
    node = ground.nodes[0]
    rest = set(range(os.cpu_count() or 1)) - {CPU}
    with (
        pinned({one: {CPU} if one == node else rest for one in ground.every_node()}, own=rest),
        limited(node, filling.memory),
        Watched(node) as watched,
    ):
        ground.pool(POOL, node)
        guests = Guests(ground, watched, filling)
        guests.let(run=True, fill=True)
        killed = _killed()
        found: dict[str, Json] = {}
        for request in filling.requests:
            address = _server(ground, node, request)
            alike = request == REQUESTS[0]  # alone, a request changes nothing
            web, answers = _web(ground, guests, address, pairs, alike=alike)
            found[request] = {
                "web": {**_told(web), "pooled": pooled(answers)},
                "benchmark": _told(_benchmark(ground, guests, address, pairs, alike=alike)),
            }
            ground.kubectl.run("delete", "pod", "host", "-n", NAMESPACE)
            told = {"name": name, "pairs": pairs, "rate": RATE, "round": ROUND, "seconds": RUN}
            yield {**told, "killed": _killed() - killed, "requests": found}


def endless(name: str, pool: str, image: str, *, program: str = BURNS, **spec: Any) -> Json:
    """Return a guest job that never ends."""
    container = {"name": "main", "image": image, "command": ["python3", "-c", program]}
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "DivisibleJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "class": "Guest",
            "pool": pool,
            "units": 10_000_000,
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}},
            **spec,
        },
    }


def _killed() -> int:
    """Return how many programs the kernel has killed for lack of memory since it started."""
    with open("/proc/vmstat", encoding="ascii") as file:  # noqa: PTH123
        return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))


def _server(ground: Ground, node: str, request: str) -> str:
    """Start the node's own pod; return its address."""
    body = ground.pod("host", node, ["python3", "-c", SERVER, str(PORT)])
    body["spec"]["hostNetwork"] = True  # no program between it and its client
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": request}}
    ground.create(body)
    pod = ground.until(lambda: ground.pods().get("host"), within=60, what="the web server to run")
    address = str(pod["status"]["hostIP"])

    def answers() -> bool:
        try:
            return ask(address, 1) > 0.0
        except OSError:
            return False

    ground.until(answers, within=30, what="the web server to answer")
    return address


def _rounds(guests: Guests, address: str, seconds: float) -> int:
    """Return how many rounds take so long alone."""
    guests.let(run=False)
    time.sleep(SETTLE)
    each = median(ask(address, 20_000) for _ in range(5)) / 20_000
    guests.let(run=True)
    return round(seconds / each)


def _orders(pairs: int, *, alike: bool) -> list[bool]:
    """Return whether guests run in each run: alone, (alone,) with guests, and the other way round next time."""
    one = [False, False, True] if alike else [False, True]
    return [guests for k in range(pairs) for guests in (one if k % 2 == 0 else one[::-1])]


def _web(
    ground: Ground, guests: Guests, address: str, pairs: int, *, alike: bool
) -> tuple[list[tuple[bool, Run]], list[tuple[bool, list[float]]]]:
    """Return what is known of each run, and the seconds of all its answers."""
    order = _orders(pairs, alike=alike)
    ground.say(f"web server, {len(order)} runs")
    rounds = _rounds(guests, address, ROUND)
    client = Client(address, rounds=rounds, rate=RATE, seconds=3600.0)
    windows: list[tuple[bool, Counters, Counters]] = []
    try:
        time.sleep(RAMP)
        for running in order:
            time.sleep(RAMP if guests.let(run=running) else SETTLE)
            before = guests.watched.counters()
            time.sleep(RUN)
            windows.append((running, before, guests.watched.counters()))
    finally:
        answers = client.close()
    found, times = [], []
    for running, before, after in windows:
        took = [one for at, one in answers if before.at <= at < after.at]
        found.append((running, _run(quantiles(took, n=100)[98], before, after)))
        times.append((running, took))
    return found, times


def _benchmark(ground: Ground, guests: Guests, address: str, pairs: int, *, alike: bool) -> list[tuple[bool, Run]]:
    order = _orders(pairs, alike=alike)
    ground.say(f"benchmark, {len(order)} runs")
    rounds = _rounds(guests, address, BENCHMARK)
    found = []
    for running in order:
        guests.let(run=running, fill=True)
        if not running:
            time.sleep(SETTLE)
        guests.watched.caps.clear()
        before = guests.watched.counters()
        value = ask(address, rounds)
        after = guests.watched.counters()
        one = _run(value, before, after)
        floor = next((at - before.at for at, cap in guests.watched.caps if at >= before.at and cap <= FLOOR), None)
        found.append((running, one._replace(floor=floor if running else None)))
    guests.let(run=True)
    return found


def _run(value: float, before: Counters, after: Counters) -> Run:
    seconds = after.at - before.at
    theirs = after.guests - before.guests
    own = after.node - before.node - theirs
    return Run(
        value,
        theirs / seconds,
        (theirs + after.idle - before.idle) / seconds,
        max(0.0, 1.0 - own / seconds),
        after.available,
    )


def _told(runs: list[tuple[bool, Run]]) -> Json:
    """Return ratios of neighbours: with guests over alone, and the later over the earlier where both are alone."""
    kept = [one for running, one in runs if running]
    quiet = [one for running, one in runs if not running]
    beside, alone = ratios([(running, one.value) for running, one in runs])
    floors = [one.floor for one in kept if one.floor is not None]
    return {
        "runs": [[running, *(None if x is None else round(x, 6) for x in one)] for running, one in runs],
        "alone": asdict(Spread.of([one.value for one in quiet])),
        "guests": asdict(Spread.of([one.value for one in kept])),
        "ratio": limits(beside),
        "noise": limits(alone) if alone else None,
        "stood_still": max(one.guests for one in quiet),
        "harvest": sum(one.guests for one in kept) / sum(one.left for one in kept),
        "harvest_of_node": sum(one.guests for one in kept) / sum(one.rest for one in kept),
        "floor": asdict(Spread.of(floors)) if floors else None,
        "available": {
            "alone": asdict(Spread.of([one.available for one in quiet])),
            "guests": asdict(Spread.of([one.available for one in kept])),
        },
        "not_at_floor": len(kept) - len(floors),
    }


def ratios(runs: list[tuple[bool, float]]) -> tuple[list[float], list[float]]:
    """Return each run with guests over the run alone beside it, and the later over the earlier of two runs alone.

    Ratios of different blocks share no run.
    """
    beside, alone = [], []
    for block in _blocks(runs):
        kept = next(value for running, value in block if running)
        quiet = [value for running, value in block if not running]
        beside.append(kept / quiet[-1 if block[-1][0] else 0])
        alone += [later / earlier for earlier, later in pairwise(quiet)]
    return beside, alone


def pooled(runs: list[tuple[bool, list[float]]], *, seed: int = 0) -> Json:
    """Return the ratio of the p99 of all answers beside guests to that of all answers alone, with its limits at 95 %.

    The bootstrap draws whole blocks, because answers of one run are alike. `noise` is the same for the later and the
    earlier of two runs alone; None: no block has two.
    """
    blocks = _blocks(runs)
    with_guests = [[took for running, took in block if running] for block in blocks]
    alone = [[took for running, took in block if not running] for block in blocks]
    twice = all(len(one) == 2 for one in alone)
    return {
        "answers": sum(len(took) for _, took in runs),
        "ratio": _drawn(with_guests, alone, seed),
        "noise": _drawn([one[1:] for one in alone], [one[:1] for one in alone], seed) if twice else None,
    }


def _drawn(over: list[list[list[float]]], under: list[list[list[float]]], seed: int) -> Json:
    """Return a ratio of p99s of all answers, and the interval that holds it with 95 %. By block, by run."""
    random = Random(seed)

    def p99(runs: list[list[list[float]]], chosen: list[int]) -> float:
        return float(np.percentile([one for k in chosen for took in runs[k] for one in took], 99))

    every = list(range(len(over)))
    draws = (random.choices(every, k=len(every)) for _ in range(POOLED_DRAWS))
    return {
        "median": p99(over, every) / p99(under, every),
        **_interval([p99(over, chosen) / p99(under, chosen) for chosen in draws]),
    }


def _interval(drawn: list[float]) -> Json:
    """Return the ends of the interval that holds 95 % of what the bootstrap has drawn."""
    drawn = sorted(drawn)
    return {"low": drawn[round(0.025 * len(drawn))], "high": drawn[round(0.975 * len(drawn)) - 1]}


def _blocks(runs: list[tuple[bool, T]]) -> list[list[tuple[bool, T]]]:
    """Return the blocks in which the runs come: one run with guests, and one or two alone."""
    size = len(runs) // sum(running for running, _ in runs)
    return [runs[at : at + size] for at in range(0, len(runs), size)]


def limits(found: list[float], *, seed: int = 0) -> Json:
    """Return the median of ratios, with the ends of the interval that holds it with 95 % (bootstrap)."""
    random = Random(seed)
    return {
        "median": median(found),
        **_interval([median(random.choices(found, k=len(found))) for _ in range(DRAWS)]),
        "count": len(found),
        "all": [round(one, 5) for one in found],
    }
