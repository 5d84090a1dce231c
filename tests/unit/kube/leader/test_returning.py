"""A replica that leads, is frozen while another leads, and leads again: its second term is that of a new process."""

from typing import ClassVar

import pytest
from returning import LiveWorld, ended, quiet
from term_world import KINDS

from punctual.kube.leader import term
from punctual.notation.duration import format_time
from punctual.reservations import windows
from punctual.scheduling.model.actions import Measured

REDUCE = {"duration": "1s", "template": {"spec": {"containers": [{"name": "sum", "image": "sum:1"}]}}}


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    """Let a term look after its pools and windows often enough for a test."""
    monkeypatch.setattr(term, "HOUSEKEEPING", 0.01)
    monkeypatch.setattr(term, "PROGRESS", 0.01)
    monkeypatch.setattr(windows, "LOOK", 0.01)


@pytest.fixture
async def world():
    async with LiveWorld() as made:
        yield made


async def leads(world, replica, epoch):
    replica.lead(epoch)
    await quiet(world, replica)


async def test_a_job_that_ended_in_between_stays_ended_and_nothing_of_it_runs_twice(world):
    job = world.job("again", reduce=REDUCE)
    first = world.replica()
    await leads(world, first, 1)
    for pod in list(world.server.living.values())[:1]:
        world.server.run(pod)
        world.server.succeed(pod)
    await quiet(world, first)
    assert world.status(job)["state"] == "Running"
    first.deaf = True
    await first.end()
    world.server.runs = True
    for pod in list(world.server.living.values()):
        world.server._run_through(pod)
    second = world.replica()
    second.lead(2)
    await world.until(lambda: ended(world, job))
    await quiet(world, second)
    await second.end()
    before, ran = world.status(job), list(world.server.succeeded)
    first.hears()
    await leads(world, first, 3)
    assert (before["state"], before["progress"]) == ("Completed", "100%")
    assert world.status(job) == before
    assert world.server.succeeded == ran
    assert len(set(ran)) == len(ran)
    assert [kind for _, kind, _, _ in ran].count("Reduce") == 1


class Scene:
    """What is there when the first replica leads (``begin``), and what happens before it leads again (``meanwhile``).

    ``told`` makes the second replica lead: what was edited before that is undecided when the third leader comes.
    """

    def __init__(self, world):
        self.world = world
        self.second = None

    async def told(self):
        self.second = self.world.replica()
        await leads(self.world, self.second, 2)

    def edit(self, body, **spec):
        """Edit an object."""
        return self._put(body, self.world.server.objects[self.world.path(body)]["spec"] | spec)

    def again(self, body, **spec):
        """Delete an object, and create another under its name."""
        there = self.world.server.objects[self.world.path(body)]["spec"]
        self.world.remove(body)
        return self._put(body, there | spec)

    def _put(self, body, spec):
        meta = body["metadata"]
        return self.world.server.put(body["kind"], meta["name"], meta.get("namespace", ""), spec=spec)

    async def work(self, *, fails=False):
        """Let all pods that are there run and end."""
        for pod in list(self.world.server.living.values()):
            if pod["status"]["phase"] == "Pending":
                self.world.server.run(pod)
            if pod["status"]["phase"] in {"Pending", "Running"}:
                (self.world.server.fail if fails else self.world.server.succeed)(pod)
        await quiet(self.world, self.second)

    async def begin(self):
        """Make what is there at first."""

    async def led(self, leader):
        """Let the first leader do what takes more than its beginning."""

    async def meanwhile(self):
        """Do what happens before the third leader."""


class JobEnds(Scene):
    async def begin(self):
        self.job = self.world.job("job", reduce=REDUCE)

    async def meanwhile(self):
        await self.told()
        while not ended(self.world, self.job):
            await self.work()


class JobFails(Scene):
    async def begin(self):
        self.job = self.world.job("job", chunkRetries=0)

    async def meanwhile(self):
        await self.told()
        await self.work(fails=True)
        assert self.world.status(self.job)["state"] == "Failed"


class ChunkFails(Scene):
    async def begin(self):
        self.job = self.world.job("job", processors={"min": 2, "max": 2})

    async def meanwhile(self):
        await self.told()
        await self.work(fails=True)
        assert {chunk["attempt"] for chunk in self.world.status(self.job)["chunks"]} == {2}


class RefusedJobIsPromised(Scene):
    async def begin(self):
        self.job = self.world.job("job", deadline="2s")

    async def meanwhile(self):
        self.edit(self.job, deadline="9m")
        await self.told()
        assert self.world.status(self.job)["promise"]


