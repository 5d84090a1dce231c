"""The writer against a real API server: order, fence, its own pods met again after lost answers, refusals."""

import asyncio
import contextlib
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from punctual import errors
from punctual.kube.api.resources import CONFIG_MAPS, PODS, Resource
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.informer import Informer
from punctual.kube.writes.operations import (
    AddToConfigMap,
    Annotate,
    ApplyConfigMap,
    CreatePod,
    DeleteObject,
    DeletePod,
    Operation,
    Outcome,
    Patch,
    PutStatus,
    same,
)
from punctual.kube.writes.writer import Writer

POOLS = Resource("punctual.dev/v1alpha1", "pools")
LABELS = ("punctual.dev/job", "punctual.dev/begin", "punctual.dev/attempt")


class Lossy(ApiClient):
    """The n-th write reaches the server, but its answer does not come back."""

    lose = -1
    writes = 0

    async def _call(self, method: str, path: str, **settings) -> Json:
        answer: Json | Exception
        try:
            answer = await super()._call(method, path, **settings)
        except errors.ClusterError as error:
            answer = error
        if method != "GET":
            self.writes += 1
            if self.writes == self.lose:
                raise errors.Unreachable("the answer got lost", retry_after=0.01)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Term:
    def __init__(self, client: ApiClient, **settings) -> None:
        self.outcomes: list[Outcome] = []
        self.ends = 0
        self.finished = self.outcomes.append
        self.writer = Writer(client, self, **settings)

    def leading(self) -> bool:
        return True

    def fenced(self) -> None:
        self.ends += 1

    def count_write(self, kind: str, result: str, seconds: float) -> None:
        pass

    @property
    def results(self) -> list[str]:
        return [outcome.result for outcome in self.outcomes]

    def expected(self, key: str) -> set[str]:
        return set(self.writer._expected.pods_of(key))


@asynccontextmanager
async def term(client: ApiClient, **settings):
    one = Term(client, **settings)
    task = asyncio.create_task(one.writer.run())
    try:
        yield one
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def pool(client, namespace) -> Json:
    """A pool with the namespace's name."""
    spec = {"nodeSelector": {"matchLabels": {"a": "b"}}, "processor": {"cpu": "1"}}
    body = {"apiVersion": POOLS.version, "kind": "Pool", "metadata": {"name": namespace}, "spec": spec}
    return await client.create(POOLS.path(), body)


def status(pool: Json, epoch: int, processors: int = 0) -> PutStatus:
    meta = {"name": pool["metadata"]["name"], "uid": pool["metadata"]["uid"]}
    said = {"epoch": epoch, "processors": processors}
    body = {"apiVersion": POOLS.version, "kind": "Pool", "metadata": meta, "status": said}
    return PutStatus(POOLS.path(name=meta["name"]), body)


def pod(name: str, *, job: str = "j", begin: int = 0, attempt: int = 0) -> Json:
    labels = dict(zip(LABELS, (job, str(begin), str(attempt)), strict=True))
    spec = {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def create(namespace: str, body: Json) -> CreatePod:
    return CreatePod(namespace, body, same(body, labels=LABELS))


def script(namespace: str, pool: Json, victim: Json) -> list[Operation]:
    """Every kind of operation, in an order that shows."""
    results = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "results"}, "data": {"0-10": "r"}}
    return [
        status(pool, 1, 1),
        create(namespace, pod("p1")),
        create(namespace, pod("p2", begin=5)),
        Annotate(PODS.path(namespace=namespace, name="p1"), {"punctual.dev/end": "7"}),
        ApplyConfigMap(CONFIG_MAPS.path(namespace=namespace, name="results"), results),
        status(pool, 1, 2),
        DeletePod(namespace, "victim", victim["metadata"]["uid"], grace=0),
        Patch(POOLS.path(name=namespace), {"metadata": {"labels": {"x": "y"}}}),
        DeleteObject(CONFIG_MAPS.path(namespace=namespace, name="old")),
    ]


async def end_state(client: ApiClient, namespace: str) -> dict:
    pods = (await client.list(PODS.path(namespace=namespace))).items
    maps = (await client.list(CONFIG_MAPS.path(namespace=namespace))).items
    pool = await client.get(POOLS.path(name=namespace))
    return {
        "pods": {p["metadata"]["name"]: p["metadata"].get("annotations") for p in pods},
        "maps": {m["metadata"]["name"]: m.get("data") for m in maps},
        "status": pool["status"],
        "labels": pool["metadata"]["labels"],
    }


