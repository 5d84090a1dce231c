"""Two ranks that wait for each other by spinning, on two real kubelets: aligned, under another leader, and worth it.

And together at the floor while one of them pages.
"""

import asyncio
import contextlib
import json
import os
from statistics import median

import pytest
from experiments_lib.ranks import Node, Rank
from live import POOL, condition, eventually

from punctual.control.phase import wrap
from punctual.errors import PunctualError
from punctual.kube.api.resources import PODS, TARGET_RATES
from punctual_agent.cgroup import Cap

RANKS = """
import mmap, os, random, socket, sys, time

other = sys.argv[1] if len(sys.argv) > 1 else None
if other:
    while True:
        try:
            line = socket.create_connection((other, 7200), timeout=5)
            break
        except OSError:
            time.sleep(0.2)
else:
    line, _ = socket.create_server(("", 7200)).accept()
line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
line.setblocking(False)


def mapped():
    with open("/punctual/data", "w+b") as file:
        for _ in range(72):
            file.write(os.urandom(1 << 20))
            file.flush()
            os.fdatasync(file.fileno())
        found = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    found.madvise(mmap.MADV_RANDOM)
    return found


done, reported, pages = 0, 0.0, None
while True:
    end = time.process_time() + 0.002
    while time.process_time() < end:
        pass
    for _ in range(64 if pages else 0):
        pages[random.randrange(len(pages))]
    line.send(b"x")
    while True:
        try:
            if not line.recv(1):
                sys.exit(1)
            break
        except BlockingIOError:
            pass
    done += 1
    if time.monotonic() > reported + 0.1:
        reported = time.monotonic()
        with open("/punctual/progress.tmp", "w") as file:
            file.write(str(done))
        os.replace("/punctual/progress.tmp", "/punctual/progress")
        if os.path.exists("/punctual/page") != bool(pages):
            if pages:
                pages.close()
                os.remove("/punctual/data")
                pages = None
            else:
                pages = mapped()
"""
"""Computes for 2 ms, then exchanges a byte; it spins until the other's is there.

While there is a file page, it also reads here and there in a file that is a little larger than its memory limit. So
what it needs was mostly there a moment ago: the kernel has such waits in its pressure.
"""
LIMIT, RATE = 0.4, 0.75
MEMORY = "64Mi"
PERIOD, SLICE = 0.1, 0.03
FLOOR = Cap(1_000, 100_000)
BLOCKS, SECONDS = 10, 2.0
WORTH = 1.2
"""Aligned over half a period apart: 2 at least on a calm machine."""


