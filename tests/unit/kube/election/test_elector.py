"""The elector under a clock that jumps: who leads when, under which epoch, whatever the API server does.

`Server` holds one Lease with the API server's own rules (a resource version that must match), and faults that a test
sets; the same elector meets a real API server in tests/api.
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from punctual import errors
from punctual.kube.cluster.client import Json
from punctual.kube.election.elector import Elector, Timing
from punctual.kube.format.clock import ServerClock

TIMING = Timing(lease=15, renew=10, retry=2)
pytestmark = pytest.mark.looptime


@dataclass
class Server:
    lease: Json | None = None
    version: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    writes: int = 0

    def put(self, lease: Json | None) -> Json:
        self.version += 1
        self.lease = copy.deepcopy(lease)
        if self.lease is not None:
            self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.changed.set()
        self.changed = asyncio.Event()
        return copy.deepcopy(self.lease) or {}

    @property
    def epoch(self) -> int:
        return self.lease["spec"]["leaseTransitions"]


class Client:
    """One candidate's way to the server; ``cut`` breaks it, ``hang`` lets calls hang, ``lose`` loses answers."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clock = ServerClock()
        self.cut = self.hang = self.lose = False

    async def _pass(self) -> None:
        await asyncio.sleep(0.01)
        if self.hang:
            await asyncio.Event().wait()
        if self.cut:
            raise errors.Unreachable("cut off")

    async def get(self, path: str) -> Json:
        await self._pass()
        if self.server.lease is None:
            raise errors.NotFound("no lease")
        return copy.deepcopy(self.server.lease)

    async def create(self, path: str, body: Json) -> Json:
        await self._pass()
        if self.server.lease is not None:
            raise errors.AlreadyExists("there is one")
        return self._answer(body)

    async def replace(self, path: str, body: Json) -> Json:
        await self._pass()
        if self.server.lease is None:
            raise errors.NotFound("no lease")
        if body["metadata"]["resourceVersion"] != self.server.lease["metadata"]["resourceVersion"]:
            raise errors.Conflict("the object has been modified")
        return self._answer(body)

    def _answer(self, body: Json) -> Json:
        self.server.writes += 1
        answer = self.server.put(body)
        if self.lose:
            raise errors.Unreachable("the answer got lost")
        return answer

    async def watch(self, path: str, *, resource_version: str, **_) -> AsyncGenerator[Json, None]:
        await self._pass()
        seen = int(resource_version)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(12):
                while True:
                    changed = self.server.changed
                    if self.server.version != seen:
                        seen = self.server.version
                        if self.server.lease is None:
                            yield {"type": "DELETED", "object": {}}
                        else:
                            yield {"type": "MODIFIED", "object": copy.deepcopy(self.server.lease)}
                    await changed.wait()


