"""Counters of pods in a real Prometheus, which scrapes a page of metrics for each pod every second."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
from aiohttp import web

sys.path.append(str(Path(__file__).parents[2] / "hack"))

from lib import prometheus

NAME = "solver_iterations_total"


class Counters:
    """An async context manager. ``pods``: labels and a function that returns the count, for each series."""

    def __init__(self, folder, pods):
        self.folder, self.pods = folder, pods
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/{number}", self._page)
        runner = web.AppRunner(app)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        targets = [
            {"targets": [f"{host}:{port}"], "labels": {"__metrics_path__": f"/{n}", **labels}}
            for n, (labels, _) in enumerate(self.pods)
        ]
        job = {"job_name": "pods", "static_configs": targets}
        made = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
        (self.folder / "prometheus.yaml").write_text(json.dumps(made))
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{address}"
        with (self.folder / "prometheus.log").open("w") as log:
            process = subprocess.Popen(  # noqa: ASYNC220  it starts at once
                [
                    prometheus.program("prometheus"),
                    f"--config.file={self.folder / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address={address}",
                ],
                stdout=log,
                stderr=log,
            )
        self._stack.callback(process.wait, 30)
        self._stack.callback(process.terminate)
        return self

    async def __aexit__(self, *_):
        await self._stack.aclose()

    async def _page(self, request):
        _, count = self.pods[int(request.match_info["number"])]
        return web.Response(text=f"# TYPE {NAME} counter\n{NAME} {count()}\n")

    async def raw(self, query):
        """Return {value: time} of all samples of one series in the last hour."""
        async with aiohttp.ClientSession() as session:
            asked = session.get(f"{self.url}/api/v1/query", params={"query": f"{query}[1h]"})
            async with asked as answer:
                (series,) = (await answer.json())["data"]["result"]
        return {float(value): at for at, value in series["values"]}

    async def until(self, holds, within=60.0):
        """Wait until ``await holds()`` returns something, and return that."""
        async with asyncio.timeout(within):
            while not (found := await holds()):  # noqa: ASYNC110  it is the server's state
                await asyncio.sleep(0.2)
        return found
