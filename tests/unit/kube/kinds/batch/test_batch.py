"""Ordinary Jobs of a term: what is made of each, when it begins, what it is told, and what its edits become."""

import copy
from types import SimpleNamespace

import pytest
from batch_bodies import CREATED, GATE, TOLERATION, batch_body, started_pod
from clocks import NO_CLIENT
from term_tools import make_tools

from punctual import reasons
from punctual.kube import api
from punctual.kube.actors.gated_pods import GatedPods
from punctual.kube.api.resources import BATCH_JOBS, JOBS
from punctual.kube.cluster.caches import Caches
from punctual.kube.kinds.batch.batch import AHEAD, EVERY, OrdinaryJobs
from punctual.kube.known.store import Signal
from punctual.kube.known.translate import to_pool_spec
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import Annotate, CreateObject, DeleteObject, Outcome, Patch
from punctual.scheduling.model.actions import EndPod
from punctual.scheduling.model.job import Chunk, JobRecord, Offer, Promise
from punctual.verdict import Verdict

DEADLINE = "punctual.dev/deadline"
FEASIBLE, MEASURING, NO = (
    Verdict("True", reasons.FEASIBLE, "promised"),
    Verdict("Unknown", reasons.MEASURING, "pilots run"),
    Verdict("False", reasons.INFEASIBLE_CAPACITY, "too few processors"),
)
BEGIN = 1893456000.0  # its creation
END = BEGIN + 45 * 60
PROMISED = JobRecord(admitted=FEASIBLE, promise=Promise(END, END - 60, 2.0, 2, END - 2700), eta=END - 100)
JOB_PATH = BATCH_JOBS.path(namespace="ns", name="nightly")
LATE = Verdict("False", reasons.LATE, "late")


