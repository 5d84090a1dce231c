"""What the watches missed is found in time, and nothing else counts as missed."""

import pytest

from punctual.errors import NotFound
from punctual.kube.api.resources import POOLS
from punctual.kube.cluster import resync
from punctual.kube.cluster.client import METADATA_LIST, Listing
from punctual.kube.cluster.resync import ENOUGH, Resync
from punctual.kube.known.directory import Directory


def pool(name="main", *, generation=1, uid=None, **meta):
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "Pool",
        "metadata": {
            "name": name,
            "uid": uid or f"uid-{name}",
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **meta,
        },
        "spec": {"nodeSelector": {}, "processor": {"cpu": "1", "memory": "1Gi"}},
    }


class World:
    """An API server, a directory, and what is told to whom; ``meanwhile`` happens between a list and a look."""

    def __init__(self):
        self.there, self.directory, self.taken, self.renewed = {}, Directory(), [], 0
        self.listed = {}
        self.meanwhile = lambda: None
        self.resync = Resync(self, self.directory, self, self)

    def make(self, body):
        self.there[POOLS.path(name=body["metadata"]["name"])] = body

    def know(self, body):
        self.directory.pools.observe(body)

    def observe(self, plural, change, body):
        self.taken.append((plural, change, body["metadata"]["name"]))
        if change == "DELETED":
            self.directory.pools.forget(body["metadata"]["uid"])
        else:
            self.know(body)

    def renew(self):
        self.renewed += 1

    async def get(self, path):
        if path not in self.there:
            raise NotFound(path)
        return self.there[path]

    async def pages(self, path, *, accept, **_):
        assert accept == METADATA_LIST, "the server gives the metadata of one object in no list"
        found = [{"metadata": body["metadata"]} for body in self.there.values()] if path == POOLS.path() else []
        self.meanwhile()
        yield Listing(found, "7", "")


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(resync, "SETTLE", 0.0)
    return World()


async def test_what_is_known_as_it_is_is_not_missed(world):
    world.make(pool())
    world.know(pool())
    await world.resync.compare()
    assert (world.taken, world.renewed) == ([], 0)


@pytest.mark.parametrize(
    ("known", "there", "change"),
    [
        (None, pool(), None),
        (pool(), pool(generation=2), None),
        (pool(), pool(deletionTimestamp="2026-01-01T00:01:00Z"), None),
        (pool(), None, "DELETED"),
        (pool(), pool(finalizers=["punctual.dev/jobs"]), None),
    ],
    ids=["new", "edited", "going", "gone", "with a finalizer"],
)
async def test_a_change_that_the_watches_missed_is_taken_in(world, known, there, change):
    if known:
        world.know(known)
    if there:
        world.make(there)
    await world.resync.compare()
    assert world.taken == [("pools", change, "main")]
    assert world.renewed == 0, "once may happen, where kopf lists anew"


async def test_a_change_of_which_a_watch_tells_a_moment_later_is_not_missed(world):
    world.make(pool())
    world.meanwhile = lambda: world.know(pool())
    await world.resync.compare()
    assert world.taken == []


async def test_a_watch_that_is_still_busy_with_its_first_list_has_missed_nothing(world, monkeypatch):
    late = [pool(f"p{n}") for n in range(20)]
    for body in late:
        world.make(body)

    async def settle(_):
        for _ in range(7):
            if late:
                world.know(late.pop())

    monkeypatch.setattr(resync.asyncio, "sleep", settle)
    await world.resync.compare()
    assert (world.taken, world.renewed) == ([], 0)


async def test_what_a_watch_that_has_stopped_halfway_lacks_is_taken_in(world, monkeypatch):
    bodies = [pool(f"p{n}") for n in range(20)]
    for body in bodies:
        world.make(body)
    some = bodies[:12]

    async def settle(_):
        if some:
            world.know(some.pop())

    monkeypatch.setattr(resync.asyncio, "sleep", settle)
    await world.resync.compare()
    assert [name for _, _, name in world.taken] == [f"p{n}" for n in range(12, 20)]
    assert world.renewed == 1


async def test_an_object_that_goes_behind_the_list_is_not_missed(world):
    world.make(pool())
    world.meanwhile = world.there.clear
    await world.resync.compare()
    assert world.taken == []


async def test_another_object_of_the_name_is_taken_in_in_place_of_the_one_that_is_gone(world):
    world.know(pool(uid="old"))
    world.make(pool(uid="new"))
    await world.resync.compare()
    assert world.taken == [("pools", "DELETED", "main"), ("pools", None, "main")]


async def test_the_second_change_that_was_missed_begins_the_watches_anew(world):
    for number in range(1, 2 * ENOUGH + 1):
        world.make(pool(generation=number))
        await world.resync.compare()
        assert world.renewed == number // ENOUGH


@pytest.mark.parametrize(
    ("took", "soon", "pause"),
    [(0.1, True, 5.0), (0.1, False, 20.0), (4.0, False, 40.0), (15.0, False, 60.0), (15.0, True, 60.0)],
)
def test_comparisons_take_a_tenth_of_the_time_and_are_never_far_apart(took, soon, pause):
    """The net under the edge found it (seed 168): after fifteen seconds of frost there was none for 150 seconds."""
    assert resync.pause_after(took, soon=soon) == pause
