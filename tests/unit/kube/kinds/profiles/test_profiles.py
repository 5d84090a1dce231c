"""What profiles have learned, in their statuses: what is written and when, what a new leader reads."""

import copy
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from clocks import NO_CLIENT
from learned import NEW, OLD, SIZES, Shown
from term_tools import make_tools

from punctual.control.cost_estimation import KEPT
from punctual.control.response import KEPT as KEPT_RESPONSES
from punctual.control.response import Response
from punctual.kube import api
from punctual.kube.cluster.caches import Caches
from punctual.kube.kinds.profiles.profiles import PAUSE, Profiles
from punctual.kube.known.directory import Directory
from punctual.kube.known.translate import to_by_hand, to_speeds
from punctual.profiles.learning import Learning
from punctual.profiles.samples import MOST, Where, cost
from punctual.scheduling.model.actions import Measured


def manifest(*, uid="u1", namespace="ns", generation=1, status=None, **spec):
    meta = {"name": "thumbs", "namespace": namespace, "uid": uid, "generation": generation}
    body = {"apiVersion": api.API_VERSION, "kind": "Profile", "metadata": meta, "spec": spec}
    return {**body, "status": status} if status is not None else body


class Known(Shown):
    """The kind, with one profile, and what was learned about it. A node is called like its class."""

    def __init__(self, **spec):
        self.directory, self.at, self.statuses = Directory(), 0.0, []
        self.body = manifest(**spec)
        self.directory.profiles.observe(self.body)
        self.directory.jobs = Jobs()
        self.asked = api.NodeSpeeds()
        caches = Caches(NO_CLIENT)
        caches.directory = self.directory
        caches.inventory = SimpleNamespace(class_of=lambda node: node)
        self.learning = Learning(lambda _pool: to_speeds(self.asked))
        tools = make_tools(self, lambda: self.at, caches=caches)
        self.kind = Profiles(replace(tools, learning=self.learning), None)

    def submit(self, _key, operation):
        self.statuses.append(operation.body["status"])

    def load(self, body):
        with suppress(StopIteration):
            self.kind.restore(body, "").send(None)

    def begin(self, namespace):
        self.directory.profiles.observe(manifest(uid=namespace, namespace=namespace))

    def add(self, where, units, seconds, *, namespace="ns", name="thumbs", **more):
        self.kind.carry_out(where.pool, Measured(f"{namespace}/{name}", where.node_class, units, seconds, **more))

    def response(self, pool="main"):
        by_hand = to_by_hand(self.directory.profiles.named("thumbs", "ns").spec)
        found = self.learning.for_job("ns", "thumbs", pool)(by_hand)
        return None if found is None else found.response

    def cost(self, pool="main", *, fetches=False):
        by_hand = to_by_hand(self.directory.profiles.named("thumbs", "ns").spec)
        return cost(by_hand, self.learning.for_job("ns", "thumbs", pool)(by_hand), fetches=fetches)

    def written(self, now=None):
        """Return what is written by then; without a time what a leader that goes writes."""
        self.at, self.statuses = now or 0.0, []
        if now is None:
            self.kind.retire()
        else:
            self.kind.tend()
        return self.statuses

    def ready(self, now):
        """Return its one condition, as it is written now."""
        (status,) = self.written(now)
        (condition,) = status["conditions"]
        assert condition["type"] == "Ready"
        return condition


class Jobs(dict):
    """Jobs that are called like the profiles that they name."""

    def get(self, uid):
        namespace, _, profile = uid.partition("/")
        return SimpleNamespace(namespace=namespace, profile=profile)


def test_three_lying_profiles_of_a_tenant_are_one_vote_and_none_when_they_are_deleted():
    known = Known().vote("a", 1.5).vote("b", 1.5)
    for n in range(3):
        body = manifest(uid=f"l{n}", namespace="liar")
        body["metadata"]["name"] = f"l{n}"
        known.directory.profiles.observe(body)
        for chi, where in ((9.0, OLD), (0.01, NEW)):
            for units in SIZES:
                known.add(where, units, 5.0 + chi * units, namespace="liar", name=f"l{n}")
    found = known.learning.classes("main")["old"]
    assert (found.slow, found.tenants) == (pytest.approx(1.5, abs=0.01), ("a", "b", "liar"))
    for n in range(3):
        known.directory.profiles.forget(f"l{n}")
    known.kind.tend()
    assert known.learning.classes("main")["old"].tenants == ("a", "b")


