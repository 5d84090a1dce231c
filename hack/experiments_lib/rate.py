"""Two parallel programs over two nodes, both held at target rates: changed targets, and a stranger on one node.

Rates are measured by a recorder on each node, not by the operator. The target's iteration of control is four seconds,
as the programs' iterations are shorter.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import partial
from itertools import pairwise

from lib.testbed import Json

from experiments_lib import samples, watching
from experiments_lib.ground import NAMESPACE, Ground, target_rate
from experiments_lib.programs import PYTHON
from experiments_lib.samples import Spread, Track
from experiments_lib.solvers import SOLVERS

POOL = "experiments-rate"
LIMIT, REQUEST = 0.25, 0.18
"""Cores of a rank: its limit, and what it requests."""
EPSILON = 0.03
STAGES = ((0.5, 0.3), (0.3, 0.6), (0.6, 0.4))
"""Targets of both programs, one stage after the other. In the last part of the last stage, a stranger takes CPU."""
STAGE, STRANGER = 60.0, 30.0
"""Seconds of a stage, and of the stranger behind the last one."""
CONTROL = 4.0
"""Seconds over which a rate is taken."""
ALONE = 40.0
"""Seconds for the measurement of the rates alone."""


def run(ground: Ground) -> Json:
    """Play all stages; return each program's rates, pairs and times to settle."""
    ground.pool(POOL, *ground.nodes)
    pods = {name: _start(ground, name, text) for name, text in SOLVERS.items()}
    lasts = ALONE + STAGE * len(STAGES) + STRANGER + 20.0
    for at, node in enumerate(ground.nodes):
        uids = {watching.uid(ranks[at]): f"{name}-{at}" for name, ranks in pods.items()}
        watching.begin(ground, f"recorder-{at}", node, uids, every=0.25, seconds=lasts)
    for name in pods:  # one after the other: each is measured alone
        ground.create(target_rate(name, POOL, f"{100 * STAGES[0][0]:g}%", epsilon=f"{100 * EPSILON:g}%"))
        ground.until(partial(_max_rate, ground, name), within=ALONE, what=f"{name}'s rate alone")
    moments = []
    for targets in STAGES:
        for name, target in zip(pods, targets, strict=True):
            patch = {"spec": {"rate": f"{100 * target:g}%"}}
            ground.kubectl.run("patch", "tr", name, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(patch))
        moments.append(time.time())
        ground.say(f"targets {targets}")
        time.sleep(STAGE)
    ground.burn(ground.nodes[0], STRANGER)
    moments.append(time.time())
    time.sleep(STRANGER)
    moments.append(time.time())
    status = {name: _status(ground, name) for name in pods}
    seen = [watching.end(ground, f"recorder-{at}", within=lasts) for at in range(2)]
    for name in pods:
        ground.kubectl.run("delete", "tr,pod", "-n", NAMESPACE, name, f"{name}-0", f"{name}-1", "--ignore-not-found")
    return {
        "epsilon": EPSILON,
        "limit": LIMIT,
        "stage": STAGE,
        "stranger": STRANGER,
        "programs": {
            name: _told(at, [one[f"{name}-{rank}"] for rank, one in enumerate(seen)], moments, status[name])
            for at, name in enumerate(pods)
        },
    }


def _start(ground: Ground, name: str, text: str) -> list[Json]:
    """Start both ranks of a program; return their pods."""
    pods = []
    peer = ""
    for rank, node in enumerate(ground.nodes):
        body = ground.pod(f"{name}-{rank}", node, [PYTHON, "-c", text], RANK=str(rank), PEER=peer)
        body["metadata"]["labels"] = {"app": name}
        body["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": f"{1000 * REQUEST:.0f}m"},
            "limits": {"cpu": f"{1000 * LIMIT:.0f}m"},
        }
        ground.create(body)
        pod = ground.until(partial(_running, ground, f"{name}-{rank}"), within=60, what=f"{name}-{rank} to run")
        peer = pod["status"]["podIP"]
        pods.append(pod)
    return pods


def _running(ground: Ground, name: str) -> Json | None:
    return ground.pods().get(name)


def _status(ground: Ground, name: str) -> Json:
    found: Json = ground.kubectl.get("tr", name, "-n", NAMESPACE).get("status") or {}
    return found


def _max_rate(ground: Ground, name: str) -> str | None:
    return _status(ground, name).get("maxRate")


def _told(at: int, ranks: list[watching.Seen], moments: list[float], status: Json) -> Json:
    """Return how a program kept its targets: by its slower rank, over each `CONTROL` seconds."""
    track = min((seen.units for seen in ranks), key=lambda one: one[-1][1])
    alone = float(status["maxRate"].removesuffix("/s"))
    targets = [targets[at] for targets in STAGES]
    stages = zip([*targets, targets[-1]], pairwise(moments), strict=True)
    parts = [part(track, alone, target, *ends) for target, ends in stages]
    begin = moments[0] - 10.0
    times = [begin + k for k in range(int(moments[-1] - begin - CONTROL))]
    return {
        "alone": alone,
        "parts": parts,
        "time": [round(t + CONTROL - moments[0], 1) for t in times],
        "rate": [round((samples.at(track, t + CONTROL) - samples.at(track, t)) / CONTROL / alone, 4) for t in times],
        "target": [[round(moment - moments[0], 1), target] for moment, target in zip(moments, targets, strict=False)],
        "period": [[round(t - moments[0], 1), period] for t, _, period in ranks[0].caps],
    }


def part(track: Track, alone: float, target: float, begin: float, end: float) -> Json:
    """Return when the rate is first within ε of a target, and how well it is kept from then on."""
    steps = int((end - begin) / CONTROL)
    ends = [begin + CONTROL * (k + 1) for k in range(steps)]
    rates = [(samples.at(track, e) - samples.at(track, e - CONTROL)) / CONTROL / alone for e in ends]
    outside = [k for k, rate in enumerate(rates) if abs(rate - target) > EPSILON]
    settled = next((k for k in range(steps) if abs(rates[k] - target) <= EPSILON), steps)
    after = rates[settled:]
    return {
        "target": target,
        "settled": round(CONTROL * (settled + 1), 1) if settled < steps else None,
        "outside": sum(k > settled for k in outside),
        "of": len(after),
        "rates": asdict(Spread.of(after)) if after else None,
    }
