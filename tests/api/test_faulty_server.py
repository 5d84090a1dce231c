"""What an API server can do to an operator in the life of a job: the promise stands and the accounts are right.

Each story is a life of its own, with an operator of its own behind a proxy; many go on beside each other, for most of
a life is waiting.
"""

import asyncio
import gc
import itertools
import json
import socket
from collections import Counter
from pathlib import Path

import aiohttp
import pytest
from faults import afterwards, answer, cut, dated, delay, lose, refuse, silent, stale, tell, twice
from life import life, told
from proxy import HangUp, Proxy

from punctual.kube.api.meta import EPOCH_NEVER_FALLS
from punctual.kube.api.resources import JOBS
from punctual.labels import BEGIN
from punctual.runtime.clock import AGREED

AT_ONCE = 8
WATCHES = ("pods", "nodes", "divisiblejobs", "pools")


def writes(fault):
    """Let each write meet a fault, and its first repetition too; of the next two of its kind none, and so on."""

    def add(proxy):
        seen = Counter()

        def one_of_two(call):
            seen[call.kind, call.url.path] += 1
            return seen[call.kind, call.url.path] % 4 in (1, 2)

        proxy.on("write", "", fault, times=None, where=one_of_two)

    return add


def each_watch(make, *, times=3):
    """Let the first watches of each kind of object meet a fault."""

    def add(proxy):
        for resource in WATCHES:
            proxy.on("watch", resource, make(), times=times)

    return add


def one(verb, resource, fault, **more):
    """Let one call meet a fault."""
    return lambda proxy: proxy.on(verb, resource, fault, **more)


FAULTS = {
    "writes 429": writes(answer(429, retry_after=1)),
    "writes 500": writes(answer(500)),
    "writes refused": writes(refuse()),
    "writes unanswered": writes(lose()),
    "writes late": writes(delay(2.0)),
    "a pod 403": one("create", "pods", answer(403, reason="Forbidden")),
    "a status 403": one("update", "divisiblejobs/status", answer(403, reason="Forbidden"), times=3),
    "watches cut": each_watch(lambda: cut(1)),
    "watches cut in order": each_watch(lambda: cut(1, clean=True)),
    "events twice": each_watch(twice, times=None),
    "pods watched in silence": one("watch", "pods", silent(2)),
    "jobs watched in silence": one("watch", "divisiblejobs", silent(2)),
    "watches gone": each_watch(lambda: tell(410, events=2)),
    "watches fail": each_watch(lambda: tell(500, events=2)),
    "watches refused": each_watch(lambda: answer(500), times=8),
    "watches forbidden": each_watch(lambda: answer(403), times=8),
    "lists refused": one("list", "", answer(500), times=6),
    "lists gone": one("list", "", answer(410), nth=2, times=2),
}


def lives_through(add):
    """Make the story of a fault that the whole life meets."""

    async def story(stage, proxy, start):
        add(proxy)
        operator = start()
        await stage.finished(within=120)
        await stage.judge()
        assert operator.status is None, "it ended"

    return story


HOUR = 3600


def wrong_times(add):
    """Make the story: whatever time some answers tell, a job that would be stopped for good is done in time."""

    async def story(stage, proxy, start):
        add(proxy)
        operator = start()
        await stage.add_job(onMiss="Stop")
        await stage.finished(within=120)
        await stage.judge()
        assert operator.status is None, "it ended"
        assert "clock_doubted" in operator.log.read_text()
        assert "clock_followed" not in operator.log.read_text()

    return story


def of_one_server_in_three():
    """Take every third call: a server with a clock of its own answers it."""
    turns = itertools.count()
    return lambda _call: next(turns) % 3 == 1


async def an_hour_ahead_for_a_moment(stage, proxy, start):
    operator = start()
    await stage.add_job(onMiss="Stop")
    await stage.until(lambda: stage.status.get("completed"))
    proxy.on("", "", dated(HOUR), times=None)
    await stage.until(lambda: "clock_doubted" in operator.log.read_text())
    proxy.forgive()
    await stage.finished(within=120)
    await stage.judge()
    assert operator.status is None, "it ended"


