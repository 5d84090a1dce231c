"""Every panel of every dashboard, on a real Prometheus that scrapes the cluster while all kinds of jobs end.

The pictures are in build/pictures/dashboards afterwards: each dashboard drawn from the answers to its own queries.
"""

import asyncio
import math
import re
import time

import pytest
from boards import draw
from busy import deployment, target_rate
from lib import prometheus
from live import LABEL, POOL, ROOT, SYSTEM, eventually, lend, ready
from monitoring_lib.panels import CONTROL_PLANE, DASHBOARDS, DEADLINES, NODES, POOLS
from scraped import SCRAPE, Prometheus

from punctual import metric_names as names
from punctual.kube.api.resources import RESERVATIONS
from punctual.notation.duration import format_time

AHEAD = 40
"""Seconds from the creation of a reservation until its window begins."""
WINDOW = 10 * SCRAPE
"""Seconds that stand for Grafana's `$__rate_interval`."""
PICTURES = ROOT / "build/pictures/dashboards"
CRASHES = 'import sys; sys.exit("no such protein")'
QUICK = {"deadline": "4m", "cost": {"perUnit": "300ms", "startup": "3s"}, "pause": 0.2, "processors": {"max": 1}}
LIE = {"deadline": "60s", "cost": {"perUnit": "50ms", "startup": "2s"}, "pause": 1.0, "processors": {"max": 1}}
COUNTED = {
    names.JOBS_FAILED.name: 1,
    names.DEADLINE_MISSES.name: 1,
    names.PROMISES_KEPT.name: 2,
    names.STATISTICAL_KEPT.name: 1,
}
"""Counters that the story moves, last of all, and by how much."""
STATES = {
    "kept": "Completed",
    "stopped": "Failed",
    "fails": "Failed",
    "by-the-bound": "Completed",
    "inside": "Completed",
    "refused": "Refused",
}
"""How the story's jobs end."""
HELD = f"count({names.RATE_SKEW.name}) and count({names.RATE_RATIO.name})"
"""Not empty once the rate and the phase of a pod were measured."""


@pytest.mark.timeout(600, func_only=True)
async def test_each_panel_shows_what_its_title_claims(cluster, client, space, tmp_path):
    await eventually(cluster.in_order)
    pods = {p["metadata"]["name"]: 8080 for p in cluster.pods("operator")}
    pods |= {p["metadata"]["name"]: 9464 for p in cluster.pods("agent")}
    await asyncio.to_thread(prometheus.program, "prometheus")  # fetched before the clock runs
    with Prometheus(tmp_path, cluster.kubeconfig, SYSTEM, pods) as scraped:
        node = cluster.nodes[0]
        async with lend(cluster, client, node, missRatio={"target": "10%"}, maxShare="50%") as loose:
            await ready(client, loose, node)
            await eventually(lambda: newest(scraped, "count(sum_over_time(up[1m]) >= 2)") == len(pods))
            before = {name: newest(scraped, f"sum({name})") for name in COUNTED}
            start = time.time()
            await space.apply(
                deployment(cluster.image, {LABEL: POOL}, replicas=1, cpu=0.1),
                target_rate(POOL, cpu=0.1, coscheduling="Aligned"),
            )
            await reserve(client, space, "soon", begins := math.ceil(client.clock.now()) + AHEAD)
            await space.apply(space.manifest("inside", units=20, **QUICK, reservation="soon"))
            free_until = f'{names.FREE_UNTIL.name}{{pool="main"}}'
            await eventually(lambda: newest(scraped, free_until) >= begins)
            await space.apply(
                space.manifest("kept", units=60, reduce="5s", **QUICK),
                space.manifest("refused", units=5_000, **QUICK),
                space.manifest("stopped", units=600, onMiss="Stop", **LIE),
                space.manifest("fails", units=100, program=CRASHES, chunkRetries=0, **QUICK),
                space.manifest("by-the-bound", units=60, **{**QUICK, "pool": loose}),
            )
            await asyncio.gather(*(space.end(name) for name in STATES if name != "refused"))
            assert {name: space.status(name)["state"] for name in STATES} == STATES
            await eventually(
                lambda: all(newest(scraped, f"sum({name})") >= before[name] + more for name, more in COUNTED.items())
            )
            await eventually(lambda: newest(scraped, HELD))
            ask = Asked(scraped, start, end := time.time() + SCRAPE)
            found = {board.name: {panel.title: ask(panel) for panel in board.panels} for board in DASHBOARDS}
            unmeasured = set() if pressure_is_measured(cluster) else {(NODES.name, "CPU pressure", 0)}
    PICTURES.mkdir(parents=True, exist_ok=True)
    for board in DASHBOARDS:
        draw(board, found[board.name], start, end, PICTURES / f"{board.name}.png")
    empty = {(name, title, n) for name, panels in found.items() for title, queries in panels.items()
             for n, curves in enumerate(queries) if not any(numbers(curve) for _, curve in curves)}  # fmt: skip
    assert empty == unmeasured
    deadlines, pools, nodes = found[DEADLINES.name], found[POOLS.name], found[NODES.name]
    assert last(deadlines["Promises kept"]) == 2
    assert last(deadlines["Promises broken"]) == 1
    assert highest(deadlines["Broken promises by cause"], reason="Overrun") > 0
    assert highest(deadlines["Refused jobs by reason"], reason="InfeasibleCapacity") > 0
    assert highest(deadlines["Jobs that failed by their own fault"], reason="ChunkFailed") > 0
    assert lowest(deadlines["Smallest slack of an open promise"], pool="main") < 0
    assert highest(pools["Bound on utilization"], pool=loose) == 1.0
    assert highest(pools["Utilization"], pool="main") > 0
    assert highest(pools["Processors that run chunks"], pool="main") >= 1
    assert highest(pools["Processors promised to work that has not begun"], pool="main") >= 1
    assert 1 < highest(pools["Time until planned work needs a free processor"], pool="main") <= AHEAD + 1
    assert 1 < highest(pools["Time until the next window"], pool="main") <= AHEAD + 1
    assert highest(pools["Processors in open windows"], pool="main") == 1
    assert highest(nodes["Silent agents"]) == 0
    assert 0 < highest(nodes["Share of periods in which a cap held chunks back"]) <= 1.05, "Prometheus extrapolates"
    assert highest(nodes["Pods and containers held back by their caps"]) > 0
    assert unmeasured or 0 < highest(nodes["CPU pressure"]) <= 1.05, "likewise"
    assert 0 < highest(nodes["Rate and target"]) <= 1.05
    assert highest(nodes["Largest error of the begin of slices"]) < 0.1, "less than a period"
    assert highest(found[CONTROL_PLANE.name]["Leader"]) == 1


