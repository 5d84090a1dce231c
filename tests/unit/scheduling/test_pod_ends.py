"""Stories about pods that the cluster ends, never ends or never starts: the end of the work's own container decides."""

from itertools import pairwise
from math import inf

import pytest
from world import Worker, World, job

from punctual import reasons


def nodes(count: int = 1, cpu: float = 4.0, **more) -> World:
    w = World(**more)
    for n in range(count):
        w.node(f"n{n}", cpu)
    w.tick()
    return w


def said(w: World, reason: str, uid: str = "j1") -> list[str]:
    return [message for about, why, message in w.said if (about, why) == (uid, reason)]


def made(w: World, uid: str = "j1") -> int:
    return sum(f"create {uid} " in line for line in w.log)


def each_once(w: World, uid: str = "j1") -> bool:
    done = sorted(w.processed[uid])
    return done == sorted(set(done)) and sum(end - begin for begin, end in done) == w.jobs[uid].units


# helpers beside the work


@pytest.mark.parametrize("heeds", [True, False], ids=["heeds SIGTERM", "ignores SIGTERM"])
def test_a_helper_that_never_ends_delays_nothing_and_is_ended_with_the_pods_own_grace(heeds):
    w = nodes()
    w.workers = lambda _j, _c: Worker(helper=inf, heeds=heeds, grace=7.0)
    w.apply(job(units=40, deadline=30, chunk_retries=0))
    w.run_until(lambda w: w.done("j1"), within=30)
    assert w.met("j1")
    assert each_once(w)
    (pod, *_) = w.pods.values()
    assert pod.grace == 7.0
    (told,) = said(w, reasons.HELPER_ENDED)
    assert "(side)" in told
    assert "grace period of 7.0s" in told
    assert ("j1", reasons.HELPER_ENDED) not in w.warned
    w.run(w.now + 10)
    assert not w.pods
    assert w.pool_record.free == 4


def test_a_processor_is_free_only_once_its_pod_is_gone():
    w = nodes(cpu=1.0)
    w.workers = lambda _j, _c: Worker(helper=inf, heeds=False, grace=20.0)
    w.apply(job(units=10, deadline=30))
    w.run_until(lambda w: w.done("j1"))
    w.run(w.now + 5)
    assert w.pool_record.free == 0
    w.run(w.now + 20)
    assert w.pool_record.free == 1


def test_a_processor_that_a_promise_needs_is_not_held_for_the_grace_of_helpers():
    w = nodes(cpu=1.0)
    w.workers = lambda uid, _c: Worker(helper=inf if uid == "a" else None, heeds=False, grace=60.0)
    w.apply(job("a", units=10, deadline=60))
    w.apply(job("b", units=10, deadline=40))
    w.run_until(lambda w: w.done("a") and w.done("b"), within=60)
    assert w.met("a")
    assert w.met("b")


def test_work_that_fails_beside_a_running_helper_has_failed_at_once_and_its_pod_stays_to_be_read():
    w = nodes()
    w.workers = lambda _j, c: Worker(helper=inf, exit_code=5 if c.attempt == 1 else 0)
    w.apply(job(units=8, deadline=60, chunk_retries=1, max_processors=1))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    (failed,) = said(w, reasons.CHUNK_FAILED)
    assert "container main: exit code 5" in failed
    w.run(w.now + 5)
    (pod,) = w.pods.values()
    assert (pod.phase, pod.chunk.attempt) == ("Failed", 1)


def test_a_reduce_pod_with_a_helper_stays_as_its_log_is_the_result():
    w = nodes()
    w.workers = lambda _j, c: Worker(helper=inf if c.kind == "Reduce" else None)
    w.apply(job(units=8, deadline=90, reduce_duration=10.0, retention="None"))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    w.run(w.now + 60)
    (pod,) = w.pods.values()
    assert pod.chunk.kind == "Reduce"
    assert pod.phase == "Failed", "its containers were ended"
    assert w.pool_record.free == 4


