"""A port over real sockets on loopback: what it closes, and what it leaves alone.

Limits are small, and nothing is timed: each test waits for what must happen.
"""

import asyncio
import contextlib
import errno
import resource
import ssl
import subprocess
import sys
import time
from collections import Counter

import pytest
from aiohttp import web

from punctual.kube import port as port_module
from punctual.kube.agents.ca import Lifetimes, make_serving, new_trust
from punctual.kube.port import OF_STRANGER, UNREAD, Limits, Port

HOST = "punctual.system.svc"
GET = b"GET %s HTTP/1.1\r\nHost: x\r\nName: %s\r\n\r\n"
LONG = 3600.0
"""A limit that no test meets."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    now = time.time()
    trust = new_trust(now, lifetimes=Lifetimes())
    serving = make_serving(trust.signing, [HOST], now, lifetimes=Lifetimes())
    pem = tmp_path_factory.mktemp("tls") / "tls.pem"
    pem.write_text(serving.key + serving.certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cadata=trust.bundle)


async def until(fact):
    async with asyncio.timeout(60):
        while not fact():  # noqa: ASYNC110  the other end of a socket has no event
            await asyncio.sleep(0.005)


class Server:
    """A port, what it has closed, and the connections to it."""

    def __init__(self, authority):
        self.server_context, self.client_context = authority
        self.closed = Counter()
        self.release = asyncio.Event()
        self.held = 0
        self.writers = []

    async def open(self, *, tls=True, strangers=100, of_one=2, first=LONG, idle=LONG):
        self.tls = tls
        limits = Limits(strangers=strangers, of_one=of_one, first=first, idle=idle, headers=16)
        self.port = Port(limits, closed=lambda cause: self.closed.update({cause: 1}))
        app = web.Application(client_max_size=1 << 20)
        app.router.add_get("/", self.answer)
        app.router.add_get("/held", self.hold)
        app.router.add_post("/body", self.read)
        context = self.server_context if tls else None
        self.number = await self.port.open(app, host="127.0.0.1", port=0, context=context)

    async def answer(self, request):
        if name := request.headers.get("Name"):
            self.port.identified(request.transport, name)
        return web.Response(text="well")

    async def hold(self, request):
        self.held += 1
        await self.release.wait()
        return web.Response(text="late")

    async def read(self, request):
        await until(lambda: not request.transport.is_reading())  # all is there that may wait
        self.port.identified(request.transport, "writer")
        return web.Response(text=str(len(await request.read())))

    async def connect(self, *, secure=None, address="127.0.0.1"):
        context = self.client_context if (self.tls if secure is None else secure) else None
        name = HOST if context else None
        pair = await asyncio.open_connection(
            "127.0.0.1", self.number, ssl=context, server_hostname=name, local_addr=(address, 0)
        )
        self.writers.append(pair[1])
        return pair

    async def strange(self, **more):
        """Connect and say nothing; wait until the server knows it."""
        before = len(self.port._strangers)
        pair = await self.connect(secure=False, **more)
        await until(lambda: len(self.port._strangers) > before or self.closed["crowded"])
        return pair

    async def end(self):
        self.release.set()
        for writer in self.writers:
            writer.transport.abort()
        await until(lambda: not (self.port._strangers or self.port._identified))
        await self.port.close()


@pytest.fixture
async def server(authority):
    server = Server(authority)
    yield server
    await server.end()


async def ask(pair, path=b"/", name=b""):
    reader, writer = pair
    writer.write(GET % (path, name))
    return await answer(reader)


async def answer(reader):
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(dict(x.split(": ") for x in head.decode().splitlines()[1:] if x)["Content-Length"])
        return int(head.split()[1]), (await reader.readexactly(length)).decode()


async def gone(pair):
    """Wait until the server has closed a connection."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        async with asyncio.timeout(60):
            while await pair[0].read(1 << 16):
                pass


async def trickle(pair, first):
    """Send the beginning of a request, then a byte of its header at a time until it is closed."""
    pair[1].write(first)
    closed = asyncio.create_task(gone(pair))
    while not closed.done():
        pair[1].write(b"x")
        await asyncio.wait([closed], timeout=0.01)


SLOW = {
    "a connection without a handshake": (False, b""),
    "half of a handshake": (False, b"\x16\x03\x01\x02\x00\x01\x00"),
    "a handshake without a request": (True, b""),
    "half of a request": (True, b"GET / HTTP/1.1\r\nHost: "),
}


