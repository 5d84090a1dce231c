"""Whatever the schema takes, the operator answers: nothing a user can write stops it, and no other job waits for it.

The edge without its API server: a manifest goes the way of kopf's event, through directory, intake, Pool and hands,
until statuses and pods are written, each of which must fit the schema. Time passes in leaps, workers are late, leaders
change.
"""

import asyncio
from functools import cache
from types import SimpleNamespace

import jsonschema
import orjson
import pytest
import structlog
from clocks import NO_CLIENT, clock
from drawn import manifests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from term_tools import make_tools

from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.actors.executor import PoolExecutor
from punctual.kube.actors.runners import Runners
from punctual.kube.api import crd
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.pods import project_pod
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.known.directory import Directory
from punctual.kube.known.translate import to_pool_record, to_pool_spec, to_record
from punctual.kube.writes.operations import CreatePod, PutStatus
from punctual.scheduling.model.actions import Action
from punctual.scheduling.model.events import JobApplied, NodeObserved, PoolApplied, Progress, Reported
from punctual.scheduling.pool import Pool

BORN = "2030-01-02T15:04:05Z"
START = 1_893_596_645.0
LEAPS = (0.0, 0.25, 1.0, 3.0, 30.0, 3000.0, 3e5, 3e7, 3e8)
"""Seconds after the creation at which the operator looks."""
CONTROL = {
    "pool": "any",
    "units": 5,
    "deadline": "87600h",
    "cost": {"perUnit": "1s"},
    "template": {"spec": {"containers": [{"name": "main", "image": "work:1"}]}},
}


class Server:
    """Lets every pod through, in principle."""

    clock = clock()

    async def create(self, _path, body, **_):
        orjson.dumps(body)
        return body


class Edge:
    """One operator over its terms; what it writes is checked and kept."""

    def __init__(self, pool):
        self.now = START
        self.epoch = 0
        self.directory = Directory()
        self.known = self.directory.pools.observe({**pool, "metadata": meta("any", "p1", namespace="")})
        self.caches = Caches(NO_CLIENT)
        self.caches.directory = self.directory
        self.gate = AdmissionGate(Server(), self.caches, lambda _: None)
        self.statuses, self.pods = {}, {}
        self.node = NodeObserved(name="n1", ready=True, cpu=16.0, memory=2**51, pods=110)

    def lead(self):
        """Begin a term with what is written."""
        self.epoch += 1
        spec = to_pool_spec(self.known)
        written = self.statuses.get("p1")
        record = to_pool_record("any", api.parse_status(api.PoolStatus, {"status": written})) if written else None
        events = [PoolApplied(spec, record), self.node]
        for uid, known in self.directory.jobs.items():
            if uid in self.statuses:
                status = api.parse_status(api.DivisibleJobStatus, {"status": self.statuses[uid]})
                known.term.job = self.gate.job(known, decided=True)
                events.append(JobApplied(known.term.job, to_record(status)))
        events += [pod.observed(self) for pod in self.pods.values()]
        tools = make_tools(self, lambda: self.now, caches=self.caches, epoch=self.epoch)
        self.pool = Pool(self.epoch)
        self.executor = PoolExecutor("any", tools, Runners(tools, self.gate), SimpleNamespace(put=lambda _: None))
        self._perform(self.pool.restore(self.now, events))

    async def apply(self, uid, spec):
        """Take in a job as kopf tells it, and what is found out about its pods."""
        body = {"metadata": meta(uid, uid), "spec": {**spec, "pool": "any"}}
        known = self.directory.jobs.observe(body)
        while (job := self.gate.job(known, decided=False)) is None:
            await asyncio.gather(*self.gate._trials._tasks)
        known.term.job = job
        self.step([JobApplied(job)])

    def step(self, events=()):
        """Step until nothing is owed."""
        self._perform(self.pool.step(self.now, events))
        while self.pool.backlog:
            self._perform(self.pool.step(self.now, []))
        self.executor.submit_progress()
        self.pool.check()

    def work(self, seconds):
        """Let time pass: pods run, slowly, and their agent speaks of them."""
        self.now = START + seconds
        events = [pod.observed(self) for pod in self.pods.values()]
        told = tuple(Progress(pod=pod.uid, done=1, end=None, cpu_seconds=seconds) for pod in self.pods.values())
        self.step([*events, Reported("n1", told)])

    def _perform(self, actions: list[Action]):
        for action in actions:
            self.executor.perform(action)

    # what an executor needs of a writer and a recorder

    def submit(self, key, operation):
        match operation:
            case PutStatus(body=body):
                kind = body["kind"]
                status = orjson.loads(orjson.dumps(body["status"]))
                checker(kind).validate(status)
                self.statuses[key.name] = status
            case CreatePod(body=body):
                orjson.dumps(body)
                name = body["metadata"]["name"]
                self.pods.setdefault(name, Pod(f"pod-{len(self.pods)}", body, len(self.pods)))

    def emit(self, *_args):
        pass


