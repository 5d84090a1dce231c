"""What an ordinary Job with a deadline must be, and the DivisibleJob that is made of it."""

import orjson
import pytest
from batch_bodies import GATE, TOLERATION, batch_body

from punctual import reasons
from punctual.kube import api
from punctual.kube.api.fields import MAX_PROCESSORS
from punctual.kube.cluster.batch_jobs import Parallelism, project_job
from punctual.kube.kinds.batch.contract import closing, divisible_job, edited, gated, limited, opening, refusal
from punctual.scheduling.model.resources import Resources

GPU = "example.com/gpu"
SHARE = Resources(1.0, 2**30, ((GPU, 2),))
DEADLINE, DEADLINE_TIME, COST, PROFILE, ANYWAY = (
    f"punctual.dev/{name}" for name in ("deadline", "deadline-time", "cost-per-unit", "profile", "start-anyway")
)
LATER = "2030-01-01T06:00:00Z"


def job(**more):
    return project_job(batch_body(**more))


def owned_by(kind):
    return {"ownerReferences": [{"kind": kind, "name": "x", "uid": "x", "controller": True}]}


def beside(*, init=None, **requests):
    """Return a pod spec with a container that requests so much, and an init container."""
    container = {"name": "a", "image": "a", "resources": {"requests": requests}}
    return {"containers": [container], **({"initContainers": [init]} if init else {})}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"asked": {DEADLINE: "soon"}}, [f"metadata.annotations[{DEADLINE}]", "is not a duration: write"]),
        ({"asked": {DEADLINE: "45"}}, [f"metadata.annotations[{DEADLINE}]", "'45' is not a duration", "45s"]),
        ({"asked": {DEADLINE_TIME: "tomorrow"}}, [f"metadata.annotations[{DEADLINE_TIME}]", "'tomorrow'"]),
        ({"asked": {DEADLINE: "45m", DEADLINE_TIME: LATER}}, [DEADLINE, DEADLINE_TIME, "not both"]),
        ({"asked": {COST: "20s"}}, [f"set {DEADLINE}, such as 45m, or {DEADLINE_TIME}"]),
        ({"asked": {}}, [f"set {DEADLINE}, such as 45m, or {DEADLINE_TIME}"]),
        ({"completions": None}, ["spec.completions: set how many pods have to succeed"]),
        ({"completions": 0}, ["spec.completions: set how many pods have to succeed"]),
        ({"parallelism": 0}, ["spec.parallelism is 0", "set 1 or more"]),
        ({"asked": {DEADLINE_TIME: LATER}, "meta": owned_by("CronJob")}, [DEADLINE_TIME, "CronJob", f"set {DEADLINE}"]),
        (
            {"meta": owned_by("JobSet")},
            ["a JobSet, which starts its Jobs itself", "remove the label punctual.dev/pool"],
        ),
        (
            {"labels": {"punctual.dev/pool": "main", "kueue.x-k8s.io/queue-name": "lq"}},
            ["the queue lq of Kueue, which starts it", "or the label punctual.dev/pool"],
        ),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, ["kueue.x-k8s.io/multikueue, which starts it"]),
        ({"asked": {DEADLINE: "45m", COST: "cheap"}}, [f"metadata.annotations[{COST}]", "is not a duration: write"]),
        ({"asked": {DEADLINE: "45m", COST: "0s"}}, [f"metadata.annotations[{COST}] is 0", "such as 20s"]),
        ({"asked": {DEADLINE: "45m", COST: "2s", PROFILE: "p"}}, [f"set {COST} or {PROFILE}, not both"]),
        ({"asked": {DEADLINE: "45m", ANYWAY: "yes"}}, [f"metadata.annotations[{ANYWAY}] is 'yes'", "write true, "]),
        ({"asked": {DEADLINE: "45m", ANYWAY: ""}}, [f"metadata.annotations[{ANYWAY}] is ''", "or false"]),
        ({"cpu": None}, ["requests.cpu: a pod requests 0 in all", "has 1: request some"]),
        ({"cpu": "0", "memory": None}, ["requests.cpu: a pod requests 0 in all", "has 1: request some"]),
    ],
)
def test_a_job_that_cannot_be_asked_for_is_told_the_field_and_what_is_right(more, words):
    found = refusal(job(**more), SHARE)
    assert found.reason == reasons.INVALID_SPEC
    for word in words:
        assert word in found.message


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"cpu": "1500m"},
            "requests.cpu: a pod requests 1500m in all, and a processor of the pool has 1: request no more",
        ),
        (
            {"memory": "2Gi"},
            "requests.memory: a pod requests 2Gi in all, and a processor of the pool has 1Gi: request no",
        ),
        (
            {"pod": beside(cpu="1", init={"name": "i", "image": "i", "resources": {"limits": {"cpu": "2"}}})},
            "requests 2 ",
        ),
        (
            {"pod": beside(**{"cpu": "1", GPU: "3"})},
            f"requests.{GPU}: a pod requests 3 in all, and a processor of the pool has 2: request no more",
        ),
        (
            {"pod": beside(**{"cpu": "1", "example.com/fpga": "1"})},
            "requests.example.com/fpga: a pod requests 1 in all, and a processor of the pool has 0: request no more",
        ),
        ({"pod": {"resources": {"requests": {"cpu": "2"}}}}, "requests.cpu: a pod requests 2 in all"),
    ],
)
def test_pods_larger_than_a_processor_are_told_both_numbers(more, words):
    found = refusal(job(**more), SHARE)
    assert found.reason == reasons.POD_TOO_LARGE
    assert words in found.message


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"asked": {DEADLINE: "45m"}},
        {"asked": {DEADLINE: "45m", PROFILE: "p"}},
        {"asked": {DEADLINE: "45m", ANYWAY: "true"}},
        {"asked": {DEADLINE: "45m", ANYWAY: "false"}},
        {"asked": {DEADLINE_TIME: LATER}},
        {"meta": owned_by("CronJob")},
        {"meta": owned_by("Workflow")},
        {"managedBy": "kubernetes.io/job-controller"},
        {"completions": 10_000, "parallelism": 5_000},
        {"completionMode": "NonIndexed"},
        {"parallelism": None},
        {"cpu": "1m", "memory": None},
        {"cpu": "500m", "memory": "1Gi"},
        {"pod": beside(**{"cpu": "1", GPU: "2"})},
        {"pod": beside(**{"cpu": "1", GPU: "1", "ephemeral-storage": "9Gi"})},
        {"pod": {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}}},
        {"pod": beside(cpu="1", init={"name": "i", "image": "i", "resources": {"requests": {"cpu": "1"}}})},
        {"pod": {"schedulingGates": [GATE, {"name": "example.org/quota"}]}},
    ],
)
def test_other_jobs_are_taken_and_their_divisible_job_is_one_that_the_schema_takes(more):
    found = job(**more)
    assert refusal(found, SHARE) is None
    body = divisible_job(found, NOW)
    body["metadata"] |= {"uid": "u", "generation": 1, "creationTimestamp": "2030-01-01T00:00:00Z"}
    spec = api.parse(api.DivisibleJob, body).spec
    assert (spec.units, spec.job_ref.uid) == (found.completions, "b1")
    assert spec.processors.max == min(found.parallelism.asked, MAX_PROCESSORS)