def test_work_that_ends_with_an_open_offer_beside_a_helper_is_accounted_by_its_last_report():
    w = nodes(cpu=2.0)
    w.workers = lambda _j, _c: Worker(pace=2.0, answers=False, helper=inf, grace=1.0)
    w.apply(job(units=20, deadline=60))
    w.run_until(lambda w: w.done("j1"), within=60)
    assert any("offer j1" in line for line in w.log)
    assert w.met("j1")
    assert each_once(w)
    assert not said(w, reasons.CAPACITY_LOST)


def test_a_helper_that_has_failed_when_the_end_of_the_work_is_seen_costs_nothing_and_is_named():
    w = nodes()
    w.workers = lambda _j, _c: Worker(helper=1.0, helper_exit=3)
    w.apply(job(units=12, deadline=60, chunk_retries=0, max_processors=1))
    w.run(10)
    w.leaderless(25)
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert each_once(w)
    (told,) = said(w, reasons.HELPER_FAILED)
    assert "container side ended with exit code 3 (Error)" in told


def test_a_new_leader_ends_the_helpers_that_an_earlier_one_has_left():
    w = nodes()
    w.workers = lambda _j, _c: Worker(helper=inf)
    w.apply(job(units=8, deadline=60, max_processors=1))
    w.run_until(lambda w: any(p.ended for p in w.pods.values()))
    w.crash()
    w.run(w.now + 5)
    assert w.done("j1")
    assert each_once(w)
    assert not w.pods


# pods that the cluster ends


@pytest.mark.parametrize(("reason", "own"), [("DeadlineExceeded", True), ("Evicted", True), ("Terminated", False)])
def test_a_pod_ended_by_its_own_limit_counts_and_one_ended_by_its_node_does_not(reason, own):
    w = nodes()
    w.workers = lambda _j, c: Worker(fails_after=3.0, ends_for=reason) if c.attempt < 4 else Worker()
    w.apply(job(units=8, deadline=90, chunk_retries=1, max_processors=1))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1") != own
    if own:
        assert w.records["j1"].failed_condition.reason == reasons.CHUNK_FAILED
        assert made(w) == 2


# pods that do not start


REFUSED = "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) didn't match Pod's …"


@pytest.mark.parametrize("why", ["NotPlaced", "SchedulingGated", "NoScheduler"])
def test_a_pod_that_no_scheduler_places_is_its_jobs_own_trouble_and_closes_no_node(why):
    w = nodes(cpu=2.0)
    w.workers = lambda uid, _c: Worker(never_starts=why, says=REFUSED) if uid == "odd" else Worker()
    w.apply(job("odd", units=4, deadline=200, chunk_retries=1, max_processors=1))
    w.run(8)
    (told,) = said(w, reasons.NOT_STARTED, "odd")
    assert REFUSED in told
    assert w.records["odd"].on_track[:2] == ("False", reasons.NOT_STARTED)
    for n in range(4):
        w.run(8 + 10 * n)
        w.apply(job(f"other{n}", units=4, arrival=w.now, deadline=w.now + 9.0, max_processors=1))
    w.run_until(lambda w: w.done("odd"), within=200)
    assert all(w.met(f"other{n}") for n in range(4))
    failed = w.records["odd"].failed_condition
    assert failed.reason == reasons.NOT_STARTED
    assert REFUSED in failed.message
    assert made(w, "odd") == 2
    assert not said(w, reasons.CAPACITY_LOST, "odd")


def test_pods_that_are_not_placed_are_tried_again_ever_more_seldom():
    w = nodes()
    w.workers = lambda _j, _c: Worker(never_starts="NotPlaced", says=REFUSED)
    w.apply(job(units=1, deadline=3000, chunk_retries=20))
    w.run(1200)
    begun = [float(line.split()[0]) for line in w.log if "create j1" in line]
    pauses = [round(b - a) for a, b in pairwise(begun)]
    assert pauses[:4] == [30, 40, 60, 100]
    assert max(pauses) <= 325


