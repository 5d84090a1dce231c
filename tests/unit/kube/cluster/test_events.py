"""When events are written, under a clock that jumps; the same recorder meets a real API server in tests/api."""

import asyncio
import contextlib

import pytest

from punctual.kube.cluster.events import PATIENCE, SERIES, EventRecorder, Regarding

pytestmark = pytest.mark.looptime
JOBS = [Regarding("punctual.dev/v1alpha1", "DivisibleJob", "ns", f"job-{n}", f"u{n}") for n in range(3000)]


class Server:
    """Takes events, and has a clock."""

    def __init__(self):
        self.told, self.events = [], []
        self.clock = self

    def monotonic(self):
        return self.now()

    def now(self):
        return asyncio.get_running_loop().time()

    async def create(self, _path, body):
        self.told.append((self.now(), body["regarding"]["name"]))
        self.events.append(body)

    async def patch_merge(self, path, body):
        event = next(e for e in self.events if path.endswith(e["metadata"]["name"]))
        event.update(body)


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


@pytest.mark.parametrize(
    ("reason", "written"),
    [
        ("ImageUnavailable", [("attempt 0: pod a cannot start", 3), ("attempt 3: pod a cannot start", 1)]),
        ("InputUnavailable", [("attempt 0: pod a cannot start", 3), ("attempt 3: pod a cannot start", 1)]),
        ("NotStarted", [("attempt 0: pod a cannot start", 3), ("attempt 3: pod a cannot start", 1)]),
        ("ChunkFailed", [(f"attempt {n}: pod a cannot start", 1) for n in range(4)]),
    ],
)
async def test_attempts_that_are_repeated_for_one_cause_are_one_series_until_it_has_ended(reason, written):
    server = Server()
    async with recording(server, None) as recorder:
        for n, pause in enumerate((0, 30, 300, SERIES + 1)):
            await asyncio.sleep(pause)
            recorder.emit(JOBS[0], "Warning", reason, f"attempt {n}: pod a cannot start")
            assert await recorder.flush(60)
    assert [(e["note"], e.get("series", {}).get("count", 1)) for e in server.events] == written
