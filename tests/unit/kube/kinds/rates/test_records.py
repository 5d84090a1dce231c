"""A TargetRate between its spec and status, and the control."""

import pytest
import yaml
from clocks import NO_CLIENT

from punctual import wire
from punctual.control.rate import Limits
from punctual.kube import api
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import Json
from punctual.kube.kinds.rates.records import applied, members, rate_status, reported, to_record
from punctual.rates.balanced import LEAST
from punctual.rates.model import Member, MemorySeen, PhaseSeen, PodsReported, RateStatus, Record, ReportedPod
from punctual.verdict import Verdict

NOW = 1893456000.0


def pool(**spec) -> Json:
    meta = {"name": "main", "uid": "pool", "generation": 1, "creationTimestamp": "2030-01-01T00:00:00Z"}
    nodes = {"matchLabels": {"pool": "main"}}
    return {
        "apiVersion": api.API_VERSION,
        "kind": "Pool",
        "metadata": meta,
        "spec": {"nodeSelector": nodes, "processor": {"cpu": "1", "memory": "64Mi"}, **spec},
    }


def node(name, **labels):
    return {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "status": {
            "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name, where="n0", namespace="default", **labels):
    resources = {"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels},
        "spec": {"nodeName": where, "containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def caches():
    made = Caches(NO_CLIENT)
    nodes, pods, namespaces, *_ = made.informers
    nodes._told(node("n0", pool="main"))
    nodes._told(node("n1"))
    namespaces._told({"metadata": {"name": "default", "uid": "d", "labels": {"team": "a"}}})
    for body in (pod("p", app="solver"), pod("q", "n1", app="solver"), pod("r"), pod("s", namespace="b", app="solver")):
        pods._told(body)
    return made


def known(caches, **spec):
    body = yaml.safe_load(api.TargetRate.EXAMPLE)
    body["metadata"] |= {"uid": "u", "generation": 3, "creationTimestamp": "2030-01-01T00:00:00Z"}
    body["spec"] |= spec
    return caches.directory.rates.observe(body)


def test_what_is_asked(caches):
    caches.observe("pools", None, pool())
    spec = {"rate": "12.5%", "epsilon": "1%", "maxRate": "90/min", "period": {"min": "2ms", "max": "100ms"}}
    asked = applied(known(caches, **spec), caches).rate
    assert (asked.name, asked.target, asked.epsilon, asked.max_rate) == ("default/solver", 0.125, 0.01, 1.5)
    assert asked.limits == Limits(0.002, 0.1)
    assert asked.created == NOW
    assert (asked.query, asked.balanced) == (None, False)
    assert (asked.aligned, asked.max_slice) == (False, 0.05)
    assert asked.refusal is None


def test_aligned_slices_are_asked_for_and_no_longer_than_the_pool_allows(caches):
    caches.observe("pools", None, pool(maxSlice="20ms"))
    asked = applied(known(caches, coscheduling="Aligned"), caches).rate
    assert (asked.aligned, asked.max_slice) == (True, 0.02)


def test_balanced_slices_are_asked_for_in_the_place_of_a_rate(caches):
    caches.observe("pools", None, pool())
    found = known(caches, rate="Balanced")
    asked = applied(found, caches).rate
    assert (asked.balanced, asked.target, asked.refusal) == (True, LEAST, None)
    assert found.spec.manifest()["rate"] == "Balanced"


def test_the_query_is_handed_on(caches):
    counted = known(caches, iterations={"query": 'n_total{namespace="default"}'})
    assert applied(counted, caches).rate.query == 'n_total{namespace="default"}'


@pytest.mark.parametrize(
    ("spec", "asked", "reason", "says"),
    [
        (None, {}, "PoolNotFound", "there is no Pool main"),
        (
            {"namespaceSelector": {"matchLabels": {"team": "b"}}},
            {},
            "NotAllowed",
            "takes nothing from namespace default",
        ),
        ({}, {"rate": "140%"}, "InvalidSpec", "spec.rate"),
        ({}, {"rate": "Balanced", "period": {"max": "9ms"}}, "InvalidSpec", "spec.period.max"),
        ({}, {"rate": "0.1%", "period": {"max": "100ms"}}, "InvalidSpec", "spec.period.max"),
    ],
)
def test_what_the_edge_refuses(caches, spec, asked, reason, says):
    if spec is not None:
        caches.observe("pools", None, pool(**spec))
    refusal = applied(known(caches, **asked), caches).rate.refusal
    assert refusal[0] == reason
    assert says in refusal[1]


def test_members_are_the_selected_pods_of_the_namespace(caches):
    caches.observe("pools", None, pool())
    assert members(known(caches), caches).members == (
        Member("p", "default/p", "n0", 2.0, 0.5, running=True, in_pool=True, cores=8.0),
        Member("q", "default/q", "n1", 2.0, 0.5, running=True, in_pool=False, cores=8.0),
    )


def test_a_status_says_it_in_a_users_words_and_a_new_leader_reads_it_back(caches):
    status = RateStatus(
        admitted=Verdict("True", "Feasible", "it fits"),
        on_target=Verdict("True", "OnTarget", "39.6%"),
        target=0.4,
        rate=0.39583,
        utilization=0.42412345,
        period=0.0875,
        cap=0.84824690,
        max_rate=8 / 60,
        pods=2,
        aligned=Verdict("True", "Aligned", "0.3 ms"),
        offset=0.0125,
        skew=0.00030004,
    )
    rate = known(caches)
    body = rate_status(rate, status, epoch=7, now=NOW)
    said = {c["type"]: c["reason"] for c in body["conditions"]}
    assert said == {"Admitted": "Feasible", "OnTarget": "OnTarget", "Aligned": "Aligned"}
    assert body["observedGeneration"] == 3
    shown = {key: body[key] for key in ("target", "rate", "error", "quota", "maxRate", "pods", "offset", "skew")}
    assert shown == {
        "target": "40%", "rate": "39.6%", "error": "-0.4%", "quota": "848m", "maxRate": "8/min", "pods": 2,
        "offset": "12.5ms", "skew": "300us",
    }  # fmt: skip
    manifest = yaml.safe_load(api.TargetRate.EXAMPLE) | {"status": body}
    back = to_record(api.parse_status(api.TargetRateStatus, manifest))
    assert back == Record(
        0.4, pytest.approx(8 / 60), pytest.approx(0.42412345, abs=1e-9), 0.0875, 0.396, on_target=True, offset=0.0125
    )


def test_a_balanced_one_has_a_load_and_no_error(caches):
    on_target = Verdict("True", "Balanced", "80% of their CPU")
    status = RateStatus(
        admitted=Verdict("True", "Feasible", ""), on_target=on_target, target=0.8, rate=0.75, load=0.9, max_rate=2.0
    )
    body = rate_status(known(caches, rate="Balanced"), status, epoch=7, now=NOW)
    assert {key: body.get(key) for key in ("target", "rate", "error", "load")} == {
        "target": "80%", "rate": "75%", "error": None, "load": 0.9,
    }  # fmt: skip
    manifest = yaml.safe_load(api.TargetRate.EXAMPLE) | {"status": body}
    assert to_record(api.parse_status(api.TargetRateStatus, manifest)).target == 0.8


def test_a_status_of_the_release_before_has_no_offset():
    manifest = yaml.safe_load(api.TargetRate.EXAMPLE) | {
        "status": {"target": "40%", "period": 0.1, "utilization": "41%"}
    }
    assert to_record(api.parse_status(api.TargetRateStatus, manifest)) == Record(
        target=0.4, period=0.1, utilization=0.41
    )


PHASE = wire.PhaseReport(begins=12.5, half=0.0002, error=-0.001, age=3.0, moves=2, failed=1)


@pytest.mark.parametrize(
    ("epoch", "phase", "clock"),
    [
        (7, PhaseSeen(12.5, 0.0002, -0.001, 3.0, 2, 1), 0.0001),
        (6, None, None),  # these are moments of the clock of the leader before
        (0, None, None),
    ],
)
def test_moments_count_only_where_the_agent_has_heard_this_leader(epoch, phase, clock):
    pods = [
        wire.PodReport(uid="p", done=3, written=0.5, cap=0.4, period=0.1, phase=PHASE, throttled=0.9),
        wire.PodReport(uid="q", over=True),
    ]
    host = wire.NodeReport(clock=wire.ClockReport(bound=0.0001), load=1.5)
    report = wire.Report(node="n0", instance="a", sequence=1, epoch=epoch, host=host, pods=pods)
    seen = ReportedPod("p", 3, 0.5, 0.4, 0.1, phase, 0.9)
    assert reported(report, pods, at=60.0, epoch=7) == PodsReported("n0", 60.0, (seen,), clock, load=1.5)


@pytest.mark.parametrize("epoch", [7, 6])
def test_that_memory_is_short_counts_whichever_leader_its_agent_has_heard(epoch):
    short = wire.MemoryShort(used=5, limit=None, cause="node")
    report = wire.Report(node="n0", instance="a", sequence=1, epoch=epoch, pods=[wire.PodReport(uid="p", memory=short)])
    (seen,) = reported(report, report.pods, at=60.0, epoch=7).pods
    assert seen.memory == MemorySeen(5, None, "node")


def test_a_report_of_the_release_before_has_no_moments():
    pods = [wire.PodReport(uid="p", cap=0.4)]
    report = wire.Report(node="n0", instance="a", sequence=1, epoch=7, pods=pods)
    assert reported(report, pods, at=60.0, epoch=7) == PodsReported(
        "n0", 60.0, (ReportedPod("p", None, None, 0.4, None),)
    )


def test_a_pod_of_a_node_that_is_gone_does_not_count(caches):
    caches.observe("pools", None, pool())
    caches.informers[0]._tell_gone("n1")
    assert [m.pod for m in members(known(caches), caches).members] == ["p"]


@pytest.mark.parametrize(("rate", "shown"), [(1.0234, "102.3%"), (1e18, "10000%")])
def test_rates_above_the_rate_alone_are_shown_and_read_back(caches, rate, shown):
    fine = Verdict("True", "Feasible", "")
    status = RateStatus(admitted=fine, on_target=fine, target=1.0, rate=rate, max_rate=1e18)
    body = rate_status(known(caches), status, epoch=1, now=NOW)
    assert body["rate"] == shown
    manifest = yaml.safe_load(api.TargetRate.EXAMPLE) | {"status": body}
    assert api.parse_status(api.TargetRateStatus, manifest).max_rate == 1e18


def test_a_refused_one_has_no_numbers(caches):
    status = RateStatus(admitted=Verdict("False", "RatesDoNotFit", "too much"), pods=1)
    body = rate_status(known(caches), status, epoch=1, now=NOW)
    assert body.keys() == {"conditions", "epoch", "observedGeneration", "pods"}