def test_its_size_is_not_known_to_be_wrong_before_its_pool_is_there():
    assert refusal(job(cpu="64"), None) is None


def test_a_deadline_counts_from_the_creation_of_the_job_and_all_else_is_the_jobs():
    sidecar = {"name": "log", "image": "l:1", "resources": {"limits": {"memory": "1Mi", "cpu": "1", GPU: "1"}}}
    body = batch_body()
    body["spec"]["template"]["metadata"] = {"labels": {"app": "x"}, "creationTimestamp": None}
    body["spec"]["template"]["spec"]["initContainers"] = [sidecar]
    made = divisible_job(project_job(body), NOW)
    assert made["metadata"] == {
        "name": "nightly",
        "namespace": "ns",
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "b1", "controller": True}
        ],
    }
    assert made["spec"] == {
        "pool": "main",
        "units": 4,
        "deadlineTime": "2030-01-01T00:45:00Z",
        "processors": {"max": 2},
        "chunkRetries": 1000,
        "cost": {"perUnit": "20s"},
        "jobRef": {"name": "nightly", "uid": "b1"},
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "work", "image": "w:1", "resources": {"requests": {"memory": "64Mi"}}}],
                "initContainers": [{"name": "log", "image": "l:1", "resources": {"limits": {"memory": "1Mi"}}}],
            },
        },
    }


