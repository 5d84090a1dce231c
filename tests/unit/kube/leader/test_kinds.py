"""The loop over all kinds: what is considered when, and where the outcome of a write goes."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from punctual.kube.api.resources import BATCH_JOBS, JOBS, POOLS, PROFILES, RESERVATIONS, TARGET_RATES
from punctual.kube.known.directory import Directory
from punctual.kube.known.store import Signal
from punctual.kube.leader.changes import ChangeListener
from punctual.kube.leader.kinds import Kinds
from punctual.kube.takeover.kind import Kind
from punctual.kube.writes.keys import Key, finalizers_key, placeholders_key, taints_key
from punctual.kube.writes.operations import CreatePod, Outcome, Patch, PutStatus

RESOURCES = (POOLS, RESERVATIONS, TARGET_RATES, JOBS)
NO_SPEC = {"metadata": {"name": "x", "namespace": "ns", "uid": "u"}, "spec": {"pool": "main"}}
STATUS = PutStatus("/path", {"kind": "Any", "metadata": {"name": "x", "uid": "u"}, "status": {"state": "Any"}})
CREATE = CreatePod("ns", {"metadata": {"name": "p"}}, lambda _: True)


class Toy(Kind):
    """A kind that notes what it is asked, and passes signals on as it is told to."""

    def __init__(self, store, edge):
        super().__init__(store, edge)
        self.edge, self.passes_on, self.touched = edge, {}, {}
        self.name = store.resource.plural

    def note(self, what):
        self.edge.log.append((self.name, what))

    def begin(self):
        self.note("begin")
        return ()

    def consider(self, known):
        self.note("consider")
        for signal in self.passes_on.pop("consider", ()):
            self.edge.kinds.signal(*signal)

    def gone(self, known):
        self.note("gone")

    def found(self, known, *, aside):
        self.note("found aside" if aside else "found")

    def touched_by(self, signal):
        return [known for known in self.store.values() if signal in self.touched]

    def written(self, known, status):
        self.note(f"written {status}")

    def wrote(self, outcome):
        self.note(f"wrote {outcome.result}")


class Edge:
    """The loop, four toys that know one object each, and all that is asked of what lies around them."""

    def __init__(self):
        self.log, self.tasks, self.leads, self.reads = [], [], True, True
        self.spawn = self.tasks.append
        self.kinds = Kinds(self, self, self)
        self.directory = Directory()
        self.toys = {resource: Toy(self.directory.store_of(resource.plural), self) for resource in RESOURCES}
        pool = {"nodeSelector": {}, "processor": {"cpu": "1"}}
        self.known = {}
        for resource, toy in self.toys.items():
            body = {**NO_SPEC, "spec": pool} if resource is POOLS else NO_SPEC
            self.known[resource] = toy.store.observe(body)
            self.known[resource].term.read = True
        self.kinds.order(tuple(self.toys.values()))
        self.parts = Mock(kinds=self.kinds)
        self.parts.tools.caches = self
        self.changes = ChangeListener(self.parts, self)

    def forget(self, resource, uid):
        self.log.append(("forget", uid))

    def emit(self, _about, _type, reason, _text):
        self.log.append(("event", reason))

    async def read(self, kind, known):
        self.log.append((kind.name, "read"))
        known.term.read, known.term.reading = self.reads, False
        return self.reads

    async def caught_up(self):
        self.log.append(("writer", "caught up"))

    def logged(self):
        """Return what was noted, and forget it."""
        log, self.log = self.log, []
        return log


@pytest.fixture
def edge():
    made = Edge()
    yield made
    for task in made.tasks:
        task.close()


def test_a_change_is_considered_by_its_kind(edge):
    edge.kinds.changed(JOBS, edge.known[JOBS])
    assert edge.logged() == [("divisiblejobs", "consider")]


def test_nothing_is_considered_before_the_term_decides(edge):
    edge.leads = False
    edge.kinds.changed(JOBS, edge.known[JOBS])
    edge.toys[JOBS].touched = {Signal("pool", "main")}
    edge.kinds.signal("pool", "main")
    assert edge.logged() == []


def test_what_one_event_touches_twice_is_considered_once_the_earlier_kinds_first(edge):
    for resource in (JOBS, RESERVATIONS):
        edge.toys[resource].touched = {Signal("pool", "main"), Signal("reservation", "ns/x")}
    edge.toys[POOLS].passes_on["consider"] = [("reservation", "ns/x"), ("pool", "main")]
    edge.kinds.changed(POOLS, edge.known[POOLS])
    assert edge.logged() == [("pools", "consider"), ("reservations", "consider"), ("divisiblejobs", "consider")]


def test_signals_of_what_is_considered_are_followed_to_the_end(edge):
    edge.toys[JOBS].touched = {Signal("reservation", "ns/x")}
    edge.toys[RESERVATIONS].touched = {Signal("pool", "main")}
    edge.toys[RESERVATIONS].passes_on["consider"] = [("reservation", "ns/x")]
    edge.kinds.signal("pool", "main")
    assert edge.logged() == [("reservations", "consider"), ("divisiblejobs", "consider")]


def test_a_kind_that_takes_signals_in_batches_considers_with_the_next_tick(edge):
    edge.toys[TARGET_RATES].batched = True
    edge.kinds.order(tuple(edge.toys.values()))
    edge.toys[TARGET_RATES].touched = {Signal("pods", "ns")}
    for _ in range(3):
        edge.kinds.signal("pods", "ns")
    assert edge.logged() == []
    edge.kinds.tick()
    assert edge.logged() == [("targetrates", "consider")]
    edge.kinds.tick()
    assert edge.logged() == []


def test_what_is_gone_before_its_batch_is_due_is_not_considered(edge):
    edge.toys[TARGET_RATES].batched = True
    edge.kinds.order(tuple(edge.toys.values()))
    edge.toys[TARGET_RATES].touched = {Signal("pods", "ns")}
    edge.kinds.signal("pods", "ns")
    edge.directory.rates.forget("u")
    edge.kinds.gone(TARGET_RATES, edge.known[TARGET_RATES])
    edge.kinds.tick()
    assert edge.logged() == [("targetrates", "gone")]


async def test_what_was_not_read_is_read_once_before_it_is_considered(edge):
    known = edge.known[RESERVATIONS]
    known.term.read = False
    for _ in range(2):
        edge.kinds.changed(RESERVATIONS, known)
    (task,) = edge.tasks
    assert edge.logged() == []
    await task
    assert edge.logged() == [("reservations", "read"), ("reservations", "consider"), ("reservations", "found")]


async def test_what_cannot_be_read_is_not_considered(edge):
    edge.known[RESERVATIONS].term.read = edge.reads = False
    edge.kinds.changed(RESERVATIONS, edge.known[RESERVATIONS])
    await edge.tasks[0]
    assert edge.logged() == [("reservations", "read")]


def test_what_is_left_alone_waits_for_an_edit(edge):
    known = edge.known[JOBS]
    known.term.left_alone = True
    edge.toys[JOBS].touched = {Signal("pool", "main")}
    edge.kinds.signal("pool", "main")
    assert edge.logged() == []
    edge.kinds.changed(JOBS, known)
    assert edge.logged() == [("divisiblejobs", "consider")]


async def test_what_was_put_aside_is_read_after_the_decisions_are_written(edge):
    edge.known[JOBS].term.aside = ""
    edge.kinds.begin()
    await edge.tasks[0]
    assert edge.logged()[4:] == [
        ("writer", "caught up"),
        ("divisiblejobs", "read"),
        ("divisiblejobs", "consider"),
        ("divisiblejobs", "found aside"),
    ]


def test_what_is_gone_is_remembered_until_the_term_ends(edge):
    edge.kinds.gone(JOBS, edge.known[JOBS])
    assert edge.logged() == [("divisiblejobs", "gone")]
    assert edge.directory.jobs.gone == {"u"}
    edge.directory.forget_term()
    assert edge.directory.jobs.gone == set()


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize(
    ("result", "uid", "noted"),
    [
        ("done", "u", "written {'state': 'Any'}"),
        ("done", "one that is gone", None),
        ("gone", "u", "forget"),
        ("refused", "u", "StatusRefused"),
        ("refused", "one that is gone", None),
    ],
)
def test_what_became_of_a_status_goes_to_its_kind_alone(edge, resource, result, uid, noted):
    key = Key(resource, uid)
    edge.changes.finished(Outcome(key, STATUS, result, "too large"))
    assert [what if what != uid else name for name, what in edge.logged()] == ([noted] if noted else [])
    edge.parts.actors.settled.assert_called_once_with(key)
    edge.parts.guests.settled.assert_called_once_with(key)


def test_other_writes_go_by_their_keys(edge):
    edge.changes.finished(Outcome(Key(JOBS, "u"), CREATE, "refused"))
    assert edge.logged() == [("divisiblejobs", "wrote refused")]
    edge.changes.finished(Outcome(placeholders_key(0), CREATE, "refused"))
    edge.parts.tools.placeholders.settled.assert_called_once()
    edge.changes.finished(Outcome(taints_key("n1"), Patch("/path", {}), "done"))
    edge.parts.tools.taints.settled.assert_called_once_with("n1")
    assert edge.logged() == []
    edge.changes.finished(Outcome(finalizers_key("u"), Patch("/path", {}), "refused"))
    assert edge.logged() == [("pools", "wrote refused")]


def test_an_outcome_of_a_kind_that_no_term_has_is_an_error(edge):
    with pytest.raises(StopIteration):
        edge.changes.finished(Outcome(Key(PROFILES, "u"), STATUS, "done"))


def test_an_action_goes_to_the_kinds_that_carry_it_out(edge):
    edge.toys[JOBS].carries_out = (SimpleNamespace,)
    edge.toys[JOBS].carry_out = lambda pool, action: edge.log.append((pool, action.what))
    edge.kinds.carry_out("main", SimpleNamespace(what="it"))
    edge.kinds.carry_out("main", object())
    assert edge.logged() == [("main", "it")]


class ToyFollower:
    """A follower that notes what it hears."""

    resource = BATCH_JOBS

    def __init__(self, edge):
        self._log = edge.log

    def begin(self):
        self._log.append("begin")

    def tend(self):
        self._log.append("tend")

    def hear(self, signal):
        self._log.append(signal)

    def wrote(self, outcome):
        self._log.append(outcome.result)


def test_a_follower_comes_after_all_kinds_and_hears_of_its_own_writes_alone(edge):
    edge.kinds.order(tuple(edge.toys.values()), (ToyFollower(edge),))
    edge.kinds.begin()
    edge.toys[JOBS].touched = {Signal("pool", "main")}
    edge.kinds.signal("pool", "main")
    edge.kinds.tend()
    edge.changes.finished(Outcome(Key(BATCH_JOBS, "b"), Patch("/path", {}), "refused"))
    edge.changes.finished(Outcome(Key(JOBS, "u"), Patch("/path", {}), "done"))
    assert edge.log[-5:] == [
        ("divisiblejobs", "consider"),
        Signal("pool", "main"),
        "tend",
        "refused",
        ("divisiblejobs", "wrote done"),
    ]
    assert edge.log.count("begin") == 1
    assert edge.log.index("begin") > max(edge.log.index((resource.plural, "begin")) for resource in RESOURCES)


def test_a_follower_hears_nothing_before_the_term_decides(edge):
    edge.kinds.order(tuple(edge.toys.values()), (ToyFollower(edge),))
    edge.leads = False
    edge.kinds.signal("batch", "ns/x")
    assert edge.logged() == []