@pytest.mark.parametrize("lose", range(10))
async def test_whichever_answer_gets_lost_the_end_is_the_same(client, kubeconfig, namespace, pool, lose):
    victim = await client.create(PODS.path(namespace=namespace), pod("victim"))
    await client.create(CONFIG_MAPS.path(namespace=namespace), {"metadata": {"name": "old"}})
    async with Lossy(str(kubeconfig), deadline=60) as lossy, term(lossy) as one:
        lossy.lose = lose
        operations = script(namespace, pool, victim)
        for operation in operations:
            one.writer.submit("j", operation)
        assert await one.writer.flush(60)
        assert [outcome.operation for outcome in one.outcomes] == operations
        deletes = {7, 9}  # their repetition finds nothing any more
        assert one.results == ["gone" if lose == n in deletes else "done" for n in range(1, 10)]
        assert lossy.writes == (9 if lose == 0 else 10)
    assert await end_state(client, namespace) == {
        "pods": {"p1": {"punctual.dev/end": "7"}, "p2": None},
        "maps": {"results": {"0-10": "r"}},
        "status": {"epoch": 1, "processors": 2},
        "labels": {"x": "y"},
    }


def kept(namespace: str, key: str, value: str, *, uid: str = "u1", kind: str = "DivisibleJob") -> AddToConfigMap:
    owner = {"apiVersion": "punctual.dev/v1alpha1", "kind": kind, "name": "j", "uid": uid}
    meta = {"name": "j-results", "namespace": namespace, "labels": {"job": uid}, "ownerReferences": [owner]}
    return AddToConfigMap(CONFIG_MAPS.path(namespace=namespace, name="j-results"), meta, key, value)


async def test_keys_are_added_to_the_owners_config_map_which_is_made_when_the_first_one_comes(client, namespace):
    async with term(client) as one:
        for key, value in (("00-10", "a"), ("10-20", "b"), ("00-10", "a")):
            one.writer.submit("j", kept(namespace, key, value))
        assert await one.writer.flush(60)
        assert one.results == ["done"] * 3
        there = await client.get(kept(namespace, "", "").path)
        assert there["data"] == {"00-10": "a", "10-20": "b"}
        # a later job of the name: the garbage collector has not deleted what the earlier one left
        one.writer.submit("j", kept(namespace, "0-5", "c", uid="u2"))
        assert await one.writer.flush(60)
        there = await client.get(there_path := kept(namespace, "", "").path)
        assert there["data"] == {"0-5": "c"}
        assert there["metadata"]["labels"] == {"job": "u2"}
        assert [owner["uid"] for owner in there["metadata"]["ownerReferences"]] == ["u2"]
        # deleted meanwhile
        await client.delete(there_path)
        one.writer.submit("j", kept(namespace, "5-9", "d", uid="u2"))
        assert await one.writer.flush(60)
        assert (await client.get(there_path))["data"] == {"5-9": "d"}


async def test_a_config_map_of_another_owner_stays_as_it_is(client, namespace):
    path = CONFIG_MAPS.path(namespace=namespace, name="j-results")
    meta = {"name": "j-results", "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"0-10": "mine"}}
    await client.create(CONFIG_MAPS.path(namespace=namespace), body)
    async with term(client) as one:
        one.writer.submit("j", kept(namespace, "0-10", "r"))
        assert await one.writer.flush(60)
        (outcome,) = one.outcomes
    assert outcome.result == "conflict"
    assert "j-results exists and is not the job's" in outcome.message
    assert (await client.get(path))["data"] == {"0-10": "mine"}


async def test_a_result_beyond_what_a_config_map_holds_is_refused_and_the_others_stay(client, namespace):
    async with term(client) as one:
        one.writer.submit("j", kept(namespace, "0-10", "x" * 900_000))
        one.writer.submit("j", kept(namespace, "10-20", "y" * 300_000))
        assert await one.writer.flush(60)
        assert one.results == ["done", "refused"]
    assert set((await client.get(kept(namespace, "", "").path))["data"]) == {"0-10"}


async def test_an_old_leader_is_fenced_and_writes_nothing_more(client, namespace, pool):
    async with term(client) as new, term(client) as old:
        old.writer.submit("p", status(pool, 4))
        assert await old.writer.flush(60)
        new.writer.submit("p", status(pool, 5))
        assert await new.writer.flush(60)
        old.writer.submit("p", status(pool, 4, 9))
        old.writer.submit("p", create(namespace, pod("late")))
        assert await old.writer.flush(60)
        assert old.ends == 1
        old.writer.submit("q", create(namespace, pod("later")))
        assert await old.writer.flush(60)
        assert new.ends == 0
    assert (await client.get(POOLS.path(name=namespace)))["status"] == {"epoch": 5, "processors": 0}
    assert (await client.list(PODS.path(namespace=namespace))).items == []


async def test_a_pod_that_is_another_or_going_is_a_conflict(client, namespace):
    path = PODS.path(namespace=namespace)
    await client.create(path, pod("other", job="another"))
    going = pod("going")
    going["metadata"]["finalizers"] = ["punctual.dev/test"]
    await client.create(path, going)
    await client.delete(f"{path}/going", grace=0)
    async with term(client) as one:
        one.writer.submit("j", create(namespace, pod("other")))
        one.writer.submit("j", create(namespace, pod("going")))
        assert await one.writer.flush(60)
        assert one.results == ["conflict", "conflict"]
        assert one.expected("j") == frozenset()
    await client.patch_merge(f"{path}/going", {"metadata": {"finalizers": None}})


async def test_what_admission_refuses_is_told_with_its_words_and_the_next_goes_on(client, namespace):
    limits = {"limits": [{"type": "Container", "max": {"cpu": "500m"}}]}
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": limits}
    await client.create(Resource("v1", "limitranges").path(namespace=namespace), limit_range)
    big, small = pod("big"), pod("small", begin=1)
    big["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    small["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}}
    bad = pod("bad", begin=2)
    bad["spec"]["containers"][0]["image"] = ""
    async with term(client) as one:
        for body in (big, bad, small):
            one.writer.submit("j", create(namespace, body))
        assert await one.writer.flush(60)
        assert one.results == ["refused", "refused", "done"]
        assert "maximum cpu usage per Container is 500m" in one.outcomes[0].message
        assert "image" in one.outcomes[1].message
        assert one.expected("j") == {f"{namespace}/small"}


