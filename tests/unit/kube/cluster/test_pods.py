import copy
import json
from dataclasses import replace

import pytest
from batch_bodies import owned_by_job

from punctual import reasons
from punctual.kube.cluster.pod_manifest import InputStep, chunk_pod, memory_of
from punctual.kube.cluster.pods import ForeignPod, project_pod
from punctual.kube.known.jobs import Owner
from punctual.kube.known.pod_names import is_chunk_of, pod_name
from punctual.scheduling.model.events import Helper, PodObserved
from punctual.scheduling.model.job import Chunk, InputVersion, Transfer
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import Resources

OWNER = Owner(uid="8b1f6b3e-0000-4000-8000-000000000001", namespace="ns", name="render", pool="main", units=1000)
PROCESSOR = PoolSpec(name="main", cpu=0.5, memory=2**31)
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "img", "args": ["--from=$(PUNCTUAL_BEGIN)"]}]}}


def chunk(**more):
    values = {"begin": 0, "end": 90, "origin": 100, "node": "n1", "attempt": 2, "created": 0.0, "promised_end": 60.0}
    return Chunk(**{**values, **more})


def pod(template=TEMPLATE, owner=OWNER, processor=PROCESSOR, results=(), step=None, **more):
    return chunk_pod(owner, chunk(**more), template, processor=processor, epoch=7, results=results, step=step)


def test_the_name_says_which_attempt_of_which_range_of_which_job_and_nothing_else():
    name = pod_name(OWNER, chunk())
    assert name.startswith("render-")
    assert pod_name(OWNER, chunk(end=80, node="n2", created=9.0)) == name  # a cut changes no name
    others = [chunk(begin=1), chunk(attempt=3), chunk(kind="Pilot")]
    assert len({name, pod_name(OWNER._replace(uid="other"), chunk()), *(pod_name(OWNER, c) for c in others)}) == 5


def test_a_pod_is_a_chunk_of_its_job_only_in_its_place_under_its_name():
    said = project_pod(body())
    assert is_chunk_of(OWNER, said)
    assert not is_chunk_of(OWNER, said._replace(namespace="other"))
    assert not is_chunk_of(OWNER, said._replace(attempt=3))
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
        "punctual.dev/work": "main",
    }
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("DivisibleJob", OWNER.uid, True)


def test_the_first_container_gets_one_processor():
    assert pod()["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "2Gi"},
        "limits": {"cpu": "500m", "memory": "2Gi"},
    }


@pytest.mark.parametrize(("cpu", "pods", "asked"), [(0.5, 2, "250m"), (1.0, 3, "333m"), (0.01, 16, "1m")])
def test_where_pods_share_processors_each_requests_its_part_and_may_use_a_whole_one(cpu, pods, asked):
    processor = PoolSpec(name="main", cpu=cpu, memory=2**31, admission="Utilization", pods_per_processor=pods)
    found = pod(processor=processor)["spec"]["containers"][0]["resources"]
    assert found["requests"]["cpu"] == asked
    assert found["limits"]["cpu"] == {0.5: "500m", 1.0: "1", 0.01: "10m"}[cpu]


def test_the_end_of_a_failed_containers_log_is_its_message_unless_the_template_says_otherwise():
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["initContainers"] = [{"name": "unpack", "image": "img"}]
    template["spec"]["containers"].append({"name": "b", "image": "img", "terminationMessagePolicy": "File"})
    made = with_input(HTTP, template)["spec"]
    policies = [c["terminationMessagePolicy"] for c in (*made["initContainers"], *made["containers"])]
    assert policies == ["FallbackToLogsOnError"] * 3 + ["File"]


def test_memory_of_the_template_wins_over_the_pools():
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}, "claims": [{"name": "c"}]}
    assert pod(template)["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m"},
        "limits": {"cpu": "500m", "memory": "64Mi"},
        "claims": [{"name": "c"}],
    }


