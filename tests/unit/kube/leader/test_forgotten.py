"""What outlives a term is what watches say: after a term, the caches of a replica are those of a new process."""

import copy
import dataclasses
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import pytest
from pydantic import BaseModel
from returning import LiveWorld, quiet

from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster import nodes
from punctual.kube.known.directory import Directory
from punctual.kube.known.jobs import JobInTerm, KnownJob
from punctual.kube.known.pools import KnownPool, PoolInTerm
from punctual.kube.known.profiles import KnownProfile
from punctual.kube.known.rates import KnownRate, RateInTerm
from punctual.kube.known.reservations import KnownReservation, ReservationInTerm
from punctual.kube.known.store import InTerm
from punctual.kube.leader import term
from punctual.notation.duration import format_time
from punctual.reservations import windows
from punctual.scheduling.model.pool_spec import PoolRecord

FACTS = {
    KnownJob: "owner generation deleting profile reservation spec version flaw epoch created settled guest owned",
    KnownPool: "metadata spec finalizers deleting",
    KnownReservation: "metadata pool spec flaw deleting",
    KnownRate: "metadata spec flaw deleting",
    KnownProfile: "metadata spec deleting",
}
"""What follows from an object's body as watches and lists show it, whoever leads. All else belongs to a term."""
FIRST_SEEN = {"version", "epoch"}
"""Facts of the moment at which a replica first saw a job. Another may have seen it at another."""
IN_TERM = (InTerm, JobInTerm, PoolInTerm, ReservationInTerm, windows.Windows, RateInTerm, nodes._InTerm)
OF_THE_OBJECT = {"uid", "namespace", "pool", "created"}
"""What windows must know of their reservation."""


def test_each_known_object_has_facts_and_one_field_for_the_term():
    modules = [sys.modules[type(store).__module__] for store in Directory().stores]
    assert {one for module in modules for name, one in vars(module).items() if name.startswith("Known")} == set(FACTS)
    for one, facts in FACTS.items():
        fields = {field.name for field in dataclasses.fields(one)}
        assert fields == {*facts.split(), "term"}, f"{one.__name__}: a new field is a fact, or belongs into its term"


def state(found):  # noqa: PLR0911  one arm for each kind
    """Return all that an object of ours holds, for a comparison. Functions and what only they reach do not count."""
    match found:
        case Mapping():
            return {key: state(value) for key, value in found.items()}
        case str() | bytes() | int() | float() | None:
            return found
        case AbstractSet():
            return {repr(state(one)) for one in found}
        case tuple() | list():
            return [state(one) for one in found]
        case BaseModel():  # that of a generation: finalizers and the status may have changed since
            moved = {"finalizers": True, "resource_version": True}
            return found.model_dump(exclude={**moved, "metadata": moved})
    if not type(found).__module__.startswith("punctual"):
        return None
    slots = [name for cls in type(found).__mro__ for name in getattr(cls, "__slots__", ())]
    held = {name: getattr(found, name) for name in slots if hasattr(found, name)} | getattr(found, "__dict__", {})
    skipped = FIRST_SEEN if isinstance(found, KnownJob) else {"listener", "_listener"}  # these lead back
    return {name: state(value) for name, value in held.items() if name not in skipped and not callable(value)}


def of(replica):
    """Return the state of a replica's caches."""
    held = {name: value for name, value in vars(replica.caches).items() if name not in {"informers", "listener"}}
    return {name: state(value) for name, value in held.items() if not callable(value)}


def terms_of(replica):
    """Return all values of a term that a replica's caches hold."""
    known, inventory = replica.caches.directory, replica.caches.inventory
    windows = [one.term.windows for one in known.reservations.values()]
    return [*(one.term for store in known.stores for one in store.values()), *windows, inventory._term]


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    """Let a term look after its windows often enough for a test."""
    monkeypatch.setattr(term, "HOUSEKEEPING", 0.01)
    monkeypatch.setattr(windows, "LOOK", 0.01)


