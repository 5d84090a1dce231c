"""Plain HTTP for Prometheus and the kubelet: ``/metrics``, ``/healthz``, ``/readyz``.

The operator is alive if the planner ticked lately; a running process is not enough, so a loop that hangs is restarted.
Each probe calls a function that returns None or a sentence that names the problem.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from punctual.kube.metrics import Metrics
from punctual.kube.port import Limits, Port

Answer = Callable[[], str | None]
"""None: healthy. Otherwise one sentence that names the problem."""
LIMITS: Final = Limits(strangers=100, of_one=0, headers=32)
"""Limits on connections. No caller is identified here."""


class ProbeServer:
    """The server for metrics and probes."""

    def __init__(self, metrics: Metrics, *, healthy: Answer, ready: Answer) -> None:
        self._metrics = metrics
        self._healthy = healthy
        self._ready = ready
        self._port = Port(LIMITS, closed=metrics.closing("metrics"))

    async def start(self, *, host: str | None = None, port: int = 8080) -> int:
        """Listen. Returns the port (for 0, the one that was assigned)."""
        app = web.Application()
        app.router.add_get("/metrics", self._exposition)
        app.router.add_get("/healthz", _probe(self._healthy))
        app.router.add_get("/readyz", _probe(self._ready))
        return await self._port.open(app, host=host, port=port)

    async def stop(self) -> None:
        """Stop listening."""
        await self._port.close()

    async def _exposition(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _probe(answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(_: web.Request) -> web.Response:
        wrong = answer()
        return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)

    return handle
