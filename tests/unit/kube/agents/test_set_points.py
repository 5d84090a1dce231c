"""The latest set point of each pod, by node."""

import asyncio

import pytest

from punctual import wire
from punctual.kube.agents.set_points import SetPointStore
from punctual.scheduling.model.actions import DropSetPoint, FollowedLine, SetPoint


def point(pod="p1", node="n1", **more):
    return SetPoint(**({"node": node, "pod": pod, "cap": 0.5, "period": 0.1, "units": 10, "end": 100.0} | more))


def told(set_points, node="n1", **done):
    pods = {uid: wire.PodReport(uid=uid, done=units) for uid, units in done.items()}
    return {p.uid: p for p in set_points.answer(node, now=90.0, epoch=1, pods=pods).pods}


@pytest.mark.parametrize(("done", "left"), [({}, None), ({"p1": None}, None), ({"p1": 4}, 6.0), ({"p1": 11}, 0.0)])
def test_units_left_follow_from_what_the_report_says(done, left):
    set_points = SetPointStore()
    set_points.put(point())
    assert told(set_points, **done)["p1"].units_left == left


def test_the_newest_counts_and_what_ended_is_gone():
    set_points = SetPointStore()
    set_points.put(point(end=95.0))
    set_points.put(point(end=99.0))
    set_points.put(point("p2"))
    set_points.put(point("p3", "n2"))
    assert {uid: p.seconds_left for uid, p in told(set_points).items()} == {"p1": 9.0, "p2": 10.0}
    set_points.drop(DropSetPoint("n1", "p1"))
    set_points.drop(DropSetPoint("n1", "p1"))
    set_points.drop(DropSetPoint("nowhere", "p1"))
    assert told(set_points).keys() == {"p2"}
    assert len(set_points) == 2
    set_points.clear()
    assert not told(set_points)
    assert len(set_points) == 0


def test_an_answer_never_holds_more_than_the_wire_allows():
    set_points = SetPointStore()
    for i in range(1200):
        set_points.put(point(f"p{i:04}"))
    answer = set_points.answer("n1", now=0.0, epoch=1, pods={})
    assert [p.uid for p in answer.pods] == [f"p{i:04}" for i in range(1000)]
    assert wire.SetPoints.model_validate_json(answer.model_dump_json()) == answer


def line(**more):
    return FollowedLine(
        **({"pool": "main", "pool_cores": 2.0, "units": 400, "planned": 200.0, "cpu_per_unit": 0.25} | more)
    )


def follow(set_points, *, followed=None):
    pods = {} if followed is None else {"p1": wire.PodReport(uid="p1", done=5, followed=followed)}
    (found,) = set_points.answer("n1", now=90.0, epoch=1, pods=pods).pods
    return found.follow


@pytest.mark.parametrize(
    ("more", "sample", "spare"),
    [
        ({}, 5.0, 15.0),  # ten units at half a core
        ({"cpu_per_unit": 0.01}, 1.0, 4.0),
        ({"cpu_per_unit": 5.0}, 5.0, 15.0),  # a fortieth of the planned time
        ({"cpu_per_unit": 50.0, "planned": 1e5}, 60.0, 2000.0),
        ({"planned": 2.0}, 1.0, 3.0),
    ],
)
def test_a_line_ends_before_the_planned_end_by_what_noise_may_take(more, sample, spare):
    set_points = SetPointStore()
    set_points.put(point(end=500.0, line=line(**more)))
    found = follow(set_points)
    assert (found.sample, found.seconds_left) == (sample, 500.0 - 90.0 - spare)
    assert (found.pool_cores, found.units, found.floor) == (2.0, 400, 0.025)
    assert (found.model.a, found.model.b) == (0.0, sample / line(**more).cpu_per_unit)
    assert wire.Follow.model_validate_json(found.model_dump_json()) == found


def test_without_a_line_a_pod_holds_its_cap():
    set_points = SetPointStore()
    set_points.put(point())
    assert follow(set_points) is None


async def test_a_new_agent_goes_on_with_the_model_that_the_last_one_had_learned_and_gets_its_controller():
    set_points = SetPointStore()
    set_points.put(point(line=line()))
    learned = wire.Model(a=0.3, b=11.0, delay=1, learned=True)
    seen = wire.Followed(needed=0.4, model=learned, noise=0.04)
    assert follow(set_points, followed=seen).loop is None, "the search has just begun"
    await asyncio.gather(*set_points._loops._searches.values())
    found = follow(set_points, followed=seen)
    assert found.model == learned
    assert found.loop.kp > 0.0 < found.loop.ki
    assert follow(set_points).model == learned
    assert follow(set_points).loop is None, "it has not said which model it uses"
    set_points.drop(DropSetPoint("n1", "p1"))
    set_points.put(point(line=line()))
    assert not follow(set_points).model.learned
