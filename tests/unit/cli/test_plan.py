"""``punctual plan``: what admission would say, from what is written in statuses alone."""

import json
import os
import re

import pytest
import yaml
from state import NOW, manifest, pool_body, spec_of, state
from typer.testing import CliRunner
from world import World, job

from punctual.cli import app
from punctual.notation.duration import format_duration, format_time, parse_time

DRAWN = re.compile(r"  (\S+/\d) +([░█▒ ]+)$")


@pytest.fixture
def plan(tmp_path):
    """Plan manifests upon a state, as the command line does: ``plan(state, *manifests)``."""

    def run(found, *wanted, words=(), now=NOW, text=None):
        written = text if text is not None else yaml.safe_dump_all([manifest(w) for w in wanted], sort_keys=False)
        (tmp_path / "job.yaml").write_text(written)
        (tmp_path / "state.json").write_text(found if isinstance(found, str) else json.dumps(found))
        os.utime(tmp_path / "state.json", (now, now))
        files = "-f", str(tmp_path / "job.yaml"), "--pool-state", str(tmp_path / "state.json")
        return CliRunner().invoke(app, ["plan", *files, *words], env={"COLUMNS": "100"})

    return run


def world(*jobs, cpus=(2.0, 1.0), until=5.0, **spec):
    body = pool_body(**spec)
    w = World(spec=spec_of(body), now=NOW)
    for i, cpu in enumerate(cpus):
        w.node(f"n{i}", cpu)
    w.tick()
    for wanted in jobs:
        w.apply(wanted)
    w.run(NOW + until)
    return w, state(w, body)


def asked(uid="new", *, within, now=NOW, **more):
    return job(uid, deadline=now + within, arrival=now, **more)


def answer(found):
    return json.loads(found.stdout)


BUSY = (asked("a", units=200, within=120), asked("b", units=60, within=200), asked("no", units=900, within=50))


@pytest.mark.parametrize(
    "spec",
    [{"hold": "Placeholder"}, {"admission": "Fast"}, {"missRatio": {}}, {"order": "FIFO", "partition": "Equal"}],
    ids=str,
)
@pytest.mark.parametrize(
    "wanted",
    [
        {"units": 20, "within": 200.0},
        {"units": 60, "within": 100.0},
        {"units": 30, "within": 150.0, "reduce_duration": 20.0},
        {"units": 50, "within": 170.0, "min_processors": 2, "max_processors": 2},
        {"units": 500, "within": 100.0},
        {"units": 10, "within": 2.0},
        {"units": 10, "within": 500.0, "min_processors": 4},
        {"units": 10, "within": 500.0, "chi": None},
    ],
    ids=str,
)
def test_the_answer_is_the_one_that_the_operator_gives(plan, wanted, spec):
    w, found = world(*BUSY, **spec)
    new = asked(**wanted, now=w.now)
    planned = answer(plan(found, new, words=["-o", "json"], now=w.now))
    w.apply(new)
    w.tick()
    record = w.records["new"]
    assert (planned["admitted"], planned["reason"], planned["message"]) == record.admitted
    if record.promise is not None:
        assert parse_time(planned["promise"]["finish"]) == pytest.approx(record.promise.finish, abs=1e-5)
        assert planned["promise"]["processors"] == record.promise.processors
    while w.pool.backlog:
        w.tick()
    if (offer := w.records["new"].offer) is not None:
        earliest = offer.earliest_deadline
        assert planned["offer"].get("earliestDeadline") == (None if earliest is None else format_duration(earliest))
        assert planned["offer"]["largestLoad"] == offer.largest_load


