"""The exchange against a real API server: its Secret, its ConfigMap, tokens bound to pods, TokenReview."""

import asyncio
import itertools
import json
import socket
import ssl
from collections import Counter
from types import SimpleNamespace

import aiohttp
import pytest
from clocks import clock

from punctual import wire
from punctual.errors import Forbidden
from punctual.kube.agents.ca import Lifetimes, service_names
from punctual.kube.agents.ca_store import ClusterCaStore
from punctual.kube.agents.identity import Reviewer, identity_of
from punctual.kube.agents.report_server import ReportServer
from punctual.kube.agents.rotation import Rotation
from punctual.kube.agents.set_points import SetPointStore
from punctual.scheduling.model.actions import SendSetPoint
from punctual_agent.operator_client import Exchange as AgentsExchange

SERVICE = "punctual"


class Loopback(aiohttp.abc.AbstractResolver):
    """The Service's name is here."""

    async def resolve(self, host, port=0, family=socket.AF_INET):
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": family, "proto": 0, "flags": 0}]

    async def close(self):
        pass


class Stage:
    """An operator's exchange with its doors in plain sight, and agents with tokens of their own."""

    def __init__(self, client, namespace):
        self.client, self.namespace = client, namespace
        self.epoch, self.heard, self.refused, self.reviews = 3, [], Counter(), 0
        self.store = ClusterCaStore(client, namespace)
        self.rotation = self.replica(client.clock)
        self.set_points = SetPointStore()
        receiver = SimpleNamespace(
            leading_epoch=lambda: self.epoch,
            heard=self.heard.append,
            heard_another=lambda epoch: None,
            count_refusal=lambda reason: self.refused.update({reason: 1}),
        )
        account = f"system:serviceaccount:{namespace}:agent"
        self.report_server = ReportServer(
            self.set_points, Reviewer(self.review, clock(lambda: 0.0)), receiver, clock=client.clock, account=account
        )
        self.port = 0

    def replica(self, now, **options):
        return Rotation(
            ClusterCaStore(self.client, self.namespace), service_names(SERVICE, self.namespace), now, **options
        )

    async def review(self, token):
        self.reviews += 1
        return identity_of(await self.client.review_token(token, (wire.AUDIENCE,)))

    async def start(self):
        await self.rotation.tend()
        self.port = await self.report_server.start(self.rotation.context, host="127.0.0.1", port=0)

    # what the cluster holds

    async def put(self, plural, body, group="/api/v1"):
        return await self.client.create(f"{group}/namespaces/{self.namespace}/{plural}", body)

    async def account(self, name):
        await self.put("serviceaccounts", {"metadata": {"name": name}})

    async def pod(self, node, account="agent"):
        """Create a pod that is bound to a node; give its uid and name."""
        name = f"{self.namespace}-{node}"
        await self.client.create("/api/v1/nodes", {"metadata": {"name": name}})
        spec = {"serviceAccountName": account, "nodeName": name, "containers": [{"name": "a", "image": "a"}]}
        made = await self.put("pods", {"metadata": {"generateName": "agent-"}, "spec": spec})
        return name, made["metadata"]["name"], made["metadata"]["uid"]

    async def token(self, account, *, audience=wire.AUDIENCE, pod=None):
        spec = {"audiences": [audience], "expirationSeconds": 600}
        if pod:
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod[1], "uid": pod[2]}
        made = await self.put(f"serviceaccounts/{account}/token", {"spec": spec})
        return made["status"]["token"]

    # what an agent does

    async def trusted(self):
        """Give the certificates that an agent finds mounted."""
        found = await self.client.get(f"/api/v1/namespaces/{self.namespace}/configmaps/punctual-ca")
        return found["data"]["ca.crt"]

    async def report(self, token, node, sequence, **more):
        context = ssl.create_default_context(cadata=await self.trusted())
        body = wire.Report(node=node, instance="i", sequence=sequence, **more).model_dump_json()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://{SERVICE}.{self.namespace}.svc:{self.port}{wire.REPORT_PATH}"
        connector = aiohttp.TCPConnector(ssl=context, resolver=Loopback())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, data=body, headers=headers) as answer,
        ):
            return answer.status, json.loads(await answer.text())


