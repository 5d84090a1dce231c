"""Metrics and probes over HTTP, and the rules that names of metrics keep."""

import re
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from punctual import metric_names, reasons
from punctual.guests.explain import possible
from punctual.guests.model import Decided
from punctual.kube.metrics import Metrics
from punctual.kube.serve import ProbeServer
from punctual.linger.policy import Decision

ALL = [m for m in vars(metric_names).values() if isinstance(m, metric_names.Metric)]


@pytest.fixture
async def get():
    state = {"wrong": None, "unready": None}
    metrics = Metrics()
    server = ProbeServer(metrics, healthy=lambda: state["wrong"], ready=lambda: state["unready"])
    port = await server.start(host="127.0.0.1", port=0)

    async def ask(path, **now):
        state.update(now)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    ask.metrics = metrics
    yield ask
    await server.stop()


async def test_probes_say_what_is_wrong(get):
    assert await get("/healthz") == (200, "ok\n")
    assert await get("/readyz", unready="the caches are empty") == (503, "the caches are empty\n")
    assert await get("/healthz", wrong="the planner sleeps") == (503, "the planner sleeps\n")


async def test_what_is_counted_is_exported(get):
    metrics = get.metrics
    metrics.decisions.labels("main", "True", reasons.FEASIBLE).inc()
    metrics.decision_seconds.observe(0.12)
    metrics.misses.labels(*metrics.tenant("main", "ns"), reasons.CAPACITY_LOST).inc()
    metrics.pool("main", {metric_names.SLACK: 12.5, metric_names.MAILBOX_DEPTH: 3})
    metrics.pool("other", {metric_names.SLACK: 1.0})
    metrics.watch(metric_names.AGENTS_SILENT, lambda: 2.0)
    metrics.forget_pool("other")
    status, text = await get("/metrics")
    assert status == 200
    samples = {
        (s.name, *sorted(s.labels.values())): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }
    assert samples["punctual_admission_decisions_total", "Feasible", "True", "main"] == 1
    assert samples["punctual_admission_duration_seconds_bucket", "0.15"] == 1
    assert samples["punctual_admission_duration_seconds_bucket", "0.1"] == 0
    assert samples["punctual_deadline_misses_total", "CapacityLost", "main", "ns"] == 1
    assert samples["punctual_deadline_misses_total", "Overrun", "main", "ns"] == 0  # so that an increase shows
    assert not [name for name, *_ in samples if name.endswith("_created")]
    assert samples["punctual_slack_seconds", "main"] == 12.5
    assert ("punctual_slack_seconds", "other") not in samples
    assert samples["punctual_agents_silent",] == 2
    metrics.end_term()
    assert b"punctual_slack_seconds{" not in metrics.text()


def rates(metrics):
    lines = metrics.text().decode().splitlines()
    return sorted(line for line in lines if line.startswith("punctual_targetrate"))


def test_target_rates_have_series_while_they_have_values():
    metrics = Metrics()
    full = {metric_names.RATE_TARGET: 0.4, metric_names.RATE_ON_TARGET: 1.0, metric_names.RATE_SKEW: 0.0003}
    metrics.rate("ns", "a", full)
    assert rates(metrics) == [
        'punctual_targetrate_on_target{name="a",namespace="ns"} 1.0',
        'punctual_targetrate_skew_seconds{name="a",namespace="ns"} 0.0003',
        'punctual_targetrate_target_ratio{name="a",namespace="ns"} 0.4',
    ]
    metrics.rate("ns", "a", {**full, metric_names.RATE_SKEW: None})
    assert len(rates(metrics)) == 2
    metrics.forget_rate("ns", "a")
    metrics.forget_rate("ns", "never there")
    assert not rates(metrics)
    metrics.rate("ns", "a", full)
    metrics.end_term()
    assert not rates(metrics)


def test_no_more_target_rates_have_series_than_allowed():
    metrics = Metrics()
    for i in range(metric_names.RATES + 1):
        metrics.rate("ns", f"r{i}", {metric_names.RATE_TARGET: 0.4})
    assert len(rates(metrics)) == metric_names.RATES
    metrics.forget_rate("ns", "r0")
    metrics.rate("ns", "late", {metric_names.RATE_TARGET: 0.4})
    assert any('name="late"' in line for line in rates(metrics))


