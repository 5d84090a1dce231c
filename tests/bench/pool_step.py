#!/usr/bin/env python3
"""How long `Pool.step` takes, and how much memory a job keeps: the core alone, under a virtual clock.

    tests/bench/pool_step.py [--seconds 60] [--burst 10000] [--known 1000] [--waiting 50]

Prints JSON. 200 nodes of 4 processors. Pods start, make progress and end about as planned, each node reports each
second, and each of these events is a step of its own, as in the operator; besides there is a tick each quarter second.

- steady: 1,000 jobs are known, 50 of them have bookings that wait, the others run or have ended; a new one comes
  whenever fewer wait, and an ended one is deleted for it. ``planning`` counts only steps in which something else than
  a report came in.
- burst: so many jobs at once into a pool at work, with deadlines that all, some or none can be promised, until each
  has its answer and its offer.
- memory: bytes retained per job (tracemalloc), ended and waiting; ``refused`` has an offer.

Wall time and CPU time of each step are both told: on a machine that others use too, the first holds their share.
"""

import argparse
import gc
import heapq
import json
import os
import platform
import random
import sys
import time
import tracemalloc

from punctual import reasons
from punctual.scheduling.model.actions import CreateChunk, EndPod, WriteStatus
from punctual.scheduling.model.events import (
    JobApplied,
    JobDeleted,
    NodeObserved,
    PodGone,
    PodObserved,
    PoolApplied,
    Progress,
    Reported,
)
from punctual.scheduling.model.job import Job, JobRecord, Promise
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.pool import Pool
from punctual.theory.cost import Cost
from punctual.verdict import Verdict

NODES, PROCESSORS = 200, 4
TICK = 0.25
START = 1.8e9
"""The clock counts from 1970, as in life."""
HEADROOM, SETUP = 0.125, 2.0
TARGET = {"steady_p99_ms": 20.0, "ended_bytes": 5000, "waiting_bytes": 5000}


class Times:
    """Wall and CPU milliseconds of steps."""

    def __init__(self):
        self.wall, self.cpu = [], []

    def add(self, wall, cpu):
        self.wall.append(1000 * wall)
        self.cpu.append(1000 * cpu)

    def summary(self):
        """Return count, quantiles by nearest rank and the total in seconds."""
        out = {"steps": len(self.wall), "total_s": round(sum(self.wall) / 1000, 2)}
        for name, times in (("wall_ms", sorted(self.wall)), ("cpu_ms", sorted(self.cpu))):
            if times:
                at = {f"p{q}": times[min(len(times) - 1, int(q / 100 * len(times)))] for q in (50, 90, 99, 99.9)}
                out[name] = {k: round(v, 2) for k, v in (at | {"max": times[-1]}).items()}
        return out


