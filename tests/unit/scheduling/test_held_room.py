"""What placeholders are told to keep (hold: Placeholder): each processor that nobody sits on, and nothing twice."""

from dataclasses import replace

import pytest
from world import World, job

from punctual import reasons


@pytest.fixture
def w():
    w = World(spec=replace(World().spec, hold="Placeholder"))
    w.node("n1", cpu=2)
    w.node("n2", cpu=1)
    w.run(1)
    return w


def kept(w):
    return {node: kept.placeholders for node, kept in w.kept.items()}


def test_what_a_chunk_has_is_not_kept_and_what_it_leaves_is_again(w):
    assert kept(w) == {"n1": 2, "n2": 1}
    w.apply(job(units=100, deadline=70))
    w.run(3)
    assert kept(w) == {"n1": 1, "n2": 0}
    w.run_until(lambda w: w.done("j1"))
    w.run(w.now + 5)
    assert w.met("j1")
    assert kept(w) == {"n1": 2, "n2": 1}


def test_a_processor_that_passes_from_chunk_to_chunk_is_not_kept_between_them(w):
    for i in range(3):
        w.apply(job(f"j{i}", units=90, deadline=60 + 40 * i))
    w.run_until(lambda w: all(w.done(f"j{i}") for i in range(3)))
    assert all(w.met(f"j{i}") for i in range(3))
    busy = [line for line in w.log if " keep " in line and "n1:2 n2:1" not in line]
    assert all(total(line) == 0 for line in busy[1:-1]), busy


def total(line):
    return sum(int(part.partition(":")[2]) for part in line.split()[2:])


def test_nothing_is_said_while_nothing_changes(w):
    before = list(w.log)
    w.run(60)
    assert w.log == before


def test_an_edit_of_the_pool_lets_go_and_takes_up_again(w):
    first = w.spec
    w.edit_pool(replace(first, hold="Taint", generation=2))
    w.run(2)
    assert (w.kept, w.held) == ({}, {"n1", "n2"})
    assert [line.held_since for line in w.pool_record.nodes] == [None, None]
    w.edit_pool(replace(first, generation=3))
    w.run(3)
    assert (kept(w), w.held) == ({"n1": 2, "n2": 1}, set())
    assert [line.held_since for line in w.pool_record.nodes] == [2.25, 2.25]


def test_since_when_is_on_record_and_begins_anew_where_a_node_was_away(w):
    since = {line.name: line.held_since for line in w.pool_record.nodes}
    assert since == {node: kept.since for node, kept in w.kept.items()}
    w.run(5)
    w.crash()
    w.kept = {}
    w.run(6)
    assert {node: kept.since for node, kept in w.kept.items()} == since
    w.node("n2", cpu=1, ready=False)
    w.run(7)
    assert kept(w) == {"n1": 2}
    w.node("n2", cpu=1)
    w.run(8)
    assert w.kept["n2"].since > 7
    assert w.kept["n1"].since == since["n1"]


def test_room_that_somebody_more_important_takes_is_lost_as_without_placeholders(w):
    w.apply(job(units=180, deadline=70))
    w.run(3)
    assert w.state("j1") == ("True", reasons.FEASIBLE)
    w.delete_pod(next(p.name for p in w.pods.values() if p.chunk.node == "n1"), disrupted=True)
    w.node("n1", cpu=1)
    w.run(5)
    assert kept(w) == {"n1": 0, "n2": 0}
    assert w.records["j1"].on_track[:2] == ("False", reasons.CAPACITY_LOST)


def test_the_margin_holds_the_time_in_which_a_placeholder_makes_way(w):
    w.startup = 3.5  # where nobody has to make way 1.5 s: thetaCp is 2
    w.apply(job(units=276, deadline=100))
    w.run(3)
    assert w.records["j1"].promise.margin == 4.0
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_a_pool_that_holds_otherwise_is_silent():
    w = World()
    w.node("n1")
    w.apply(job())
    w.run_until(lambda w: w.done("j1"))
    assert not [line for line in w.log if " keep " in line]