async def a_clock_set_forward(stage, proxy, start):
    operator = start()
    await stage.until(lambda: stage.queue(0))
    proxy.on("", "", dated(HOUR), times=None)
    await stage.until(lambda: "clock_doubted" in operator.log.read_text())
    await stage.add_job()
    # by the time before it would have been promised, by the time after it is late
    await stage.until(lambda: stage.answered("job", "InfeasibleStartup"))
    lines = [json.loads(line) for line in operator.log.read_text().splitlines() if line.startswith("{")]
    (followed,) = (line for line in lines if line["event"] == "clock_followed")
    assert followed["ahead"] == pytest.approx(HOUR, abs=2)
    assert followed["doubted"] >= AGREED
    assert operator.status is None, "it ended"


async def a_clock_set_back(stage, proxy, start):
    first = start()
    await stage.until(lambda: stage.queue(0))
    proxy.on("", "", dated(-HOUR), times=None)
    assert await first.ended() == 1, "a Pool waits for times that would not come for an hour"
    second = start()
    await stage.add_job()
    await stage.until(lambda: stage.answered("job"))
    assert second.status is None, "it ended"


async def a_minute_without_the_server(stage, proxy, start):
    operator = start()
    await stage.until(lambda: stage.status.get("completed"))
    epoch = stage.status["epoch"]
    await proxy.leave()
    await stage.add_job("late")
    await asyncio.sleep(60)  # longer than the Lease and than any back-off
    await proxy.come_back()
    await stage.until(lambda: stage.status["epoch"] > epoch)  # it had to stop leading
    await stage.until(lambda: stage.answered("late"))
    await stage.delete_job("late")
    await stage.finished()
    await stage.judge()
    assert operator.status is None


def a_job_deleted_while_nobody_watched(again):
    """Make the story: its processors are free again, however the next watch begins."""

    async def story(stage, proxy, start):
        operator = start()
        await stage.add_job("running", processors={"min": 3}, cost={"perUnit": "10s"})
        await stage.until(lambda: stage.answered("running"))
        await stage.add_job("behind")
        await stage.until(lambda: stage.queue(1))
        await proxy.leave()
        await stage.delete_job("behind")
        proxy.on("watch", "divisiblejobs", again)
        await proxy.come_back()
        await stage.until(lambda: stage.queue(0))
        assert operator.status is None

    return story


async def a_pool_deleted_while_nobody_watched(stage, proxy, start):
    operator = start()
    await stage.until(lambda: stage.queue(0))
    await proxy.leave()
    await stage.delete_pool()
    proxy.on("watch", "pools", answer(410))
    await proxy.come_back()
    await stage.add_job("other")
    await stage.until(lambda: stage.answered("other", "PoolNotFound"))
    assert operator.status is None


def a_list_that_lacks_the_job(behind):
    """Make the story: a new leader keeps the promise all the same when a watch, so many seconds late, tells of it."""

    async def story(stage, proxy, start):
        proxy.on("list", "divisiblejobs", stale(), times=None)
        first = start()
        await stage.until(lambda: stage.queue(0))
        await stage.add_job()
        await stage.until(lambda: stage.status.get("completed"))
        first.kill()
        await first.ended()
        await stage.let_go()
        proxy.on("watch", "divisiblejobs", delay(behind))
        second = start()
        await stage.finished()
        await stage.judge()
        assert second.status is None

    return story


async def a_list_that_the_server_has_forgotten(stage, proxy, start):
    forgotten = []

    async def compact():
        forgotten.append(await compacted(stage.etcd))

    for name in ("b", "c"):
        await stage.add_job(name, suspend=True)
    proxy.on("list", "divisiblejobs", afterwards(compact), nth=3)
    proxy.on("list", "divisiblejobs", answer(410, reason="Expired"), nth=5)
    start()
    await stage.finished()
    await stage.judge()
    assert forgotten
    for name in ("b", "c"):
        await stage.until(lambda name=name: stage.answered(name, "Suspended"))


