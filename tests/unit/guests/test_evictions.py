"""Evictions from nodes that need their memory: nothing is lost, and little is done again."""

from random import Random

import pytest
from evictions import endure, trace
from guest_world import World, guest
from hypothesis import given
from hypothesis import strategies as st

from punctual.guests.victims import Candidate, victims


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
    """Where chunks that are killed do their work again, and workers answer offers (seeds 10 to 13: 7 to 118 times)."""
    demands = trace(seed, 40)
    _, others = endure(demands, hungriest=True)
    _, ours = endure(demands)
    assert ours.freed_late <= 1  # a pod that was about to start takes the memory that others have freed
    assert others.per_eviction >= 5.0 * ours.per_eviction


CANDIDATES = st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 50)), max_size=8)


@given(CANDIDATES, st.integers(1, 200))
def test_victims_free_what_is_asked_and_each_of_them_is_needed(drawn, excess):
    candidates = [Candidate(("g", "Chunk", i, 1), loss, memory) for i, (loss, memory) in enumerate(drawn)]
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
    candidates = [Candidate(("g", "Chunk", i, 1), loss, memory) for i, (loss, memory) in enumerate(drawn)]
    assert sorted(one.key[2] for one in victims(candidates, excess)) == leave
