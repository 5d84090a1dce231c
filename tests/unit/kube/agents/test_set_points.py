"""The latest set point of each pod, by node."""

import asyncio
import math
from dataclasses import astuple

import pytest
from structlog.testing import capture_logs

from punctual import wire
from punctual.control.response import Response
from punctual.guests.model import LendTo
from punctual.kube.agents.responses import shown
from punctual.kube.agents.set_points import SetPointStore
from punctual.rates.model import Grid, HoldPod, ReleasePod
from punctual.scheduling.model.actions import DropSetPoint, FollowedLine, SendSetPoint


def point(pod="p1", node="n1", **more):
    return SendSetPoint(**({"node": node, "pod": pod, "cap": 0.5, "period": 0.1, "units": 10, "end": 100.0} | more))


def told(set_points, node="n1"):
    return {p.uid: p for p in set_points.answer(node, now=90.0, epoch=1, pods={}).pods}


def test_the_newest_counts_and_what_ended_is_gone():
    set_points = SetPointStore()
    set_points.put(point(cap=0.3))
    set_points.put(point(cap=0.4))
    set_points.put(point("p2"))
    set_points.put(point("p3", "n2"))
    assert {uid: p.cap for uid, p in told(set_points).items()} == {"p1": 0.4, "p2": 0.5}
    set_points.drop(DropSetPoint("n1", "p1"))
    set_points.drop(DropSetPoint("n1", "p1"))
    set_points.drop(DropSetPoint("nowhere", "p1"))
    assert told(set_points).keys() == {"p2"}
    assert len(set_points) == 2
    set_points.clear()
    assert not told(set_points)
    assert len(set_points) == 0


def test_a_chunks_pod_is_told_with_the_job_that_it_was_promised_to():
    set_points = SetPointStore()
    set_points.put(point())
    set_points.put(point("p2"))
    assert {p.job for p in told(set_points).values()} == {None}
    set_points.job_of = {"p1": "team/one"}.get
    assert {uid: p.job for uid, p in told(set_points).items()} == {"p1": "team/one", "p2": None}


def test_an_answer_never_holds_more_than_the_wire_allows():
    set_points = SetPointStore()
    for i in range(1200):
        set_points.put(point(f"p{i:04}"))
    answer = set_points.answer("n1", now=0.0, epoch=1, pods={})
    assert [p.uid for p in answer.pods] == [f"p{i:04}" for i in range(1000)]
    assert wire.SetPoints.model_validate_json(answer.model_dump_json()) == answer


def test_an_answer_that_leaves_pods_out_is_not_complete_so_that_no_agent_releases_them():
    set_points = SetPointStore()
    set_points.applications_complete = True
    set_points.put(HoldPod("own", "n1", 0.3, 0.05))
    for i in range(1000):
        set_points.put(point(f"p{i:04}"))
    with capture_logs() as logs:
        answers = [set_points.answer(node, now=0.0, epoch=1, pods={}) for node in ("n1", "n1", "n2")]
    assert [answer.applications_complete for answer in answers] == [False, False, True]
    assert [(log["event"], log["node"], log["pods"]) for log in logs] == [("set_points_left_out", "n1", 1001)]
    set_points.drop(DropSetPoint("n1", "p0000"))
    assert set_points.answer("n1", now=0.0, epoch=1, pods={}).applications_complete


def line(**more):
    return FollowedLine(
        **(
            {"pool": "main", "pool_cores": 2.0, "units": 400, "planned": 200.0, "cpu_per_unit": 0.25, "due": 700.0}
            | more
        )
    )


def follow(set_points, *, followed=None):
    pods = {} if followed is None else {"p1": wire.PodReport(uid="p1", done=5, followed=followed)}
    (found,) = set_points.answer("n1", now=90.0, epoch=1, pods=pods).pods
    return found.mode


