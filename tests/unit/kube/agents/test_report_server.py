"""Agents report over real TLS on the loopback: who is heard, who is refused and why, what is answered."""

import asyncio
import io
import json
import ssl
import time
from collections import Counter
from types import SimpleNamespace

import aiohttp
import pytest
from clocks import clock

from punctual import wire
from punctual.errors import Unreachable
from punctual.kube.agents.ca import Lifetimes, make_serving, new_trust
from punctual.kube.agents.identity import Identity, Reviewer
from punctual.kube.agents.report_server import LARGEST, ReportServer
from punctual.kube.agents.rotation import Rotation
from punctual.kube.agents.set_points import SetPointStore
from punctual.rates.model import Grid, HoldPod
from punctual.scheduling.model.actions import DropSetPoint, FollowedLine, SendSetPoint

AGENT = "system:serviceaccount:lab:punctual-agent"
HOST = "punctual.lab.svc"
TOKENS = {
    "n1": Identity(AGENT, "n1"),
    "n2": Identity(AGENT, "n2"),
    "unbound": Identity(AGENT, None),
    "other account": Identity("system:serviceaccount:lab:default", "n1"),
}


def report(node="n1", instance="a", sequence=1, **more):
    return {"node": node, "instance": instance, "sequence": sequence, "started": 5.0} | more


class Operator:
    """All that the report server talks to, in plain lists and numbers."""

    def __init__(self):
        self.epoch = 7
        self.now = 1000.0
        self.clock = 50.0
        self.heard = []
        self.above = []
        self.refused = Counter()
        self.reviews = []
        self.away = False
        self.set_points = SetPointStore()
        receiver = SimpleNamespace(
            leading_epoch=lambda: self.epoch,
            heard=self.heard.append,
            heard_another=self.above.append,
            count_refusal=lambda reason: self.refused.update({reason: 1}),
        )
        by = clock(lambda: self.clock, now=lambda: self.now)
        self.report_server = ReportServer(self.set_points, Reviewer(self.review, by), receiver, clock=by, account=AGENT)

    async def review(self, token):
        self.reviews.append(token)
        if self.away:
            raise Unreachable("no answer")
        return TOKENS.get(token)


class Agents:
    """Connections of agents that trust one bundle."""

    def __init__(self, port, bundle):
        self.port = port
        self.trust(bundle)

    def trust(self, bundle):
        self.context = ssl.create_default_context(cadata=bundle)
        self.context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT

    async def post(self, body, token="n1", *, scheme="Bearer", path=wire.REPORT_PATH):
        headers = {"Authorization": f"{scheme} {token}"} if token else {}
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        connector = aiohttp.TCPConnector(ssl=self.context, resolver=Loopback())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"https://{HOST}:{self.port}{path}", data=data, headers=headers) as answer,
        ):
            return answer.status, json.loads(await answer.text()), answer.headers


class Loopback(aiohttp.abc.AbstractResolver):
    """Every name is here."""

    async def resolve(self, host, port=0, family=0):
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": family, "proto": 0, "flags": 0}]

    async def close(self):
        pass


@pytest.fixture(scope="module")
def authority():
    now = time.time()
    trust = new_trust(now, lifetimes=Lifetimes())
    serving = make_serving(trust.signing, [HOST], now, lifetimes=Lifetimes())
    return trust, serving


