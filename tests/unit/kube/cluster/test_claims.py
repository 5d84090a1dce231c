import pytest

from punctual.kube.cluster.claims import Claims, project_claim, project_class, project_volume
from punctual.kube.cluster.pod_needs import PodNeeds
from punctual.scheduling.model.events import NodeObserved

N1, N2 = (
    NodeObserved(name=n, ready=True, cpu=1.0, memory=1, labels={"host": n, "zone": z})
    for n, z in (("n1", "a"), ("n2", "b"))
)
NEEDS = PodNeeds(claims=("data",))


def claim(volume="", mode="ReadWriteOnce", **spec):
    named = {"volumeName": volume} if volume else {}
    return project_claim(
        {"metadata": {"name": "data", "namespace": "ns"}, "spec": {"accessModes": [mode], **named, **spec}}
    )


def volume(*hosts):
    terms = [{"matchExpressions": [{"key": "host", "operator": "In", "values": [*hosts]}]}]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if hosts else {}
    return project_volume({"metadata": {"name": "pv"}, "spec": affinity})


def storage(name="local", *, zones=(), default=False, mode="WaitForFirstConsumer"):
    note = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": [*zones]}]}] if zones else []
    return project_class(
        {"metadata": {"name": name, "annotations": note}, "volumeBindingMode": mode, "allowedTopologies": topologies}
    )


@pytest.fixture
def claims():
    made = Claims()
    made.observe_volume(volume("n2"), gone=False)
    made.observe_class(storage(zones=["a"]), gone=False)
    made.observe_class(storage("other", default=True, zones=["b"]), gone=False)
    made.observe_class(storage("now", mode="Immediate", zones=["a"]), gone=False)
    return made


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (claim("pv"), ("claim data: host in (n2)", None, "claim data", None)),
        (claim("pv", "ReadWriteMany"), ("claim data: host in (n2)", None, "", None)),
        (claim("pv", "ReadWriteOncePod"), ("claim data: host in (n2)", None, "", 1)),
        (claim("elsewhere"), (None, None, "claim data", None)),
        (claim(storageClassName="local"), (None, "claim data: zone in (a)", "claim data", None)),
        (claim(), ("claim data: zone in (b)", None, "claim data", None)),
        (claim(storageClassName="now"), (None, None, "claim data", None)),
        (claim(storageClassName="gone"), (None, None, "claim data", None)),
    ],
    ids=["bound", "bound, shared", "one pod", "volume unknown", "waits", "default class", "binds at once", "no class"],
)
def test_a_claim_allows_the_nodes_that_its_volume_reaches(claims, claim, expected):
    claims.observe_claim(claim, gone=False)
    fit = claims.fit("ns", NEEDS)
    assert (fit.rules.objection(N1), fit.rules.objection(N2), fit.rules.one_node, fit.most) == expected


def test_a_claim_that_does_not_exist_says_nothing_yet(claims):
    assert claims.fit("ns", NEEDS).rules == NEEDS.rules


def test_a_change_of_claim_volume_and_class_is_told_with_the_claim():
    told = []
    claims = Claims(lambda namespace, name: told.append((namespace, name)))
    claims.observe_class(storage(), gone=False)
    assert told == []
    claims.observe_claim(claim(storageClassName="local"), gone=False)
    claims.observe_class(storage(zones=["a"]), gone=False)
    assert told == [("ns", "data")] * 2
    claims.observe_claim(claim("pv"), gone=False)
    claims.observe_volume(volume("n1"), gone=False)
    assert told == [("ns", "data")] * 4
    claims.observe_class(storage(), gone=True)
    claims.observe_claim(claim("pv"), gone=True)
    assert told == [("ns", "data")] * 5
    assert claims.fit("ns", NEEDS).rules == NEEDS.rules
