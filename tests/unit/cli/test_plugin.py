"""``why``, ``top``, ``pools``, completion and the plugin's name, upon a kubectl that knows a saved state."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import guest_job
import pytest
from batch_bodies import CREATED, batch_body, owned_by_job
from rich.console import Console
from state import NOW, pool_body, spec_of, state
from typer.testing import CliRunner
from world import World, job

from punctual.cli import app, completion, program
from punctual.cli.cluster import answers, tables, top
from punctual.cli.cluster.writes import PROMISED, REFUSED, SILENT, Submission, Submitted, status
from punctual.cli.kubectl import forbidden, plainly
from punctual.view.changes import Change, Reset
from punctual.view.elapsed import clock
from punctual.view.history import BLOCKS, SPAN, ValueHistory, spark
from punctual.view.jobs import Board, job_of

KUBECTL = """#!/bin/sh
echo "$*" >> "$FOLDER/calls"
case "$*" in
    *config*view*) printf default ;;
    *get-contexts*) echo kind; echo prod ;;
    *"get events"*) cat "$FOLDER/events.json" 2>/dev/null ||
        { echo 'Error from server (Forbidden): you may not' >&2; exit 1; } ;;
    *"get targetrates"*jsonpath*tr/*) echo tr/solver; echo tr/waves ;;
    *"get targetrates"*) cat "$FOLDER/rates.json" 2>/dev/null ||
        { echo 'Error from server (Forbidden): you may not' >&2; exit 1; } ;;
    *pods*) cat "$FOLDER/pods.json" ;;
    *jsonpath*pools*|*pools*jsonpath*|*namespaces*jsonpath*) echo main ;;
    *jsonpath*) cat "$FOLDER/names" ;;
    *"get divisiblejobs"*all-namespaces*) cat "$FOLDER/all.json" ;;
    *"get pools"*"-o json"|*all-namespaces*) cat "$FOLDER/state.json" 2>/dev/null ||
        { echo 'Error from server (Forbidden): you may not' >&2; exit 1; } ;;
    *pools*) cat "$FOLDER/pools.json" ;;
    *) cat "$FOLDER/jobs.json" ;;
esac
"""


FITS = {"type": "Admitted", "status": "True", "reason": "Feasible", "message": "it fits"}
GOOD = {"type": "OnTarget", "status": "True", "reason": "OnTarget", "message": "39.6% of its rate alone"}
ALIGNED = {"type": "Aligned", "status": "True", "reason": "Aligned", "message": "0.3 ms"}
RATE = {
    "kind": "TargetRate",
    "metadata": {
        "uid": "u", "namespace": "default", "name": "solver", "generation": 1,
        "creationTimestamp": "2030-01-01T00:00:00Z",
    },
    "spec": {"pool": "main", "rate": "40%", "coscheduling": "Aligned"},
    "status": {
        "observedGeneration": 1, "conditions": [FITS, GOOD, ALIGNED], "target": "40%", "rate": "39.6%",
        "error": "-0.4%", "quota": "424m", "utilization": "42.4%", "period": 0.1, "offset": "25ms", "skew": "300us",
        "pods": 2,
    },
}  # fmt: skip


def asked(uid, *, within, **more):
    return job(uid, deadline=NOW + within, arrival=NOW, **more)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A folder with what kubectl answers; removing state.json takes the right to read all namespaces."""
    body = pool_body()
    w = World(spec=spec_of(body), now=NOW)
    w.node("n0", 2.0)
    w.node("n1", 1.0)
    w.tick()
    theirs = asked("theirs", units=60, within=300, namespace="other", name="secret")
    for wanted in (asked("runs", units=200, within=100), theirs, asked("no", units=300, within=90)):
        w.apply(wanted)
    w.run(NOW + 10)
    found = state(w, body)
    write(tmp_path, "state.json", found)
    write(tmp_path, "pools.json", {**found, "items": found["items"][:1]})
    ours = [body for body in found["items"][1:] if body["metadata"]["namespace"] == "default"]
    write(tmp_path, "jobs.json", {**found, "items": ours})
    write(tmp_path, "pods.json", {"items": []})
    write(tmp_path, "rates.json", {"items": []})
    write(tmp_path, "all.json", {"items": found["items"][1:]})
    (tmp_path / "names").write_text("runs\nruns-pod-1\nno\n")
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW + 10)
    return tmp_path


def write(folder, name, body):
    (folder / name).write_text(json.dumps(body))


def run(*words, status=0):
    done = CliRunner().invoke(app, words)
    assert done.exit_code == status, (done.output, done.exception)
    return done.stdout


def failing(*words):
    return str(CliRunner().invoke(app, words).exception)


# why


def test_why_explains_a_job_and_a_pod_of_it(cluster):
    told = run("why", "no")
    assert told.splitlines()[0] == "default/no  Refused"
    assert "InfeasibleCapacity" in told
    assert "default/runs runs on 3 processors" in told
    pod = json.loads((cluster / "jobs.json").read_text())["items"][0]["status"]["chunks"][0]["pod"]
    assert "It is units 0-67 of default/runs, on node n0" in run("why", pod)


def test_an_administrator_reads_names_of_all_namespaces_and_others_read_less_and_are_told(cluster):
    assert "other/secret" in run("why", "no")
    (cluster / "state.json").unlink()
    told = run("why", "no")
    assert "secret" not in told
    assert "(only jobs of namespace default were read: you may not read others. So what the pool's" in told
    assert json.loads(run("why", "no", "-o", "json"))["unread"]


def test_a_name_that_does_not_exist_is_answered_with_similar_ones(cluster):
    assert failing("why", "rums") == "namespace default has no job and no chunk's pod rums; similar: runs"
    assert failing("pools", "mian") == "there is no Pool mian; similar: main"
    write(cluster, "state.json", {"items": []})
    assert failing("why", "x") == "namespace default has no job and no chunk's pod x; there is none"


def test_why_of_a_guests_pod_quotes_its_last_decision_and_says_when_events_are_not_read(cluster, monkeypatch):
    monkeypatch.setattr("time.time", lambda: guest_job.NOW)
    body = guest_job.guest_job()
    body["metadata"]["namespace"] = "default"
    found = json.loads((cluster / "state.json").read_text())
    found["items"][0]["spec"]["guests"] = {"policy": "LingerForever"}
    write(cluster, "state.json", {**found, "items": [*found["items"], body]})
    gone = guest_job.chunk(40, 60)
    write(cluster, "pods.json", {"items": [guest_job.guest_pod(), guest_job.guest_pod(gone, phase="Succeeded")]})
    write(cluster, "events.json", {"items": [guest_job.KUBELETS, guest_job.told(12.0)]})
    told = run("why", "sums-100")
    assert told.splitlines()[0] == "default/sums-100  Running"
    assert "was GuestStays: This chunk stays on node n1." in told
    assert "Policy LingerForever: while its node is busy, it goes on, and never moves." in told
    assert "was GuestStays" in run("why", "sums-40")
    assert "get events --field-selector involvedObject.name=sums-40" in (cluster / "calls").read_text()
    assert "3 chunks run: 2 on n1, 1 on n2." in run("why", "sums")
    (cluster / "events.json").unlink()
    assert json.loads(run("why", "sums-100", "-o", "json"))["unread"] == [
        "what was decided about it was not read: you may not list events"
    ]


def test_why_explains_a_target_rate(cluster):
    write(cluster, "rates.json", {"items": [RATE]})
    told = run("why", "tr/solver").splitlines()
    assert told[0] == "default/solver  OnTarget"
    assert told[-2] == "  The slices of its pods begin at the same moments (Aligned): 0.3 ms."
    found = json.loads(run("why", "targetrate/solver", "-o", "json"))
    assert (found["name"], found["state"], len(found["why"])) == ("default/solver", "OnTarget", 4)
    assert failing("why", "tr/solvr") == "there is no TargetRate solvr; similar: solver"


# pools and top


def test_pools_says_what_runs_is_promised_and_when_processors_become_free(cluster):
    head, line = run("pools").splitlines()
    assert head.split()[:3] == ["POOL", "PROCESSORS", "RUNNING"]
    assert re.fullmatch(r"main +3 +3 +1 +0 +0:5\d +cpu +yes", line)
    found = json.loads(run("pools", "-o", "json"))[0]
    assert (found["inUse"], found["free"], found["promisedJobs"], found["scarcest"]) == (3, 0, 1, "cpu")
    (cluster / "state.json").unlink()
    less = run("pools", "main", "-o", "wide")
    assert "what is promised is left out: you may not read jobs of all namespaces" in less


def test_top_prints_one_table_where_there_is_no_terminal(cluster):
    write(cluster, "state.json", json.loads((cluster / "pools.json").read_text()))
    told = run("top", "-A").splitlines()
    assert told[1].split() == ["main", "3", "3", "0", "1", "yes"]
    assert [line.split()[1] for line in told[4:]] == ["runs", "secret", "no"], "what is under way first, by deadline"
    assert not any(line.endswith(" ") for line in told)
    assert "\x1b" not in "".join(told)
    found = json.loads(run("top", "-A", "-o", "json"))
    assert [one["state"] for one in found["jobs"]] == ["Running", "Waiting", "Refused"]
    assert "InfeasibleCapacity: 300 units" in run("top", "-A", "-o", "wide")
    (cluster / "state.json").unlink()
    assert "pools are left out: you may not read them" in run("top", "-n", "default")


def test_top_shows_target_rates(cluster):
    write(cluster, "state.json", json.loads((cluster / "pools.json").read_text()))
    write(cluster, "rates.json", {"items": [RATE]})
    told = [line.split() for line in run("top", "-A").splitlines()]
    assert ["NAMESPACE", "TARGET", "RATE", "STATE", "TARGET", "ACTUAL", "ERROR", "ALIGNED", "SKEW"] in told
    assert ["default", "solver", "OnTarget", "40%", "39.6%", "-0.4%", "yes", "300us"] in told
    (found,) = json.loads(run("top", "-A", "-o", "json"))["targetRates"]
    assert (found["name"], found["state"], found["actual"], found["skew"]) == ("solver", "OnTarget", "39.6%", "300us")
    (cluster / "rates.json").unlink()
    assert "target rates are left out: you may not read them" in run("top", "-n", "default")


def test_top_shows_the_part_of_a_balanced_target_rate_and_the_load(cluster):
    on_target = {"type": "OnTarget", "status": "True", "reason": "Balanced", "message": "80% of their CPU"}
    status = {"observedGeneration": 1, "conditions": [FITS, on_target], "target": "80%", "load": 0.9, "pods": 2}
    write(cluster, "rates.json", {"items": [{**RATE, "spec": {"pool": "main", "rate": "Balanced"}, "status": status}]})
    assert ["default", "solver", "Balanced", "80%"] in [line.split() for line in run("top", "-A").splitlines()]
    (found,) = json.loads(run("top", "-A", "-o", "json"))["targetRates"]
    assert (found["target"], found["load"], found.get("error")) == ("80%", 0.9, None)


def test_many_target_rates_leave_room_for_jobs(cluster):
    board = board_of(cluster)
    for i in range(30):
        meta = {**RATE["metadata"], "uid": f"u{i}", "name": f"solver-{i:02}"}
        board.apply([Change("TargetRate", "ADDED", {**RATE, "metadata": meta})])
    text = shown(top.screen(board, tables.Past(ValueHistory(), NOW + 10), everywhere=True, wide=True, height=30))
    assert "solver-07" in text
    assert "solver-08" not in text
    assert "and 22 more target rates" in text
    assert re.search(r"runs +Running", text)
    board.apply([Reset("TargetRate")])
    assert not board.rates


def board_of(cluster):
    board = Board()
    for body in json.loads((cluster / "state.json").read_text())["items"]:
        board.apply([Change(body["kind"], "ADDED", body)])
    return board


def shown(screen):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(screen)
    return console.export_text()


def test_the_live_screen_has_curves_of_what_it_has_seen(cluster):
    board, history = board_of(cluster), ValueHistory()
    for second in range(0, 180, 10):
        top.note(history, board, NOW - 170 + second)
    past = tables.Past(history, NOW + 10)
    text = shown(top.screen(board, past, everywhere=True, wide=False, height=10))
    assert re.search(r"main +3 +3 +0 +█+ +1 +yes", text)
    assert re.search(r"runs +Running .*▁+ ", text) or re.search(r"runs +Running .*▂+ ", text)
    assert "and" not in text


def cells_at(width, board, past, **more):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(top.screen(board, past, everywhere=True, height=20, **{"wide": False, **more}))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    head = next(line for line in lines if "DEADLINE" in line)
    return lines, head.split()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_a_narrow_terminal_never_cuts_state_deadline_or_slack(cluster, width, wide):
    board = board_of(cluster)
    runs = next(job for job in board.jobs.values() if job.name == "runs")
    lines, head = cells_at(width, board, tables.Past(ValueHistory(), NOW + 10), wide=wide)
    assert {"NAME", "STATE", "DEADLINE", "SLACK"} <= set(head)
    row = next(line for line in lines if "Running" in line and "runs" in line).split()
    assert clock(runs.deadline - NOW - 10) in row
    assert clock(runs.slack) in row
    assert ("PROGRESS" in head) >= ("MIN" in head), "the curve goes first"
    assert ("CHUNKS" in head) >= ("PROGRESS" in head), "then the bar"


def test_eighty_columns_keep_all_numbers_and_a_hundred_the_bar(cluster):
    board, past = board_of(cluster), tables.Past(ValueHistory(), NOW + 10)
    _, head = cells_at(80, board, past)
    assert "MIN" not in head
    assert {"%", "CHUNKS", "ETA"} <= set(head)
    for one in list(board.jobs.values()):
        board.jobs[one.uid] = replace(one, name=f"{one.name}-of-very-many-characters", namespace="somewhere-else")
    lines, head = cells_at(80, board, past)
    assert {"NAMESPACE", "NAME", "STATE", "%", "DEADLINE", "ETA", "SLACK"} <= set(head), "a name is cut first"
    assert any("runs-of-" in line for line in lines)


def test_more_jobs_than_rows_are_counted_and_missing_pools_are_told(cluster):
    board = board_of(cluster)
    past = tables.Past(ValueHistory(), NOW)
    text = shown(top.screen(board, past, everywhere=False, wide=True, height=7, unread={"Pool"}))
    assert "and 2 more jobs" in text
    assert "you may not read them" in text


def test_a_board_follows_pools():
    board = Board()
    board.apply([Change("Pool", "ADDED", pool_body("a")), Change("Pool", "ADDED", pool_body("b"))])
    board.apply([Change("Pool", "DELETED", pool_body("a"))])
    assert (list(board.pools), board.pools["b"].ready) == (["b"], None)
    board.apply([Reset("Pool")])
    assert not board.pools


def test_a_history_keeps_changes_of_some_minutes():
    history = ValueHistory()
    for at in range(400):
        history.note("x", float(at), float(at // 100))
    assert history.values("x", 399.0, 4) == [2.0, 3.0, 3.0, 3.0]
    assert history.values("y", 399.0, 2) == [None, None]
    history.note("y", 399.0, 1.0)
    assert history.values("y", 399.0, 2) == [None, 1.0]
    history.forget({"y"})
    assert history.values("x", 399.0, 1) == [None]
    assert SPAN == 180.0


@pytest.mark.parametrize(
    ("values", "most", "drawn"), [([None, 0, 2, 4], 4, " ▁▅█"), ([3], 0, BLOCKS[0]), ([9], 3, BLOCKS[-1]), ([], 1, "")]
)
def test_a_curve_is_drawn_in_eighths(values, most, drawn):
    assert spark(values, most) == drawn


# rights

NO_POOLS = (
    'Error from server (Forbidden): pools.punctual.dev is forbidden: User "jane" cannot list resource "pools" in API '
    'group "punctual.dev" at the cluster scope'
)
NO_JOBS = (
    'Error from server (Forbidden): divisiblejobs.punctual.dev "a" is forbidden: User "jane" cannot patch resource '
    '"divisiblejobs" in API group "punctual.dev" in the namespace "demo"'
)


LOG = (
    'E1125 20:42:02.509305   24783 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group '
    'list: Get \\"https://127.0.0.1:1/api?timeout=32s\\": dial tcp 127.0.0.1:1: connect: connection refused"\n'
)
CHOOSE = "start it, or choose another one with --context or KUBECONFIG"
UNKNOWN = 'strict decoding error: unknown field "spec.unitz"'


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            5 * LOG + "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?",
            f"no cluster answers at 127.0.0.1:1: {CHOOSE}",
        ),
        (
            LOG + "Unable to connect to the server: net/http: TLS handshake timeout",
            f"no cluster can be reached (net/http: TLS handshake timeout): {CHOOSE}",
        ),
        (
            "error: current-context must exist in order to minify",
            f"no cluster can be reached (none is chosen): {CHOOSE}",
        ),
        (
            'error: unable to recognize "STDIN": Get "https://nowhere:6443/api?timeout=32s": dial tcp: lookup nowhere',
            f"no cluster answers at nowhere:6443: {CHOOSE}",
        ),
        (3 * LOG + "error: You must be logged in to the server", "error: You must be logged in to the server"),
        (
            'The request is invalid: patch: Invalid value: "{\\"kind\\":\\"DivisibleJob\\",\\"spec\\":{}}": ' + UNKNOWN,
            "The request is invalid: " + UNKNOWN,
        ),
        (
            f'Error from server (BadRequest): error when applying patch:\nto: error when patching "b": {UNKNOWN}',
            UNKNOWN,
        ),
        ('failed to call webhook: Post "https://x.y:443/": dial tcp 10.0.0.1:443: connect: connection refused', None),
    ],
)
def test_kubectl_is_quoted_in_one_sentence(said, told):
    assert plainly(said) == (told or said)


@pytest.mark.parametrize(
    ("said", "user", "role"),
    [
        (NO_POOLS, "user jane may not list pools (Forbidden)", "--clusterrole=punctual-pools --user=jane"),
        (NO_JOBS, "user jane may not patch divisiblejobs in namespace demo (Forbidden)", "to the ClusterRole edit"),
    ],
)
def test_a_missing_right_is_told_with_the_role_that_grants_it(said, user, role):
    told = forbidden(said)
    assert told.startswith(user)
    assert told.endswith(role)
    assert "\n" not in told


def test_of_other_errors_kubectls_own_words_are_told():
    assert forbidden("Error from server (NotFound): no") is None


# submit


def submitted(state="Waiting", *, observed=1, status=None, reason="Feasible", offer=None):
    said = [{"type": "Admitted", "status": status, "reason": reason, "message": ""}] if status else []
    meta = {"name": "a", "namespace": "d", "uid": "u", "generation": 1, "creationTimestamp": "2027-01-15T08:00:00Z"}
    told = {"state": state, "conditions": said, "observedGeneration": observed, "offer": offer}
    return Submitted(job_of({"metadata": meta, "spec": {"units": 1, "deadline": "1m"}, "status": told}), "created")


OFFER = {"validUntilTime": "2027-01-15T08:01:00Z", "largestLoad": 0}


@pytest.mark.parametrize(
    ("one", "answer", "settled"),
    [
        (submitted(), SILENT, False),
        (submitted(status="True", observed=0), SILENT, False),
        (submitted(status="Unknown", reason="Measuring"), SILENT, False),
        (submitted(status="True"), PROMISED, True),
        (submitted(status="True", reason="DryRun"), PROMISED, True),
        (submitted("Refused", status="False", reason="InfeasibleCapacity"), REFUSED, False),
        (submitted("Refused", status="False", reason="InfeasibleCapacity", offer=OFFER), REFUSED, True),
        (submitted("Running", status="False", reason="InfeasibleCapacity"), REFUSED, False),
        (submitted("Running", status="False", reason="InfeasibleCapacity", offer=OFFER), REFUSED, True),
        (submitted("Refused", status="False", reason="NotAllowed"), REFUSED, True),
        (submitted(status="False", reason="PoolNotFound"), SILENT, True),
        (submitted("Refused", status="False", reason="PoolNotFound"), REFUSED, True),
        (submitted("Failed", status="Unknown", reason="Measuring"), REFUSED, True),
        (submitted("Completed", status="Unknown", reason="Measuring"), PROMISED, True),
        (submitted("Failed", status="True"), PROMISED, True),
    ],
)
def test_an_answer_counts_for_the_current_spec_and_a_refusal_waits_for_its_offer(one, answer, settled):
    assert (one.answer, one.settled(0.0)) == (answer, settled)
    one.settled(1.0)
    assert one.settled(10.0) == (settled or answer == REFUSED), "an offer is not awaited for ever"


NOTHING = {"kind": "List", "items": []}


class Told:
    """kubectl, which answers what a test tells it. ``said``: the words of its calls."""

    def __init__(self, **answers):
        self.answers, self.said = answers, []

    def run(self, verb, *words, stdin=None):
        self.said.append(" ".join((verb, *words)))
        return "" if "--ignore-not-found" in words and "name" in words else json.dumps(self.answers[verb])

    def get(self, *words):
        return json.loads(self.run("get", *words))


def ordinary(asked="45m", **notes):
    return {"kind": "Job"} | batch_body(asked={"punctual.dev/deadline": asked, **notes}, meta={"generation": 1})


def held(deadline, *, status="False", reason="InfeasibleCapacity", offer=None):
    owner = {"uid": "d1", "ownerReferences": [owned_by_job("nightly", "b1")], "namespace": "ns", "name": "nightly"}
    said = [{"type": "Admitted", "status": status, "reason": reason, "message": "m"}]
    told = {"state": "Refused" if status == "False" else "Waiting", "conditions": said, "observedGeneration": 1}
    meta = {**owner, "generation": 1, "creationTimestamp": CREATED}
    return {"metadata": meta, "spec": {"units": 4, "deadlineTime": deadline}, "status": told | {"offer": offer or {}}}


def applied(body, *, there=None, accept=False, **answers):
    made = Submission(Told(apply=body, get=there or NOTHING, **answers), "ns", accept)
    made.apply(json.dumps(body))
    return made, made.jobs["b1"]


def test_an_ordinary_job_is_answered_by_its_divisible_job_once_that_asks_for_the_same_deadline():
    made, one = applied(ordinary())
    assert (one.answer, one.job.units, one.changed) == (SILENT, 4, "created")
    assert made._about(held("2030-01-01T00:10:00Z")) is None, "one before an edit"
    body = held("2030-01-01T00:45:00Z", status="True", reason="Feasible")
    assert made._about(body) is one
    edited = {"units": 4, "deadline": "45m"}
    assert made._about(body | {"spec": edited}) is None, "its user has written another deadline into it"
    one.job = job_of(body)
    assert one.answer == PROMISED


def test_an_ordinary_job_with_a_flaw_is_refused_by_its_annotations():
    no = {"punctual.dev/state": "Refused", "punctual.dev/message": "spec.parallelism is 0"}
    made, one = applied(ordinary())
    made.kubectl.answers["get"] = ordinary()
    made._look(one)
    assert one.answer == SILENT
    made.kubectl.answers["get"] = ordinary(**no)
    made._look(one)
    assert (one.answer, one.job.message) == (REFUSED, "spec.parallelism is 0")


def test_a_flaw_before_an_edit_is_not_the_answer_to_it():
    no = {"punctual.dev/state": "Refused", "punctual.dev/message": "old"}
    before = batch_body(meta={"generation": 0})
    made, one = applied(ordinary(**no), there=before)
    assert one.changed == "configured"
    made.kubectl.answers["get"] = ordinary(**no)
    made._look(one)
    assert one.answer == SILENT
    made.kubectl.answers["get"] = ordinary(**no | {"punctual.dev/message": "new"})
    made._look(one)
    assert one.job.message == "new"


def test_an_ordinary_job_takes_its_offer_by_its_annotation():
    offer = {"earliestDeadline": "50m", "earliestDeadlineTime": "2030-01-01T00:50:00Z", **OFFER}
    made, one = applied(ordinary(), accept=True, patch=ordinary("3000s"))
    one.job = job_of(held("2030-01-01T00:45:00Z", offer=offer))
    made._accept(one)
    assert "patch jobs.batch nightly" in made.kubectl.said[-1]
    assert '"punctual.dev/deadline": "3000s"' in made.kubectl.said[-1]
    assert (one.accepted, one.answer) == (True, SILENT)
    assert made._about(held("2030-01-01T00:45:00Z")) is None
    assert made._about(held("2030-01-01T00:50:00Z")) is one


@pytest.mark.parametrize("more", [{"labels": {}}, {"asked": {}}])
def test_a_job_that_asks_for_no_deadline_is_applied_and_not_followed(more):
    made = Submission(Told(apply={"kind": "Job"} | batch_body(**more), get=NOTHING), "ns", accept=False)
    made.apply("{}")
    assert made.jobs == {}


def test_a_missing_pool_is_not_said_to_have_answered(capsys):
    answers.submitted([submitted(status="False", reason="PoolNotFound")], timeout=60.0, output="table")
    waits = capsys.readouterr().out
    assert "not answered yet\n" in waits
    assert "it waits for the pool until its deadline" in waits
    answers.submitted([submitted("Refused", status="False", reason="PoolNotFound")], timeout=60.0, output="table")
    refused = capsys.readouterr().out
    assert "refused\n" in refused
    assert "by pool" not in waits + refused


def test_a_job_that_fails_while_it_is_measured_is_told_at_once_with_the_cause(capsys):
    one = submitted("Failed", status="Unknown", reason="Measuring")
    one.job = replace(one.job, reason="ChunkFailed", message="units 0-1 failed 4 times: exit code 3")
    answers.submitted([one], timeout=60.0, output="table")
    said = capsys.readouterr().out
    assert "d/a created: failed\n" in said
    assert "ChunkFailed: units 0-1 failed 4 times: exit code 3" in said
    answers.submitted([one], timeout=60.0, output="json")
    assert json.loads(capsys.readouterr().out)[0]["answer"] == "failed"


def test_a_missing_answer_counts_more_than_a_refusal():
    no, yes = submitted("Refused", status="False"), submitted(status="True")
    assert [status(found) for found in ([yes], [yes, no], [no, submitted()], [])] == [0, 1, 2, 0]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert failing("submit", str(tmp_path / "none.yaml")).startswith(f"{tmp_path}/none.yaml: cannot be read: ")


# completion and name


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["ca"], ["cancel"]),
        (["why", ""], ["runs", "runs-pod-1", "no"]),
        (["why", "-n", "default", "r"], ["runs", "runs-pod-1"]),
        (["why", "tr/"], ["tr/solver", "tr/waves"]),
        (["why", "-n", "default", "tr/w"], ["tr/waves"]),
        (["why", "job/"], []),
        (["cancel", "runs", ""], ["runs-pod-1", "no"]),
        (["pools", "m"], ["main"]),
        (["top", "--context", ""], ["kind", "prod"]),
        (["top", "--on"], ["--once"]),
        (["top", "-o", "w"], ["wide"]),
        (["why", "zzz"], []),
        (["simulate", "j"], ["jobs"]),
        (["simulate", "jobs", "--order", ""], ["EDF", "FIFO", "MWF"]),
        (["pools", "main", ""], []),
        (["top", "-n", ""], ["main"]),
        (["nothing", ""], []),
    ],
    ids=" ".join,
)
def test_words_and_names_are_completed(cluster, words, candidates):
    assert completion.answer(app, words).splitlines() == [*candidates, ":4"]
    calls = (cluster / "calls").read_text() if (cluster / "calls").exists() else ""
    assert len(re.findall("get[ -]", calls)) <= 1, "one call of kubectl"


def test_files_are_completed_by_the_shell(cluster):
    assert completion.answer(app, ["plan", ""]) == ":0"
    assert completion.answer(app, ["submit", "--timeout", "5", "job"]) == ":0"


def test_a_cluster_that_does_not_answer_completes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert completion.answer(app, ["why", ""]) == ":4"


def test_completion_imports_nothing_heavy():
    lines = [
        "import sys; sys.argv = ['/x/kubectl_complete-punctual', 'wh']",
        "from punctual import cli",
        "cli.main()",
        "print([m for m in ('pydantic', 'numpy', 'rich', 'yaml') if m in sys.modules])",
    ]
    told = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["why", ":4", "[]"]


@pytest.mark.parametrize(("file", "name"), [("kubectl-punctual", "kubectl punctual"), ("punctual", "punctual")])
def test_help_and_errors_have_the_name_that_was_typed(file, name):
    command = Path(sys.executable).with_name(file)
    said = subprocess.run([command, "crds", "--help"], capture_output=True, text=True, check=True).stdout
    assert f"Usage: {name} crds" in said
    assert f"To install them: {name} crds | kubectl apply" in said
    wrong = subprocess.run([command, "timeline", "/nowhere"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr.split(":")[0]) == (2, name)
    assert (
        "--install-completion" in subprocess.run([command, "-h"], capture_output=True, text=True, check=True).stdout
    ) == (name == "punctual")


def test_only_words_that_are_commands_get_another_name(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/kubectl-punctual"])
    assert program.spoken("punctual watch --record; charts/punctual plan; punctual tops") == (
        "kubectl punctual watch --record; charts/punctual plan; punctual tops"
    )
