import copy
from dataclasses import replace

import pytest

from punctual.kube.podspec import ForeignPod, Owner, chunk_pod, is_chunk_of, pod_name, project_pod
from punctual.scheduling.events import PodObserved
from punctual.scheduling.job import Chunk
from punctual.scheduling.spec import PoolSpec

OWNER = Owner(uid="8b1f6b3e-0000-4000-8000-000000000001", namespace="ns", name="render", pool="main", units=1000)
PROCESSOR = PoolSpec(name="main", cpu=0.5, memory=2**31)
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "img", "args": ["--from=$(PUNCTUAL_BEGIN)"]}]}}


def chunk(**more):
    values = {"begin": 0, "end": 90, "origin": 100, "node": "n1", "attempt": 2, "created": 0.0, "promised_end": 60.0}
    return Chunk(**{**values, **more})


def pod(template=TEMPLATE, owner=OWNER, processor=PROCESSOR, results=(), **more):
    return chunk_pod(owner, chunk(**more), template, processor=processor, epoch=7, results=results)


def test_the_name_says_which_attempt_of_which_range_of_which_job_and_nothing_else():
    name = pod_name(OWNER, chunk())
    assert name.startswith("render-")
    assert pod_name(OWNER, chunk(end=80, node="n2", created=9.0)) == name  # a cut changes no name
    others = [chunk(begin=1), chunk(attempt=3), chunk(kind="Pilot")]
    assert len({name, pod_name(OWNER._replace(uid="other"), chunk()), *(pod_name(OWNER, c) for c in others)}) == 5


def test_a_pod_is_a_chunk_of_its_job_only_in_its_place_under_its_name():
    said = project_pod(body())
    assert is_chunk_of(OWNER, said)
    assert not is_chunk_of(OWNER, replace(said, namespace="other"))
    assert not is_chunk_of(OWNER, replace(said, attempt=3))
    assert not is_chunk_of(OWNER._replace(uid="other"), said)


@pytest.mark.parametrize("name", ["a" * 253, "x" * 39 + "." + "y" * 20, "a.b"])
def test_names_and_labels_stay_within_what_kubernetes_takes(name):
    made = pod(owner=OWNER._replace(name=name, pool="p" * 62 + ".more"))
    assert len(made["metadata"]["name"]) <= 53
    assert ".-" not in made["metadata"]["name"]
    for value in made["metadata"]["labels"].values():
        assert len(value) <= 63
        assert value[-1].isalnum()


def test_the_pod_is_the_jobs_own():
    meta = pod()["metadata"]
    assert meta["namespace"] == "ns"
    assert meta["labels"] == {
        "punctual.dev/pool": "main",
        "punctual.dev/job": "render",
        "punctual.dev/job-uid": OWNER.uid,
        "punctual.dev/kind": "Chunk",
    }
    assert meta["annotations"] == {
        "punctual.dev/begin": "0",
        "punctual.dev/end": "100",
        "punctual.dev/attempt": "2",
        "punctual.dev/epoch": "7",
    }
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("DivisibleJob", OWNER.uid, True)


def test_the_first_container_gets_one_processor():
    assert pod()["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "2Gi"},
        "limits": {"cpu": "500m", "memory": "2Gi"},
    }


def test_memory_of_the_template_wins_over_the_pools():
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}, "claims": [{"name": "c"}]}
    assert pod(template)["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m"},
        "limits": {"cpu": "500m", "memory": "64Mi"},
        "claims": [{"name": "c"}],
    }


def test_our_variables_come_before_the_templates_so_that_it_may_refer_to_them():
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["env"] = [{"name": "OUT", "value": "/out/$(PUNCTUAL_BEGIN)"}]
    env = pod(template, begin=3)["spec"]["containers"][0]["env"]
    assert {e["name"]: e["value"] for e in env} == {
        "PUNCTUAL_JOB": "render",
        "PUNCTUAL_BEGIN": "3",
        "PUNCTUAL_END": "100",
        "PUNCTUAL_TOTAL": "1000",
        "PUNCTUAL_ATTEMPT": "2",
        "PUNCTUAL_DIR": "/punctual",
        "OUT": "/out/$(PUNCTUAL_BEGIN)",
    }
    assert env[-1]["name"] == "OUT"


def test_the_input_step_has_the_folder_too():
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["initContainers"] = [{"name": "fetch", "image": "img"}]
    (init,) = pod(template)["spec"]["initContainers"]
    assert {"name": "punctual", "mountPath": "/punctual"} in init["volumeMounts"]
    assert "resources" not in init


