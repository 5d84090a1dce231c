"""Metrics and alerts, checked with promtool: each alert fires when it shall, and none while users' own jobs fail."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from lib import prometheus
from monitoring_lib.alerts import ALERTS
from monitoring_lib.panels import DASHBOARDS
from prometheus_client import generate_latest

import punctual_agent.metrics
from punctual import metric_names as names
from punctual.kube import metrics

ROOT = Path(__file__).parents[2]

RULES = ROOT / "charts/punctual/alerts/punctual.yaml"
START = 3_600
"""When something happens in a story, in seconds; before that it is quiet."""
TICK = 30
QUIET = {
    'punctual_leader{instance="a"}': "1",
    'punctual_leader{instance="b"}': "0",
    'punctual_deadline_misses_total{pool="main",namespace="ns",reason="Overrun",instance="a"}': "0",
    'punctual_deadline_misses_total{pool="main",namespace="ns",reason="CapacityLost",instance="a"}': "3",
    'punctual_jobs_failed_total{pool="main",namespace="ns",reason="ChunkFailed",instance="a"}': "7",
    'punctual_promises_late{pool="main",instance="a"}': "0",
    'punctual_takeover_progress_timestamp_seconds{instance="a"}': "0",
    'punctual_mailbox_oldest_timestamp_seconds{pool="main",instance="a"}': "0",
    'punctual_writer_oldest_timestamp_seconds{instance="a"}': "0",
    'punctual_planner_tick_timestamp_seconds{instance="a"}': "now",
    'punctual_clock_doubt_begin_timestamp_seconds{instance="a"}': "0",
    'punctual_pools_stopped{instance="a"}': "0",
    'punctual_processors{pool="main",instance="a"}': "12",
    'punctual_agents_silent{instance="a"}': "0",
    'punctual_certificate_end_timestamp_seconds{certificate="serving",instance="a"}': "2000000",
    'punctual_certificate_end_timestamp_seconds{certificate="authority",instance="b"}': "0",
}
"""What a healthy operator of two replicas exports; "now": a time that goes on."""
MAIN = {"pool": "main"}
STORIES = [
    (
        "PunctualPromiseBroken",
        {"deadline_misses_total reason=Overrun": "1"},
        {**MAIN, "namespace": "ns", "reason": "Overrun"},
    ),
    ("PunctualPromiseLate", {"promises_late": "2"}, MAIN),
    ("PunctualNoLeader", {"leader instance=a": "0"}, {}),
    ("PunctualNoLeader", {"leader": None}, {}),
    ("PunctualTakeoverHangs", {"takeover_progress": str(START)}, {}),
    ("PunctualQueueStuck", {"mailbox_oldest": str(START)}, MAIN),
    ("PunctualQueueStuck", {"writer_oldest": str(START)}, {}),
    ("PunctualQueueStuck", {"planner_tick": str(START)}, {}),
    ("PunctualClockDoubt", {"clock_doubt": str(START)}, {}),
    ("PunctualPoolStopped", {"pools_stopped": "1"}, {}),
    ("PunctualPoolEmpty", {"processors": "0"}, MAIN),
    ("PunctualAgentsSilent", {"agents_silent": "3"}, {}),
    (
        "PunctualCertificateEnds",
        {"certificate_end certificate=serving": str(START + 2 * 86_400)},
        {"certificate": "serving"},
    ),
]
SILENT = {
    "nothing happens": {},
    "users' own jobs fail": {"jobs_failed": "50"},
    "the operator is rolled out": {"leader": ("0", 90), "deadline_misses_total": (None, 90), "planner_tick": ("0", 90)},
    "a takeover of many jobs": {"takeover_progress": "now"},
    "a queue is busy": {"mailbox_oldest": "now", "writer_oldest": "now"},
}


def values(before, after, ticks):
    """Return a series in promtool's notation: one value until START, another one from then on, or for some seconds.

    None: the series is gone.
    """
    after, lasts = after if isinstance(after, tuple) else (after, ticks * TICK)
    found = []
    for at in range(0, ticks * TICK, TICK):
        value = after if START <= at < START + lasts else before
        found.append("stale" if value is None else str(at) if value == "now" else value)
    return " ".join(found)


def series(changes, ticks):
    for name, before in QUIET.items():
        found = [after for what, after in changes.items() if matches(name, what)]
        yield {"series": name, "values": values(before, found[0] if found else before, ticks)}


def matches(name, what):
    metric, *labels = what.split()
    wanted = (re.sub("=(.*)", r'="\1"', label) for label in labels)
    return name.startswith(f"punctual_{metric}") and all(label in name for label in wanted)


def seconds(lasts):
    number, unit = int(lasts[:-1]), lasts[-1]
    return number * {"s": 1, "m": 60, "h": 3600}[unit]


@pytest.fixture(scope="session")
def promtool():
    """Run promtool with a file; return its exit code and what it said."""
    program = prometheus.program("promtool")

    def run(*words, **more):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False, **more)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def fires(promtool, tmp_path):
    """See which alerts fire at which times of a story: {seconds: [labels of each]}."""

    def check(changes, expected):
        ticks = max(expected) // TICK + 2
        tests = [
            {
                "expr": 'sum without (severity) (ALERTS{alertstate="firing"})',
                "eval_time": f"{at}s",
                "exp_samples": [{"labels": json.dumps(labels), "value": 1} for labels in found],
            }
            for at, found in expected.items()
        ]
        for test in tests:
            for sample in test["exp_samples"]:
                labels = json.loads(sample["labels"]) | {"alertstate": "firing"}
                sample["labels"] = "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
        story = {
            "rule_files": [str(RULES)],
            "evaluation_interval": f"{TICK}s",
            "tests": [
                {"interval": f"{TICK}s", "input_series": list(series(changes, ticks)), "promql_expr_test": tests}
            ],
        }
        file = tmp_path / "story.json"
        file.write_text(json.dumps(story))
        code, said = promtool("test", "rules", str(file))
        assert code == 0, said

    return check


@pytest.mark.parametrize(
    ("alert", "changes", "labels"), STORIES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_an_alert_fires_within_half_a_minute_of_its_time_and_alone(fires, alert, changes, labels):
    rule = next(one for one in ALERTS if one.name == alert)
    wait = seconds(rule.lasts) + (60 if "time()" in rule.expr and "certificate" not in rule.expr else 0)
    fires(changes, {START - TICK: [], START + wait + 2 * TICK: [{"alertname": alert, **labels}]})


@pytest.mark.parametrize("changes", SILENT.values(), ids=SILENT)
def test_no_alert_fires_while(fires, changes):
    fires(changes, {START + after: [] for after in range(0, 7_200, 60)})


def test_each_alert_has_a_story_and_the_rules_are_those_of_prometheus(promtool):
    assert {alert for alert, _, _ in STORIES} == {alert.name for alert in ALERTS}
    code, said = promtool("check", "rules", str(RULES))
    assert (code, f"{len(ALERTS)} rules found" in said) == (0, True), said


def test_metrics_keep_the_conventions_of_prometheus(promtool):
    operator, agent = metrics.Metrics(), punctual_agent.metrics.AgentMetrics()
    operator.tenant("main", "ns")
    for registry in (operator.registry, agent.registry):
        assert promtool("check", "metrics", input=generate_latest(registry).decode()) == (0, "")


def test_each_query_of_a_dashboard_is_one_that_prometheus_reads(promtool, tmp_path):
    rules = [
        {"record": f"q:{n}", "expr": re.sub(r"\$__\w+", "5m", query.expr).replace("$pool", ".*")}
        for n, query in enumerate(query for board in DASHBOARDS for panel in board.panels for query in panel.queries)
    ]
    file = tmp_path / "queries.json"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    code, said = promtool("check", "rules", str(file))
    assert (code, f"{len(rules)} rules found" in said) == (0, True), said


def test_only_a_broken_promise_pages():
    assert [alert.name for alert in ALERTS if alert.severity == "critical"] == ["PunctualPromiseBroken"]


def test_each_metric_of_a_rule_is_exported():
    known = {metric.name for metric in vars(names).values() if isinstance(metric, names.Metric)}
    for alert in ALERTS:
        assert set(re.findall(r"punctual_\w+", alert.expr)) <= known, alert.name
