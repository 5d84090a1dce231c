"""What the real API server makes of our CRDs: it takes them and their rules, and refuses what is wrong by name."""

import contextlib
import copy
import json
import ssl
import uuid
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import pytest
import yaml

from punctual.errors import UserError
from punctual.kube.api import (
    KINDS,
    AppliedSpec,
    ChunkRecord,
    Condition,
    CostInForce,
    CountedRange,
    DivisibleJob,
    DivisibleJobStatus,
    MissCountStatus,
    OfferStatus,
    PilotSampleStatus,
    Pool,
    PoolNode,
    PoolStatus,
    ProcessorsOffer,
    PromiseStatus,
    Reservation,
    ReservationStatus,
    Startup,
    TargetRate,
    TargetRateStatus,
    UnitCounts,
    UnitRange,
    parse,
    parse_status,
)
from punctual.kube.known.jobs import Owner
from punctual.kube.known.translate import job_status
from punctual.scheduling.model.job import Job, JobRecord
from punctual.verdict import Verdict

BAD = yaml.safe_load((Path(__file__).parents[1] / "manifests" / "bad.yaml").read_text())
BY_NAME = {kind.NAMES.kind: kind for kind in KINDS}
EXAMPLES = {kind.NAMES.kind: yaml.safe_load(kind.EXAMPLE) for kind in KINDS}
NOW = 1_893_596_645.5
PROMISE = PromiseStatus(deadline=NOW + 2700, finish=NOW + 2600, margin=2.5, processors=3, start=NOW)


def spoil(case):
    manifest = at = copy.deepcopy(EXAMPLES[case["kind"]])
    *path, last = (int(step) if step.isdigit() else step for step in case["at"].split("."))
    for step in path:
        at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
    if "to" in case:
        at[last] = case["to"]
    else:
        del at[last]
    return manifest


@pytest.fixture(scope="module")
def post(kubeconfig):
    """Post an object; answer with the status code and the body. kubectl would take its time 90 times over."""
    config = json.loads(kubeconfig.read_text())
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trust))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(path, body):
        request = Request(cluster["server"] + path, json.dumps(body).encode(), headers)
        try:
            with opener.open(request, timeout=60) as response:
                return response.status, json.load(response)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    return call


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_a_bad_manifest_is_refused_by_field_with_what_would_be_right(post, case):
    path = BY_NAME[case["kind"]].NAMES.plural
    if BY_NAME[case["kind"]].NAMES.scope == "Namespaced":
        path = f"namespaces/default/{path}"
    code, answer = post(f"/apis/punctual.dev/v1alpha1/{path}?dryRun=All", spoil(case))
    assert code == 422, answer
    assert case.get("field", case["at"]) in answer["message"]
    assert (case.get("server") or case["says"]) in answer["message"]


def taken(post, kind, at, text):
    """Return whether the API server takes a text in a field, having seen that the operator's parser agrees."""
    manifest = spoil({"kind": kind.NAMES.kind, "at": at, "to": text})
    manifest["metadata"]["name"] = f"taken-{uuid.uuid4().hex[:8]}"  # of other tests, there may be one of its name
    if at == "spec.deadlineTime":
        del manifest["spec"]["deadline"]
    where = kind.NAMES.plural if kind.NAMES.scope == "Cluster" else f"namespaces/default/{kind.NAMES.plural}"
    code, answer = post(f"/apis/punctual.dev/v1alpha1/{where}?dryRun=All", manifest)
    assert code in {201, 422}, answer
    assert code == 201 or (f"{at}: " in answer["message"] and "such as" in answer["message"]), "what would be right"
    with contextlib.nullcontext() if code == 201 else pytest.raises(UserError):
        parse(kind, manifest)
    return code == 201


