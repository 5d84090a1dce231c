import pytest

from punctual.kube.known.directory import Directory
from punctual.kube.known.jobs import ENDED, ended, settled
from punctual.kube.known.store import HIGHEST
from punctual.scheduling.model.job import Chunk, JobRecord, Promise
from punctual.verdict import Verdict


def meta(name="x", uid="u1", generation=1, **more):
    created = "2030-01-01T00:00:00Z"
    return {
        "name": name,
        "namespace": "ns",
        "uid": uid,
        "generation": generation,
        "resourceVersion": "7",
        "creationTimestamp": created,
        **more,
    }


def job(*, spec=None, status=None, **more):
    spec = {"pool": "main", "units": 5, "template": {"spec": {}}, **(spec or {})}
    return {"metadata": meta(**more), "spec": spec, **({"status": status} if status else {})}


def pool(*, cpu="1", **more):
    more = {"namespace": "", **more}
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "Pool",
        "metadata": meta(**more),
        "spec": {"nodeSelector": {"matchLabels": {"a": "b"}}, "processor": {"cpu": cpu}},
    }


@pytest.fixture
def directory():
    return Directory()


def test_a_status_of_ours_that_comes_back_is_no_change(directory):
    known = directory.jobs.observe(job())
    assert known.owner == ("u1", "ns", "x", "main", 5, "")
    seen = []
    directory.listener.see_epoch = seen.append
    for epoch in (3, 3, 2, 4):
        assert directory.jobs.observe(job(status={"epoch": epoch})) is None
    assert directory.epoch == 4
    assert seen == [3, 4]


def test_an_epoch_that_no_leader_reaches_is_not_believed(directory):
    directory.jobs.observe(job(status={"epoch": 2**31 - 1}))
    assert directory.epoch == 0
    directory.jobs.observe(job(status={"epoch": HIGHEST}))
    assert directory.epoch == HIGHEST


def test_a_pool_or_profile_that_cannot_be_read_is_told_with_its_reason(directory):
    told = []
    directory.listener.unreadable = lambda *words: told.append(words)
    assert directory.pools.observe({"metadata": {"name": "main", "uid": "u"}, "spec": {"nodeSelector": 1}}) is None
    profile = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"perUnit": "soon"}}
    assert directory.profiles.observe(profile) is None
    assert [(kind, name) for kind, name, _ in told] == [("Pool", "main"), ("Profile", "ns/p")]
    assert all(why for *_, why in told)


def test_an_edit_and_a_deletion_are_changes(directory):
    directory.jobs.observe(job())
    edited = directory.jobs.observe(job(generation=2, spec={"pool": "other"}))
    assert edited.owner.pool == "other"
    assert directory.jobs.observe(job(generation=2, deletionTimestamp="2030-01-01T00:00:00Z")).deleting


def test_an_event_older_than_the_list_is_no_change(directory):
    directory.jobs.observe(job(generation=2))
    assert directory.jobs.observe(job(generation=1)) is None
    assert directory.jobs["u1"].generation == 2


def test_a_job_of_the_same_name_is_another_job(directory):
    directory.jobs.observe(job())
    directory.jobs.observe(job(uid="u2"))
    assert set(directory.jobs) == {"u1", "u2"}


def test_a_spec_that_nobody_can_read_is_kept_all_the_same(directory):
    known = directory.jobs.observe(job(spec={"pool": None, "units": "many"}))
    assert (known.owner.pool, known.owner.units) == ("None", 0)


def test_a_pool_changes_with_its_spec_and_its_deletion_only(directory):
    assert directory.pools.observe(pool())
    assert directory.pools.observe(pool()) is None
    assert directory.pools.observe(pool(finalizers=["f"])) is None
    assert directory.pools.named("x").finalizers == ("f",)
    assert directory.pools.observe(pool(generation=2, cpu="2")).spec.processor.cpu == 2.0
    assert directory.pools.observe(pool(generation=2, deletionTimestamp="2030-01-01T00:00:00Z")).deleting
    assert directory.pools.observe(pool(generation=1)) is None


