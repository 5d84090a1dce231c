"""The latest set point of each pod, by node."""

import pytest

from punctual import wire
from punctual.kube.agents.set_points import SetPointStore
from punctual.scheduling.model.actions import DropSetPoint, SetPoint


def point(pod="p1", node="n1", **more):
    return SetPoint(**({"node": node, "pod": pod, "cap": 0.5, "period": 0.1, "units": 10, "end": 100.0} | more))


def told(set_points, node="n1", **done):
    return {p.uid: p for p in set_points.answer(node, now=90.0, epoch=1, done=done).pods}


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
    answer = set_points.answer("n1", now=0.0, epoch=1, done={})
    assert [p.uid for p in answer.pods] == [f"p{i:04}" for i in range(1000)]
    assert wire.SetPoints.model_validate_json(answer.model_dump_json()) == answer