def test_a_guests_pod_asks_for_neither_cpu_nor_memory_and_keeps_what_else_it_asks_for():
    asked = {"requests": {"memory": "1Gi", "example.com/disk": 1}, "limits": {"memory": "2Gi", "example.com/disk": 1}}
    containers = [{"name": "main", "resources": asked}, {"name": "beside"}]
    init = [{"name": "first", "resources": {"limits": {"memory": "1Gi"}}}]
    whole = {"resources": {"limits": {"memory": "4Gi"}}}
    template = {"spec": {"containers": containers, "initContainers": init, **whole}}
    made = pod(template, kind="Guest")
    assert made["metadata"]["labels"]["punctual.dev/kind"] == "Guest"
    spec = made["spec"]
    left = {"requests": {"example.com/disk": 1}, "limits": {"example.com/disk": 1}}
    none = {"requests": {}, "limits": {}}
    resources = [part["resources"] for part in (*spec["containers"], *spec["initContainers"], spec)]
    assert resources == [left, none, none, none]
    assert template["spec"]["containers"][0]["resources"] == asked


@pytest.mark.parametrize(
    ("containers", "whole", "named"),
    [
        ([{}], {}, 0),
        ([{"limits": {"memory": "2Gi"}}], {}, 2**31),
        ([{"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}], {}, 2**31),
        ([{"limits": {"memory": "1Gi"}}, {"requests": {"memory": "1Gi"}}], {}, 2**31),
        ([{"limits": {"memory": "1Gi"}}], {"limits": {"memory": "2Gi"}}, 2**31),
    ],
)
def test_the_memory_that_a_template_names_is_that_of_its_containers_together(containers, whole, named):
    spec = {"containers": [{"name": f"c{n}", "resources": asked} for n, asked in enumerate(containers)]}
    assert memory_of({**spec, "resources": whole}) == named


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
        "PUNCTUAL_RESULT_LIMIT": "4095",
        "OUT": "/out/$(PUNCTUAL_BEGIN)",
    }
    assert env[-1]["name"] == "OUT"


def test_the_input_step_has_the_folder_too():
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["initContainers"] = [{"name": "fetch", "image": "img"}]
    (init,) = pod(template)["spec"]["initContainers"]
    assert {"name": "punctual", "mountPath": "/punctual"} in init["volumeMounts"]
    assert "resources" not in init


HTTP = {"input": {"http": {"url": "http://files/a"}, "cut": "Lines"}, "stallTimeout": "1m30s"}
VOLUME = {"input": {"volume": {"claimName": "data", "path": "a/b"}, "cut": "Records", "recordBytes": 8, "image": "own"}}


def with_input(spec, template=TEMPLATE, **more):
    return pod(template, step=InputStep.of(spec, image="punctual:1"), **more)


def env_of(container):
    return {e["name"]: e["value"] for e in container["env"]}


def test_an_input_is_fetched_before_all_else_into_a_folder_that_all_see():
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["initContainers"] = [{"name": "unpack", "image": "img"}]
    made = with_input(HTTP, template)["spec"]
    ours, theirs = made["initContainers"]
    assert (ours["image"], ours["command"]) == ("punctual:1", ["python3", "-m", "punctual.fetch"])
    env = env_of(ours)
    assert env["PUNCTUAL_INPUT_URL"] == "http://files/a"
    assert (env["PUNCTUAL_INPUT_CUT"], env["PUNCTUAL_INPUT_TIMEOUT"]) == ("Lines", "90")
    assert (env["PUNCTUAL_BEGIN"], env["PUNCTUAL_END"], env["PUNCTUAL_TOTAL"]) == ("0", "100", "1000")
    assert theirs["name"] == "unpack"
    for container in (ours, theirs, made["containers"][0]):
        assert env_of(container)["PUNCTUAL_INPUT"] == "/punctual-input/data"
        assert {"name": "punctual-input", "mountPath": "/punctual-input"} in container["volumeMounts"]
    assert {"name": "punctual-input", "emptyDir": {}} in made["volumes"]
    assert ours["resources"]["limits"]["cpu"] == "500m"


def test_secrets_reach_the_step_alone_by_reference_behind_the_address():
    headers = [
        {"name": "Authorization", "secretKeyRef": {"name": "archive", "key": "token"}},
        {"name": "X-Tenant", "secretKeyRef": {"name": "us", "key": "id"}},
    ]
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["initContainers"] = [{"name": "unpack", "image": "img"}]
    made = with_input({"input": {"http": {"url": "http://files/a", "headers": headers}}}, template)["spec"]
    (ours, *others) = (*made["initContainers"], *made["containers"])
    env = {e["name"]: e.get("value", e.get("valueFrom")) for e in ours["env"]}
    assert env["PUNCTUAL_INPUT_HEADERS"] == "Authorization X-Tenant"
    assert env["PUNCTUAL_INPUT_HEADER_0"] == {"secretKeyRef": {"name": "archive", "key": "token"}}
    assert env["PUNCTUAL_INPUT_HEADER_1"] == {"secretKeyRef": {"name": "us", "key": "id"}}
    # $(PUNCTUAL_INPUT_HEADER_0) in the address stays as it is: what stands behind is not put in
    assert list(env).index("PUNCTUAL_INPUT_URL") < list(env).index("PUNCTUAL_INPUT_HEADER_0")
    assert not any("HEADER" in e["name"] for container in others for e in container["env"])


def test_a_volume_is_mounted_for_the_step_alone_and_cannot_be_written():
    made = with_input(VOLUME)["spec"]
    (ours,), (main,) = made["initContainers"], made["containers"]
    assert ours["image"] == "own"
    env = env_of(ours)
    assert env["PUNCTUAL_INPUT_PATH"] == "/punctual-source/a/b"
    assert (env["PUNCTUAL_INPUT_CUT"], env["PUNCTUAL_INPUT_RECORD_BYTES"]) == ("Records", "8")
    assert {"name": "punctual-source", "mountPath": "/punctual-source", "readOnly": True} in ours["volumeMounts"]
    assert not any(m["name"] == "punctual-source" for m in main["volumeMounts"])
    (source,) = (v for v in made["volumes"] if v["name"] == "punctual-source")
    assert source["persistentVolumeClaim"] == {"claimName": "data", "readOnly": True}


@pytest.mark.parametrize(("given", "user"), [({}, 65532), ({"runAsUser": 1000}, 1000), ({"runAsUser": 0}, 0)])
def test_the_step_may_nothing_and_is_who_the_pod_is(given, user):
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["securityContext"] = given
    (ours,) = with_input(HTTP, template)["spec"]["initContainers"]
    context = ours["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"]) == (user, user != 0)
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_a_reduce_fetches_nothing():
    made = with_input(HTTP, kind="Reduce")
    assert made == pod(kind="Reduce")


def test_a_chunk_that_has_its_turn_already_is_made_with_it():
    assert "punctual.dev/fetch" not in with_input(HTTP)["metadata"]["annotations"]
    notes = with_input(HTTP, turn=12.5)["metadata"]["annotations"]
    assert notes["punctual.dev/fetch"] == "1970-01-01T00:00:12.500000Z"
    told = with_input(HTTP)["spec"]["volumes"][1]["downwardAPI"]["items"]
    paths = {item["path"]: item["fieldRef"]["fieldPath"] for item in told}
    assert paths["fetch"] == "metadata.annotations['punctual.dev/fetch']"


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
        "requests": Resources(),
    }
    return PodObserved(**{**values, **more})


