"""A Pool from what is written down alone: all that is promised is in it, and what nobody answered yet is answered."""

import pytest
from guest_job import guest_job
from state import NOW, manifest, pool_body, spec_of, state
from world import World, job

from punctual.errors import PunctualError
from punctual.kube import api
from punctual.kube.snapshot import Snapshot
from punctual.notation.duration import format_time


def asked(uid, *, within, **more):
    return job(uid, deadline=NOW + within, arrival=NOW, **more)


@pytest.fixture
def found():
    body = pool_body()
    w = World(spec=spec_of(body), now=NOW)
    w.node("n0", 2.0)
    w.node("n1", 1.0)
    w.tick()
    w.apply(asked("runs", units=200, within=80))
    w.apply(asked("waits", units=30, within=200))
    w.run(NOW + 5)
    return state(w, body)


def record(pool, uid):
    return pool.view().record(uid)


def test_guest_jobs_take_nothing_from_promises(found):
    guest = guest_job()
    found["items"].append(guest)
    pool = Snapshot.of([found]).pool("main", now=NOW + 5)
    pool.check()
    assert guest["metadata"]["uid"] not in pool.view().jobs
    assert record(pool, "waits").promise is not None


def test_what_is_promised_and_what_runs_is_in_it(found):
    pool = Snapshot.of([found]).pool("main", now=NOW + 5)
    pool.check()
    assert pool.view().processors == 3
    assert len(record(pool, "runs").chunks) == 3
    assert [b.demand.uid for b in pool.view().plan.placements] == ["waits"]


def test_a_pool_with_devices_has_the_processors_that_its_status_names():
    body = pool_body(processor={"cpu": "1", "resources": {"example.com/gpu": 2}})
    w = World(spec=spec_of(body), now=NOW)
    w.node("n0", 4.0, others=(("example.com/gpu", 5),))
    w.tick()
    view = Snapshot.of([state(w, body)]).pool("main", now=NOW + 5).view()
    assert (view.processors, view.free) == (2, 2)


def test_who_has_no_answer_yet_is_answered_first(found):
    new = manifest(asked("new", units=60, within=300))
    new["metadata"] |= {"uid": "new", "creationTimestamp": "2027-01-15T08:00:03Z"}
    found["items"].append(new)
    pool = Snapshot.of([found]).pool("main", now=NOW + 5)
    assert record(pool, "new").promise is not None


