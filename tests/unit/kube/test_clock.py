"""The API server's clock, told by answers whose Date has a resolution of one second."""

import random

import pytest

from punctual.kube.clock import DRIFT, HOLD, ServerClock


class World:
    """A local monotonic clock, a wall clock, and a server whose clock is ``ahead`` of the monotonic one."""

    def __init__(self, ahead: float = 1_700_000_000.25) -> None:
        self.mono = 100.0
        self.ahead = ahead
        self.clock = ServerClock(monotonic=lambda: self.mono, wall=lambda: self.mono + ahead + 30)

    @property
    def server(self) -> float:
        return self.mono + self.ahead

    def call(self, there: float = 0.002, back: float = 0.003) -> None:
        sent = self.mono
        self.mono += there
        date = float(int(self.server))
        self.mono += back
        self.clock.observe(date, sent=sent, received=self.mono)


def test_before_the_first_answer_it_is_the_wall_clock_and_says_that_it_knows_nothing():
    world = World()
    assert world.clock.now() == pytest.approx(world.server + 30)
    assert world.clock.error == float("inf")


def test_one_answer_tells_it_to_half_a_second():
    world = World()
    world.call()
    assert abs(world.clock.now() - world.server) <= world.clock.error <= 0.51


def test_many_answers_tell_it_to_some_milliseconds():
    world, dice = World(), random.Random(7)
    for _ in range(300):
        world.mono += dice.uniform(0, 0.3)
        world.call()
    assert world.clock.error < 0.015
    assert abs(world.clock.now() - world.server) <= world.clock.error


def test_the_interval_always_holds_the_truth_while_the_clocks_part_slowly():
    world, dice = World(), random.Random(11)
    for _ in range(2000):
        step = dice.uniform(0, 5)
        world.mono += step
        world.ahead += step * DRIFT * dice.uniform(-1, 1)
        world.call(there=dice.uniform(0, 0.05), back=dice.uniform(0, 0.05))
        assert abs(world.clock.now() - world.server) <= world.clock.error + 1e-6


def test_a_slow_answer_does_not_spoil_what_is_known():
    world = World()
    for _ in range(100):
        world.mono += 0.137
        world.call()
    before = world.clock.error
    world.call(there=4.0, back=5.0)
    assert world.clock.error <= before + 10 * DRIFT


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_server_whose_clock_is_set_is_followed(jump):
    world = World()
    world.call()
    world.clock.now()
    world.ahead += jump
    world.call()
    assert abs(world.clock.now() - world.server) <= 0.51


def test_small_corrections_never_turn_it_back():
    world, dice = World(), random.Random(3)
    told = world.clock.now()
    for _ in range(500):
        world.mono += dice.uniform(0, 0.01)
        if dice.random() < 0.2:
            world.ahead -= dice.uniform(0, 1.0)  # another server, a little behind
            world.call()
        if (now := world.clock.now()) < told:
            assert told - now > HOLD
        told = now
    held = told
    world.ahead = world.ahead - 1
    world.call()
    assert world.clock.now() >= held