@pytest.mark.parametrize(
    "text",
    [
        *("1e9", "1E9", "1e+9", "1e009", "1.5Gi", "1.Gi", ".5Gi", "+1Gi", "1G", "104857600.5", "0.1Gi", "2048.1Ki"),
        *("1e12m", "1gi", "1GI", "1GiB", "1 Gi", "1g", "9999999K", "1e3Mi", "0x40000000", "1_000_000_000", "1e"),
    ],
)
def test_memory_is_written_as_in_a_pod(post, text):
    container = {"name": "main", "image": "work", "resources": {"limits": {"memory": text}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {"containers": [container]}}
    code, answer = post("/api/v1/namespaces/default/pods?dryRun=All", pod)
    assert code in {201, 400, 422}, answer
    assert taken(post, Pool, "spec.processor.memory", text) == (code == 201)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        *((text, True) for text in (".5", "1.", "+1", "1e0", "50e-2", "1e3", "1E+3", "0.1Ki", "500000u", "1k")),
        *((text, False) for text in ("1K", "1/2", "0,5", "500M", "1e999", "5e-999")),
    ],
)
def test_cpu_is_written_as_in_a_pod(post, text, good):
    assert taken(post, Pool, "spec.processor.cpu", text) == good


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu", "amd.com/gpu.v2", "a.b-c.example.com/A_b.C-d", "smarter-devices/fuse", f"a.b/{'a' * 63}"]
)
@pytest.mark.parametrize("amount", [1, "2", "1k", "16Gi", "2000m"])
def test_a_processor_may_have_what_a_pod_may_request_of_extended_resources(post, name, amount):
    resources = {"limits": {name: amount}}
    container = {"name": "main", "image": "work", "resources": resources}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {"containers": [container]}}
    assert post("/api/v1/namespaces/default/pods?dryRun=All", pod)[0] == 201
    assert taken(post, Pool, "spec.processor.resources", resources["limits"])


@pytest.mark.parametrize("text", ["100.5m", "0.1005", "100500u", "0.10000000001"])
def test_cpu_has_no_part_of_a_thousandth(post, text):
    manifest = spoil({"kind": "Pool", "at": "spec.processor.cpu", "to": text})
    code, answer = post("/apis/punctual.dev/v1alpha1/pools?dryRun=All", manifest)
    assert code == 422
    assert "write no finer than 1m" in answer["message"]
    with pytest.raises(UserError, match="write no finer than 1m"):
        parse(Pool, manifest)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        *(
            (text, True)
            for text in ("1h30m0s", "90.0s", "100µs", "100μs", "999ns", ".5h", "1.h", "+5m", "0.3333333333333333s")
        ),
        *((text, True) for text in ("0.1000000h", "000000045m", "5256000m", "87600h", "99999999ms")),
        *(
            (text, False)
            for text in ("45M", "1h 30m", "0.5ns", "0", "1e3s", "1d", "PT45M", "45min", ".s", "+", "1h-5m")
        ),
        *((text, False) for text in ("87600.0001h", "100000h", "999999h999999h999999h", "1s999999h999999h999999h")),
    ],
)
def test_a_duration_is_written_as_in_go(post, text, good):
    assert taken(post, DivisibleJob, "spec.deadline", text) == good


@pytest.mark.parametrize(
    ("text", "good"),
    [
        *((f"2030-01-02T15:04:05{end}", True) for end in ("Z", "+02:00", "-00:00", ".5Z", ".1234567891234Z")),
        *((f"2030-01-02T15:04:05{end}", False) for end in ("", "z", "+0200", "+02", " UTC", "+24:00", ",5Z", ".Z")),
        *(
            (f"2030-01-02{rest}", False)
            for rest in ("t15:04:05Z", " 15:04:05Z", "T15:04Z", "T15:04:60Z", "T24:00:00Z", "")
        ),
        *((text, False) for text in ("20300102T150405Z", "1893596645", "2030-1-2T15:04:05Z")),
    ],
)
def test_a_time_is_that_of_rfc_3339_with_an_offset(post, text, good):
    assert taken(post, DivisibleJob, "spec.deadlineTime", text) == good


