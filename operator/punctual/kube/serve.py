"""Plain HTTP for Prometheus and the kubelet: ``/metrics``, ``/healthz``, ``/readyz``.

The operator is alive if the planner ticked lately; a running process is not enough, so a loop that hangs is restarted.
Each probe calls a function that returns None or a sentence that names the problem.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from punctual.kube.metrics import Metrics

Answer = Callable[[], str | None]
"""None: healthy. Otherwise one sentence that names the problem."""


class ProbeServer:
    """The server for metrics and probes."""

    def __init__(self, metrics: Metrics, *, healthy: Answer, ready: Answer) -> None:
        self._metrics = metrics
        self._healthy = healthy
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self, *, host: str | None = None, port: int = 8080) -> int:
        """Listen. Returns the port (for 0, the one that was assigned)."""
        app = web.Application()
        app.router.add_get("/metrics", self._exposition)
        app.router.add_get("/healthz", _probe(self._healthy))
        app.router.add_get("/readyz", _probe(self._ready))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return port_of(self._runner)

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    async def _exposition(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def port_of(runner: web.BaseRunner) -> int:
    """Return the port that is listened on. If each IP family got its own, it is IPv4's.

    The order of the sockets is random, because the event loop keeps them in a set.
    """
    addresses = runner.addresses
    return int(next((a for a in addresses if len(a) == 2), addresses[0])[1])


def _probe(answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(_: web.Request) -> web.Response:
        wrong = answer()
        return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)

    return handle
