"""What is said to a running operator, and what of it is counted; and that nobody's secrets are in what is logged."""

import asyncio
import io
import json
import os
import runpy
import secrets
import socket
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import aiohttp
import pytest
from chaos_lib.hidden import told
from lines import whole_lines
from trees import Tree

from punctual import wire
from punctual.kube.agents.report_server import LARGEST

HERE = Path(__file__).parent
OPERATOR = runpy.run_path(str(HERE / "test_operator.py"))
world = OPERATOR["world"]
ACCOUNT = "punctual-agent"


class Replica(OPERATOR["Replica"]):
    """An operator in a process of its own, and the numbers it shows."""

    def said(self, event):
        """Return the first line of its log that tells this event."""
        lines = (json.loads(line) for line in whole_lines(self.log) if line.startswith("{"))
        return next((line for line in lines if line.get("event") == event), None)

    async def started(self):
        async with asyncio.timeout(120):
            while (line := self.said("started")) is None:
                assert self.process.poll() is None, self.log.read_text()
                await asyncio.sleep(0.05)
        self.reports, self.numbers = line["reports"], line["metrics"]
        return self

    async def metric(self, name, label=None):
        """Return {value of the label: number} of a metric, or its number."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.numbers}/metrics") as answer,
        ):
            lines = [line.rpartition(" ") for line in (await answer.text()).splitlines()]
        if label is None:
            return next((float(value) for series, _, value in lines if series == name), 0.0)
        begin = f'{name}{{{label}="'
        return {s.removeprefix(begin).split('"')[0]: float(value) for s, _, value in lines if s.startswith(begin)}


@pytest.fixture
async def start(kubeconfig, namespace, tmp_path):
    """A function that starts a replica; all end with the test, in good order."""
    started = []

    async def start(**env):
        one = Replica(kubeconfig, namespace, tmp_path / f"replica-{len(started)}.log", **env)
        started.append(one)
        return await one.started()

    yield start
    codes = [await one.end() for one in started if one.process.poll() is None]
    for one in started:
        sys.stderr.write(one.log.read_text())  # pytest shows it where the test failed
    assert codes == [0] * len(codes)


class Staff:
    """Accounts, pods of them that are bound to nodes, and their tokens."""

    def __init__(self, client, namespace):
        self.client, self.namespace = client, namespace

    async def put(self, plural, body):
        return await self.client.create(f"/api/v1/namespaces/{self.namespace}/{plural}", body)

    async def token(self, node=None, *, account=ACCOUNT, audience=wire.AUDIENCE):
        """Return a token of the account; ``node``: bound to a pod there."""
        spec = {"audiences": [audience], "expirationSeconds": 600}
        if node:
            pod = {"serviceAccountName": account, "nodeName": node, "containers": [{"name": "a", "image": "a"}]}
            made = (await self.put("pods", {"metadata": {"generateName": "agent-"}, "spec": pod}))["metadata"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": made["name"], "uid": made["uid"]}
        made = await self.put(f"serviceaccounts/{account}/token", {"spec": spec})
        return made["status"]["token"]


@pytest.fixture
async def staff(client, namespace):
    staff = Staff(client, namespace)
    for account in (ACCOUNT, "stranger"):
        await staff.put("serviceaccounts", {"metadata": {"name": account}})
    return staff


async def say(port, token, body):
    """Report; return status and answer. Whom an agent trusts is another test."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connector = aiohttp.TCPConnector(ssl=False)
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.post(f"https://127.0.0.1:{port}{wire.REPORT_PATH}", data=io.BytesIO(body.encode())) as answer,
    ):
        return answer.status, json.loads(await answer.text())


def report(node, sequence, *, instance="i", **more):
    return wire.Report(node=node, instance=instance, sequence=sequence, **more).model_dump_json()


async def refusals(replica):
    """Return {reason: how many} of the refused reports."""
    counts = await replica.metric("punctual_exchange_refusals_total", "reason")
    return {reason: count for reason, count in counts.items() if count}


