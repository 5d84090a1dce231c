"""Stories about a leader that died between two writes: what it had begun and not finished, the next one does."""

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.actions import CreateChunk, OfferEnd
from punctual.scheduling.model.events import PodObserved


def small(cpu: float = 4.0, **more) -> World:
    world = World(**more)
    world.node("n1", cpu)
    world.tick()
    return world


def test_an_end_that_nobody_had_written_is_written_by_the_next_leader():
    # the new Pool saw the reduce's success while it was being restored, and took the end for written
    w = small()
    w.apply(job(units=10, deadline=100, reduce_duration=5.0))
    w.run_until(lambda w: any(p.chunk.kind == "Reduce" and p.phase == "Running" for p in w.pods.values()))
    while not any(p.chunk.kind == "Reduce" and p.phase == "Succeeded" for p in w.pods.values()):
        w.interrupted(lambda _count: 0)
    w.crash()
    w.tick()
    assert w.met("j1")


@pytest.mark.parametrize("blind", [False, True], ids=["", "that sees the pod only later"])
def test_an_offer_that_was_recorded_but_never_made_is_made_by_the_next_leader(blind):
    # nobody made it again: the slow chunk went on to its own end, however late that was
    w = small()
    w.workers = lambda _j, c: Worker(pace=20.0 if c.origin == 40 else 0.5)
    w.apply(job(units=40, deadline=900, min_processors=2, max_processors=2))
    while not any(c.offered is not None for r in w.records.values() for c in r.chunks):
        lines = w.interrupted(lambda _count: 0)
        w.carry_out([a for line in lines.values() for a in line if not isinstance(a, OfferEnd)])
    w.crash(unseen=lambda event: blind and isinstance(event, PodObserved))
    late, w.inbox = w.inbox, []
    w.tick()
    w.inbox += late
    w.run_until(lambda w: any(" offer j1 " in line for line in w.log), within=5)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_a_chunk_that_is_lost_as_it_is_taken_up_gets_no_pod():
    # it was created behind the status that no longer had it
    w = small()
    w.apply(job(units=10, chi=None, deadline=5))
    while not any(r.chunks for r in w.records.values()):
        lines = w.interrupted(lambda _count: 0)
        w.carry_out([a for line in lines.values() for a in line if not isinstance(a, CreateChunk)])
    w.now += 10
    w.crash()
    w.tick()
    assert w.state("j1") == ("False", reasons.INFEASIBLE_STARTUP)
    assert not w.pods


def test_a_result_is_stored_before_its_range_is_accounted_by_a_new_leader_too():
    # the stamps accounted what was seen to have succeeded, and the leader after that had no result to store
    w = small(1.0)
    w.apply(job(units=2, deadline=100, reduce_duration=5.0))
    w.run_until(lambda w: any(p.phase == "Running" for p in w.pods.values()))
    while not any(p.phase == "Succeeded" for p in w.pods.values()):
        w.interrupted(lambda _count: 0)
    w.crash()
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert list(w.results) == [("j1", 0, 2)]
