"""Stories about the Pool when the work or the cluster misbehaves: what each costs, and whom."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.actions import StoreResult
from punctual.scheduling.model.events import Progress, Reported


def nodes(*names: str, cpu: float = 4.0, **more) -> World:
    w = World(**more)
    for name in names:
        w.node(name, cpu)
    w.tick()
    return w


def running(w: World, uid: str = "j1") -> list:
    return [p for p in w.pods.values() if p.job == uid and p.phase == "Running" and not p.deleting]


def once(w: World, uid: str = "j1") -> bool:
    """Whether every unit was accounted, and none that no pod has done."""
    done = sorted(w.processed[uid])
    total = w.jobs[uid].units
    return w.records[uid].completed.total == total == len({u for begin, end in done for u in range(begin, end)})


def pods_made(w: World, uid: str = "j1") -> int:
    return sum(f"create {uid} " in line for line in w.log)


# a pod goes


@pytest.mark.parametrize("disrupted", [False, True], ids=["by hand", "by an eviction"])
@pytest.mark.parametrize("deaf", [False, True], ids=["heeds SIGTERM", "ignores SIGTERM"])
def test_a_pod_that_somebody_deletes_is_nobodys_failure_and_its_units_go_elsewhere_at_once(disrupted, deaf):
    w = nodes("n1")
    w.workers = lambda _j, chunk: Worker(deaf=deaf and chunk.attempt == 1)
    w.apply(job(units=40, deadline=60, chunk_retries=0))
    w.run(10)
    (pod,) = running(w)
    w.delete_pod(pod.name, disrupted=disrupted)
    w.run(w.now + 1)
    again = [p for p in w.pods.values() if p.chunk.attempt == 2]
    assert again
    assert sum(p.chunk.size for p in again) == 40
    w.run(w.now + 6)
    assert pod.name not in w.pods, "a pod that ignores its end keeps its processor"
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert once(w)
    assert f"event j1 {reasons.CAPACITY_LOST}" in " ".join(w.log)


def test_a_pod_evicted_for_its_own_greed_counts_as_its_failure():
    """The kubelet ends a pod that outgrew its own limits without a DisruptionTarget, and would so for ever."""
    w = nodes("n1")
    w.apply(job(units=40, deadline=600, chunk_retries=1))

    def evict(w: World) -> bool:
        for pod in running(w):
            pod.phase, pod.reason = "Failed", "Evicted"
            w.inbox.append(pod.observed())
        return w.done("j1")

    w.run_until(evict)
    assert w.records["j1"].failed_condition.reason == reasons.CHUNK_FAILED
    assert pods_made(w) == 2


def test_a_pod_evicted_for_want_of_room_on_the_node_is_not_the_works_failure():
    w = nodes("n1")
    w.apply(job(units=40, deadline=120, chunk_retries=0))
    w.run(10)
    (pod,) = running(w)
    pod.phase, pod.reason, pod.disrupted = "Failed", "Evicted", True
    w.inbox.append(pod.observed())
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    told = {line.split()[3] for line in w.log if "event j1" in line}
    assert told <= {value for name, value in vars(reasons).items() if name.isupper()}, "a word that no page explains"


def test_a_job_that_fails_with_one_chunk_gets_no_chunk_back_that_is_late():
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, _chunk: Worker(hangs=True, deaf=True)
    w.apply(job(units=20, deadline=40, chunk_retries=0, stall_timeout=12.0, min_processors=2))
    w.run_until(lambda w: w.done("j1"))
    assert w.records["j1"].failed_condition.reason == reasons.STALLED
    assert w.records["j1"].chunks == ()
    w.run_until(lambda w: not w.pods)
    assert w.pool_record.free == 2


# a node goes


def test_a_node_lost_while_nobody_led_is_given_up_by_the_next_leader():
    """It may have taken the leader with it: its pods stand there as Running for as long as it is away."""
    w = nodes("n1", "n2")
    w.apply(job(units=150, deadline=110))
    w.run(10)
    assert {p.chunk.node for p in running(w)} == {"n1", "n2"}
    w.nodes["n1"] = type(w.nodes["n1"])(name="n1", ready=False, cpu=4.0, memory=2**40)
    w.crash()
    w.run(12)
    assert f"event j1 {reasons.NODE_LOST}" in " ".join(w.log)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert {c.node for c in w.records["j1"].chunks} <= {"n2"}


def test_a_node_that_left_the_pool_while_nobody_led_is_given_up_by_the_next_leader():
    w = nodes("n1", "n2")
    w.apply(job(units=150, deadline=110))
    w.run(10)
    del w.nodes["n1"]
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert f"event j1 {reasons.NODE_LOST}" in " ".join(w.log)


def test_what_a_lost_node_finished_meanwhile_is_not_accounted_a_second_time_when_it_is_back():
    w = nodes("n1", "n2")
    w.apply(job(units=150, deadline=100))
    w.run(10)
    lost = [p for p in running(w) if p.chunk.node == "n1"]
    assert lost
    w.node("n1", ready=False)
    w.run(78)  # long enough for its pods to end
    w.run_until(lambda w: w.records["j1"].completed)
    accounted = w.records["j1"].completed.total
    w.node("n1")
    w.tick()
    assert all(p.phase == "Succeeded" for p in lost)
    assert w.records["j1"].completed.total == accounted < 150
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert once(w)
    assert sum(end - begin for begin, end in w.processed["j1"]) > 150, "nothing was done twice"


@pytest.mark.parametrize("off", [-600.0, 600.0])
def test_nodes_whose_clocks_are_wrong_by_ten_minutes_change_nothing(off):
    def told(skew):
        w = nodes("n1", skew={"n1": skew})
        w.workers = lambda _j, chunk: Worker(pace=1.5 if chunk.begin == 0 else 1.0, hangs=False)
        w.apply(job(units=100, deadline=100, stall_timeout=20.0))
        w.run(30)
        w.crash()
        w.run_until(lambda w: w.done("j1"))
        assert w.met("j1")
        assert once(w)
        return [line for line in w.log if "event" in line or "offer" in line]

    assert told(off) == told(0.0)


def test_a_chunk_that_hangs_is_found_in_time_though_the_clock_is_set_back():
    w = nodes("n1", cpu=1.0)
    tries = iter([True])
    w.workers = lambda _j, _c: Worker(hangs=next(tries, False))
    w.run(1000)
    w.apply(job(units=20, deadline=2000, arrival=w.now, stall_timeout=20.0))
    w.run(w.now + 10)
    w.set_back(600)
    w.run_until(lambda w: any(pod.chunk.attempt == 2 for pod in w.pods.values()), within=30)
    w.run_until(lambda w: w.done("j1"), within=40)
    assert w.met("j1")
    assert once(w)


def test_what_waits_begins_when_its_turn_comes_though_the_clock_is_set_back():
    w = nodes("n1", cpu=1.0)
    w.run(1000)
    w.apply(job("a", units=20, deadline=2000, arrival=w.now))
    w.apply(job("b", units=20, deadline=2100, arrival=w.now))
    w.run(w.now + 10)
    w.set_back(600)
    w.run_until(lambda w: w.done("a") and w.done("b"), within=45)
    assert once(w, "a")
    assert once(w, "b")


# offers


def test_a_worker_that_ignores_the_offered_end_is_waited_for_and_counts_whole():
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=2.0, answers=False)
    w.apply(job(units=40, deadline=120))
    w.run_until(lambda w: w.done("j1"))
    assert any("offer" in line for line in w.log)
    assert w.met("j1")
    assert w.processed["j1"] == [(0, 40)]
    assert once(w)


@pytest.mark.parametrize("answer", [0, 3], ids=["nothing at all", "less than it has done"])
def test_a_worker_that_answers_with_less_than_it_was_offered_loses_nothing(answer):
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=4.0, answer=answer) if chunk.end == 40 and chunk.begin == 0 else Worker()
    w.apply(job(units=40, deadline=250))
    w.run_until(lambda w: w.done("j1"))
    assert any("offer" in line for line in w.log)
    assert w.met("j1")
    assert once(w)


def test_an_answer_to_an_earlier_offer_is_not_taken_for_one_to_a_new_leaders_offer():
    """Cut once, late again under a new leader: the file still says the first answer when the second offer goes out."""
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=6.0 if chunk.begin == 0 else 1.0)
    w.apply(job(units=60, deadline=400))
    w.run_until(lambda w: any("offer" in line for line in w.log))
    w.run_until(lambda w: any(c.begin == 0 and c.end < c.origin for c in w.records["j1"].chunks))
    first = next(c.end for c in w.records["j1"].chunks if c.begin == 0)
    w.crash()
    for pod in running(w):
        w.set_worker(pod, Worker(pace=12.0))
    w.run_until(lambda w: sum("offer" in line for line in w.log) > 1)
    w.run_until(lambda w: w.done("j1"))
    assert min(e for b, e in w.processed["j1"] if b == 0) < first, "it was not cut a second time"
    assert once(w)
    assert w.met("j1")


def test_a_replaced_leader_that_knows_nothing_of_an_offer_takes_no_part_for_the_whole():
    """It would store the result of the part under the whole range, where a later leader could find it."""
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=3.0) if chunk.begin == 0 else Worker()
    w.apply(job(units=40, deadline=400, reduce_duration=5.0))
    w.run(30)
    old = w.crash()
    w.run_until(lambda w: any(begin == 0 for begin, _ in w.processed.get("j1", ())))
    (pod,) = (p for p in w.pods.values() if p.chunk.begin == 0 and p.chunk.kind == "Chunk")
    assert (pod.phase, pod.offered is not None) == ("Succeeded", True)
    late = old.step(w.now, [pod.observed()]) + old.step(w.now + 2, [])
    assert not [action for action in late if isinstance(action, StoreResult)]
    w.run_until(lambda w: w.done("j1"))
    assert once(w)
    assert w.met("j1")


def test_an_end_drawn_in_after_the_answer_is_believed():
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=4.0) if chunk.attempt == 1 else Worker()
    w.apply(job(units=40, deadline=200))
    w.run(1)
    w.run_until(lambda w: any(c.end < c.origin for c in w.records["j1"].chunks))
    pod = next(p for p in w.pods.values() if p.answered is not None)
    pod.answered -= 2
    w.run_until(lambda w: w.done("j1"))
    assert (0, pod.answered) in w.processed["j1"]
    assert once(w)


def test_a_report_read_before_the_answer_and_long_under_way_is_not_taken_for_a_look_after_the_end():
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=4.0) if chunk.begin == 0 else Worker()
    w.apply(job(units=40, deadline=250))
    w.run_until(lambda w: any("offer" in line for line in w.log))
    (pod,) = running(w)
    w.silent_agents.add("n1")
    before = Progress(pod=pod.uid, done=pod.done, end=None, cpu_seconds=pod.cpu)
    w.run_until(lambda _: pod.phase == "Succeeded")
    assert pod.answered < 40
    w.run(w.now + 3)
    w.inbox.append(Reported("n1", (before,)))
    w.tick()
    assert w.records["j1"].completed.total == 0
    w.silent_agents.clear()
    w.run_until(lambda w: w.done("j1"))
    assert (0, pod.answered) in w.processed["j1"]
    assert once(w)


def test_a_chunk_whose_last_word_nobody_heard_is_done_again():
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=4.0, answers=False) if chunk.attempt == 1 else Worker()
    w.apply(job(units=40, deadline=400))
    w.run_until(lambda w: any("offer" in line for line in w.log))
    (pod,) = running(w)
    w.silent_agents.add("n1")
    w.run_until(lambda _: pod.phase == "Succeeded")
    w.run(w.now + 29)
    assert w.records["j1"].completed.total == 0
    w.run_until(lambda w: w.done("j1"))
    assert w.records["j1"].completed.total == 40
    assert pods_made(w) > 1
    assert all(p.deleting for p in w.pods.values()), "what that pod has done others have done again: nobody needs it"
    assert w.met("j1")


def test_no_end_is_offered_to_a_worker_whose_agent_is_silent():
    """Chaos, seed 4: behind an API server's death a new leader, who knew of no progress, offered an end to a chunk that
    was long done, waited for an answer that could not come, and had it all done again."""
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=1.2) if chunk.attempt == 1 else Worker()
    w.apply(job(units=40, deadline=90))
    w.run(10)
    w.silent_agents.add("n1")
    w.crash()
    w.leaderless(52)
    w.tick()
    assert not any("offer" in line for line in w.log)
    (pod,) = w.pods.values()
    assert pod.phase == "Succeeded", "of which its kubelet tells now"
    w.inbox.append(pod.observed())
    w.tick()
    assert w.processed["j1"] == [(0, 40)]
    assert w.met("j1")


def test_an_end_is_offered_once_the_agent_is_heard_again():
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=4.0) if chunk.attempt == 1 else Worker()
    w.apply(job(units=40, deadline=400))
    w.run(10)
    w.silent_agents.add("n1")
    w.run(80)
    assert w.records["j1"].chunks[0].promised_end > 70, "it is known to be late"
    assert not any("offer" in line for line in w.log)
    w.silent_agents.clear()
    w.run_until(lambda w: any("offer" in line for line in w.log), within=5)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_no_end_is_offered_where_the_tail_could_begin_no_earlier():
    w = nodes("n1")
    w.workers = lambda _j, chunk: Worker(pace=2.0)
    w.apply(job(units=40, deadline=300, max_processors=1))
    w.run_until(lambda w: w.done("j1"))
    assert not any("offer" in line for line in w.log)
    assert w.processed["j1"] == [(0, 40)]
    assert w.met("j1")


def test_a_reduce_that_is_still_to_come_keeps_no_processor_idle():
    w = nodes("n1", cpu=4.0)
    w.workers = lambda uid, chunk: Worker(pace=2.0 if uid == "late" else 1.0)
    for n in range(3):
        w.apply(job(f"j{n}", units=100, deadline=120, reduce_duration=5.0))
    w.run(1)
    w.apply(job("late", units=40, deadline=400, reduce_duration=5.0, arrival=1))
    w.run(3)
    assert len(running(w, "late")) == 1, "there is a fourth processor"
    w.delete("j0")
    w.run_until(lambda w: w.done("late"))
    assert any("offer late" in line for line in w.log), "there is an idle processor"
    assert w.met("late")


@pytest.mark.parametrize(
    ("deadline", "most", "processors"),
    [(400, None, 2), (400, 3, 2), (50, None, 8), (50, 3, 3)],
    ids=["in time by one helper", "of three", "on leftovers by all that are idle", "by no more than it may have"],
)
def test_a_late_chunk_keeps_what_makes_all_end_together_on_the_processors_that_its_tail_gets(
    deadline, most, processors
):
    w = nodes("n1", cpu=8.0)
    w.workers = lambda _j, _chunk: Worker(pace=3.0)
    w.apply(job(units=40, deadline=deadline, max_processors=most))
    w.run(1)
    w.run_until(lambda w: len(w.records["j1"].chunks) > 1)
    assert len(w.records["j1"].chunks) == processors
    ends = {}

    def ended(w: World) -> bool:
        for begin, _ in w.processed.get("j1", ()):
            ends.setdefault(begin, w.now)
        return w.done("j1")

    w.run_until(ended)
    assert len(ends) == processors
    assert max(ends.values()) - min(ends.values()) <= 6.0  # two units
    assert once(w)


# quota


def test_a_quota_that_refuses_the_seventh_chunk_leaves_six_at_a_time_and_the_job_goes_on():
    w = nodes("n1", "n2")
    w.quota["j1"] = 6
    w.apply(job(units=240, deadline=100, min_processors=8))
    w.run(8)
    assert len(running(w)) == 6
    refused = sum("refused j1" in line for line in w.log)
    w.run(18)
    assert sum("refused j1" in line for line in w.log) <= refused + 2, "asked again and again"
    w.run_until(lambda w: w.done("j1"))
    assert once(w)
    assert w.met("j1")
    assert f"event j1 {reasons.POD_REFUSED}" in " ".join(w.log)


def test_a_pod_whose_name_is_taken_is_made_under_another_at_once_and_not_after_a_quotas_pause():
    free = nodes("n1")
    free.apply(job(units=40, deadline=60))
    free.run(1)
    (name,) = free.pods
    w = nodes("n1")
    w.strangers.add(name)
    w.apply(job(units=40, deadline=60))
    w.run(1)
    assert [p.chunk.attempt for p in w.pods.values()] == [2]
    w.run_until(lambda w: w.done("j1"))
    assert once(w)
    assert w.met("j1")


def test_a_quota_that_refuses_one_jobs_pods_keeps_no_processor_from_another():
    w = nodes("n1", cpu=2.0)
    w.quota["poor"] = 0
    w.apply(job("poor", units=40, deadline=300))
    w.run(2)
    w.apply(job("rich", units=40, deadline=48, arrival=2))
    w.run_until(lambda w: w.done("rich"))
    assert w.met("rich")
    assert not any("refused rich" in line for line in w.log)


def test_who_is_refused_its_pods_pays_for_it_and_not_who_came_later():
    w = nodes("n1", cpu=2.0)
    w.quota["poor"] = 0
    w.apply(job("poor", units=70, deadline=80))
    w.run(1)
    w.apply(job("rich", units=60, deadline=140, arrival=1))
    w.run(2)
    assert w.state("rich") == ("True", reasons.FEASIBLE)
    w.run_until(lambda w: w.done("rich"), within=300)
    assert w.met("rich")
    assert w.records["rich"].on_track.reason == reasons.ON_TRACK
    assert w.records["poor"].on_track.reason == reasons.POD_REFUSED
    del w.quota["poor"]
    w.run_until(lambda w: w.done("poor"), within=300)
    assert once(w, "poor")


# an image cannot be pulled


def said(w: World, reason: str) -> list[str]:
    return [message for _, about, message in w.said if about == reason]


def test_a_registry_that_is_away_for_a_while_fails_no_job():
    w = nodes("n1")
    w.workers = lambda _j, _c: Worker(never_starts="ErrImagePull" if w.now < 80 else None)
    w.apply(job(units=40, deadline=200, chunk_retries=0))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert once(w)
    assert said(w, reasons.IMAGE_UNAVAILABLE)
    assert not said(w, reasons.CHUNK_FAILED)


def test_an_image_that_never_comes_fails_the_job_after_its_timeout_and_retries():
    w = nodes("n1")
    w.workers = lambda _j, _c: Worker(never_starts="ImagePullBackOff", says="not found")
    w.apply(job(units=4, deadline=900, chunk_retries=1, image_timeout=100.0, max_processors=1))
    w.run_until(lambda w: w.done("j1"), within=400)
    # pods of 20 s begin at 0, 30, 70, 130, 230: those that end before 100 are the cluster's fault; there is one retry
    assert w.now == pytest.approx(250, abs=5)
    assert w.records["j1"].failed_condition.reason == reasons.CHUNK_FAILED
    assert "ImagePullBackOff: not found" in w.records["j1"].failed_condition.message


def test_the_wait_for_an_image_begins_anew_once_a_pod_of_the_job_has_started():
    w = nodes("n1")
    w.workers = lambda _j, _c: Worker(never_starts="ErrImagePull" if w.now % 120 < 60 else None, fails_after=15.0)
    w.apply(job(units=40, deadline=900, chunk_retries=50, image_timeout=90.0, max_processors=1))
    w.run(700)
    assert said(w, reasons.IMAGE_UNAVAILABLE)
    assert all("exit code 1" in message for message in said(w, reasons.CHUNK_FAILED))


def test_without_patience_an_image_that_cannot_be_pulled_is_a_failure_at_once():
    w = nodes("n1")
    w.workers = lambda _j, _c: Worker(never_starts="ErrImagePull")
    w.apply(job(units=4, deadline=900, chunk_retries=0, image_timeout=0.0, max_processors=1))
    w.run_until(lambda w: w.done("j1"), within=60)


# results without a reduce step


def test_without_a_reduce_the_results_that_chunks_leave_are_kept_to_be_read():
    w = nodes("n1")
    w.apply(job(units=40, deadline=400))
    w.run_until(lambda w: w.done("j1"))
    kept = {(begin, end) for _, begin, end in w.results}
    assert kept == set(w.processed["j1"])
    assert w.records["j1"].results


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        pytest.param(Worker(result=""), None, id="it leaves none"),
        pytest.param(Worker(cut=4096), reasons.RESULT_CUT, id="the kubelet has cut it"),
        pytest.param(Worker(result="caf\ufffd"), reasons.RESULT_NOT_TEXT, id="it is not UTF-8"),
    ],
)
def test_without_a_reduce_no_empty_or_faulty_result_is_kept_and_the_work_counts(worker, reason):
    w = nodes("n1")
    w.workers = lambda _j, _c: worker
    w.apply(job(units=40, deadline=400))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert not w.results
    assert not w.records["j1"].results
    assert {about for _, about, _ in w.said if about.startswith("Result")} == ({reason} if reason else set())


# pods that stay


@pytest.mark.parametrize(
    ("retention", "phases"),
    [("Failed", {"Failed"}), ("All", {"Failed", "Succeeded"}), ("None", set())],
)
def test_ended_pods_stay_as_the_job_says_also_under_a_new_leader(retention, phases):
    w = nodes("n1")
    w.workers = lambda _j, chunk: Worker(fails_after=2.0 if chunk.attempt == 1 and chunk.begin == 0 else None)
    w.apply(job(units=40, deadline=400, retention=retention, reduce_duration=5.0))
    w.run_until(lambda w: w.done("j1"))
    w.run(w.now + 20)

    def left() -> set[str]:
        return {p.phase for p in w.pods.values() if p.chunk.kind == "Chunk"}

    assert left() == phases
    w.crash()
    w.run(w.now + 20)
    assert left() == phases
    assert [p.phase for p in w.pods.values() if p.chunk.kind == "Reduce"] == ["Succeeded"], "its log is the result"


def test_the_end_of_the_log_of_a_failed_chunk_is_in_its_event():
    w = nodes("n1")
    log = "line\n" * 200 + "Traceback:\n  in main\n\nValueError: no such column\n"
    w.workers = lambda _j, chunk: Worker(exit_code=3 if chunk.attempt == 1 else 0, says=log)
    w.apply(job(units=4, deadline=400, max_processors=1))
    w.run_until(lambda w: w.done("j1"))
    (message,) = said(w, reasons.CHUNK_FAILED)
    assert message.endswith("line | line | Traceback: | in main | ValueError: no such column")
    assert len(message) < 500


@pytest.mark.parametrize("told", [True, False], ids=["that its agent tells of", "that nothing tells of"])
def test_a_chunk_that_no_cap_keeps_on_its_line_is_helped_before_its_planned_end(told):
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(pace=1.6 if chunk.begin == 0 and chunk.attempt == 1 else 1.0, saturated=told)
    w.apply(job(units=100, deadline=130))
    w.run(1)
    (chunk,) = w.records["j1"].chunks
    w.run(40)
    helped = any("offer j1" in line for line in w.log)
    assert helped == told
    assert w.now < chunk.promised_end
    assert w.records["j1"].on_track.status == ("True" if told else "False")
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1") == told


def test_a_chunk_that_says_it_is_too_slow_but_is_not_keeps_its_units():
    w = nodes("n1", cpu=2.0)
    w.workers = lambda _j, chunk: Worker(saturated=True)
    w.apply(job(units=100, deadline=130))
    w.run_until(lambda w: w.done("j1"))
    assert not any("offer" in line for line in w.log)


def test_a_saturated_loop_that_no_processor_can_help_says_when_the_job_will_end_and_when_that_has_passed():
    w = nodes("n1")
    w.workers = lambda _j, _c: Worker(pace=2.0, saturated=True)
    w.apply(job(units=100, deadline=130, max_processors=1))
    w.run(1)
    w.run_until(lambda w: w.records["j1"].on_track.status == "False")
    track = w.records["j1"].on_track
    assert track.reason == reasons.LOOP_SATURATED
    assert "after the deadline" in track.message
    assert w.now < 60, "half of its time is left"
    (pod,) = running(w, "j1")
    w.set_worker(pod, replace(pod.worker, saturated=False))
    w.run_until(lambda w: w.records["j1"].on_track.reason == reasons.LATE, within=10)
    w.set_worker(pod, replace(pod.worker, pace=0.8))
    w.run_until(lambda w: w.records["j1"].on_track.status == "True", within=30)