RUNNING = main_container(running={"startedAt": "1970-01-01T00:00:12Z"})
ENDED = {"startedAt": "1970-01-01T00:00:12Z", "finishedAt": "1970-01-01T00:00:20Z"}
WELL = {**ENDED, "exitCode": 0, "reason": "Completed"}
BESIDE = {"name": "side", "state": {"terminated": {**ENDED, "exitCode": 2, "reason": "Error", "message": "no route"}}}
FAILED_INIT = {
    "initContainerStatuses": [{"name": "in", "state": {"terminated": {**ENDED, "exitCode": 4, "reason": "Error"}}}],
    **main_container(waiting={"reason": "PodInitializing"}),
}


def fetched(message, code=0):
    ended = {"terminated": {**ENDED, "exitCode": code, "message": message}}
    return {"initContainerStatuses": [{"name": "punctual-input", "state": ended}]}


def no_secret(step):
    said = {"reason": "CreateContainerConfigError", "message": 'secret "archive" not found'}
    return {
        "initContainerStatuses": [{"name": step, "state": {"waiting": said}}],
        **main_container(waiting={"reason": "PodInitializing"}),
    }


def unplaced(message, reason="Unschedulable"):
    said = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"conditions": [said]}


FULL = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
UNSCHEDULABLE = unplaced(FULL)
NO_CLAIM = '0/3 nodes are available: persistentvolumeclaim "data" not found.'
MISFIT = "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) didn't match …"
UNSEEN = {"reason": "NotSeen", "message": "no scheduler named default-scheduler has looked at it"}
SAID = "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi."
LOST = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "The container could not be located"}
DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True"}], "reason": "Evicted", "phase": "Failed"}