class RefusedJobIsEdited(Scene):
    async def begin(self):
        self.job = self.world.job("job", deadline="2s")

    async def meanwhile(self):
        self.edit(self.job, deadline="9m")


class JobIsEdited(Scene):
    async def begin(self):
        self.job = self.world.job("job")

    async def meanwhile(self):
        self.edit(self.job, deadline="20m")
        await self.told()
        assert self.world.status(self.job)["observedGeneration"] == 2


class EditIsRefused(Scene):
    async def begin(self):
        self.job = self.world.job("job")

    async def meanwhile(self):
        self.edit(self.job, deadline="3s")
        await self.told()
        assert "SpecApplied" in str(self.world.status(self.job)["conditions"])


class JobIsSuspended(Scene):
    async def begin(self):
        self.job = self.world.job("job")

    async def meanwhile(self):
        self.edit(self.job, suspend=True)
        await self.told()
        assert not self.world.status(self.job).get("promise")


class JobIsDeleted(Scene):
    async def begin(self):
        self.job = self.world.job("job")

    async def meanwhile(self):
        self.world.remove(self.job)
        await self.told()


class JobIsMadeAnew(Scene):
    async def begin(self):
        self.job = self.world.job("job", reduce=REDUCE)

    async def meanwhile(self):
        self.job = self.again(self.job, units=40)
        await self.told()
        assert self.world.status(self.job)["promise"]


class JobIsMadeAnewUnseen(Scene):
    async def begin(self):
        self.job = self.world.job("job", reduce=REDUCE)

    async def meanwhile(self):
        self.job = self.again(self.job, units=40)


class JobMoves(Scene):
    async def begin(self):
        self.job = self.world.job("job")
        self.world.server.put("Pool", "other", spec=self.world.pool["spec"])

    async def meanwhile(self):
        self.edit(self.job, suspend=True)
        await self.told()
        self.edit(self.job, pool="other", suspend=False)
        await quiet(self.world, self.second)


class Guests(Scene):
    async def begin(self):
        self.job = self.world.job("job", **{"class": "Guest", "cost": {"perUnit": "1s"}})

    async def led(self, leader):
        await self.lent(leader)

    async def lent(self, leader):
        def runs():
            leader.lend()
            return len(self.world.status(self.job).get("chunks", ())) == 4

        await self.world.until(runs)
        await quiet(self.world, leader)
        for pod in list(self.world.server.living.values()):
            if pod["status"]["phase"] == "Pending":
                self.world.server.run(pod)
        await quiet(self.world, leader)


class GuestEnds(Guests):
    async def meanwhile(self):
        await self.told()
        self.second.lend()
        while not ended(self.world, self.job):
            await self.work()
            self.second.lend()


class GuestIsEdited(Guests):
    async def meanwhile(self):
        self.edit(self.job, units=30)
        await self.told()


class GuestIsMadeAnew(Guests):
    async def meanwhile(self):
        self.job = self.again(self.job, units=30)
        await self.told()
        await self.lent(self.second)


class PoolIsEdited(Scene):
    async def begin(self):
        self.refused = self.world.job("refused", deadline="2s")

    async def meanwhile(self):
        self.edit(self.world.pool, namespaceSelector={"matchLabels": {"team": "a"}}, hold="Placeholder")
        await self.told()
        other = self.world.job("other")
        await quiet(self.world, self.second)
        assert self.world.admitted(other) == "NotAllowed"


class PoolsEditIsRefused(Scene):
    async def begin(self):
        self.job = self.world.job("job", processors={"min": 4})

    async def meanwhile(self):
        self.edit(self.world.pool, nodeSelector={"matchLabels": {"pool": "none"}})
        await self.told()
        assert self.world.status(self.world.pool)["applied"]["nodeSelector"] == {"matchLabels": {"pool": "main"}}


class PoolNoLongerHolds(Scene):
    async def begin(self):
        self.edit(self.world.pool, hold="Placeholder")

    async def meanwhile(self):
        self.edit(self.world.pool, hold="None")
        await self.told()


class PoolIsMadeAnew(Scene):
    async def begin(self):
        self.edit(self.world.pool, hold="Placeholder")
        self.job = self.world.job("job", deadline="2s")

    async def meanwhile(self):
        self.world.pool = self.again(self.world.pool, hold="None", namespaceSelector={"matchLabels": {"team": "a"}})
        await self.told()
        assert self.world.status(self.world.pool)["epoch"] == 2


class PoolIsDeleted(Scene):
    async def begin(self):
        self.job = self.world.job("job", deadline="2s")

    async def meanwhile(self):
        self.world.remove(self.world.pool)
        await self.told()
        assert self.world.admitted(self.job) == "PoolNotFound"