def test_a_plan_covers_all_units_and_says_where_they_run_when(plan):
    w, found = world(asked("a", units=200, within=100))
    planned = plan(found, asked(units=100, within=130, reduce_duration=10.0), words=["-o", "json"], now=w.now)
    assert planned.exit_code == 0
    *chunks, reduce = sorted(answer(planned)["chunks"], key=lambda c: (c["kind"], c["begin"]))
    assert [c["begin"] for c in chunks] == [0, *(c["end"] for c in chunks[:-1])]
    assert chunks[-1]["end"] == 100
    assert reduce["kind"] == "Reduce"
    assert reduce["createdTime"] == max(c["promisedEnd"] for c in chunks)
    assert reduce["promisedEnd"] == answer(planned)["promise"]["finish"]
    ends = {(c["node"], c["processor"]): parse_time(c["promisedEnd"]) for c in chunks}
    assert len(ends) == len(chunks), "a chunk a processor"
    assert len(w.records["a"].chunks) == 3
    assert (
        min(parse_time(c["createdTime"]) for c in chunks) >= min(c.promised_end for c in w.records["a"].chunks) - 1e-5
    )


def test_people_get_a_table_and_a_timeline(plan):
    w, found = world(asked("a", units=200, within=100))
    shown = plan(found, asked(units=100, within=130, reduce_duration=10.0), now=w.now).stdout.splitlines()
    assert shown[0] == "default/new would be promised by pool main"
    assert shown[1].startswith("  Feasible: 100 units on ")
    assert re.fullmatch(r"  done by \S+, \S+ before its deadline at 2027-01-15T08:02:15Z", shown[2])
    assert shown[4].split() == ["processor", "chunk", "units", "starts", "in", "ends", "in"]
    rows = dict(match.groups() for line in shown if (match := DRAWN.match(line)))
    assert set(rows) == {line.split()[0] for line in shown[5 : shown.index("", 5)]}
    assert all(re.fullmatch(r"░+ ?█+▒* *", row) for row in rows.values()), "behind what runs there"
    assert sum("▒" in row for row in rows.values()) == 1
    assert shown[-1].split() == ["now", "(░", "others)", "deadline", "in", "2:10"]


def test_a_refusal_tells_its_arithmetic_and_what_would_be_promised(plan):
    w, found = world(asked("a", units=200, within=100))
    refused = plan(found, asked(units=300, within=60), now=w.now)
    assert refused.exit_code == 1
    lines = refused.stdout.splitlines()
    assert lines[0] == "default/new would be refused by pool main"
    assert re.fullmatch(
        r"  InfeasibleCapacity: 300 units due in 58s: none of 3 processors is free early enough for one, the first in "
        r"1m\ds; 6 more processors would do, for \d+s from now",
        lines[1],
    )
    offered = re.fullmatch(
        r"  would be promised: a deadline of (\S+), or all of it with 6 more processors from \S+ until \S+", lines[2]
    )[1]
    later = manifest(asked(units=300, within=60))
    later["spec"]["deadline"] = offered
    assert plan(found, text=json.dumps(later), now=w.now).exit_code == 0, "what is offered is promised"


def test_with_the_processors_that_are_lacking_the_job_would_be_promised_and_with_one_fewer_not(plan):
    w, found = world(asked("a", units=200, within=100))
    new = asked(units=300, within=60)
    lacking = answer(plan(found, new, words=["-o", "json"], now=w.now))["offer"]["processors"]
    assert lacking["more"] == 6
    assert w.now - 1 <= parse_time(lacking["from"]) < parse_time(lacking["until"]) <= NOW + 65
    enough = plan(found, new, words=["--add-processors", "6"], now=w.now)
    assert enough.exit_code == 0
    assert "  the answer is as if 6 more processors had joined the pool" in enough.stdout.splitlines()
    assert "(added)/5" in enough.stdout
    few = answer(plan(found, new, words=["--add-processors", "5", "-o", "json"], now=w.now))
    assert (few["admitted"], few["addedProcessors"], few["offer"]["processors"]["more"]) == ("False", 5, 1)


