from dataclasses import replace
from types import SimpleNamespace

import pytest

from punctual.kube.actors.taints import Taints
from punctual.kube.cluster.nodes import Node
from punctual.scheduling.model.resources import Resources

NODE = Node(name="n1", ready=True, allocatable=Resources(4.0, 1000), pods=10, labels={}, taints=())
OTHERS = {"key": "gpu", "effect": "NoExecute", "timeAdded": "2030-01-01T00:00:00Z"}
OURS = {"key": "punctual.dev/pool", "value": "main", "effect": "NoSchedule"}


def patch(before, after):
    return [
        {"op": "test", "path": "/spec/taints", "value": before},
        {"op": "add", "path": "/spec/taints", "value": after},
    ]


@pytest.fixture
def written():
    return []


@pytest.fixture
def holds(written):
    return Taints(["main"], SimpleNamespace(submit=lambda key, write: written.append((key.name, write.body))))


def test_a_node_gets_the_taint_of_its_pool(holds, written):
    holds.observe(NODE)
    holds.hold("n1", "main", held=True)
    assert written == [("n1", patch(None, [OURS]))]


def test_the_taints_of_others_stay_as_they_are(holds, written):
    holds.hold("n1", "main", held=True)
    holds.observe(replace(NODE, taints=(OTHERS,)))
    assert written == [("n1", patch([OTHERS], [OTHERS, OURS]))]


def test_a_node_that_has_it_is_left_alone(holds, written):
    holds.observe(replace(NODE, taints=(OURS,)))
    written.clear()
    holds.settled("n1")
    holds.hold("n1", "main", held=True)
    assert written == []


@pytest.mark.parametrize("release", [lambda h: h.hold("n1", "main", held=False), lambda h: h.forget_pool("main")])
def test_it_goes_when_the_pool_wants_it_no_more(holds, written, release):
    holds.hold("n1", "main", held=True)
    holds.observe(replace(NODE, taints=(OURS, OTHERS)))
    release(holds)
    assert written == [("n1", patch([OURS, OTHERS], [OTHERS]))]


def test_what_an_earlier_leader_put_on_stays_until_the_pool_speaks(holds, written):
    holds.observe(replace(NODE, taints=(OURS,)))
    assert written == []
    holds.hold("n1", "main", held=False)
    assert written == [("n1", patch([OURS], []))]


def test_what_an_earlier_leader_put_on_goes_when_the_pool_holds_no_more(holds, written):
    holds.observe(replace(NODE, taints=(OURS,)))
    holds.observe_pool("main", holding=False)
    assert written == [("n1", patch([OURS], []))]


def test_a_node_that_went_to_another_pool_gets_the_others_taint_whoever_speaks_first(holds, written):
    holds.observe_pool("other", holding=True)
    holds.observe(replace(NODE, taints=(OURS,)))
    holds.hold("n1", "main", held=True)
    holds.hold("n1", "other", held=True)
    holds.hold("n1", "main", held=False)
    assert written == [("n1", patch([OURS], [{**OURS, "value": "other"}]))]


def test_a_taint_left_behind_by_a_pool_that_is_gone_is_taken_off(holds, written):
    holds.observe(replace(NODE, taints=({**OURS, "value": "gone"},)))
    assert written == [("n1", patch([{**OURS, "value": "gone"}], []))]


def test_another_pools_wish_does_not_release_it(holds, written):
    holds.hold("n1", "main", held=True)
    holds.hold("n1", "other", held=False)
    holds.observe(NODE)
    assert written == [("n1", patch(None, [OURS]))]


def test_one_patch_at_a_time_and_a_lost_race_is_run_again_on_what_is_there_then(holds, written):
    holds.observe(NODE)
    holds.hold("n1", "main", held=True)
    holds.observe(replace(NODE, taints=(OTHERS,)))
    assert len(written) == 1
    holds.settled("n1")
    assert written[1:] == [("n1", patch([OTHERS], [OTHERS, OURS]))]


def test_a_patch_refused_for_good_is_not_repeated_until_the_node_changes(holds, written):
    holds.observe(NODE)
    holds.hold("n1", "main", held=True)
    holds.settled("n1")
    assert len(written) == 1
    holds.observe(replace(NODE, taints=(OTHERS,)))
    assert len(written) == 2


def test_a_taint_that_somebody_took_off_is_put_back(holds, written):
    holds.hold("n1", "main", held=True)
    holds.observe(replace(NODE, taints=(OURS,)))
    holds.observe(NODE)
    assert written == [("n1", patch(None, [OURS]))]