def merged(body, patch):
    """Return a body after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    there = copy.deepcopy(body) if isinstance(body, dict) else {}
    for name, value in patch.items():
        if value is None:
            there.pop(name, None)
        else:
            there[name] = merged(there.get(name), value)
    return there


class Stage:
    """The Jobs, and an API server that does what they submit when it is told to. ``log``: all that was submitted."""

    def __init__(self):
        self.now = 0.0
        self.events, self.log, self.queue, self.bodies = [], [], [], {}
        self.refuses = {}
        """What it refuses: a result and a message, by kind of operation."""
        self.caches = Caches(NO_CLIENT)
        self.caches.listener = self
        pool = {
            "apiVersion": api.API_VERSION,
            "kind": "Pool",
            "metadata": {"name": "main", "uid": "main", "generation": 1, "creationTimestamp": CREATED},
            "spec": {"nodeSelector": {}, "processor": {"cpu": "1", "memory": "1Gi"}},
        }
        self.jobs = None
        self.actors = SimpleNamespace(tell=lambda *told: self.told_pool.append(told))
        self.told_pool = []
        known = self.caches.directory.pools.observe(pool)
        known.term.spec = to_pool_spec(known)
        self.begin()

    def __getattr__(self, name):  # what else the caches tell
        return lambda *_, **__: None

    def begin(self):
        """Let a new term begin."""
        tools = make_tools(self, lambda: BEGIN + self.now, caches=self.caches, monotonic=lambda: self.now)
        self.gated = GatedPods(tools)
        self.jobs = OrdinaryJobs(tools, self.gated, self.actors)
        self.jobs.begin()

    def signal(self, signal):
        if self.jobs:
            self.jobs.hear(signal)

    def submit(self, key, operation):
        self.log.append(operation)
        self.queue.append((key, operation))

    def emit(self, about, kind, reason, _note):
        self.events.append((about.name, kind, reason))

    def told(self, body):
        """Let the Jobs' informer see a Job."""
        self.bodies[JOB_PATH] = body
        self.caches.informers[3]._told(body)

    def edit(self, **patch):
        self.told(merged(self.bodies[JOB_PATH], patch))

    def ask(self, **notes):
        self.edit(metadata={"annotations": {f"punctual.dev/{name.replace('_', '-')}": v for name, v in notes.items()}})

    def work(self):
        """Carry out what was submitted, and what follows."""
        while self.queue:
            key, operation = self.queue.pop(0)
            assert key == Key(BATCH_JOBS, "b1")
            refused = self.refuses.get(type(operation))
            outcome = Outcome(key, operation, *(refused or ("done",)))
            if not refused:
                self._carry_out(operation)
            self.jobs.wrote(outcome)

    def _carry_out(self, operation):
        match operation:
            case CreateObject(path, body):
                there = f"{path}/{body['metadata']['name']}"
                self.bodies[there] = merged(body, {"metadata": {"uid": "d1", "generation": 1}})
                self.bodies[there]["metadata"]["creationTimestamp"] = CREATED
                self.caches.observe("divisiblejobs", None, self.bodies[there])
            case Patch(path, patch) if path == JOB_PATH:
                self.told(merged(self.bodies[path], patch))
            case Patch(path, patch):
                edited = self.bodies[path] = merged(self.bodies[path], patch)
                edited["metadata"]["generation"] += 1
                self.caches.observe("divisiblejobs", None, edited)
            case DeleteObject(path, uid) if path in self.bodies:
                assert uid == "d1"
                self.caches.observe("divisiblejobs", "DELETED", self.bodies.pop(path))
                self.signal(Signal("left", "ns/nightly"))
            case Annotate(path, annotations):
                self.told(merged(self.bodies[path], {"metadata": {"annotations": annotations}}))

    def see_pod(self, body, *, gone=False):
        pods = self.caches.informers[1]
        pods._tell_deleted(body) if gone else pods._told(body)

    def answer(self, record):
        """Let the DivisibleJob have an answer, and what follows."""
        self.caches.directory.jobs["d1"].term.record = record
        self.caches.directory.jobs["d1"].term.pool = "main"
        self.signal(Signal("answer", "d1"))
        self.work()

    def tend(self, seconds):
        self.now += seconds
        self.jobs.tend()
        self.work()

    @property
    def notes(self):
        return {n.partition("/")[2]: v for n, v in self.bodies[JOB_PATH]["metadata"]["annotations"].items()}

    @property
    def asked(self):
        return self.caches.directory.jobs["d1"].template()

    def take(self, *kinds):
        """Return the operations of these kinds that were submitted since it was asked last."""
        taken, self.log = [operation for operation in self.log if isinstance(operation, kinds)], []
        return taken


@pytest.fixture
def stage():
    return Stage()


@pytest.fixture
def promised(stage):
    stage.told(batch_body())
    stage.work()
    stage.answer(PROMISED)
    return stage


def test_a_divisible_job_is_made_once(stage):
    stage.told(batch_body())
    stage.signal(Signal("pool", "main"))
    stage.ask(note="an edit of something else")
    assert [operation.path for operation in stage.take(CreateObject)] == [JOBS.path(namespace="ns")]
    stage.work()
    stage.signal(Signal("pool", "main"))
    stage.begin()
    stage.work()
    assert stage.take(CreateObject) == []
    assert stage.asked["jobRef"] == {"name": "nightly", "uid": "b1"}
    assert "state" not in stage.notes, "there is no answer yet"


def test_a_job_with_the_label_alone_is_left_alone(stage):
    stage.told(batch_body(asked={}))
    stage.signal(Signal("pool", "main"))
    assert (stage.log, stage.events) == ([], [])


@pytest.mark.parametrize("suspend", [False, None])
def test_a_job_that_has_begun_by_itself_is_told_so_and_left_alone(stage, suspend):
    stage.told(batch_body(suspend=suspend))
    stage.work()
    stage.signal(Signal("pool", "main"))
    stage.begin()
    stage.work()
    assert stage.events == [("nightly", "Warning", reasons.NOT_SUSPENDED)]
    assert [type(operation) for operation in stage.log] == [Annotate]
    assert stage.notes["state"] == "Refused"
    assert "create it suspended" in stage.notes["message"]