def test_the_headroom_in_a_forecast_is_told(plan):
    """200 units of 1 s on one processor: 200 s / (1 - 0.125) and 3 s of start-up are 3 m 52 s, not 3 m 23 s."""
    w, found = world(headroom="12.5%", margin="6s")
    slow = {"units": 200, "theta_cp": 3.0}
    shown = plan(found, asked(within=300, **slow), now=w.now).stdout.splitlines()
    assert "forecast in 3m52s, deadline in 5m, margin 6.0s" in shown[1]
    free = "(plans leave 12.5% of each processor free)"
    assert shown[3] == f"  units 0-200: 3m52s, of which headroom 29s {free}"
    refused = plan(found, asked(within=30, **slow), now=w.now).stdout.splitlines()
    assert refused[3] == f"  200 units on one processor: 3m52s, of which headroom 29s {free}"
    assert refused[4] == "  the plan must end 6.0s before the deadline (margin)"


@pytest.mark.parametrize(
    ("spec", "what"),
    [({}, "units 0-100: 1m56s"), ({"admission": "Utilization"}, "100 units on one processor: 1m56s")],
)
def test_the_time_with_headroom_is_that_of_the_plan(plan, spec, what):
    w, found = world(headroom="12.5%", **spec)
    shown = plan(found, asked(units=100, within=150), now=w.now).stdout.splitlines()
    assert [line for line in shown if "of which headroom 14s" in line and what in line], shown


def test_a_slow_node_has_its_part_of_the_headroom(plan):
    w, found = world(headroom="20%", cpus=(1.0,))
    found["items"][0]["status"]["nodes"][0]["speed"] = 2
    shown = plan(found, asked(units=100, within=300), now=w.now).stdout
    assert "units 0-100: 4m12s, of which headroom 50s" in shown


def test_without_headroom_or_when_time_is_not_the_reason_no_reserve_is_told(plan):
    w, found = world()
    assert "headroom" not in plan(found, asked(units=100, within=150), now=w.now).stdout
    never = plan(found, asked(units=10, within=150, min_processors=9), now=w.now)
    assert never.exit_code == 1
    assert "margin" not in never.stdout


def test_of_several_jobs_each_is_asked_behind_those_before_it(plan):
    w, found = world()
    first, second = asked("x", units=100, within=60), asked("z", units=100, within=60)
    both = plan(found, first, second, words=["-o", "json"], now=w.now)
    assert [json.loads(line)["admitted"] for line in both.stdout.splitlines()] == ["True", "False"]
    assert both.exit_code == 1
    assert plan(found, second, now=w.now).exit_code == 0


def test_a_job_that_is_there_is_asked_as_if_it_were_deleted_first(plan):
    w, found = world(asked("a", units=200, within=100))
    again = plan(found, asked("a", units=200, within=100), now=w.now)
    assert again.exit_code == 0
    assert "as if it were deleted first" in again.stdout
    assert plan(found, asked("b", units=200, within=100), now=w.now).exit_code == 1


def test_a_job_without_a_cost_would_be_measured(plan):
    w, found = world()
    shown = plan(found, asked(units=10, within=60, chi=None), now=w.now)
    assert "would first be measured in pool main" in shown.stdout
    assert shown.exit_code == 1, "nothing is promised"


@pytest.mark.parametrize("words", [["job.yaml"], ["-f", "job.yaml"], ["--filename", "job.yaml"]])
def test_the_manifest_is_an_argument_or_an_option_as_in_kubectl(plan, words, tmp_path, monkeypatch):
    _, found = world()
    plan(found, asked(units=10, within=60))
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["plan", *words, "--pool-state", "state.json"]).exit_code == 0
    twice = CliRunner().invoke(app, ["plan", "job.yaml", "-f", "job.yaml", "--pool-state", "state.json"])
    assert (twice.exit_code, "punctual plan FILE" in twice.stderr) == (2, True)


def test_dry_run_and_suspend_are_left_out(plan):
    w, found = world()
    wanted = manifest(asked(units=10, within=60))
    wanted["spec"] |= {"dryRun": True, "suspend": True}
    assert plan(found, text=json.dumps(wanted), now=w.now).exit_code == 0