class Cluster:
    """A Pool and what it acts upon: kubelets, workers and agents as a calendar of events."""

    def __init__(self, *, nodes=NODES, seed=1):
        self.random = random.Random(seed)
        self.now = START
        self.pool = Pool(1)
        self.calendar = []
        self.serial = 0
        self.pods = {}
        self.on_node = {f"node-{n:03}": {} for n in range(nodes)}
        self.records = {}
        self.jobs = {}
        self.ended = []
        self.times, self.planning = Times(), Times()
        self.drifting = False
        self.capacity = nodes * PROCESSORS
        spec = PoolSpec(name="main", cpu=1.0, headroom=HEADROOM, margin=2.0)
        events = [PoolApplied(spec)]
        events += [NodeObserved(name=name, ready=True, cpu=float(PROCESSORS), memory=2**40) for name in self.on_node]
        self.step(events)
        for n, name in enumerate(self.on_node):
            self.at(self.now + n / nodes, self.report, name)

    def at(self, when, what, *words):
        self.serial += 1
        heapq.heappush(self.calendar, (when, self.serial, what, words))

    def step(self, events):
        wall, cpu = time.perf_counter(), time.process_time()
        actions = self.pool.step(self.now, events)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        self.times.add(wall, cpu)
        if self.drifting:
            self.now += cpu  # as on a machine that does nothing else
        if any(not isinstance(e, Reported) for e in events):
            self.planning.add(wall, cpu)
        for action in actions:
            self.carry_out(action)

    def run(self, until):
        """Let time pass: a step for each event, one for each tick."""
        tick = self.now + TICK
        while self.now < until:
            when = min(tick, self.calendar[0][0], until)
            self.now = max(self.now, when)
            events = []
            while self.calendar[0][0] <= self.now:  # more than one only where time drifts, as in a mailbox
                _, _, what, words = heapq.heappop(self.calendar)
                events += what(*words)
            if events or self.now >= tick or self.pool.backlog:
                self.step(events)
                tick = self.now + TICK

    def forget_times(self):
        self.times, self.planning = Times(), Times()

    # what nodes do

    def report(self, node):
        self.at(self.now + 1.0, self.report, node)
        told = []
        for pod, (chunk, since, pace) in self.on_node[node].items():
            if since is not None and self.now >= since:
                done = min(chunk.size, int((self.now - since) / pace))
                told.append(Progress(pod=pod, done=done, end=None, cpu_seconds=self.now - since))
        return [Reported(node, tuple(told))]

    def observed(self, name, **more):
        uid, job, chunk, created = self.pods[name]
        return PodObserved(
            name=name, uid=uid, namespace="bench", job=job, kind=chunk.kind, begin=chunk.begin, end=chunk.origin,
            attempt=chunk.attempt, node=chunk.node, created=created, **more,
        )  # fmt: skip

    def started(self, name):
        if name not in self.pods:
            return []
        uid, job, chunk, _ = self.pods[name]
        pace = self.jobs[job].cost.chi * self.random.uniform(0.97, 1.03)
        self.on_node[chunk.node][uid] = (chunk, self.now, pace)
        self.at(self.now + chunk.size * pace, self.succeeded, name)
        return [self.observed(name, phase="Running", started=self.now)]

    def succeeded(self, name):
        if name not in self.pods:
            return []
        self.on_node[self.pods[name][2].node].pop(self.pods[name][0], None)
        return [self.observed(name, phase="Succeeded", finished=self.now, exit_code=0)]

    def gone(self, name):
        uid, _, chunk, _ = self.pods.pop(name)
        self.on_node[chunk.node].pop(uid, None)
        return [PodGone("bench", name, uid)]

    def carry_out(self, action):
        match action:
            case WriteStatus(uid, record):
                if record.ended and not self.records[uid].ended:
                    self.ended.append(uid)
                self.records[uid] = record
            case CreateChunk(uid, chunk):
                self.serial += 1
                name = f"{uid}-{chunk.kind}-{chunk.begin}-{chunk.attempt}"
                self.pods[name] = (f"pod-{self.serial}", uid, chunk, self.now)
                self.at(self.now + 0.01, lambda name: [self.observed(name, phase="Pending")], name)
                self.at(self.now + self.random.uniform(0.7, 1.6), self.started, name)
            case EndPod(_, name, _):
                self.at(self.now + self.random.uniform(0.05, 0.6), self.gone, name)

    # what people do

    def job(self, *, processors, seconds, deadline):
        """Return a job that takes so many processors so many seconds; ``deadline`` in seconds from now."""
        self.serial += 1
        uid = f"00000000-0000-0000-0000-{self.serial:012}"
        units = max(1, int(processors * seconds / 0.1))
        job = Job(
            uid=uid, namespace="bench", name=f"job-{self.serial}", arrival=self.now, units=units,
            deadline=self.now + deadline, cost=Cost(chi=0.1, theta_cp=SETUP),
        )  # fmt: skip
        self.jobs[uid] = job
        self.records[uid] = JobRecord()
        return job

    def queued(self):
        """Return how many seconds the whole pool has still to work for what is booked."""
        plan = self.pool.view().plan
        ahead = sum(b.demand.work for b in plan.placements)
        return ahead / self.capacity

    def arrival(self):
        """Return a job that the pool can take behind what is booked."""
        processors, seconds = self.random.choice((2, 4, 8, 16, 32)), self.random.uniform(20, 90)
        slack = self.queued() * 1.3 + 30 + SETUP
        return self.job(processors=processors, seconds=seconds, deadline=seconds / (1 - HEADROOM) * 1.15 + slack)

    def waiting(self):
        """Count jobs whose bookings wait for all of their processors."""
        view = self.pool.view()
        return sum(1 for b in view.plan.placements if view.record(b.demand.uid).started is None)