GPU = "example.com/gpu"
NO_DEVICE = f"0/3 nodes are available: 1 Insufficient {GPU}, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
REJECTED = f"Pod was rejected: Node didn't have enough resource: {GPU}, requested: 1, used: 2, capacity: 2"


def test_a_chunk_requests_the_extended_resources_of_its_processor():
    made = pod(processor=replace(PROCESSOR, others=((GPU, 2),)))
    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {
        "requests": {"cpu": "500m", "memory": "2Gi", GPU: "2"},
        "limits": {"cpu": "500m", "memory": "2Gi", GPU: "2"},
    }
    assert made["metadata"]["annotations"]["punctual.dev/processor"] == f"500m 2Gi {GPU}=2"
    assert "punctual.dev/processor" not in pod()["metadata"]["annotations"]


def test_an_input_step_needs_no_device():
    step = InputStep({"http": {"url": "http://a"}}, "img", 60.0)
    spec = pod(processor=replace(PROCESSOR, others=((GPU, 2),)), step=step)["spec"]
    assert GPU not in spec["initContainers"][0]["resources"]["limits"]
    assert spec["containers"][0]["resources"]["limits"][GPU] == "2"


@pytest.mark.parametrize(
    ("status", "others", "reason", "own"),
    [
        pytest.param(unplaced(NO_DEVICE), ((GPU, 1),), "Unschedulable", False, id="of the processor, the scheduler"),
        pytest.param(unplaced(NO_DEVICE), (), "NotPlaced", True, id="of the template, the scheduler"),
        pytest.param(
            {"phase": "Failed", "reason": f"OutOf{GPU}", "message": REJECTED},
            ((GPU, 1),),
            "OutOfExtendedResource",
            False,
            id="of the processor, the kubelet",
        ),
        pytest.param(
            {"phase": "Failed", "reason": f"OutOf{GPU}", "message": REJECTED},
            (("example.com/nic", 1),),
            f"OutOf{GPU}",
            True,
            id="of the template, the kubelet",
        ),
    ],
)
def test_a_lack_of_devices_is_lost_capacity_if_they_are_the_processors_own(status, others, reason, own):
    made = pod(processor=replace(PROCESSOR, others=others))
    made["metadata"] |= {"uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z"}
    seen = project_pod({**made, "status": status})
    assert seen.reason == reason
    assert seen.own_failure == own
    assert GPU in seen.message + seen.said


def ended_work(outcome, **more):
    usual = {"started": 12.0, "finished": 20.0, "container": "main", "ended": outcome, "helpers": SIDE}
    return observed(**{**usual, **more})


def well(**more):
    return ended_work("Succeeded", **{"exit_code": 0, **more})


def badly(**more):
    return ended_work("Failed", **more)


def stopped(**more):
    return observed(finished=20.0, container="punctual-input", preparing=True, **more)


