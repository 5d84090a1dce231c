from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.kube.actors.results import RANGES, Results, config_map_name
from punctual.kube.known.jobs import Owner
from punctual.kube.writes.operations import ApplyConfigMap, Outcome, Patch
from punctual.scheduling.model.actions import StoreResult
from punctual.scheduling.model.ranges import Ranges

LARGEST = "\ufffd" * 4096  # what is no UTF-8, as the API server shows it
OWNER = Owner(uid="u1", namespace="ns", name="render", pool="main", units=100)


def result(begin, end, message="r"):
    return StoreResult("u1", begin, end, message)


def kept(*keys, owner=OWNER):
    results = Results(owner)
    results.load([dict.fromkeys(keys, "r")])
    return results


def files(results):
    """Return the keys that the reduce pod finds."""
    found = set()
    for source in results.sources():
        found |= {i["key"] for i in source["configMap"]["items"]}
    return found


def test_no_config_map_grows_beyond_what_one_may_hold():
    results = Results(OWNER)
    made = [op for n in range(200) for op in results.store(result(n, n + 1, LARGEST))]
    sizes = {}
    for op in made:
        if isinstance(op, Patch):
            sizes[op.path] = sizes.get(op.path, 0) + sum(len(text.encode()) for text in op.body["data"].values())
    assert sum(isinstance(op, ApplyConfigMap) for op in made) == len(sizes)
    assert sum(sizes.values()) == 200 * 3 * 4096
    assert all(size < 2**20 for size in sizes.values())


def test_a_new_leader_knows_how_much_is_there():
    results = Results(OWNER)
    results.load([{f"{n}-{n + 1}": LARGEST for n in range(73)}])
    make, put = results.store(result(73, 74, LARGEST))
    assert make.path == put.path
    assert put.path.endswith(config_map_name("u1", 1))


def test_what_was_refused_is_not_waited_for_and_the_next_result_makes_its_config_map():
    results = Results(OWNER)
    make, put = results.store(result(0, 50))
    assert results.lost(Outcome("u1", make, "refused", "exceeded quota"))
    assert not results.lost(Outcome("u1", put, "gone", "not found"))
    assert results.sources() == []
    again, _ = results.store(result(50, 100))
    assert again == make
    assert files(results) == {"50-100"}


def test_what_is_deleted_is_told_of_once_and_the_next_result_makes_its_config_map():
    results = kept("0-20", "20-50")
    (put,) = results.store(result(50, 60))
    (look,) = results.look()
    assert results.lost(Outcome("u1", put, "gone", "not found")) == "the results of 3 ranges are lost: not found"
    assert not results.lost(Outcome("u1", look, "gone", "not found"))
    assert results.sources() == results.look() == []
    make, _ = results.store(result(60, 100))
    assert isinstance(make, ApplyConfigMap)
    assert results.missing(Ranges.of((0, 10), (50, 70))) == Ranges.of((0, 10), (50, 60))


def test_a_look_that_a_policy_refuses_has_lost_nothing():
    results = kept("0-100")
    (look,) = results.look()
    assert not results.lost(Outcome("u1", look, "refused", "a policy"))
    assert files(results) == {"0-100"}


def test_a_result_that_is_refused_alone_leaves_the_others_where_they_are():
    results = kept("0-50")
    (put,) = results.store(result(50, 100))
    assert results.lost(Outcome("u1", put, "refused", "a policy"))
    assert files(results) == {"0-50"}
    (again,) = results.store(result(50, 100))
    assert again == put


def test_the_first_result_makes_the_jobs_own_config_map():
    make, put = Results(OWNER).store(result(0, 50, "42"))
    name = config_map_name("u1", 0)
    assert isinstance(make, ApplyConfigMap)
    assert make.body["metadata"]["name"] == name
    assert make.body["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert "data" not in make.body  # an apply would take back what it does not name
    assert put == Patch(f"/api/v1/namespaces/ns/configmaps/{name}", {"data": {"0-50": "42"}}, refusable=True)


def test_a_result_that_is_stored_again_goes_where_it_was():
    results = Results(OWNER)
    first = results.store(result(0, 50))[-1]
    results.store(result(50, 60))
    assert results.store(result(0, 50)) == [first]


def test_a_new_leader_goes_on_in_the_config_map_that_is_there():
    (put,) = kept("0-50").store(result(50, 60))
    assert put.path.endswith(config_map_name("u1", 0))


def test_a_config_map_takes_200_ranges():
    results = Results(OWNER)
    made = [op for n in range(2 * RANGES + 1) for op in results.store(result(n, n + 1))]
    assert sum(isinstance(op, ApplyConfigMap) for op in made) == 3


def test_each_result_is_named_so_that_one_stored_by_a_replaced_leader_meanwhile_is_not_mounted():
    items = [{"key": "0-50", "path": "0-50"}, {"key": "50-100", "path": "50-100"}]
    source = {"name": config_map_name("u1", 0), "items": items, "optional": True}
    assert kept("0-50", "50-100").sources() == [{"configMap": source}]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param({"0-50", "0-25", "25-50", "50-100"}, [{"0-50", "50-100"}, {"0-25", "25-50", "50-100"}], id="redo"),
        pytest.param({"0-60", "0-50", "50-100"}, [{"0-50", "50-100"}], id="a stored end that was cut"),
        pytest.param({"0-50", "60-100"}, [{"0-50", "60-100"}], id="a durable rest has no result"),
    ],
)
def test_the_reduce_pod_finds_each_unit_once(keys, expected):
    assert files(kept(*keys)) in expected


@given(st.sets(st.integers(1, 99)), st.sets(st.tuples(st.integers(0, 99), st.integers(1, 50))))
def test_whatever_else_is_stored_a_cut_of_all_units_is_found(cuts, others):
    places = [0, *sorted(cuts), 100]
    keys = {f"{a}-{b}" for a, b in pairwise(places)}
    keys |= {f"{a}-{min(100, a + size)}" for a, size in others}
    ranges = sorted(tuple(map(int, key.split("-"))) for key in files(kept(*keys)))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 100
    assert all(a[1] == b[0] for a, b in pairwise(ranges))