def test_a_line_is_told_in_seconds_left():
    set_points = SetPointStore()
    set_points.put(point(end=500.0, line=line()))
    found = follow(set_points)
    assert (found.sample, found.seconds_left) == (5.0, 500.0 - 90.0 - 15.0)
    assert found.due_seconds_left == 700.0 - 90.0
    assert (found.pool_cores, found.units, found.floor) == (2.0, 400, 0.025)
    assert (found.model.a, found.model.b, found.noise) == (0.0, 5.0 / 0.25, 0.05)
    assert wire.LineOrder.model_validate_json(found.model_dump_json()) == found


def test_without_a_line_a_pod_holds_its_cap():
    set_points = SetPointStore()
    set_points.put(point())
    assert follow(set_points) == wire.HoldOrder()


def alike(model, other):
    """Whether two models are the same to what a float can tell."""
    return model.model_dump() == pytest.approx(other.model_dump())


RESPONSE = Response(cpu_per_unit=0.2, lag=4.0 / math.log(2.0), delay=4.0, noise=0.1)


async def test_a_chunk_begins_with_what_others_have_shown_and_with_its_controller():
    set_points = SetPointStore()
    set_points.put(point(line=line(response=RESPONSE)))
    first = follow(set_points)
    assert first.sample == 4.0, "half a core does ten units in that time"
    assert alike(first.model, wire.ResponseModel(a=0.5, b=10.0, delay=1, learned=True))
    assert first.noise == pytest.approx(0.05)
    await asyncio.gather(*set_points._loops._searches.values())
    assert follow(set_points).loop.ki > 0.0
    assert wire.LineOrder.model_validate_json(follow(set_points).model_dump_json()) == follow(set_points)


async def test_what_its_own_agent_says_counts_more_once_it_has_seen_something():
    set_points = SetPointStore()
    set_points.put(point(line=line(response=RESPONSE)))
    own = wire.Followed(needed=0.4, sample=1.0, model=wire.ResponseModel(a=0.0, b=2.0), noise=0.3)
    assert follow(set_points, followed=own).model.learned
    found = follow(set_points, followed=own.model_copy(update={"samples": 1}))
    assert alike(found.model, wire.ResponseModel(a=0.0, b=8.0)), "in samples of four seconds"
    assert found.noise == pytest.approx(0.15)


@pytest.mark.parametrize("wrong", [{"b": 1e-320}, {"b": 1e308}, {"b": 1e-5}, {"a": 0.9999999999}])
async def test_a_model_that_cannot_be_true_is_not_sent_on(wrong):
    set_points = SetPointStore()
    set_points.put(point(line=line()))
    model = wire.ResponseModel(**({"a": 0.3, "b": 11.0, "learned": True} | wrong))
    found = follow(set_points, followed=wire.Followed(needed=0.4, sample=5.0, samples=99, model=model))
    assert found.model == wire.ResponseModel(a=0.0, b=20.0)
    await asyncio.gather(*set_points._loops._searches.values())


@pytest.mark.parametrize(
    ("more", "known"),
    [
        ({}, True),
        ({"samples": 16}, False),
        ({"model": wire.ResponseModel(a=0.5, b=10.0, delay=1)}, False),
    ],
    ids=["learned", "as it was sent", "as the cost says"],
)
def test_what_a_pod_has_shown_is_what_was_learned_of_enough_samples(more, known):
    learned = wire.ResponseModel(a=0.5, b=10.0, delay=1, learned=True)
    seen = {"needed": 0.4, "sample": 4.0, "samples": 17, "model": learned, "noise": 0.05}
    found = shown(wire.Followed(**(seen | more)))
    assert (found is not None) == known
    if found is not None:
        assert astuple(found) == pytest.approx(astuple(RESPONSE))
    assert shown(None) is None


async def test_a_new_agent_goes_on_with_the_model_that_the_last_one_had_learned_and_gets_its_controller():
    set_points = SetPointStore()
    set_points.put(point(line=line()))
    learned = wire.ResponseModel(a=0.3, b=11.0, delay=1, learned=True)
    seen = wire.Followed(needed=0.4, sample=5.0, samples=9, model=learned, noise=0.04)
    assert follow(set_points, followed=seen).loop is None, "the search has just begun"
    await asyncio.gather(*set_points._loops._searches.values())
    found = follow(set_points, followed=seen)
    assert alike(found.model, learned)
    assert found.loop.kp > 0.0 < found.loop.ki
    assert follow(set_points) == found, "a new agent has not said anything yet"
    new = seen.model_copy(update={"samples": 0, "model": wire.ResponseModel(a=0.0, b=20.0)})
    assert follow(set_points, followed=new).model == found.model, "nor has it seen anything yet"
    set_points.drop(DropSetPoint("n1", "p1"))
    set_points.put(point(line=line()))
    assert not follow(set_points).model.learned