class Object:
    """One object of the server, changed as a user (spec) or as an operator (status) would."""

    def __init__(self, kubectl, kind, name, **spec):
        self.kubectl, self.kind = kubectl, kind
        self.manifest = copy.deepcopy(EXAMPLES[kind.NAMES.kind])
        self.manifest["metadata"]["name"] = name
        self.manifest["spec"] |= spec
        self.where = [kind.NAMES.plural, name]
        self.kubectl("create", "-f", "-", input=json.dumps(self.manifest), check=True)

    def edit(self, **spec):
        return self.kubectl("patch", *self.where, "--type=merge", "-p", json.dumps({"spec": spec}))

    def write_status(self, status, manager="punctual"):
        own = {"apiVersion": "punctual.dev/v1alpha1", "kind": self.kind.NAMES.kind, "metadata": {"name": self.where[1]}}
        if status is not None:
            own["status"] = status.manifest()
        return self.kubectl(
            "apply",
            "--server-side",
            "--subresource=status",
            f"--field-manager={manager}",
            "-f",
            "-",
            input=json.dumps(own),
        )

    def read(self):
        return json.loads(self.kubectl("get", *self.where, "-o", "json", check=True).stdout)

    def row(self, *options):
        return self.kubectl("get", *self.where, *options, check=True).stdout.splitlines()


def test_defaults_are_filled_in_as_documented(kubectl):
    job = Object(kubectl, DivisibleJob, "defaults")
    spec = job.read()["spec"]
    assert {k: spec[k] for k in spec.keys() - {"template", "units", "pool", "deadline"}} == {
        "class": "Guaranteed",
        "cost": {"perUnit": "20ms", "transferPerUnit": "0s", "transferSetup": "0s", "startup": "2s"},
        "processors": {"min": 1},
        "restart": "Redo",
        "onRefusal": "Stop",
        "chunkRetries": 3,
        "imagePullTimeout": "5m",
        "podRetention": "Failed",
        "stallTimeout": "1m",
        "onMiss": "Continue",
        "dryRun": False,
        "suspend": False,
    }
    assert spec["template"] == EXAMPLES["DivisibleJob"]["spec"]["template"]
    assert parse(DivisibleJob, job.read()).spec == parse(DivisibleJob, job.manifest).spec

    pool = Object(kubectl, Pool, "defaults", processor={"cpu": 1})
    assert pool.read()["spec"]["processor"] == {"cpu": 1, "memory": "2Gi", "period": "100ms"}
    assert pool.read()["spec"]["headroom"] == "12.5%"
    assert parse(Pool, pool.read()).spec == parse(Pool, pool.manifest).spec


def test_an_unknown_field_is_told_to_the_user(kubectl):
    manifest = copy.deepcopy(EXAMPLES["DivisibleJob"])
    manifest["spec"]["dedline"] = "45m"
    done = kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(manifest))
    assert 'unknown field "spec.dedline"' in done.stderr


@pytest.mark.parametrize("field", ["tolerations_", "containers.0.imagePullPolcy"])
def test_an_unknown_field_of_a_template_is_told_to_the_user_and_dropped(kubectl, post, field):
    manifest = spoil({"kind": "DivisibleJob", "at": f"spec.template.spec.{field}", "to": "Always"})
    manifest["metadata"]["name"] = "unknown-field"
    done = kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(manifest))
    assert f'unknown field "spec.template.spec.{field.replace(".0", "[0]")}"' in done.stderr
    code, answer = post("/apis/punctual.dev/v1alpha1/namespaces/default/divisiblejobs?dryRun=All", manifest)
    assert code == 201
    assert answer["spec"]["template"] == EXAMPLES["DivisibleJob"]["spec"]["template"]