def node_terms(made):
    affinity = made["spec"]["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


HERE = {"key": "metadata.name", "operator": "In", "values": ["n1"]}


def test_the_pod_is_for_its_node_alone():
    assert node_terms(pod()) == [{"matchFields": [HERE]}]


def test_the_templates_own_affinity_stays_and_every_alternative_is_on_the_node():
    ssd, zone = ({"matchExpressions": [{"key": k, "operator": "Exists"}]} for k in ("ssd", "zone"))
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["affinity"] = {
        "podAntiAffinity": {"x": 1},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ssd, zone]}},
    }
    made = pod(template)
    assert node_terms(made) == [{**ssd, "matchFields": [HERE]}, {**zone, "matchFields": [HERE]}]
    assert made["spec"]["affinity"]["podAntiAffinity"] == {"x": 1}


def test_the_pod_tolerates_its_pools_taint_and_never_restarts():
    spec = pod()["spec"]
    assert spec["tolerations"] == [
        {"key": "punctual.dev/pool", "operator": "Equal", "value": "main", "effect": "NoSchedule"}
    ]
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False


def test_a_token_is_mounted_where_the_template_asks_for_it():
    template = {"spec": {**TEMPLATE["spec"], "automountServiceAccountToken": True}}
    assert pod(template)["spec"]["automountServiceAccountToken"] is True


def test_the_reduce_pod_finds_all_results_in_one_folder():
    made = pod(kind="Reduce", begin=0, end=0, origin=0, results=[{"configMap": {"name": "r-0"}}])
    volume = next(v for v in made["spec"]["volumes"] if v["name"] == "punctual-results")
    assert volume["projected"] == {"sources": [{"configMap": {"name": "r-0"}}]}
    first = made["spec"]["containers"][0]
    assert {"name": "PUNCTUAL_RESULTS", "value": "/punctual-results"} in first["env"]
    assert first["volumeMounts"][-1]["mountPath"] == "/punctual-results"
    assert all(v["name"] != "punctual-results" for v in pod()["spec"]["volumes"])


def test_the_template_is_left_as_it_was():
    before = copy.deepcopy(TEMPLATE)
    pod()
    assert before == TEMPLATE


def body(status=None, **meta):
    """Return our pod as the API server shows it."""
    made = pod()
    made["metadata"] |= {"uid": "p1", "creationTimestamp": "1970-01-01T00:00:10Z", **meta}
    return {**made, "status": {"phase": "Pending", **(status or {})}}


def main_container(**state):
    return {"containerStatuses": [{"name": "side", "state": {}}, {"name": "main", "state": state}]}


def observed(**more):
    values = {
        "name": pod_name(OWNER, chunk()),
        "uid": "p1",
        "namespace": "ns",
        "job": OWNER.uid,
        "kind": "Chunk",
        "begin": 0,
        "end": 100,
        "attempt": 2,
        "node": "n1",
        "phase": "Pending",
        "created": 10.0,
    }
    return PodObserved(**{**values, **more})


RUNNING = main_container(running={"startedAt": "1970-01-01T00:00:12Z"})
ENDED = {"startedAt": "1970-01-01T00:00:12Z", "finishedAt": "1970-01-01T00:00:20Z"}
FAILED_INIT = {
    "initContainerStatuses": [{"name": "in", "state": {"terminated": {**ENDED, "exitCode": 4, "reason": "Error"}}}],
    **main_container(waiting={"reason": "PodInitializing"}),
}
UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True"}], "reason": "Evicted", "phase": "Failed"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, observed(), id="new"),
        pytest.param(UNSCHEDULABLE, observed(reason="Unschedulable"), id="no room"),
        pytest.param({**UNSCHEDULABLE, "nominatedNodeName": "n1"}, observed(reason="Nominated"), id="room is made"),
        pytest.param(
            main_container(waiting={"reason": "ImagePullBackOff"}), observed(reason="ImagePullBackOff"), id="no image"
        ),
        pytest.param({"phase": "Running", **RUNNING}, observed(phase="Running", started=12.0), id="runs"),
        pytest.param(
            {"phase": "Succeeded", **main_container(terminated={**ENDED, "exitCode": 0, "message": "42"})},
            observed(phase="Succeeded", started=12.0, finished=20.0, exit_code=0, message="42"),
            id="done",
        ),
        pytest.param(
            {"phase": "Failed", **main_container(terminated={**ENDED, "exitCode": 137, "reason": "OOMKilled"})},
            observed(phase="Failed", started=12.0, finished=20.0, exit_code=137, reason="OOMKilled"),
            id="out of memory",
        ),
        pytest.param(
            {"phase": "Failed", **FAILED_INIT},
            observed(phase="Failed", finished=20.0, exit_code=4, reason="Error"),
            id="input step failed",
        ),
        pytest.param(DISRUPTED, observed(phase="Failed", reason="Evicted", disrupted=True), id="evicted"),
    ],
)
def test_what_is_kept_of_our_pod(status, expected):
    assert project_pod(body(status)) == expected


