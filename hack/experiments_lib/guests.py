"""Guests on a node with work of its own: how far that work feels them, and how much of the rest they use.

The node has one CPU of the machine for itself. Its own work is a web server that is asked at a fixed rate all the time,
or a benchmark that takes the whole CPU. Guests fill the node with work that never ends. Runs with guests that stand
still (*alone*) and with guests that run alternate. Before a benchmark with guests, the node is idle and guests have all
of it, so it shows also how fast guests yield.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from random import Random
from statistics import median, quantiles
from typing import Any, NamedTuple

from experiments_lib.ground import NAMESPACE, Ground, Json
from experiments_lib.host import PORT, SERVER, Client, ask
from experiments_lib.pinned import Counters, Watched, pinned
from experiments_lib.samples import Spread

POOL = "experiments-guests"
REQUESTS = ("500m", "100m")
"""What the node's own pod requests: half the node, and a tenth of it."""
RATE = 150.0
"""Requests for the web server in a second."""
ROUND = 0.002
"""CPU seconds of a request."""
BENCHMARK = 2.0
"""CPU seconds of the benchmark."""
RUN, SETTLE = 5.0, 1.5
"""Seconds of a run of the web server, and before it, until all that stood still runs."""
FULL, FILLING = 0.85, 40.0
"""CPU of the node that guests have before a benchmark, and the most seconds until then."""
FLOOR = 0.011
"""Cores: a cap below is the floor."""
DRAWS = 10_000
"""Of the bootstrap."""
BURNS = """
import time
from punctual import worker

for unit in worker.units():
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
"""


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
    floor: float | None = None
    """Seconds from the beginning until the cap of guests was at its floor; None: it was there before."""


def run(ground: Ground, pairs: int) -> Iterator[Json]:
    """Run all pairs; yield the ratios, the harvest, and how fast guests yield, as far as they are known."""
    node = ground.nodes[0]
    nodes = [one["metadata"]["name"] for one in ground.kubectl.get("nodes")["items"]]
    with pinned({name: name == node for name in nodes}), Watched(node) as guests:
        ground.pool(POOL, node)
        _fill(ground, guests)
        found: dict[str, Json] = {}
        for request in REQUESTS:
            address = _server(ground, node, request)
            alike = request == REQUESTS[0]  # alone, a request changes nothing
            found[request] = {
                "web": _told(_web(ground, guests, address, pairs, alike=alike)),
                "benchmark": _told(_benchmark(ground, guests, address, pairs, alike=alike)),
            }
            ground.kubectl.run("delete", "pod", "host", "-n", NAMESPACE)
            yield {"pairs": pairs, "rate": RATE, "round": ROUND, "seconds": RUN, "requests": found}


def endless(name: str, pool: str, image: str, **spec: Any) -> Json:
    """Return a guest job that never ends."""
    container = {"name": "main", "image": image, "command": ["python3", "-c", BURNS]}
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "DivisibleJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "class": "Guest",
            "pool": pool,
            "units": 10_000_000,
            "template": {"spec": {"containers": [container]}},
            **spec,
        },
    }


def _fill(ground: Ground, guests: Watched) -> None:
    """Have a guest job without an end, and see it use the node."""
    ground.create(endless("filler", POOL, ground.image))
    ground.until(lambda: _full(guests), within=120, what="guests to fill the node")


def _full(guests: Watched) -> bool:
    before = guests.counters()
    time.sleep(0.5)
    after = guests.counters()
    return after.guests - before.guests > FULL * (after.at - before.at)


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


def _rounds(guests: Watched, address: str, seconds: float) -> int:
    """Return how many rounds take so long alone."""
    guests.freeze(frozen=True)
    time.sleep(SETTLE)
    each = median(ask(address, 20_000) for _ in range(5)) / 20_000
    guests.freeze(frozen=False)
    return round(seconds / each)


def _orders(pairs: int, *, alike: bool) -> list[bool]:
    """Return whether guests run in each run: alone, (alone,) with guests, and the other way round next time."""
    one = [False, False, True] if alike else [False, True]
    return [guests for k in range(pairs) for guests in (one if k % 2 == 0 else one[::-1])]


def _web(ground: Ground, guests: Watched, address: str, pairs: int, *, alike: bool) -> list[tuple[bool, Run]]:
    order = _orders(pairs, alike=alike)
    ground.say(f"web server, {len(order)} runs")
    rounds = _rounds(guests, address, ROUND)
    client = Client(address, rounds=rounds, rate=RATE, seconds=3600.0)
    windows: list[tuple[bool, Counters, Counters]] = []
    try:
        time.sleep(10.0)  # until guests have what this work leaves
        for running in order:
            guests.freeze(frozen=not running)
            time.sleep(SETTLE)
            before = guests.counters()
            time.sleep(RUN)
            windows.append((running, before, guests.counters()))
    finally:
        guests.freeze(frozen=False)
        answers = client.close()
    found = []
    for running, before, after in windows:
        took = [one for at, one in answers if before.at <= at < after.at]
        found.append((running, _run(quantiles(took, n=100)[98], before, after)))
    return found


def _benchmark(ground: Ground, guests: Watched, address: str, pairs: int, *, alike: bool) -> list[tuple[bool, Run]]:
    order = _orders(pairs, alike=alike)
    ground.say(f"benchmark, {len(order)} runs")
    rounds = _rounds(guests, address, BENCHMARK)
    found = []
    for running in order:
        guests.freeze(frozen=not running)
        if running:
            ground.until(lambda: _full(guests), within=FILLING, what="guests to fill the node")
        else:
            time.sleep(SETTLE)
        guests.caps.clear()
        before = guests.counters()
        value = ask(address, rounds)
        after = guests.counters()
        one = _run(value, before, after)
        floor = next((at - before.at for at, cap in guests.caps if at >= before.at and cap <= FLOOR), None)
        found.append((running, one._replace(floor=floor if running else None)))
    guests.freeze(frozen=False)
    return found


def _run(value: float, before: Counters, after: Counters) -> Run:
    seconds = after.at - before.at
    theirs = after.guests - before.guests
    own = after.node - before.node - theirs
    return Run(value, theirs / seconds, (theirs + after.idle - before.idle) / seconds, max(0.0, 1.0 - own / seconds))


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
        "not_at_floor": len(kept) - len(floors),
    }


def ratios(runs: list[tuple[bool, float]]) -> tuple[list[float], list[float]]:
    """Return each run with guests over the run alone beside it, and the later over the earlier of two runs alone.

    The runs come in blocks of one with guests and one or two alone. Ratios of different blocks share no run.
    """
    size = len(runs) // sum(running for running, _ in runs)
    blocks = [runs[at : at + size] for at in range(0, len(runs), size)]
    beside, alone = [], []
    for block in blocks:
        kept = next(value for running, value in block if running)
        quiet = [value for running, value in block if not running]
        beside.append(kept / quiet[-1 if block[-1][0] else 0])
        alone += [later / earlier for earlier, later in pairwise(quiet)]
    return beside, alone


def limits(found: list[float], *, seed: int = 0) -> Json:
    """Return the median of ratios, with the ends of the interval that holds it with 95 % (bootstrap)."""
    random = Random(seed)
    drawn = sorted(median(random.choices(found, k=len(found))) for _ in range(DRAWS))
    return {
        "median": median(found),
        "low": drawn[round(0.025 * DRAWS)],
        "high": drawn[round(0.975 * DRAWS) - 1],
        "count": len(found),
        "all": [round(one, 5) for one in found],
    }