class Pod:
    """A pod that was asked for; every third never starts, every third fails."""

    def __init__(self, uid, body, n):
        self.uid, self.body, self.n = uid, body, n

    def observed(self, edge):
        found = {"metadata": {**self.body["metadata"], "uid": self.uid, "creationTimestamp": BORN}}
        first = self.body["spec"]["containers"][0]["name"]
        phase = ("Running", "Pending", "Running" if edge.now < START + 60 else "Failed")[self.n % 3]
        state = {"running": {"startedAt": BORN}} if phase == "Running" else {}
        status = {"phase": phase, "containerStatuses": [{"name": first, "state": state}]}
        return project_pod({**found, "spec": {**self.body["spec"], "nodeName": "n1"}, "status": status})


def meta(name, uid, *, namespace="default"):
    made = {"name": name, "uid": uid, "generation": 1, "creationTimestamp": BORN, "resourceVersion": "1"}
    return made | ({"namespace": namespace} if namespace else {})


@cache
def checker(kind):
    """What the API server would make of a status, but for CEL."""
    (model,) = (k for k in api.KINDS if k.NAMES.kind == kind)
    return jsonschema.Draft4Validator(crd.schema_of(model)["properties"]["status"])


pools = manifests(api.Pool).filter(lambda body: _parses(api.Pool, body))
good = st.just(api.Pool.EXAMPLE).map(crd.yaml.safe_load)


def _parses(kind, body):
    try:
        api.parse(kind, body)
    except UserError:
        return False
    return True


async def _live(pool, jobs):
    edge = Edge(pool)
    edge.lead()
    edge.step()
    for n, body in enumerate(body for body in jobs if isinstance(body["spec"], dict)):
        await edge.apply(f"j{n}", body["spec"])
    await edge.apply("control", CONTROL)
    for seconds in LEAPS:
        edge.work(seconds)
        if seconds in {1.0, 3e5}:
            edge.lead()
    for uid, known in edge.directory.jobs.items():
        conditions = {c["type"]: c for c in edge.statuses[uid]["conditions"]}
        assert conditions["Admitted"]["reason"], known.manifest
        assert conditions["Admitted"]["message"], known.manifest
    await edge.gate.close()


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


common = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large])


@common
@given(good | pools, st.lists(manifests(api.DivisibleJob), max_size=3))
def test_what_the_schema_takes_is_answered_and_written(pool, jobs):
    asyncio.run(_live(pool, jobs))


@common
@given(good, st.lists(manifests(api.DivisibleJob, odds=8), min_size=1, max_size=3))
def test_what_the_schema_would_not_take_stops_nobody(pool, jobs):
    asyncio.run(_live(pool, jobs))


@common
@given(st.sampled_from(api.KINDS).flatmap(lambda kind: st.tuples(st.just(kind), manifests(kind, odds=4))))
def test_a_manifest_is_read_or_refused_with_the_field_named(drawn):
    kind, body = drawn
    try:
        api.parse(kind, body)
    except UserError as error:
        assert error.message.startswith(("spec", "object"))  # noqa: PT017  both ends are good
        assert len(error.message) < 4096  # noqa: PT017
