"""What is taken of an answer of Prometheus, and what is said of one that is not as it should be."""

import asyncio
import itertools
import json
import re

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from clocks import clock

from punctual.kube.kinds.rates import prometheus
from punctual.kube.kinds.rates.prometheus import LARGEST, NO_URL, TIME, Prometheus, answer, check_url, read
from punctual.rates.model import ScrapedCount

NOW = 1893456000.0
PODS = {"p": "uid-p", "q": "uid-q"}


def sample(pod, value, namespace="a", **labels):
    named = {"pod": pod, "namespace": namespace, **labels}
    return {"metric": {k: v for k, v in named.items() if v}, "value": [NOW, str(value)]}


def both(pod, value, at=NOW - 2.5, namespace="a", **labels):
    return [sample(pod, at, namespace, **{TIME: "1"}, **labels), sample(pod, value, namespace, **labels)]


def body(*samples):
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": samples}}).encode()


GOOD = body(*both("p", 7), *both("q", "8.9", NOW - 1.0))
COUNTS = (ScrapedCount("uid-p", 7, NOW - 2.5), ScrapedCount("uid-q", 8, NOW - 1.0))


def test_counts_are_taken_with_the_times_at_which_they_were_scraped():
    assert answer(read(200, GOOD, "a"), PODS) == prometheus.PrometheusAnswer(COUNTS)
    ahead = answer(read(200, GOOD, "a"), PODS, ahead=NOW)
    assert [count.at for count in ahead.counts] == [-2.5, -1.0]


@pytest.mark.parametrize(
    ("more", "counted", "says"),
    [
        (both("q", 8, namespace="b"), ["uid-p"], "no series has pod=q and the TargetRate's namespace"),
        ([], ["uid-p"], "see whether Prometheus scrapes the pod"),
        (both("q", 8, namespace=""), ["uid-p"], "pod=q, and some (1) lack namespace or pod"),
        (both("", 8), ["uid-p"], "pod=q, and some (1) lack namespace or pod"),
        (both("q", 8, job="x") + both("q", 8, job="y"), ["uid-p"], "pod q has 2 series"),
        (both("q", "NaN"), ["uid-p"], "pod q has the value nan"),
        (both("q", "+Inf"), ["uid-p"], "pod q has the value inf"),
        (both("q", -1), ["uid-p"], "pod q has the value -1"),
        (both("q", 1e300), ["uid-p"], "pod q has the value 1e+300"),
        (both("q", 8, at="NaN"), ["uid-p"], "pod q was scraped at no time"),
        (both("q", 8) + both("r", 9), ["uid-p", "uid-q"], ""),
    ],
)
def test_a_pod_without_one_good_series_is_named_and_the_others_are_counted(more, counted, says):
    found = answer(read(200, body(*both("p", 7), *more), "a"), PODS)
    assert [count.pod for count in found.counts] == counted
    assert says in found.flaw
    assert found.flaw == "" or found.flaw.startswith("spec.iterations.query: ")


def test_one_of_many_pods_is_named_with_their_number():
    found = answer(read(200, body(), "a"), {f"p{n}": str(n) for n in range(5)})
    assert "pod=p0" in found.flaw
    assert "(and 4 more pods)" in found.flaw


