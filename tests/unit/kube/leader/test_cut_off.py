"""A replica is cut off at each write of some jobs' lives, and leads again later: they end as if nothing had been.

The same as `tests/api/test_interrupted.py`, in memory: there another process comes after each write, here the one that
was cut off, with all that it remembers.
"""

import asyncio
import contextlib
import itertools
import os

import pytest
from returning import MODES, LiveWorld, ended, quiet

from punctual.kube.leader import term
from punctual.labels import KIND_LABEL

EVERY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
"""Cut off in each way at each write; else in one way at each."""
REDUCE = {"duration": "1s", "template": {"spec": {"containers": [{"name": "sum", "image": "sum:1"}]}}}


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    """Let a term look after its pools often enough for a test."""
    monkeypatch.setattr(term, "HOUSEKEEPING", 0.01)
    monkeypatch.setattr(term, "PROGRESS", 0.01)


class Life:
    """Two jobs, one with a reduce step and one of class Guest, and the replicas that lead in turn."""

    def __init__(self):
        self.world = LiveWorld()
        self.world.server.runs = True
        self.jobs = [
            self.world.job("reduced", reduce=REDUCE, processors={"min": 2, "max": 2}),
            self.world.job("guest", units=2, **{"class": "Guest", "cost": {"perUnit": "1m"}}),
        ]
        self.first = self.world.replica()

    def over(self):
        return all(ended(self.world, job) for job in self.jobs)

    async def cut_off(self, replica, epoch, nth, mode):
        """Let a replica lead until its nth write; return whether it came to that before the jobs had ended."""
        replica.lead(epoch)
        frozen, task = asyncio.Event(), replica.task
        replica.link.cut(nth, mode, lambda: (frozen.set(), task.cancel()))
        await self.world.until(lambda: frozen.is_set() or self.lends(replica))
        replica.deaf = True
        replica.task = None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        replica.link.mend()
        return frozen.is_set()

    def lends(self, replica):
        """Let the node's agent report; return whether all jobs have ended."""
        replica.lend()
        return self.over()

    async def finish(self, replica, epoch):
        """Let a replica lead until all jobs have ended."""
        replica.hears()
        replica.lead(epoch)
        await self.world.until(lambda: self.lends(replica))
        await quiet(self.world, replica)
        await replica.end()

    def judge(self):
        """Every unit is accounted, by a pod that ended well, and nothing is left of what ran."""
        for job in self.jobs:
            status, uid, units = self.world.status(job), job["metadata"]["uid"], job["spec"]["units"]
            assert (status["state"], status["progress"]) == ("Completed", "100%")
            assert status["completed"] == [{"begin": 0, "end": units}]
            ran = [range(begin, end) for of, _, begin, end in self.world.server.succeeded if of == uid]
            assert set(itertools.chain(*ran)) >= set(range(units))
        left = [pod["metadata"]["labels"][KIND_LABEL] for pod in self.world.server.living.values()]
        assert set(left) == {"Reduce"}


@contextlib.asynccontextmanager
async def life():
    made = Life()
    async with made.world:
        yield made


async def undisturbed():
    """Return how many writes a life takes."""
    async with life() as one:
        await one.finish(one.first, 1)
        one.judge()
        return one.first.link.writes


def cuts(writes):
    """Return at which write a replica is cut off, and how."""
    every = list(itertools.product(range(1, writes + 1), MODES))
    return every if EVERY else every[:: len(MODES) + 1]


async def test_what_ended_under_another_leader_stays_as_it_is():
    for cut in cuts(await undisturbed()):
        async with life() as one:
            if not await one.cut_off(one.first, 1, *cut):
                continue
            await one.finish(one.world.replica(), 2)
            before, ran = [one.world.status(job) for job in one.jobs], len(one.world.server.succeeded)
            await one.finish(one.first, 3)
            assert [one.world.status(job) for job in one.jobs] == before, cut
            assert len(one.world.server.succeeded) == ran, cut
            one.judge()


async def test_what_another_leader_began_is_ended():
    for cut in cuts(await undisturbed()):
        async with life() as one:
            await one.cut_off(one.first, 1, *cut)
            other = one.world.replica()
            await one.cut_off(other, 2, cut[0] % 7 + 3, "unanswered")
            await one.finish(one.first, 3)
            one.judge()


async def test_a_replica_that_leads_twice_on_end_ends_what_it_began():
    for cut in cuts(await undisturbed()):
        async with life() as one:
            await one.cut_off(one.first, 1, *cut)
            await one.finish(one.first, 2)
            one.judge()