SIDE = (Helper("side"),)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, observed(**UNSEEN), id="new"),
        pytest.param(UNSCHEDULABLE, observed(reason="Unschedulable", message=FULL), id="no room"),
        pytest.param(
            {**UNSCHEDULABLE, "nominatedNodeName": "n1"}, observed(reason="Nominated", message=FULL), id="room is made"
        ),
        pytest.param(unplaced(NO_CLAIM), observed(reason="NoVolume", message=NO_CLAIM), id="no claim of that name"),
        pytest.param(unplaced(MISFIT), observed(reason="NotPlaced", message=MISFIT), id="a rule of its own"),
        pytest.param(unplaced(""), observed(reason="NotPlaced"), id="the scheduler names nothing"),
        pytest.param(
            unplaced("non-empty scheduling gates", "SchedulingGated"),
            observed(reason="SchedulingGated", message="non-empty scheduling gates"),
            id="a gate",
        ),
        pytest.param(
            main_container(waiting={"reason": "ImagePullBackOff"}), observed(reason="ImagePullBackOff"), id="no image"
        ),
        pytest.param(
            main_container(waiting={"reason": "ErrImagePull", "message": "no such host"}),
            observed(reason="ErrImagePull", message="no such host"),
            id="no image, and why",
        ),
        pytest.param(
            no_secret("punctual-input"),
            observed(
                reason="CreateContainerConfigError",
                message='secret "archive" not found (spec.input.http.headers)',
            ),
            id="no secret for the input",
        ),
        pytest.param(
            no_secret("theirs"),
            observed(reason="CreateContainerConfigError", message='secret "archive" not found'),
            id="no secret of the template's own",
        ),
        pytest.param({"phase": "Running", **RUNNING}, observed(phase="Running", started=12.0), id="runs"),
        pytest.param(
            {"phase": "Succeeded", **main_container(terminated={**ENDED, "exitCode": 0, "message": "42"})},
            well(phase="Succeeded", message="42"),
            id="done",
        ),
        pytest.param(
            {"phase": "Failed", **main_container(terminated={**ENDED, "exitCode": 137, "reason": "OOMKilled"})},
            badly(phase="Failed", exit_code=137, reason="OOMKilled"),
            id="out of memory",
        ),
        pytest.param(
            {"phase": "Failed", "containerStatuses": [BESIDE, {"name": "main", "state": {"terminated": WELL}}]},
            well(phase="Failed", reason="Completed", helpers=(Helper("side", 2, "Error"),)),
            id="another container failed",
        ),
        pytest.param(
            {"phase": "Failed", **FAILED_INIT},
            observed(phase="Failed", finished=20.0, exit_code=4, reason="Error", container="in", preparing=True),
            id="input step failed",
        ),
        pytest.param(
            fetched('{"bytes": 9, "waited": 2, "opening": 0.5, "seconds": 1.5}'),
            observed(fetched=True, transfer=Transfer(9, 0.5, 1.5, 2.0), preparing=True, **UNSEEN),
            id="input is there",
        ),
        pytest.param(
            fetched('{"size": 90, "validator": "\\"a\\""}'),
            observed(fetched=True, input=InputVersion(90, '"a"'), preparing=True, **UNSEEN),
            id="input is there, and which",
        ),
        pytest.param(
            fetched("it has changed", code=65),
            stopped(exit_code=65, message="it has changed", input_changed=True),
            id="another input",
        ),
        pytest.param(
            fetched("busy", code=75),
            stopped(exit_code=75, message="busy", input_unavailable=True),
            id="input is not available",
        ),
        pytest.param(fetched("what?"), observed(fetched=True, preparing=True, **UNSEEN), id="input is there, somehow"),
        pytest.param(fetched("x", code=1), stopped(exit_code=1, message="x"), id="no input"),
        pytest.param(DISRUPTED, observed(phase="Failed", reason="Evicted", disrupted=True), id="evicted"),
        pytest.param(
            {
                "phase": "Failed",
                "reason": "Evicted",
                "message": SAID,
                **main_container(terminated={**ENDED, "exitCode": 137}),
            },
            observed(
                phase="Failed",
                reason="Evicted",
                said=SAID,
                started=12.0,
                finished=20.0,
                exit_code=137,
                container="main",
            ),
            id="evicted, and for which limit",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: no CPU"},
            observed(phase="Failed", reason="OutOfcpu", said="Pod was rejected: no CPU"),
            id="rejected by its kubelet",
        ),
        pytest.param(
            {"phase": "Failed", **main_container(terminated=LOST)},
            observed(
                phase="Failed",
                exit_code=137,
                reason="ContainerStatusUnknown",
                container="main",
                ended="Failed",
                message="The container could not be located",
                helpers=SIDE,
            ),
            id="left behind by a node that has rebooted",
        ),
    ],
)
def test_what_is_kept_of_our_pod(status, expected):
    assert project_pod(body(status)) == expected


