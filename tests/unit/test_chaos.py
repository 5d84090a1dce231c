"""The reckoning of hack/chaos finds what must not be: each forgery is found, and what is right is let alone."""

import copy
from dataclasses import replace
from random import Random

import pytest
from chaos_lib import faults, hidden, ledger
from chaos_lib.faults import FAULTS, FEW, Scene, drawn
from chaos_lib.ground import NothingThere
from chaos_lib.jobs import KINDS, LIMITED, MISFITS, NAMESPACE, Maker
from chaos_lib.ledger import Struck
from chaos_lib.scribe import JobSeen, PodSeen, Scribe
from chaos_lib.templates import TEMPLATES

from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.api.resources import BATCH_JOBS, JOBS
from punctual.kube.cluster.batch_jobs import project_job
from punctual.kube.kinds.batch.contract import divisible_job, refusal
from punctual.notation.duration import format_time
from punctual.scheduling.model.resources import Resources

CREATED = "2026-01-01T00:00:00Z"
BEGAN = 1767225600.0


ENDED = {"a": 1.5, "b": 2.5, "b2": 2.5, "r": 3.5, "r2": 3.5}


def pod(name, begin, end, *, born=5, kind="Chunk", phase="Succeeded", gone=True, message="", job="u1"):
    notes = {"punctual.dev/begin": str(begin), "punctual.dev/end": str(end), "punctual.dev/attempt": "1"}
    labels = {"punctual.dev/job-uid": job, "punctual.dev/kind": kind}
    meta = {"name": name, "uid": name, "annotations": notes, "labels": labels}
    ended = [{"state": {"terminated": {"message": message}}}]
    body = {"metadata": meta, "status": {"phase": phase, "containerStatuses": ended}}
    return PodSeen(body, born, succeeded=BEGAN + ENDED[name] if phase == "Succeeded" else None, gone=gone)