def test_a_job_of_a_queue_that_has_begun_is_told_whose_it_is(stage):
    stage.told(batch_body(suspend=False, labels={"punctual.dev/pool": "main", "kueue.x-k8s.io/queue-name": "team"}))
    stage.work()
    assert stage.events == [("nightly", "Warning", reasons.INVALID_SPEC)]
    assert stage.notes["message"].startswith("it belongs to the queue team of Kueue, which starts it: ")


def test_a_gate_of_its_own_opens_no_job(stage):
    stage.told(batch_body(pod={"schedulingGates": [GATE]}))
    stage.work()
    stage.answer(PROMISED)
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]
    assert not stage.asked.get("suspend")
    assert stage.bodies[JOB_PATH]["spec"]["template"]["spec"]["schedulingGates"] == [GATE]


def test_a_job_with_a_gate_of_its_own_that_is_not_suspended_is_left_alone(stage):
    stage.told(batch_body(pod={"schedulingGates": [GATE]}, suspend=False))
    stage.work()
    assert stage.events == [("nightly", "Warning", reasons.NOT_SUSPENDED)]
    assert stage.take(CreateObject, Patch) == []


def test_what_is_wrong_is_told_once_and_again_after_an_edit(stage):
    stage.told(batch_body(asked={DEADLINE: "soon"}))
    stage.signal(Signal("pool", "main"))
    stage.work()
    stage.signal(Signal("pool", "main"))
    stage.begin()
    assert stage.events == [("nightly", "Warning", reasons.INVALID_SPEC)]
    assert "'soon' is not a duration" in stage.notes["message"]
    assert len(stage.take(Annotate)) == 1
    stage.ask(deadline="later")
    stage.work()
    assert stage.events == [("nightly", "Warning", reasons.INVALID_SPEC)] * 2
    assert "'later' is not a duration" in stage.notes["message"]
    stage.ask(deadline="45m")
    assert len(stage.take(CreateObject)) == 1


def test_its_size_is_looked_at_when_its_pool_comes_or_changes(stage):
    pool = stage.caches.directory.pools.named("main")
    spec, pool.term.spec = pool.term.spec, None
    stage.told(batch_body(cpu="2"))
    assert len(stage.take(CreateObject)) == 1, "the gate of DivisibleJobs answers it"
    pool.term.spec = spec
    stage.begin()
    stage.queue.clear()
    stage.log.clear()
    stage.signal(Signal("pool", "main"))
    stage.work()
    assert stage.events[-1] == ("nightly", "Warning", reasons.POD_TOO_LARGE)


def test_a_name_that_is_taken_is_told_once_and_the_job_is_asked_for_when_it_is_free(stage):
    stage.refuses[CreateObject] = "conflict", "exists"
    stage.told(batch_body())
    stage.work()
    stage.signal(Signal("pool", "main"))
    stage.work()
    assert stage.events == [("nightly", "Warning", reasons.NAME_TAKEN)]
    assert "a DivisibleJob nightly is there already" in stage.notes["message"]
    assert stage.bodies[JOB_PATH]["spec"]["suspend"]
    assert len(stage.take(CreateObject)) <= 2
    stage.refuses.clear()
    stage.signal(Signal("left", "ns/nightly"))
    stage.work()
    assert stage.asked["units"] == 4


def test_a_job_with_a_time_limit_whose_name_is_taken_is_asked_for_once(stage):
    stage.refuses[CreateObject] = "conflict", "exists"
    stage.told(batch_body(activeDeadlineSeconds=600))
    for stage.now in (1.0, 20.0, 300.0):
        stage.signal(Signal("pool", "main"))
        stage.work()
    assert len(stage.take(CreateObject)) == 1