def ended_job(cluster):
    """Return a job that has kept its promise, with its record."""
    job = cluster.job(processors=8, seconds=60, deadline=100)
    text = "4800 units on 8 processors from 0 s on, forecast in 62 s, deadline in 100 s, margin 2 s"
    record = JobRecord(
        epoch=1,
        observed_generation=1,
        admitted=Verdict("True", reasons.FEASIBLE, text),
        on_track=Verdict("True", reasons.ON_TRACK, "finished 30 s before the deadline"),
        completed_condition=Verdict("True", reasons.COMPLETED, f"{job.units} units done in 68 s"),
        promise=Promise(job.deadline, job.arrival + 62.0, 2.0, 8, job.arrival),
        cost=Cost(chi=0.1, theta_cp=SETUP),
        completed=Ranges.of((0, job.units)),
        started=job.arrival + 0.1,
        finished=job.arrival + 68.0,
        done=job.units,
    )
    cluster.records[job.uid] = record
    cluster.ended.append(job.uid)
    return JobApplied(job, record)


def steady(options):
    """Run a pool that is always full; return what its steps took."""
    cluster = Cluster()
    cluster.step([ended_job(cluster) for _ in range(options.known - options.waiting)])

    def settle():
        """Keep as many waiting and known as asked."""
        cluster.at(cluster.now + cluster.random.uniform(0.2, 0.6), settle)
        events = []
        if cluster.waiting() < options.waiting:
            events = [JobApplied(cluster.arrival())]
        while len(cluster.jobs) > options.known and cluster.ended:
            uid = cluster.ended.pop(0)
            del cluster.jobs[uid], cluster.records[uid]
            events.append(JobDeleted(uid))
        return events

    while cluster.waiting() < options.waiting:  # fill it
        cluster.step([JobApplied(cluster.arrival())])
        cluster.run(cluster.now + 0.1)
    cluster.at(cluster.now, settle)
    cluster.run(cluster.now + 60)  # past what all beginning at once makes
    cluster.forget_times()
    seen, waiting, running = [], [], []
    end = cluster.now + options.seconds
    while cluster.now < end:
        cluster.run(cluster.now + 1)
        seen.append(len(cluster.pool.view().jobs))
        waiting.append(cluster.waiting())
        running.append(len(cluster.pods))
    cluster.pool.check()
    late = [u for u, r in cluster.records.items() if r.finished and r.promise and r.finished > r.promise.deadline]
    verdicts = [r.admitted.reason for r in cluster.records.values() if r.admitted]
    return {
        "seconds": options.seconds,
        "jobs_known": round(sum(seen) / len(seen)),
        "jobs_waiting": {"least": min(waiting), "mean": round(sum(waiting) / len(waiting), 1), "most": max(waiting)},
        "pods": round(sum(running) / len(running)),
        "refused": sum(1 for v in verdicts if v != reasons.FEASIBLE),
        "late": len(late),
        "all": cluster.times.summary(),
        "planning": cluster.planning.summary(),
    }