async def a_job_that_no_watch_tells_of(stage, proxy, start):
    proxy.on("watch", "divisiblejobs", silent(), times=None)
    operator = start()
    await stage.until(lambda: stage.queue(0))
    await stage.add_job()
    await stage.until(lambda: stage.answered("job"))
    assert operator.status is None


async def a_pod_that_outlives_its_job(stage, _proxy, start):
    first = start()
    pods = await stage.until(lambda: stage.working(2))
    await stage.bind(pods[0])  # a node ends it: it does not go at once
    first.kill()
    await first.ended()
    await stage.let_go()
    await stage.delete_job("job")
    for pod in pods:  # as the garbage collector does, which is not here
        await stage.client.delete(stage.path(pod))
    start()
    await stage.until(lambda: stage.room(free=2))
    (left,) = await stage.chunks()
    await stage.vanish(left)
    await stage.until(lambda: stage.room(free=3))


async def a_refused_job_is_edited(stage):
    """Have a job refused, and edit it so that it fits. A takeover does not stamp a refused job."""
    await stage.until(lambda: stage.queue(0))
    await stage.add_job(deadline="1s")
    await stage.until(lambda: stage.answered("job", "InfeasibleStartup"))
    path = JOBS.path(namespace=stage.namespace, name="job")
    await stage.client.patch_merge(path, {"spec": {"deadline": "20m"}})


async def the_job_is_there(_stage):
    """Leave all as it is: the job is there from the beginning."""


def a_chunk_fails(stage):
    """Whether the chunk has failed that the first leader did not come to create."""
    return any(pod["status"]["phase"] == "Failed" for pod in stage.pods.values())


async def any_of_them(_stage, _call):
    """Hold the first call."""
    return True