def test_what_the_api_server_refuses_is_told_in_its_words(stage):
    stage.refuses[CreateObject] = "refused", "quota exceeded"
    stage.told(batch_body())
    stage.work()
    assert stage.events == [("nightly", "Warning", reasons.INVALID_SPEC)]
    assert stage.notes["message"] == "quota exceeded"


def test_a_job_for_which_nothing_could_be_made_is_asked_for_again_after_a_while(stage):
    stage.refuses[CreateObject] = "refused", "a quota was in the way"
    stage.told(batch_body())
    stage.work()
    for _ in range(3):
        stage.tend(EVERY)
    assert len(stage.take(CreateObject)) == 4
    assert len(stage.events) == 1
    stage.refuses.clear()
    stage.tend(EVERY)
    assert stage.asked["units"] == 4
    stage.tend(EVERY)
    assert len(stage.take(CreateObject)) == 1


def test_an_opening_that_was_refused_is_tried_again_after_a_while(stage):
    stage.told(batch_body())
    stage.work()
    stage.refuses[Patch] = "refused", "a policy does not like it"
    stage.answer(PROMISED)
    stage.tend(1.0)
    assert len(stage.take(Patch)) == 1
    stage.refuses.clear()
    stage.tend(EVERY)
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]
    stage.tend(EVERY)
    assert len(stage.take(Patch)) == 1


def test_a_job_is_opened_once_when_it_is_promised(promised):
    spec = promised.bodies[JOB_PATH]["spec"]
    assert not spec["suspend"]
    assert spec["template"]["spec"]["schedulingGates"] == [GATE]
    assert spec["template"]["spec"]["tolerations"] == [TOLERATION]
    assert [operation.path for operation in promised.take(Patch)] == [JOB_PATH]
    promised.answer(PROMISED._replace(started=1.0))
    promised.begin()
    promised.tend(2 * EVERY)
    assert promised.take(Patch) == []
    assert promised.events[0] == ("nightly", "Normal", reasons.FEASIBLE)
    assert promised.events[1] == ("nightly", "Normal", reasons.LOST_PODS_COUNT)
    assert promised.notes["state"] == "Running"
    assert promised.notes["eta"] == "2030-01-01T00:43:20Z"
    assert promised.notes["slack"] == "1m40s"


def test_an_opening_is_submitted_once_however_often_it_is_looked_at(stage):
    stage.told(batch_body())
    stage.work()
    stage.caches.directory.jobs["d1"].term.record = PROMISED
    for _ in range(3):
        stage.signal(Signal("answer", "d1"))
    assert [type(operation) for operation in stage.take(Patch, Annotate)] == [Annotate, Patch]
    assert stage.events == [("nightly", "Normal", reason) for reason in (reasons.FEASIBLE, reasons.LOST_PODS_COUNT)]


def test_a_job_without_an_answer_stays_suspended(stage):
    stage.told(batch_body())
    stage.work()
    for record in (JobRecord(), JobRecord(admitted=NO)):
        stage.answer(record)
        assert stage.bodies[JOB_PATH]["spec"]["suspend"]
    assert stage.take(Patch) == []
    assert stage.notes["state"] == "Refused"


def test_an_offer_is_told_and_the_edit_asks_again(stage):
    stage.told(batch_body())
    stage.work()
    stage.answer(JobRecord(admitted=NO, refused=1.0, offer=Offer(4000.0, BEGIN + 560.0, 3)))
    assert stage.notes["offer"] == "1h16m"  # it was refused 500 s after its creation, and may be edited for 60 s
    stage.ask(deadline="1h10m")
    stage.work()
    assert stage.asked["deadlineTime"] == "2030-01-01T01:10:00Z"
    stage.answer(PROMISED)
    assert "offer" not in stage.notes
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]


def test_edits_of_deadline_and_parallelism_reach_the_divisible_job(promised):
    promised.ask(deadline="50m")
    promised.edit(spec={"parallelism": 3})
    promised.work()
    assert promised.asked["deadlineTime"] == "2030-01-01T00:50:00Z"
    assert promised.asked["processors"] == {"max": 3}
    promised.ask(deadline="never")
    promised.work()
    assert promised.asked["deadlineTime"] == "2030-01-01T00:50:00Z"


