"""The target rates of a term: what is told when, and when agents may release what they do not hear of."""

import asyncio
import contextlib

import pytest
import yaml
from clocks import NO_CLIENT
from term_tools import make_tools

from punctual import wire
from punctual.kube import api
from punctual.kube.api.resources import POOLS, TARGET_RATES
from punctual.kube.cluster.caches import Caches
from punctual.kube.kinds.rates.prometheus import PrometheusAnswer
from punctual.kube.kinds.rates.rates import Rates
from punctual.kube.leader.kinds import Kinds
from punctual.rates.model import ScrapedCount

CREATED = "2030-01-01T00:00:00Z"


class Late:
    """Reads a TargetRate at once; ``those`` were read."""

    def __init__(self):
        self.those = []

    async def read(self, kind, known):
        self.those.append(known.uid)
        known.term.read, known.term.reading = True, False
        return True


class Log:
    """A writer and a recorder that keep what they are given."""

    def __init__(self):
        self.statuses, self.bodies, self.events, self.forgotten = {}, {}, [], []

    async def caught_up(self):
        pass

    def submit(self, key, operation):
        self.bodies[key.name] = operation.body["status"]
        self.statuses[key.name] = {c["type"]: c["reason"] for c in self.bodies[key.name]["conditions"]}

    def forget(self, key):
        self.forgotten.append(key.name)

    def emit(self, about, kind, reason, note):
        self.events.append(reason)


class Scripted:
    """A Prometheus that answers when it is told to. ``asked``: (query, namespace, pods, answer) of each query."""

    def __init__(self):
        self.asked = []

    async def count(self, query, namespace, pods):
        self.asked.append((query, namespace, pods, asyncio.get_running_loop().create_future()))
        return await self.asked[-1][-1]

    def answer(self, *counts, flaw=""):
        self.asked[-1][-1].set_result(PrometheusAnswer(counts, flaw))


class Stage:
    def __init__(self):
        self.caches = Caches(NO_CLIENT)
        self.log = Log()
        self.tasks = []
        self.leads = True
        self.now = 0.0
        self.prometheus = Scripted()
        tools = make_tools(self.log, lambda: self.now, caches=self.caches, monotonic=lambda: self.now)
        self.set_points, self.metrics, self.epoch = tools.set_points, tools.metrics, tools.epoch
        self.rates = Rates(tools, self.prometheus, self)
        self.late = Late()
        self.kinds = Kinds(self.late, self.log, self)
        self.kinds.order([self.rates])
        self.caches.listener = self
        nodes, self.pods, *_ = self.caches.informers
        room = {"cpu": "8", "memory": "64Gi", "pods": "110"}
        ready = [{"type": "Ready", "status": "True"}]
        meta = {"name": "n0", "uid": "n0", "labels": {"pool": "main"}}
        nodes._told({"metadata": meta, "status": {"allocatable": room, "conditions": ready}})
        self.observe_pool()

    def observe_pool(self, generation=1, **more):
        body = {
            "apiVersion": api.API_VERSION,
            "kind": "Pool",
            "metadata": {"name": "main", "uid": "main", "generation": generation, "creationTimestamp": CREATED},
            "spec": {
                "nodeSelector": {"matchLabels": {"pool": "main"}},
                "processor": {"cpu": "1", "memory": "1Gi"},
                **more,
            },
        }
        self.caches.observe("pools", None, body)

    def __getattr__(self, name):  # what else the caches tell
        return lambda *_, **__: None

    def signal(self, signal):
        self.kinds.signal(*signal)

    def spawn(self, work):
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    def rate(self, *, read=True, **spec):
        body = yaml.safe_load(api.TargetRate.EXAMPLE)
        body["metadata"] |= {"uid": "u", "generation": 1, "creationTimestamp": CREATED}
        body["spec"] |= {"maxRate": "2/s", **spec}
        if read:
            self.caches.directory.rates.observe(body).term.read = True
            return self.caches.directory.rates["u"]
        return self.caches.directory.rates.observe(body)

    def pod(self, name):
        resources = {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}
        meta = {"name": name, "namespace": "default", "uid": name, "labels": {"app": "solver"}}
        spec = {"nodeName": "n0", "containers": [{"name": "main", "resources": resources}]}
        return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}

    async def turn(self):
        """Let the control step, and the agents be told."""
        for _ in range(20):
            await asyncio.sleep(0)
        self.kinds.tick()
        for _ in range(20):
            await asyncio.sleep(0)

    def report(self, *pods, bound=None):
        host = wire.NodeReport(clock=None if bound is None else wire.ClockReport(bound=bound))
        report = wire.Report(node="n0", instance="a", sequence=1, epoch=self.epoch, host=host, pods=pods)
        self.rates.reported(report, pods)

    def held(self):
        answer = self.set_points.answer("n0", now=0.0, epoch=3, pods={})
        return {p.uid for p in answer.pods}, answer.applications_complete


