"""Whatever is asked, the operator answers, and others are served as if nothing had been asked.

One operator runs for this whole file against the real API server. What the schema refuses does not reach it; what the
schema takes it answers in the status, with a reason and with words that tell what would be right.
"""

import copy
import itertools
import os
import re
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
import yaml
from drawn import manifests
from hypothesis import HealthCheck, Phase, given, settings
from lib.testbed import condition
from process import OperatorProcess
from server import GROUP, MERGE, Server, job

from punctual import reasons
from punctual.kube.api import KINDS, DivisibleJob, Pool, Profile

HERE = Path(__file__).parents[1] / "manifests"
REFUSED = yaml.safe_load((HERE / "bad.yaml").read_text())
ANSWERED = yaml.safe_load((HERE / "answered.yaml").read_text())
EXAMPLES = {kind.NAMES.kind: yaml.safe_load(kind.EXAMPLE) for kind in KINDS}
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
NAMES = itertools.count(1)


class Place:
    """A namespace, a pool of one node with four processors, and another for what must go on whatever else is asked."""

    def __init__(self, server, operator):
        self.server, self.operator = server, operator
        self.namespace = self.pool = f"bad-{uuid.uuid4().hex[:8]}"
        self.quiet = f"{self.pool}-quiet"  # of which nobody else asks anything
        server.add_namespace(self.namespace)
        for name in (self.pool, self.quiet):
            server.add_node(name, pool=name)
            server.add_pool(name)
            self.ready(name, "4 processors")

    def job(self, name=None, **spec):
        return job(name or f"job-{next(NAMES)}", self.namespace, self.pool, **spec)

    def answer(self, name):
        """Wait for the answer to a job; return the condition."""
        return self.server.until(
            lambda: condition(self.server.status(self.namespace, name), "Admitted"),
            what=lambda: self.server.jobs(self.namespace).get(name),
        )

    def ready(self, name, says=""):
        """Wait for a pool's condition Ready (that says so); return it."""

        def said():
            found = condition(self.server.get(f"{GROUP}/pools/{name}").get("status") or {}, "Ready")
            return found if found and says in found["message"] else None

        return self.server.until(said, what=lambda: self.server.get(f"{GROUP}/pools/{name}"))

    def goes_on(self):
        """See a good job promised, now."""
        assert self.operator.alive, self.operator.log.read_text()
        good = self.job(f"good-{next(NAMES)}", pool=self.quiet, dryRun=True)
        assert self.server.create(good)[0] == 201
        assert self.answer(good["metadata"]["name"])["reason"] == reasons.DRY_RUN

    def goes_on_elsewhere(self):
        """See a good job of another namespace promised, now."""
        name = f"{self.namespace}-{next(NAMES)}"
        self.server.add_namespace(name)
        self.server.add_job("good", name, self.quiet, dryRun=True)
        done = self.server.until(lambda: condition(self.server.status(name, "good"), "Admitted"))
        assert done["reason"] == reasons.DRY_RUN
        self.server.clean(name)

    def clean(self):
        self.server.clean(self.namespace, self.pool, self.quiet)


@pytest.fixture(scope="module")
def server(kubeconfig):
    server = Server(kubeconfig)
    yield server
    server.close()


@pytest.fixture(scope="module")
def operator(kubeconfig, server, tmp_path_factory):
    namespace = f"operator-{uuid.uuid4().hex[:8]}"
    server.add_namespace(namespace)
    log = tmp_path_factory.mktemp("operator") / "log"
    operator = OperatorProcess(kubeconfig, namespace, log)
    server.until(lambda: operator.leads)
    yield operator
    assert operator.end() == 0


@pytest.fixture(scope="module")
def place(server, operator):
    place = Place(server, operator)
    yield place
    place.clean()


def spoil(manifest, case):
    """Return the manifest with the case's one change."""
    made = at = copy.deepcopy(manifest)
    *path, last = (int(step) if step.isdigit() else step for step in case["at"].split("."))
    for step in path:
        at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
    if "to" in case:
        at[last] = case["to"]
    else:
        del at[last]
    if "instead" in case:
        del made["spec"][case["instead"]]
    return made