@pytest.mark.parametrize(("secure", "said"), SLOW.values(), ids=SLOW)
async def test_a_caller_that_does_not_ask_in_time_is_closed(server, secure, said):
    await server.open(first=0.3)
    pair = await server.connect(secure=secure)
    pair[1].write(said)
    await gone(pair)
    assert server.closed == {"tooSlow": 1}


async def test_more_of_a_header_gives_no_more_time(server):
    await server.open(first=0.3)
    await trickle(await server.connect(), b"GET / HTTP/1.1\r\nX: ")
    assert server.closed == {"tooSlow": 1}


@pytest.mark.parametrize("name", [b"", b"n1"], ids=["a stranger", "an agent"])
async def test_a_caller_that_does_not_ask_again_in_time_is_closed(server, name):
    await server.open(idle=0.3)
    pair = await server.connect()
    assert await ask(pair, name=name) == (200, "well")
    await gone(pair)
    assert server.closed == {"idle": 1}


async def test_half_of_a_second_request_gives_no_more_time(server):
    await server.open(idle=0.3)
    pair = await server.connect()
    assert (await ask(pair, name=b"n1"))[0] == 200
    await trickle(pair, b"GET / HTTP/1.1\r\nX: ")
    assert server.closed == {"idle": 1}


async def test_a_caller_that_waits_for_an_answer_is_not_closed(server):
    """The API server reviews a token, and is slow."""
    await server.open(first=0.3, idle=0.3)
    pair = await server.connect()
    waiting = asyncio.create_task(ask(pair, b"/held"))
    await until(lambda: server.held)
    for _ in range(2):  # each has had the whole time meanwhile
        await gone(await server.connect())
    assert server.closed == {"tooSlow": 2}
    server.release.set()
    assert await waiting == (200, "late")


async def test_a_handshake_that_fails_is_counted(server):
    await server.open()
    pair = await server.connect(secure=False)
    pair[1].write(GET % (b"/", b""))
    await gone(pair)
    await until(lambda: server.closed)
    assert server.closed == {"handshakeFailed": 1}


@pytest.mark.parametrize("tls", [True, False], ids=["https", "http"])
async def test_the_oldest_stranger_of_the_address_that_has_the_most_makes_way(server, tls):
    await server.open(tls=tls, strangers=3)
    lone = await server.strange(address="127.0.0.3")
    many = [await server.strange(address="127.0.0.2") for _ in range(2)]
    honest = await server.connect()
    await gone(many[0])
    assert server.closed == {"crowded": 1}
    assert await ask(honest) == (200, "well")
    if not tls:
        assert await ask(lone) == await ask(many[1]) == (200, "well")


async def test_a_caller_that_waits_for_an_answer_does_not_make_way(server):
    await server.open(strangers=2)
    first = await server.connect()
    waiting = asyncio.create_task(ask(first, b"/held"))
    await until(lambda: server.held)
    idle = await server.connect()
    honest = await server.connect()
    await gone(idle)
    server.release.set()
    assert await waiting == (200, "late")
    assert await ask(honest) == (200, "well")
    assert server.closed == {"crowded": 1}


async def test_no_more_strangers_wait_for_answers_than_may_be(server):
    await server.open(strangers=2)
    waiting = [asyncio.create_task(ask(await server.connect(), b"/held")) for _ in range(2)]
    await until(lambda: server.held == 2)
    await gone(await server.connect(secure=False))
    assert server.closed == {"crowded": 1}
    server.release.set()
    assert await asyncio.gather(*waiting) == [(200, "late")] * 2


async def test_no_number_of_strangers_displaces_an_agent(server):
    await server.open(strangers=5)
    agents = [await server.connect() for _ in range(5)]
    for n, agent in enumerate(agents):
        assert (await ask(agent, name=b"n%d" % n))[0] == 200
    for _ in range(30):
        await server.connect(secure=False)
    await until(lambda: server.closed["crowded"] == 25)
    for agent in agents:
        assert await ask(agent) == (200, "well")
    assert len(server.port._strangers) == 5