def test_what_a_deleted_profile_has_measured_is_forgotten_also_if_it_was_the_only_one():
    known = Known().vote("liar", 1.8)
    assert known.slow()["old"] == pytest.approx(1.8, abs=0.01)
    known.directory.profiles.forget("liar")
    known.kind.tend()
    assert known.slow().get("old", 1.0) == 1.0
    known.vote("liar", 1.5)
    assert known.slow()["old"] == pytest.approx(1.5, abs=0.01)


def test_beyond_the_limit_only_the_pools_spec_makes_a_class_slow_and_an_edit_of_it_counts_at_once():
    known = Known().vote("a", 3.0)
    assert known.slow()["old"] == 2.0
    assert known.learning.classes("main")["old"].measured == pytest.approx(3.0, rel=0.01)
    known.asked = api.NodeSpeeds(classes=[api.NodeClass(name="old", unit_time="300%")])
    assert known.slow()["old"] == 3.0
    known.asked = api.NodeSpeeds(classes=[api.NodeClass(name="old", unit_time="305%")])
    assert known.slow()["old"] == 3.05
    known.asked = api.NodeSpeeds(limit="100%")
    assert known.slow()["old"] == 1.0


def test_it_is_written_soon_then_seldom_and_never_for_nothing():
    known = Known()
    assert len(known.written(0.0)) == 1, "its spec was seen"
    assert known.written(1.0) == []
    known.see(10)
    assert len(known.written(100.0)) == 1
    known.see(20)
    assert known.written(100.0 + PAUSE - 1) == []
    assert len(known.written(100.0 + PAUSE)) == 1
    assert known.written(1e9) == []
    known.see(30)
    assert len(known.written()) == 1, "at the end of a term"


def test_a_profile_says_which_spec_it_has_seen_and_since_when_it_is_ready():
    known = Known()
    assert known.ready(100.0)["lastTransitionTime"] == "1970-01-01T00:01:40Z"
    assert known.written(101.0) == []
    known.directory.profiles.observe(manifest(generation=2, perUnit="20ms"))
    (status,) = known.written(102.0)
    (ready,) = status["conditions"]
    assert (status["observedGeneration"], ready["lastTransitionTime"]) == (2, "1970-01-01T00:01:42Z")
    api.parse_status(api.ProfileStatus, {"status": status})
    new = Known()
    new.directory.profiles.observe(manifest(generation=3, perUnit="0.02s"))
    new.load({**manifest(generation=3, perUnit="0.02s"), "status": copy.deepcopy(status)})
    (again,) = new.written(200.0)
    assert again["observedGeneration"] == 3
    assert again["conditions"][0]["lastTransitionTime"] == ready["lastTransitionTime"], "ready since then"
    assert new.written() == []


def test_a_generation_with_the_same_costs_in_other_words_is_seen():
    known = Known(perUnit="20ms")
    known.written(0.0)
    assert known.directory.profiles.observe(manifest(generation=2, perUnit="0.02s")) is None, "no cost has changed"
    (status,) = known.written(1.0)
    assert status["observedGeneration"] == 2


def test_a_new_leader_goes_on_from_the_status():
    known = Known().see(*SIZES).see(*SIZES, chi=0.3, where=Where("main", "old")).see(1, where=Where("small", ""))
    (status,) = known.written()
    api.parse_status(api.ProfileStatus, {"status": status})
    assert (status["perUnit"], status["startup"], status["samples"], status["r2"]) == (0.1, 5.0, 6, 1.0)
    new = Known()
    new.load({**new.body, "status": copy.deepcopy(status)})
    assert new.cost() == known.cost()
    assert new.learning.classes("main") == known.learning.classes("main")
    assert new.written() == [], "nothing is new"
    new.see(7)
    (again,) = new.written()
    assert [len(c["units"]) for c in again["classes"]] == [7, 6, 1]


