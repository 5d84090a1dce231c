"""The virtual loop: time jumps, order follows from the seed, processes freeze and die as real ones do."""

import asyncio

import pytest
from edge.loop import Loop, Process, Stuck


def play(main, seed=1):
    loop = Loop(seed)
    return loop.run_until_complete(main(loop)), loop


def test_time_jumps_to_the_next_timer():
    async def main(loop):
        await asyncio.sleep(3600.0)
        return loop.time()

    shown, loop = play(main)
    assert shown == loop.now == 3600.0


def test_callbacks_of_one_thread_run_in_their_order_and_threads_take_turns_by_the_seed():
    async def main(loop):
        said = []

        async def count(name):
            for number in range(3):
                said.append((name, number))
                await asyncio.sleep(0)

        tasks = [loop.start(Process(name), count(name)) for name in "ab"]
        await asyncio.wait(tasks)
        return said

    orders = {tuple(play(main, seed)[0]) for seed in range(20)}
    assert all([n for name, n in order if name == "a"] == [0, 1, 2] for order in orders)
    assert len(orders) > 3
    assert play(main, 7)[0] == play(main, 7)[0]


def test_a_killed_process_runs_no_further_line_and_no_finally():
    async def main(loop):
        said, process = [], Process("victim")

        async def work():
            try:
                said.append("began")
                await asyncio.sleep(1.0)
                said.append("went on")
            finally:
                said.append("cleared up")

        loop.start(process, work())
        await asyncio.sleep(0.5)
        loop.kill(process)
        await asyncio.sleep(10.0)
        return said

    assert play(main)[0] == ["began"]


def test_a_frozen_process_does_late_what_became_due_meanwhile():
    async def main(loop):
        process = Process("sleeper")

        async def work():
            await asyncio.sleep(1.0)
            return loop.now

        task = loop.start(process, work())
        await asyncio.sleep(0.5)
        loop.freeze(process)
        await asyncio.sleep(29.5)
        process.frozen = False
        return await task

    assert play(main)[0] == 30.0


def test_each_callback_of_a_slow_process_takes_time():
    async def main(loop):
        process = Process("slow")

        async def work():
            for _ in range(10):
                await asyncio.sleep(0)
            return loop.now

        loop.slow(process, 0.5)
        return await loop.start(process, work())

    assert play(main)[0] == pytest.approx(5.0)


def test_a_fast_clock_shows_more_time_and_wakes_its_process_earlier():
    async def main(loop):
        process = Process("fast", rate=2.0, epoch=100.0)

        async def work():
            await asyncio.sleep(10.0)
            return loop.time(), loop.now

        return await loop.start(process, work())

    assert play(main)[0] == (110.0, 5.0)


def test_a_wait_for_what_never_comes_is_an_error():
    async def main(loop):
        await loop.create_future()

    with pytest.raises(Stuck):
        play(main)
