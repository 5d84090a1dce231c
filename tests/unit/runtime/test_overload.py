"""More reports than can be looked at: only the newest of each node waits, nothing grows, and the queue can be seen."""

import gc
import tracemalloc

import pytest
from world import World, job

from punctual import metric_names as names
from punctual.kube.metrics import Metrics, began
from punctual.runtime.mailbox import Mailbox
from punctual.scheduling.model.event_keys import key_of, merged
from punctual.scheduling.model.events import Progress, Reported

NODES = [f"n{n}" for n in range(50)]


def report(node, second, *, pods=4):
    lines = (Progress(pod=f"{node}-{p}", done=second, end=None, cpu_seconds=float(second)) for p in range(pods))
    return Reported(node, tuple(lines))


def value(metrics, name):
    line = next(x for x in metrics.text().decode().splitlines() if x.startswith(name))
    return float(line.rpartition(" ")[2])


async def test_only_the_newest_report_of_each_node_waits():
    mailbox = Mailbox(key_of, merged)
    for second in range(100):
        for node in NODES:
            mailbox.put(report(node, second))
        assert mailbox.depth == len(NODES)
    taken = mailbox.take()
    assert [r.node for r in taken] == NODES
    assert all(p.done == 99 for r in taken for p in r.pods)


async def test_depth_and_age_are_those_of_the_moment_of_the_scrape(monkeypatch):
    monkeypatch.setattr("punctual.kube.metrics.time.time", lambda: 1000.0)
    now, metrics = [100.0], Metrics()
    mailbox = Mailbox(key_of, merged, monotonic=lambda: now[0])
    gauges = {names.MAILBOX_DEPTH: lambda: mailbox.depth, names.MAILBOX_OLDEST: lambda: began(mailbox.age)}
    metrics.watch_pool("main", lambda: {metric: ask() for metric, ask in gauges.items()})
    assert value(metrics, "punctual_mailbox_depth{") == 0
    for node in NODES:
        mailbox.put(report(node, 1))
    now[0] += 7.0
    mailbox.put(report("n0", 2))  # newer mail does not make the oldest younger
    assert value(metrics, "punctual_mailbox_depth{") == len(NODES)
    assert value(metrics, "punctual_mailbox_oldest_timestamp_seconds{") == 993.0
    mailbox.take()
    assert value(metrics, "punctual_mailbox_depth{") == 0
    assert value(metrics, "punctual_mailbox_oldest_timestamp_seconds{") == 0.0
    metrics.forget_pool("main")
    assert "punctual_mailbox_depth{" not in metrics.text().decode()


@pytest.fixture
def busy():
    """A pool on which every processor runs a chunk of a job that takes for ever."""
    w = World()
    for node in NODES[:10]:
        w.node(node, cpu=4)
    w.tick()
    w.apply(job(units=4 * 10**6, deadline=1e6, chi=0.1, min_processors=40, stall_timeout=1e9))
    w.run(5)
    assert len(w.pods) == 40
    return w


def test_a_pool_does_not_grow_with_reports(busy):
    pods = {}
    for pod in busy.pods.values():
        pods.setdefault(pod.chunk.node, []).append(pod.uid)

    def second(n):
        for node, uids in pods.items():
            lines = tuple(Progress(pod=uid, done=n, end=None, cpu_seconds=float(n)) for uid in uids)
            # one by one, as a quick operator takes them in
            busy.carry_out(busy.pool.step(busy.now + n / 100, [Reported(node, lines)]))
        busy.log.clear()

    for n in range(1, 100):
        second(n)
    gc.collect()
    tracemalloc.start()
    try:
        for n in range(100, 200):
            second(n)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for n in range(200, 500):
            second(n)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 16_384, f"{grown} bytes more after 3,000 reports"