def test_a_pod_that_is_bound_is_where_it_was_bound():
    bound = body()
    bound["spec"] = {**bound["spec"], "nodeName": "n9"}
    assert project_pod(bound).node == "n9"


def test_a_pod_that_is_going_says_so():
    assert project_pod(body(deletionTimestamp="1970-01-01T00:01:00Z")).deleting


def test_a_label_alone_makes_no_pod_ours():
    stranger = body(ownerReferences=[])
    stranger["spec"] = {**stranger["spec"], "nodeName": "n1"}
    assert project_pod(stranger) == ForeignPod("p1", "n1", 0.5, 2**31, since=10.0)


@pytest.mark.parametrize(
    ("conditions", "since"),
    [
        ([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}], 60.0),
        ([{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}], 0.0),  # when it was made
    ],
)
def test_a_foreign_pod_says_how_important_it_is_and_since_when_it_has_its_node(conditions, since):
    meta = {"name": "x", "uid": "f1", "creationTimestamp": "1970-01-01T00:00:00Z"}
    spec = {"nodeName": "n1", "containers": [asks("1")], "priority": 7}
    found = project_pod({"metadata": meta, "spec": spec, "status": {"conditions": conditions}})
    assert found == ForeignPod("f1", "n1", 1.0, 0, priority=7, since=since)


def test_a_chunk_takes_its_room_from_placeholders_by_the_class_it_is_given_unless_it_has_one():
    held = PoolSpec(name="main", cpu=0.5, hold="Placeholder")
    free = PoolSpec(name="main", cpu=0.5)
    own = {"spec": {**TEMPLATE["spec"], "priorityClassName": "own"}}

    def given(template, processor):
        body = chunk_pod(OWNER, chunk(), template, processor=processor, epoch=1, priority_class="chunks")
        return body["spec"].get("priorityClassName")

    assert [given(TEMPLATE, held), given(own, held), given(TEMPLATE, free)] == ["chunks", "own", None]


def asks(cpu, memory="0", **more):
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def foreign(spec, phase="Running"):
    meta = {"name": "x", "uid": "f1", "creationTimestamp": "1970-01-01T00:00:00Z"}
    return project_pod({"metadata": meta, "spec": {"nodeName": "n1", **spec}, "status": {"phase": phase}})


@pytest.mark.parametrize(
    ("spec", "cpu", "memory"),
    [
        pytest.param({"containers": [asks("250m", "1Mi"), asks("1", "1.5Mi")]}, 1.25, 2621440, id="sum"),
        pytest.param({"containers": [{"name": "c"}]}, 0.0, 0, id="best effort"),
        pytest.param({"containers": [asks("1")], "initContainers": [asks("3"), asks("2")]}, 3.0, 0, id="init"),
        pytest.param(
            {"containers": [asks("1")], "initContainers": [asks("1", restartPolicy="Always"), asks("3")]},
            4.0,
            0,
            id="sidecar beside a later init",
        ),
        pytest.param(
            {"containers": [asks("3")], "initContainers": [asks("3"), asks("1", restartPolicy="Always")]},
            4.0,
            0,
            id="sidecar beside the containers",
        ),
        pytest.param({"containers": [asks("1")], "overhead": {"cpu": "250m"}}, 1.25, 0, id="overhead"),
        pytest.param(
            {"containers": [asks("1", "1Mi")], "resources": {"requests": {"cpu": "5"}}}, 5.0, 2**20, id="pod level"
        ),
    ],
)
def test_the_room_of_a_foreign_pod_is_what_the_scheduler_counts(spec, cpu, memory):
    assert foreign(spec) == ForeignPod("f1", "n1", cpu, memory)


def test_a_foreign_pod_takes_room_only_while_it_is_on_a_node_and_not_at_its_end():
    spec = {"containers": [asks("1")]}
    assert foreign(spec, phase="Succeeded") is None
    assert foreign(spec, phase="Failed") is None
    assert foreign({**spec, "nodeName": None}, phase="Pending") is None