@pytest.fixture
async def stage():
    made = Stage()
    yield made
    for task in made.tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_without_any_rate_agents_may_release_all_once_the_control_has_begun(stage):
    assert stage.held() == (set(), False)
    stage.kinds.tick()
    assert stage.held() == (set(), False)
    stage.kinds.begin()
    await stage.turn()
    assert stage.held() == (set(), True)


async def test_pods_are_held_from_the_first_step_on_and_as_they_come_and_go(stage):
    stage.rate()
    stage.pods._told(stage.pod("p"))
    stage.kinds.begin()
    await stage.turn()
    assert stage.held() == ({"p"}, True)
    assert stage.log.statuses["u"] == {"Admitted": "Feasible", "OnTarget": "Settling"}
    assert stage.log.events == ["Feasible"]
    stage.pods._told(stage.pod("q"))
    await stage.turn()
    assert stage.held() == ({"p", "q"}, True)
    stage.pods._tell_deleted(stage.pod("p"))
    await stage.turn()
    assert stage.held() == ({"q"}, True)


async def test_a_rate_is_read_before_anything_is_decided_about_it(stage):
    stage.kinds.begin()
    await stage.turn()
    stage.pods._told(stage.pod("p"))
    stage.kinds.changed(TARGET_RATES, stage.rate(read=False))
    assert stage.held() == (set(), True)
    await stage.turn()
    assert stage.late.those == ["u"]
    assert stage.held() == ({"p"}, True)


async def test_nothing_is_released_while_a_rate_is_left_alone(stage):
    stage.pods._told(stage.pod("p"))
    known = stage.rate()
    known.term.left_alone = True
    stage.kinds.begin()
    await stage.turn()
    assert stage.held() == (set(), False)
    stage.kinds.changed(TARGET_RATES, known)
    await stage.turn()
    assert stage.held() == ({"p"}, True), "an edit tries again"


async def test_a_rate_that_goes_lets_its_pods_go(stage):
    stage.pods._told(stage.pod("p"))
    known = stage.rate()
    stage.kinds.begin()
    await stage.turn()
    stage.caches.directory.rates.forget("u")
    stage.kinds.gone(TARGET_RATES, known)
    await stage.turn()
    assert stage.held() == (set(), True)
    assert stage.log.forgotten == ["u"]


async def test_a_rate_that_goes_right_after_its_pods_changed_lets_them_go(stage):
    stage.pods._told(stage.pod("p"))
    known = stage.rate()
    stage.kinds.begin()
    await stage.turn()
    stage.pods._told(stage.pod("q"))
    stage.caches.directory.rates.forget("u")
    stage.kinds.gone(TARGET_RATES, known)
    await stage.turn()
    await stage.turn()
    assert stage.held() == (set(), True)


async def test_a_pool_that_goes_lets_the_pods_go_and_its_return_holds_them(stage):
    stage.pods._told(stage.pod("p"))
    stage.rate()
    stage.kinds.begin()
    await stage.turn()
    stage.caches.forget(POOLS, stage.caches.directory.pools.named("main").uid)
    stage.kinds.signal("pool", "main")
    await stage.turn()
    assert stage.held() == (set(), True)
    assert stage.log.statuses["u"] == {"Admitted": "PoolNotFound"}
    stage.observe_pool()
    stage.kinds.signal("pool", "main")
    await stage.turn()
    assert stage.held() == ({"p"}, True)