def test_transfers_are_written_by_class_and_a_new_leader_goes_on_from_them():
    here, there = Where("main", "large"), Where("main", "small")
    known = Known().fetch(*SIZES, where=here).fetch(7, where=there)
    (status,) = known.written(0.0)
    assert (status["transferPerUnit"], status["transferSetup"], status["perUnit"], status["startup"]) == (
        0.02,
        0.5,
        0.1,
        5.0,
    )
    large, small = status["classes"]
    assert large["transfers"] == {
        "units": list(SIZES),
        "opening": [0.5] * 6,
        "seconds": [0.7, 0.9, 1.5, 2.5, 4.5, 10.5],
    }
    assert large["seconds"] == [6.0, 7.0, 10.0, 15.0, 25.0, 55.0], "of the work alone"
    assert (large["transferPerUnit"], large["transferSetup"]) == (0.02, 0.5)
    assert small["transfers"] == {"units": [7], "opening": [0.5], "seconds": [0.64]}
    assert "transferPerUnit" not in small
    new = Known()
    new.load({**new.body, "status": copy.deepcopy(status)})
    assert new.cost(fetches=True) == known.cost(fetches=True)
    assert new.written() == [], "nothing is new"
    (again,) = new.fetch(30, tau=0.5, where=here).written()
    assert again["classes"][0]["transfers"]["units"] == [*SIZES, 30]
    assert again["transferPerUnit"] == 0.02


def response(cpu_per_unit=0.1, lag=8.0, delay=2.0, noise=0.04):
    return Response(cpu_per_unit, lag, delay, noise)


def test_how_chunks_answer_to_cpu_is_the_median_of_the_newest_that_have_shown_it():
    known = Known().see(*SIZES)
    assert known.response() is None
    known.answer(*[response()] * 20, *[response(0.2, 4.0)] * 4)
    assert known.response() == response(), "a few chunks were on a node that was disturbed"
    known.see(*SIZES).answer(response(0.2, 4.0))
    assert known.response() == response(0.2, 4.0), "they have all changed"
    (status,) = known.written()
    assert status["response"] == {"cpuPerUnit": 0.2, "lag": 4.0, "delay": 2.0, "noise": 0.04}
    assert len(status["classes"][0]["responses"]) == KEPT_RESPONSES


def test_a_new_leader_goes_on_from_the_responses_in_the_status():
    known = Known().see(*SIZES).answer(response(0.12345678), response(lag=0.0), response(delay=0.0))
    (status,) = known.written()
    assert api.parse_status(api.ProfileStatus, {"status": status}).manifest() == status
    new = Known()
    new.load({**new.body, "status": copy.deepcopy(status)})
    assert new.response() == known.response() == response()
    assert new.written() == [], "nothing is new"
    (again,) = new.answer(response(0.2)).written()
    assert [r["cpuPerUnit"] for r in again["classes"][0]["responses"]] == [0.1235, 0.1, 0.1, 0.2]


def test_a_status_of_a_leader_that_knew_nothing_of_responses_is_read():
    known = Known().see(*SIZES)
    (status,) = known.written()
    assert "response" not in status
    assert "responses" not in status["classes"][0]


@pytest.mark.parametrize("wrong", [{"cpuPerUnit": 0.0}, {"lag": -1.0}, {"noise": "much"}])
def test_a_response_that_cannot_be_true_makes_the_status_unreadable(wrong):
    known = Known()
    bad = {"cpuPerUnit": 0.1, "lag": 1.0, "delay": 0.0, "noise": 0.0} | wrong
    classes = [{"pool": "main", "units": [5], "seconds": [1.0], "responses": [bad]}]
    known.load(manifest(status={"classes": classes}))
    assert known.see(*SIZES).response() is None
    assert known.cost() is not None


def test_a_status_that_cannot_be_read_is_begun_anew():
    known = Known()
    known.load(manifest(status={"classes": [{"pool": "main", "units": [-5], "seconds": [1.0]}]}))
    assert known.see(*SIZES).cost() is not None


def test_another_profile_of_the_same_name_knows_nothing_of_the_first():
    known = Known().see(*SIZES)
    known.directory.profiles.forget("u")
    known.see(10)
    known.directory.profiles.observe(manifest(uid="u2"))
    known.see(10)
    assert known.cost() is None
    assert [s["samples"] for s in known.written()] == [1]


def test_a_status_is_bounded():
    known = Known()
    for pool in range(2 * MOST):
        where = Where(f"pool-{pool}", "")
        known.fetch(*range(1, 2 * KEPT), where=where).answer(*[response()] * 2 * KEPT_RESPONSES, where=where)
    (status,) = known.written()
    assert len(status["classes"]) == MOST
    assert {len(c["units"]) for c in status["classes"]} == {KEPT}
    assert {len(c["transfers"]["units"]) for c in status["classes"]} == {KEPT}
    assert {len(c["responses"]) for c in status["classes"]} == {KEPT_RESPONSES}
    assert len(str(status)) < 100_000
