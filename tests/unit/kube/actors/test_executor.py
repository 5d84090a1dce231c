import asyncio
from types import SimpleNamespace

import orjson
import pytest
from clocks import NO_CLIENT
from term_tools import make_tools

from punctual import metric_names as names
from punctual.kube.actors.executor import PoolExecutor
from punctual.kube.actors.runners import Runners
from punctual.kube.api.resources import JOBS, PODS, POOLS
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.placeholder_pod import Placeholder
from punctual.kube.known.directory import Directory
from punctual.kube.metrics import Metrics
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import (
    Annotate,
    ApplyConfigMap,
    CreatePod,
    DeleteObject,
    DeletePod,
    LimitPod,
    Patch,
    PutStatus,
)
from punctual.notation.duration import format_time
from punctual.scheduling.model.actions import (
    CreateChunk,
    DeleteJob,
    DropSetPoint,
    Emit,
    EndPod,
    GiveTurn,
    HeldCapacity,
    HoldCapacity,
    Measured,
    OfferEnd,
    SendSetPoint,
    StopPod,
    StoreResult,
    WritePool,
    WriteStatus,
)
from punctual.scheduling.model.events import CreateRefused
from punctual.scheduling.model.job import Chunk, InputVersion, Job, JobRecord, Promise
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec
from punctual.scheduling.model.resources import Resources
from punctual.verdict import Verdict

CREATED = "2030-01-01T00:00:00Z"
CHUNK = Chunk(begin=0, end=5, origin=5, node="n1", attempt=1, created=0.0, promised_end=9.0)
EVERY = '{"nodeSelector":{}}'
YES = Verdict("True", "Feasible", "fits")
PROMISE = Promise(10.0, 9.0, 2.0, 1, 0.0)


class Log:
    """A writer and a recorder that keep what they were given."""

    def __init__(self):
        self.submitted = []
        self.emitted = []
        self.refused = []
        self.kept = {}
        self.carried_out = []

    def submit(self, key, operation):
        self.submitted.append((key, operation))

    def emit(self, regarding, type_, reason, note):
        self.emitted.append((regarding.kind, regarding.name, regarding.namespace, type_, reason, note))

    def take(self):
        taken, self.submitted = self.submitted, []
        return taken


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def directory():
    made = Directory()
    template = {"spec": {"containers": [{"name": "main", "image": "img"}]}}
    made.pools.observe(
        {
            "metadata": {"name": "main", "uid": "p1", "generation": 1, "creationTimestamp": CREATED},
            "spec": {"nodeSelector": {}, "processor": {"cpu": "1"}},
        }
    )
    known = made.jobs.observe(
        {
            "metadata": {
                "name": "render",
                "namespace": "ns",
                "uid": "j1",
                "generation": 1,
                "creationTimestamp": CREATED,
                "resourceVersion": "7",
            },
            "spec": {
                "pool": "main",
                "units": 5,
                "template": template,
                "reduce": {"duration": "1s", "template": template},
            },
        }
    )
    known.term.job = Job(uid="j1", namespace="ns", name="render", arrival=0.0, units=5, deadline=10.0, cost=None)
    return made


@pytest.fixture
def caches(directory):
    made = Caches(NO_CLIENT)
    made.directory = directory
    made.pods.job_of = {"pod1": "j1"}.get
    return made


@pytest.fixture
async def executor(caches, log, metrics):
    tools = make_tools(
        log, caches=caches, metrics=metrics, kinds=SimpleNamespace(carry_out=lambda *what: log.carried_out.append(what))
    )
    caches.inventory.keep = log.kept.__setitem__
    runners = Runners(tools, SimpleNamespace(others=lambda *_: None))
    return PoolExecutor("main", tools, runners, SimpleNamespace(put=log.refused.append))