IGNORES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


def test_a_job_that_ignores_disruptions_is_not_told_of_them(stage):
    stage.told(batch_body(podFailurePolicy=IGNORES))
    stage.work()
    stage.answer(PROMISED)
    assert stage.events == [("nightly", "Normal", reasons.FEASIBLE)]


CHUNKS = tuple(Chunk(k, k + 1, k + 1, "n1", 1, 0.0, 30.0) for k in range(12))


@pytest.fixture
def large(stage):
    """A Job of 200 indexes, of which 12 run."""
    stage.told(batch_body(completions=200, parallelism=200))
    stage.work()
    stage.answer(PROMISED._replace(chunks=CHUNKS))
    return stage


def test_its_parallelism_follows_its_chunks_and_is_given_back_at_its_end(large):
    assert large.bodies[JOB_PATH]["spec"]["parallelism"] == 26
    assert large.notes["parallelism"] == "200"
    assert large.asked["processors"] == {"max": 200}
    large.take(Patch)
    for chunks in (CHUNKS[3:], CHUNKS[6:], CHUNKS):
        large.answer(PROMISED._replace(chunks=chunks))
    assert large.take(Patch) == []
    large.answer(PROMISED._replace(chunks=CHUNKS[:1]))
    assert large.bodies[JOB_PATH]["spec"]["parallelism"] == 4
    large.edit(status={"conditions": [{"type": "Complete", "status": "True"}]})
    large.work()
    assert large.bodies[JOB_PATH]["spec"]["parallelism"] == 200
    assert not {"parallelism", "parallelism-written"} & large.notes.keys()


def test_an_edit_of_a_parallelism_that_the_operator_wrote_is_the_users(large):
    large.edit(spec={"parallelism": 100})
    large.work()
    assert large.asked["processors"] == {"max": 100}
    assert large.bodies[JOB_PATH]["spec"]["parallelism"] == 26
    assert large.notes["parallelism"] == "100"


def test_a_parallelism_that_another_manager_puts_back_stays(large):
    large.take(Patch)
    for _ in range(3):
        large.edit(spec={"parallelism": 200})
        large.work()
        large.tend(30.0)
    assert large.take(Patch) == []
    assert large.asked["processors"] == {"max": 200}


def test_a_pod_that_finds_no_node_is_withdrawn_with_those_at_the_gate_and_no_other(large):
    running, unbound = (started_pod(f"p{k}", begin=k, node=node) for k, node in enumerate(("n1", None)))
    for pod in (running, unbound):
        large.see_pod(pod)
    large.gated.end(EndPod("ns", "p1", "p1"))
    large.tend(1.0)
    assert large.bodies[JOB_PATH]["spec"]["parallelism"] == 1
    assert large.notes["parallelism"] == "200"
    large.tend(1.0)
    assert large.bodies[JOB_PATH]["spec"]["parallelism"] == 1
    large.see_pod(unbound, gone=True)
    large.tend(1.0)
    assert large.bodies[JOB_PATH]["spec"]["parallelism"] == 26


def test_pods_of_an_earlier_promise_are_not_taken_away(large):
    for k in range(9):
        large.see_pod(started_pod(f"p{k}", begin=k, claims="d0"))
    large.answer(PROMISED._replace(chunks=()))
    assert large.bodies[JOB_PATH]["spec"]["parallelism"] == 26
    for k in range(7):
        large.see_pod(started_pod(f"p{k}", begin=k, claims="d0"), gone=True)
    large.tend(1.0)
    assert large.bodies[JOB_PATH]["spec"]["parallelism"] == 6


def test_a_promise_is_asked_for_anew_when_the_completions_of_a_job_change(large):
    large.edit(spec={"parallelism": 220, "completions": 220})
    large.work()
    assert large.take(DeleteObject)
    assert large.asked["units"] == 220
    assert not large.bodies[JOB_PATH]["spec"]["suspend"]


