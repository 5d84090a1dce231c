import asyncio

import pytest
from clocks import clock

from punctual import errors, reasons
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.claims import Claims, Volume, VolumeClaim
from punctual.kube.gate import trials
from punctual.kube.gate.admission_gate import OVERDUE, AdmissionGate
from punctual.kube.gate.trials import KEPT
from punctual.kube.known.directory import Directory
from punctual.kube.known.oversize import LARGEST
from punctual.scheduling.model.node_rules import ANY_NODE, Requirement
from punctual.theory.cost import Cost

CREATED = "2030-01-01T00:00:00Z"


class Server:
    """An API server that answers dry-run creates as it is told."""

    def __init__(self):
        self.answers = []
        self.asked = []
        self.adds = {}

    async def create(self, path, body, *, dry_run, strict):
        assert dry_run
        assert strict
        self.asked.append((path, body))
        answer = self.answers.pop(0) if self.answers else None
        if answer:
            raise answer
        return {**body, "spec": {**body["spec"], **self.adds}}


def job(uid="j1", **spec):
    container = {"containers": [{"name": "main", "image": "img"}]}
    return {
        "metadata": {
            "name": uid,
            "namespace": "ns",
            "uid": uid,
            "generation": 1,
            "creationTimestamp": CREATED,
        },
        "spec": {
            "pool": "main",
            "units": 5,
            "deadline": "1h",
            "cost": {"perUnit": "1s"},
            "template": {"spec": container},
            **spec,
        },
    }


@pytest.fixture
def directory():
    made = Directory()
    made.pools.observe(
        {
            "metadata": {"name": "main", "uid": "p1", "generation": 1, "creationTimestamp": CREATED},
            "spec": {
                "nodeSelector": {},
                "processor": {"cpu": "1"},
                "namespaceSelector": {"matchLabels": {"team": "vision"}},
            },
        }
    )
    return made


class Desk:
    """An intake with a server, a clock and labels that a test may turn."""

    def __init__(self, directory):
        self.server = Server()
        self.now = 0.0
        self.labels = {"team": "vision"}
        self.again = []
        self.directory = directory
        self.claims = Claims()
        self.server.clock = clock(lambda: self.now)
        caches = Caches(self.server)
        caches.directory, caches.claims, caches.labels = directory, self.claims, lambda _: self.labels
        self.intake = AdmissionGate(self.server, caches, self.again.append)

    def ask(self, body, *, decided=False):
        known = self.directory.jobs.observe(body) or self.directory.jobs[body["metadata"]["uid"]]
        return self.intake.job(known, decided=decided)

    async def answered(self):
        async with asyncio.timeout(60):
            while self.intake._trials._questions:  # noqa: ASYNC110  theirs
                await asyncio.sleep(0.001)


@pytest.fixture
async def desk(directory):
    made = Desk(directory)
    yield made
    await made.intake.close()