def test_all_of_a_pod_may_stand_in_the_template(kubectl):
    spec = {
        "containers": [
            {"name": "main", "image": "i", "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"memory": 5}}}
        ],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}],
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
    }
    job = Object(kubectl, DivisibleJob, "whole-pod", template={"metadata": {"labels": {"a": "b"}}, "spec": spec})
    assert job.read()["spec"]["template"] == {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    assert parse(DivisibleJob, job.read()).spec.template.spec.manifest() == spec


def test_a_full_status_comes_back_as_it_was_written(kubectl):
    job = Object(kubectl, DivisibleJob, "full-status")
    status = DivisibleJobStatus(
        conditions=[
            Condition(type="Admitted", status="True", reason="Feasible", message="m", last_transition_time=NOW)
        ],
        epoch=7,
        observed_generation=1,
        promise=PROMISE,
        offer=OfferStatus(
            earliest_deadline=3000,
            earliest_deadline_time=NOW + 3060,
            valid_until_time=NOW,
            largest_load=10**15,
            processors=ProcessorsOffer(more=3, begin=NOW, until=NOW + 60),
        ),
        cost=CostInForce(per_unit=1 / 3, startup=2),
        units=UnitCounts(done=5, running=4, total=9),
        progress="55%",
        eta=NOW,
        slack=-3,
        completed=[UnitRange(begin=0, end=5)],
        failed=[CountedRange(begin=5, end=9, count=2)],
        tried=[CountedRange(begin=5, end=9, count=3)],
        chunks=[
            ChunkRecord(
                begin=5,
                end=9,
                origin=12,
                node="n",
                attempt=3,
                pod="p",
                created_time=NOW,
                promised_end=NOW,
                offered_end=8,
                leftover=True,
            )
        ],
        pilots=[PilotSampleStatus(units=5, seconds=0.25)],
        start_time=NOW,
        finish_time=NOW,
        applied=AppliedSpec(deadline_time=NOW),
    )
    done = job.write_status(status)
    assert done.returncode == 0, done.stderr
    assert parse(DivisibleJob, job.read()).status == status

    pool = Object(kubectl, Pool, "full-status")
    status = PoolStatus(
        conditions=[Condition(type="Ready", status="True", reason="Ready", last_transition_time=NOW)],
        epoch=7,
        observed_generation=1,
        processors=8,
        free=3,
        queue=1,
        nodes=[PoolNode(name="a", processors=8), PoolNode(name="b", processors=0, reason="StaticCPUManager")],
        miss_ratio=MissCountStatus(bound=0.6543, ratio=0.1, due=3, missed=1, until=NOW),
        startup=Startup(p50=1.5, p95=2.25, samples=[1.5, 2.25]),
        applied=parse(Pool, pool.manifest).spec,
    )
    done = pool.write_status(status)
    assert done.returncode == 0, done.stderr
    assert parse(Pool, pool.read()).status == status


def test_the_largest_status_fits_into_an_object(kubectl):
    job = Object(kubectl, DivisibleJob, "largest")
    node = "node-0123456789.of-a-cluster.example"
    status = DivisibleJobStatus(
        epoch=1,
        completed=[UnitRange(begin=10**14 + 2 * i, end=10**14 + 2 * i + 1) for i in range(4096)],
        chunks=[
            ChunkRecord(
                begin=2 * i, end=2 * i + 1, node=node, attempt=i, pod=f"largest-{i}", created_time=NOW, promised_end=NOW
            )
            for i in range(4096)
        ],
    )
    done = job.write_status(status)
    assert done.returncode == 0, done.stderr[:500]


def test_the_reduce_pod_of_the_largest_job_can_be_written_down(kubectl):
    job = Object(kubectl, DivisibleJob, "largest-reduce", units=10**15)
    last = {"begin": 10**15, "end": 10**15 + 1}
    chunk = ChunkRecord(**last, node="n", attempt=0, kind="Reduce", created_time=NOW, promised_end=NOW)
    done = job.write_status(DivisibleJobStatus(tried=[CountedRange(**last, count=1)], chunks=[chunk]))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("epoch", "taken"),
    [(4, False), (0, False), (None, False), (5, True), (6, True)],
    ids=["older", "none", "absent", "same", "newer"],
)
@pytest.mark.parametrize("kind", [Pool, DivisibleJob])
def test_an_older_leader_cannot_write(kubectl, kind, epoch, taken):
    status = {Pool: PoolStatus, DivisibleJob: DivisibleJobStatus}[kind]
    thing = Object(kubectl, kind, f"fence-{epoch}".lower())
    assert thing.write_status(status(epoch=5)).returncode == 0
    done = thing.write_status(status(epoch=epoch))
    assert (done.returncode == 0) is taken
    if not taken:
        assert "status.epoch: Invalid value" in done.stderr
        assert ": epoch must not fall" in done.stderr
        assert thing.read()["status"]["epoch"] == 5


