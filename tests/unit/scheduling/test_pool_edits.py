"""Edits of a pool's selectors: nodes that leave or come by an edit are tested as a change, like any other."""

from dataclasses import replace

import pytest
from world import World, job

from punctual.scheduling.model.events import PoolApplied


@pytest.fixture
def w():
    made = World()
    for name in ("n1", "n2", "n3"):
        made.node(name, cpu=2)
    made.tick()
    return made


def select(w, *names):
    """Edit the pool so that it selects these nodes."""
    w.spec = replace(w.spec, generation=w.spec.generation + 1, selectors=" ".join(names))
    w.inbox.append(PoolApplied(w.spec, nodes=tuple(w.nodes[n] for n in names)))
    w.tick()


def verdict(w):
    return w.pool_record.spec_applied[:2]


def test_an_edit_that_takes_no_promise_its_nodes_is_in_force(w):
    select(w, "n1", "n2")
    assert verdict(w) == ("True", "Applied")
    assert (w.pool_record.processors, w.pool_record.applied.selectors) == (4, "n1 n2")


def test_an_edit_that_would_break_a_promise_is_not_in_force(w):
    w.apply(job(units=200, deadline=50.0))  # 5 processors at least
    w.run(5)
    select(w, "n1", "n2")
    assert verdict(w) == ("False", "EditRefused")
    assert "1 promise" in w.pool_record.spec_applied.message
    assert (w.pool_record.processors, w.pool_record.applied.selectors) == (6, "")
    w.run(60)
    assert w.met("j1")
    assert not any("CapacityLost" in line for line in w.log)


def test_chunks_on_the_nodes_that_would_leave_are_counted_as_to_be_done_again(w):
    w.apply(job(units=180, deadline=60.0))
    w.run(40)  # one of its four chunks would have to be done again, and for that there is no time any more
    select(w, "n1", "n2")
    assert verdict(w) == ("False", "EditRefused")
    w.run(70)
    assert w.met("j1")


def test_a_promise_that_fits_on_the_other_nodes_moves_there_and_is_kept(w):
    w.apply(job(units=20, deadline=200.0))
    w.run(5)
    node = next(iter(w.pods.values())).chunk.node
    select(w, *sorted({"n1", "n2", "n3"} - {node}))
    assert verdict(w) == ("True", "Applied")
    w.run(100)
    assert w.met("j1")
    assert all(p.chunk.node != node for p in w.pods.values())


def test_nodes_that_come_by_the_same_edit_count(w):
    w.apply(job(units=200, deadline=80.0))
    w.tick()
    for name in ("m1", "m2", "m3"):
        w.node(name, cpu=2)
        w.inbox.pop()  # nobody has told the pool of it: it is not the pool's
    select(w, "m1", "m2", "m3")
    assert verdict(w) == ("True", "Applied")
    assert {n.name for n in w.pool_record.nodes} == {"m1", "m2", "m3"}
    w.run(90)
    assert w.met("j1")


def test_nodes_that_came_with_a_refused_edit_are_not_the_pools(w):
    w.apply(job(units=200, deadline=50.0))
    w.run(5)
    w.node("m1", cpu=1)
    w.inbox.pop()
    select(w, "m1")
    assert verdict(w) == ("False", "EditRefused")
    assert {n.name for n in w.pool_record.nodes} == {"n1", "n2", "n3"}


def test_a_refused_edit_of_selectors_stays_refused_after_a_restart(w):
    w.apply(job(units=200, deadline=50.0))
    w.run(5)
    select(w, "n1")
    w.crash()
    w.tick()
    assert verdict(w) == ("False", "EditRefused")
    assert w.pool_record.applied.generation == w.spec.generation - 1
    w.run(60)
    assert w.met("j1")