def test_a_time_limit_bounds_the_deadline_and_an_edit_of_it_asks_again(stage):
    stage.told(batch_body(activeDeadlineSeconds=600))
    stage.work()
    assert stage.asked["deadlineTime"] == "2030-01-01T00:10:00Z"
    stage.answer(JobRecord(admitted=NO, refused=1.0, offer=Offer(900.0, 9.0, 3)))
    assert stage.notes["message"].endswith(
        "spec.activeDeadlineSeconds: 600 ends the Job before its deadline: set 900 or more"
    )
    stage.now = 60.0
    stage.edit(spec={"activeDeadlineSeconds": 1000})
    stage.work()
    assert stage.asked["deadlineTime"] == "2030-01-01T00:17:40Z"
    stage.answer(PROMISED)
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]
    stage.edit(status={"startTime": "2030-01-01T00:01:02Z"})
    stage.work()
    assert stage.asked["deadlineTime"] == "2030-01-01T00:17:42Z"


def test_an_edit_that_the_api_server_refuses_is_told(promised):
    promised.refuses[Patch] = "refused", "no"
    promised.ask(deadline="50m")
    promised.work()
    promised.tend(1.0)
    assert promised.events[2:] == [("nightly", "Warning", reasons.EDIT_REFUSED)]


def test_a_user_suspends_and_resumes_it(promised):
    promised.edit(spec={"suspend": True})
    promised.work()
    assert promised.asked["suspend"]
    promised.answer(JobRecord(admitted=Verdict("False", reasons.SUSPENDED, "by its user")))
    promised.tend(60.0)
    assert promised.notes["state"] == "Suspended"
    assert "has set it" not in promised.notes["message"]
    assert promised.bodies[JOB_PATH]["spec"]["suspend"]
    promised.edit(spec={"suspend": False})
    promised.work()
    assert not promised.asked["suspend"]
    promised.answer(PROMISED)
    assert not promised.bodies[JOB_PATH]["spec"]["suspend"]


def test_who_has_suspended_a_job_that_was_let_begin_is_told(promised):
    fields = [{"manager": "argocd-controller", "fieldsV1": {"f:spec": {"f:suspend": {}}}}]
    promised.edit(spec={"suspend": True}, metadata={"managedFields": fields})
    promised.work()
    verdict = Verdict("False", reasons.SUSPENDED, "spec.suspend is true: the promise was given up")
    promised.answer(JobRecord(admitted=verdict))
    promised.tend(60.0)
    assert promised.notes["message"] == f"{verdict.message}; argocd-controller has set it"
    assert promised.events[-1] == ("nightly", "Normal", reasons.SUSPENDED)
    assert promised.bodies[JOB_PATH]["spec"]["suspend"]


def test_one_that_is_refused_after_measuring_is_suspended_until_an_edit_is_promised(stage):
    stage.told(batch_body(asked={DEADLINE: "45m"}))
    stage.work()
    stage.answer(JobRecord(admitted=MEASURING))
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"], "its pilots run"
    assert stage.notes["state"] == "Measuring"
    stage.answer(JobRecord(admitted=NO, refused=1.0))
    assert stage.bodies[JOB_PATH]["spec"]["suspend"]
    template = stage.bodies[JOB_PATH]["spec"]["template"]
    assert not stage.asked.get("suspend"), "not by its user"
    stage.ask(deadline="2h")
    stage.work()
    stage.answer(PROMISED)
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]
    assert not stage.asked.get("suspend")
    assert stage.bodies[JOB_PATH]["spec"]["template"] == template, "it cannot change any more"


def test_one_that_its_user_resumes_although_it_is_refused_is_suspended_again(stage):
    stage.told(batch_body(asked={DEADLINE: "45m"}))
    stage.work()
    stage.answer(JobRecord(admitted=MEASURING))
    stage.answer(JobRecord(admitted=NO, refused=1.0))
    stage.edit(spec={"suspend": False})
    stage.work()
    assert stage.bodies[JOB_PATH]["spec"]["suspend"]


