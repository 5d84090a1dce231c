"""What the net checks, against histories that must not be: each rule fails."""

import random
from types import SimpleNamespace

import pytest
from chaos_lib.ledger import Struck
from edge.apiserver import Watching
from edge.applications import Application, Applications
from edge.ends import differences, end_of, surplus
from edge.history import History, Stay, Window
from edge.kinds import BY_RESOURCE
from edge.link import Stream
from edge.plan import TIME, Act, draw
from edge.rules import _crowded, _held, _unanswered
from edge.store import Store
from edge.users import IN_SPACE

OURS = "punctual.dev/v1alpha1"
LEASE = BY_RESOURCE["coordination.k8s.io/v1", "leases"]
DONE = {"type": "Completed", "status": "True", "reason": "Completed"}
ENDED = {"epoch": 2, "completed": [{"begin": 0, "end": 9}], "conditions": [DONE], "finishTime": "12:00"}


def wrong(plural, *statuses):
    """Return what a history says about an object that has had these statuses."""
    return wrong_states(BY_RESOURCE[OURS, plural], "status", statuses)


def wrong_states(kind, part, states):
    store = Store()
    history = History(store, lambda: 0.0)
    for state in states:
        meta = {"name": "one", "uid": "u", "resourceVersion": str(store.next())}
        store.put(kind.resource, f"{kind.resource}/one", {"metadata": meta, part: state})
    return history.wrong


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (ENDED | {"epoch": 1}, "epoch falls from 2 to 1"),
        (ENDED | {"completed": [{"begin": 0, "end": 8}]}, "was accounted and is not"),
        (ENDED | {"conditions": []}, "it was Completed by Completed and is {}"),
        (ENDED | {"conditions": [DONE | {"reason": "Other"}]}, "it was Completed by Completed and is"),
        (ENDED | {"finishTime": "12:01"}, "its end moves from 12:00 to 12:01"),
    ],
)
def test_a_job_that_goes_back_is_found(now, said):
    (found,) = wrong("divisiblejobs", ENDED, now)
    assert said in found


def test_a_term_with_the_epoch_of_an_earlier_one_is_found():
    def term(holder, at, epoch):
        return {"holderIdentity": holder, "acquireTime": at, "leaseTransitions": epoch}

    first, released = term("a", "12:00", 1), {"acquireTime": "12:00", "leaseTransitions": 1}
    assert wrong_states(LEASE, "spec", [first, first, released, term("b", "12:01", 2), term("b", "12:02", 3)]) == []
    (found,) = wrong_states(LEASE, "spec", [first, term("b", "12:01", 1)])
    assert found == "b takes the Lease with epoch 1, which a term has had before"


def test_a_job_that_goes_on_is_right():
    begun = {"epoch": 1, "completed": [{"begin": 0, "end": 3}, {"begin": 5, "end": 9}]}
    refused = {"epoch": 1, "finishTime": "11:00", "conditions": [{"type": "Admitted", "status": "False"}]}
    assert wrong("divisiblejobs", refused, begun, ENDED) == []


def test_a_window_that_goes_back_is_found():
    times = {"start": "2030-01-01T12:00:00Z", "end": "2030-01-01T13:00:00Z"}
    window = {**times, "state": "Completed", "nodes": []}
    before = {"windows": [window], "finishTime": "13:00"}
    found = wrong("reservations", before, {"windows": [window | {"state": "Active"}]})
    assert [what.partition(": ")[2] for what in found] == [
        "its window was Completed and is Active",
        "its end moves from 13:00 to None",
    ]
    assert wrong("reservations", {"windows": [window | {"state": "Booked"}]}, before) == []


def world(*stays, faults=()):
    """Return a world with a window from 100 to 200 that has one of the two processors of n1."""
    window = Window("window", {"n1": 1}, 100.0, 200.0)
    history = SimpleNamespace(
        windows={("u", 100.0): window}, stays={str(number): stay for number, stay in enumerate(stays)}
    )
    specs = {"other": {}, "guest": {"class": "Guest"}, "named": {"reservation": "window"}}
    jobs = {name: SimpleNamespace(body={"spec": spec}) for name, spec in specs.items()}
    return SimpleNamespace(
        history=history, struck=faults, plan=SimpleNamespace(nodes={"n1": "2"}), scribe=SimpleNamespace(jobs=jobs)
    )