async def test_reports_reach_the_control(stage):
    stage.pods._told(stage.pod("p"))
    stage.rate()
    stage.kinds.begin()
    await stage.turn()
    for second in range(1, 30):
        stage.now = float(second)
        (point,) = stage.set_points.answer("n0", now=0.0, epoch=3, pods={}).pods
        done = int(2 * point.cap * second)
        written = second - done / (2 * point.cap)
        line = wire.PodReport(uid="p", done=done, written=written, cap=point.cap, period=point.period)
        stage.report(line)
        await stage.turn()
    assert stage.log.statuses["u"] == {"Admitted": "Feasible", "OnTarget": "OnTarget"}
    assert stage.log.events == ["Feasible", "OnTarget"]


async def test_aligned_slices_are_brought_to_agents_told_and_reconsidered_with_their_pool(stage):
    """The first grid begins where the leader likes; the agent says that the pod is on it."""
    stage.pods._told(stage.pod("p"))
    stage.rate(coscheduling="Aligned")
    stage.kinds.begin()
    await stage.turn()
    for second in range(1, 12):
        stage.now = float(second)
        (point,) = stage.set_points.answer("n0", now=0.0, epoch=3, pods={}).pods
        assert point.mode.grid.slice == pytest.approx(point.cap * point.period)
        phase = wire.PhaseReport(begins=point.mode.grid.begins + 0.0002, half=0.0001, error=0.0002)
        stage.report(
            wire.PodReport(uid="p", cap=point.cap, period=point.period, phase=phase, throttled=1.0),
            bound=0.0001,
        )
        await stage.turn()
    assert (point.period, stage.log.statuses["u"]["Aligned"]) == (0.1, "Aligned")
    assert "Aligned" in stage.log.events
    assert "Steering" not in stage.log.events
    assert stage.log.bodies["u"]["skew"] == "200us"
    assert b'punctual_targetrate_skew_seconds{name="solver",namespace="default"} 0.0002' in stage.metrics.text()
    stage.observe_pool(2, maxSlice="2ms")
    stage.kinds.signal("pool", "main")
    await stage.turn()
    assert stage.log.statuses["u"]["Admitted"] == "EditRefused", "no period has so short a slice"


async def test_a_shortage_of_memory_reaches_limits_status_and_events(stage):
    stage.pods._told(stage.pod("p"))
    stage.pods._told(stage.pod("q"))
    stage.rate(coscheduling="Aligned")
    stage.kinds.begin()
    await stage.turn()

    def points():
        return stage.set_points.answer("n0", now=0.0, epoch=3, pods={}).pods

    before = [point.cap for point in points()]
    assert all(point.mode.watch_memory for point in points())
    short = wire.MemoryShort(used=47 << 20, limit=48 << 20, cause="pod")
    stage.now = 1.0
    stage.report(wire.PodReport(uid="p", cap=before[0], period=0.1, memory=short), wire.PodReport(uid="q"))
    await stage.turn()
    assert [point.cap for point in points()] == [pytest.approx(0.01)] * 2
    assert (stage.log.statuses["u"]["OnTarget"], stage.log.events[-1]) == ("MemoryShort", "MemoryShort")
    body = stage.log.bodies["u"]
    assert body["quota"] == "10m"
    assert api.parse_status(api.TargetRateStatus, {"status": body}).utilization == pytest.approx(before[0])
    (message,) = (c["message"] for c in body["conditions"] if c["type"] == "OnTarget")
    assert "pod default/p on node n0 pages: it uses 47 MiB of 48 MiB" in message
    stage.now = 12.0
    stage.report(wire.PodReport(uid="p", cap=0.01, period=0.1), wire.PodReport(uid="q"))
    await stage.turn()
    assert [point.cap for point in points()] == before
    assert stage.log.statuses["u"]["OnTarget"] == "Settling"


