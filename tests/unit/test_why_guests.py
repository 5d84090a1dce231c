"""``why`` of guest jobs and their pods: no deadline, where the units are, and the last decision about a chunk."""

import re

import pytest
from guest_job import CHUNKS, KUBELETS, NOW, at, chunk, guest_job, guest_pod, told

from punctual.linger.history import EPISODES, Episode, History
from punctual.view.guests import WHAT, Rules, last_decision, lately, rules_of
from punctual.view.jobs import job_of, pod_of
from punctual.view.why import why, why_guest_chunk, why_over


def one(sentences, pattern):
    found = [text for text in sentences if re.fullmatch(pattern, text)]
    assert len(found) == 1, (pattern, sentences)


def explain(body, pods=()):
    seen = {pod["metadata"]["name"]: pod_of(pod) for pod in pods}
    return why(job_of(body), None, NOW, {}, seen)


def test_a_guest_job_says_that_it_has_no_deadline_and_where_its_units_are():
    assert explain(guest_job()) == (
        WHAT,
        "115 of 400 units are done; 85 more are in the chunks that run, 200 wait for a chunk.",
        "3 chunks run: 2 on n1, 1 on n2.",
    )


def test_what_waits_is_told_as_work_where_the_cost_of_a_unit_is_known():
    found = explain(guest_job(cost={"perUnit": 3.0, "startup": 0.0}))
    one(found, r"115 of 400 units are done; 85 more .*, 200 \(10m of CPU\) wait for a chunk\.")


def test_many_nodes_are_counted():
    found = explain(guest_job(chunks=[chunk(i, i + 1, node=f"n{i}") for i in range(8)]))
    one(found, r"8 chunks run: 1 on n0, 1 on n1, 1 on n2, 1 on n3, 1 on n4, 3 on other nodes\.")


def test_a_pod_that_has_not_started_says_so():
    pod = guest_pod(phase="Pending", containerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull"}}}])
    one(
        explain(guest_job(), [pod]),
        r"Pod sums-100 \(units 100-140, node n1\) has not started after 30s: ErrImagePull.*",
    )


@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        (
            guest_job(state="Waiting", chunks=(), done=0),
            r"No chunk of it runs: one starts when a node of its pool has .*",
        ),
        (guest_job(chunks=()), r"No chunk of it runs: .*"),
        (guest_job(chunks=(), spec={"suspend": True}), r"It is suspended \(spec\.suspend\): no chunk starts\."),
        (
            guest_job(
                state="Suspended",
                chunks=(),
                spec={"suspend": True},
                conditions={"Admitted": ("False", "Suspended", "spec.suspend is true")},
            ),
            r"It is suspended \(spec\.suspend\): no chunk starts\.",
        ),
        (
            guest_job(spec={"suspend": True}),
            r"It is suspended \(spec\.suspend\): its chunks hand back what they have not begun, and none starts\.",
        ),
        (
            guest_job(failed=[{"begin": 0, "end": 9, "count": 2}]),
            r"A chunk of it has failed 2 times by its own fault: .*",
        ),
    ],
)
def test_why_nothing_runs(body, pattern):
    found = explain(body)
    one(found, pattern)
    assert found[0] == WHAT


@pytest.mark.parametrize(
    ("state", "conditions", "first"),
    [
        ("Waiting", {"Admitted": ("Unknown", "", "")}, r"It has no answer yet, 1m40s after its creation: .*"),
        ("Waiting", {"Admitted": ("False", "PoolNotFound", "there is no Pool main")}, r"It has no promise \(PoolNot.*"),
        (
            "Refused",
            {"Admitted": ("False", "InvalidSpec", "spec.class: no guests")},
            r"Pool main refused it \(Invalid.*",
        ),
        (
            "Completed",
            {"Completed": ("True", "Completed", "all 400 units are done")},
            r"It is done \(Completed\): all .*",
        ),
        ("Failed", {"Failed": ("True", "ChunkFailed", "units 0-9 failed")}, r"It has failed \(ChunkFailed\): units .*"),
    ],
)
def test_other_states_are_told_as_of_other_jobs_but_for_promises(state, conditions, first):
    found = explain(guest_job(state=state, conditions=conditions, chunks=(), finishTime=at(0)))
    assert re.fullmatch(first, found[0]), found
    assert not any("in time" in text or "late" in text.split() for text in found)


RULES = Rules()


def about(decision=None, rules=RULES, number=0):
    job = job_of(guest_job())
    pod = pod_of(guest_pod(CHUNKS[number]))
    return why_guest_chunk(job, job.chunks[number], NOW, told=decision, rules=rules, pod=pod)