@pytest.fixture
async def stage(client, namespace):
    stage = Stage(client, namespace)
    await stage.account("agent")
    await stage.start()
    yield stage
    await stage.report_server.stop()


async def test_an_agent_is_heard_by_its_bound_token_and_told_what_to_hold(stage):
    pod = await stage.pod("one")
    token = await stage.token("agent", pod=pod)
    end = stage.client.clock.now() + 300
    stage.set_points.put(SendSetPoint(node=pod[0], pod="c1", cap=0.1, period=0.1, units=9, end=end))
    status, answer = await stage.report(token, pod[0], 1, pods=[wire.PodReport(uid="c1", done=4)])
    assert status == 200
    points = wire.SetPoints.model_validate(answer)
    assert points.epoch == 3
    assert (points.pods[0].uid, points.pods[0].cap) == ("c1", 0.1)
    assert [(p.uid, p.done) for r in stage.heard for p in r.pods] == [("c1", 4)]
    for sequence in range(2, 10):
        assert (await stage.report(token, pod[0], sequence))[0] == 200
    assert stage.reviews == 1


async def test_others_are_refused(stage):
    one, two = await stage.pod("one"), await stage.pod("two")
    token = await stage.token("agent", pod=one)
    await stage.account("stranger")
    stranger_pod = await stage.pod("three", "stranger")
    assert (await stage.report(token, one[0], 5))[0] == 200
    told = {
        "noToken": (401, "", one[0], 6, {}),
        "badToken": (401, await stage.token("agent", audience="https://elsewhere", pod=one), one[0], 6, {}),
        "otherNode": (403, token, two[0], 6, {}),
        "otherAccount": (403, await stage.token("stranger", pod=stranger_pod), stranger_pod[0], 6, {}),
        "oldSequence": (409, token, one[0], 4, {}),
        "higherEpoch": (409, token, one[0], 6, {"epoch": 4}),
    }
    for reason, (status, by, node, sequence, more) in told.items():
        assert await stage.report(by, node, sequence, **more) == (status, {"reason": reason})
    unbound = await stage.token("agent")
    assert await stage.report(unbound, one[0], 6) == (403, {"reason": "otherNode"})
    assert stage.refused == Counter(told.keys()) + Counter({"otherNode": 1})
    assert len(stage.heard) == 1
    stage.epoch = None
    assert await stage.report(token, one[0], 7) == (503, {"reason": "notLeading"})


async def test_a_token_ends_with_its_pod(stage):
    pod = await stage.pod("one")
    token = await stage.token("agent", pod=pod)
    await stage.client.delete(f"/api/v1/namespaces/{stage.namespace}/pods/{pod[1]}", grace=0)
    found = [()]
    async with asyncio.timeout(60):  # the API server remembers tokens for some seconds itself
        while found[-1] != (401, {"reason": "badToken"}):
            stage.report_server._reviewer = Reviewer(stage.review, clock())
            found.append(await stage.report(token, pod[0], len(found)))


async def test_replicas_share_one_authority_and_it_changes_while_an_agent_reports(stage):
    pod = await stage.pod("one")
    token = await stage.token("agent", pod=pod)
    real = stage.client.clock.now
    offset = -3000.0
    lives = Lifetimes(authority=3300, serving=3300, backdate=60, spread=60)
    await stage.client.delete(f"/api/v1/namespaces/{stage.namespace}/secrets/punctual-ca")
    replicas = [stage.replica(clock(now=lambda: real() + offset), lifetimes=lives) for _ in range(2)]
    await asyncio.gather(*(r.tend() for r in replicas))  # both begin at once: one create is a 409
    assert replicas[0].trust == replicas[1].trust
    first = replicas[0].trust.signing
    await stage.report_server.stop()
    stage.port = await stage.report_server.start(replicas[1].context, host="127.0.0.1", port=0)
    for sequence, seconds in enumerate((0, 2200, 1, 40, 40, 300)):
        offset += seconds
        for replica in replicas:
            await replica.tend()
        assert (await stage.report(token, pod[0], sequence))[0] == 200
    assert replicas[0].trust.signing != first
    assert replicas[0].trust == replicas[1].trust
    assert (await stage.trusted()).count("BEGIN CERTIFICATE") == 2
    assert not stage.refused


