import asyncio
import contextlib

import pytest

from punctual.errors import ClusterError, InvariantError
from punctual.runtime.actor import Actor
from punctual.runtime.mailbox import Mailbox
from punctual.scheduling.model.actions import Emit, HoldNode
from punctual.scheduling.model.event_keys import key_of, merged
from punctual.scheduling.model.events import NodeGone


class Script:
    """A Pool that answers each step with the next line of a script."""

    def __init__(self, *answers, backlog=()):
        self.answers = list(answers)
        self.left = list(backlog)
        self.seen = []
        self.stepped = asyncio.Event()

    @property
    def backlog(self):
        return self.left.pop(0) if self.left else 0

    def restore(self, now, events):
        self.seen.append(("restore", now, list(events)))
        return [HoldNode("stamp", held=True)]

    def step(self, now, events):
        self.seen.append(("step", now, list(events)))
        self.stepped.set()
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer


class Log:
    """Hands that write down what they were given."""

    def __init__(self):
        self.lines = []
        self.written = asyncio.Event()
        self.written.set()

    def perform(self, action):
        self.lines.append(action)

    async def flush(self):
        await self.written.wait()
        self.lines.append("flushed")


async def reached(event):
    async with asyncio.timeout(60):
        await event.wait()


@contextlib.asynccontextmanager
async def running(actor, restored=()):
    task = asyncio.ensure_future(actor.run(restored))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, InvariantError):
            await task


async def test_a_new_leader_decides_nothing_before_its_stamps_are_written():
    core, log = Script([Emit(None, "Normal", "Ready", "")]), Log()
    log.written.clear()
    actor = Actor(core, Mailbox(key_of, merged), log, now=lambda: 7.0)
    async with running(actor, [NodeGone("a")]):
        while not log.lines:  # noqa: ASYNC110  the loop turns until the stamp was handed on
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert core.seen == [("restore", 7.0, [NodeGone("a")])]
        log.written.set()
        await reached(core.stepped)
    assert log.lines == [HoldNode("stamp", held=True), "flushed", Emit(None, "Normal", "Ready", "")]


async def test_mail_wakes_the_pool_long_before_the_tick():
    core, log, box = Script(), Log(), Mailbox(key_of, merged)
    actor = Actor(core, box, log, now=lambda: 0.0)
    async with running(actor):
        await reached(core.stepped)
        core.stepped.clear()
        box.put(NodeGone("a"))
        await reached(core.stepped)
    assert ("step", 0.0, [NodeGone("a")]) in core.seen


async def test_without_mail_the_clock_alone_makes_it_step():
    core = Script()
    async with running(Actor(core, Mailbox(key_of, merged), Log(), now=lambda: 0.0)):
        for _ in range(3):
            await reached(core.stepped)
            core.stepped.clear()
    assert [e for what, _, e in core.seen if what == "step"] == [[], [], []]


async def test_a_backlog_is_worked_off_at_once_with_the_loop_running_between():
    core, turns = Script(backlog=[3, 2, 1]), 0

    async def other():
        nonlocal turns
        while len(core.seen) < 4:
            turns += 1
            await asyncio.sleep(0)

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with running(Actor(core, Mailbox(key_of, merged), Log(), now=lambda: 0.0)):
        async with asyncio.timeout(60):
            await other()
        assert loop.time() - began < 0.2  # three ticks would be 0.75 s
    assert turns >= 3


async def test_a_broken_invariant_ends_the_turn():
    core = Script(InvariantError("two chunks own the same unit"))
    async with running(Actor(core, Mailbox(key_of, merged), Log(), now=lambda: 0.0)) as task:
        with pytest.raises(InvariantError, match="own the same unit"):
            async with asyncio.timeout(60):
                await task


async def test_each_step_is_timed_and_silence_is_seen():
    at = iter(range(100))
    times = []
    actor = Actor(
        Script(), Mailbox(key_of, merged), Log(), now=lambda: 0.0, timed=times.append, monotonic=lambda: float(next(at))
    )
    assert actor.silent == 0.0
    assert actor.waiting == 1.0  # since it was made
    actor.step()
    assert times == [1.0]
    assert actor.silent == 1.0
    assert actor.waiting == 0.0


@pytest.mark.parametrize(("times", "goes_on"), [([100.0, 45.0, 40.0], True), ([100.0, 70.0, 39.0], False)])
async def test_a_clock_that_is_set_back_far_ends_it(times, goes_on):
    core, left = Script(), iter(times)
    actor = Actor(core, Mailbox(key_of, merged), Log(), now=lambda: next(left))
    actor.step()
    actor.step()
    with contextlib.nullcontext() if goes_on else pytest.raises(ClusterError, match="set back by 61 s"):
        actor.step()
    assert [at for _, at, _ in core.seen] == times[: 2 + goes_on]


class Doubt:
    """A clock that may be in doubt, and how often it was looked at."""

    def __init__(self, *, doubted):
        self.doubted = doubted
        self.looks = 0

    def __call__(self):
        self.looks += 1
        return self.doubted

    async def looked_at(self, more=3):
        at = self.looks + more
        async with asyncio.timeout(60):
            while self.looks < at:  # noqa: ASYNC110  the actor tells nobody that it waits
                await asyncio.sleep(0)


async def test_while_the_time_is_in_doubt_steps_are_put_off_and_mail_is_kept(monkeypatch):
    monkeypatch.setattr("punctual.runtime.actor.TICK", 0.0)
    core, box, doubt = Script(backlog=[1] * 9), Mailbox(key_of, merged), Doubt(doubted=False)
    async with running(Actor(core, box, Log(), now=lambda: 0.0, doubted=doubt)):
        await reached(core.stepped)
        doubt.doubted = True
        await doubt.looked_at()
        steps = len(core.seen)
        box.put(NodeGone("a"))
        box.put(NodeGone("b"))
        await doubt.looked_at()
        assert len(core.seen) == steps
        assert box.depth == 2
        core.stepped.clear()
        doubt.doubted = False
        await reached(core.stepped)
        assert core.seen[steps] == ("step", 0.0, [NodeGone("a"), NodeGone("b")])


async def test_a_new_leader_reads_no_record_at_a_time_that_is_in_doubt(monkeypatch):
    monkeypatch.setattr("punctual.runtime.actor.TICK", 0.0)
    core, doubt = Script(), Doubt(doubted=True)
    async with running(Actor(core, Mailbox(key_of, merged), Log(), now=lambda: 0.0, doubted=doubt)):
        await doubt.looked_at()
        assert core.seen == []
        doubt.doubted = False
        await reached(core.stepped)
        assert [what for what, *_ in core.seen[:2]] == ["restore", "step"]


@pytest.mark.parametrize("begun", [False, True])
async def test_a_planner_that_waits_for_the_time_does_not_count_as_hung(monkeypatch, begun):
    monkeypatch.setattr("punctual.runtime.actor.TICK", 0.0)
    doubt, at, core = Doubt(doubted=not begun), [0.0], Script()
    actor = Actor(core, Mailbox(key_of, merged), Log(), now=lambda: 0.0, doubted=doubt, monotonic=lambda: at[0])
    async with running(actor):
        if begun:
            await reached(core.stepped)
            doubt.doubted = True
        await doubt.looked_at()
        at[0] = 1000.0
        await doubt.looked_at()
        assert (actor.silent, actor.waiting) == (0.0, 0.0)
