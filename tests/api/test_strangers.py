"""Two thousand connections of strangers at the port for reports: every job is decided, and the agent keeps its own."""

import asyncio
import json
import re
import runpy
import ssl
from pathlib import Path

import pytest

from punctual import wire
from punctual.kube.agents.report_server import LIMITS
from punctual.kube.port import allow_open_files

HERE = Path(__file__).parent
REPORTS = runpy.run_path(str(HERE / "test_reports.py"))
world, start, staff = REPORTS["world"], REPORTS["start"], REPORTS["staff"]
STRANGERS = 2000
AT_ONCE = 50
JOBS = 20


def trusting():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Agent:
    """An agent that reports on one connection, and never opens another."""

    def __init__(self, port, node, token):
        self.port, self.node, self.token = port, node, token
        self.answered = 0

    async def run(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=trusting())
        try:
            while True:
                await self.report(reader, writer)
                await asyncio.sleep(0.05)
        finally:
            writer.transport.abort()

    async def report(self, reader, writer):
        body = REPORTS["report"](self.node, self.answered + 1)
        head = f"POST {wire.REPORT_PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        answer = await reader.readexactly(int(re.search(rb"(?i)content-length: (\d+)", head)[1]))
        assert head.startswith(b"HTTP/1.1 200"), answer
        assert json.loads(answer)["epoch"] > 0
        self.answered += 1


async def crowd(port, writers):
    """Connect so often and say nothing: half of them shake hands before."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(n):
        async with slots:
            try:
                more = {"ssl": trusting()} if n % 2 else {}
                _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0), **more)
                writers.append(writer)
            except (ConnectionError, ssl.SSLError):
                pass  # it made way for another before it had shaken hands

    await asyncio.gather(*(one(n) for n in range(STRANGERS)))


@pytest.mark.timeout(600)
async def test_two_thousand_silent_strangers_cost_no_decision_and_no_agent_its_connection(world, start, staff):
    allow_open_files()
    await world.add_node()
    await world.add_pool()
    leader = await start()
    await world.answered(await world.add_job(units=10), "Feasible")
    agent = Agent(leader.reports, world.node, await staff.token(world.node))
    writers = []

    async def closed(*causes):
        series = [f'punctual_connections_closed_total{{cause="{cause}",port="reports"}}' for cause in causes]
        return sum([await leader.metric(one) for one in series])

    async def reports_again():
        return agent.answered > before + 2

    async with asyncio.TaskGroup() as tasks:
        reporting = tasks.create_task(agent.run())
        before = 0
        await world.until(reports_again)
        await crowd(leader.reports, writers)

        async def all_came():
            return await closed("crowded", "tooSlow") >= STRANGERS - LIMITS.strangers

        await world.until(all_came)
        for job in [await world.add_job(units=10, deadline="1h") for _ in range(JOBS)]:
            await world.answered(job, "Feasible")
        before = agent.answered
        await world.until(reports_again)

        async def all_gone():
            return await closed("crowded", "tooSlow", "handshakeFailed") >= STRANGERS

        await world.until(all_gone, within=120)
        before = agent.answered
        await world.until(reports_again)
        assert not await closed("replaced", "idle", "tooMuch")
        reporting.cancel()
    for writer in writers:
        writer.transport.abort()