def test_a_state_without_the_pool_or_the_profile_is_answered_as_the_operator_would(plan):
    _, found = world()
    wanted = manifest(asked(units=10, within=60))
    wanted["spec"]["pool"] = "other"
    elsewhere = plan(found, text=json.dumps(wanted), words=["-o", "json"])
    assert (elsewhere.exit_code, answer(elsewhere)["reason"]) == (1, "PoolNotFound")
    wanted["spec"] |= {"pool": "main", "profile": "fast"}
    del wanted["spec"]["cost"]
    assert answer(plan(found, text=json.dumps(wanted), words=["-o", "json"]))["reason"] == "ProfileNotFound"
    profile = {
        "apiVersion": "punctual.dev/v1alpha1", "kind": "Profile",
        "metadata": {"name": "fast", "namespace": "default"}, "spec": {"perUnit": "10ms"},
    }  # fmt: skip
    found["items"].append(profile)
    planned = answer(plan(found, text=json.dumps(wanted), words=["-o", "json"]))
    assert (planned["admitted"], planned["cost"]["perUnit"]) == ("True", 0.01)


def test_a_pool_for_some_namespaces_looks_at_the_labels_of_the_jobs(plan):
    _, found = world(labels={"team": "a"})
    wanted = asked(units=10, within=60)
    unknown = plan(found, wanted)
    assert unknown.exit_code == 2
    assert "Namespace default is not known" in unknown.stderr
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "b"}}}
    found["items"].append(namespace)
    assert answer(plan(found, wanted, words=["-o", "json"]))["reason"] == "NotAllowed"
    namespace["metadata"]["labels"] = {"team": "a"}
    assert plan(found, wanted).exit_code == 0


def test_times_count_from_when_the_state_was_saved_or_from_what_is_said(plan):
    _, found = world(asked("a", units=200, within=100))
    wanted = asked(units=30, within=40)
    assert plan(found, wanted, now=NOW + 5).exit_code == 1
    assert plan(found, wanted, words=["--at", format_time(NOW + 80)]).exit_code == 0


GOOD = json.dumps(manifest(asked(units=10, within=60)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace('"units": 10', '"units": 0'), "job.yaml: spec.units: 0 is too small"),
        (GOOD.replace('"1m"', '"1d"'), "job.yaml: spec.deadline: '1d' is not a duration"),
        (GOOD.replace('"units"', '"unit"'), "job.yaml: spec.units: is required"),
        (GOOD.replace('"processors"', '"processor"'), "job.yaml: spec.processor: a DivisibleJob has no such field"),
        (GOOD.replace('"min"', '"least"'), "job.yaml: spec.processors.least: a DivisibleJob has no such field"),
        (GOOD.replace('"name": "new"', '"name": null'), "job.yaml: metadata.name: is required"),
        (GOOD.replace('"spec": {"pool"', '"spec": 5, "x": {"pool"'), "job.yaml: spec: 5 is not an object"),
        ("kind: Pool\nmetadata: {name: main}\n", "job.yaml: holds a Pool, expected a DivisibleJob"),
        (
            "kind: ConfigMap\n---\nkind: Secret\n---\na: 1\n",
            "holds a ConfigMap, a Secret and an object without kind",
        ),
        ("\n---\n".join(f"kind: K{n}" for n in range(9)), "job.yaml: holds a K0, a K1 and 7 more kinds, expected"),
        ('kind: "a\\e[31mb"', "job.yaml: holds a 'a\\x1b[31mb', expected a DivisibleJob"),
        ("", "job.yaml: is empty, expected a DivisibleJob"),
        ("a: [b", "job.yaml: cannot be read: "),
        ("[1, 2]", "job.yaml: is not a Kubernetes object"),
        pytest.param("[" * 5000, "job.yaml: cannot be read: it is nested too deeply", id="deep JSON"),
        pytest.param("a: " + "{a: " * 5000, "job.yaml: cannot be read: it is nested too deeply", id="deep YAML"),
        pytest.param(GOOD.replace("10", "9" * 5000), "job.yaml: spec.units: '999", id="digits"),
        (GOOD.replace('"units": 10', '"units": 1, "units": 10'), "job.yaml: cannot be read: units: appears twice"),
        ("kind: DivisibleJob\nkind: Pool\n", "job.yaml: cannot be read: kind: appears twice"),
        ("kind: List\nitems: [5]\n", "job.yaml: items: an item is not a Kubernetes object"),
        ("kind: List\nitems: &a [*a]\n", "job.yaml: cannot be read: contains itself"),
        ("&a\nkind: List\nitems: [*a]\n", "job.yaml: cannot be read: contains itself"),
        ("items: [5]\n", "job.yaml: items: an item is not a Kubernetes object"),
        ("kind: List\nitems: [{kind: List, items: [5]}]\n", "job.yaml: items: an item is not a Kubernetes object"),
        (
            GOOD.replace('"name": "new"', '"name": "n\\u001b[31mew"'),
            "job.yaml: metadata.name: 'n\\x1b[31mew' is not a valid name",
        ),
        pytest.param(GOOD.replace('"new"', f'"{"n" * 254}"'), "job.yaml: metadata.name", id="long"),
        pytest.param(GOOD.replace('"image": "', f'"image": "{"i" * 140_000}'), "spec: is 136 KiB of JSON", id="large"),
    ],
)
def test_what_is_wrong_with_a_job_is_named_and_ends_with_2(plan, text, said):
    _, found = world()
    refused = plan(found, text=text)
    assert refused.exit_code == 2, refused.output
    assert said in refused.stderr
    assert not refused.stdout