OTHER, ELSE = {"name": "example.org/quota"}, {"key": "gpu", "operator": "Exists"}


@pytest.mark.parametrize(
    ("there", "gates", "tolerations"),
    [
        ({}, [GATE], [TOLERATION]),
        ({"schedulingGates": [GATE]}, [GATE], [TOLERATION]),
        ({"schedulingGates": [OTHER], "tolerations": [ELSE]}, [OTHER, GATE], [ELSE, TOLERATION]),
        ({"schedulingGates": [GATE, OTHER], "tolerations": [TOLERATION]}, [GATE, OTHER], [TOLERATION]),
    ],
    ids=["none", "the gate is there", "others", "all is there"],
)
def test_the_patch_that_opens_a_job_adds_what_is_not_there(there, gates, tolerations):
    assert opening(job(pod=there), 2) == {
        "metadata": {"uid": "b1", "annotations": {"punctual.dev/opened": "b1"}},
        "spec": {
            "suspend": False,
            "template": {"spec": {"schedulingGates": gates, "tolerations": tolerations}},
        },
    }


def test_the_patch_that_closes_it_leaves_its_template():
    assert closing("b1", Parallelism(2)) == {
        "metadata": {"uid": "b1", "annotations": {"punctual.dev/opened": None}},
        "spec": {"suspend": True},
    }


def test_opening_allows_the_pods_of_its_chunks_and_closing_gives_its_parallelism_back():
    opened = opening(job(parallelism=200), 12)
    numbers = {"punctual.dev/parallelism": "200", "punctual.dev/parallelism-written": "26"}
    assert opened["metadata"]["annotations"] == {"punctual.dev/opened": "b1"} | numbers
    assert opened["spec"]["parallelism"] == 26
    closed = closing("b1", job(parallelism=26, asked=OPENED | numbers).parallelism)
    assert closed["metadata"]["annotations"] == dict.fromkeys({"punctual.dev/opened"} | numbers.keys())
    assert closed["spec"] == {"parallelism": 200, "suspend": True}


def test_a_gate_in_the_template_does_not_mean_that_the_operator_opened_the_job():
    found = job(pod={"schedulingGates": [GATE]})
    assert gated(found)
    assert not found.opened
    assert job(asked={"punctual.dev/opened": "b1"}).opened
    assert not job(asked={"punctual.dev/opened": "b0"}).opened, "a copy of another Job"


OPENED = {DEADLINE: "45m", COST: "20s", "punctual.dev/opened": "b1"}
ALLOWED = OPENED | {"punctual.dev/parallelism": "200", "punctual.dev/parallelism-written": "26"}
BEGUN = {"startTime": "2030-01-01T00:02:00Z"}
NOW = 1893456060.0
"""A minute after the Job's creation."""


