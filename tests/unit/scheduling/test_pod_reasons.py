"""The table of reasons: a line for each that Kubernetes 1.30 to 1.35 writes into a pod's status."""

import pytest

from punctual.scheduling.model.events import Helper, PodObserved
from punctual.scheduling.model.pod_reasons import TABLE, is_own, names_capacity, row_of

CLUSTER = (
    "Preempting", "Preempted", "Terminated", "NodeShutdown", "Shutdown", "NodeLost", "NodeAffinity", "NodeName",
    "NodePorts", "TaintToleration", "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage", "InvalidNodeInfo",
    "OutOfExtendedResource", "UnknownReason", "UnexpectedPredicateFailureType", "UnexpectedAdmissionError",
    "TopologyAffinityError",
    "VolumeAttachmentLimitExceeded", "TerminationByKubelet", "PreemptionByScheduler", "DeletionByTaintManager",
    "DeletionByDeviceTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC", "ContainerStatusUnknown", "Unknown",
    "RestartingAllContainers", "ContainerCreating", "PodInitializing", "ErrImagePull", "ImagePullBackOff",
    "ImageInspectError", "RegistryUnavailable", "PreCreateHookError", "PreStartHookError", "KillContainerError",
    "CreatePodSandboxError", "ConfigPodSandboxError", "KillPodSandboxError", "Unschedulable", "Nominated",
    "SchedulerError", "NotSeen",
)  # fmt: skip
OWN = (
    "Evicted", "DeadlineExceeded", "OOMKilled", "StartError", "ContainerCannotRun", "SignatureValidationFailed",
    "ImageVolumeMountFailed", "RROUnsupported", "CreateContainerConfigError", "CreateContainerError",
    "PostStartHookError", "RunContainerError", "CrashLoopBackOff", "SchedulingGated", "NotPlaced", "NoVolume",
    "NoScheduler",
)  # fmt: skip
NEVER = (
    "InvalidImageName", "ErrImageNeverPull", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported",
    "InitContainerRestartPolicyForbidden", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "AppArmor",
    "PodLevelResourcesNotSupported", "PodFeatureUnsupported",
)  # fmt: skip
BY_EXIT_CODE = ("Error", "Completed")


@pytest.mark.parametrize(
    ("reason", "owner", "heals"),
    [
        *((reason, "Cluster", True) for reason in CLUSTER),
        *((reason, "Pod", True) for reason in OWN),
        *((reason, "Pod", False) for reason in NEVER),
        *((reason, "Exit", True) for reason in BY_EXIT_CODE),
    ],
)
def test_whose_doing_a_reason_is_and_whether_it_can_heal(reason, owner, heals):
    row = row_of(reason)
    assert row is not None
    assert (row.owner, row.heals) == (owner, heals)
    assert row.source


def test_the_table_has_each_reason_once_and_no_other():
    listed = [row.reason for row in TABLE]
    assert sorted(listed) == sorted((*CLUSTER, *OWN, *NEVER, *BY_EXIT_CODE))
    assert {row.owner for row in TABLE if not row.heals} == {"Pod"}, "what never heals must be counted, or never ends"


@pytest.mark.parametrize(
    ("reason", "code", "own"),
    [
        ("SomethingNew", 1, True),
        ("SomethingNew", 0, False),
        ("SomethingNew", None, False),
        ("", 2, True),
        ("", None, False),
        ("Error", 137, True),
        ("ContainerStatusUnknown", 137, False),
        ("Unknown", 255, False),
        ("DeadlineExceeded", 143, True),
        ("OutOfnvidia.com/gpu", None, True),
        ("OutOfcpu", None, False),
    ],
)
def test_a_reason_without_a_row_is_judged_by_the_owner_of_the_exit_code(reason, code, own):
    assert is_own(reason, code) == own


@pytest.mark.parametrize(
    ("said", "capacity"),
    [
        ("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].", True),
        ("0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't match Pod's node affinity/selector.", True),
        ("0/3 nodes are available: 1 Too many pods, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].", True),
        ("0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu.", True),
        ("0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match …", False),
        ("0/3 nodes are available: 1 Insufficient ephemeral-storage.", False),
        ("0/3 nodes are available: 1 Insufficient cpu-manager.example.com/share.", False),
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", False),
        ("0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints.", False),
        ("0/3 nodes are available: 1 node(s) had untolerated taint(s).", False),
        ("0/3 nodes are available: 1 node(s) had volume node affinity conflict.", False),
        ("", False),
    ],
)
def test_a_node_lacks_capacity_only_if_that_is_what_the_scheduler_names(said, capacity):
    assert names_capacity(said) == capacity


@pytest.mark.parametrize(
    ("said", "capacity"),
    [
        ("0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match …", True),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", True),
        ("0/3 nodes are available: 1 Insufficient nvidia.com/gpu.shared, 2 node(s) didn't match …", False),
        ("0/3 nodes are available: 1 Insufficient nvidiaxcom/gpu.", False),
        ("0/3 nodes are available: 1 Insufficient example.com/nic.", False),
        ("0/3 nodes are available: 1 Insufficient cpu.", True),
    ],
)
def test_an_extended_resource_of_the_processor_is_capacity(said, capacity):
    assert names_capacity(said, {"nvidia.com/gpu"}) == capacity


def pod(**more) -> PodObserved:
    usual = {"name": "p", "uid": "u", "namespace": "d", "job": "j", "kind": "Chunk", "begin": 0, "end": 10,
             "attempt": 1, "node": "n", "phase": "Failed", "created": 0.0}  # fmt: skip
    return PodObserved(**{**usual, **more})


OUT_OF_MEMORY = "raise spec.processor.memory of the pool, or the memory in the template"
TOO_SHORT = "remove activeDeadlineSeconds from the template, or raise it"


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (
            pod(exit_code=137, reason="OOMKilled", container="main", started=1.0),
            f"pod p, container main: exit code 137 (OOMKilled): {OUT_OF_MEMORY}",
        ),
        (
            pod(exit_code=143, reason="DeadlineExceeded", container="main", said="active too long", started=1.0),
            f"pod p, container main: exit code 143 (DeadlineExceeded): active too long: {TOO_SHORT}",
        ),
        (pod(reason="Evicted", said="its emptyDir exceeds 10Mi. "), "pod p: Evicted: its emptyDir exceeds 10Mi"),
        (pod(reason="Terminated", disrupted=True, said="It was terminated."), "pod p: Terminated: It was terminated"),
    ],
)
def test_a_failure_is_told_with_the_container_the_clusters_words_and_what_to_do(seen, text):
    assert seen.failure == text


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"container": "main", "reason": "OOMKilled"}, "container main ended with exit code 0 (OOMKilled): raise "),
        ({"helpers": (Helper("log", 137, "OOMKilled"),)}, "container log ended with exit code 137 (OOMKilled): raise "),
        ({"helpers": (Helper("log", 3, "Error"),)}, "container log ended with exit code 3 (Error). "),
        ({"container": "main", "reason": "Completed"}, None),
    ],
)
def test_what_went_wrong_beside_work_that_has_succeeded_is_told_by_container(more, told):
    remarks = pod(phase="Succeeded", exit_code=0, **more).remarks
    assert [told in remark.text for remark in remarks] == [True] * (told is not None)