async def test_reports_that_must_not_count_are_refused_counted_by_cause_and_change_nothing(world, start, staff):
    other = f"{world.node}-b"
    await world.add_node()
    await world.add_node(name=other)
    await world.add_pool()
    leader = await start()
    job = await world.add_job(units=100, cost={"perUnit": "3s", "startup": "1s"})
    await world.answered(job, "Feasible")
    (pod,) = (await world.given(job, 1)).values()
    await world.begin(pod)
    uid = pod["metadata"]["uid"]
    (chunk,) = (await world.status(job))["chunks"]
    own = chunk["node"]
    foreign = {world.node, other}.difference({own}).pop()
    epoch = (await world.status(job))["epoch"]

    token, elsewhere = await staff.token(own), await staff.token(foreign)
    last = 4

    async def known():
        """Whether the operator knows of the pod: its watch tells some time after the pod is there."""
        nonlocal last
        last += 1
        status, said = await say(leader.reports, token, report(own, last))
        assert (status, said["epoch"]) == (200, epoch)
        return said["pods"]

    assert len(await world.until(known)) == 1
    counted, new = last - 4, last + 1
    table = (
        ("noToken", 401, "", report(own, new)),
        ("badToken", 401, "x", report(own, new)),
        ("badToken", 401, await staff.token(own, audience="https://elsewhere"), report(own, new)),
        ("otherAccount", 403, await staff.token(own, account="stranger"), report(own, new)),
        ("otherNode", 403, elsewhere, report(own, new, pods=[wire.PodReport(uid=uid, done=99)])),
        ("otherNode", 403, await staff.token(), report(own, new)),  # bound to no pod
        ("oldSequence", 409, token, report(own, 4, pods=[wire.PodReport(uid=uid, done=98)])),
        ("oldInstance", 409, token, report(own, new, instance="before", started=3600)),
        ("malformed", 400, token, "{"),
        ("malformed", 400, token, report(own, new).replace(f":{new}", f":-{new}")),
        ("tooLarge", 413, token, " " * (LARGEST + 1)),
    )
    counts = {}
    for reason, status, by, body in table:
        assert await say(leader.reports, by, body) == (status, {"reason": reason})
        counts[reason] = counts.get(reason, 0) + 1
    # of another node's pod nobody may speak: the rest of the report counts
    lie = report(foreign, 1, pods=[wire.PodReport(uid=uid, done=97, end=1)])
    status, said = await say(leader.reports, elsewhere, lie)
    assert (status, said["epoch"], said["pods"]) == (200, epoch, [])
    counts["unknownPod"] = 1
    assert await refusals(leader) == counts
    assert await leader.metric("punctual_agent_reports_total") == counted + 1

    honest = report(own, new, pods=[wire.PodReport(uid=uid, done=7)])
    assert (await say(leader.reports, token, honest))[0] == 200

    async def told():
        return (await world.status(job))["units"].get("done")

    assert await world.until(told) == 7

    standby = await start()
    assert await say(standby.reports, token, report(own, new + 1)) == (503, {"reason": "notLeading"})
    assert await refusals(standby) == {"notLeading": 1}
    # the leader begins again above that epoch, so this comes last
    ahead = report(own, new + 1, epoch=epoch + 1)
    assert await say(leader.reports, token, ahead) == (409, {"reason": "higherEpoch"})


@pytest.fixture
def node(tmp_path):
    """A node's files for an agent: the tree that the agent's own tests use."""
    (tmp_path / "state").mkdir()
    return Tree(tmp_path, version="v2", driver="systemd")