@pytest.mark.parametrize(
    ("more", "refused", "edit"),
    [
        ({}, False, {}),
        ({"asked": {DEADLINE: "50m"}}, False, {"deadlineTime": "2030-01-01T00:50:00Z"}),
        ({"asked": {DEADLINE_TIME: "2030-01-01T01:45:00+01:00"}}, False, {}),
        ({"parallelism": 3}, False, {"processors": {"max": 3}}),
        ({"parallelism": 26, "asked": ALLOWED}, False, {"processors": {"max": 200}, "suspend": True}),
        ({"parallelism": 100, "asked": ALLOWED}, False, {"processors": {"max": 100}, "suspend": True}),
        ({"completions": 6}, False, {"units": 6}),
        ({"activeDeadlineSeconds": 600}, False, {"deadlineTime": "2030-01-01T00:11:00Z"}),
        ({"activeDeadlineSeconds": 6000}, False, {}),
        ({"activeDeadlineSeconds": 600, "asked": OPENED, "suspend": False}, False, {}),
        (
            {"activeDeadlineSeconds": 600, "asked": OPENED, "suspend": False, "status": BEGUN},
            False,
            {"deadlineTime": "2030-01-01T00:12:00Z"},
        ),
        ({"parallelism": 0, "asked": {DEADLINE: "50m"}}, False, {}),
        ({"asked": {DEADLINE: "45m", ANYWAY: "true"}}, True, {"onRefusal": "Continue"}),
        ({"asked": {DEADLINE: "45m", ANYWAY: "false"}}, True, {}),
        ({"asked": {DEADLINE: "45m", ANYWAY: "yes"}}, True, {}),
        ({"asked": {DEADLINE: "never"}, "parallelism": 3}, False, {}),
        ({"asked": {}}, False, {}),
        ({"asked": OPENED}, False, {"suspend": True}),
        ({"asked": OPENED, "suspend": False}, False, {}),
        ({"asked": OPENED}, True, {}),
        ({"asked": OPENED | {DEADLINE: "never"}}, False, {"suspend": True}),
        (
            {"asked": OPENED, "suspend": False, "status": {"conditions": [{"type": "Failed", "status": "True"}]}},
            False,
            {},
        ),
    ],
)
def test_an_edit_of_a_job_is_one_of_its_divisible_job_unless_it_is_flawed(more, refused, edit):
    there = divisible_job(job(), NOW)["spec"] | {"restart": "Redo"}
    there["processors"] |= {"min": 1}
    assert edited(job(**more), orjson.loads(orjson.dumps(there)), NOW, refused=refused) == edit


@pytest.mark.parametrize(
    ("said", "wanted", "edit"),
    [
        ("true", "Continue", {}),
        ("false", None, {"onRefusal": "Stop"}),
        (None, None, {"onRefusal": "Stop"}),
        ("no", None, {}),
    ],
)
def test_a_job_says_whether_it_starts_although_it_is_refused(said, wanted, edit):
    notes = {DEADLINE: "45m", COST: "20s"} | ({} if said is None else {ANYWAY: said})
    made = divisible_job(job(asked=notes), NOW)["spec"]
    assert made.get("onRefusal") == wanted
    assert edited(job(asked=notes), made | {"onRefusal": "Continue"}, NOW, refused=False) == edit


def test_a_divisible_job_whose_user_has_written_a_time_span_is_given_the_moment_again():
    there = {name: value for name, value in divisible_job(job(), NOW)["spec"].items() if name != "deadlineTime"}
    for more in ({}, {"activeDeadlineSeconds": 6000}):
        edit = edited(job(**more), there | {"deadline": "9m"}, NOW, refused=False)
        assert edit == {"deadlineTime": "2030-01-01T00:45:00Z"}


def test_a_job_that_its_user_resumes_is_asked_for_again():
    there = divisible_job(job(), NOW)["spec"] | {"suspend": True}
    assert edited(job(asked=OPENED, suspend=False), there, NOW, refused=False) == {"suspend": False}


@pytest.mark.parametrize(
    ("more", "deadline"),
    [
        ({}, "2030-01-01T00:45:00Z"),
        ({"activeDeadlineSeconds": 600}, "2030-01-01T00:11:00Z"),
        ({"activeDeadlineSeconds": 600, "status": BEGUN}, "2030-01-01T00:12:00Z"),
        ({"activeDeadlineSeconds": 6000}, "2030-01-01T00:45:00Z"),
    ],
)
def test_a_job_is_promised_before_its_controller_would_end_it(more, deadline):
    assert divisible_job(job(**more), NOW)["spec"]["deadlineTime"] == deadline


@pytest.mark.parametrize(
    ("more", "earliest", "said"),
    [
        ({}, 900.0, ""),
        ({"activeDeadlineSeconds": 6000}, 900.0, ""),
        ({"activeDeadlineSeconds": 600}, None, "spec.activeDeadlineSeconds: 600 ends the Job before its deadline"),
        (
            {"activeDeadlineSeconds": 600},
            900.5,
            "spec.activeDeadlineSeconds: 600 ends the Job before its deadline: set 901 or more",
        ),
    ],
)
def test_a_time_limit_that_is_too_short_is_told_with_both_numbers(more, earliest, said):
    assert limited(job(**more), NOW, earliest) == said


def test_memory_is_not_compared_with_a_processor_that_names_none():
    assert refusal(job(memory="64Gi"), Resources(1.0)) is None