def condition(kind, status, reason, message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


class Story:
    """A job of ten units that was done by two pods and reduced; a test spoils it."""

    def __init__(self):
        maker = Maker(1, "image:1", "a secret of the jobs")
        self.wish = maker._wish(
            "j", "waits", maker._spec({"spec": {}}, units=10, chi=1, most=2, slack=50, reduce=maker._reduce())
        )
        deadline = "2026-01-01T00:01:09Z"
        assert self.wish.deadlines == [69]
        chunks = [
            {"begin": 0, "end": 5, "attempt": 1, "kind": "Chunk", "pod": "a"},
            {"begin": 5, "end": 10, "attempt": 1, "kind": "Chunk", "pod": "b"},
        ]
        promised = {"epoch": 1, "promise": {"deadline": deadline}}
        reduce = {"begin": 10, "end": 11, "attempt": 1, "kind": "Reduce", "pod": "r"}
        completed = [{"begin": 0, "end": 10}]
        over = [condition("Admitted", "True", "Feasible"), condition("Completed", "True", "Completed", "done")]
        self.statuses = [
            {**promised, "chunks": chunks},
            {**promised, "chunks": chunks[1:], "completed": [{"begin": 0, "end": 5}]},
            {**promised, "epoch": 2, "chunks": [reduce], "completed": completed},
            {
                **promised,
                "epoch": 2,
                "completed": completed,
                "units": {"done": 10, "total": 10},
                "conditions": over,
                "finishTime": "2026-01-01T00:01:00Z",
            },
        ]
        self.pods = [
            pod("a", 0, 5),
            pod("b", 5, 10),
            pod("r", 10, 11, born=8, kind="Reduce", gone=False, message="0-5 10\n5-10 35"),
        ]
        self.gone = False
        self.times = [1, 2, 3, 4]

    def job(self):
        meta = {"name": "j", "uid": "u1", "creationTimestamp": CREATED}
        statuses = [(3 + 2 * n, status) for n, status in enumerate(self.statuses)]
        times = [BEGAN + at for at in self.times]
        body = {"metadata": meta, "spec": {"units": 10}, "status": self.statuses[-1]}
        return JobSeen(body, statuses, times, gone=self.gone)

    def audit(self, faults=()):
        return ledger.audit({"j": self.wish}, [self.job()], self.pods, faults)


def lose_a_unit(s):
    s.statuses[2]["completed"] = [{"begin": 1, "end": 10}]


def own_twice(s):
    s.statuses[1]["chunks"] = [{"begin": 4, "end": 10, "kind": "Chunk", "pod": "b"}]


def fall_back(s):
    s.statuses[3]["epoch"] = 1


def promise_something_else(s):
    s.statuses[1]["promise"] = {"deadline": "2026-01-01T00:02:00Z"}


def create_before_the_record(s):
    s.pods[2] = pod("r", 10, 11, born=6, kind="Reduce", gone=False, message="0-5 10\n5-10 35")


def count_a_range_twice(s):
    s.pods[2].body["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "0-5 10\n4-10 39"


def count_too_little(s):
    s.pods[2].body["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "0-5 10"


def result_of_other_units(s):
    s.pods[2].body["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "0-5 10\n5-10 10"


def reduce_twice(s):
    s.pods.append(pod("r2", 10, 11, born=8, kind="Reduce", gone=False, message="0-5 10\n5-10 35"))
    s.statuses[2]["chunks"].append({"begin": 10, "end": 11, "kind": "Reduce", "pod": "r2"})


def end_unfinished(s):
    del s.statuses[3]["conditions"][1]


def fail(s):
    s.statuses[3]["conditions"][1] = condition("Failed", "True", "ChunkFailed", "exit code 1")


def leave_a_pod(s):
    s.pods[0] = pod("a", 0, 5, gone=False)


def vanish(s):
    s.gone = True


def outlive(s):
    s.gone = s.wish.deleted = True
    s.pods[0] = pod("a", 0, 5, gone=False, phase="Running")


def do_again(s):
    s.pods.append(pod("b", 5, 10))


def be_a_jobs(s):
    """Let its pods be those of an ordinary Job."""
    s.wish.created = BEGAN
    for one in s.pods[:2]:
        one.body["metadata"]["ownerReferences"] = [{"kind": "Job"}]


def run_an_index_again(s):
    s.pods.append(pod("b2", 5, 10))
    be_a_jobs(s)
    s.pods[-1].body["metadata"]["ownerReferences"] = [{"kind": "Job"}]


def take_in_late(s):
    s.times[3] = 99


def refuse_strangely(s):
    s.statuses[3]["conditions"] = [condition("Admitted", "False", "InvalidSpec", "no")]


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lose_a_unit, "units 0…0 (1) were accounted and are not"),
        (own_twice, "units 4…4 (1) are two owners'"),
        (fall_back, "the epoch falls from 2 to 1"),
        (promise_something_else, "promised for 120 s after its creation"),
        (create_before_the_record, "pod r was there before it was in the status"),
        (count_a_range_twice, "the reduce step found units from 4 on where 5 was next"),
        (count_too_little, "the reduce step found 5 of 10 units"),
        (result_of_other_units, "units 5-10 add up to 35, their result is '10'"),
        (reduce_twice, "2 reduce pods are there that ended well"),
        (end_unfinished, "it has not ended"),
        (fail, "failed by ChunkFailed"),
        (leave_a_pod, "pod a (Chunk, Succeeded) is still there"),
        (vanish, "it is gone, but was not deleted"),
        (outlive, "pod a outlives it"),
        (do_again, "pod b ended well, and there was another of that name"),
        (run_an_index_again, "index 5 ended well, and there was another of that name"),
        (take_in_late, "pod r ended well, and was taken in 96 s later"),
        (refuse_strangely, "refused by InvalidSpec"),
    ],
)
def test_a_forged_ledger_is_found_out(spoil, found):
    story = Story()
    assert story.audit() == []
    spoil(story)
    (said,) = [what for what in story.audit() if found in what]
    assert said.startswith("j: ")


def test_an_index_whose_pod_somebody_deleted_may_be_run_again():
    story = Story()
    run_an_index_again(story)
    story.pods[1].deleted = True
    assert story.audit() == []


def test_what_somebody_deleted_may_be_done_again_and_what_nobody_led_for_taken_in_late():
    story = Story()
    do_again(story)
    story.pods[1].deleted = True
    assert story.audit() == []
    story = Story()
    story.statuses.insert(3, {**story.statuses[2], "epoch": 3})  # a new leader finds it
    story.statuses[4]["epoch"] = 3
    story.times = [1, 2, 3, 98, 99]
    assert story.audit() == []
    story.statuses[3]["epoch"] = 2
    late = ["j: pod r ended well, and was taken in 96 s later"]
    assert story.audit() == late
    fault = Struck("API server killed", BEGAN + 10, BEGAN + 50, disturbs=True, silences=True)
    assert story.audit([fault]) == []
    assert story.audit([replace(fault, end=BEGAN + 40)]) == late, "there was time enough besides"
    assert story.audit([replace(fault, silences=False)]) == late


def test_without_a_reduce_each_unit_needs_a_pod_that_ended_well():
    story = Story()
    del story.wish.body["spec"]["reduce"]
    story.pods = [pod("a", 0, 5), pod("b", 5, 9)]
    assert story.audit() == ["j: done, but no pod that ended well had units 9…9 (1)"]


def test_what_was_durable_has_no_result_and_what_has_one_is_right():
    story = Story()
    story.wish.body["spec"]["restart"] = "Resume"
    message = story.pods[2].body["status"]["containerStatuses"][0]["state"]["terminated"]
    message["message"] = "0-5 \n5-10 35"
    assert story.audit() == []
    message["message"] = "0-5 \n5-10 34"
    assert story.audit() == ["j: units 5-10 add up to 35, their result is '34'"]


def test_a_job_that_nobody_saw_is_missed():
    wish = Story().wish
    assert ledger.audit({"j": wish}, [], []) == ["j: was asked for and never seen"]


def late(story, *, told=None):
    story.statuses[3]["finishTime"] = "2026-01-01T00:01:40Z"
    if told:
        story.statuses[2]["conditions"] = [condition("OnTrack", "False", told)]
    return story


@pytest.mark.parametrize(
    ("story", "fault", "events", "expected"),
    [
        (Story(), Struck("leader killed", BEGAN, BEGAN, disturbs=True), (), None),
        (late(Story()), Struck("leader killed", BEGAN + 9, BEGAN + 9, disturbs=True), (), ((), ("leader killed",))),
        (
            late(Story(), told="CapacityLost"),
            Struck("x", BEGAN + 9, BEGAN + 12, disturbs=False),
            (),
            (("CapacityLost",), ()),
        ),
        (
            late(Story(), told="CapacityLost"),
            Struck("x", BEGAN - 99, BEGAN - 9, disturbs=True),
            (),
            (("CapacityLost",), ()),
        ),
        (
            late(Story()),
            Struck("x", BEGAN + 9, BEGAN + 12, disturbs=True),
            ("NodeLost", "Feasible"),
            (("NodeLost",), ("x",)),
        ),
    ],
)
def test_a_promise_that_was_not_kept_is_told_with_what_could_excuse_it(story, fault, events, expected):
    assert ledger.promises({"j": story.wish}, [story.job()]) == 1
    found = [(b.told, b.faults) for b in ledger.missed({"j": story.wish}, [story.job()], [fault], {"u1": events})]
    assert found == ([] if expected is None else [expected])


def test_the_same_seed_asks_for_the_same_jobs_and_all_are_what_the_schema_takes():
    maker, again = Maker(7, "image:1", "hush"), Maker(7, "image:1", "hush")
    wishes = [maker.job(n) for n in range(1, 120)]
    assert [w.body for w in wishes] == [again.job(n).body for n in range(1, 120)]
    assert {w.kind for w in wishes} == set(KINDS)
    for wish in wishes:
        body = copy.deepcopy(wish.body)
        body["metadata"] |= {"uid": "u", "creationTimestamp": CREATED, "generation": 1}
        assert api.parse(api.DivisibleJob, body).spec.units == wish.units
    assert Maker(8, "image:1", "hush").job(1).body != wishes[0].body


def test_an_ordinary_job_is_one_that_is_taken_and_its_promise_is_what_the_wish_says():
    maker = Maker(7, "image:1", "hush", ("ordinary",))
    costs = set()
    for number in range(1, 40):
        wish = maker.job(number)
        asked = wish.body["spec"]
        job = project_job({**wish.job, "metadata": {**wish.job["metadata"], "uid": "b", "creationTimestamp": CREATED}})
        assert refusal(job, Resources(0.1, 64 << 20)) is None
        spec = divisible_job(job, 0.0)["spec"]
        assert (spec["pool"], spec["units"], spec["processors"]["max"]) == (
            asked["pool"],
            wish.units,
            asked["processors"]["max"],
        )
        assert spec["deadlineTime"] == format_time(BEGAN + wish.deadlines[0])
        costs.add("cost" in spec)
    assert costs == {True, False}


def test_each_round_of_misfits_has_each_template_once_and_all_are_what_the_schema_takes():
    maker, count, nodes = Maker(7, "image:1", "hush"), len(TEMPLATES), ["one", "two"]
    wishes = [maker.misfit(number, nodes) for number in range(1, 2 * count + 1)]
    assert {w.kind for w in wishes[:count]} == {w.kind for w in wishes[count:]} == set(TEMPLATES)
    assert [w.kind for w in wishes[:count]] != [w.kind for w in wishes[count:]]
    assert not TEMPLATES.keys() & KINDS.keys()
    for wish in wishes:
        template, body = TEMPLATES[wish.kind], copy.deepcopy(wish.body)
        assert body["metadata"]["namespace"] == (LIMITED if template.limited else MISFITS)
        body["metadata"] |= {"uid": "u", "creationTimestamp": CREATED, "generation": 1}
        if template.image == "Punctual:dev":
            with pytest.raises(UserError, match=template.words):
                api.parse(api.DivisibleJob, body)
        else:
            assert api.parse(api.DivisibleJob, body).spec.units == wish.units


def misfit(kind):
    """Return the wish for a job with that template."""
    maker = Maker(1, "image:1", "a secret of the jobs")
    wishes = (maker.misfit(number, ["one", "two"]) for number in range(1, len(TEMPLATES) + 1))
    return next(wish for wish in wishes if wish.kind == kind)


REFUSAL = "the pods request memory 30Gi, a processor has 64Mi"


@pytest.mark.parametrize(
    ("kind", "conditions", "found"),
    [
        ("memory", [condition("Admitted", "False", "PodTooLarge", REFUSAL)], []),
        (
            "memory",
            [condition("Admitted", "False", "PodTooLarge", "too large")],
            ["refused by PodTooLarge: too large"],
        ),
        (
            "memory",
            [condition("Admitted", "False", "InfeasibleCapacity", "full")],
            ["refused by InfeasibleCapacity: full"],
        ),
        ("selects", [condition("Admitted", "False", "InfeasibleCapacity", "full")], []),
        (
            "selects",
            [condition("Admitted", "False", "PodFitsNoNode", "no")],
            ["refused by PodFitsNoNode: no"],
        ),
        ("selects", [condition("Failed", "True", "NotStarted", "no")], ["failed by NotStarted: no"]),
        ("hungry", [condition("Failed", "True", "ChunkFailed", "main: OOMKilled")], []),
        ("hungry", [condition("Failed", "True", "ChunkFailed", "exit 137")], ["failed by ChunkFailed: exit 137"]),
        ("hungry", [condition("Completed", "True", "Completed", "4 of 4")], ["done, though it cannot be: 4 of 4"]),
        ("gated", [condition("Failed", "True", "NotStarted", "non-empty scheduling gates")], []),
        ("apart", [condition("Failed", "True", "NotStarted", "anti-affinity")], []),
        ("apart", [condition("Failed", "True", "Stalled", "hangs")], ["failed by Stalled: hangs"]),
        ("apart", [condition("Completed", "True", "Completed", "90 of 90")], []),
    ],
)
def test_what_becomes_of_a_misfit_is_what_is_right_for_its_template(kind, conditions, found):
    wish = misfit(kind)
    whole = {"completed": [{"begin": 0, "end": wish.units}], "units": {"done": wish.units, "total": wish.units}}
    status = {"conditions": conditions} | (whole if conditions[0]["type"] == "Completed" else {})
    job = JobSeen({"metadata": {"name": wish.name, "uid": "u1", "creationTimestamp": CREATED}, "status": status})
    pods = [pod("a", 0, wish.units, born=None)] if "completed" in status else []
    assert ledger.audit({wish.name: wish}, [job], pods) == [f"{wish.name}: {what}" for what in found]


def test_a_misfit_that_is_refused_has_no_promise_and_no_pod_before():
    wish = misfit("memory")
    promise = {"promise": {"deadline": "2026-01-01T00:01:48Z"}}
    refused = {"conditions": [condition("Admitted", "False", "PodTooLarge", REFUSAL)]}
    meta = {"name": wish.name, "uid": "u1", "creationTimestamp": CREATED}
    chunks = {"chunks": [{"begin": 0, "end": 4, "kind": "Chunk", "pod": "a"}]}
    job = JobSeen(
        {"metadata": meta, "status": refused}, [(3, promise | chunks), (7, refused)], times=[BEGAN + 1, BEGAN + 9]
    )
    assert ledger.audit({wish.name: wish}, [job], [pod("a", 0, 4)]) == [
        f"{wish.name}: promised, though it cannot run: ('PodTooLarge',)",
        f"{wish.name}: pod a was there, though it was refused",
    ]


def test_a_job_whose_pods_never_start_must_say_so_before_it_fails():
    wish = misfit("absent")
    meta = {"name": wish.name, "uid": "u1", "creationTimestamp": CREATED}
    failed = {
        "conditions": [condition("Failed", "True", "ChunkFailed", "no image")],
        "finishTime": "2026-01-01T00:01:00Z",
    }
    late = {"conditions": [condition("OnTrack", "False", "NotStarted", "no image")]}
    silent = JobSeen({"metadata": meta, "status": failed}, [(7, failed)])
    said = JobSeen({"metadata": meta, "status": failed}, [(3, late), (7, failed)])
    wishes = {wish.name: wish}
    assert ledger.untold(wishes, [silent], {}) == [f"{wish.name}: failed, and NotStarted was never told"]
    assert ledger.untold(wishes, [silent], {"u1": {"NotStarted"}}) == []
    assert ledger.untold(wishes, [said], {}) == []
    stopped = Struck("kubelet stopped", BEGAN, BEGAN + 50, disturbs=True)
    before = Struck("node paused", BEGAN - 90, BEGAN - 9, disturbs=True)
    assert ledger.untold(wishes, [silent], {}, [stopped]) == []
    assert ledger.untold(wishes, [silent], {}, [before, replace(stopped, name="pod killed")]) != []


def test_the_works_exit_is_what_a_pod_ends_well_by():
    scribe = Scribe(None, MISFITS, lambda *_: None, lambda *_: None)

    def seen(uid, phase, *containers):
        meta = {"name": uid, "uid": uid, "resourceVersion": "3", "labels": {}}
        ended = [{"name": name, "state": {"terminated": {"exitCode": code}}} for name, code in containers]
        spec = {"containers": [{"name": "main"}, *({"name": name} for name, _ in containers if name != "main")]}
        scribe._take_pod(
            "ADDED", {"metadata": meta, "spec": spec, "status": {"phase": phase, "containerStatuses": ended}}
        )
        return scribe.pods[uid].succeeded is not None

    assert seen("alone", "Succeeded", ("main", 0))
    assert not seen("evicted", "Failed", ("main", 0))
    assert seen("helper failed", "Failed", ("shipper", 3), ("main", 0))
    assert not seen("work failed", "Failed", ("shipper", 0), ("main", 3))


def test_secrets_are_found_by_their_telling_parts():
    key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\nshort\n-----END PRIVATE KEY-----\n"
    secrets = {"key": key, "token": "aaaa.bbbb.the-signature-of-it"}
    assert hidden.told("-----BEGIN PRIVATE KEY----- aaaa.bbbb short", secrets) == []
    assert hidden.told("x MIGHAgEAMBMGByqGSM49 y", secrets) == ["key"]
    assert hidden.told("Bearer aaaa.bbbb.the-signature-of-it", secrets) == ["token"]


class Replicas:
    """A cluster with two replicas of the operator: one that is frozen loses its lease to the other."""

    def __init__(self, *, stays=""):
        self.log = []
        self.leader = "one"
        self.frozen = set()
        self.stays = stays  # this one does not lead

    async def operator(self, *, leading):
        other = {"one": "two", "two": "one"}[self.leader]
        status = {"containerStatuses": [{"restartCount": 0}]}
        return {"metadata": {"name": self.leader if leading else other}, "status": status}

    async def signal(self, pod, name):
        self.log.append((name, pod["metadata"]["name"]))
        if name == "STOP":
            self.frozen.add(pod["metadata"]["name"])
        else:
            self.frozen.discard(pod["metadata"]["name"])

    async def lead(self, pod, *, within):
        name = pod["metadata"]["name"]
        if name == self.stays or self.frozen != {self.leader}:
            raise NothingThere
        self.leader = name
        self.log.append(("leads", name))


async def test_a_leader_returns_when_its_successor_is_held_up_and_killed(monkeypatch):
    monkeypatch.setattr(faults, "DECIDES", (0.0, 0.0))
    ground = Replicas()
    async with faults.FIRST.do(Scene(ground, Random(1), {})) as hit:
        assert hit == "one"
    assert ground.log == [
        ("STOP", "one"),
        ("leads", "two"),
        ("CONT", "one"),
        ("STOP", "two"),
        ("leads", "one"),
        ("KILL", "two"),
        ("CONT", "two"),
    ]


@pytest.mark.parametrize("stays", ["one", "two"])
async def test_a_fault_that_does_not_succeed_leaves_no_replica_frozen(monkeypatch, stays):
    monkeypatch.setattr(faults, "DECIDES", (0.0, 0.0))
    ground = Replicas(stays=stays)
    with pytest.raises(NothingThere):
        async with faults.FIRST.do(Scene(ground, Random(1), {})):
            pass
    assert not ground.frozen
    assert ("KILL", "two") not in ground.log


def test_the_first_fault_of_each_run_is_a_leader_that_returns():
    assert {drawn(1, Random(seed)).name for seed in range(20)} == {"leader returns"}
    assert {drawn(2, Random(seed)).name for seed in range(2000)} == {fault.name for fault in FAULTS}


def test_a_run_with_few_faults_has_no_others():
    few = [fault for fault in FAULTS if fault.name in FEW]
    assert {drawn(number, Random(number), few).name for number in range(1, 200)} == set(FEW)


class Shown:
    """A ground with one promised job; ``log``: what is written."""

    def __init__(self, wish):
        self.log = []
        self.suspended = True
        meta = {"name": wish.name, "uid": "u1", "creationTimestamp": CREATED}
        self.scribe = self
        self.jobs = {"u1": JobSeen({"metadata": meta, "status": {"promise": {}}})}

    async def get(self, path):
        return {"spec": {"suspend": self.suspended}}

    async def patch(self, path, body):
        self.log.append((path, [*body]))

    async def delete(self, path, **how):
        self.log.append((path, how))


@pytest.mark.parametrize(("kind", "of", "part"), [("ordinary", BATCH_JOBS, "metadata"), ("shell", JOBS, "spec")])
async def test_what_users_do_is_done_to_the_object_that_asks(kind, of, part):
    wish = Maker(7, "image:1", "hush", (kind,)).job(1)
    ground, path = Shown(wish), of.path(namespace=NAMESPACE, name=wish.name)
    scene = Scene(ground, Random(1), {wish.name: wish})
    edited, suspended, deleted = (
        next(fault for fault in FAULTS if fault.name == f"job {what}") for what in ("edited", "suspended", "deleted")
    )
    async with edited.do(scene):
        assert ground.log == [(path, [part])]
    if kind == "ordinary":
        with pytest.raises(NothingThere):  # nobody but the operator lets it begin
            async with suspended.do(scene):
                pass
    ground.suspended = False
    async with suspended.do(scene):
        pass
    async with deleted.do(scene):
        assert ground.log[1:] == [(path, ["spec"]), (path, ["spec"]), (path, {"propagation": "Background"})]
    assert wish.deleted


def test_each_fault_has_a_name_of_its_own():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
