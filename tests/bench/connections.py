#!/usr/bin/env python3
"""What a connection to the report server costs in memory, with its buffer and with asyncio's, in turn.

    tests/bench/connections.py [--connections 500] [--runs 3]

Prints JSON: KiB of resident memory per connection, of an agent that has reported once and of a stranger that has only
shaken hands, and the ratio. Each measurement has a server in a process of its own; this one holds the other ends.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import ssl
import statistics
import time
from asyncio.sslproto import SSLProtocol
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from punctual import wire
from punctual.kube import port as port_module
from punctual.kube.agents.ca import Lifetimes, make_serving, new_trust
from punctual.kube.agents.identity import Identity, Reviewer
from punctual.kube.agents.report_server import ReportServer
from punctual.kube.agents.set_points import SetPointStore

TARGET = {"agent_ratio": 0.5}
FIRST = 50
"""Connections before the measurement: they fill what the allocators keep."""


def resident():
    """Return this process's resident memory in KiB."""
    return int(next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS")).split()[1])


async def serve(pem, buffer, pipe):
    """Be the operator's report server: tell its port, then its memory whenever asked."""
    if buffer:
        port_module.TLS_BUFFER = buffer

    async def review(token):
        return Identity(account="agent", node=token)

    clock = SimpleNamespace(monotonic=time.monotonic, now=time.time)
    receiver = SimpleNamespace(leading_epoch=lambda: 1, heard=lambda _: None, count_refusal=lambda _: None)
    server = ReportServer(SetPointStore(), Reviewer(review, clock), receiver, clock=clock, account="agent")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(pem)
    pipe.send(await server.start(context, host="127.0.0.1", port=0))
    while await asyncio.to_thread(pipe.recv) != "end":
        pipe.send(resident())
    await server.stop()


def play(*given):
    """Be the server's process."""
    asyncio.run(serve(*given))


async def connect(port, context, first, count, *, report):
    """Return the writers of so many connections."""
    writers = []
    for n in range(first, first + count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        writers.append(writer)
        if report:
            body = wire.Report(node=f"n{n}", instance="i", sequence=1, started=1.0).model_dump_json()
            head = f"POST {wire.REPORT_PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer n{n}\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
    return writers


async def measure(pem, context, count, *, buffer, report):
    """Return KiB per connection."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=play, args=(pem, buffer, there), daemon=True)
    process.start()
    port = await asyncio.to_thread(here.recv)
    writers = await connect(port, context, 0, FIRST, report=report)
    found = []
    for _ in range(2):
        here.send("memory")
        found.append(await asyncio.to_thread(here.recv))
        if len(found) == 1:
            writers += await connect(port, context, FIRST, count, report=report)
    for writer in writers:
        writer.transport.abort()
    here.send("end")
    await asyncio.to_thread(process.join)
    return (found[1] - found[0]) / count


def certify(folder):
    """Return the file of a server's key and certificate, and the context of its callers."""
    trust = new_trust(time.time(), lifetimes=Lifetimes())
    serving = make_serving(trust.signing, ["localhost"], time.time(), lifetimes=Lifetimes())
    pem = Path(folder, "tls.pem")
    pem.write_text(serving.key + serving.certificate)
    return pem, ssl.create_default_context(cadata=trust.bundle)


async def compare(options):
    """Measure both buffers in turn, so often."""
    found = {}
    with TemporaryDirectory() as folder:
        pem, context = certify(folder)
        for _ in range(options.runs):
            for caller in ("agent", "stranger"):
                for name, buffer in (("asyncio", SSLProtocol.max_size), ("ours", None)):
                    kib = await measure(pem, context, options.connections, buffer=buffer, report=caller == "agent")
                    found.setdefault(f"{caller}_kib", {}).setdefault(name, []).append(round(kib, 1))
    for caller in ("agent", "stranger"):
        middle = {name: statistics.median(runs) for name, runs in found[f"{caller}_kib"].items()}
        found[f"{caller}_ratio"] = round(middle["ours"] / middle["asyncio"], 3)
    return {"connections": options.connections, **found}


def main():
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    found = asyncio.run(compare(parser.parse_args()))
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({"connections": found, "target": TARGET, "machine": machine}, indent=1))  # noqa: T201  its purpose


if __name__ == "__main__":
    main()