class Candidate:
    """An elector that runs, and what its callbacks said."""

    def __init__(self, server: Server, name: str, log: list[str], *, min_epoch: int = 0) -> None:
        self.client = Client(server)
        self.log = log
        self.name = name
        loop = asyncio.get_running_loop()
        self.elector = Elector(
            self.client,
            namespace="ns",
            name="punctual",
            identity=name,
            on_started=lambda epoch: self.say(f"leads {epoch}"),
            on_stopped=lambda: self.say("stops"),
            min_epoch=lambda: min_epoch,
            timing=TIMING,
            monotonic=loop.time,
        )
        self.task = asyncio.create_task(self.elector.run())

    def say(self, what: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():.0f} {self.name} {what}")

    async def end(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    def kill(self) -> None:
        """As kill -9: no callback, no release; its requests just stop."""
        self.client.hang = True
        self.elector._on_stopped = lambda: None


@pytest.fixture
async def stage():
    server, log, cast = Server(), [], []

    def enter(name: str, **kwargs) -> Candidate:
        cast.append(Candidate(server, name, log, **kwargs))
        return cast[-1]

    yield server, log, enter
    for candidate in cast:
        candidate.client.cut, candidate.client.hang = True, False  # no time jumps here
        await candidate.end()


async def test_the_first_leads_and_renews_and_the_second_waits(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    b = enter("b")
    await asyncio.sleep(300)
    assert log == ["0 a leads 1"]
    assert a.elector.leading
    assert not b.elector.leading
    assert 145 <= server.writes <= 152


async def test_a_release_hands_over_at_once_under_a_higher_epoch(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    enter("b")
    await asyncio.sleep(29)
    await a.end()
    await asyncio.sleep(1)
    assert log == ["0 a leads 1", "30 a stops", "30 b leads 2"]


@pytest.mark.parametrize("taken", [False, True], ids=["still ours", "another's by now"])
async def test_a_release_behind_a_renewal_whose_answer_was_lost_gives_back_what_is_ours(stage, taken):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    enter("b")
    await asyncio.sleep(29)
    written, a.client.lose = server.writes, True
    while server.writes == written:  # noqa: ASYNC110  the clock jumps
        await asyncio.sleep(0.01)
    a.client.lose = False
    if taken:
        server.put({**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "c", "leaseTransitions": 2}})
    await a.end()
    await asyncio.sleep(1)
    if taken:
        assert server.lease["spec"]["holderIdentity"] == "c"
        assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 1", "a stops"]
    else:
        assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 1", "a stops", "b leads 2"]


async def test_after_a_crash_the_standby_leads_when_the_lease_is_over(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    enter("b")
    await asyncio.sleep(29)
    a.kill()
    await asyncio.sleep(17)
    assert log[0] == "0 a leads 1"
    at, who, *rest = log[1].split()
    assert (who, rest) == ("b", ["leads", "2"])
    assert 30 + 15 - 2 <= float(at) <= 30 + 15 + 2


async def test_a_leader_that_is_cut_off_stops_before_another_starts(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    b = enter("b")
    await asyncio.sleep(29)
    a.client.cut = True
    overlap = False
    for _ in range(300):
        await asyncio.sleep(0.1)
        overlap |= a.elector.leading and b.elector.leading
    assert not overlap
    assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 1", "a stops", "b leads 2"]
    stopped, started = (float(line.split()[0]) for line in log[1:])
    assert 38 <= stopped <= 40
    assert 43 <= started <= 47


async def test_a_call_that_hangs_does_not_outlive_the_deadline(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(30)
    a.client.hang = True
    await asyncio.sleep(10.1)
    assert not a.elector.leading
    assert log[1].endswith("a stops")
    assert float(log[1].split()[0]) <= 40


async def test_who_is_elected_anew_does_not_lead_the_term_that_ran_out(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    first = a.elector._epoch
    assert a.elector.leads(first)
    a.client.cut = True
    await asyncio.sleep(20)
    assert not a.elector.leads(first)
    a.client.cut = False
    await asyncio.sleep(40)
    assert a.elector.leading, log
    assert not a.elector.leads(first)
    assert a.elector.leads(a.elector._epoch)


async def test_leading_ends_by_itself_even_when_the_loop_is_starved(stage):
    _, _, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    ahead = 0.0
    loop = asyncio.get_running_loop()
    a.elector._monotonic = lambda: loop.time() + ahead
    assert a.elector.leading
    ahead = 11.0  # no callback, no timer ran meanwhile
    assert not a.elector.leading


async def test_a_renewal_whose_answer_comes_too_late_is_none(stage):
    _, log, enter = stage
    a = enter("a")
    await asyncio.sleep(1)
    ahead, loop, replace = 0.0, asyncio.get_running_loop(), a.client.replace
    a.elector._monotonic = lambda: loop.time() + ahead

    async def late(*arguments):
        nonlocal ahead
        answer = await replace(*arguments)
        ahead = 5.0  # the process stood still, and somebody asked it then
        assert not a.elector.leading
        return answer

    a.client.cut = True
    await asyncio.sleep(7)
    a.client.cut, a.client.replace = False, late
    await asyncio.sleep(2)
    assert log[1].endswith("a stops")


async def test_a_short_outage_changes_nothing(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(30)
    a.client.cut = True
    await asyncio.sleep(7)
    a.client.cut = False
    await asyncio.sleep(60)
    assert log == ["0 a leads 1"]
    assert server.epoch == 1


async def test_lost_answers_are_recognized_as_our_own_writes(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(30)
    a.client.lose = True
    await asyncio.sleep(4.5)
    a.client.lose = False
    await asyncio.sleep(60)
    assert log == ["0 a leads 1"]
    assert server.epoch == 1


async def test_an_acquisition_whose_answer_was_lost_is_made_again_under_a_higher_epoch(stage):
    server, log, enter = stage
    a = enter("a")
    a.client.lose = True
    await asyncio.sleep(1)
    a.client.lose = False
    await asyncio.sleep(3)
    assert log == ["2 a leads 2"]
    assert server.epoch == 2


async def test_the_same_name_again_raises_the_epoch(stage):
    _, log, enter = stage
    first = enter("a")
    await asyncio.sleep(5)
    first.kill()
    enter("a")
    await asyncio.sleep(1)
    assert log == ["0 a leads 1", "5 a leads 2"]


async def test_a_deleted_lease_does_not_begin_again_at_zero(stage):
    server, log, enter = stage
    enter("a", min_epoch=41)
    await asyncio.sleep(5)
    server.put(None)
    await asyncio.sleep(5)
    assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 42", "a stops", "a leads 43"]


async def test_a_stolen_lease_ends_the_term_at_the_next_renewal(stage):
    server, log, enter = stage
    a = enter("a")
    await asyncio.sleep(4.5)
    stolen = copy.deepcopy(server.lease)
    stolen["spec"] |= {"holderIdentity": "thief", "leaseTransitions": 9}
    server.put(stolen)
    await asyncio.sleep(2.1)
    assert not a.elector.leading
    await asyncio.sleep(17)
    assert [line.split(maxsplit=1)[1] for line in log] == ["a leads 1", "a stops", "a leads 10"]


async def test_an_annotation_by_a_person_does_not_end_the_term(stage):
    server, log, enter = stage
    enter("a")
    await asyncio.sleep(4.5)
    server.put(server.lease | {"metadata": server.lease["metadata"] | {"annotations": {"who": "me"}}})
    await asyncio.sleep(30)
    assert log == ["0 a leads 1"]


async def test_of_many_only_one_leads_at_any_time(stage):
    server, log, enter = stage
    crowd = [enter(name) for name in "abcde"]
    for fallen in range(4):
        await asyncio.sleep(40)
        assert sum(one.elector.leading for one in crowd) == 1
        leader = next(one for one in crowd if one.elector.leading)
        leader.kill()
        assert server.epoch == fallen + 1
    await asyncio.sleep(40)
    epochs = [int(line.split()[-1]) for line in log if "leads" in line]
    assert epochs == [1, 2, 3, 4, 5]


def test_timing_that_would_let_two_lead_is_refused():
    with pytest.raises(ValueError, match="retry < renew < lease"):
        Timing(lease=10, renew=10, retry=2)