async def test_a_status_never_reaches_an_object_made_anew_under_the_same_name(client, namespace, pool):
    path = POOLS.path(name=namespace)
    await client.delete(path)
    async with term(client) as one:
        one.writer.submit("p", status(pool, 1))
        assert await one.writer.flush(60)
        anew = await client.create(
            POOLS.path(), {k: pool[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": {"name": namespace}}
        )
        one.writer.submit("p", status(pool, 2))
        one.writer.submit("p", Annotate(path, {"a": "b"}, uid=pool["metadata"]["uid"]))
        one.writer.submit("p", DeleteObject(path, uid=pool["metadata"]["uid"]))
        assert await one.writer.flush(60)
        assert one.results == ["gone"] * 4
    there = await client.get(path)
    assert there["metadata"]["uid"] == anew["metadata"]["uid"]
    assert "status" not in there
    assert "annotations" not in there["metadata"]


async def test_a_status_that_the_schema_does_not_know_in_full_is_refused(client, namespace, pool):
    async with term(client) as one:
        known = status(pool, 1)
        one.writer.submit("p", replace(known, body=known.body | {"status": known.body["status"] | {"newer": 1}}))
        assert await one.writer.flush(60)
        assert one.results == ["refused"]
        assert "status.newer" in one.outcomes[0].message
    assert "status" not in await client.get(POOLS.path(name=namespace))


async def test_an_object_that_others_edit_is_written_all_the_same_but_not_its_successor(client, namespace, pool):
    path = POOLS.path(name=namespace)
    async with term(client) as one:
        one.writer.submit("p", status(pool, 1, 1))
        assert await one.writer.flush(60)
        await client.patch_merge(path, {"metadata": {"labels": {"edited": "by-a-person"}}})
        one.writer.submit("p", status(pool, 1, 2))
        assert await one.writer.flush(60)
        assert one.results == ["done", "done"]
        assert (await client.get(path))["status"]["processors"] == 2
        await client.delete(path)
        anew = {"apiVersion": pool["apiVersion"], "kind": "Pool", "metadata": {"name": namespace}, "spec": pool["spec"]}
        await client.create(POOLS.path(), anew)
        one.writer.submit("p", status(pool, 1, 3))
        assert await one.writer.flush(60)
        assert one.results == ["done", "done", "gone"]
    assert "status" not in await client.get(path)


async def test_a_quiet_cluster_sees_no_writes(client, kubeconfig, namespace, pool):
    async with Lossy(str(kubeconfig), deadline=60) as counting, term(counting) as one:
        for _ in range(20):
            one.writer.submit("p", status(pool, 1, 4))
            assert await one.writer.flush(60)
        assert counting.writes == 1


async def test_pods_are_expected_until_the_informer_shows_them(client, namespace, eventually):
    async with term(client) as one:
        informer = Informer(
            client,
            PODS.path(namespace=namespace),
            project=lambda body: body["metadata"]["uid"],
            on_change=lambda change, key, uid: one.writer.observed(key),
        )
        for n in range(20):
            one.writer.submit("j", create(namespace, pod(f"p{n}", begin=n)))
        assert await one.writer.flush(60)
        assert len(one.expected("j")) == 20
        task = asyncio.create_task(informer.run())
        await eventually(lambda: not one.expected("j"))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_an_outage_is_outlasted_and_the_order_kept(client, tunnel, namespace, pool, eventually):
    async with ApiClient(str(tunnel.kubeconfig)) as through, term(through) as one:
        await tunnel.cut()
        for operation in (status(pool, 1, 1), create(namespace, pod("p1")), status(pool, 1, 2)):
            one.writer.submit("j", operation)
        assert not await one.writer.flush(1.5)
        assert one.writer.depth == 3
        assert one.writer.oldest >= 1.5
        tunnel.resume()
        assert await one.writer.flush(60)
        assert one.results == ["done"] * 3
    assert (await client.get(POOLS.path(name=namespace)))["status"]["processors"] == 2
