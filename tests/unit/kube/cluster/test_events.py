"""When events are written, under a clock that jumps; the same recorder meets a real API server in tests/api."""

import asyncio
import contextlib

import pytest

from punctual.kube.cluster.events import PATIENCE, EventRecorder, Regarding

pytestmark = pytest.mark.looptime
JOBS = [Regarding("punctual.dev/v1alpha1", "DivisibleJob", "ns", f"job-{n}", f"u{n}") for n in range(3000)]


class Server:
    """Takes events, and has a clock."""

    def __init__(self):
        self.told = []
        self.clock = self

    def now(self):
        return asyncio.get_running_loop().time()

    async def create(self, _path, body):
        self.told.append((self.now(), body["regarding"]["name"]))


@contextlib.asynccontextmanager
async def recording(server, urgent):
    recorder = EventRecorder(server, controller="c", instance="i", urgent=urgent)
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_events_let_what_is_urgent_go_first_and_none_is_lost():
    server, calm = Server(), asyncio.Event()
    async with recording(server, calm.wait) as recorder:
        for job in JOBS:
            recorder.emit(job, "Normal", "Feasible", "fits")
        await asyncio.sleep(10.5 * PATIENCE)
        assert len(server.told) == 10  # where it never ends there is still an event a second
        calm.set()
        assert await recorder.flush(60)
    assert [name for _, name in server.told] == [job.name for job in JOBS]