@pytest.fixture
async def stage(authority, tmp_path):
    trust, serving = authority
    pem = tmp_path / "tls.pem"
    pem.write_text(serving.key + serving.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    operator = Operator()
    port = await operator.report_server.start(context, host="127.0.0.1", port=0)
    yield operator, Agents(port, trust.bundle)
    await operator.report_server.stop()


def point(node="n1", pod="p1", **more):
    return SendSetPoint(**({"node": node, "pod": pod, "cap": 0.1, "period": 0.1, "units": 40, "end": 1030.0} | more))


async def test_a_report_is_heard_once_and_set_points_come_back(stage):
    operator, agents = stage
    operator.set_points.put(point())
    operator.set_points.put(point(node="n2", pod="p3"))
    body = report(pods=[{"uid": "p1", "done": 12, "end": 30}], modes=["Hold"])
    for _ in range(2):  # the first answer was lost
        status, answer, _ = await agents.post(body)
        assert status == 200
        assert wire.SetPoints.model_validate(answer) == wire.SetPoints(
            epoch=7, sent=50.0, pods=[wire.SetPoint(uid="p1", cap=0.1, rest_cap=0.1, units=40, mode=wire.HoldOrder())]
        )
    assert operator.heard == [wire.Report.model_validate(body)]
    assert not operator.refused


async def test_a_line_is_told_in_seconds_left_at_the_moment_of_the_answer(stage):
    operator, agents = stage
    line = FollowedLine(pool="main", pool_cores=1.0, units=40, planned=10.0, cpu_per_unit=0.01, due=1040.0)
    operator.set_points.put(point(line=line))
    left = []
    for sequence, now in ((1, 1000.0), (2, 1029.5), (3, 1031.0)):
        operator.now = now
        _, answer, _ = await agents.post(report(sequence=sequence, modes=["Line"]))
        left.append(answer["pods"][0]["mode"]["due_seconds_left"])
    assert left == [40.0, 10.5, 9.0]
    operator.set_points.drop(DropSetPoint("n1", "p1"))
    _, answer, _ = await agents.post(report(sequence=4))
    assert answer == {"epoch": 7, "sent": 50.0, "held": 0.0, "pods": [], "applications_complete": False}


async def test_an_answer_says_when_it_was_sent_and_how_long_its_report_was_there(stage):
    operator, agents = stage

    async def review(_):
        operator.clock += 0.25
        return TOKENS["n1"]

    operator.report_server._reviewer = Reviewer(review, clock(lambda: operator.clock))
    _, first, _ = await agents.post(report())
    _, second, _ = await agents.post(report(sequence=2))
    assert (first["sent"], first["held"]) == (50.25, 0.25)
    assert (second["sent"], second["held"]) == (50.25, 0.0), "the token is known"


async def test_between_an_agents_send_and_receive_there_is_room_for_what_the_answer_says(stage):
    """Both read one clock here, so that the offset which an agent computes must be near 0 within its bound."""
    operator, agents = stage
    operator.report_server._clock = clock(time.monotonic, now=time.time)
    for i in range(40):
        operator.set_points.put(HoldPod(f"p{i}", "n1", 0.4, 0.1, Grid(float(i), 0.04)))
    for sequence in range(1, 20):
        before = time.monotonic()
        _, answer, _ = await agents.post(report(sequence=sequence, modes=["Application"]))
        after = time.monotonic()
        assert before <= answer["sent"] - answer["held"] <= answer["sent"] <= after


async def test_an_answer_is_one_segment(stage, monkeypatch):
    """Two would wait for each other: Nagle's algorithm against delayed acknowledgements, 40 ms."""
    operator, agents = stage
    operator.set_points.put(HoldPod("own", "n1", 0.4, 0.1, Grid(12.5, 0.04)))
    reader, writer = await asyncio.open_connection("127.0.0.1", agents.port, ssl=agents.context, server_hostname=HOST)
    body = json.dumps(report(modes=["Application"]))
    head = (f"POST {wire.REPORT_PATH} HTTP/1.1", f"Host: {HOST}", "Authorization: Bearer n1")
    writer.write("\r\n".join((*head, f"Content-Length: {len(body)}", "", body)).encode())
    # a read of TLS returns one record
    answer = await reader.read(1 << 16)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["pods"][0]["mode"]["grid"] == {"begins": 12.5, "slice": 0.04}
    writer.close()
    await writer.wait_closed()


async def test_an_agent_of_the_release_before_is_answered_as_it_reads(stage):
    operator, agents = stage
    operator.set_points.put(HoldPod("own", "n1", 0.4, 0.02))
    _, old, _ = await agents.post(report(sequence=1))
    _, new, _ = await agents.post(report(sequence=2, modes=["Application"]))
    assert old["pods"][0]["application"] is True
    assert "mode" not in old["pods"][0]
    assert new["pods"][0]["mode"] == {"kind": "Application", "watch_memory": False}


async def test_an_agent_of_the_release_before_holds_pods_that_are_to_be_aligned(stage):
    operator, agents = stage
    operator.set_points.put(HoldPod("own", "n1", 0.4, 0.1, Grid(12.5, 0.04)))
    _, old, _ = await agents.post(report())
    (held,) = old["pods"]
    assert (held["uid"], held["cap"], held["application"]) == ("own", 0.4, True)


REFUSALS = {
    "without a token": (report(), {"token": ""}, 401, "noToken"),
    "with a password": (report(), {"scheme": "Basic"}, 401, "noToken"),
    "with a token for something else": (report(), {"token": "made for others"}, 401, "badToken"),
    "of another account": (report(), {"token": "other account"}, 403, "otherAccount"),
    "for another node": (report("n2"), {}, 403, "otherNode"),
    "with a token bound to no node": (report(), {"token": "unbound"}, 403, "otherNode"),
    "that is no report": (b"[1, 2", {}, 400, "malformed"),
    "with a negative count": (report(pods=[{"uid": "p1", "done": -1}]), {}, 400, "malformed"),
    "with not-a-number": (b'{"node":"n1","instance":"a","sequence":1,"started":NaN}', {}, 400, "malformed"),
    "with too many pods": (report(pods=[{"uid": str(i)} for i in range(1001)]), {}, 400, "malformed"),
    "of too many bytes": (b" " * (LARGEST + 1), {}, 413, "tooLarge"),
    "from the future": (report(epoch=8), {}, 409, "higherEpoch"),
}


@pytest.mark.parametrize(("body", "how", "status", "reason"), REFUSALS.values(), ids=REFUSALS)
async def test_a_report_is_refused(stage, body, how, status, reason):
    operator, agents = stage
    assert (await agents.post(body, **how))[:2] == (status, {"reason": reason})
    assert operator.refused == {reason: 1}
    assert operator.heard == []
    assert operator.above == ([8] if reason == "higherEpoch" else [])
    # and leaves no trace: the right one is heard
    assert (await agents.post(report()))[0] == 200


async def test_an_epoch_that_this_leader_has_not_told_is_another_leaders(stage):
    """After a restore, a leader may have the epoch of one that the API server has forgotten."""
    operator, agents = stage
    assert (await agents.post(report(epoch=7)))[:2] == (409, {"reason": "higherEpoch"})
    assert operator.above == [7]
    operator.epoch = 8
    assert (await agents.post(report(epoch=7)))[0] == 200
    assert (await agents.post(report(epoch=8) | {"sequence": 2}))[0] == 200
    assert (await agents.post(report("n2", epoch=8), token="n2"))[0] == 409
    assert operator.above == [7, 8]


async def test_who_does_not_lead_says_so_and_hangs_up(stage):
    operator, agents = stage
    operator.epoch = None
    status, answer, headers = await agents.post(report())
    assert (status, answer, headers["Connection"]) == (503, {"reason": "notLeading"}, "close")
    assert operator.reviews == []  # a standby asks the API server nothing


async def test_a_turn_that_ends_while_the_token_is_reviewed_is_over(stage):
    operator, agents = stage

    async def review(_):
        operator.epoch = None
        return TOKENS["n1"]

    operator.report_server._reviewer = Reviewer(review, clock(lambda: operator.clock))
    assert (await agents.post(report()))[0] == 503
    assert operator.heard == []


ORDERS = {
    "one after the other": ([("a", 1, 5), ("a", 2, 6)], [200, 200], 2),
    "an older one": ([("a", 2, 5), ("a", 1, 6)], [200, 409], 1),
    "the same again, its answer was lost": ([("a", 1, 5), ("a", 1, 6)], [200, 200], 1),
    "a younger instance": ([("a", 9, 500), ("b", 1, 1)], [200, 200], 2),
    "an older instance comes back": ([("a", 9, 500), ("b", 1, 1), ("a", 10, 502)], [200, 200, 409], 2),
    "the younger one is gone": ([("a", 9, 500), ("b", 1, 1), ("a", 10, 513, 11), ("a", 11, 514)], [200] * 4, 4),
    "nodes do not mix": ([("a", 5, 5, 1, "n1"), ("a", 1, 5, 1, "n2")], [200, 200], 2),
}


@pytest.mark.parametrize(("said", "answers", "heard"), ORDERS.values(), ids=ORDERS)
async def test_of_two_reports_the_newer_speaks(stage, said, answers, heard):
    operator, agents = stage
    found = []
    for instance, sequence, started, *more in said:
        pause, where = (*more, *(1, "n1")[len(more) :])
        operator.clock += pause
        found.append((await agents.post(report(where, instance, sequence, started=started), token=where))[0])
    assert found == answers
    assert len(operator.heard) == heard


async def test_a_node_is_silent_that_was_heard_too_long_ago_or_never(stage):
    operator, agents = stage
    await agents.post(report(pods=[{"uid": "p1", "cap": 0.3, "drift": 2}]))
    assert operator.report_server.silent({"n1", "n2"}) == ["n2"]
    assert (operator.report_server.quota(), operator.report_server.drift()) == (0.3, 2)
    operator.clock += 10.5
    assert operator.report_server.silent({"n1", "n2"}) == ["n1", "n2"]
    assert (operator.report_server.quota(), operator.report_server.drift()) == (0, 0)


async def test_a_token_is_reviewed_once_a_minute(stage):
    operator, agents = stage
    for sequence in range(1, 130):
        operator.clock += 1
        assert (await agents.post(report(sequence=sequence)))[0] == 200
    assert operator.reviews == ["n1"] * 3


async def test_an_api_server_that_is_away_is_no_verdict(stage):
    operator, agents = stage
    operator.away = True
    assert (await agents.post(report()))[:2] == (503, {"reason": "reviewFailed"})
    operator.away = False
    assert (await agents.post(report()))[0] == 200  # it was not remembered


async def test_authority_and_certificates_change_while_agents_report(store, time):
    """One agent keeps its connection, another makes a new one each time: none is refused, both know the new CA."""
    lives = Lifetimes(authority=3300, serving=3300, backdate=60, spread=60)
    rotation = Rotation(store, [HOST], clock(now=time), lifetimes=lives)
    await rotation.tend()
    operator = Operator()
    port = await operator.report_server.start(rotation.context, host="127.0.0.1", port=0)
    newcomer = Agents(port, store.map)
    kept = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=newcomer.context, resolver=Loopback(), limit=1))
    serials, sequence = set(), 0
    async with kept:
        for seconds in (0, 1000, 1190, 1, 30, 31, 200, 200):
            time.now += seconds
            await rotation.tend()
            sequence += 1
            body = report(sequence=sequence)
            async with kept.post(
                f"https://{HOST}:{port}{wire.REPORT_PATH}", json=body, headers={"Authorization": "Bearer n1"}
            ) as answer:
                assert answer.status == 200
            assert (await newcomer.post(report("n2", sequence=sequence), token="n2"))[0] == 200
            serials.add(rotation.serving.certificate)
            if sequence % 2:
                newcomer.trust(store.map)  # the kubelet is late with every other change
    assert len(serials) == 3  # the first, its renewal, one of the new authority
    assert len(rotation.trust.retired) == 1
    assert not operator.refused
    await operator.report_server.stop()