class Window(Scene):
    more: ClassVar = {}

    async def begin(self):
        now = int(self.world.server.clock.now())
        self.window = self.world.reservation(
            "window", start=format_time(now + 60), end=format_time(now + 120), **self.more
        )


class WindowIsOver(Window):
    async def meanwhile(self):
        await self.told()
        for _ in range(2):
            self.world.server.later(70)
            await quiet(self.world, self.second)
        assert self.world.status(self.window)["state"] == "Completed"


class WindowIsActive(Window):
    async def meanwhile(self):
        self.inside = self.world.job("inside", reservation="window", deadline="2m")
        await self.told()
        self.world.server.later(70)
        await self.world.until(lambda: self.world.server.living)  # not before the Pool's next tick
        await quiet(self.world, self.second)
        assert self.world.status(self.window)["state"] == "Active"


class WindowIsMadeAnew(Window):
    more: ClassVar = {"processors": 99}

    async def meanwhile(self):
        assert self.world.status(self.window)["state"] == "Refused"
        self.window = self.again(self.window, processors=2)
        await self.told()
        assert self.world.status(self.window)["state"] == "Booked"


class WindowIsDeleted(Window):
    more: ClassVar = {"processors": 4}

    async def meanwhile(self):
        self.world.remove(self.window)
        await self.told()


class RateIsEdited(Scene):
    async def begin(self):
        self.rate = self.world.rate("solver")

    async def meanwhile(self):
        self.edit(self.rate, rate="50%")
        await self.told()
        assert self.world.status(self.rate)["observedGeneration"] == 2


class RateIsMadeAnew(RateIsEdited):
    async def meanwhile(self):
        self.rate = self.again(self.rate, rate="50%")
        await self.told()
        assert self.world.status(self.rate)["epoch"] == 2


class ProfileHasLearned(Scene):
    async def begin(self):
        self.profile = self.world.server.put("Profile", "fast", "ns", spec={})
        self.job = self.world.job("job", profile="fast")

    async def led(self, leader):
        await self.learn(leader, 1.0)

    async def learn(self, leader, slow):
        for units in (5, 10, 20, 40, 80, 100):
            seconds = slow * (1.0 + 0.1 * units)
            leader.term._parts.kinds.carry_out("main", Measured(self.job["metadata"]["uid"], "n1", units, seconds))
        await leader.term.retire(within=10)

    async def meanwhile(self):
        await self.told()
        await self.learn(self.second, 2.0)
        self.job = self.world.job("later", profile="fast")


class ProfileIsMadeAnew(ProfileHasLearned):
    async def meanwhile(self):
        self.profile = self.again(self.profile, perUnit="300ms")
        self.job = self.world.job("later", profile="fast")


SCENES = [one for one in Scene.__subclasses__() if one not in (Guests, Window)]
SCENES += [*Guests.__subclasses__(), *Window.__subclasses__(), RateIsMadeAnew, ProfileIsMadeAnew]


async def three_terms(scene, kind):
    """Play a scene with three leaders; return what the third one makes of it."""
    async with LiveWorld() as world:
        scene = scene(world)
        await scene.begin()
        first = world.replica()
        await leads(world, first, 1)
        await scene.led(first)
        first.deaf = True
        await first.end()
        await scene.meanwhile()
        if scene.second:
            await scene.second.end()
        third = world.replica() if kind == "another" else first
        if kind == "returning":
            third.hears()
        third.hears_of_pods()
        made, gone, said = len(world.server.pods), len(world.server.deleted), len(world.server.events)
        await leads(world, third, 3)
        third.hears()
        await quiet(world, third)
        await third.term.retire(within=10)
        events, earlier = world.server.events[said:], world.server.events[:said]
        return {
            "statuses": {path: body.get("status") for path, body in world.server.of(*KINDS).items()},
            "created": sorted(pod["metadata"]["name"] for pod in world.server.pods[made:]),
            "deleted": sorted(world.server.deleted[gone:]),
            "events": sorted(events),
            "new events": sorted(event for event in events if event not in earlier),
            "pods": {path: pod["status"]["phase"] for path, pod in world.server.living.items()},
        }


@pytest.mark.parametrize("kind", ["returning", "late"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_a_replica_that_leads_again_does_what_a_new_process_would_do(scene, kind):
    """``late``: its watches tell only what was missed when it leads. What it does not know to be settled it reads."""
    expected, found = await three_terms(scene, "another"), await three_terms(scene, kind)
    if kind == "late":
        for outcome in (expected, found):
            del outcome["events"]
            for status in filter(None, outcome["statuses"].values()):
                status.pop("epoch", None)
    assert found == expected