async def test_a_job_waits_until_it_is_known_that_its_pods_may_be(desk):
    assert desk.ask(job()) is None
    await desk.answered()
    assert desk.again == ["j1"]
    assert desk.ask(job()).refusal is None
    ((path, body),) = desk.server.asked
    assert path == "/api/v1/namespaces/ns/pods"
    assert body["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"


async def test_one_question_serves_all_jobs_of_a_template(desk):
    assert [desk.ask(job(uid)) for uid in ("j1", "j2", "j3")] == [None, None, None]
    await desk.answered()
    assert sorted(desk.again) == ["j1", "j2", "j3"]
    assert len(desk.server.asked) == 1


async def test_the_answer_is_asked_for_again_after_a_minute(desk):
    desk.ask(job())
    await desk.answered()
    desk.now = KEPT + 1
    assert desk.ask(job("j2")) is None


async def test_another_template_is_another_question(desk):
    desk.ask(job())
    await desk.answered()
    assert desk.ask(job("j2", template={"spec": {"containers": [{"name": "main", "image": "other"}]}})) is None


@pytest.mark.parametrize("error", [errors.Forbidden("exceeded quota"), errors.Invalid("exceeded quota")])
async def test_what_the_server_refuses_is_refused_in_its_words(desk, error):
    desk.server.answers = [error]
    desk.ask(job())
    await desk.answered()
    reason, message = desk.ask(job()).refusal
    assert reason == reasons.POD_REFUSED
    assert "exceeded quota" in message


async def test_a_server_that_is_away_is_asked_again(desk):
    desk.server.answers = [errors.Unreachable("away", retry_after=0.0)]
    desk.ask(job())
    await desk.answered()
    assert desk.ask(job()).refusal is None
    assert len(desk.server.asked) == 2


@pytest.mark.parametrize(("times", "reason"), [(1, None), (2, reasons.POD_REFUSED)])
async def test_rights_that_a_server_which_starts_does_not_know_of_yet_refuse_no_job(desk, times, reason, monkeypatch):
    monkeypatch.setattr(trials, "RIGHTS", 2)
    desk.server.answers = [errors.NoRight("User cannot create pods", retry_after=0.0) for _ in range(times)]
    desk.ask(job())
    await desk.answered()
    refusal = desk.ask(job()).refusal
    assert (refusal and refusal[0]) == reason


async def test_the_reduce_pod_is_asked_about_before_the_promise_too(desk):
    reduce = {"duration": "1s", "template": {"spec": {"containers": [{"name": "sum", "image": "sum"}]}}}
    desk.server.answers = [None, errors.Forbidden("no sums here")]
    assert desk.ask(job(reduce=reduce)) is None
    await desk.answered()
    assert len(desk.server.asked) == 2
    assert "no sums here" in desk.ask(job(reduce=reduce)).refusal[1]


async def test_an_answer_is_good_for_a_job_that_waited_for_another_one_meanwhile(desk):
    reduce = {"duration": "1s", "template": {"spec": {"containers": [{"name": "sum", "image": "sum"}]}}}
    desk.server.answers = [None, errors.Unreachable("away", retry_after=0.0)]
    assert desk.ask(job(reduce=reduce)) is None
    while len(desk.server.asked) < 2:  # noqa: ASYNC110  theirs
        await asyncio.sleep(0.001)
    desk.now = KEPT + 1  # that of the chunks is no news any more
    await desk.answered()
    assert desk.ask(job(reduce=reduce)).refusal is None
    assert len(desk.server.asked) == 3


async def test_who_waits_for_long_is_told_for_what(desk):
    desk.server.answers = [errors.Busy("failed calling webhook x: 500", retry_after=0.0)] * 3
    assert desk.ask(job()) is None
    while not desk.server.asked:  # noqa: ASYNC110  theirs
        await asyncio.sleep(0.001)
    assert list(desk.intake.overdue()) == []
    desk.now = OVERDUE
    ((uid, text),) = desk.intake.overdue()
    assert uid == "j1"
    assert "is tried again: failed calling webhook x: 500" in text
    await desk.answered()
    assert desk.ask(job()).refusal is None
    assert list(desk.intake.overdue()) == []


async def test_who_waits_for_a_reservation_is_told_so(desk):
    created = {"metadata": {"name": "nightly", "namespace": "ns", "uid": "r1", "creationTimestamp": CREATED}}
    desk.directory.reservations.observe({**created, "spec": {"pool": "main"}})
    assert desk.ask(job(reservation="nightly")) is None
    desk.now = OVERDUE
    assert list(desk.intake.overdue()) == [("j1", "the Reservation that it names has no answer yet")]
    desk.intake.forget("j1")
    assert list(desk.intake.overdue()) == []


async def test_a_namespace_that_is_not_the_pools_is_refused_without_a_question(desk):
    desk.labels = {}
    assert desk.ask(job()).refusal[0] == reasons.NOT_ALLOWED
    assert desk.server.asked == []


async def test_a_spec_that_leaves_its_status_no_room_is_refused_without_a_question(desk):
    large = job()
    large["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * LARGEST]
    assert desk.ask(large).refusal[0] == "InvalidSpec"
    assert "more than 128" in desk.ask(large).refusal[1]
    assert desk.server.asked == []


async def test_a_promise_that_stands_is_not_asked_about_again(desk):
    desk.labels = {}
    assert desk.ask(job(), decided=True).refusal is None
    assert desk.server.asked == []


async def test_a_profile_gives_the_cost(desk):
    named = job(profile="thumbs")
    del named["spec"]["cost"]
    assert desk.ask(named, decided=True).refusal[0] == reasons.PROFILE_NOT_FOUND
    meta = {"name": "thumbs", "namespace": "ns", "uid": "f1", "creationTimestamp": CREATED}
    desk.directory.profiles.observe({"metadata": meta, "spec": {"perUnit": "2s"}})
    assert desk.ask(named, decided=True).cost == Cost(2.0, 0.0, 0.0, 2.0)


async def test_a_spec_that_cannot_be_read_is_a_refusal(desk):
    reason, message = desk.ask(job(deadline="soon")).refusal
    assert reason == reasons.INVALID_SPEC
    assert "spec.deadline" in message


SSD = {"nodeSelector": {"disk": "ssd"}}


def said(job):
    return [rule.said for rule in job.rules.rules]


async def test_a_job_carries_the_rules_of_its_template_before_and_after_its_decision(desk):
    containers = job()["spec"]["template"]["spec"]
    asked = job(template={"spec": {**containers, **SSD}})
    assert said(desk.ask(asked, decided=True)) == ["spec.template.spec.nodeSelector: disk=ssd"]
    desk.ask(asked)
    await desk.answered()
    assert said(desk.ask(asked)) == ["spec.template.spec.nodeSelector: disk=ssd"]


async def test_a_template_without_rules_has_those_of_any_node(desk):
    desk.ask(job())
    await desk.answered()
    assert desk.ask(job()).rules.rules == ANY_NODE.rules


async def test_what_admission_adds_to_the_pods_counts_and_still_does_when_the_job_is_decided(desk):
    desk.server.adds = SSD
    desk.ask(job())
    await desk.answered()
    assert said(desk.ask(job())) == ["spec.template.spec.nodeSelector: disk=ssd"]
    desk.now = KEPT + 1
    assert said(desk.ask(job(), decided=True)) == ["spec.template.spec.nodeSelector: disk=ssd"]


@pytest.mark.parametrize("through", ["a volume of the template", "the input"])
async def test_a_claim_confines_the_pods_as_soon_as_it_is_bound(desk, through):
    if through == "the input":
        asked = job(input={"volume": {"claimName": "data", "path": "a"}})
    else:
        mounted = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
        asked = job(template={"spec": {**job()["spec"]["template"]["spec"], **mounted}})
    assert desk.ask(asked, decided=True).rules.rules == ()
    term = (Requirement("host", "In", ("n1",)),)
    desk.claims.observe_volume(Volume("pv", (term,)), gone=False)
    desk.claims.observe_claim(VolumeClaim("ns", "data", "pv", None, frozenset({"ReadWriteOnce"})), gone=False)
    rules = desk.ask(asked, decided=True).rules
    assert (said(desk.ask(asked, decided=True)), rules.one_node) == (["claim data: host in (n1)"], "claim data")


async def test_a_claim_for_one_pod_bounds_the_processors(desk):
    asked = job(input={"volume": {"claimName": "data", "path": "a"}}, processors={"max": 4})
    assert desk.ask(asked, decided=True).max_processors == 4
    desk.claims.observe_claim(VolumeClaim("ns", "data", "", None, frozenset({"ReadWriteOncePod"})), gone=False)
    assert desk.ask(asked, decided=True).max_processors == 1


@pytest.mark.parametrize("owners", [[], [{"kind": "Job", "name": "j1", "uid": "b2"}]])
@pytest.mark.parametrize("decided", [False, True])
async def test_a_job_ref_that_is_not_the_owners_is_refused(desk, owners, decided):
    body = job(jobRef={"name": "j1", "uid": "b1"})
    body["metadata"]["ownerReferences"] = owners
    reason, message = desk.ask(body, decided=decided).refusal
    assert reason == reasons.INVALID_SPEC
    assert message.startswith("spec.jobRef: ")
    assert "leave it out" in message
    assert desk.server.asked == []


async def test_a_job_ref_of_the_owner_is_taken(desk):
    body = job(jobRef={"name": "j1", "uid": "b1"})
    body["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j1", "uid": "b1"}]
    desk.ask(body)
    await desk.answered()
    taken = desk.ask(body)
    assert taken.refusal is None
    assert taken.unit_pods


async def test_the_pod_of_a_job_is_tried_as_its_controller_would_create_it(desk):
    """The policy of the chart bounds what the operator creates, and this pod it does not create."""
    body = job(jobRef={"name": "j1", "uid": "b1"})
    body["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j1", "uid": "b1"}]
    desk.ask(body)
    desk.ask(job("j2"))
    await desk.answered()
    owners = [tried["metadata"]["ownerReferences"] for _, tried in desk.server.asked]
    assert [[(o["kind"], o["uid"]) for o in one] for one in owners] == [[("Job", "b1")], [("DivisibleJob", "j2")]]


async def test_jobs_with_the_same_pods_are_tried_once_though_the_api_server_names_each_in_its_labels(desk):
    for number in range(3):
        body = job(f"j{number}", jobRef={"name": f"j{number}", "uid": f"b{number}"})
        body["metadata"]["ownerReferences"] = [{"kind": "Job", "name": f"j{number}", "uid": f"b{number}"}]
        labels = {"app": "x", "controller-uid": f"b{number}", "batch.kubernetes.io/job-name": f"j{number}"}
        body["spec"]["template"]["metadata"] = {"labels": labels}
        desk.ask(body)
    await desk.answered()
    assert len(desk.server.asked) == 1