ANYWAY = JobRecord(admitted=NO, goes_on=True, offer=Offer(4000.0, BEGIN + 60.0, 3), eta=END + 60)


def test_one_that_starts_anyway_is_opened_and_told_its_refusal_its_offer_and_its_end(stage):
    stage.told(batch_body(asked={DEADLINE: "45m", "punctual.dev/start-anyway": "true"}))
    stage.work()
    assert stage.asked["onRefusal"] == "Continue"
    stage.answer(ANYWAY)
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]
    assert stage.notes["state"] == "Waiting"
    stage.answer(ANYWAY._replace(started=1.0))
    assert stage.notes["state"] == "Running"
    assert (stage.notes["offer"], stage.notes["message"]) == ("1h7m40s", NO.message)
    assert stage.notes["eta"] == "2030-01-01T00:46:00Z"
    assert "slack" not in stage.notes
    assert stage.events[-1] == ("nightly", "Normal", reasons.INFEASIBLE_CAPACITY)


def test_a_refused_job_starts_with_the_annotation_and_is_suspended_without_it(stage):
    stage.told(batch_body(asked={DEADLINE: "45m"}))
    stage.work()
    stage.answer(JobRecord(admitted=NO, refused=1.0))
    assert stage.bodies[JOB_PATH]["spec"]["suspend"]
    stage.ask(start_anyway="true")
    stage.work()
    assert stage.asked["onRefusal"] == "Continue"
    stage.answer(ANYWAY)
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]
    stage.ask(start_anyway=None)
    stage.work()
    assert stage.asked["onRefusal"] == "Stop"
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"], "until it is refused"
    stage.answer(JobRecord(admitted=NO, refused=2.0))
    assert stage.bodies[JOB_PATH]["spec"]["suspend"]
    assert not stage.asked.get("suspend"), "not by its user"


def test_a_job_that_was_put_aside_starts_with_the_annotation(stage):
    stage.told(batch_body(asked={DEADLINE: "45m"}))
    stage.work()
    known = stage.caches.directory.jobs["d1"]
    known.term.aside = reasons.INFEASIBLE_CAPACITY
    read = []
    stage.jobs._tools.kinds.signal = lambda *told: read.append(told)
    stage.ask(start_anyway="true")
    assert ("job", "d1") in read


@pytest.mark.parametrize(("end", "failed"), [("Failed", "the Job has failed: "), ("Complete", "")])
def test_the_pool_is_told_how_a_job_has_ended(promised, end, failed):
    promised.edit(status={"conditions": [{"type": end, "status": "True"}]})
    promised.work()
    pool, told = promised.told_pool[-1]
    assert (pool, told.uid) == ("main", promised.jobs._jobs.of_batch("b1").uid)
    assert told.failed.startswith(failed)
    assert bool(told.failed) == bool(failed)
    assert not promised.asked.get("suspend")


def test_forecasts_are_written_once_in_a_while_and_changes_of_state_at_once(promised):
    promised.take(Annotate)
    for second in range(1, 30):
        promised.answer(PROMISED._replace(eta=PROMISED.eta + second))
    assert promised.take(Annotate) == []
    promised.tend(EVERY)
    assert len(promised.take(Annotate)) == 1
    assert promised.notes["slack"] == "1m11s"
    promised.tend(1.0)
    assert promised.take(Annotate) == []
    promised.answer(PROMISED._replace(on_track=LATE, eta=END + 5))
    assert promised.notes["state"] == "Late"
    assert promised.events[-1] == ("nightly", "Warning", reasons.LATE)


