"""What the client makes of answers that no API server gives: proxies on the way speak for themselves."""

import asyncio
import contextlib
import inspect
import json

import pytest
from aiohttp import web

from punctual import errors
from punctual.kube.cluster.client import PAGE_BYTES, ApiClient
from punctual.kube.known.oversize import LARGEST, MARK

NO_EVENTS = [b"<html>upstream is gone</html>\n", b'"bye"\n', b'{"message": "bye"}\n']


@pytest.fixture
async def clients(tmp_path):
    """A function that opens a client to a server which answers everything so."""
    async with contextlib.AsyncExitStack() as stack:

        async def to(handler=None, **answer):
            async def handle(request):
                if handler is None:
                    return web.Response(**answer)
                made = handler(request)
                return await made if inspect.isawaitable(made) else made

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            server = f"http://127.0.0.1:{runner.addresses[0][1]}"
            config = {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {}}],
            }
            path = tmp_path / "kubeconfig"
            path.write_text(json.dumps(config))
            return await stack.enter_async_context(ApiClient(str(path)))

        yield to


@pytest.mark.parametrize("date", ["today", "Mon, 01 Jan 0001 00:00:00 -0000", ""])
async def test_a_date_that_is_none_is_not_believed_and_hides_no_answer(clients, date):
    client = await clients(body=b"{}", headers={"Date": date})
    assert await client.get("/x") == {}


@pytest.mark.parametrize("line", NO_EVENTS)
async def test_a_line_of_a_watch_that_is_no_event_is_the_end_of_the_watch(clients, line):
    client = await clients(body=line)
    with pytest.raises(errors.Unreachable):
        await anext(client.watch("/api/v1/pods"))


@pytest.mark.parametrize("answer", [b"<html>hello</html>", b'"hello"', b"[]", b""])
async def test_an_answer_that_is_no_object_is_none(clients, answer):
    client = await clients(body=answer)
    with pytest.raises(errors.Unreachable):
        await client.get("/x")


@pytest.mark.parametrize(
    ("asked", "waits"),
    [("7", 7.0), ("3600", 30.0), ("9" * 5000, 30.0), ("Sat, 01 Jan 2050 00:00:00 GMT", 0.2), ("²", 0.2), ("-1", 0.2)],
)
async def test_nobody_is_waited_for_longer_than_half_a_minute(clients, asked, waits):
    client = await clients(status=503, headers={"Retry-After": asked})
    with pytest.raises(errors.Busy) as busy:
        await client.get("/x")
    assert busy.value.retry_after == waits


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ('pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API', errors.NoRight),
        ('pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2', None),
        ('admission webhook "no.example" denied the request: User "you" cannot do that', None),
    ],
)
async def test_a_right_that_is_missing_is_told_from_what_an_admission_plugin_says(clients, message, error):
    status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
    client = await clients(status=403, body=json.dumps(status).encode())
    with pytest.raises(errors.Forbidden) as refused:
        await client.get("/x")
    assert type(refused.value) is (error or errors.Forbidden)


def stored(names, size):
    """Return a handler that lists jobs page by page; ``size(name)``: bytes of the spec of each."""
    asked = []

    def handle(request):
        limit, at = int(request.query["limit"]), int(request.query.get("continue", 0))
        asked.append(limit)
        some = names[at : at + limit]
        items = [{"kind": "DivisibleJob", "metadata": {"name": n}, "spec": {"x": "y" * size(n)}} for n in some]
        more = {"continue": str(at + limit)} if at + limit < len(names) else {}
        return web.json_response({"metadata": {"resourceVersion": "7", **more}, "items": items})

    handle.asked = asked
    return handle


async def test_a_page_has_as_many_objects_as_fit_into_its_bytes(clients):
    names = [f"j{n:04}" for n in range(1200)]
    handler = stored(names, lambda name: 10**6 if "j0400" <= name < "j0440" else 200)
    client = await clients(handler)
    seen, most = [], 0
    async for page in client.pages("/x"):
        seen += [item["metadata"]["name"] for item in page.items]
        most = max(most, sum(1 for item in page.items if MARK in item))
    assert seen == names, "none is left out, none comes twice"
    assert 1 <= most <= PAGE_BYTES // 10**6
    assert max(handler.asked) == 500, "where objects are small there are many in a page"
    assert len(handler.asked) < 60


async def test_one_object_that_is_larger_than_a_page_is_read_all_the_same(clients):
    client = await clients(stored(["a", "b", "c"], lambda _: PAGE_BYTES + 1))
    assert [len(page.items) async for page in client.pages("/x")] == [1, 1, 1]


@pytest.mark.parametrize(("size", "light"), [(LARGEST - 100, False), (LARGEST, True)])
async def test_of_a_spec_that_is_too_large_only_the_size_is_kept(clients, size, light):
    spec = {"pool": "main", "units": 5, "template": {"x": "y" * size}}
    client = await clients(body=json.dumps({"kind": "DivisibleJob", "metadata": {}, "spec": spec}).encode())
    found = await client.get("/x")
    assert found["spec"] == (spec | {"template": None} if light else spec)
    assert (MARK in found) == light


async def test_a_page_that_does_not_come_in_time_is_asked_for_in_parts(clients):
    whole = stored([f"j{n:02}" for n in range(20)], lambda _: 10)

    async def handler(request):
        if int(request.query["limit"]) > 4:
            await asyncio.Event().wait()
        return whole(request)

    client = await clients(handler)
    client._deadline = 0.5
    seen = [item["metadata"]["name"] async for page in client.pages("/x") for item in page.items]
    assert seen == [f"j{n:02}" for n in range(20)]
    assert set(whole.asked) == {2}


async def test_a_server_that_never_answers_is_told_of(clients):
    async def handler(_):
        await asyncio.Event().wait()

    client = await clients(handler)
    client._deadline = 0.05
    with pytest.raises(errors.Unreachable):
        await anext(client.pages("/x"))