def test_a_status_cannot_be_dropped_to_get_around_the_fence(kubectl):
    job = Object(kubectl, DivisibleJob, "dropped")
    assert job.write_status(DivisibleJobStatus(epoch=5)).returncode == 0
    done = job.write_status(None)
    assert "epoch must not fall" in done.stderr
    assert job.read()["status"]["epoch"] == 5


OTHER_TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "render:2"}]}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("units", 5),
        ("pool", "other"),
        ("template", OTHER_TEMPLATE),
        ("cost", {"perUnit": "1ms"}),
        ("cost", None),
        ("reduce", {"duration": "1s", "template": OTHER_TEMPLATE}),
        ("restart", "Resume"),
        ("dryRun", True),
    ],
)
def test_what_a_promise_counts_on_is_fixed_while_it_stands(kubectl, field, value):
    job = Object(kubectl, DivisibleJob, f"fixed-{field}-{value is None}".lower())
    assert job.write_status(DivisibleJobStatus(epoch=1, promise=PROMISE)).returncode == 0
    done = job.edit(**{field: value})
    assert f"spec.{field}: Invalid value" in done.stderr
    assert f"{field} cannot change while a promise stands" in done.stderr
    assert job.write_status(DivisibleJobStatus(epoch=1)).returncode == 0
    done = job.edit(**{field: value})  # no promise, no rule
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("units", "taken"), [(40, True), (60, False), (90, True), (93, False), (95, True), (10, True), (9, False)]
)
def test_fewer_units_than_a_range_that_is_done_are_refused_where_results_are_put_together(kubectl, units, taken):
    reduce = {"duration": "1s", "template": OTHER_TEMPLATE}
    job = Object(kubectl, DivisibleJob, f"whole-{units}", units=100, reduce=reduce)
    completed = [UnitRange(begin=0, end=10), UnitRange(begin=40, end=90)]
    chunks = [ChunkRecord(begin=90, end=95, kind="Pilot", node="n1", attempt=0, created_time=NOW, promised_end=NOW)]
    assert job.write_status(DivisibleJobStatus(epoch=1, completed=completed, chunks=chunks)).returncode == 0
    done = job.edit(units=units)
    assert (done.returncode == 0) is taken, done.stderr
    if not taken:
        assert "spec.units: Invalid value" in done.stderr
        assert "units cannot end within units that are done" in done.stderr
        assert job.edit(units=units, reduce=None).returncode == 0, "without a reduce nobody asks for results"


def test_a_profile_is_fixed_while_a_promise_stands(kubectl):
    job = Object(kubectl, DivisibleJob, "fixed-profile", cost=None, profile="a")
    assert job.write_status(DivisibleJobStatus(epoch=1, promise=PROMISE)).returncode == 0
    assert "profile cannot change while a promise stands" in job.edit(profile="b").stderr