@pytest.mark.parametrize(
    ("more", "state", "reason", "kind"),
    [
        ({"completed_condition": Verdict("True", reasons.COMPLETED, "done")}, "Completed", reasons.COMPLETED, "Normal"),
        (
            {"completed_condition": Verdict("True", reasons.DEADLINE_MISSED, "late")},
            "Missed",
            reasons.DEADLINE_MISSED,
            "Warning",
        ),
    ],
)
def test_its_end_is_told_without_a_forecast(promised, more, state, reason, kind):
    promised.answer(PROMISED._replace(finished=1.0, **more))
    assert promised.notes["state"] == state
    assert promised.events[-1] == ("nightly", kind, reason)
    assert not {"eta", "slack"} & promised.notes.keys()


def test_a_job_begins_a_moment_before_its_first_planned_start(stage):
    stage.told(batch_body())
    stage.work()
    later = PROMISED._replace(promise=PROMISED.promise._replace(start=BEGIN + 600))
    stage.answer(later)
    assert stage.notes["state"] == "Waiting"
    stage.ask(deadline="50m")
    stage.work()
    assert stage.asked["deadlineTime"] == "2030-01-01T00:50:00Z", "it can be edited before"
    stage.tend(600 - AHEAD - 1)
    assert stage.bodies[JOB_PATH]["spec"]["suspend"]
    stage.tend(2)
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]


def test_a_job_begins_when_a_chunk_needs_its_pod_before_it_was_planned_to(stage):
    stage.told(batch_body())
    stage.work()
    later = PROMISED._replace(promise=PROMISED.promise._replace(start=BEGIN + 600))
    stage.answer(later)
    chunk = Chunk(0, 1, 1, "n1", 0, "Chunk", BEGIN, BEGIN + 20)
    stage.answer(later._replace(chunks=(chunk,), started=BEGIN))
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]


def test_a_promised_job_that_its_user_starts_gives_its_promise_up(stage):
    stage.told(batch_body())
    stage.work()
    stage.answer(PROMISED._replace(promise=PROMISED.promise._replace(start=BEGIN + 600)))
    stage.take(DeleteObject)
    stage.edit(spec={"suspend": False})
    stage.work()
    assert len(stage.take(DeleteObject)) == 1
    assert stage.events[-1] == ("nightly", "Warning", reasons.NOT_SUSPENDED)
    assert not stage.bodies[JOB_PATH]["spec"]["suspend"]


def test_a_divisible_job_that_a_user_deletes_is_made_again_and_its_job_goes_on(promised):
    promised.take(CreateObject)
    promised.caches.directory.jobs.forget("d1")
    promised.signal(Signal("left", "ns/nightly"))
    promised.work()
    assert len(promised.take(CreateObject)) == 1
    assert promised.events == [("nightly", "Normal", reason) for reason in (reasons.FEASIBLE, reasons.LOST_PODS_COUNT)]


@pytest.mark.parametrize(
    "gone",
    [
        {"metadata": {"deletionTimestamp": CREATED}},
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
    ],
)
def test_of_a_job_that_goes_or_has_ended_none_is_made(promised, gone):
    promised.take()
    promised.edit(**gone)
    promised.work()
    promised.caches.directory.jobs.forget("d1")
    promised.signal(Signal("left", "ns/nightly"))
    promised.work()
    assert promised.take(CreateObject) == []


def test_a_job_that_is_created_again_under_its_name_is_another_one(promised):
    promised.caches.informers[3]._tell_deleted(promised.bodies[JOB_PATH])
    promised.caches.directory.jobs.forget("d1")
    promised.take()
    promised.told(batch_body(uid="b2", asked=promised.bodies[JOB_PATH]["metadata"]["annotations"]))
    ((key, create),) = promised.queue
    assert key == Key(BATCH_JOBS, "b2")
    assert create.body["spec"]["jobRef"]["uid"] == "b2"


def test_nothing_is_kept_of_a_job_that_is_gone(promised):
    promised.caches.informers[3]._tell_deleted(promised.bodies[JOB_PATH])
    assert (promised.jobs._told, promised.jobs._changed) == ({}, {})
