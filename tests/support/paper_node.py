"""The node of Park and Humphrey's experiments as scenarios of `punctual simulate control`, and what came of a run.

From the paper: 8 cores of which 7 are promised, 14 slots, 42 jobs a run, run times of 0.5 to 2 hours, deadlines drawn
from a range of multiples of the run time, half of the jobs I/O-intensive in the mixed workload, refused jobs ask again,
and the models of WRF (compute) and BLAST (I/O). With deadlines of 2 to 10 run times a job arrives every 144 s, because
the paper accepted 25 jobs in the first hour.

What the paper does not say is chosen here, before any control was compared:

- a period of 60 s ("number of files to process in a minute"); a refused job asks again after 300 s;
- tighter deadlines arrive every 562 s, the mean run time over 8: what all cores can do, one more than are promised;
- noise of 5 %; the profile knows the gain with an error of up to 10 %;
- each job is disturbed for an hour by a factor of 0.7 to 0.9: the paper measured 14 to 22 % of overhead beside others;
- a disk that suffices for 4 I/O-intensive jobs on whole cores, where the offered load needs 3.5.
"""

import json
import random
import statistics
from dataclasses import dataclass

from punctual.sim.plants.run import simulate
from punctual.sim.plants.scenario import parse

PERIOD, JOBS, SHORTEST, LONGEST = 60.0, 42, 1800.0, 7200.0
WRF, BLAST = (0.13, 1.28), (0.32, 6.38)


@dataclass(frozen=True)
class Setting:
    """Deadlines of ``low`` to ``high`` run times, a job each ``spacing`` s; ``mixed``: half of them use the disk."""

    low: float
    high: float
    mixed: bool
    spacing: float

    @property
    def name(self):
        """Return what the results call it."""
        return f"{'mixed' if self.mixed else 'compute'}_{self.low:g}_{self.high:g}"


SETTINGS = [
    Setting(low, high, mixed, spacing)
    for low, high, spacing in ((2, 10, 144.0), (1, 4, 562.0), (1, 3, 562.0))
    for mixed in (False, True)
]


def node(setting, seed, **more):
    """Return the input of a run."""
    rng, jobs = random.Random(f"{setting.low}-{setting.high}/{seed}"), []
    for n in range(JOBS):
        io = setting.mixed and n % 2 == 1
        a, b = BLAST if io else WRF
        gain, run, at = b / (1.0 - a), rng.uniform(SHORTEST, LONGEST), rng.uniform(0.0, 20_000.0)
        job = {
            "id": f"j{n}", "arrival": n * setting.spacing, "work": run * gain / PERIOD,
            "deadline": run * rng.uniform(setting.low, setting.high), "a": a, "b": b, "noise": 0.05,
            "model": {"a": a, "b": b * rng.uniform(0.9, 1.1)},
            "disturbances": [{"at": at, "factor": rng.uniform(0.7, 0.9), "until": at + 3600.0}],
        }  # fmt: skip
        jobs.append({**job, "io": 1.0 / gain} if io else job)
    disk = {"disk": {"capacity": 4.0}} if setting.mixed else {}
    return {"cores": 8, "headroom": 0.125, "period": PERIOD, "slots": 14, "resubmit": 300, "jobs": jobs, **disk, **more}


def outcome(setting, seed, **more):
    """Run it; return its ratios, and those of both kinds of jobs."""
    result = simulate(parse(json.dumps(node(setting, seed, **more))), seed=seed)
    found = {**result.metrics, "accepted_ratio": result.metrics["accepted"] / result.metrics["offered"]}
    kinds = {"compute": [], "io": []}
    for job in result.scenario.jobs:
        kinds["io" if job.io else "compute"].append(result.ended[job.id])
    for kind, ended in kinds.items():
        there = [one for one in ended if one.accepted]
        late = [one.late_fraction for one in there if not one.met]
        found[f"{kind}_met"] = sum(one.met for one in there) / len(there) if there else None
        found[f"{kind}_late"] = statistics.fmean(late) if late else 0.0
    found["late"] = [one.late_fraction for one in result.ended.values() if one.accepted and not one.met]
    found["ratios"] = [
        (job.deadline, (one.finish - one.began) / job.deadline)
        for job in result.scenario.jobs
        if (one := result.ended[job.id]).finish is not None
    ]
    return found
