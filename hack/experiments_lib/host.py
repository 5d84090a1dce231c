"""The node's own work in the experiment with guests: a small web server, and the client that asks it.

A request for ``/N`` takes N rounds of a hash; the answer tells the seconds that they took. So the same server serves
many small requests, and runs a benchmark of the CPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request

PORT = 18080

SERVER = """
import asyncio, hashlib, sys, time

BLOCK = bytes(1 << 14)

async def serve(reader, writer):
    while line := await reader.readline():
        while (await reader.readline()).strip():
            pass
        rounds = int(line.split()[1].strip(b"/"))
        began = time.monotonic()
        for _ in range(rounds):
            hashlib.sha256(BLOCK).digest()
        body = b"%.9f" % (time.monotonic() - began)
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(main())
"""

CLIENT = """
import asyncio, json, os, sys, time

order = json.loads(sys.argv[1])
os.nice(-10)  # its CPU is not the server's, but the control plane's
found = []

async def ask(lines, at):
    reader, writer = lines[at % len(lines)][:2]
    async with lines[at % len(lines)][2]:
        began = time.time()
        writer.write(b"GET /%d HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % order["rounds"])
        size = 0
        while (line := await reader.readline()).strip():
            if line.startswith(b"Content-Length:"):
                size = int(line.split()[1])
        await reader.readexactly(size)
        found.append((began, time.time() - began))

async def main():
    lines = [(*await asyncio.open_connection(order["address"], order["port"]), asyncio.Lock()) for _ in range(64)]
    began, asked = time.monotonic(), set()
    for k in range(int(order["seconds"] * order["rate"])):
        await asyncio.sleep(began + k / order["rate"] - time.monotonic())
        if os.getppid() == 1:
            return
        asked.add(task := asyncio.ensure_future(ask(lines, k)))
        task.add_done_callback(asked.discard)
        if k and k % 50 == 0:
            sys.stdout.write(json.dumps(found) + "\\n")
            sys.stdout.flush()
            found.clear()

asyncio.run(main())
"""
"""Asks at a fixed rate, whether answers come or not. Prints (time, seconds until the answer) of all requests."""


def ask(address: str, rounds: int) -> float:
    """Let the server do some rounds; return the seconds that they took."""
    with urllib.request.urlopen(f"http://{address}:{PORT}/{rounds}", timeout=120) as answer:
        return float(answer.read())


class Client:
    """A client that asks all the time, until it is closed. It runs where this program runs."""

    def __init__(self, address: str, *, rounds: int, rate: float, seconds: float) -> None:
        order = {"address": address, "port": PORT, "rounds": rounds, "rate": rate, "seconds": seconds}
        self._answers = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in close; a pipe would fill up
        self._process = subprocess.Popen([sys.executable, "-c", CLIENT, json.dumps(order)], stdout=self._answers)

    def close(self) -> list[tuple[float, float]]:
        """End it; return (time, seconds until the answer) of all requests."""
        self._process.terminate()
        self._process.wait()
        with self._answers as file:
            file.seek(0)
            lines = [line for line in file if line.endswith("\n")]
        return sorted((at, took) for line in lines for at, took in json.loads(line))