@pytest.mark.parametrize("why", ["ErrImagePull", "InvalidImageName", "CreateContainerConfigError", "NoVolume"])
@pytest.mark.parametrize("image_timeout", [0.0, 5000.0])
def test_pods_that_cannot_start_are_tried_again_ever_more_seldom_whoever_is_at_fault(why, image_timeout):
    w = nodes()
    w.workers = lambda _j, _c: Worker(never_starts=why, says="words")
    w.apply(job(units=1, deadline=3000, chunk_retries=20, image_timeout=image_timeout))
    w.run(1200)
    begun = [float(line.split()[0]) for line in w.log if "create j1" in line]
    waited = 0 if why == "InvalidImageName" else 20
    assert [round(b - a) - waited for a, b in pairwise(begun)][:4] == pytest.approx([10, 20, 40, 80], abs=2)
    assert max(b - a for a, b in pairwise(begun)) <= 325


def test_a_job_of_which_one_node_cannot_pull_the_image_is_not_on_track_until_it_can():
    """Not for a moment: neither between two attempts, nor before the next one's pod has waited long enough."""
    w = nodes(cpu=1.0)
    w.node("n2", 1.0)
    w.workers = lambda _j, c: Worker(never_starts="ErrImagePull" if c.node == "n2" and w.now < 120 else None)
    w.apply(job(units=400, deadline=600, chunk_retries=0, min_processors=2))
    w.run(7)
    assert any(pod.phase == "Running" for pod in w.pods.values())
    while w.now < 115:
        w.run(w.now + 1)
        assert w.records["j1"].on_track[:2] == ("False", reasons.NOT_STARTED), w.now
    w.run_until(lambda w: w.records["j1"].on_track.status == "True", within=400)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_the_clusters_scheduler_that_looks_at_no_pod_is_no_fault_of_a_job():
    w = nodes()
    w.workers = lambda _j, _c: Worker(never_starts="NotSeen", says="no scheduler has looked at it")
    w.apply(job(units=1, deadline=60, chunk_retries=0))
    w.run(200)
    assert not w.done("j1")
    assert w.records["j1"].on_track[:2] == ("False", reasons.NOT_STARTED)
    assert not w.records["j1"].failed.largest(0, 1)


@pytest.mark.parametrize(
    "why", ["NotSeen", "NoScheduler", "CreateContainerConfigError", "ErrImagePull", "Unschedulable"]
)
def test_the_pod_that_a_new_leader_makes_anew_for_a_chunk_of_long_ago_has_as_much_time_to_start(why):
    w = nodes()
    w.workers = lambda _j, _c: Worker(never_starts=why if w.now > 20 else None)
    w.apply(job(units=40, deadline=300, chunk_retries=0, max_processors=1, image_timeout=5.0))
    w.run(10)
    (first,) = w.pods.values()
    w.delete_pod(first.name, grace=0)
    w.leaderless(50)
    w.crash()
    w.run(53)
    (second,) = w.pods.values()
    assert (second.name, second.uid != first.uid) == (first.name, True)
    assert not said(w, reasons.NOT_STARTED)
    w.set_worker(second, Worker())
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert made(w) == 2


@pytest.mark.parametrize("why", ["InvalidImageName", "ErrImageNeverPull"])
def test_what_can_never_start_fails_at_once(why):
    w = nodes()
    w.workers = lambda _j, _c: Worker(never_starts=why, says="it cannot be pulled")
    w.apply(job(units=4, deadline=60, chunk_retries=0, max_processors=1))
    w.run(3)
    assert w.records["j1"].failed_condition is not None
    assert f"{why}: it cannot be pulled" in w.records["j1"].failed_condition.message


def test_a_job_whose_image_cannot_be_pulled_is_not_on_track_until_it_can():
    w = nodes()
    w.workers = lambda _j, _c: Worker(never_starts="ErrImagePull" if w.now < 30 else None, says="no such host")
    w.apply(job(units=40, deadline=200, chunk_retries=0))
    w.run(7)
    assert w.records["j1"].on_track[:2] == ("False", reasons.NOT_STARTED)
    assert "ErrImagePull: no such host" in w.records["j1"].on_track.message
    w.run(60)
    assert w.records["j1"].on_track[:2] == ("True", reasons.ON_TRACK)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