def state(code):
    """Return the state of a container: still running, or ended with this exit code."""
    if code is None:
        return {"running": {"startedAt": "1970-01-01T00:00:12Z"}}
    name, _, reason = str(code).partition(" ")
    return {"terminated": {**ENDED, "exitCode": int(name), "reason": reason or ("Error" if code else "Completed")}}


@pytest.mark.parametrize("first", [True, False], ids=["work first", "injected in front"])
@pytest.mark.parametrize(
    ("phase", "work", "side", "outcome", "helpers"),
    [
        ("Running", None, None, None, []),
        ("Running", None, 0, None, []),
        ("Running", None, 3, None, []),
        ("Running", None, "137 OOMKilled", None, []),
        ("Running", 0, None, "Succeeded", [None]),
        ("Pending", 0, None, "Succeeded", [None]),
        ("Succeeded", 0, 0, "Succeeded", []),
        ("Running", 0, 0, None, []),  # its phase follows at once, and until then people see a pod that runs
        ("Failed", 0, 3, "Succeeded", [3]),
        ("Failed", 0, "137 OOMKilled", "Succeeded", [137]),
        ("Succeeded", 0, "0 OOMKilled", "Succeeded", [0]),
        ("Succeeded", "0 OOMKilled", 0, "Succeeded", []),
        ("Running", 5, None, "Failed", [None]),
        ("Running", "137 OOMKilled", None, "Failed", [None]),
        ("Failed", 5, 0, "Failed", []),
        ("Failed", 5, 3, "Failed", [3]),
        ("Failed", "137 OOMKilled", 0, "Failed", []),
    ],
)
def test_the_end_of_the_works_own_container_decides(phase, work, side, outcome, helpers, first):  # noqa: PLR0917  a line of the table
    containers = [{"name": "main", "state": state(work)}, {"name": "proxy", "state": state(side)}]
    shown = body({"phase": phase, "containerStatuses": containers if first else containers[::-1]})
    injected = [{"name": "proxy"}, *shown["spec"]["containers"]]
    shown["spec"] = {**shown["spec"], "containers": injected[::-1] if first else injected}
    seen = project_pod(shown)
    assert seen.outcome == outcome
    assert [h.exit_code for h in seen.helpers] == helpers
    assert seen.detained == (None in helpers)
    assert seen.exit_code == (None if work is None else int(str(work).split()[0]))
    assert seen.runs == (phase == "Running" and outcome is None)


@pytest.mark.parametrize(
    ("phase", "work", "side", "outcome", "held_by"),
    [
        ("Running", None, None, None, ()),
        ("Running", 0, None, None, ("proxy",)),
        ("Running", 5, None, None, ("proxy",)),
        ("Running", 0, 0, None, ()),
        ("Succeeded", 0, 0, "Succeeded", ()),
        ("Failed", 0, 3, "Failed", ()),
        ("Failed", 5, 0, "Failed", ()),
    ],
)
def test_a_pod_of_a_job_has_ended_when_all_its_containers_have(phase, work, side, outcome, held_by):
    containers = [{"name": "main", "state": state(work)}, {"name": "proxy", "state": state(side)}]
    shown = body({"phase": phase, "containerStatuses": containers})
    shown["metadata"]["ownerReferences"] = [owned_by_job("nightly", "b1")]
    shown["spec"] = {**shown["spec"], "containers": [*shown["spec"]["containers"], {"name": "proxy"}]}
    seen = project_pod(shown)
    assert (seen.outcome, seen.held_by, seen.detained) == (outcome, held_by, False)
    assert [remark.reason for remark in seen.remarks if held_by] == [reasons.HELPER_RUNS] * len(held_by)