def test_names_keep_the_rules():
    assert len({m.name for m in ALL}) == len(ALL)
    for m in ALL:
        assert re.fullmatch(r"punctual(_[a-z0-9]+)+", m.name), m.name
        assert (m.kind == "counter") == m.name.endswith("_total"), m.name
        assert (m.kind == "histogram") == bool(m.buckets), m.name
        assert m.help.endswith("."), m.name
        assert not re.search("(age|staleness|stalled)_seconds", m.name), f"{m.name}: export the time at which it began"
        # uid: of the pods on one node, on that node's agent alone
        assert not {"job", "pod", *(() if m in agents() else ("uid",))} & set(m.labels), m.name


def agents():
    """Names of the agent's block: what the agent's module makes."""
    source = (Path(metric_names.__file__).parents[2] / "node-agent/punctual_agent/metrics.py").read_text()
    used = set(re.findall(r"\bnames\.([A-Z_]+)", source))
    return [m for name, m in vars(metric_names).items() if isinstance(m, metric_names.Metric) and name in used]


def test_every_name_of_the_operator_is_exported_or_asked_for():
    """A metric that nobody sets would stand in dashboards as an empty line."""
    registered = set(Metrics().registry._names_to_collectors)
    for m in ALL:
        if m not in agents() and (m.labels or m.kind != "gauge"):  # gauges without labels are watched by the runtime
            assert m.name in registered, m.name


def test_twenty_pools_and_any_number_of_namespaces_are_at_most_2000_series():
    metrics = Metrics()
    for n in range(20):
        metrics.begin_pool(f"p{n}")
        metrics.pool(f"p{n}", dict.fromkeys(metrics._pools, 1.0))
        for m in range(20):
            metrics.tenant(f"p{n}", f"ns-{m}")
    lines = [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    assert len(lines) <= 1_900, "and as many again of what only the runtime sets"


GUEST_STAYS = Decided(job="j", pod="p", node="n", policy="LingerLonger", cause="Policy", decision=Decision("Run", 9.0),
                      host_use=0.5)  # fmt: skip


def test_decisions_about_guests_are_counted_and_each_pair_begins_at_0():
    metrics = Metrics()
    for told in (GUEST_STAYS, GUEST_STAYS, replace(GUEST_STAYS, cause="AtRisk", decision=Decision("Queue", 9.0))):
        metrics.guest_decided(told)
    counted = {
        (sample.labels["cause"], sample.labels["reason"]): sample.value
        for family in metrics.registry.collect()
        if family.name == "punctual_guest_decisions"
        for sample in family.samples
    }
    assert counted.keys() == possible()
    assert {pair: n for pair, n in counted.items() if n} == {("Policy", "GuestStays"): 2, ("AtRisk", "GuestLeaves"): 1}


def test_series_of_namespaces_are_bounded():
    metrics = Metrics()
    for n in range(metric_names.TENANTS + 30):
        metrics.promises_kept.labels(*metrics.tenant("main", f"ns-{n}")).inc()
        metrics.promises_kept.labels(*metrics.tenant("main", "ns-3")).inc()
    kept = [line for line in metrics.text().decode().splitlines() if line.startswith("punctual_promises_kept_total{")]
    assert len(kept) == metric_names.TENANTS + 1
    assert f'punctual_promises_kept_total{{namespace="{metric_names.OTHERS}",pool="main"}} 30.0' in kept


def share(metrics):
    lines = [line for line in metrics.text().decode().splitlines() if line.startswith("punctual_share_promised_ratio{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


def test_the_part_of_a_share_is_0_again_when_nothing_is_promised_and_goes_with_its_pool():
    metrics = Metrics()
    metrics.shares("main", {"a": 0.4, "b": 1.0})
    assert share(metrics) == {"a": 0.4, "b": 1.0}
    metrics.shares("main", {"b": 0.9})
    assert share(metrics) == {"a": 0.0, "b": 0.9}
    metrics.shares("main", {f"ns-{n}": n / 1000 for n in range(metric_names.TENANTS + 30)})
    assert share(metrics)[metric_names.OTHERS] == (metric_names.TENANTS + 29) / 1000
    metrics.forget_pool("main")
    assert share(metrics) == {}