async def over_what_stands(stage, call):
    """Hold the first write of the job over the version that stands: of an older one it is refused in any case."""
    there = await stage.client.get(JOBS.path(namespace=stage.namespace, name="job"))
    return json.loads(call.body)["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]


def what_arrives_behind_the_next_leader(
    verb, resource, refusal, *, where=lambda _call: True, ask=the_job_is_there, hold=any_of_them, shown=a_chunk_fails
):
    """Make the story: what a leader had under way reaches the server when another one leads, and is refused.

    ``ask(stage)`` has the first leader write it; ``where(call)`` and ``hold(stage, call)`` tell which call it is; by
    ``shown(stage)`` it shows that the second leader decides.
    """

    async def story(stage, proxy, start):
        under_way, led, answers = asyncio.Event(), asyncio.Event(), []

        async def held(call, forward):
            if under_way.is_set() or not await hold(stage, call):
                return await forward()
            under_way.set()
            await led.wait()
            answers.append(await forward())
            raise HangUp

        proxy.on(verb, resource, held, times=None, where=where)
        first = start()
        await ask(stage)
        await stage.until(under_way.is_set)
        first.kill()
        await first.ended()
        await stage.let_go()
        second = start()
        await stage.until(lambda: shown(stage))
        led.set()
        await stage.until(lambda: answers)
        status, said = refusal
        assert answers[0].status == status, answers
        assert said in answers[0].body, answers
        await stage.finished()
        await stage.judge()
        assert second.status is None

    return story


def of_the_first_units(call):
    """Whether a pod is to be created that begins with the first unit: the one that fails, and stays."""
    return json.loads(call.body)["metadata"]["annotations"][BEGIN] == "0"


STILL = {"plays": False, "job": False}
"""Nobody plays kubelet or agent, and no job is there at first."""
STORIES = {
    "a minute without the server": ({}, a_minute_without_the_server),  # the longest first
    **{name: ({}, lives_through(add)) for name, add in FAULTS.items()},
    "deleted unseen, watch refused": (STILL, a_job_deleted_while_nobody_watched(answer(410))),
    "deleted unseen, watch told": (STILL, a_job_deleted_while_nobody_watched(tell(410))),
    "one answer an hour ahead": ({"job": False}, wrong_times(one("write", "", dated(HOUR), nth=8))),
    "the first answer an hour ahead": ({"job": False}, wrong_times(one("", "", dated(HOUR)))),
    "one server in three an hour ahead": (
        {"job": False},
        wrong_times(one("", "", dated(HOUR), times=None, where=of_one_server_in_three())),
    ),
    "one server in three an hour behind": (
        {"job": False},
        wrong_times(one("", "", dated(-HOUR), times=None, where=of_one_server_in_three())),
    ),
    "all an hour ahead for a moment": ({"job": False}, an_hour_ahead_for_a_moment),
    "a clock set forward": (STILL, a_clock_set_forward),
    "a clock set back": (STILL, a_clock_set_back),
    "pool deleted unseen": ({"plays": False}, a_pool_deleted_while_nobody_watched),
    "a list behind, watch first": ({"job": False}, a_list_that_lacks_the_job(0.0)),
    "a list behind, list first": ({"job": False}, a_list_that_lacks_the_job(6.0)),
    "compaction during a list": ({"page": 1}, a_list_that_the_server_has_forgotten),
    "no watch tells of it": (STILL, a_job_that_no_watch_tells_of),
    "a status behind the next leader": (
        {},
        what_arrives_behind_the_next_leader("patch", "divisiblejobs/status", (422, EPOCH_NEVER_FALLS.message.encode())),
    ),
    "a pod behind the next leader": (
        {},
        what_arrives_behind_the_next_leader("create", "pods", (409, b"AlreadyExists"), where=of_the_first_units),
    ),
    "a promise to a refused job behind the next leader": (
        {"job": False},
        what_arrives_behind_the_next_leader(
            "update",
            "divisiblejobs/status",
            (409, b"Conflict"),  # the stamp has made another version of it
            where=lambda call: b'"promise"' in call.body,
            ask=a_refused_job_is_edited,
            hold=over_what_stands,
            shown=lambda stage: stage.answered("job"),
        ),
    ),
    "a pod outlives its job": ({"plays": False}, a_pod_that_outlives_its_job),
}


@pytest.mark.timeout(600, func_only=True)
async def test_whatever_the_server_does_the_promise_stands_and_the_accounts_are_right(client, kubeconfig, tmp_path):
    slots = asyncio.Semaphore(AT_ONCE)

    async def tell_one(how, story):
        async with slots, life(client, kubeconfig, tmp_path, **how) as (stage, proxy, start):
            stage.etcd = etcd_url(kubeconfig)
            await story(stage, proxy, start)
            assert proxy.unmet() == [], "the server did not do that"

    lives = [tell_one(how, story) for how, story in STORIES.values()]
    found = dict(zip(STORIES, await asyncio.gather(*lives, return_exceptions=True), strict=True))
    failed = {name: error for name, error in found.items() if error}
    assert not failed, told(failed)


def etcd_url(kubeconfig):
    """Return where the etcd of the API server listens."""
    pid = json.loads((kubeconfig.parent / "etcd.json").read_text())["pid"]
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return next(w.partition("=")[2] for w in words if w.startswith("--listen-client-urls="))


async def compacted(url):
    """Make etcd forget all versions but the newest; return which that is."""
    async with aiohttp.ClientSession(url) as etcd:
        async with etcd.post("/v3/kv/range", json={"key": "AA=="}) as found:
            revision = (await found.json())["header"]["revision"]
        async with etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True}) as done:
            assert done.status == 200, await done.text()
    return revision


@pytest.mark.parametrize("turns", range(6))
async def test_the_proxy_leaves_no_connection_of_whoever_comes_as_it_ends(kubeconfig, tmp_path, turns):
    async with Proxy(kubeconfig, tmp_path / "kubeconfig") as proxy:
        came = socket.create_connection(("127.0.0.1", proxy.port))
        for _ in range(turns):
            await asyncio.sleep(0)
    came.close()
    gc.collect()  # here a transport that nobody has closed would say so