def test_a_pool_made_anew_under_its_name_is_another_pool(directory):
    first = directory.pools.observe(pool())
    first.term.transition_times = {"Ready": ("True", 0.0)}
    again = directory.pools.observe(pool(uid="u2"))
    assert again.uid == "u2"
    assert again.term.transition_times == {}


def test_a_pool_that_cannot_be_read_does_not_replace_one_that_could(directory):
    directory.pools.observe(pool())
    assert directory.pools.observe(pool(generation=2, cpu="none")) is None
    assert directory.pools.named("x").spec.processor.cpu == 1.0


CHUNK = Chunk(begin=0, end=1, origin=1, node="n", attempt=1, created=0.0, promised_end=1.0)
PROMISE = Promise(10.0, 9.0, 2.0, 1, 0.0)


@pytest.mark.parametrize(
    ("record", "is_open"),
    [
        (None, False),
        (JobRecord(admitted=Verdict("False", "InfeasibleCapacity", "")), False),
        (JobRecord(admitted=Verdict("Unknown", "Measuring", "")), True),
        (JobRecord(promise=PROMISE), True),
        (JobRecord(chunks=(CHUNK,)), True),
        (JobRecord(promise=PROMISE, finished=9.0), False),
    ],
)
def test_a_pool_waits_for_what_is_promised_or_runs(directory, record, is_open):
    known = directory.jobs.observe(job())
    known.term.record = record
    assert known.open == is_open


def test_a_template_is_given_back_as_it_was_written(directory):
    template = {"spec": {"containers": [{"name": "main", "args": ["$(PUNCTUAL_BEGIN)"]}]}}
    assert directory.jobs.observe(job(spec={"template": template})).template()["template"] == template


def reservation(**more):
    spec = {"pool": "main", "start": "2030-01-01T00:00:00Z", "end": "2030-01-01T01:00:00Z", "processors": 1}
    return {"apiVersion": "punctual.dev/v1alpha1", "kind": "Reservation", "metadata": meta(**more), "spec": spec}


DELETING = {"deletionTimestamp": "2030-01-01T00:00:00Z"}


def test_a_reservation_is_found_by_its_name_while_it_stays(directory):
    known = directory.reservations.observe(reservation())
    assert directory.reservations.standing("x", "ns") is known
    assert directory.reservations.standing("y", "ns") is None
    assert directory.reservations.standing("x", "other") is None
    directory.reservations.observe(reservation(**DELETING))
    assert directory.reservations.standing("x", "ns") is None
    directory.reservations.forget("u1")
    assert directory.reservations.standing("x", "ns") is None


def test_of_two_reservations_of_one_name_the_newer_one_is_meant_in_whatever_order_is_told(directory):
    directory.reservations.observe(reservation())
    newer = directory.reservations.observe(reservation(uid="u2"))
    assert directory.reservations.standing("x", "ns") is newer
    directory.reservations.observe(reservation(**DELETING))
    assert directory.reservations.standing("x", "ns") is newer
    directory.reservations.forget("u1")
    assert directory.reservations.standing("x", "ns") is newer
    directory.reservations.forget("u2")
    assert directory.reservations.standing("x", "ns") is None


def test_an_older_reservation_of_the_name_that_is_told_of_late_is_not_meant(directory):
    newer = directory.reservations.observe(reservation(uid="u2", creationTimestamp="2030-01-01T00:00:01Z"))
    directory.reservations.observe(reservation())
    assert directory.reservations.standing("x", "ns") is newer
    directory.reservations.forget("u1")
    assert directory.reservations.standing("x", "ns") is newer


class NotSearched(dict):
    def __iter__(self):
        raise AssertionError("all were searched")


def test_a_reservation_is_found_without_a_look_at_all_others(directory):
    known = directory.reservations.observe(reservation())
    directory.reservations._by_uid = NotSearched(directory.reservations)
    assert directory.reservations.standing("x", "ns") is known