@pytest.mark.parametrize(
    "outside",
    [
        {"reason": "Evicted"},
        {"reason": "DeadlineExceeded"},
        {"conditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ],
)
def test_work_that_exits_with_0_when_something_ends_its_pod_may_not_be_done(outside):
    containers = [{"name": "main", "state": state(0)}, {"name": "proxy", "state": state(0)}]
    assert project_pod(body({"phase": "Failed", "containerStatuses": containers, **outside})).outcome == "Failed"
    going = body({"phase": "Running", "containerStatuses": containers}, deletionTimestamp="1970-01-01T00:01:00Z")
    assert project_pod(going).outcome is None


def test_the_result_is_that_of_the_work_whatever_was_put_in_front_of_it():
    ends = [
        {"name": name, "state": {"terminated": {**ENDED, "exitCode": 0, "message": name}}} for name in ("proxy", "main")
    ]
    shown = body({"phase": "Succeeded", "containerStatuses": ends})
    shown["spec"]["containers"].insert(0, {"name": "proxy"})
    assert project_pod(shown).message == "main"
    del shown["metadata"]["annotations"]["punctual.dev/work"]
    assert project_pod(shown).message == "proxy", "a pod of an earlier version: its first container"


def test_a_pod_that_names_a_scheduler_that_nothing_serves_says_so():
    shown = body()
    shown["spec"]["schedulerName"] = "vulcano"
    seen = project_pod(shown)
    assert (seen.reason, seen.message) == ("NoScheduler", "no scheduler named vulcano has looked at it")


@pytest.mark.parametrize(("asked", "grace"), [(None, 30.0), (5, 5.0), (0, 1.0)])
def test_a_pods_grace_period_is_what_its_template_says(asked, grace):
    shown = body()
    if asked is not None:
        shown["spec"]["terminationGracePeriodSeconds"] = asked
    assert project_pod(shown).grace == grace


@pytest.mark.parametrize(
    "message",
    [
        "", "[]", "7", "{}", "[" * 2000,
        '{"bytes": -1, "waited": 0, "opening": 0, "seconds": 0}',
        '{"bytes": 1.5, "waited": 0, "opening": 0, "seconds": 0}',
        '{"bytes": 1, "waited": 0, "opening": 2, "seconds": 1}',
        '{"bytes": 1, "waited": 0, "opening": 0, "seconds": NaN}',
        '{"bytes": 1, "waited": Infinity, "opening": 0, "seconds": 1}',
        '{"bytes": 1, "waited": 0, "opening": 0, "seconds": "1"}',
        '{"bytes": true, "waited": 0, "opening": 0, "seconds": 1}',
        '{"bytes": ' + "9" * 5000 + ', "waited": 0, "opening": 0, "seconds": 1}',
    ],
)  # fmt: skip
def test_what_a_step_cannot_have_measured_is_not_believed(message):
    assert project_pod(body(fetched(message))).transfer is None


def beside(count, field="containers"):
    """Return a template with so many containers of a kind beside the first."""
    template = copy.deepcopy(TEMPLATE)
    template["spec"].setdefault(field, []).extend({"name": f"side-{n}", "image": "img"} for n in range(count))
    return template


@pytest.mark.parametrize(
    ("made", "limit"),
    [
        pytest.param(pod(beside(2)), 4095, id="three containers share 12 KiB"),
        pytest.param(pod(beside(4)), 2456, id="five do not"),
        pytest.param(pod(beside(4, "initContainers")), 2456, id="init containers count"),
        pytest.param(with_input(HTTP, beside(2)), 3071, id="so does the input step"),
    ],
)
def test_a_pod_is_told_how_long_a_result_its_kubelet_passes_on(made, limit):
    for container in (*made["spec"].get("initContainers", ()), *made["spec"]["containers"]):
        assert env_of(container).get("PUNCTUAL_RESULT_LIMIT") == str(limit)


def ended(message, template=TEMPLATE, **spec):
    """Return our pod as the API server shows it after its end."""
    found = body({"phase": "Succeeded", **main_container(terminated={**ENDED, "exitCode": 0, "message": message})})
    return {**found, "spec": {**pod(template)["spec"], **spec}}


@pytest.mark.parametrize(
    ("seen", "cut"),
    [
        (ended("x" * 4095), None),
        (ended("x" * 4096), 4096),
        (ended("x" * 2456, beside(4)), None),
        (ended("x" * 2457, beside(4)), 2457),
        pytest.param(ended("x" * 2457, ephemeralContainers=[{}] * 4), 2457, id="added while it ran"),
        pytest.param(ended("é" * 2048), 4096, id="bytes count"),
        pytest.param(ended("\ufffd" + "x" * 4093), 4096, id="cut within a character, as the API server shows it"),
    ],
)
def test_a_message_as_long_as_the_kubelet_lets_through_may_have_been_cut(seen, cut):
    assert project_pod(seen).cut == cut


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("caf\u00e9", None),
        ("caf\ufffd", "ResultNotText"),
        ("\ufffd", "ResultNotText"),
        pytest.param("\ufffd" * 4096, "ResultNotText", id="4096 bytes: each has become three"),
        pytest.param("\ufffd" * 3 + "x" * 4093 + "\ufffd" * 3, "ResultCut", id="cut within two characters"),
        pytest.param("x" * 4095, None, id="as long as may be"),
    ],
)
def test_a_message_that_is_not_what_the_work_has_left_is_no_result(message, reason):
    fault = project_pod(ended(message)).result_fault
    assert (fault and fault.reason) == reason


