"""Nodes of different speed, and what the Pool tells of chunks that have ended."""

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.actions import Measured

PACE = {"quick": 1.0, "slow": 3.0}


def mixed(*, known=True):
    """A pool of two nodes with two processors each; on one a unit takes three times as long, whether known or not."""
    w = World()
    w.node("quick", 2.0)
    w.node("slow", 2.0, speed=PACE["slow"] if known else 1.0)
    w.workers = lambda _uid, chunk: Worker(pace=PACE[chunk.node])
    w.tick()
    return w


def shares(w, uid):
    """Units by node."""
    out = {}
    for chunk in w.records[uid].chunks:
        out[chunk.node] = out.get(chunk.node, 0) + chunk.size
    return out


def test_a_chunk_that_ended_well_is_told_with_its_node_and_time():
    w = mixed()
    w.apply(job("a", units=80, deadline=40.0))
    w.tick()
    sizes = {chunk.begin: (chunk.node, chunk.size) for chunk in w.records["a"].chunks}
    w.run_until(lambda w: w.done("a"))
    told = sorted((m.node, m.units) for m in w.measured)
    assert told == sorted(sizes.values())
    for m in w.measured:
        assert m == Measured("a", m.node, m.units, m.seconds)
        assert abs(m.seconds - (w.startup + PACE[m.node] * m.units)) <= 0.5


def test_what_failed_or_was_seen_late_is_not_told():
    w = World()
    w.node("n1", 1.0)
    w.workers = lambda _uid, chunk: Worker(exit_code=int(chunk.attempt == 1))
    w.apply(job("a", units=20, deadline=200.0))
    w.run_until(lambda w: any(c.attempt == 2 for c in w.records["a"].chunks) if "a" in w.records else False)
    assert w.measured == []
    w.run(w.now + 10.0).leaderless(w.now + 60.0)
    w.crash()
    w.run_until(lambda w: w.done("a"))
    assert w.measured == []


def test_slow_nodes_get_less_so_that_all_end_together():
    w = mixed()
    w.apply(job("a", units=80, deadline=40.0))
    w.tick()
    assert [(line.name, line.speed) for line in w.pool_record.nodes] == [("quick", 1.0), ("slow", 3.0)]
    got = shares(w, "a")
    assert sum(got.values()) == 80
    assert got["quick"] > 2 * got["slow"]
    ends = [chunk.promised_end for chunk in w.records["a"].chunks]
    assert max(ends) - min(ends) <= PACE["slow"]
    w.run_until(lambda w: w.done("a"))
    assert w.met("a")


@pytest.mark.parametrize("told", [True, False])
def test_what_is_promised_already_is_planned_anew_when_a_node_is_found_to_be_slow(told):
    w = mixed(known=False)
    w.workers = lambda uid, chunk: Worker(pace=PACE[chunk.node] if uid == "second" else 1.0)
    w.apply(job("first", units=80, deadline=30.0))
    w.apply(job("second", units=100, deadline=72.0))
    w.run(5.0)
    assert w.state("second") == ("True", reasons.FEASIBLE)
    if told:
        w.node("slow", 2.0, speed=3.0)
    w.run_until(lambda w: w.done("first") and w.done("second"))
    assert w.met("first")
    assert w.met("second") == told, "who does not know finds out too late"


def test_a_slow_node_does_not_make_the_work_look_slow():
    w = mixed()
    w.workers = lambda _uid, chunk: Worker(pace=1.3 * PACE[chunk.node])
    w.apply(job("a", units=40, deadline=90.0, min_processors=4))
    w.run_until(lambda w: w.pool.view().slowed("a") > 1.0 if "a" in w.pool.view().jobs else False)
    w.run_until(lambda w: w.done("a"))
    assert w.pool.view().slowed("a") < 1.6