def test_the_jobs_that_name_a_reservation_are_found_without_a_look_at_all_others(directory):
    inside = [directory.jobs.observe(job(uid=uid, spec={"reservation": "r"})) for uid in ("u1", "u2")]
    directory.jobs.observe(job(uid="u3"))
    directory.jobs.observe(job(uid="u4", namespace="other", spec={"reservation": "r"}))
    directory.jobs._by_uid = NotSearched(directory.jobs)
    assert directory.jobs.inside("ns", "r") == inside
    assert directory.jobs.inside("ns", "another") == []
    directory.jobs.observe(job(uid="u1", generation=2, spec={"reservation": "another"}))
    directory.jobs.observe(job(uid="u3", generation=2, spec={"reservation": "r"}))
    assert [known.owner.uid for known in directory.jobs.inside("ns", "r")] == ["u2", "u3"]
    assert [known.owner.uid for known in directory.jobs.inside("ns", "another")] == ["u1"]
    directory.jobs.observe(job(uid="u3", generation=3))
    directory.jobs.forget("u2")
    assert directory.jobs.inside("ns", "r") == []


@pytest.mark.parametrize(
    ("said", "over", "why"),
    [
        ({"Admitted": ("True", "Feasible"), "Completed": ("True", "Completed")}, True, ENDED),
        ({"Admitted": ("Unknown", "Measuring"), "Failed": ("True", "ChunkFailed")}, True, ENDED),
        ({"Admitted": ("False", "PoolNotFound"), "Failed": ("True", "ChunkFailed")}, True, ENDED),
        ({"Admitted": ("False", "InfeasibleCapacity")}, False, "InfeasibleCapacity"),
        ({}, True, ENDED),
    ],
    ids=["done", "failed while it was measured", "failed, its pool gone", "refused", "nothing said"],
)
def test_a_refused_job_is_finished_and_has_not_ended(said, over, why):
    conditions = [{"type": kind, "status": status, "reason": reason} for kind, (status, reason) in said.items()]
    status = {"finishTime": "2030-01-01T00:00:00Z", "observedGeneration": 1, "conditions": conditions}
    body = {**job(), "status": status}
    assert ended(body) is over
    assert settled(body) == why
    del status["finishTime"]
    assert not ended(body)


REF = {"jobRef": {"name": "x", "uid": "b1"}}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "b1", "controller": True}


@pytest.mark.parametrize(
    ("spec", "owners", "owned"),
    [
        (REF, [OWNER], True),
        (REF, [{**OWNER, "name": "y", "uid": "b0"}, OWNER], True),
        ({}, None, True),
        ({}, [OWNER], True),
        (REF, None, False),
        (REF, [{**OWNER, "uid": "b2"}], False),
        ({"jobRef": {"name": "y", "uid": "b1"}}, [{**OWNER, "name": "y"}], False),
        ({"jobRef": {"name": "x", "uid": "b1"}}, [{**OWNER, "name": "y"}], False),
        ({"jobRef": "x"}, [OWNER], True),
    ],
    ids=["its owner", "more owners", "no ref", "an owner", "none", "other uid", "other name", "mixed", "unreadable"],
)
def test_a_job_has_the_pods_of_its_owner_alone(directory, spec, owners, owned):
    known = directory.jobs.observe(job(spec=spec, **({"ownerReferences": owners} if owners else {})))
    assert known.owned == owned
    assert (directory.jobs.of_batch("b1") is known) == (owned and isinstance(spec.get("jobRef"), dict))
    assert list(directory.jobs.of_batches()) == ([known] if directory.jobs.of_batch("b1") else [])


def test_a_job_is_found_by_its_owner_until_it_is_gone_and_after_edits(directory):
    directory.jobs.observe(job(spec=REF))
    assert directory.jobs.of_batch("b1") is None
    known = directory.jobs.observe(job(spec=REF, generation=2, ownerReferences=[OWNER]))
    assert directory.jobs.of_batch("b1") is known
    directory.jobs.observe(job(spec=REF, uid="u2", name="copy", ownerReferences=[OWNER]))
    assert directory.jobs.of_batch("b1") is known, "the other one has another name"
    directory.jobs.observe(job(spec=REF, generation=3))
    assert directory.jobs.of_batch("b1") is None
    directory.jobs.observe(job(spec=REF, generation=4, ownerReferences=[OWNER]))
    directory.jobs.forget("u1")
    assert list(directory.jobs.of_batches()) == []