async def test_the_agents_own_end_goes_on_while_authority_and_certificate_are_exchanged(stage, tmp_path):
    """By a connection that is kept and by new ones, with a CA file that is renewed some time after the ConfigMap."""
    pod = await stage.pod("one")
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text(await stage.token("agent", pod=pod))
    offset, real = -3000.0, stage.client.clock.now
    lives = Lifetimes(authority=3300, serving=3300, backdate=60, spread=60)
    await stage.client.delete(f"/api/v1/namespaces/{stage.namespace}/secrets/punctual-ca")
    rotation = Rotation(stage.store, ("localhost",), clock(now=lambda: real() + offset), lifetimes=lives)
    await rotation.tend()
    first = rotation.trust.signing, rotation.serving
    await stage.report_server.stop()
    port = await stage.report_server.start(rotation.context, host="127.0.0.1", port=0)

    def agent():
        return AgentsExchange(f"https://localhost:{port}", token_file=token, ca_file=ca, timeout=60)

    ca.write_text(await stage.trusted())
    kept, sequence = agent(), itertools.count(1)
    for seconds in (0, 2200, 1, 40, 40, 300):
        offset += seconds
        await rotation.tend()
        fresh = agent()
        for one in (kept, fresh):
            said = wire.Report(node=pod[0], instance="i", sequence=next(sequence))
            assert (await asyncio.to_thread(one.post, said)).points.epoch == 3
        fresh.close()
        ca.write_text(await stage.trusted())  # the kubelet comes round
    kept.close()
    assert rotation.trust.signing != first[0]
    assert rotation.serving != first[1]
    assert len(stage.heard) == 12
    assert not stage.refused


async def test_a_secret_made_empty_by_the_chart_is_filled_without_the_right_to_create(client, namespace):
    """The rendered roles give get and update of this one Secret: enough to begin, not enough to make others."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    await client.create(path, {"metadata": {"name": "punctual-ca"}, "type": "Opaque"})
    store = ClusterCaStore(client, namespace)
    created = []

    class Watched:
        async def get(self, where):
            return await client.get(where)

        async def create(self, where, body):
            created.append(body["kind"])
            if body["kind"] == "Secret":
                raise Forbidden("secrets is forbidden")
            return await client.create(where, body)

        async def replace(self, where, body):
            return await client.replace(where, body)

    await Rotation(ClusterCaStore(Watched(), namespace), ["x"], client.clock).tend()
    assert created == ["ConfigMap"]
    data, _ = await store.read()
    assert data["ca.crt"] == await store.published()
    owner = (await client.get(f"/api/v1/namespaces/{namespace}/configmaps/punctual-ca"))["metadata"]["ownerReferences"]
    secret = await client.get(f"{path}/punctual-ca")
    assert [o["uid"] for o in owner] == [secret["metadata"]["uid"]]  # they go together


async def test_the_labels_of_the_chart_stay_so_that_an_upgrade_finds_its_secret(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/secrets"
    labels = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "punctual-0.1.0"}
    await client.create(path, {"metadata": {"name": "punctual-ca", "labels": labels}, "type": "Opaque"})
    await Rotation(ClusterCaStore(client, namespace), ["x"], client.clock).tend()
    secret = await client.get(f"{path}/punctual-ca")
    assert secret["data"]["ca.crt"]
    assert secret["metadata"]["labels"] == labels


async def test_a_version_that_was_overtaken_is_not_written(client, namespace):
    one, two = ClusterCaStore(client, namespace), ClusterCaStore(client, namespace)
    assert await one.write({"a": "1"}, version=None)
    assert not await two.write({"a": "2"}, version=None)
    data, version = await two.read()
    assert data == {"a": "1"}
    assert await one.write({"a": "3"}, version=version)
    assert not await two.write({"a": "4"}, version=version)
    assert (await one.read())[0] == {"a": "3"}
    # the ConfigMap likewise: what lost is made good next time
    assert await one.published() is None
    await one.publish("x")
    await two.publish("y")
    assert await two.published() == "x"
    await two.publish("y")
    assert await one.published() == "y"