@pytest.mark.parametrize(
    ("status", "text", "says"),
    [
        (400, b'{"status": "error", "errorType": "bad_data", "error": "parse error"}', "Prometheus says 'parse error'"),
        (200, b"<html>", "prometheus.url of the chart answers with status 200 and not as Prometheus does"),
        (302, b"", "status 302"),
        (200, b"[" * 100_000, "not as Prometheus"),
        (200, b'"success"', "not as Prometheus"),
        (200, b'{"status": "success", "data": {"result": 5}}', "not as Prometheus"),
        (200, body({"metric": [], "value": [1, "2"]}), "not as Prometheus"),
        (200, body({"metric": {}, "value": [1, "x"]}), "not as Prometheus"),
        (200, body({"metric": {}, "value": [1]}), "not as Prometheus"),
        (200, body({"metric": {}, "value": ["nan", "1"]}), "not as Prometheus"),
        (200, body({"metric": {"pod": [1], "namespace": "a"}, "value": [1, "2"]}), "not as Prometheus"),
    ],
)  # fmt: skip
def test_what_is_no_answer_says_so(status, text, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        read(status, text, "a")


@pytest.mark.parametrize("url", ["", "http://prometheus.monitoring:9090", "https://example.org/prometheus"])
def test_an_address_is_kept_without_its_last_slash(url):
    assert check_url(f"{url}/" if url else "") == url


@pytest.mark.parametrize(
    "url",
    ["prometheus:9090", "ftp://a", "http://", "http://a:b@c", "http://a?b=c", "http://a#b", "http://a:0", "http://a:x"],
)
def test_an_address_that_cannot_be_asked_is_refused(url):
    with pytest.raises(ValueError, match=r"address|[Pp]ort"):
        check_url(url)


@pytest.fixture
async def served():
    """A server that answers as it is told, and the Prometheus that asks it."""
    servers = []

    async def serve(handler, monotonic=lambda: 0.0):
        app = web.Application()
        app.router.add_get("/prefix/api/v1/query", handler)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return Prometheus(f"http://127.0.0.1:{server.port}/prefix", clock(monotonic))

    yield serve
    for server in servers:
        await server.close()


async def count(one, pods=PODS):
    return await one.count("n", "a", pods)


async def test_one_query_asks_for_counts_and_times(served):
    asked = []

    async def handler(request):
        asked.append(request.query)
        return web.Response(body=GOOD)

    one = await served(handler)
    assert [c.at for c in (await count(one)).counts] == [-2.5, -1.0]
    assert asked == [{"query": f'label_replace(timestamp(n), "{TIME}", "1", "", "") or n', "timeout": "5s"}]


async def test_it_is_not_asked_without_an_address_or_pods(served):
    async def handler(_):
        pytest.fail("it was asked")

    assert await count(Prometheus("", clock())) == prometheus.PrometheusAnswer(flaw=NO_URL)
    assert await count(await served(handler), {}) == prometheus.PrometheusAnswer()


async def test_it_is_never_followed_to_another_address(served):
    async def elsewhere(_):
        pytest.fail("the operator was sent elsewhere")

    other = await served(elsewhere)

    async def handler(_):
        raise web.HTTPFound(f"{other._url}/api/v1/query")

    assert "status 302" in (await count(await served(handler))).flaw


async def test_no_more_is_read_than_an_answer_may_have(served):
    sent = 0

    async def handler(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:  # it ends when the operator hangs up
            await response.write(b" " * 2**16)
            sent += 2**16

    found = await count(await served(handler))
    assert f"over {LARGEST} bytes" in found.flaw
    assert sent < 32 * LARGEST


async def test_what_is_packed_is_not_unpacked(served):
    async def handler(_):
        response = web.Response(body=b" " * 2**20 + GOOD)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    one = await served(handler)
    assert "not as Prometheus does" in (await count(one)).flaw


async def test_a_server_that_hangs_or_is_away_is_named(served, monkeypatch):
    async def handler(_):
        await asyncio.Event().wait()

    monkeypatch.setattr(prometheus, "TIMEOUT", 0.05)
    one = await served(handler)
    assert "prometheus.url of the chart gives no answer" in (await count(one)).flaw
    assert "cannot be asked" in (await count(Prometheus("http://127.0.0.1:1", clock()))).flaw


@pytest.mark.parametrize(
    ("moments", "now", "ahead"),
    [
        ([0.0, 0.5], [100.2], [100.2]),  # it looked in between: the earliest is taken
        ([0.0, 0.5, 3.0, 3.01], [100.2, 103.0], [100.2, 100.0]),  # a fast answer tells more
        ([0.0, 0.01, 3.0, 4.0], [100.0, 103.9], [100.0, 100.0]),  # a slow one tells nothing else
        ([0.0, 0.01, 3.0, 3.01], [100.0, 203.0], [100.0, 199.99]),  # its clock was set
    ],
)
async def test_slow_answers_move_no_time(served, moments, now, ahead):
    clock, looks = itertools.chain(moments), itertools.chain(now)

    async def handler(_):
        text = body(*both("p", 7, at=50.0)).replace(str(NOW).encode(), str(next(looks)).encode())
        return web.Response(body=text)

    one = await served(handler, lambda: next(clock))
    found = [(await count(one, {"p": "uid-p"})).counts[0].at for _ in now]
    assert found == pytest.approx([50.0 - difference for difference in ahead])