OVER = (Stay("other", "n1", 50.0, 150.0), Stay("other", "n1", 90.0, 102.5))


def test_a_window_with_too_many_pods_is_found():
    assert list(_crowded(world(*OVER))) == ["window: 2 pods on n1 in the window, where 1 processors are reserved"]


@pytest.mark.parametrize(
    "there",
    [
        world(Stay("other", "n1", 50.0, 150.0), Stay("other", "n1", 90.0, 101.0)),
        world(Stay("other", "n1", 50.0, 150.0), Stay("other", "n1", 150.0, 300.0)),
        world(*OVER[:1], Stay("guest", "n1", 90.0), Stay("named", "n1", 100.0), Stay("other", "n2", 100.0)),
        world(*OVER, faults=[Struck("freeze", 60.0, 99.0, disturbs=True)]),
    ],
    ids=["it ends in time", "one after the other", "pods that may be there", "a fault"],
)
def test_a_window_that_is_empty_or_disturbed_is_right(there):
    assert list(_crowded(there)) == []


class Held:
    """A world with one pod of an application."""

    def __init__(self, *, rate, limit):
        body = {"metadata": {"uid": "u", "labels": {"app": "solver"}}}
        machines = SimpleNamespace(pods_on=lambda _: [(body, SimpleNamespace(began=0.0))])
        self.applications = Applications(machines, random.Random(1))
        self.applications.found["u"] = Application("n1", 0.0, 0.0, limit=limit)
        path = f"{IN_SPACE}/targetrates/solver"
        objects = {path: {"spec": {"rate": rate}}} if rate else {}
        self.server = SimpleNamespace(store=SimpleNamespace(objects=objects))
        self.plan = SimpleNamespace(nodes={"n1": "2"}, acts=[])
        self.loop = SimpleNamespace(now=10.0)


def test_a_pod_with_another_limit_than_its_target_is_found():
    assert list(_held(Held(rate="40%", limit=(0.2, 0.1)))) == []
    assert list(_held(Held(rate=None, limit=None))) == []
    assert "there is no TargetRate" in next(_held(Held(rate=None, limit=(0.2, 0.1))))
    assert "its target is 40%" in next(_held(Held(rate="40%", limit=(0.4, 0.1))))
    assert "its target is 40%" in next(_held(Held(rate="40%", limit=None)))


def test_a_pod_that_gets_its_cpu_back_too_early_is_found():
    there = Held(rate="40%", limit=(0.2, 0.1))
    (application,) = there.applications.found.values()
    there.applications.limit(application, (0.2, 0.1), 5.0, wanted=True)
    assert list(_held(there)) == []
    there.applications.limit(application, None, 7.0, wanted=True)
    assert "got all its CPU" in next(_held(there))


def test_ends_that_differ_are_found():
    same, other = {("Pool", "main"): {"free": 2}}, {("Pool", "main"): {"free": 1}, ("Lease", "old"): {}}
    assert differences(same, dict(same)) == []
    assert [what.partition(" is ")[0] for what in differences(same, other)] == ["Lease old", "Pool main"]


def test_more_creates_than_the_faults_explain_are_found():
    def ran(count, *acts, faults=0):
        counts = {("created", "pods", "one"): count, ("created", "configmaps", "one"): 1}
        return SimpleNamespace(
            history=SimpleNamespace(counts=counts), struck=[None] * faults, plan=SimpleNamespace(acts=acts)
        )

    plain = ran(2)
    plain.history.counts["created", "configmaps", "one"] = 0
    assert list(surplus(ran(4, faults=2), plain)) == ["configmaps of one: 1 created, 0 without faults, 2 faults"]
    assert "pods of one: 5 created, 2 without faults, 2 faults" in list(surplus(ran(5, faults=2), plain))
    assert list(surplus(ran(5, Act(1.0, "recreate", "one")), plain)) == []