def test_pods_held_at_a_rate_keep_their_cap_and_are_complete_when_told():
    set_points = SetPointStore()
    set_points.put(point())
    set_points.put(HoldPod("a", "n1", 0.3, 0.05))
    set_points.put(HoldPod("a", "n1", 0.4, 0.02))
    set_points.put(HoldPod("b", "n2", 0.4, 0.02))
    held = told(set_points)["a"]
    assert (held.mode.kind, held.cap, held.rest_cap, held.period) == ("Application", 0.4, 0.4, 0.02)
    assert held.mode.grid is None
    assert told(set_points)["p1"].mode == wire.HoldOrder()
    assert not set_points.answer("n1", now=0.0, epoch=1, pods={}).applications_complete
    set_points.applications_complete = True
    assert set_points.answer("n3", now=0.0, epoch=1, pods={}).applications_complete, "also where none is held"
    set_points.drop(ReleasePod("a", "n1"))
    set_points.drop(ReleasePod("a", "n1"))
    assert told(set_points).keys() == {"p1"}
    assert len(set_points) == 2
    set_points.clear()
    assert not told(set_points, "n2")
    assert not set_points.answer("n2", now=0.0, epoch=1, pods={}).applications_complete


@pytest.mark.parametrize("begins", [None, 12.5, -1e6])
def test_a_pod_with_a_grid_is_told_when_its_slices_begin(begins):
    set_points = SetPointStore()
    set_points.put(HoldPod("a", "n1", 0.4, 0.1, Grid(begins, 0.04)))
    assert told(set_points)["a"].mode.grid == wire.GridOrder(begins=begins, slice=0.04)


def test_memory_is_watched_where_it_is_asked():
    set_points = SetPointStore()
    set_points.put(HoldPod("a", "n1", 0.4, 0.1, Grid(None, 0.04), watch_memory=True))
    set_points.put(HoldPod("b", "n1", 0.4, 0.1))
    assert {uid: one.mode.watch_memory for uid, one in told(set_points).items()} == {"a": True, "b": False}


def test_a_sample_stays_the_same_while_the_cap_of_a_chunk_that_shares_a_processor_moves():
    set_points = SetPointStore()
    line = FollowedLine(pool="main", pool_cores=1.0, units=400, planned=200.0, cpu_per_unit=0.1, due=300.0, ceiling=1.0)
    samples = []
    for cap in (0.2, 0.3, 0.9):
        set_points.put(point(cap=cap, line=line))
        follow = told(set_points)["p1"].mode
        samples.append((follow.sample, follow.ceiling))
    assert samples == [(5.0, 1.0)] * 3  # ten units of 0.1 s at 0.2 cores


@pytest.mark.parametrize(("weight", "told_weight"), [(1.0, 100), (0.001, 1), (2.5, 250), (1e9, 10_000)])
def test_a_guest_rests_at_its_floor_and_has_its_weight(weight, told_weight):
    set_points = SetPointStore()
    set_points.put(LendTo("n1", "p1", 7, weight))
    assert told(set_points)["p1"] == wire.SetPoint(
        uid="p1", cap=0.01, rest_cap=0.01, units=7, mode=wire.GuestOrder(weight=told_weight)
    )
    set_points.put(LendTo("n1", "p1", 7, weight, paused=True))
    assert told(set_points)["p1"].mode.paused
    assert len(set_points) == 1
    set_points.drop(DropSetPoint("n1", "p1"))
    assert not told(set_points)
    set_points.put(LendTo("n1", "p1", 7, weight))
    set_points.clear()
    assert not told(set_points)