@pytest.mark.timeout(600, func_only=True)
async def test_no_secret_is_in_a_log_however_much_is_logged(world, start, staff, node, tmp_path):
    """A run at the level DEBUG: promises, refusals, a failed chunk, pods that would be refused, good and bad tokens."""
    await world.add_node()
    await world.add_pool()
    # the names of this service are in its certificate, and this one leads here
    account = f"system:serviceaccount:{staff.namespace}:{ACCOUNT}"
    own = {"PUNCTUAL_SERVICE": "localhost", "PUNCTUAL_AGENT_ACCOUNT": account, "PUNCTUAL_CA": "punctual-ca"}
    operator = await start(**own, PUNCTUAL_LOG_LEVEL="debug")
    token, stale = await staff.token(world.node), await staff.token(world.node, audience="https://elsewhere")
    (tmp_path / "token").write_text(stale)
    published = await world.client.get(f"/api/v1/namespaces/{staff.namespace}/configmaps/punctual-ca")
    (tmp_path / "ca.crt").write_text(published["data"]["ca.crt"])
    env = {
        **os.environ,
        "NODE_NAME": world.node,
        "OPERATOR_URL": f"https://localhost:{operator.reports}",
        "TOKEN_FILE": str(tmp_path / "token"),
        "CA_FILE": str(tmp_path / "ca.crt"),
        "CGROUP_ROOT": str(node.root),
        "PODS_ROOT": str(node.pods),
        "STATE_DIR": str(tmp_path / "state"),
        "METRICS_PORT": "0",
        "METRICS_ADDRESS": "127.0.0.1",
        "LOG_LEVEL": "DEBUG",
    }
    log = tmp_path / "agent.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "punctual_agent.main"]
        agent = await asyncio.to_thread(subprocess.Popen, command, env=env, stderr=output)
    try:
        await until(lambda: '"refused"' in log.read_text())
        (tmp_path / "token").write_text(token)
        await until(lambda: '"answered"' in log.read_text())
        hidden = await secret_run(world, operator, token) | {"a token for others": stale}
    finally:
        agent.terminate()
        sys.stderr.write(log.read_text())  # pytest shows it where the test failed
        assert await asyncio.to_thread(agent.wait, 120) == 0
    assert await operator.end() == 0
    text = operator.log.read_text() + log.read_text()
    for event in ('"started"', '"term_begun"', '"agent_started"', '"operator_exchange"'):
        assert event in text  # there is something to look at
    assert told(text, hidden) == []
    assert told(f"{text} {token}", hidden) == ["token"]


async def secret_run(world, operator, token):
    """Let things happen that somebody could log; return all the secrets there were."""
    password = secrets.token_hex(16)
    container = {"name": "main", "image": "work:1", "env": [{"name": "PASSWORD", "value": password}]}
    template = {"spec": {"containers": [container]}}
    works = await world.add_job(template=template, reduce={"duration": "1s", "template": template})
    fails = await world.add_job(template=template, chunkRetries=0)
    for job in (works, fails):
        await world.answered(job, "Feasible")
    (pod,) = (await world.given(fails, 1)).values()
    await world.begin(pod)
    await world.end(pod, code=1, message=f"wrong password {password}")
    await world.answered(fails, "ChunkFailed", kind="Failed")
    await world.work(works)
    by_field = {"fieldRef": {"fieldPath": "metadata.name"}}
    for wrong in ({"valueFrom": by_field}, {"name": ""}):  # what the API server quotes
        env = [{"name": "PASSWORD", "value": password, **wrong}]
        broken = {"spec": {"containers": [{**container, "env": env}]}}
        await world.answered(await world.add_job(template=broken), "PodRefused")
    await world.answered(await world.add_job(template=template, units=10**6, deadline="20s"), "InfeasibleCapacity")

    for bad in ("", "x", token[:-4]):
        assert (await say(operator.reports, bad, report(world.node, 1)))[0] == 401
    with socket.create_connection(("localhost", operator.reports)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
    authority = await world.client.get(f"/api/v1/namespaces/{world.namespace}/secrets/punctual-ca")
    keys = {name: b64decode(text).decode() for name, text in authority["data"].items()}
    assert any("PRIVATE KEY" in text for text in keys.values())
    return {name: text for name, text in keys.items() if "PRIVATE KEY" in text} | {"token": token, "password": password}


async def until(holds, within=60):
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110  another process writes
            await asyncio.sleep(0.05)
