import asyncio
import json

import kopf
import pytest
from kopf._cogs.clients import watching
from kopf._cogs.structs.references import Resource
from kopf._core.reactor import orchestration, running

from punctual.kube import api
from punctual.kube.cluster.handlers import (
    KopfThread,
    _watch_ended,
    connection,
    follow,
    only_watch,
    process,
    registry,
    settings,
    watcher,
)


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return str(path)


def handlers(made):
    return made._watching.get_all_handlers()


def test_our_kinds_are_followed_and_nothing_else():
    made = registry(lambda *_: None)
    assert {h.selector.any_name for h in handlers(made)} == {"pools", "divisiblejobs", "profiles", "reservations"}


def test_no_handler_needs_a_state_of_kopfs():
    # with null storages a create or update handler would fire on every event, and timers add finalizers
    made = registry(lambda *_: None)
    assert made._changing.get_all_handlers() == []
    assert made._spawning.get_all_handlers() == []
    assert made._indexing.get_all_handlers() == []
    assert made._webhooks.get_all_handlers() == []


@pytest.mark.parametrize("change", [None, "ADDED", "MODIFIED", "DELETED"])
async def test_an_event_is_posted_as_it_came(change):
    posted = []
    made = registry(lambda *event: posted.append(event))
    for handler in handlers(made):
        await handler.fn(event={"type": change, "object": {"kind": handler.id}}, memo=None, patch={})
    assert sorted(posted) == [(plural, change, {"kind": h}) for plural, h in sorted(zip(*names(made), strict=True))]


def names(made):
    return [h.selector.any_name for h in handlers(made)], [h.id for h in handlers(made)]


def test_kopf_writes_nothing():
    made = settings()
    assert not made.posting.enabled
    assert made.peering.standalone
    assert made.scanning.disabled


def test_kopf_only_watches():
    only_watch()
    assert orchestration.queueing.watcher is watcher
    assert running.processing.process_resource_event is process


async def test_events_go_from_the_watch_to_the_handlers_of_their_kind_in_order(monkeypatch):
    said = [
        {"type": None, "object": {"n": 1}},
        watching.Bookmark.LISTED,
        {"type": "ADDED", "object": {"n": 2}},
        {"type": "BOOKMARK", "object": {"n": 3}},
        {"type": "DELETED", "object": {"n": 2}},
    ]
    posted = []
    made = registry(lambda *event: posted.append(event))
    _watch_ended.set(asyncio.Event())

    async def watch(**_):
        for event in said:
            yield event

    monkeypatch.setattr(watching, "infinite_watch", watch)
    for plural in ("pools", "divisiblejobs"):
        resource = Resource(api.GROUP, api.VERSION, plural)

        async def processor(*, raw_event, resource=resource):
            await process(registry=made, resource=resource, raw_event=raw_event)

        await watcher(processor=processor, settings=None, resource=resource, namespace=None, operator_paused=None)
    told = [(None, {"n": 1}), ("ADDED", {"n": 2}), ("DELETED", {"n": 2})]
    assert posted == [(plural, *event) for plural in ("pools", "divisiblejobs") for event in told]


def test_kopf_asks_as_our_own_client_does(kubeconfig):
    found = connection(kubeconfig)
    assert (found.server, found.scheme, found.token) == ("http://127.0.0.1:1", "Bearer", "secret")


async def test_a_kopf_that_fails_is_begun_anew(kubeconfig, monkeypatch):
    monkeypatch.setattr("punctual.kube.cluster.handlers.PAUSE", 0.01)
    begun = []

    async def operator(*, stop_flag, **_):
        begun.append(stop_flag)
        if len(begun) < 3:
            raise kopf.LoginError("not now")
        await stop_flag.wait()

    monkeypatch.setattr(kopf, "operator", operator)
    task = asyncio.create_task(follow(lambda *_: None, kubeconfig=kubeconfig))
    async with asyncio.timeout(60):
        while len(begun) < 3:  # noqa: ASYNC110  kopf begins in threads
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
    assert len(begun) == 3


async def test_a_kopf_that_lost_a_watch_and_does_not_end_is_left_behind(kubeconfig, monkeypatch):
    monkeypatch.setattr("punctual.kube.cluster.handlers.PAUSE", 0.01)
    monkeypatch.setattr("punctual.kube.cluster.handlers.GRACE", 0.05)
    begun = []

    async def operator(*, stop_flag, **_):
        begun.append(stop_flag)
        which = {"settings": None, "resource": None, "namespace": None, "operator_paused": None}
        watches = [asyncio.create_task(watcher(processor=None, **which)) for _ in range(4)]
        await asyncio.wait(watches, timeout=1)

    async def watch(**_):
        await asyncio.sleep(0 if lost.pop() else 3600)  # at once: nobody has seen all of them work
        yield watching.Bookmark.LISTED

    lost = 3 * [False, False, False, True]
    monkeypatch.setattr(watching, "infinite_watch", watch)
    monkeypatch.setattr(kopf, "operator", operator)
    task = asyncio.create_task(follow(lambda *_: None, kubeconfig=kubeconfig))
    async with asyncio.timeout(60):
        while len(begun) < 3:  # noqa: ASYNC110  kopf begins in threads
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])


async def test_a_kopf_that_fails_is_not_silent(kubeconfig):
    async def refuse():
        raise kopf.LoginError("no way in")

    thread = KopfThread(lambda *_: None, kubeconfig=kubeconfig)
    thread._operate = refuse
    thread.start()
    with pytest.raises(kopf.LoginError):
        async with asyncio.timeout(60):
            await thread.ended