async def test_the_status_of_an_oversized_job_is_slow(executor, directory, log):
    executor.perform(WriteStatus("j1", JobRecord(epoch=3, admitted=YES)))
    directory.jobs["j1"].flaw = "spec: is 1022 KiB of JSON"
    executor.perform(WriteStatus("j1", JobRecord(epoch=3, admitted=YES)))
    assert [operation.slow for _, operation in log.take()] == [False, True]


async def test_no_pod_is_made_of_an_oversized_spec(executor, directory, log):
    directory.jobs["j1"].flaw, directory.jobs["j1"].spec = "spec: is 1022 KiB of JSON", b"{}"
    executor.perform(CreateChunk("j1", CHUNK))
    (refused,) = log.refused
    assert (refused.job, refused.begin, refused.message) == ("j1", 0, "spec: is 1022 KiB of JSON")
    assert log.take() == []


async def test_what_concerns_a_job_is_submitted_under_its_uid_in_order(executor, log):
    record = JobRecord(epoch=3, admitted=YES, chunks=(CHUNK,))
    for action in (
        WriteStatus("j1", record),
        CreateChunk("j1", CHUNK),
        OfferEnd("ns", "render-1", "pod1", 3),
        GiveTurn("ns", "render-1", "pod1", 3.0),
        StopPod("ns", "render-1", "pod1"),
        StoreResult("j1", 0, 5, "42"),
        EndPod("ns", "render-1", "pod1"),
        DeleteJob("j1"),
    ):
        executor.perform(action)
    kinds = [PutStatus, CreatePod, Annotate, Annotate, LimitPod, ApplyConfigMap, Patch, DeletePod, DeleteObject]
    assert [(key, type(operation)) for key, operation in log.submitted] == [(Key(JOBS, "j1"), kind) for kind in kinds]


async def test_a_status_is_of_this_very_job_and_of_the_version_it_was_seen_at(executor, log):
    executor.perform(WriteStatus("j1", JobRecord(epoch=3, admitted=YES)))
    ((_, write),) = log.take()
    assert write.path == "/apis/punctual.dev/v1alpha1/namespaces/ns/divisiblejobs/render"
    assert write.body["metadata"] == {"name": "render", "namespace": "ns", "uid": "j1"}
    assert write.body["status"]["epoch"] == 3
    assert write.version == "7"
    assert write.urgent


async def test_conditions_keep_their_time_from_one_status_to_the_next(executor, log):
    executor.perform(WriteStatus("j1", JobRecord(admitted=YES)))
    executor._tools.clock.now = lambda: 99.0
    executor.perform(WriteStatus("j1", JobRecord(admitted=YES, done=1)))
    first, second = (write.body["status"]["conditions"] for _, write in log.take())
    assert first == second


async def test_progress_waits_and_only_the_newest_becomes_a_status(executor, log):
    executor.perform(WriteStatus("j1", JobRecord(done=1), urgent=False))
    executor.perform(WriteStatus("j1", JobRecord(done=2), urgent=False))
    assert log.take() == []
    executor.submit_progress()
    ((_, write),) = log.take()
    assert write.body["status"]["units"]["done"] == 2
    assert not write.urgent
    executor.submit_progress()
    assert log.take() == []


async def test_a_decision_takes_the_place_of_progress_that_waits(executor, log):
    executor.perform(WriteStatus("j1", JobRecord(done=1), urgent=False))
    executor.perform(WriteStatus("j1", JobRecord(done=1, admitted=YES)))
    executor.submit_progress()
    assert len(log.take()) == 1


async def test_stamps_are_waited_for(executor):
    executor.perform(WriteStatus("j1", JobRecord(admitted=YES)))
    executor.perform(WritePool(PoolRecord(), urgent=True))
    flush = asyncio.ensure_future(executor.flush())
    executor.settled(Key(JOBS, "j1"))
    await asyncio.sleep(0)
    assert not flush.done()
    executor.settled(Key(POOLS, "p1"))
    async with asyncio.timeout(60):
        await flush