def test_deadline_suspend_and_the_like_may_change_at_any_time(kubectl):
    job = Object(kubectl, DivisibleJob, "editable")
    assert job.write_status(DivisibleJobStatus(epoch=1, promise=PROMISE)).returncode == 0
    for change in (
        {"deadline": "1h"},
        {"suspend": True},
        {"onMiss": "Stop"},
        {"ttlSecondsAfterFinished": 5},
        {"deadline": None, "deadlineTime": "2030-01-02T15:04:05Z"},
    ):
        done = job.edit(**change)
        assert done.returncode == 0, done.stderr


def test_the_answer_to_a_dry_run_binds_nobody(kubectl):
    job = Object(kubectl, DivisibleJob, "dry-run", dryRun=True)
    assert job.write_status(DivisibleJobStatus(epoch=1, promise=PROMISE)).returncode == 0
    done = job.edit(units=7, dryRun=False)
    assert done.returncode == 0, done.stderr


def test_conditions_are_kept_by_type_and_the_rest_is_owned_whole(kubectl):
    job = Object(kubectl, DivisibleJob, "owners")
    one = Condition(type="Admitted", status="True", reason="Feasible", last_transition_time=NOW)
    assert job.write_status(DivisibleJobStatus(conditions=[one])).returncode == 0
    two = Condition(type="Seen", status="True", reason="Seen", last_transition_time=NOW)
    theirs = {"apiVersion": "punctual.dev/v1alpha1", "kind": "DivisibleJob", "metadata": {"name": "owners"}}
    theirs["status"] = {"conditions": [two.manifest()]}
    kubectl(
        "apply",
        "--server-side",
        "--subresource=status",
        "--field-manager=other",
        "-f",
        "-",
        input=json.dumps(theirs),
        check=True,
    )
    assert {c["type"] for c in job.read()["status"]["conditions"]} == {"Admitted", "Seen"}


def test_columns_of_a_job(kubectl):
    job = Object(kubectl, DivisibleJob, "columns")
    heads = "NAME STATE DEADLINE PROGRESS ETA SLACK AGE"
    assert job.row()[0].split() == heads.split()
    status = DivisibleJobStatus(
        state="Running",
        reason="Feasible",
        conditions=[Condition(type="Admitted", status="True", reason="Feasible", last_transition_time=NOW)],
        promise=PROMISE,
        progress="42%",
        eta=1_893_596_645,
        slack=120,
        applied=AppliedSpec(deadline_time=1_893_599_345),
    )
    assert job.write_status(status).returncode == 0
    assert job.row()[1].split()[:6] == [
        "columns",
        "Running",
        "2030-01-02T15:49:05Z",
        "42%",
        "2030-01-02T15:04:05Z",
        "2m",
    ]
    head, row = job.row("-o", "wide")
    assert head.split() == [*heads.split(), "ADMITTED", "POOL", "UNITS", "FINISH", "REASON"]
    assert row.split()[7:] == ["True", "main", "120000", "2030-01-02T15:47:25.500000Z", "Feasible"]


YES, ON_TRACK = Verdict("True", "Feasible", ""), Verdict("True", "OnTrack", "")
RECORDS = {
    "Measuring": JobRecord(admitted=Verdict("Unknown", "Measuring", "")),
    "Refused": JobRecord(admitted=Verdict("False", "InfeasibleCapacity", "")),
    "Running": JobRecord(admitted=YES, on_track=ON_TRACK, started=NOW),
    "Late": JobRecord(admitted=YES, on_track=Verdict("False", "Overrun", ""), started=NOW),
    "Failed": JobRecord(failed_condition=Verdict("True", "ChunkFailed", ""), started=NOW, finished=NOW),
    "Missed": JobRecord(completed_condition=Verdict("True", "DeadlineMissed", ""), started=NOW, finished=NOW),
    "Completed": JobRecord(completed_condition=Verdict("True", "Completed", ""), started=NOW, finished=NOW),
}


