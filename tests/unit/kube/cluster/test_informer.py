"""The informer on recorded streams: what is told, in which order, and where it goes on after a break."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from clocks import clock

from punctual import errors
from punctual.kube.cluster.client import Json, Listing
from punctual.kube.cluster.informer import FIRST_RETRY, LAST_RETRY, Informer


def pod(name: str, version: int, *, phase: str = "Pending", uid: str = "", noise: str = "") -> Json:
    meta = {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "status": {"phase": phase, "noise": noise}}


def added(*args, **kwargs) -> Json:
    return {"type": "ADDED", "object": pod(*args, **kwargs)}


def modified(*args, **kwargs) -> Json:
    return {"type": "MODIFIED", "object": pod(*args, **kwargs)}


def deleted(*args, **kwargs) -> Json:
    return {"type": "DELETED", "object": pod(*args, **kwargs)}


def bookmark(version: int, *, initial: bool = False) -> Json:
    meta: Json = {"resourceVersion": str(version)}
    if initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {"type": "BOOKMARK", "object": {"metadata": meta}}


@dataclass
class Recording:
    """A client whose answers were recorded: each watch plays the next stream, and the last one stays silent."""

    streams: list[list[Json | Exception]]
    pages_: list[Json] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    clock: Any = field(default_factory=lambda: clock(asyncio.get_running_loop().time))

    async def watch(self, path, *, resource_version="", initial=False, **_) -> AsyncGenerator[Json, None]:
        self.asked.append("stream" if initial else f"watch {resource_version}")
        if not self.streams:
            self.over.set()
            await asyncio.Event().wait()
        for event in self.streams.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event

    async def pages(self, path, **_) -> AsyncGenerator[Listing, None]:
        self.asked.append("list")
        for item in self.pages_:
            yield Listing([item], "50")


async def play(recording: Recording, *, project: Callable[[Json], object] | None = None) -> tuple[list[str], Informer]:
    """All that is told until the recording is over."""
    told: list[str] = []
    informer = Informer(
        recording,
        "/api/v1/pods",
        project=project or (lambda body: body["status"]["phase"]),
        on_change=lambda change, key, phase: told.append(f"{change} {key} {phase}"),
    )
    task = asyncio.create_task(informer.run())
    over = asyncio.create_task(recording.over.wait())
    try:
        await asyncio.wait([task, over], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        over.cancel()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return told, informer


@pytest.mark.looptime
async def test_what_is_there_then_what_changes_then_on_from_the_last_version():
    recording = Recording(
        [
            [added("a", 3), added("b", 4), bookmark(5, initial=True)],
            [modified("a", 6, phase="Running"), deleted("b", 7, phase="Failed"), bookmark(9)],
            [added("c", 10)],
        ]
    )
    told, informer = await play(recording)
    assert told == [
        "ADDED ns/a Pending",
        "ADDED ns/b Pending",
        "MODIFIED ns/a Running",
        "DELETED ns/b Failed",
        "ADDED ns/c Pending",
    ]
    assert recording.asked == ["stream", "watch 5", "watch 9", "watch 10"]
    assert informer.items == {"ns/a": "Running", "ns/c": "Pending"}
    assert informer.synced.is_set()


@pytest.mark.looptime
async def test_a_change_the_projection_does_not_show_is_not_told():
    recording = Recording([[added("a", 3), bookmark(5, initial=True)], [modified("a", 6, noise="heartbeat")]])
    told, informer = await play(recording)
    assert told == ["ADDED ns/a Pending"]
    assert informer.counts.events == 1
    assert recording.asked[-1] == "watch 6"


@pytest.mark.looptime
async def test_after_410_the_differences_are_told_and_deletions_among_them():
    recording = Recording(
        [
            [added("a", 3), added("b", 3), added("c", 3), bookmark(5, initial=True)],
            [errors.Gone("too old")],
            [added("b", 3), added("c", 9, uid="another"), added("d", 9), bookmark(9, initial=True)],
        ]
    )
    told, informer = await play(recording)
    assert told == [
        "ADDED ns/a Pending",
        "ADDED ns/b Pending",
        "ADDED ns/c Pending",
        "DELETED ns/c Pending",
        "ADDED ns/c Pending",
        "ADDED ns/d Pending",
        "DELETED ns/a Pending",
    ]
    assert recording.asked == ["stream", "watch 5", "stream", "watch 9"]
    assert informer.counts.relists == 2


@pytest.mark.looptime
async def test_a_list_that_breaks_off_deletes_nothing():
    recording = Recording(
        [
            [added("a", 3), added("b", 3), bookmark(5, initial=True)],
            [errors.Gone("too old")],
            [added("b", 3)],
            [added("b", 3), added("a", 3), bookmark(6, initial=True)],
        ]
    )
    told, _ = await play(recording)
    assert told == ["ADDED ns/a Pending", "ADDED ns/b Pending"]
    assert recording.asked == ["stream", "watch 5", "stream", "stream", "watch 6"]


@pytest.mark.looptime
async def test_a_server_without_watch_list_is_listed_by_pages_from_then_on():
    recording = Recording(
        [[errors.Invalid("sendInitialEvents is forbidden")], [errors.Gone("too old")], [deleted("b", 60)]],
        pages_=[pod("a", 3), pod("b", 4)],
    )
    told, _ = await play(recording)
    assert told == ["ADDED ns/a Pending", "ADDED ns/b Pending", "DELETED ns/b Pending"]
    assert recording.asked == ["stream", "list", "watch 50", "list", "watch 50", "watch 60"]


@pytest.mark.looptime
async def test_it_tries_again_with_growing_pauses_and_forgets_nothing():
    loop = asyncio.get_running_loop()
    began = loop.time()
    broken: list[list[Json | Exception]] = [[errors.Unreachable("refused")] for _ in range(6)]
    recording = Recording([[added("a", 3), bookmark(5, initial=True)], *broken, [deleted("a", 8)]])
    told, informer = await play(recording)
    assert told == ["ADDED ns/a Pending", "DELETED ns/a Pending"]
    assert recording.asked[1:8] == ["watch 5"] * 7
    assert informer.counts.failures == 6
    assert 0.5 * (0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 5) <= loop.time() - began <= 12


@pytest.mark.looptime
async def test_an_object_that_cannot_be_read_hides_no_other():
    def project(body: Json) -> str:
        return body["status"]["phase"].upper()

    broken = added("a", 4)
    broken["object"]["status"]["phase"] = None
    told, informer = await play(
        Recording([[broken, added("b", 4), bookmark(5, initial=True)], [modified("a", 6)]]), project=project
    )
    assert told == ["ADDED ns/b PENDING", "ADDED ns/a PENDING"]
    assert informer.counts.failures == 1


@pytest.mark.looptime
async def test_what_turns_uninteresting_is_told_as_deleted():
    def project(body: Json) -> str | None:
        return None if body["status"]["phase"] == "Succeeded" else body["status"]["phase"]

    told, informer = await play(
        Recording(
            [
                [added("a", 3), added("z", 3, phase="Succeeded"), bookmark(5, initial=True)],
                [modified("a", 6, phase="Succeeded"), deleted("a", 7, phase="Succeeded"), deleted("z", 8)],
            ]
        ),
        project=project,
    )
    assert told == ["ADDED ns/a Pending", "DELETED ns/a Pending"]
    assert informer.items == {}


async def test_what_the_callback_raises_ends_it():
    def refuse(*_):
        raise ValueError("the program is wrong")

    informer = Informer(
        Recording([[added("a", 3)]]), "/api/v1/pods", project=lambda body: body["status"]["phase"], on_change=refuse
    )
    with pytest.raises(ValueError, match="program"):
        await informer.run()


@pytest.mark.looptime
async def test_staleness_is_the_time_since_the_server_said_anything():
    recording = Recording([[added("a", 3), bookmark(5, initial=True)]])
    informer = Informer(recording, "/p", project=lambda body: 1, on_change=lambda *_: None)
    task = asyncio.create_task(informer.run())
    await informer.synced.wait()
    assert informer.staleness == 0
    await asyncio.sleep(7)
    assert informer.staleness == pytest.approx(7)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.looptime
async def test_what_is_deleted_before_the_list_is_complete_is_told_as_deleted():
    recording = Recording(
        [
            [added("a", 3), added("b", 3), bookmark(5, initial=True)],
            [errors.Gone("too old")],
            [
                added("a", 3),
                added("c", 6),
                deleted("a", 7, phase="Failed"),
                deleted("c", 8),
                deleted("never-seen", 8),
                added("b", 3),
                bookmark(9, initial=True),
            ],
        ]
    )
    told, informer = await play(recording)
    assert told == [
        "ADDED ns/a Pending",
        "ADDED ns/b Pending",
        "ADDED ns/c Pending",
        "DELETED ns/a Failed",
        "DELETED ns/c Pending",
    ]
    assert informer.items == {"ns/b": "Pending"}


FULL = [added("a", 3), bookmark(5, initial=True)]
GONE = [errors.Gone("too old")]


@pytest.mark.looptime
@pytest.mark.parametrize(
    "cycle",
    [[GONE], [FULL, GONE], [FULL, [modified("a", 6, phase="Running"), *GONE]]],
    ids=["lists", "watches", "watches behind an event"],
)
async def test_a_server_that_has_always_forgotten_the_place_is_asked_less_and_less(cycle):
    recording = Recording(cycle * 100)
    informer = Informer(recording, "/p", project=lambda body: body["status"]["phase"], on_change=lambda *_: None)
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(60.0)
    asked = informer.counts.relists
    task.cancel()
    # 0.2, 0.4, ... 3.2 s and then 5 s, each at least half of it
    assert 60 / LAST_RETRY <= asked <= 6 + 60 / (LAST_RETRY / 2)


@pytest.mark.looptime
async def test_after_a_watch_that_lasted_a_forgotten_place_is_listed_again_at_once():
    lasting = asyncio.get_running_loop()

    class Lasting(Recording):
        async def watch(self, path, **how):
            async for event in super().watch(path, **how):
                if event["type"] == "MODIFIED":
                    await asyncio.sleep(LAST_RETRY)
                yield event

    forgotten = [modified("a", 6), *GONE]
    recording = Lasting([FULL, GONE, FULL, GONE, FULL, GONE, FULL, GONE, FULL, forgotten, FULL])
    times = []
    informer = Informer(
        recording,
        "/p",
        project=lambda body: body["status"]["phase"],
        on_change=lambda *_: None,
    )
    real = informer._list

    async def listed():
        times.append(lasting.time())
        await real()

    informer._list = listed
    task = asyncio.create_task(informer.run())
    await recording.over.wait()
    task.cancel()
    assert times[-1] - times[-2] <= LAST_RETRY + FIRST_RETRY