async def test_a_recorded_reduce_of_a_job_without_one_is_refused(executor, log, directory):
    known = directory.jobs["j1"]
    spec = known.template()
    del spec["reduce"]
    known.spec = orjson.dumps(spec)
    executor.perform(CreateChunk("j1", CHUNK._replace(begin=5, end=6, origin=6, kind="Reduce")))
    assert log.take() == []
    message = "spec.reduce is missing"
    assert log.refused == [CreateRefused(job="j1", kind="Reduce", begin=5, attempt=1, message=message)]


async def test_a_runner_alone_says_what_starts_and_ends_pods(executor, log):
    admit = Patch("/api/v1/namespaces/ns/pods/render-0", {"spec": {"schedulingGates": None}})
    runner = SimpleNamespace(start=lambda *_: [admit], end=lambda _: [])
    executor._runners = SimpleNamespace(runner_of={"j1": runner}.get, runner_of_pod={"pod1": runner}.get)
    for action in (CreateChunk("j1", CHUNK), EndPod("ns", "render-0", "pod1"), StopPod("ns", "render-0", "pod1")):
        executor.perform(action)
    assert log.take() == [(Key(JOBS, "j1"), admit)]


async def test_a_pod_gets_the_processor_that_is_in_force(executor, log):
    executor.perform(WritePool(PoolRecord(applied=PoolSpec(name="main", cpu=0.5, memory=2**30, selectors=EVERY))))
    executor.perform(CreateChunk("j1", CHUNK))
    create = log.take()[-1][1]
    assert create.body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert create.body["metadata"]["annotations"]["punctual.dev/epoch"] == "3"


async def test_a_pod_is_told_the_version_of_the_input_that_stands_on_record(executor, log, directory):
    known = directory.jobs["j1"]
    known.spec = orjson.dumps({**known.template(), "input": {"http": {"url": "http://files/data"}}})

    def told():
        executor.perform(CreateChunk("j1", CHUNK))
        step = log.take()[-1][1].body["spec"]["initContainers"][0]
        return {e["name"]: e["value"] for e in step["env"]}

    assert "PUNCTUAL_INPUT_SIZE" not in told()
    executor.perform(WriteStatus("j1", JobRecord(input=InputVersion(90, '"a"'))))
    found = told()
    assert (found["PUNCTUAL_INPUT_SIZE"], found["PUNCTUAL_INPUT_VALIDATOR"]) == ("90", '"a"')


async def test_what_an_earlier_leader_kept_for_a_pool_that_keeps_nothing_is_let_go(executor, log):
    left = Placeholder("placeholder-1", "u1", "p1", "n1", "1 2Gi", bound=True, going=False, ended=False)
    executor._tools.placeholders.know_pool("p1")
    executor._tools.placeholders.observe(left)
    log.kept["main"] = {"n1": 3.0}  # as a pool of this name had it that was deleted
    executor.perform(HoldCapacity({}, Resources(1.0, 2**30)))
    assert DeletePod("sys", "placeholder-1", "u1", 1.0) in [operation for _, operation in log.take()]
    assert log.kept == {"main": {}}


async def test_what_is_left_of_processors_is_kept_and_other_pods_count_nevertheless(executor, log):
    kept = {
        "n1": HeldCapacity(None, 0, (Resources(0.6),)),
        "n2": HeldCapacity(3.0, 1, ()),
    }
    executor.perform(HoldCapacity(kept, Resources(1.0, 2**30)))
    made = [operation.body for _, operation in log.take()]
    asked = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in made]
    assert asked == [{"cpu": "600m", "memory": "0"}, {"cpu": "1", "memory": "1Gi"}]
    assert log.kept == {"main": {"n2": 3.0}}