def test_each_state_of_a_job_looks_different_in_its_first_column(kubectl):
    asked = Job(uid="", namespace="default", name="", arrival=NOW, units=9, deadline=NOW + 60, cost=None)
    for state, record in RECORDS.items():
        job = Object(kubectl, DivisibleJob, f"state-{state.lower()}")
        owner = Owner(uid="", namespace="default", name="", pool="main", units=9)
        status = job_status(record, asked, owner=owner, transition_times={}, now=NOW)
        assert job.write_status(parse_status(DivisibleJobStatus, {"status": status})).returncode == 0
    head, *rows = [line.split() for line in kubectl("get", "dj", check=True).stdout.splitlines()]
    assert head[:2] == ["NAME", "STATE"]
    shown = {row[0]: row[1] for row in rows}
    assert {state: shown[f"state-{state.lower()}"] for state in RECORDS} == {state: state for state in RECORDS}
    finished = "Refused", "Completed", "Missed", "Failed"
    unfinished = ",".join(["spec.pool=main", *(f"status.state!={state}" for state in finished)])
    listed = kubectl("get", "dj", "-o", "name", "--field-selector", unfinished, check=True).stdout.split()
    ours = {name.rpartition("/state-")[2] for name in listed if "/state-" in name}
    assert ours == {"measuring", "running", "late"}
    done = ["wait", "--for=jsonpath={.status.state}=Completed", "dj/state-completed", "--timeout=60s"]
    assert "condition met" in kubectl(*done, check=True).stdout


def test_columns_of_a_pool(kubectl):
    pool = Object(kubectl, Pool, "columns")
    ready = Condition(type="Ready", status="True", reason="Ready", last_transition_time=NOW)
    status = PoolStatus(conditions=[ready], processors=8, free=3, queue=0, miss_ratio=MissCountStatus(bound=0.6543))
    assert pool.write_status(status).returncode == 0
    assert pool.row()[0].split() == ["NAME", "PROCESSORS", "FREE", "QUEUE", "BOUND", "READY", "AGE"]
    assert pool.row()[1].split()[:6] == ["columns", "8", "3", "0", "0.6543", "True"]


def test_a_reservation_cannot_be_changed_and_shows_its_next_window(kubectl):
    reservation = Object(kubectl, Reservation, "columns")
    assert "a reservation cannot be changed" in reservation.edit(processors=3).stderr
    status = ReservationStatus(epoch=1, state="Booked", start=NOW, end=NOW + 60, processors=8)
    assert reservation.write_status(status).returncode == 0
    assert reservation.row()[0].split() == ["NAME", "START", "END", "PROCESSORS", "STATE", "AGE"]
    times = ["2030-01-02T15:04:05.500000Z", "2030-01-02T15:05:05.500000Z"]
    assert reservation.row()[1].split()[:5] == ["columns", *times, "8", "Booked"]
    assert "epoch must not fall" in reservation.write_status(ReservationStatus(epoch=0)).stderr