def test_jobs_of_a_list_are_planned_as_kubectl_applies_them(plan):
    _, found = world()
    listed = {"apiVersion": "v1", "kind": "List", "items": [json.loads(GOOD), json.loads(GOOD.replace('"new"', '"b"'))]}
    planned = plan(found, text=json.dumps(listed), words=["-o", "json"])
    assert [json.loads(line)["name"] for line in planned.stdout.splitlines()] == ["new", "b"]


def test_what_is_wrong_with_a_state_is_named_and_ends_with_2(plan, tmp_path):
    w, found = world()
    wanted = asked(units=10, within=60)
    pool = found["items"][0]
    for state_, said in (
        ("{", "state.json: cannot be read"),
        ({**pool, "status": None}, "Pool main has no status to plan from"),
        ({**pool, "status": {**pool["status"], "processors": "six"}}, "Pool main: status.processors: 'six' is not"),
        ({**pool, "spec": {}}, "Pool main: spec.nodeSelector: is required"),
        ({**pool, "spec": 5}, "the state's Pool main: spec is not an object"),
        ({**pool, "kind": "Reservation", "status": [1]}, "the state's Reservation main: status is not an object"),
        (
            {**pool, "kind": "DivisibleJob", "metadata": {"name": "a", "namespace": 5}},
            "metadata.namespace is not a string",
        ),
        (GOOD, "state.json: holds a DivisibleJob, expected pools"),
        ('{"kind": "ConfigMap"}', "state.json: holds a ConfigMap, expected pools"),
    ):
        refused = plan(state_, wanted, now=w.now)
        assert (refused.exit_code, said in refused.stderr) == (2, True), refused.output
    odd = {"kind": "Reservation", "metadata": {"name": "r", "uid": "r"}, "spec": {}, "status": {"epoch": "1"}}
    found["items"].append(odd)
    assert plan(found, wanted, now=w.now).exit_code == 0, "it is left alone, as the operator does"
    found["items"].remove(odd)
    assert "--at" in plan(found, wanted, words=["--at", "noon"]).stderr
    missing = CliRunner().invoke(app, ["plan", str(tmp_path / "job.yaml"), "--pool-state", str(tmp_path / "none")])
    assert (missing.exit_code, "none: cannot be read" in missing.stderr) == (2, True)


def test_without_kubectl_it_says_so(tmp_path, monkeypatch):
    (tmp_path / "job.yaml").write_text(GOOD)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = CliRunner().invoke(app, ["plan", str(tmp_path / "job.yaml")])
    assert (found.exit_code, found.stderr) == (2, "punctual: kubectl is not there: install it, or put it into PATH\n")
