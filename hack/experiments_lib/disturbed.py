"""Many jobs on two pools at once, on nodes that are disturbed alike: one pool with control, one without.

Each pool has a node of its own. Both get the same jobs at the same moments, and both nodes get the same disturbances.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from lib.testbed import Json

from experiments_lib import programs, storm
from experiments_lib.ground import CPU, Ground
from experiments_lib.outcome import Ended, outcome
from punctual.errors import ClusterError
from punctual.notation.duration import parse_time

POOLS = {"Feedback": "experiments-feedback", "None": "experiments-none"}
HEADROOM = "25%"
GRACE = 120.0
"""Seconds after the last deadline in which late jobs may finish."""
BY_NAME = {program.name: program for program in programs.PROGRAMS}


@dataclass(order=True, slots=True)
class Due:
    """Something to do at a time, seconds after the beginning."""

    at: float
    order: int
    do: Callable[[], None]


def run(ground: Ground, *, jobs: int, seed: int, cpu_seconds: float) -> Json:
    """Play it all; return the table of both pools with all their jobs."""
    sizes = {
        control: ground.pool(name, node, progressControl=control, headroom=HEADROOM)
        for (control, name), node in zip(POOLS.items(), ground.nodes, strict=True)
    }
    arrivals = storm.arrivals(
        seed,
        jobs,
        cpu_seconds=cpu_seconds,
        processors=min(sizes.values()),
        cpu=CPU,
        costs={name: cost.seconds(CPU) for name, cost in ground.costs.items()},
        startup=ground.startup(programs.BLASTP),
    )
    ends = max(one.at + one.deadline for one in arrivals)
    disturbed = storm.disturbances(seed, ends)
    ground.say(f"{jobs} jobs in each pool ({sizes} processors), {len(disturbed)} disturbances, {ends:.0f} s")
    due = sorted(
        [Due(one.at, 0, lambda one=one: _submit(ground, one)) for one in arrivals]  # type: ignore[misc]
        + _strikes(ground, disturbed)
    )
    began = time.monotonic()
    for one in due:
        time.sleep(max(0.0, began + one.at - time.monotonic()))
        one.do()
    _wait(ground, began + ends + GRACE)
    ground.give(1.0)
    found = ground.jobs()
    return {
        "jobs": jobs,
        "seed": seed,
        "cpu_seconds": cpu_seconds,
        "headroom": HEADROOM,
        "processors": sizes,
        "seconds": round(time.monotonic() - began),
        "disturbances": [asdict(one) for one in disturbed],
        "pools": {control: _told(found, control) for control in POOLS},
    }


def _strikes(ground: Ground, disturbed: list[storm.Disturbance]) -> list[Due]:
    """Return what to do at the beginning and at the end of each disturbance."""
    due = []
    for one in disturbed:
        if one.kind == "stranger":
            due.append(Due(one.begin, 1, lambda seconds=one.seconds: _burn(ground, seconds)))  # type: ignore[misc]
        else:
            due.append(Due(one.begin, 1, lambda: ground.give(0.5)))
            due.append(Due(one.end, 1, lambda: ground.give(1.0)))
    return due


def _burn(ground: Ground, seconds: float) -> None:
    for node in ground.nodes:
        ground.burn(node, seconds)


def _submit(ground: Ground, one: storm.Arrival) -> None:
    for control, pool in POOLS.items():
        name = f"{one.name}-{control.lower()}"
        program = BY_NAME[one.program]
        body = ground.job(name, pool, program, units=one.units, deadline=one.deadline, processors={"max": 4})
        ground.create(body)


def _wait(ground: Ground, until: float) -> None:
    """Wait until all jobs have ended."""
    while time.monotonic() < until:
        try:
            jobs = list(ground.jobs().values())
        except ClusterError:  # an API server that is busy answers the next time
            jobs = []
        if jobs and all(_over(job) for job in jobs):
            return
        time.sleep(5.0)


def _over(job: Json) -> bool:
    status = job.get("status") or {}
    return bool(status.get("finishTime")) or status.get("state") == "Refused"


def _told(jobs: dict[str, Json], control: str) -> Json:
    """Return what became of a pool's jobs."""
    mine = [job for job in jobs.values() if job["spec"]["pool"] == POOLS[control]]
    admitted = [job for job in mine if (job.get("status") or {}).get("state") != "Refused"]
    ended = sorted((_ended(job) for job in admitted), key=lambda one: one.name)
    found = outcome(ended)
    return {
        **asdict(found),
        "ratio": found.ratio,
        "refused": len(mine) - len(admitted),
        "reasons": sorted({job["status"]["state"] for job in admitted}),
        "ended": [asdict(one) for one in ended],
    }


def _ended(job: Json) -> Ended:
    created = parse_time(job["metadata"]["creationTimestamp"])
    status = job.get("status") or {}
    finish = status.get("finishTime") if status.get("state") in {"Completed", "Missed"} else None
    deadline = parse_time(status["promise"]["deadline"]) if status.get("promise", {}).get("deadline") else None
    asked = float(job["spec"]["deadline"].removesuffix("s"))
    return Ended(
        job["metadata"]["name"],
        deadline - created if deadline is not None else asked,
        parse_time(finish) - created if finish else None,
    )