def test_a_target_rate_shows_how_it_stands_and_keeps_its_pool(kubectl):
    rate = Object(kubectl, TargetRate, "columns")
    assert "the pool cannot be changed" in rate.edit(pool="other").stderr
    assert rate.edit(rate="0.1%", period={"max": "1s"}).returncode == 0
    assert rate.edit(rate="40%", period={"min": "1ms", "max": "2500us"}).returncode == 0
    assert rate.edit(rate="Balanced", period={"min": "1ms", "max": "9ms"}).returncode != 0
    assert rate.edit(rate="Balanced", period={"min": "1ms", "max": "10ms"}).returncode == 0
    query = 'solver:iterations_total{namespace="default",path=~"/a\\\\.{2}\\"}",job!=""}'
    assert rate.edit(iterations={"query": query}).returncode == 0
    assert rate.edit(iterations={"query": "n_total"}).returncode == 0
    assert rate.read()["spec"]["coscheduling"] == "None"
    assert rate.edit(coscheduling="Aligned").returncode == 0
    status = TargetRateStatus(epoch=1, target=0.4, rate=0.396, error="-0.4%", quota="424m", max_rate=0.5,
                              offset=0.025, skew=0.0003)  # fmt: skip
    assert rate.write_status(status).returncode == 0
    assert rate.row()[0].split() == ["NAME", "TARGET", "ACTUAL", "ERROR", "QUOTA", "AGE"]
    assert rate.row()[1].split()[:5] == ["columns", "40%", "39.6%", "-0.4%", "424m"]
    assert {key: rate.read()["status"][key] for key in ("offset", "skew")} == {"offset": "25ms", "skew": "300us"}
    status = TargetRateStatus(epoch=1, target=0.8, load=0.9, quota="800m")
    assert rate.write_status(status).returncode == 0
    assert rate.row()[1].split()[:3] == ["columns", "80%", "800m"]
    assert rate.read()["status"]["load"] == 0.9
    assert "epoch must not fall" in rate.write_status(TargetRateStatus(epoch=0)).stderr


def test_a_pool_bounds_aligned_slices(kubectl):
    pool = Object(kubectl, Pool, "slices")
    assert pool.read()["spec"]["maxSlice"] == "50ms"
    assert pool.edit(maxSlice="20ms").returncode == 0
    assert "from 1ms to 1s" in pool.edit(maxSlice="1500ms").stderr


def test_a_pool_has_shares_of_namespaces_and_a_horizon_of_promises(kubectl):
    pool = Object(kubectl, Pool, "shares")
    spec = pool.read()["spec"]
    assert (spec["maxShare"], spec["promiseHorizon"]) == ("100%", "4w")
    many = [{"namespace": f"{'n' * 60}{n:03}", "maxShare": "1%"} for n in range(64)]
    assert pool.edit(maxShare="12.5%", namespaceShares=many, promiseHorizon="10d").returncode == 0
    assert "name each namespace once" in pool.edit(namespaceShares=[many[0], many[0]]).stderr
    assert "must have at most 64 items" in pool.edit(namespaceShares=[*many, {**many[0], "namespace": "n"}]).stderr


def test_short_name_and_category(kubectl):
    assert kubectl("get", "dj", check=True)
    assert kubectl("get", "tr", check=True)
    for kind in KINDS:
        assert kubectl("apply", "--server-side", "-f", "-", input=kind.EXAMPLE).returncode == 0
    names = kubectl("get", "punctual", "-A", "-o", "name", check=True).stdout.split()
    assert {"pool.punctual.dev/main", "divisiblejob.punctual.dev/render", "profile.punctual.dev/thumbnails"} <= set(
        names
    )


@pytest.mark.parametrize(
    ("field", "taught"),
    [
        ("dj.spec.deadline", "`45m`, `1h30m`"),
        ("dj.spec.cost.perUnit", "CPU time of one unit"),
        ("dj.spec.template.spec.containers", "PUNCTUAL_BEGIN"),
        ("dj.spec.template", "How a chunk's pod looks"),
        ("dj.spec.template.spec.containers.livenessProbe.httpGet", "port <"),
        ("dj.spec.template.spec.hostAliases", "kubectl explain pod.spec.hostAliases"),
        ("dj.spec.reduce.template.spec.volumes.emptyDir", "sizeLimit"),
        ("dj.status.offer.earliestDeadlineTime", "put it into `spec.deadlineTime`"),
        ("pool.spec.headroom", "perUnit / (1 - r)"),
        ("profile.spec.startup", "2s before that"),
        ("tr.spec.maxRate", "`120/s`, `8/min`"),
    ],
)
def test_kubectl_explain_teaches(kubectl, field, taught):
    assert taught in " ".join(kubectl("explain", field, check=True).stdout.split())