@pytest.fixture
async def world():
    async with LiveWorld() as made:
        yield made


def learned(node_class, chi):
    """Return what a profile knows of a class of nodes."""
    units = [10, 20, 50, 100, 200, 500]
    return {"pool": "main", "nodeClass": node_class, "units": units, "seconds": [1 + chi * n for n in units]}


async def busy(world):
    """Return a leader that has decided about objects of each kind, and has done all that a term can remember."""
    server, now = world.server, int(world.server.clock.now())
    server.put("Pool", "main", spec={**world.pool["spec"], "hold": "Placeholder"})
    server.put("Profile", "fast", "ns", spec={}, status={"classes": [learned("", 0.1), learned("slow", 0.2)]})
    world.job("promised", profile="fast", reduce={"duration": "1s", "template": template()})
    world.job("refused", deadline="1s")
    world.job("guest", **{"class": "Guest", "cost": {"perUnit": "1s"}})
    weekly = {"every": "7d"}
    for name, begin, more in (
        ("over", 60, {}),
        ("ahead", 3600, {}),
        ("weekly", 7200, {"recurrence": weekly}),
        ("large", 60, {"processors": 99}),
        ("elsewhere", 60, {"pool": "none"}),
    ):
        world.reservation(name, start=format_time(now + begin), end=format_time(now + begin + 60), **more)
    first_status = {"epoch": 0, "target": "40%", "period": 0.1}
    server.put("TargetRate", "solver", "ns", spec=world.rate("solver")["spec"], status=first_status)
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: leader.term.leads)
    leader.lend()
    await quiet(world, leader)
    server.put(
        "Pool",
        "main",
        spec={**world.pool["spec"], "hold": "Placeholder", "nodeSelector": {"matchLabels": {"pool": "none"}}},
    )
    server.later(150)
    await quiet(world, leader)
    leader.deaf = True  # the pods of this one are not seen before it is gone
    going = world.job("going")
    leader.observe("ADDED", going)
    await world.until(lambda: any("going" in pod["metadata"]["name"] for pod in server.pods))
    leader.observe("DELETED", going)
    world.remove(going)
    await world.until(lambda: not any("going" in path for path in server.living))
    leader.deaf = False
    await quiet(world, leader)
    return leader


def template():
    return {"spec": {"containers": [{"name": "sum", "image": "sum:1"}]}}


async def test_after_a_term_the_caches_of_a_replica_are_those_of_a_new_process(world):
    leader = await busy(world)
    for store in leader.caches.directory.stores:  # no story has time for all of them at once
        for known in list(store.values())[:1]:
            known.term.reading = known.term.left_alone = known.term.aside = True
    for known in leader.caches.directory.pools.values():
        known.term.unstamped, known.term.record = True, PoolRecord()
    terms, expected = copy.deepcopy(terms_of(leader)), dict(leader.caches.pods._expected)
    points = leader.term._given.set_points
    assert len(points) > 0
    await leader.end()
    new = world.replica()
    # each field has been something else: a field that this story does not touch would not be seen to stay
    assert expected
    for kind in IN_TERM:
        for field in dataclasses.fields(kind):
            values = [getattr(one, field.name) for one in terms if isinstance(one, kind)]
            initial = [getattr(one, field.name) for one in terms_of(new) if isinstance(one, kind)]
            of_the_object = kind is windows.Windows and field.name in OF_THE_OBJECT
            assert any(value not in initial for value in values) != of_the_object, f"{kind.__name__}.{field.name}"
    assert of(leader) == of(new)
    loops = {"_loops"}  # found gains: they follow from their keys alone
    after, fresh = state(points), state(SetPointStore())
    assert {k: v for k, v in after.items() if k not in loops} == {k: v for k, v in fresh.items() if k not in loops}


async def test_a_term_that_was_not_ended_leaves_the_next_nothing(world):
    leader = await busy(world)
    leader.caches.listener = None  # as if another had begun: then its end changes nothing
    await leader.end()
    leader.caches.begin_term(None)
    assert of(leader) == of(world.replica())
