import asyncio
import json
import re
import weakref
from pathlib import Path
from types import SimpleNamespace

import kopf
import pytest

from punctual.kube.cluster import handlers as handlers_module
from punctual.kube.cluster.handlers import KopfThread, Watches, connection, registry, settings


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
    made = registry(SimpleNamespace(observe=lambda *_: None))
    kinds = {"pools", "divisiblejobs", "profiles", "reservations", "targetrates"}
    assert {h.selector.any_name for h in handlers(made)} == kinds


def test_no_handler_needs_a_state_of_kopfs():
    # with null storages a create or update handler would fire on every event, and timers add finalizers
    made = registry(SimpleNamespace(observe=lambda *_: None))
    assert made._changing.get_all_handlers() == []
    assert made._spawning.get_all_handlers() == []
    assert made._indexing.get_all_handlers() == []
    assert made._webhooks.get_all_handlers() == []


@pytest.mark.parametrize("change", [None, "ADDED", "MODIFIED", "DELETED"])
async def test_an_event_is_posted_as_it_came(change):
    posted = []
    made = registry(SimpleNamespace(observe=lambda *event: posted.append(event)))
    for handler in handlers(made):
        await handler.fn(event={"type": change, "object": {"kind": handler.id}}, memo=None, patch={})
    assert sorted(posted) == [(plural, change, {"kind": h}) for plural, h in sorted(zip(*names(made), strict=True))]


class Part(dict):
    """A part of an object that tells when it is gone: a dict takes no weak reference."""


async def test_what_kopf_keeps_of_an_object_is_not_its_spec_or_status():
    # kopf's body refers to itself: as long as nothing collects garbage, it keeps whatever it has
    posted = []
    made = registry(SimpleNamespace(observe=lambda *event: posted.append(event)))
    for handler in handlers(made):
        spec, status = Part({"x": [{}]}), Part(state="Refused")
        parts = {"spec": weakref.ref(spec), "status": weakref.ref(status)}
        raw = {"kind": handler.id, "metadata": {"name": "a"}, "spec": spec, "status": status}
        del spec, status
        kept = kopf.Body(raw)
        await handler.fn(event={"type": "ADDED", "object": raw}, memo=None, patch={})
        _, _, body = posted.pop()
        assert (body["spec"], body["status"]) == ({"x": [{}]}, {"state": "Refused"})
        assert {name: part() for name, part in parts.items()} == {name: body[name] for name in parts}
        del body
        assert {name: part() for name, part in parts.items()} == {"spec": None, "status": None}
        assert kept.metadata["name"] == "a"


def names(made):
    return [h.selector.any_name for h in handlers(made)], [h.id for h in handlers(made)]


def test_kopf_writes_nothing():
    made = settings()
    assert not made.posting.enabled
    assert made.peering.standalone
    assert made.scanning.disabled


def test_kopf_remembers_nothing_of_an_object():
    made = settings().persistence
    body = kopf.Body({"metadata": {"annotations": {"a": "b"}}, "spec": {"units": 1}})
    assert made.diffbase_storage.fetch(body=body) is None
    assert made.diffbase_storage.build(body=body) == {}
    assert made.progress_storage.fetch(key="pool", body=body) is None


def test_the_code_uses_what_kopf_has_in_public():
    source = Path(handlers_module.__file__).read_text()
    assert "kopf._" not in source
    assert not re.search(r"\bmade\._|vars\(|setattr\(", source)


def test_kopf_asks_as_our_own_client_does(kubeconfig):
    found = connection(kubeconfig)
    assert (found.server, found.scheme, found.token) == ("http://127.0.0.1:1", "Bearer", "secret")


@pytest.fixture
def begun(monkeypatch):
    """The stop flag of each kopf that began."""
    monkeypatch.setattr("punctual.kube.cluster.handlers.PAUSE", 0.01)
    monkeypatch.setattr("punctual.kube.cluster.handlers.GRACE", 0.05)
    return []


async def times(begun, number):
    async with asyncio.timeout(60):
        while len(begun) < number:  # noqa: ASYNC110  kopf begins in threads
            await asyncio.sleep(0.01)


async def test_a_kopf_that_fails_is_begun_anew(kubeconfig, monkeypatch, begun):
    async def operator(*, stop_flag, **_):
        begun.append(stop_flag)
        if len(begun) < 3:
            raise kopf.LoginError("not now")
        await stop_flag.wait()

    monkeypatch.setattr(kopf, "operator", operator)
    task = asyncio.create_task(Watches(SimpleNamespace(observe=lambda *_: None), kubeconfig=kubeconfig).run())
    await times(begun, 3)
    task.cancel()
    await asyncio.wait([task])
    assert len(begun) == 3


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "does not end"])
async def test_a_kopf_that_misses_changes_is_begun_anew_and_not_heard_any_more(kubeconfig, monkeypatch, begun, ends):
    posted, kept = [], []

    async def operator(*, stop_flag, registry, **_):
        (pool,) = [h for h in handlers(registry) if h.selector.any_name == "pools"]
        kept.append((asyncio.get_running_loop(), pool.fn))
        begun.append(stop_flag)
        while True:
            await stop_flag.wait()
            if ends:
                return
            await asyncio.sleep(3600)

    monkeypatch.setattr(kopf, "operator", operator)
    watches = Watches(SimpleNamespace(observe=lambda *event: posted.append(event)), kubeconfig=kubeconfig)
    task = asyncio.create_task(watches.run())
    for number in (1, 2):
        await times(begun, number)
        watches.renew()
    await times(begun, 3)
    for number in (2,) if ends else (0, 1, 2):  # the loop of one that has ended is closed
        loop, pool = kept[number]
        event = {"type": "ADDED", "object": {"n": number}}
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(pool(event=event), loop))
    async with asyncio.timeout(60):
        while not posted:  # noqa: ASYNC110  from another thread
            await asyncio.sleep(0.01)
    assert posted == [("pools", "ADDED", {"n": 2})]
    task.cancel()
    await asyncio.wait([task])


async def test_a_kopf_that_fails_is_not_silent(kubeconfig):
    async def refuse():
        raise kopf.LoginError("no way in")

    thread = KopfThread(SimpleNamespace(observe=lambda *_: None), kubeconfig=kubeconfig)
    thread._operate = refuse
    thread.start()
    with pytest.raises(kopf.LoginError):
        async with asyncio.timeout(60):
            await thread.ended