async def reserve(client, space, name, begins):
    """Create a reservation of one processor for 30 s."""
    spec = {"pool": "main", "start": format_time(begins), "end": format_time(begins + 30), "processors": 1}
    meta = {"name": name, "namespace": space.namespace}
    body = {"apiVersion": "punctual.dev/v1alpha1", "kind": "Reservation", "metadata": meta, "spec": spec}
    await client.create(RESERVATIONS.path(namespace=space.namespace), body)


def pressure_is_measured(cluster):
    """Return whether the kernel of the nodes has PSI."""
    pod = cluster.pods("agent")[0]["metadata"]["name"]
    words = ("kubectl", "exec", "-n", SYSTEM, pod, "-c", "agent", "--", "cat", "/proc/pressure/cpu")
    return cluster.run(*words, check=False).returncode == 0


def newest(scraped, expr):
    """Return the one value that an expression has now, 0 without any."""
    now = time.time()
    return max((values[-1][1] for _, values in scraped.query(expr, now, now)), default=0)


class Asked:
    """Asks what a panel shows over the story, as Grafana would."""

    def __init__(self, scraped, start, end):
        self._scraped, self._start, self._end = scraped, start, end

    def __call__(self, panel):
        """Return for each query of a panel [(labels, [(time, value)])]."""
        return [self._scraped.query(self._whole(query.expr), self._start, self._end) for query in panel.queries]

    def _whole(self, expr):
        spans = {"__rate_interval": f"{WINDOW}s", "__range": f"{math.ceil(self._end - self._start)}s"}
        expr = re.sub(r"\$(__rate_interval|__range)", lambda match: spans[match.group(1)], expr)
        return expr.replace("$pool", ".*")


def numbers(curve):
    return [value for _, value in curve if not math.isnan(value)]


def chosen(queries, labels):
    found = [numbers(curve) for curves in queries for named, curve in curves if named.items() >= labels.items()]
    return [value for curve in found for value in curve]


def highest(queries, **labels):
    return max(chosen(queries, labels))


def lowest(queries, **labels):
    return min(chosen(queries, labels))


def last(queries):
    """Return the last value."""
    return chosen(queries, {})[-1]
