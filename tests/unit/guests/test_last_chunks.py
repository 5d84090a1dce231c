"""A busy node helps a job, or is left alone: its last chunks are not where the others wait for them."""

from random import Random

import pytest
from guest_world import World, guest
from hypothesis import given
from hypothesis import strategies as st

from punctual.guests.together import GuestPlace, end_together

START = 2.0
"""Seconds that a pod takes to start in this world: jobs may differ by one start."""


def took(uses: list[float], *, cores: float = 1.0, **more) -> float:
    """Return the seconds that a job takes. There is a node for each of ``uses``: the part of it that its hosts use."""
    world = World(nodes=len(uses), cores=cores)
    for host, use in zip(world.hosts.values(), uses, strict=True):
        host.use = use
    world.run(1)
    world.apply(guest(**more))
    seconds = world.until_done()
    world.check()
    return seconds


@pytest.mark.parametrize("policy", ["LingerLonger", "LingerForever"])
@pytest.mark.parametrize("use", [0.3, 0.7, 0.9, 0.95])
@pytest.mark.parametrize(("units", "cost"), [(10, 1.0), (60, 1.0), (61, 1.0), (1000, 1.0), (10, 5.0), (200, 5.0)])
def test_a_busy_node_beside_two_idle_ones_makes_no_job_later(policy, use, units, cost):
    more = {"units": units, "cpu_per_unit": cost, "policy": policy}
    assert took([0.0, 0.0, use], **more) <= took([0.0, 0.0], **more)


@pytest.mark.parametrize("seed", range(5))
def test_busy_nodes_of_any_kind_make_no_job_later_by_more_than_a_start(seed):
    dice = Random(seed)
    for _ in range(8):
        idle = [0.0] * dice.randint(1, 3)
        busy = [dice.uniform(0.1, 0.95) for _ in range(dice.randint(1, 3))]
        cost = dice.choice([0.3, 1.0, 4.0, 12.0])
        more = {
            "cores": dice.choice([1.0, 2.0, 4.0]),
            "units": int(dice.choice([12, 30, 60, 120, 300]) / cost),
            "cpu_per_unit": cost,
            "policy": dice.choice(["LingerLonger", "LingerForever"]),
            "restart": dice.choice(["Redo", "Resume"]),
            "most": dice.choice([None, 2, 5]),
        }
        assert took(idle + busy, **more) <= took(idle, **more) + START, (idle, busy, more)


@pytest.mark.parametrize("policy", ["LingerLonger", "LingerForever"])
@pytest.mark.parametrize("use", [0.3, 0.5, 0.7, 0.9])
def test_with_much_work_a_busy_node_gives_most_of_what_its_hosts_leave(policy, use):
    more = {"units": 2000, "policy": policy}
    alone, helped = took([0.0, 0.0], **more), took([0.0, 0.0, use], **more)
    gain = alone / helped - 1.0
    assert gain >= 0.6 * (1.0 - use) / 2.0


def test_where_all_nodes_are_busy_a_job_runs_on_them():
    assert took([0.9, 0.9], units=20) < 20 / 0.2 * 1.5


PLACES = st.lists(st.builds(GuestPlace, st.floats(0.0, 100.0), st.floats(0.01, 2.0)), max_size=6)


@given(st.floats(0.01, 1000.0), PLACES)
def test_places_that_end_together_have_done_the_work(work, places):
    end = end_together(work, places)
    done = sum(place.rate * max(0.0, end - place.free) for place in places)
    assert done == pytest.approx(work) if places else end == float("inf")


@pytest.mark.parametrize(
    ("work", "places", "end"),
    [
        (10.0, [GuestPlace(0.0, 1.0)], 10.0),
        (10.0, [GuestPlace(0.0, 1.0), GuestPlace(2.0, 1.0)], 6.0),
        (10.0, [GuestPlace(0.0, 1.0), GuestPlace(2.0, 0.25)], 8.4),
        (10.0, [GuestPlace(0.0, 1.0), GuestPlace(10.0, 1.0)], 10.0),
    ],
)
def test_when_places_end_together(work, places, end):
    assert end_together(work, places) == pytest.approx(end)
