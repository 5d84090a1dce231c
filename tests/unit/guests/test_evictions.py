"""Evictions from nodes that need their memory: nothing is lost, and little is done again."""

from random import Random

import pytest
from evictions import endure, trace
from guest_world import Manners, Pod, World, guest
from hypothesis import given
from hypothesis import strategies as st

from punctual.guests.victims import LeavingChunk, victims


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
def test_in_a_thousand_random_evictions_no_unit_is_lost_or_accounted_twice(restart):
    dice = Random(restart)
    world = World(6, 2.0)
    for uid in ("a", "b", "c"):
        world.apply(guest(uid, units=12_000, restart=restart))
    while world.kills < 1000:
        world.run(dice.randint(1, 3))
        assert not any(record.ended for record in world.records.values()), "there was too little work"
        world.excess.clear()
        chance = dice.random()
        running = [pod for pod in world.running() if pod.cpu > 0.0]
        if chance < 0.1:
            world.excess[f"n{dice.randrange(6)}"] = dice.randint(1, 200)
        elif chance < 0.15:
            world.interrupted(dice.random())
        elif running:
            world.kill(dice.choice(running))
    world.until_done()
    world.check()
    assert all(world.records[uid].completed.total == one.units for uid, one in world.guests.items())


@pytest.mark.parametrize("seed", [10, 12])
def test_an_eviction_costs_a_fifth_of_hungriest_first(seed):
    """Where chunks that are killed do their work again, and workers answer offers (seeds 10 to 13: 6 to 18 times)."""
    demands = trace(seed, 40)
    _, others = endure(demands, hungriest=True)
    _, ours = endure(demands)
    assert ours.freed_late == 0
    assert others.per_eviction >= 5.0 * ours.per_eviction


@pytest.mark.parametrize(("seed", "restart", "times"), [(12, "Redo", 1.05), (10, "Resume", 1.4)])
def test_an_eviction_costs_less_than_hungriest_first_where_no_worker_answers(seed, restart, times):
    """Seeds 10 to 13: 1.0 to 1.33 and 1.41 to 2.84 times. The best sets of chunks cost 1.2 and 1.6 times less."""
    demands = trace(seed, 40)
    _, others = endure(demands, hungriest=True, restart=restart)
    _, ours = endure(demands, deaf=True, restart=restart)
    assert others.per_eviction >= times * ours.per_eviction


def one_of_two(restart: str, begun: float) -> tuple[World, Pod]:
    """A chunk on n0 has not answered an offer; return one on n1 that has used ``begun`` seconds of its unit of ten."""
    world = World(nodes=2)
    world.manners = Manners(deaf=True)
    world.apply(guest(units=10_000, cpu_per_unit=10.0, restart=restart, most_lost=10_000.0))
    world.run(600)  # chunks have become long
    while "n0" not in {pod.chunk.node for pod in world.running()}:
        world.tick()
    world.cordon("n0")
    world.run(7)
    while not (there := [pod for pod in world.running() if pod.chunk.node == "n1" and 20.0 <= pod.cpu <= 40.0]):
        world.tick()
    while there[0].cpu % 10.0 != begun:
        world.tick()
    world.lost = 0.0
    return world, there[0]


def free(world: World, pod: Pod) -> float:
    """Let n1 be short of memory until a pod is gone; return the seconds that this took."""
    began = world.now
    while pod.name in world.pods:
        world.excess["n1"] = 50
        world.tick()
    return world.now - began


@pytest.mark.parametrize(
    ("restart", "begun", "seconds"),
    [
        ("Redo", 8.0, 1.0),  # more would be lost with each second
        ("Resume", 2.0, 1.0),
        ("Resume", 7.0, 3.0),  # it has saved the unit
    ],
)
def test_of_a_job_that_does_not_answer_a_pod_is_killed_when_it_has_least_to_lose(restart, begun, seconds):
    world, pod = one_of_two(restart, begun)
    assert free(world, pod) == seconds
    assert world.lost == {("Redo", 8.0): pod.cpu, ("Resume", 2.0): 3.0, ("Resume", 7.0): 0.0}[restart, begun]
    world.check()


@pytest.mark.parametrize("answers", [False, True])
def test_a_job_counts_as_deaf_until_one_of_its_chunks_answers_or_ten_minutes_are_over(answers):
    world, _ = one_of_two("Redo", 8.0)
    if answers:
        world.manners = Manners()
        world.cordon("n0", schedulable=True)
        world.run(5)
        world.cordon("n0")
        world.run(3)
    else:
        world.run(600)
    pod = next(pod for pod in world.running() if pod.chunk.node == "n1")
    pod.manners = Manners()
    free(world, pod)
    assert pod.answered


def test_chunks_of_a_job_that_does_not_answer_move_only_if_that_pays_with_what_they_lose():
    world, pod = one_of_two("Redo", 8.0)
    world.run(1)
    world.cordon("n0", schedulable=True)
    world.edit("g1", most=1)
    world.hosts["n1"].use = 0.3  # a move that loses nothing would pay after 7 s, this one after 100 s
    world.run(25)
    assert pod.offered is None
    assert pod.name in world.pods


CANDIDATES = st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 50)), max_size=8)


@given(CANDIDATES, st.integers(1, 200))
def test_victims_free_what_is_asked_and_each_of_them_is_needed(drawn, excess):
    candidates = [LeavingChunk(("g", "Chunk", i, 1), loss, memory) for i, (loss, memory) in enumerate(drawn)]
    chosen = victims(candidates, excess)
    freed = sum(one.memory for one in chosen)
    assert len(set(chosen)) == len(chosen)
    assert freed >= min(excess, sum(one.memory for one in candidates))
    if freed >= excess:
        assert all(freed - one.memory < excess for one in chosen)


@pytest.mark.parametrize(
    ("drawn", "excess", "leave"),
    [
        ([(5.0, 100), (1.0, 100)], 50, [1]),
        ([(5.0, 1000), (1.0, 100)], 100, [1]),
        ([(5.0, 1000), (1.0, 100)], 101, [0]),  # with the large one, the small one is not needed
        ([(5.0, 10), (1.0, 10), (3.0, 10)], 20, [1, 2]),
        ([(5.0, 10), (1.0, 0)], 20, [0]),
    ],
)
def test_those_with_the_least_to_lose_leave(drawn, excess, leave):
    candidates = [LeavingChunk(("g", "Chunk", i, 1), loss, memory) for i, (loss, memory) in enumerate(drawn)]
    assert sorted(one.key[2] for one in victims(candidates, excess)) == leave