def reserved(*nodes):
    """Return how a play has ended in which a reservation has a window with these nodes and processors."""
    window = {"start": "12:00", "nodes": [{"name": name, "processors": count} for name, count in nodes]}
    body = {"metadata": {"name": "one"}, "spec": {}, "status": {"windows": [window]}}
    path = f"{IN_SPACE}/reservations/one"
    return end_of(SimpleNamespace(server=SimpleNamespace(store=SimpleNamespace(objects={path: body}))))


def test_a_window_may_be_on_other_nodes_but_has_as_many_processors():
    assert not differences(reserved(("n1", 2)), reserved(("n2", 1), ("n1", 1)))
    assert differences(reserved(("n1", 2)), reserved(("n1", 1)))


def test_a_reservation_goes_late_in_a_plan_that_is_compared():
    # else whether a job that names it is refused depends on how long a fault delays its answer, as in this seed
    plan = draw(355)
    (gone,) = [act for act in plan.acts if act.what == "unmake"]
    assert plan.compared
    assert gone.target == "reservations/window"
    assert gone.at > TIME


@pytest.mark.parametrize(("answered", "found"), [(95.0, 0), (80.0, 1)])
def test_an_agent_that_no_leader_answers_is_found(answered, found):
    world = SimpleNamespace(loop=SimpleNamespace(now=100.0), agents={"n1": SimpleNamespace(answered=answered)})
    assert len(list(_unanswered(world))) == found


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        # by a leader that does not know of the restore, the stamp of the next one, its first status
        ([(10.5, 2, 3), (30.0, 3, 3), (30.1, 3, 2)], []),
        ([(10.5, 2, 3), (30.0, 3, 3), (30.1, 3, 2), (30.2, 3, 1)], ["one: observedGeneration falls from 2 to 1"]),
        ([(20.0, 2, 3), (30.0, 3, 3), (30.1, 3, 2)], ["one: observedGeneration falls from 3 to 2"]),
    ],
    ids=["an unaware leader", "a fall after it", "a leader that knows"],
)
def test_what_an_unaware_leader_writes_after_a_restore_is_not_compared_with(statuses, said):
    store, now = Store(), [10.0]
    history = History(store, lambda: now[0])
    kind = BY_RESOURCE[OURS, "pools"]
    history.begin_anew((), unaware=3.0)
    for at, epoch, generation in [(10.0, 2, 2), *statuses]:
        now[0] = at
        meta = {"name": "one", "uid": "u", "resourceVersion": str(store.next())}
        status = {"epoch": epoch, "observedGeneration": generation}
        store.put(kind.resource, f"{kind.resource}/one", {"metadata": meta, "status": status})
    assert history.wrong == said


@pytest.mark.parametrize(("bump", "heard"), [(0, [4]), (1000, "410")], ids=["versions fall", "versions are bumped"])
def test_a_watch_from_before_a_restore_hears_nothing_until_its_version_or_begins_anew(bump, heard):
    """As an API server that was started again answers: from a version of the future, it sends what is newer."""
    store, kind = Store(version=3), BY_RESOURCE[OURS, "pools"]
    store.set_back(1, bump=bump)
    arrived = []
    stream = Stream(
        SimpleNamespace(
            server=SimpleNamespace(store=store), later=lambda *_: None, behind={}, relists=set(), lag={},
            loop=SimpleNamespace(now=0.0), way=lambda: 0.0,
        ),
        SimpleNamespace(name="p", dead=False),
        Watching(kind, lambda *_: True, 3, 12, initial=False, bookmarks=True, light=False),
    )  # fmt: skip
    stream._push = arrived.append
    stream.begin()
    for _ in range(3):
        meta = {"name": "one", "uid": "u", "resourceVersion": str(store.next())}
        store.put(kind.resource, f"{kind.resource}/one", {"metadata": meta})
    if bump:
        assert [event["object"]["code"] for event in arrived] == [410]
    else:
        assert [int(event["object"]["metadata"]["resourceVersion"]) for event in arrived] == heard