def test_jobs_of_other_pools_and_those_that_go_take_nothing(found):
    runs, waits = found["items"][1:]
    runs["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:04Z"
    waits["spec"]["pool"] = "other"
    pool = Snapshot.of([found]).pool("main", now=NOW + 5)
    assert not pool.view().jobs
    assert pool.view().free == 3


def test_a_job_whose_status_cannot_be_read_is_left_alone_as_the_operator_leaves_it(found):
    found["items"][2]["status"]["promise"]["processors"] = "many"
    assert set(Snapshot.of([found]).pool("main", now=NOW + 5).view().jobs) == {"runs"}


def test_a_job_whose_spec_cannot_be_read_keeps_its_promise(found):
    found["items"][2]["spec"]["deadline"] = "soon"
    pool = Snapshot.of([found]).pool("main", now=NOW + 5)
    assert record(pool, "waits").promise is not None


def test_of_more_nodes_than_a_status_names_the_others_are_counted(found):
    """Those that run a chunk by their name: what runs on a node that is not there would be lost."""
    status = found["items"][0]["status"]
    status["nodes"] = [{"name": f"m{i:03}", "processors": 1} for i in range(1000)]
    status["processors"] = 1203
    pool = Snapshot.of([found]).pool("main", now=NOW + 5)
    assert pool.view().processors == 1203
    assert len(record(pool, "runs").chunks) == 3
    assert {n.name: n.processors for n in pool.view().nodes}["other nodes"] == 200


def test_what_profiles_and_nodes_are_known_to_be_is_planned_with(found):
    samples = {"pool": "main", "units": [10, 20, 50, 100, 200, 500], "seconds": [7, 12, 27, 52, 102, 252]}
    meta = {"name": "fast", "namespace": "default"}
    profile = {"kind": "Profile", "metadata": meta, "spec": {}, "status": {"classes": [samples]}}
    found["items"][0]["status"]["nodes"][1]["speed"] = 2.0
    for body in found["items"][1:]:
        del body["spec"]["cost"]
        body["spec"]["profile"] = "fast"
    new = manifest(asked("new", units=60, within=600))
    new["metadata"] |= {"uid": "new", "creationTimestamp": "2027-01-15T08:00:03Z"}
    del new["spec"]["cost"]
    new["spec"]["profile"] = "fast"
    found["items"].append(new)
    pool = Snapshot.of([found, profile]).pool("main", now=NOW + 5)
    assert pool.view().cost("new").chi == pytest.approx(0.5)
    assert record(pool, "waits").cost.chi == 1.0, "as it was promised"
    assert pool.view().cost("waits").chi == 1.0
    assert {n.name: n.speed for n in pool.view().nodes} == {"n0": 1.0, "n1": 2.0}


def test_a_pool_that_no_operator_has_seen_cannot_be_planned_from(found):
    del found["items"][0]["status"]
    with pytest.raises(PunctualError, match="Pool main has no status to plan from"):
        Snapshot.of([found]).pool("main", now=NOW)


def test_a_pool_may_be_written_by_hand():
    pool = pool_body()
    del pool["metadata"]["uid"], pool["metadata"]["generation"], pool["metadata"]["creationTimestamp"]
    pool["status"] = {"nodes": [{"name": "n0", "processors": 5}, {"name": "n1", "processors": 3}]}
    made = [manifest(asked(uid, units=40, within=100)) for uid in ("a", "b")]
    for job_ in made:
        del job_["metadata"]["namespace"]
    ours = Snapshot.of([pool, *made]).pool("main", now=NOW)
    assert ours.view().processors == 8
    assert [record(ours, f"default/{uid}").admitted.status for uid in ("a", "b")] == ["True", "True"]


def test_an_object_without_a_name_is_told():
    with pytest.raises(PunctualError, match=r"a Profile without metadata\.name"):
        Snapshot.of([{"kind": "Profile", "metadata": {}}])


def test_what_is_reserved_is_kept_free_and_a_job_that_names_it_is_inside(found):
    window = {"start": format_time(NOW + 300), "end": format_time(NOW + 400)}
    booked = {"state": "Booked", "reason": "Feasible", "nodes": [{"name": "n0", "processors": 2}]}
    reservation = {
        "apiVersion": api.API_VERSION,
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {"pool": "main", "processors": 2, **window},
        "status": {"epoch": 1, "windows": [{**window, **booked}]},
    }
    snapshot = Snapshot.of([found, reservation])
    (places,) = snapshot.pool("main", now=NOW + 5).view().reservations.values()
    assert [place.node for place in places] == ["n0", "n0"]
    body = manifest(asked("j9", units=100, within=300))
    for name, inside in (("r", ("default/r", None)), ("none", (None, "ReservationNotFound"))):
        made = snapshot.job(api.parse(api.DivisibleJob, {**body, "spec": {**body["spec"], "reservation": name}}))
        assert (made.reservation, made.refusal and made.refusal[0]) == inside


def test_a_job_is_planned_around_the_time_in_which_a_window_keeps_the_link():
    begin = NOW + 300
    window = {"start": format_time(begin), "end": format_time(begin + 100)}
    pool = pool_body()
    pool["spec"]["network"] = "OnePort"
    pool["status"] = {"nodes": [{"name": "n0", "processors": 2}]}
    reservation = {
        "apiVersion": api.API_VERSION,
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {"pool": "main", "processors": 1, "transferShare": "50%", **window},
        "status": {
            "epoch": 1,
            "windows": [{**window, "state": "Booked", "nodes": [{"name": "n0", "processors": 1}]}],
        },
    }
    body = manifest(asked("j9", units=1, within=1000))
    body["metadata"]["uid"] = "j9"
    body["spec"]["cost"] = {"perUnit": "1s", "transferSetup": "310s"}
    ours = Snapshot.of([pool, reservation, body]).pool("main", now=NOW)
    assert record(ours, "j9").promise.start == pytest.approx(begin + 50)
