"""Closed loop: a node that suddenly has half its CPU, and a chunk that has less time than the others on it.

The agent keeps the chunk on its line. The node's other processors work on a job with time. Measured is how far the
chunk's progress falls, and when it is back. The same is measured of the delay from the edit of a Pool to its chunks'
cgroups: the edit changes the period of all limits, which no controller moves.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from lib.testbed import Json

from experiments_lib import samples, watching
from experiments_lib.ground import CPU, NAMESPACE, SAFETY, Ground
from experiments_lib.programs import PAGERANK, PROGRAMS, Program
from experiments_lib.samples import Recovery, Spread
from punctual.labels import JOB_LABEL

REPEATS = 3
BEFORE, HALVED, AFTER = 8.0, 20.0, 10.0
"""Seconds: to see the usual rate, with half the CPU, and to recover."""
EVERY = 0.25
BAND, WINDOW = 0.15, 4.0
WARM = 10.0
"""Seconds until a chunk's controller knows it."""
SPARE = 5.0
"""Seconds that the urgent job has beyond its own time: with more, it would not need its speed back."""
EDITS = 6
CONTROLS = ("Feedback", "None")
OTHER = PAGERANK
"""Program of the job with time."""


def run(ground: Ground) -> Json:
    """Halve the nodes' CPU while each program is urgent; return how its progress came back, with and without control.

    One node has control and the other has none; both are halved at the same moments.
    """
    pools = dict(zip(CONTROLS, ground.nodes, strict=True))
    processors = {
        control: ground.pool(_pool(control), node, progressControl=control, headroom="0%")
        for control, node in pools.items()
    }
    found = {program.name: _program(ground, program, processors) for program in PROGRAMS}
    return {"before": BEFORE, "halved": HALVED, "after": AFTER, "band": BAND, "window": WINDOW, "programs": found}


def _pool(control: str) -> str:
    return f"experiments-{control.lower()}"


def _program(ground: Ground, program: Program, processors: dict[str, int]) -> Json:
    ground.say(program.name)
    lasts = WARM + REPEATS * (BEFORE + HALVED + AFTER)
    for control, count in processors.items():
        _submit(ground, _pool(control), program, count, lasts)
    for control, (node, count) in zip(CONTROLS, zip(ground.nodes, processors.values(), strict=True), strict=True):
        pods = _chunks(ground, _pool(control), count)
        watching.begin(ground, f"recorder-{control.lower()}", node, pods, every=EVERY, seconds=lasts)
    time.sleep(WARM)
    moments = []
    for _ in range(REPEATS):
        time.sleep(BEFORE)
        moments.append(time.time())
        ground.give(0.5)
        time.sleep(HALVED)
        ground.give(1.0)
        time.sleep(AFTER)
    result = {}
    for control in CONTROLS:
        seen = watching.end(ground, f"recorder-{control.lower()}", within=60)
        track = seen["urgent"].units
        found = [samples.recovery(track, at, before=BEFORE, until=HALVED, band=BAND, window=WINDOW) for at in moments]
        tracks = {name: _shown(one, moments[0]) for name, one in sorted(seen.items())}
        result[control] = {**_told(found), "tracks": tracks}
    _clear(ground)
    return result


def _submit(ground: Ground, pool: str, program: Program, processors: int, lasts: float) -> None:
    """Submit a job of one chunk that has little time, and one for the other processors that has much."""
    cost, theirs = (SAFETY * ground.costs[one.name].seconds(CPU) for one in (program, OTHER))
    urgent = ground.startup(program) + 1.2 * lasts + SPARE
    for name, what, units, count, deadline in (
        ("urgent", program, 1.2 * lasts / cost, 1, urgent),
        ("relaxed", OTHER, 5 * lasts * (processors - 1) / theirs, processors - 1, 10 * lasts),
    ):
        body = ground.job(
            f"{name}-{pool}",
            pool,
            what,
            units=round(units),
            deadline=deadline,
            processors={"min": count, "max": count},
        )
        ground.create(body)


def _chunks(ground: Ground, pool: str, count: int) -> dict[str, str]:
    """Wait until all chunks of a pool run; return {uid: name}."""

    def chunks() -> dict[str, str]:
        found: dict[str, str] = {}
        for job in ("urgent", "relaxed"):
            pods = ground.pods(f"{JOB_LABEL}={job}-{pool}").values()
            uids = sorted(watching.uid(pod) for pod in pods)
            found |= {one: job if job == "urgent" else f"{job}-{k}" for k, one in enumerate(uids)}
        return found if len(found) == count else {}

    found: dict[str, str] = ground.until(chunks, within=90, what=f"{count} chunks to run in pool {pool}")
    return found


def _clear(ground: Ground) -> None:
    ground.kubectl.run("delete", "divisiblejobs", "--all", "-n", NAMESPACE)
    ground.until(lambda: not ground.pods(JOB_LABEL), within=60, what="the chunks to go")


def _told(found: list[Recovery]) -> Json:
    known = [one.seconds for one in found if one.seconds is not None]
    return {
        "depth": asdict(Spread.of([one.depth for one in found])),
        "seconds": asdict(Spread.of(known)) if known else None,
        "not_back": len(found) - len(known),
    }


def _shown(seen: watching.Seen, origin: float) -> Json:
    """Return progress rates over a second, and the limits, from shortly before the first disturbance on."""
    last = seen.units[-1][0]
    times = [origin - BEFORE + k for k in range(int(last - origin + BEFORE))]
    rates = [samples.at(seen.units, t + 1) - samples.at(seen.units, t) for t in times]
    return {
        "time": [round(t + 0.5 - origin, 2) for t in times],
        "units_per_second": [round(rate, 2) for rate in rates],
        "limits": [[round(at - origin, 2), round(cores, 4)] for at, cores, _ in seen.caps],
    }


def delay(ground: Ground) -> Json:
    """Change the period of a Pool's processors again and again; return when the cgroups of its chunks follow."""
    node, pool = ground.nodes[0], "experiments-delay"
    processors = ground.pool(pool, node, progressControl="Feedback", headroom="0%")
    lasts = 5.0 + 3.5 * EDITS + 5.0
    _submit(ground, pool, PROGRAMS[0], processors, 2 * lasts)
    pods = _chunks(ground, pool, processors)
    watching.begin(ground, "recorder", node, pods, every=0.02, seconds=lasts)
    time.sleep(3.0)
    edits = []
    for k in range(EDITS):
        wanted = 0.05 if k % 2 == 0 else 0.1
        asked = time.time()
        patch = {"spec": {"processor": {"period": f"{1000 * wanted:.0f}ms"}}}
        ground.kubectl.run("patch", "pool", pool, "--type=merge", "-p", json.dumps(patch))
        edits.append((asked, time.time(), wanted))
        time.sleep(2.8 + 0.137 * k)  # at another phase of the agent's second
    seen = watching.end(ground, "recorder", within=60)
    _clear(ground)
    found = [
        next(t for t, _, period in one.caps if t > asked and period == wanted) - answered
        for one in seen.values()
        for asked, answered, wanted in edits
    ]
    return {"edits": EDITS, "chunks": processors, "delay": asdict(Spread.of(found)), "all": sorted(found)}