@pytest.mark.parametrize(
    "said",
    [
        {"size": -1, "validator": ""},
        {"size": 2**53, "validator": ""},
        {"size": True, "validator": ""},
        {"size": 1.0, "validator": ""},
        {"size": 1},
        {"size": 1, "validator": None},
        {"size": 1, "validator": "x" * 65},
        {"size": 1, "validator": "a\nb"},
        {"size": 1, "validator": "\u00fc"},
    ],
)
def test_a_version_that_no_input_can_have_is_not_believed(said):
    assert project_pod(body(fetched(json.dumps(said)))).input is None


def test_a_step_is_told_the_version_that_the_job_began_with_and_nothing_in_it_is_expanded():
    ours = with_input(HTTP)["spec"]["initContainers"][0]
    assert not {"PUNCTUAL_INPUT_SIZE", "PUNCTUAL_INPUT_VALIDATOR"} & env_of(ours).keys()
    step = InputStep.of(HTTP, image="punctual:1", version=InputVersion(90, '"$(PUNCTUAL_INPUT_HEADER_0)$$"'))
    ours = pod(step=step)["spec"]["initContainers"][0]
    assert env_of(ours)["PUNCTUAL_INPUT_SIZE"] == "90"
    assert env_of(ours)["PUNCTUAL_INPUT_VALIDATOR"] == '"$$(PUNCTUAL_INPUT_HEADER_0)$$$$"'
    reduce = pod(step=step, kind="Reduce", begin=0, end=0, origin=0)["spec"]
    assert "initContainers" not in reduce


def test_a_turn_that_was_given_is_seen():
    assert not project_pod(body()).turn
    noted = body()
    noted["metadata"]["annotations"]["punctual.dev/fetch"] = "now"
    assert project_pod(noted).turn


def test_a_pod_that_is_bound_is_where_it_was_bound():
    bound = body()
    bound["spec"] = {**bound["spec"], "nodeName": "n9"}
    assert project_pod(bound).node == "n9"


def test_a_pod_that_is_going_says_so():
    assert project_pod(body(deletionTimestamp="1970-01-01T00:01:00Z")).deleting


def test_a_label_alone_makes_no_pod_ours():
    stranger = body(ownerReferences=[])
    stranger["spec"] = {**stranger["spec"], "nodeName": "n1"}
    assert project_pod(stranger) == ForeignPod("p1", "n1", Resources(0.5, 2**31), since=10.0)


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
    assert found == ForeignPod("f1", "n1", Resources(1.0, 0), priority=7, since=since)


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
    assert foreign(spec) == ForeignPod("f1", "n1", Resources(cpu, memory))


def test_a_foreign_pod_takes_room_only_while_it_is_on_a_node_and_not_at_its_end():
    spec = {"containers": [asks("1")]}
    assert foreign(spec, phase="Succeeded") is None
    assert foreign(spec, phase="Failed") is None
    assert foreign({**spec, "nodeName": None}, phase="Pending") is None


def test_nothing_in_an_address_is_expanded():
    """The kubelet reads $(X) and $$ in the value of a variable."""
    step = InputStep({"http": {"url": "https://a/$(PUNCTUAL_BEGIN)$$b"}}, image="i", patience=60.0)
    (container,) = pod(step=step)["spec"]["initContainers"]
    said = {e["name"]: e["value"] for e in container["env"]}
    assert said["PUNCTUAL_INPUT_URL"] == "https://a/$$(PUNCTUAL_BEGIN)$$$$b"