def test_a_chunk_says_where_it_is_what_it_gets_and_the_last_decision_with_its_arithmetic():
    assert about(last_decision([told(2.0), KUBELETS, told(12.0)])) == (
        "It is units 100-140 of demo/sums, a guest job without a deadline, on node n1 since 07:59:30Z (30s ago).",
        "When it started, n1 had CPU and memory to spare.",
        (
            "It has the lowest CPU priority of n1: it gets only CPU that the node's own work leaves, and shares that "
            "with the other guests there."
        ),
        "It has reported 12 of 40 units.",
        (
            "The last decision, at 07:59:52Z (8.0s ago), was GuestStays: This chunk stays on node n1. Node n1 has been "
            "busy for 12s with this chunk on it: its own work uses 35% of its CPU; that of node n2 uses 2%. "
            "It works at 65% of full speed here and at 98% there; a move costs 5.0s. A move pays once that has lasted "
            "15s "
            "(5.0s × 98% / (98% - 65%))."
        ),
        (
            "Policy LingerLonger: while its node is busy, it goes on, and moves to a less busy node with room when "
            "that pays."
        ),
    )


def test_a_chunk_with_units_that_another_one_had_says_so():
    one(
        about(number=1),
        r"When it started, n2 had .* Another chunk had these units before: it ended, was lost or moved\.",
    )


def test_without_a_decision_it_says_what_may_be_the_cause_and_what_the_policy_would_do():
    found = about()
    one(found, r"Its pod has no event of a decision: its node has not become busy since, or the event has expired .*\.")
    one(found, r"Policy LingerLonger: while its node is busy, it goes on, .*")


@pytest.mark.parametrize("policy", ["LingerLonger", "LingerForever", "ImmediateEviction", "PauseAndMigrate"])
@pytest.mark.parametrize("preview", [False, True])
def test_each_policy_says_what_comes_next(policy, preview):
    rules = rules_of({"spec": {"guests": {"policy": policy, "preview": preview}}})
    assert rules == Rules(policy, preview)
    last = about(rules=rules)[-1]
    assert last.startswith(f"Policy {policy}: while its node is busy, it ")
    assert last.endswith("The pool is in preview: this is told, and not done.") == preview


def test_after_a_move_nothing_comes_next():
    found = about(last_decision([told(16.0)]))
    assert "GuestMoves: This chunk moves from node n1 to n2." in found[-1]
    found = about(last_decision([told(16.0, acted=False)]), Rules(preview=True))
    assert "GuestPreview: Preview, nothing is done: this chunk would move" in found[-2]


def test_without_the_pool_the_policy_is_left_out():
    assert "policy" not in " ".join(about(rules=None))
    assert rules_of({"spec": {}}) == Rules()


@pytest.mark.parametrize(
    ("times", "when"),
    [
        ({"eventTime": at(-3), "series": {"lastObservedTime": at(-1)}}, -1.0),
        ({"lastTimestamp": at(-2)}, -2.0),
        ({"metadata": {"creationTimestamp": at(-4)}}, -4.0),
        ({}, -NOW),
    ],
)
def test_an_event_counts_from_when_it_was_last_seen(times, when):
    found = last_decision([{"reason": "GuestStays", "message": "x", **times}])
    assert found.at == NOW + when


def test_only_decisions_about_guests_count():
    assert last_decision([KUBELETS]) is None
    assert last_decision([]) is None


def test_a_pod_that_has_left_says_where_it_was_and_what_was_decided():
    pod = pod_of(guest_pod(chunk(40, 60), phase="Succeeded"))
    found = why_over(job_of(guest_job()), pod, NOW, last_decision([told(16.0)]))
    assert found[0] == "It was units 40-60 of demo/sums, on node n1. It is Succeeded."
    assert "GuestMoves: This chunk moves from node n1 to n2." in found[-1]
    assert len(why_over(job_of(guest_job()), pod, NOW)) == 1


def history(*uses, guests=0.25, episodes=()):
    """A node's history until now: uses by hosts, each for two minutes."""
    made = History()
    begin = NOW - 120.0 * len(uses)
    for n, use in enumerate(uses):
        for second in range(0, 120, 5):
            made.see(begin + 120.0 * n + second, hosts=use, guests=guests, episode=None)
    made.episodes.extend(episodes)
    return made


def test_what_a_node_did_lately_is_a_curve_and_numbers():
    said = lately(
        "n1", history(0.0, 0.0, 0.5, 1.0, 0.0, episodes=[Episode(130.0, 0.454), Episode(61.0, 0.3)]), NOW - 5.0
    )
    assert said == (
        "In the last 10m, the own work of node n1 used ▁▁▅█▁ of it (2m a block, 30% on average, 100% at most), guests "
        "25%. Busy times of n1 before, the newest first: 1m1s at 30%, 2m10s at 45%."
    )


@pytest.mark.parametrize("uses", [(), (0.5,)])
def test_of_a_node_that_is_seen_for_a_moment_nothing_is_told(uses):
    assert lately("n1", history(*uses), NOW - 5.0) == ""


def test_minutes_without_a_report_are_a_gap_in_the_curve():
    made = history(0.2, 0.2)
    for n in range(12):
        made.see(NOW + 240.0 + 10.0 * n, hosts=1.0, guests=0.0, episode=None)
    assert "In the last 10m, the own work of node n1 used ▂▂  █ of it" in lately("n1", made, NOW + 355.0)


def test_a_whole_hour_fits_into_an_event_beside_a_decision():
    full = history(*[0.9] * 30, episodes=[Episode(100_000.0, 0.999)] * EPISODES)
    said = lately("n" * 63, full, NOW - 5.0)
    assert "In the last 1h," in said
    assert len(said.encode()) < 600