async def test_only_the_one_path_is_there(stage):
    _, agents = stage
    with pytest.raises(json.JSONDecodeError):  # aiohttp's own plain 404
        await agents.post(report(), path="/metrics")


async def test_a_body_that_does_not_come_is_not_waited_for(stage, monkeypatch):
    operator, agents = stage
    monkeypatch.setattr("punctual.kube.agents.report_server.PATIENCE", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", agents.port, ssl=agents.context, server_hostname=HOST)
    writer.write(b"POST /v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer n1\r\nContent-Length: 10\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()
    await writer.wait_closed()
    assert operator.refused == {"tooSlow": 1}


async def test_an_agent_that_dies_in_the_middle_of_its_report_is_a_refusal_and_no_error(stage, caplog):
    operator, agents = stage
    _, writer = await asyncio.open_connection("127.0.0.1", agents.port, ssl=agents.context, server_hostname=HOST)
    head = (f"POST {wire.REPORT_PATH} HTTP/1.1", f"Host: {HOST}", "Authorization: Bearer n1", "Content-Length: 999")
    writer.write("\r\n".join((*head, "", '{"node":')).encode())
    await writer.drain()
    async with asyncio.timeout(60):
        while not operator.reviews:  # noqa: ASYNC110  it is being read
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while not operator.refused:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert operator.refused == {"brokenOff": 1}
    assert caplog.records == []


IDENTIFIED = {
    "an agent": ("n1", ["n1"]),
    "without a token": ("", []),
    "with a token for something else": ("made for others", []),
    "another account": ("other account", []),
    "a token bound to no node": ("unbound", []),
}


@pytest.mark.parametrize(("token", "names"), IDENTIFIED.values(), ids=IDENTIFIED)
async def test_only_an_agent_is_no_stranger_to_the_port(stage, token, names):
    operator, agents = stage
    reader, writer = await asyncio.open_connection("127.0.0.1", agents.port, ssl=agents.context, server_hostname=HOST)
    body = json.dumps(report())
    writer.write(
        f"POST {wire.REPORT_PATH} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    await reader.readline()
    port = operator.report_server._port
    assert (list(port._identified), len(port._strangers)) == (names, not names)
    writer.transport.abort()