def rank(space, name, node, *peer):
    main = {
        "name": "main",
        "image": space.cluster.image,
        "command": ["python3", "-c", RANKS, *peer],
        "resources": {kind: {"cpu": f"{1000 * LIMIT:.0f}m", "memory": MEMORY} for kind in ("requests", "limits")},
        "volumeMounts": [{"name": "punctual", "mountPath": "/punctual"}],
    }
    spec = {
        "containers": [main],
        "volumes": [{"name": "punctual", "emptyDir": {}}],
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    meta = {"name": name, "namespace": space.namespace, "labels": {"app": "ranks"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def running(client, space, name):
    async def there():
        pod = await client.get(PODS.path(namespace=space.namespace, name=name))
        return pod if pod["status"]["phase"] == "Running" and pod["status"].get("podIP") else None

    return await eventually(there, within=60, every=0.5)


@pytest.fixture
async def ranks(cluster, client, space, monkeypatch):
    """Both ranks, seen from the machine of their nodes."""
    if not cluster.own or os.geteuid():
        pytest.skip("needs a way to the nodes' machine")
    for name in ("DOCKER_HOST", "PATH"):  # the machine is asked about its nodes
        if name in cluster.env:
            monkeypatch.setenv(name, cluster.env[name])
    first, second = cluster.nodes[:2]
    await space.apply(rank(space, "rank-0", first))
    pod = await running(client, space, "rank-0")
    await space.apply(rank(space, "rank-1", second, pod["status"]["podIP"]))
    pods = [pod, await running(client, space, "rank-1")]
    found = [Rank(Node(node), pod) for node, pod in zip((first, second), pods, strict=True)]

    def both():
        with contextlib.suppress(OSError, ValueError):
            return all(one.seen().iterations for one in found)
        return False

    await eventually(both, within=60)
    return found


class Target:
    """A TargetRate that aligns the ranks."""

    def __init__(self, client, space):
        self._client, self._space = client, space

    async def begin(self):
        spec = {
            "pool": POOL,
            "selector": {"matchLabels": {"app": "ranks"}},
            "rate": f"{100 * RATE:g}%",
            "maxRate": f"{LIMIT / 0.0021:.0f}/s",
            "epsilon": "1%",
            "coscheduling": "Aligned",
            "period": {"min": "100ms", "max": "100ms"},
        }
        meta = {"name": "ranks", "namespace": self._space.namespace}
        body = {"apiVersion": TARGET_RATES.version, "kind": "TargetRate", "metadata": meta, "spec": spec}
        await self._space.apply(body)
        await eventually(self.aligned, within=120, every=0.5)

    async def end(self, ranks):
        await self._space.kubectl("delete", "tr", "ranks")
        await eventually(lambda: all(one.untouched for one in ranks), within=60)

    async def status(self):
        path = TARGET_RATES.path(namespace=self._space.namespace, name="ranks")
        return (await self._client.get(path)).get("status") or {}

    async def aligned(self):
        return condition(await self.status(), "Aligned").get("status") == "True"


async def phases(ranks):
    """Return when the periods of both ranks begin. A search finds nothing where the machine keeps it waiting."""

    async def found():
        with contextlib.suppress(PunctualError):
            seen = [await asyncio.to_thread(one.phase, PERIOD) for one in ranks]
            return seen if all(phase.half <= 0.0005 for phase in seen) else None
        return None

    return await eventually(found, within=60)


async def rate(ranks):
    """Return the iterations a second of the slower rank."""
    before = [one.seen() for one in ranks]
    await asyncio.sleep(SECONDS)
    pairs = zip(before, [one.seen() for one in ranks], strict=True)
    return min((b.iterations - a.iterations) / max(b.at - a.at, SECONDS) for a, b in pairs)


async def test_slices_begin_together_and_stay_there_under_another_leader(cluster, client, space, ranks):
    target = Target(client, space)
    await target.begin()
    before = await phases(ranks)
    assert abs(wrap(before[1].at - before[0].at, PERIOD)) <= 0.003, "the kernel has them together"
    leader, epoch = cluster.leader(), (await target.status())["epoch"]
    await asyncio.to_thread(
        cluster.kubectl, "delete", "pod", "-n", "punctual", leader["metadata"]["name"], "--wait=false"
    )

    async def another():
        return (await target.status()).get("epoch", 0) > epoch and await target.aligned()

    await eventually(another, within=180, every=1.0)
    after = await phases(ranks)
    for a, b in zip(before, after, strict=True):
        assert abs(wrap(b.at - a.at, PERIOD)) <= 0.001 + a.half + b.half
    await target.end(ranks)


@pytest.mark.timeout(900, func_only=True)
async def test_aligned_slices_are_worth_more_than_slices_half_a_period_apart(client, space, ranks):
    target, cap = Target(client, space), Cap(round(1e6 * SLICE), round(1e6 * PERIOD))
    first, second = ranks
    ratios = []
    for _ in range(BLOCKS):
        await target.begin()
        aligned = await rate(ranks)
        await target.end(ranks)
        try:
            for one in ranks:
                one.hold(cap)

            async def apart():
                with contextlib.suppress(PunctualError):
                    begins = first.phase(PERIOD).at + PERIOD / 2
                    await asyncio.to_thread(second.steer, cap, begins)
                    return True
                return False

            await eventually(apart, within=60)
            ratios.append(aligned / max(await rate(ranks), 0.1))
        finally:
            for one in ranks:
                one.restore()
    assert median(ratios) >= WORTH, json.dumps(ratios)


@pytest.mark.timeout(900, func_only=True)
async def test_while_one_rank_pages_both_are_at_the_floor(client, space, ranks):
    target = Target(client, space)
    await target.begin()
    first, second = ranks
    page = second.node.volume(second.pod) / "page"
    page.touch()

    def capped():
        return [one.node.hierarchy.cap(one.steered) for one in ranks]

    async def down():
        status = await target.status()
        short = condition(status, "OnTarget").get("reason") == "MemoryShort"
        return status if short and capped() == [FLOOR, FLOOR] else None

    # it lasts for ten seconds, and for longer if it was missed
    status = await eventually(down, within=240, every=0.5)
    message = condition(status, "OnTarget")["message"]
    assert f"pod {space.namespace}/rank-1 on node {second.node.name} pages" in message
    assert "of 64 MiB" in message
    assert float(status["utilization"].rstrip("%")) > 50 * RATE, "the status keeps the pair, and not the floor"

    async def told():
        events = json.loads(await space.kubectl("get", "events", "-o", "json"))["items"]
        return any(event["reason"] == "MemoryShort" for event in events)

    await eventually(told, within=60, every=1.0)
    page.unlink()

    async def back():
        status = await target.status()
        short = condition(status, "OnTarget").get("reason") == "MemoryShort"
        return not short and FLOOR not in capped() and await target.aligned()

    # it stays for a minute at most, and once more if it read a file until then
    await eventually(back, within=300, every=0.5)
    assert first.seen().iterations > 0
    await target.end(ranks)