@pytest.mark.parametrize("why", ["ContainerCreating", "ErrImagePull", "NotPlaced"])
def test_late_without_a_start_is_no_overrun(why):
    w = nodes()
    w.workers = lambda _j, _c: Worker(never_starts=why, says="words")
    w.apply(job(units=40, deadline=25, chunk_retries=50))
    w.run(60)
    assert w.records["j1"].on_track[:2] == ("False", reasons.NOT_STARTED)
    assert not said(w, reasons.OVERRUN)
    assert "longer than declared" not in str(w.said)
    w.crash()
    w.run(62)
    assert w.records["j1"].on_track[:2] == ("False", reasons.NOT_STARTED)


def test_a_pod_that_is_prepared_without_an_end_holds_its_processor_for_a_bounded_time():
    w = nodes(cpu=1.0)
    w.workers = lambda _j, _c: Worker(never_starts="ContainerCreating")
    w.apply(job(units=1, deadline=5000, chunk_retries=0))
    w.run_until(lambda w: w.done("j1"), within=700)
    assert w.records["j1"].failed_condition.reason == reasons.NOT_STARTED


def test_a_job_that_was_given_up_as_its_pods_did_not_start_goes_on_when_they_do():
    w = nodes()
    w.workers = lambda _j, _c: Worker(never_starts="ErrImagePull" if w.now < 60 else None)
    w.apply(job(units=40, deadline=30, chunk_retries=0))
    w.run_until(lambda w: w.done("j1"), within=200)
    assert w.records["j1"].completed_condition.reason == reasons.DEADLINE_MISSED
    assert w.records["j1"].on_track.reason == reasons.NOT_STARTED


# limits of the pods' own


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"pod_limit": 41}, "41s is shorter than a chunk may take: up to 42s for 40 units on one processor"),
        ({"pod_limit": 42}, ""),
        ({"pod_limit": 20, "deadline": 23.0}, "20s is shorter than a chunk may take: up to 21s"),
        ({"pod_limit": 22, "deadline": 24.0}, ""),
        ({"reduce_limit": 9, "reduce_duration": 10.0}, "9.0s is shorter than spec.reduce.duration, 10s"),
        ({"reduce_limit": 10, "reduce_duration": 10.0}, ""),
    ],
)
def test_a_limit_that_would_end_a_chunk_before_it_can_be_done_is_refused_with_both_numbers(more, said):
    w = nodes()
    w.apply(job(units=40, **{"deadline": 100, **more}))
    w.tick()
    if not said:
        assert w.state("j1") == ("True", reasons.FEASIBLE)
        return
    assert w.state("j1") == ("False", reasons.INVALID_SPEC)
    assert said in w.records["j1"].admitted.message
    assert "activeDeadlineSeconds" in w.records["j1"].admitted.message


def test_a_limit_is_compared_once_pilots_have_measured_the_cost():
    w = nodes()
    w.apply(job(units=400, chi=None, deadline=900, pod_limit=30))
    w.run(1)
    assert w.state("j1") == ("Unknown", reasons.MEASURING)
    w.run_until(lambda w: w.state("j1")[0] != "Unknown", within=100)
    assert w.state("j1") == ("False", reasons.INVALID_SPEC)


def test_late_news_of_a_reduce_pod_that_has_ended_well_deletes_nothing():
    w = World()
    w.node("n0", 1)
    w.apply(job(units=4, deadline=100, chi=1.0, reduce_duration=5.0))
    w.run_until(lambda w: any(pod.chunk.kind == "Reduce" for pod in w.pods.values()))
    (pod,) = (pod for pod in w.pods.values() if pod.chunk.kind == "Reduce")
    news = pod.observed()
    w.run_until(lambda w: w.done("j1"))
    there = w.pods.pop(pod.name)
    w.crash()  # its lists are older than the pod
    w.pods[pod.name] = there
    w.inbox.append(news)
    w.run(w.now + 5)
    assert pod.name in w.pods
    assert w.pods[pod.name].phase == "Succeeded"