def burst(count, kind, *, limit):
    """Send jobs at once into a pool at work; return what the steps took until all are answered.

    Time passes as fast as the steps are slow. ``kind``: ``fits``, all can be promised; ``mixed``, deadlines from too
    tight to loose in any order; ``refused``, none can. It ends after ``limit`` seconds of steps.
    """
    cluster = Cluster()
    for _ in range(20):
        cluster.step([JobApplied(cluster.arrival())])
    cluster.run(cluster.now + 30)
    cluster.forget_times()
    cluster.drifting = True
    whole = count * 4 * 90 / (1 - HEADROOM) / cluster.capacity  # seconds of the whole pool
    deadlines = {"fits": (3 * whole + 600, 3 * whole + 600), "mixed": (20, 2 * whole + 120), "refused": (10, 10)}
    jobs = []
    for _ in range(count):
        deadline = cluster.random.uniform(*deadlines[kind])
        jobs.append(JobApplied(cluster.job(processors=4, seconds=cluster.random.uniform(60, 120), deadline=deadline)))
    clock = cluster.now
    end = clock + limit
    for at in range(0, count, 500):  # as a list comes in
        cluster.step(jobs[at : at + 500])
    while cluster.pool.view().undecided and cluster.now < end:
        cluster.run(cluster.now + TICK)
    decided = count - cluster.pool.view().undecided
    took = cluster.now - clock
    first = cluster.times.summary()
    while cluster.pool.backlog and cluster.now < end:
        cluster.run(cluster.now + TICK)
    cluster.pool.check()
    answers = [a.reason for e in jobs if (a := cluster.records[e.job.uid].admitted)]
    return {
        "jobs": count,
        "decided": decided,
        "promised": answers.count(reasons.FEASIBLE),
        "decided_in_s": round(took, 2),
        "decisions_per_second": round(decided / took),
        "offers_left": cluster.pool.backlog - cluster.pool.view().undecided,
        "offers_in_s": round(cluster.now - clock, 2),
        "until_decided": first,
        "all": cluster.times.summary(),
    }


def memory(count):
    """Return bytes retained per job by the Pool and the jobs handed to it: ended, waiting and refused."""
    found = {}

    def of(name, events):
        cluster = Cluster()
        events = events(cluster)  # warm, and not counted
        gc.collect()
        tracemalloc.start()
        for at in range(0, count, 500):
            cluster.step([make(cluster) for make in events[at : at + 500]])
        while cluster.pool.backlog:
            cluster.step([])
        # only the Pool: the calendar and what stands for the API server are not its own
        cluster.calendar, cluster.pods, cluster.on_node, cluster.ended = [], {}, {}, []
        cluster.times, cluster.planning, cluster.records, cluster.jobs = Times(), Times(), {}, {}
        gc.collect()
        found[f"{name}_bytes"] = round(tracemalloc.get_traced_memory()[0] / count)
        tracemalloc.stop()
        view = cluster.pool.view()
        states = {view.state(uid) for uid in view.jobs}
        print(f"pool_step: {name}: states {sorted(states)}", file=sys.stderr)  # noqa: T201

    def waiting(cluster):
        """Long jobs fill the pool first; what follows waits."""
        long = [JobApplied(cluster.job(processors=1, seconds=10**6, deadline=2 * 10**6)) for _ in range(800)]
        cluster.step(long)
        while cluster.pool.backlog:
            cluster.step([])
        return [lambda c: JobApplied(c.job(processors=2, seconds=60, deadline=4 * 10**6))] * count

    def refused(cluster):
        return [lambda c: JobApplied(c.job(processors=2, seconds=60, deadline=1))] * count

    of("ended", lambda _: [ended_job] * count)
    of("waiting", waiting)
    of("refused", refused)
    return found | {"jobs": count}


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="virtual seconds of the steady load")
    parser.add_argument("--burst", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=120, help="seconds that one kind of burst may take")
    parser.add_argument("--known", type=int, default=1_000)
    parser.add_argument("--waiting", type=int, default=50)
    parser.add_argument("--only", choices=("steady", "burst", "memory"))
    options = parser.parse_args()
    found = {}
    if options.only in (None, "steady"):
        print("pool_step: steady", file=sys.stderr)  # noqa: T201  news
        found["steady"] = steady(options)
    if options.only in (None, "burst"):
        for kind in ("fits", "refused", "mixed"):
            print(f"pool_step: burst, {kind}", file=sys.stderr)  # noqa: T201  news
            found[f"burst_{kind}"] = burst(options.burst, kind, limit=options.limit)
    if options.only in (None, "memory"):
        print("pool_step: memory", file=sys.stderr)  # noqa: T201  news
        found["memory"] = memory(options.burst)
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"pool_step": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