async def test_of_one_callers_connections_the_newest_stay(server):
    await server.open(of_one=2)
    pairs = [await server.connect() for _ in range(3)]
    other = await server.connect()
    for pair in (other, *pairs):
        assert (await ask(pair, name=b"n2" if pair is other else b"n1"))[0] == 200
    await gone(pairs[0])
    assert server.closed == {"replaced": 1}
    for pair in (other, *pairs[1:], other):
        assert (await ask(pair, name=b"n1"))[0] == 200, "the name of a connection stays"
    assert server.closed == {"replaced": 1}


async def test_requests_that_a_stranger_sends_ahead_are_few(server):
    await server.open()
    pair = await server.connect()
    pair[1].write(GET % (b"/held", b""))
    await until(lambda: server.held)
    ahead = GET % (b"/", b"n" * 7000)
    pair[1].write(ahead * (OF_STRANGER // len(ahead) + 1))
    await gone(pair)
    assert server.closed == {"tooMuch": 1}


@pytest.mark.parametrize(("lines", "status"), [(10, 200), (20, 400)])
async def test_a_header_has_few_lines_and_one_with_more_is_not_worth_a_log(server, caplog, lines, status):
    await server.open()
    reader, writer = await server.connect()
    more = b"".join(b"a%d: b\r\n" % n for n in range(lines))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" + more + b"\r\n")
    assert (await answer(reader))[0] == status
    assert caplog.records == []


async def test_requests_that_a_stranger_sends_one_by_one_are_as_many_as_it_likes(server):
    await server.open()
    pair = await server.connect()
    long = b"/?" + b"x" * 7000
    for _ in range(OF_STRANGER // len(long) + 2):
        assert await ask(pair, long) == (200, "well")
    assert not server.closed


async def test_a_body_waits_until_its_sender_is_identified(server):
    await server.open()
    size = 1 << 20
    reader, writer = await server.connect()
    for _ in range(2):
        writer.write(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (size - 1))
        writer.write(b"x" * (size - 1))
        assert await answer(reader) == (200, str(size - 1))
    assert not server.closed


async def test_what_waits_is_little(server):
    """Of a body that is not read, the server has taken no more than its buffers."""
    await server.open()
    reader, writer = await server.connect()
    writer.write(b"POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n" + b"x" * 200_000)
    assert (await answer(reader))[0] == 405
    (connection,) = server.port._strangers
    assert connection.transport._ssl_protocol._incoming_high_water == UNREAD
    assert len(connection.transport._ssl_protocol._ssl_buffer) == port_module.TLS_BUFFER


async def test_no_file_descriptor_is_left_for_a_while(server, monkeypatch):
    await server.open(tls=False)
    loop = asyncio.get_running_loop()
    first = await server.strange()
    accept, failed = loop.sock_accept, []

    async def fail(listener):
        if len(failed) < 2:
            failed.append(await asyncio.sleep(0))
            raise OSError(errno.EMFILE, "too many open files")
        return await accept(listener)

    monkeypatch.setattr(port_module, "PAUSE", 0.01)
    monkeypatch.setattr(loop, "sock_accept", fail)
    await server.strange()  # accepted by the call that had begun before
    assert await ask(await server.connect()) == (200, "well")
    await gone(first)
    assert server.closed == {"crowded": 2}


async def test_a_port_that_closes_answers_what_it_was_asked(server):
    await server.open()
    pair, silent = await server.connect(), await server.connect(secure=False)
    waiting = asyncio.create_task(ask(pair, b"/held"))
    await until(lambda: server.held)
    closing = asyncio.create_task(server.port.close())
    await gone(silent)
    server.release.set()
    assert await waiting == (200, "late")
    await closing
    with pytest.raises(ConnectionRefusedError):
        await server.connect()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_all_interfaces_are_listened_to(server, host):
    await server.open(tls=False)
    app = web.Application()
    app.router.add_get("/", server.answer)
    port = Port(Limits(strangers=5, of_one=1))
    number = await port.open(app, host=None, port=0)
    try:
        pair = await asyncio.open_connection(host, number)
        assert await ask(pair) == (200, "well")
        pair[1].close()
        await pair[1].wait_closed()
    except OSError as error:
        if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH}:
            raise
        pytest.skip("this machine has no IPv6")
    finally:
        await port.close()


def test_the_limit_on_open_files_is_raised():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = (
        "import resource as r; from punctual.kube.port import allow_open_files as f;"
        f"r.setrlimit(r.RLIMIT_NOFILE, (64, {most})); f(); print(*r.getrlimit(r.RLIMIT_NOFILE))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(most)] * 2
