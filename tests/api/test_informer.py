"""The informer against a real API server: both ways to list, a connection that dies silently, a cut, a stale place."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from punctual.kube.api.resources import CONFIG_MAPS, PODS, Resource
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.informer import Informer


def config_map(name: str, value: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value}}


def value_of(body: Json) -> str:
    return body["data"]["v"]


@asynccontextmanager
async def following(client: ApiClient, path: str, told: list[str], **settings) -> AsyncIterator[Informer]:
    """An informer that has told all that is there, and goes on."""

    def on_change(change: str, key: str, value: object) -> None:
        told.append(f"{change} {key.rsplit('/', 1)[-1]} {value}")

    informer = Informer(client, path, project=settings.pop("project", value_of), on_change=on_change, **settings)
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(60):
            await informer.synced.wait()
        yield informer
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("streams", [True, False], ids=["watch-list", "pages"])
async def test_both_ways_to_list_tell_the_same(client, namespace, eventually, streams, monkeypatch):
    path = CONFIG_MAPS.path(namespace=namespace)
    for n in range(7):
        await client.create(path, config_map(f"c{n}", "0"))
    told: list[str] = []
    if not streams:
        monkeypatch.setattr("punctual.kube.cluster.informer.Informer._stream", refuse_to_stream)
    async with following(client, path, told, page=3) as informer:
        assert sorted(told) == [f"ADDED c{n} 0" for n in range(7)]
        assert informer._streams is streams
        told.clear()
        await client.patch_merge(f"{path}/c3", {"data": {"v": "1"}})
        await client.patch_merge(f"{path}/c3", {"data": {"w": "what the projection does not show"}})
        await client.delete(f"{path}/c4")
        await client.create(path, config_map("c9", "2"))
        await eventually(lambda: len(told) == 3)
        assert told == ["MODIFIED c3 1", "DELETED c4 0", "ADDED c9 2"]


async def refuse_to_stream(self: Informer, seen: set[str]) -> str:
    """Get the refusal of a server that has no watch-list (before Kubernetes 1.32) by asking for what none has."""
    await self._client.get(self.path, params={"watch": "1", "sendInitialEvents": "true"})
    return ""


async def test_a_pods_end_is_told_even_when_it_is_one_event_with_its_deletion(client, namespace, eventually):
    path = PODS.path(namespace=namespace)
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "nowhere"}}
    told: list[str] = []
    async with following(client, path, told, project=lambda body: body["status"]["phase"]):
        await client.create(path, pod)
        await client.patch_merge(f"{path}/p", {"status": {"phase": "Running"}}, subresource="status")
        await client.patch_merge(f"{path}/p", {"status": {"phase": "Succeeded"}}, subresource="status")
        await client.delete(f"{path}/p", grace=0)
        await eventually(lambda: len(told) == 4)
        assert told == ["ADDED p Pending", "MODIFIED p Running", "MODIFIED p Succeeded", "DELETED p Succeeded"]


async def test_a_watch_that_silently_died_is_noticed_and_nothing_missed(client, tunnel, namespace, eventually):
    path = CONFIG_MAPS.path(namespace=namespace)
    await client.create(path, config_map("a", "0"))
    await client.create(path, config_map("b", "0"))
    told: list[str] = []
    async with (
        ApiClient(str(tunnel.kubeconfig), deadline=1) as through,
        following(through, path, told, silence=1.0) as informer,
    ):
        told.clear()
        listed = informer.counts.relists  # more than once where a list took longer than that silence
        tunnel.stall()
        await client.patch_merge(f"{path}/a", {"data": {"v": "1"}})
        await client.delete(f"{path}/b")
        await eventually(lambda: informer.counts.failures >= 2)
        assert informer.staleness >= 1.0
        assert told == []
        await tunnel.cut()  # what was on its way is lost
        tunnel.resume()
        await eventually(lambda: len(told) == 2)
        assert sorted(told) == ["DELETED b 0", "MODIFIED a 1"]
        await eventually(lambda: informer.staleness < 1.0)
        assert informer.counts.relists == listed


async def test_a_cut_connection_goes_on_where_it_ended(client, tunnel, namespace, eventually):
    path = CONFIG_MAPS.path(namespace=namespace)
    told: list[str] = []
    async with ApiClient(str(tunnel.kubeconfig)) as through, following(through, path, told) as informer:
        listed = informer.counts.relists
        for n in range(3):
            await client.create(path, config_map(f"c{n}", "0"))
            await tunnel.cut()
            tunnel.resume()
        await eventually(lambda: len(told) == 3)
        assert told == ["ADDED c0 0", "ADDED c1 0", "ADDED c2 0"]
        assert informer.counts.relists == listed


async def test_a_place_that_the_server_forgot_is_listed_again(client, namespace, eventually, monkeypatch):
    monkeypatch.setattr("punctual.kube.cluster.informer.WATCH_SECONDS", 1)
    pools = Resource("punctual.dev/v1alpha1", "pools")
    told: list[str] = []
    async with following(client, pools.path(), told, project=lambda body: body["metadata"]["uid"]) as informer:
        listed = informer.counts.relists
        informer._version = "1"  # our kinds came into being later; taken up when the watch under way ends
        await eventually(lambda: informer.counts.relists > listed)
        await eventually(lambda: informer.counts.reconnects >= 3)