async def test_a_pod_of_its_name_is_the_same_only_if_it_is_the_same_attempt(executor, log):
    executor.perform(CreateChunk("j1", CHUNK._replace(created=1000.0)))
    ((_, create),) = log.take()
    there = {"uid": "p1", "creationTimestamp": format_time(1000)}
    found = {**create.body, "metadata": {**create.body["metadata"], **there}}
    assert create.verify(found)

    def other(**meta):
        return {**found, "metadata": {**found["metadata"], **meta}}

    for field, key, value in (
        ("annotations", "punctual.dev/end", "6"),
        ("annotations", "punctual.dev/attempt", "2"),
        ("labels", "punctual.dev/job-uid", "j2"),
        ("labels", "punctual.dev/kind", "Reduce"),
    ):
        assert not create.verify(other(**{field: {**found["metadata"][field], key: value}}))
    for owners in (None, [], [{"uid": "j2"}]):
        assert not create.verify(other(ownerReferences=owners))
    assert not create.verify(other(creationTimestamp=format_time(900))), "an attempt of this number, long before"


async def test_the_reduce_pod_is_given_what_was_stored(executor, log):
    executor.perform(StoreResult("j1", 0, 5, "42"))
    log.take()
    executor.perform(CreateChunk("j1", CHUNK._replace(kind="Reduce", begin=5, end=6, origin=6)))
    (_, look), (_, create) = log.take()
    assert look.body == {"data": {}}  # gone if somebody has deleted it
    volume = create.body["spec"]["volumes"][-1]
    assert len(volume["projected"]["sources"]) == 1


async def test_a_pod_of_a_job_that_is_gone_is_still_ended(executor, log):
    executor.perform(EndPod("ns", "x-1", "pod9", 1.0))
    assert log.take() == [(Key(PODS, "pod9"), DeletePod("ns", "x-1", "pod9", 1.0))]


async def test_nothing_is_written_about_a_job_that_is_gone(executor, log, directory):
    directory.jobs.forget("j1")
    for action in (
        WriteStatus("j1", JobRecord()),
        CreateChunk("j1", CHUNK),
        StoreResult("j1", 0, 5, ""),
        DeleteJob("j1"),
        Emit("j1", "Normal", "Feasible", ""),
    ):
        executor.perform(action)
    assert (log.submitted, log.emitted) == ([], [])


async def test_what_a_chunk_took_is_told_on(executor, log):
    executor.perform(Measured("j1", "n1", 5, 2.5))
    assert log.carried_out[-1:] == [("main", Measured("j1", "n1", 5, 2.5))]


async def test_set_points_stand_on_the_board_until_dropped(executor):
    point = SendSetPoint(node="n1", pod="pod1", cap=0.5, period=0.1, units=5, end=9.0)
    executor.perform(point)
    assert len(executor._tools.set_points) == 1
    executor.perform(DropSetPoint("n1", "pod1"))
    assert len(executor._tools.set_points) == 0


async def test_events_are_about_the_job_or_the_pool(executor, log):
    executor.perform(Emit("j1", "Normal", "Feasible", "fits"))
    executor.perform(Emit(None, "Warning", "NoNodes", "none"))
    assert log.emitted == [
        ("DivisibleJob", "render", "ns", "Normal", "Feasible", "fits"),
        ("Pool", "main", "", "Warning", "NoNodes", "none"),
    ]


async def test_a_record_is_counted_once_however_often_it_is_written(executor, metrics):
    for done in range(3):
        executor.perform(WriteStatus("j1", JobRecord(admitted=YES, done=done)))
    labels = {"pool": "main", "result": "True", "reason": "Feasible"}
    assert metrics.registry.get_sample_value(names.ADMISSION_DECISIONS.name, labels) == 1.0


async def test_a_stamp_that_says_what_stands_there_is_not_written_again(executor, log):
    record = JobRecord(epoch=3, admitted=YES)
    executor.perform(WriteStatus("j1", record))
    ((_, write),) = log.take()
    executor._tools.found[Key(JOBS, "j1")] = orjson.dumps(write.body["status"])
    executor.perform(WriteStatus("j1", record))
    assert log.take() == []
    executor.perform(WriteStatus("j1", record))
    assert len(log.take()) == 1