def test_what_the_schema_refuses_leaves_nothing_behind_and_keeps_nobody_waiting(server, place):
    tries = f"bad-{uuid.uuid4().hex[:8]}"
    server.add_namespace(tries)
    for case in REFUSED:
        body = spoil(EXAMPLES[case["kind"]], case)
        body["metadata"] = {"name": f"bad-{next(NAMES)}"} | ({} if case["kind"] == "Pool" else {"namespace": tries})
        code, answer = server.create(body)
        assert code == 422, (case["name"], answer)
    assert server.jobs(tries) == {}
    place.goes_on()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("größe", "must consist of lower case alphanumeric"),
        ("Render", "must consist of lower case alphanumeric"),
        ("a b", "must consist of lower case alphanumeric"),
        ("", "name or generateName is required"),
        ("x" * 254, "must be no more than 253"),
    ],
)
@pytest.mark.parametrize("kind", [DivisibleJob, Pool, Profile])
def test_a_name_that_cannot_be_is_refused(server, kind, name, says):
    body = copy.deepcopy(EXAMPLES[kind.NAMES.kind])
    body["metadata"]["name"] = name
    code, answer = server.create(body)
    assert code == 422
    assert says in answer["message"]


def test_what_the_schema_takes_and_cannot_be_is_answered_with_a_reason(server, place):
    assert len(ANSWERED) + len(REFUSED) >= 100
    asked = {}
    for case in ANSWERED:
        body = spoil(place.job(), case)
        code, answer = server.create(body)
        assert code == 201, (case["name"], answer)
        asked[body["metadata"]["name"]] = case
    control = place.job("control")
    assert server.create(control)[0] == 201
    assert place.answer("control")["reason"] == reasons.FEASIBLE
    for name, case in asked.items():
        answer = place.answer(name)
        assert (answer["status"], answer["reason"]) == ("False", case["reason"]), (case["name"], answer)
        assert case["says"] in answer["message"], (case["name"], answer["message"])
    place.goes_on()


def test_what_is_nested_deeper_than_any_pod_is_not_stored(server, place):
    for depth in (100, 260, 900):
        body = place.job(f"deep-{depth}")
        for _ in range(depth):
            body["spec"]["template"]["spec"]["deep"] = {"deep": body["spec"]["template"]["spec"].get("deep")}
        code, stored = server.create(body)
        assert code == 201
        assert "deep" not in stored["spec"]["template"]["spec"]
        assert place.answer(f"deep-{depth}")["reason"] == reasons.FEASIBLE
    place.goes_on()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"nodeSelector": {"matchLabels": {"pool": "nowhere"}}}, "no node has the labels"),
        ({"processor": {"cpu": 4096, "memory": "1Pi"}}, "no node has capacity for a processor of 4096 CPU and 1Pi"),
        ({"processor": {"cpu": "4001m", "memory": "1Mi"}}, "has 4 CPU, 64Gi and 110 pods left"),
    ],
    ids=["no node", "giants", "a thousandth too many"],
)
def test_a_pool_without_processors_tells_why(server, place, spec, says):
    name = f"bad-{uuid.uuid4().hex[:8]}"
    server.add_node(name, pool=name)
    server.add_pool(name, **spec)
    ready = place.ready(name, says)
    assert (ready["status"], ready["reason"]) == ("False", reasons.NO_NODES)
    server.clean(place.namespace, name)