async def test_the_grid_waits_for_what_every_restored_rate_says_also_if_the_first_one_was_never_aligned(stage):
    """All that the takeover has read, and their pods, are there at the first step."""
    held = {"target": "40%", "maxRate": "2/s", "utilization": "41%", "period": 0.1, "offset": "0s", "rate": "40%"}
    for uid, status in (("new", {}), ("old", {**held, "conditions": []})):
        body = yaml.safe_load(api.TargetRate.EXAMPLE)
        body["metadata"] |= {"name": uid, "uid": uid, "generation": 1, "creationTimestamp": CREATED}
        body["spec"] |= {"maxRate": "2/s", "coscheduling": "Aligned", "selector": {"matchLabels": {"app": uid}}}
        await stage.rates.restore(body | {"status": status}, "")
        pod = stage.pod(uid)
        pod["metadata"]["labels"] = {"app": uid}
        stage.pods._told(pod)
    assert [known.term.record.offset for known in stage.caches.directory.rates.values()] == [None, 0.0]

    def begins():
        return [point.mode.grid.begins for point in stage.set_points.answer("n0", now=0.0, epoch=3, pods={}).pods]

    stage.kinds.begin()
    await stage.turn()
    assert begins() == [None, None]
    stage.now = 1.0
    stage.report(wire.PodReport(uid="old", cap=0.41, period=0.1, phase=wire.PhaseReport(begins=0.77, half=0.0001)))
    await stage.turn()
    assert [at % 0.1 for at in begins()] == pytest.approx([0.07, 0.07])


async def test_prometheus_is_asked_every_three_seconds_with_one_query_at_a_time(stage):
    stage.pods._told(stage.pod("p"))
    stage.pods._told(stage.pod("q") | {"status": {"phase": "Pending"}})
    known = stage.rate(iterations={"query": "n"})
    stage.kinds.begin()
    await stage.turn()
    assert [asked[:3] for asked in stage.prometheus.asked] == [("n", "default", {"p": "p"})]
    stage.now = 60.0
    await stage.turn()
    assert len(stage.prometheus.asked) == 1, "it has not answered yet"
    stage.prometheus.answer()
    await stage.turn()
    await stage.turn()
    assert len(stage.prometheus.asked) == 2
    stage.prometheus.answer()
    stage.now = 62.9
    await stage.turn()
    assert len(stage.prometheus.asked) == 2
    stage.now = 63.0
    await stage.turn()
    assert len(stage.prometheus.asked) == 3
    stage.kinds.gone(TARGET_RATES, known)
    stage.prometheus.answer()
    stage.now = 99.0
    await stage.turn()
    assert len(stage.prometheus.asked) == 3


async def test_it_is_not_asked_for_rates_with_files_nor_after_the_term(stage):
    stage.pods._told(stage.pod("p"))
    known = stage.rate()
    stage.kinds.begin()
    await stage.turn()
    assert stage.prometheus.asked == []
    stage.leads = False
    stage.kinds.changed(TARGET_RATES, known)
    await stage.turn()
    assert stage.prometheus.asked == []


async def test_its_counts_are_those_of_the_rate_and_its_flaws_are_said(stage):
    stage.pods._told(stage.pod("p"))
    stage.rate(iterations={"query": "n"}, maxRate="20/s")
    stage.kinds.begin()
    await stage.turn()
    for second in range(1, 60):
        stage.now = float(second)
        (point,) = stage.set_points.answer("n0", now=0.0, epoch=3, pods={}).pods
        stage.report(wire.PodReport(uid="p", done=7, written=0.0, cap=point.cap, period=point.period))
        await stage.turn()
        if not stage.prometheus.asked[-1][-1].done():
            stage.prometheus.answer(ScrapedCount("p", int(20 * point.cap * second), stage.now))
        await stage.turn()
    assert stage.log.statuses["u"] == {"Admitted": "Feasible", "OnTarget": "OnTarget"}
    for second in range(60, 110):
        stage.now = float(second)
        stage.report(wire.PodReport(uid="p", done=7, written=0.0, cap=point.cap, period=point.period))
        await stage.turn()
        if not stage.prometheus.asked[-1][-1].done():
            stage.prometheus.answer(flaw="it is away")
        await stage.turn()
    assert stage.log.statuses["u"] == {"Admitted": "Feasible", "OnTarget": "NotCounted"}
    assert stage.log.events[-1] == "NotCounted"
