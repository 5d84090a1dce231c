"""The API server's clock, told by answers whose Date has a resolution of one second."""

import asyncio
import contextlib
import random

import pytest
from structlog.testing import capture_logs

from punctual.errors import Unreachable
from punctual.runtime.clock import (
    AGREED,
    ANSWERS,
    DISPUTED,
    DRIFT,
    HOLD,
    MEMORY,
    WITNESS,
    ServerClock,
    ask_while_doubted,
)


class World:
    """A local monotonic clock, a wall clock, and a server whose clock is ``ahead`` of the monotonic one."""

    def __init__(self, ahead: float = 1_700_000_000.25, *, wall: float = 30.0) -> None:
        self.mono = 100.0
        self.ahead = ahead
        self.clock = ServerClock(monotonic=lambda: self.mono, wall=lambda: self.mono + ahead + wall)
        self.ends: list[str] = []
        self.clock.on_end = self.ends.append

    @property
    def server(self) -> float:
        return self.mono + self.ahead

    def call(self, there: float = 0.002, back: float = 0.003, *, wrong: float = 0.0) -> None:
        """Ask; ``wrong``: by how many seconds the clock of the server that answers is."""
        sent = self.mono
        self.mono += there
        date = float(int(self.server + wrong))
        self.mono += back
        self.clock.observe(date, sent=sent, received=self.mono)

    def calls(self, seconds: float, *, wrong: float = 0.0, every: float = 0.25) -> None:
        for _ in range(round(seconds / every)):
            self.mono += every
            self.call(wrong=wrong)

    @property
    def right(self) -> bool:
        return abs(self.clock.now() - self.server) <= 0.51


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
def test_a_server_whose_clock_is_set_is_followed_once_its_answers_agree_for_seconds(jump):
    world = World()
    world.call()
    assert world.right
    began = world.mono
    world.call(wrong=jump)
    assert world.right
    assert world.clock.doubted
    while world.clock.doubted:
        assert world.right
        assert world.mono < began + AGREED + 1
        world.mono += 0.25
        world.call(wrong=jump)
    assert world.mono >= began + AGREED
    world.ahead += jump
    assert world.right
    assert world.ends == ["followed"]


@pytest.mark.parametrize("jump", [3600.0, -3600.0, HOLD + 2])
def test_one_answer_that_is_far_off_changes_nothing_but_puts_the_time_in_doubt_until_the_next(jump):
    world = World()
    world.call()
    world.call(wrong=jump)
    assert world.clock.doubted
    assert world.right
    world.mono += 2.0
    assert world.clock.doubt == pytest.approx(2.0)
    world.call()
    assert not world.clock.doubted
    assert world.clock.doubt == 0.0
    assert world.right
    assert world.ends == ["dismissed"]


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_of_four_servers_those_with_a_wrong_clock_are_never_followed_however_often_they_answer(wrong):
    world = World()
    world.call()
    for turn in range(10_000):
        world.mono += 0.5
        world.call(wrong=3600.0 if turn % 4 < wrong else 0.0)
        assert world.right
    assert "followed" not in world.ends


def test_servers_with_several_wrong_clocks_agree_on_none_of_them():
    world, dice = World(), random.Random(5)
    world.call()
    for _ in range(100):
        world.mono += 0.25
        world.call(wrong=dice.choice([3600.0, -3600.0, 7200.0]))
    assert world.right
    assert world.clock.doubt == pytest.approx(25.0, abs=1.0)
    world.call()
    assert not world.clock.doubted


def test_many_answers_at_once_are_not_agreement():
    world = World()
    world.call()
    for _ in range(100):
        world.call(wrong=3600.0)
    assert world.clock.doubted
    assert world.right


def test_few_answers_are_not_agreement_however_long_they_take():
    world = World()
    world.call()
    for _ in range(ANSWERS - 1):
        world.mono += 60.0
        world.call(wrong=3600.0)
    assert world.clock.doubted
    assert world.right
    world.call(wrong=3600.0)
    assert not world.clock.doubted


def test_servers_that_contradicted_each_other_must_agree_for_longer():
    world = World()
    world.call()
    world.call(wrong=3600.0)
    world.call()
    world.calls(DISPUTED - 1, wrong=3600.0)
    assert world.clock.doubted
    assert world.right
    world.calls(2, wrong=3600.0)
    assert not world.clock.doubted
    assert world.ends == ["dismissed", "followed"]


def test_a_contradiction_is_forgotten_after_a_while():
    world = World()
    world.call()
    world.call(wrong=3600.0)
    world.calls(MEMORY + 1)
    world.calls(AGREED + 1, wrong=3600.0)
    assert world.ends == ["dismissed", "followed"]


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_a_first_answer_far_from_the_wall_clock_is_doubted_and_the_next_one_near_it_believed(off):
    world = World(wall=30.0)
    world.call(wrong=off)
    assert world.clock.doubted
    assert world.clock.error == float("inf")
    world.call()
    assert not world.clock.doubted
    assert world.right


def test_a_wall_clock_that_is_wrong_is_outvoted_by_answers_that_agree():
    world = World(wall=WITNESS + 10)
    world.call()
    assert world.clock.doubted
    world.calls(AGREED + 1)
    assert not world.clock.doubted
    assert world.right


def test_a_doubt_is_logged_once_and_how_far_off_the_answer_was():
    world = World()
    with capture_logs() as logs:
        world.call()
        for _ in range(50):
            world.call(wrong=3600.0)
            world.call()
    assert [line["event"] for line in logs] == ["clock_doubted"]
    assert logs[0]["ahead"] == pytest.approx(3600, abs=1.5)


async def test_questions_are_asked_while_the_time_is_in_doubt_and_only_then(monkeypatch):
    monkeypatch.setattr("punctual.runtime.clock.ASK", 0.0)
    world, asked, done = World(), 0, asyncio.Event()
    world.call()

    async def ask():
        nonlocal asked
        asked += 1
        if asked == 1:
            raise Unreachable("as the test wants it")
        if asked == 3:
            world.call()
            done.set()

    task = asyncio.ensure_future(ask_while_doubted(world.clock, ask))
    for _ in range(10):
        await asyncio.sleep(0)
    assert asked == 0
    world.call(wrong=3600.0)
    async with asyncio.timeout(60):
        await done.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert asked == 3
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


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