def test_a_status_that_is_refused_creates_no_pod_and_is_told(server, operator):
    """An admission policy stands for whatever may not have a status: an older CRD, a webhook."""
    place = Place(server, operator)
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": place.namespace},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}},
                "resourceRules": [
                    {
                        "apiGroups": ["punctual.dev"],
                        "apiVersions": ["*"],
                        "operations": ["UPDATE"],
                        "resources": ["divisiblejobs/status"],
                    }
                ],
            },
            "validations": [{"expression": "!has(object.status.chunks)", "message": "chunks are not to be told"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": place.namespace},
        "spec": {"policyName": place.namespace, "validationActions": ["Deny"]},
    }
    where = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    assert server.call("POST", f"{where}ies", policy)[0] == 201
    assert server.call("POST", f"{where}ybindings", binding)[0] == 201
    try:
        probe = place.job("probe")
        server.create(probe)
        path = f"{GROUP}/namespaces/{place.namespace}/divisiblejobs/probe/status"
        chunk = {"begin": 0, "end": 1, "node": "n", "attempt": 9, "createdTime": "x", "promisedEnd": "x"}
        server.until(
            lambda: (
                "not to be told"
                in str(server.call("PATCH", path + "?dryRun=All", {"status": {"chunks": [chunk]}}, MERGE))
            )
        )  # the policy is in force some time after it was made
        server.delete(path.removesuffix("/status"))
        body = place.job("untold")
        assert server.create(body)[0] == 201
        told = server.until(lambda: server.events(place.namespace, "untold").get(reasons.STATUS_REFUSED))
        assert "chunks are not to be told" in told
        recorded = server.status(place.namespace, "untold").get("chunks") or ()
        mine = [p for p in server.pods(place.namespace) if p["metadata"]["labels"]["punctual.dev/job"] == "untold"]
        assert (recorded, mine) == ((), [])
    finally:
        server.delete(f"{where}ybindings/{place.namespace}")
        server.delete(f"{where}ies/{place.namespace}")
    server.until(lambda: server.status(place.namespace, "untold").get("chunks"))
    server.until(lambda: server.pods(place.namespace))
    place.goes_on()
    place.clean()


def test_a_webhook_that_fails_delays_an_answer_for_half_a_minute_at_most_and_only_in_its_namespace(server, operator):
    """The answer then says what is in the way, and follows by itself when the webhook is gone."""
    place = Place(server, operator)
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hook = {
        "name": "fails.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": place.namespace}, "webhooks": [hook]}
    body["apiVersion"] = "admissionregistration.k8s.io/v1"
    assert server.call("POST", hooks, body)[0] == 201
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": place.namespace}}
    pod["spec"] = {"containers": [{"name": "a", "image": "b"}]}
    try:
        server.until(lambda: server.create(pod, dry_run=True)[0] == 500)  # in force some time after it was made
        began = time.monotonic()
        assert server.create(place.job("waits"))[0] == 201
        answer = place.answer("waits")
        assert time.monotonic() - began < 30
        assert (answer["status"], answer["reason"]) == ("Unknown", reasons.ANSWER_DELAYED)
        assert 'failed calling webhook "fails.example.com"' in answer["message"]
        told = server.until(lambda: server.events(place.namespace, "waits").get(reasons.ANSWER_DELAYED))
        assert "fails.example.com" in told
        place.goes_on_elsewhere()
    finally:
        server.delete(f"{hooks}/{place.namespace}")
    server.until(lambda: place.answer("waits")["reason"] == reasons.FEASIBLE)
    place.clean()


def placed(body, place):
    """Return a drawn manifest under a name of its own, about the pool of the place; a pool without anybody's nodes."""
    name = f"any-{next(NAMES)}"
    spec = body["spec"]
    if isinstance(spec, dict) and isinstance(spec.get("pool"), str):
        spec = {**spec, "pool": place.pool}
    if isinstance(spec, dict) and body["kind"] == "Pool":
        spec = {**spec, "nodeSelector": {"matchLabels": {"pool": name}}}
    if isinstance(spec, dict) and spec.get("ttlSecondsAfterFinished") in range(3600):
        spec = {**spec, "ttlSecondsAfterFinished": 3600}  # it stays until the test has looked at it
    meta = {"name": name} | ({} if body["kind"] == "Pool" else {"namespace": place.namespace})
    return {**body, "metadata": meta, "spec": spec}


def asked(place, bodies):
    """Create what the API server takes; return (kind, name) of that. What it refuses it must refuse in words."""
    taken = []
    for body in (placed(body, place) for body in bodies):
        code, answer = place.server.create(body)
        if code == 201:
            taken.append((body["kind"], body["metadata"]["name"]))
        else:
            assert code in {400, 422}, (code, answer, body)
            assert re.search(r"spec|unknown field|strict decoding|unmarshal", answer["message"]), answer
    return taken


def drawn(kind, count, *, odds):
    """Return so many manifests of a kind. They are asked for together: one by one that would take its time."""
    found = []

    @settings(max_examples=count, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
    @given(manifests(kind, odds=odds))
    def draw(body):
        found.append(body)

    draw()
    return found


@pytest.mark.timeout(3600 if NIGHTLY else 600, func_only=True)
@pytest.mark.parametrize("odds", [0, 50], ids=["inside the schema", "just outside"])
def test_whatever_the_server_takes_is_answered(server, place, odds):
    """Manifests at random. Whatever the API server takes, the operator answers; and a good job beside it, each time."""
    taken = Counter()
    times = 20 if NIGHTLY else 1
    every = [drawn(kind, count * times, odds=odds) for kind, count in ((Profile, 4), (Pool, 10), (DivisibleJob, 40))]
    for batch in range(times):
        there = asked(place, (body for bodies in every for body in bodies[batch::times]))
        taken.update(kind for kind, _ in there)
        for kind, name in there:
            if kind != "Profile":
                answer = place.answer(name) if kind == "DivisibleJob" else place.ready(name)
                assert answer["reason"], answer
                assert answer["message"], answer
        place.goes_on()
        server.clean(place.namespace, *(name for kind, name in there if kind == "Pool"))
    assert taken["DivisibleJob"] > 5
    assert taken["Pool"] > 1
