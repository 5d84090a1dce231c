"""Stories about inputs that come over one port: who fetches when, and what becomes of turns when things go wrong."""

from dataclasses import replace
from itertools import pairwise

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.actions import CreateChunk, GiveTurn
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.pool_spec import PoolSpec

ONE_PORT = PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0, discipline=Discipline(network="OnePort"))


def world(nodes: int = 4, **more) -> World:
    w = World(**{"spec": ONE_PORT, **more})
    for n in range(nodes):
        w.node(f"n{n}", 1.0)
    w.tick()
    return w


def fetching(uid: str = "j1", *, units: int = 40, deadline: float = 40.0, **more):
    """Return a job whose units take 0.2 s to fetch and 1 s to work on."""
    cost = {"tau": 0.2, "theta_cm": 0.5, "theta_cp": 2.0}
    return job(uid, units=units, deadline=deadline, fetches=True, **(cost | more))


def as_declared(w: World):
    """Let transfers take what the job has declared."""
    w.workers = lambda uid, c: Worker(fetch=0.25 * -(-(0.5 + 0.2 * (c.origin - c.begin)) // 0.25))


def fetched() -> World:
    """Return a world in which a job of 40 units, fetched in as much time as declared, is done."""
    w = world()
    as_declared(w)
    w.apply(fetching(units=40, deadline=42.0))
    w.run_until(lambda w: w.done("j1"))
    return w


def overlapping(w: World):
    found = sorted(w.transfers)
    return [(a, b) for a, b in pairwise(found) if b[0] < a[1]]


def turns(w: World):
    return [line for line in w.log if " turn " in line]


def test_transfers_follow_each_other_in_the_order_of_the_plan_while_pods_start_together():
    w = world()
    as_declared(w)
    w.apply(fetching(units=40, deadline=42.0, min_processors=3))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    created = [line for line in w.log if " create j1 " in line]
    assert len({line.split()[0] for line in created}) == 1
    assert len(created) >= 3
    assert len(w.transfers) == len(created)
    assert not overlapping(w)
    assert [name for *_, name in sorted(w.transfers)] == sorted(
        (name for *_, name in w.transfers), key=lambda name: int(name.split("-")[2])
    )


def test_a_turn_is_on_record_before_the_pod_is_told():
    w = world()
    w.apply(fetching())
    while not turns(w):
        actions = w.tick()
        w.now += 0.25
        told = [a for a in actions if isinstance(a, GiveTurn)]
    assert [c.turn for c in w.records["j1"].chunks if c.turn is not None] == [told[0].at]


def test_a_late_transfer_holds_the_next():
    w = world()
    as_declared(w)
    w.workers = lambda uid, c: Worker(fetch=12.0 if c.begin == 0 else 2.0)
    w.apply(fetching(deadline=60.0, min_processors=3))
    w.run_until(lambda w: w.done("j1"))
    assert not overlapping(w)
    first, second, *_ = sorted(w.transfers)
    assert first[1] - first[0] >= 12.0
    assert second[0] >= first[1]


def test_those_that_wait_for_a_late_one_do_not_pay_for_it():
    w = world(5)
    w.workers = lambda uid, c: Worker(fetch=25.0 if uid == "late" else 2.0)
    w.apply(fetching("late", units=10, deadline=25.0, max_processors=1))
    w.run(0.5)
    w.apply(fetching("other", units=10, deadline=60.0, max_processors=1, arrival=w.now))
    w.run(15.0)
    (waits,) = w.records["other"].chunks
    assert waits.sent >= 15.0 - 3.0  # theta_cp and half the margin are the play
    assert waits.promised_end >= waits.sent + 10.0
    w.run_until(lambda w: w.done("other"))
    assert not overlapping(w)
    assert w.records["late"].on_track[1] == reasons.OVERRUN
    assert all("OVERRUN" not in line.upper() for line in w.log if " other " in line)
    assert w.met("other")


def test_a_transfer_that_hangs_is_timed_out_and_frees_the_port_when_its_pod_is_gone():
    tries = iter([True])
    w = world()
    w.workers = lambda uid, c: Worker(fetch_hangs=c.begin == 0 and next(tries, False), deaf=True)
    w.apply(fetching(deadline=120.0, stall_timeout=10.0, min_processors=3))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert any("event j1 InputUnavailable" in line for line in w.log)
    assert not overlapping(w)
    hung, after, *_ = sorted(w.transfers)
    assert 10.0 <= hung[1] - hung[0] <= 16.0
    assert after[0] >= hung[1]


def test_a_transfer_of_which_bytes_arrive_is_not_timed_out():
    w = world()
    w.workers = lambda uid, c: Worker(fetch=30.0)
    w.apply(fetching(units=4, deadline=120.0, stall_timeout=5.0, max_processors=1))
    w.run_until(lambda w: w.done("j1"))
    assert not any("Stalled" in line for line in w.log)


def test_a_silent_agent_is_no_evidence_against_a_transfer():
    w = world()
    w.silent_agents = {f"n{n}" for n in range(4)}
    w.workers = lambda uid, c: Worker(fetch=30.0)
    w.apply(fetching(units=4, deadline=120.0, stall_timeout=5.0, max_processors=1))
    w.run_until(lambda w: w.done("j1"))
    assert not any("Stalled" in line for line in w.log)


def test_the_port_is_free_again_when_the_node_of_who_has_it_is_lost():
    w = world()
    w.workers = lambda uid, c: Worker(fetch_hangs=c.begin == 0 and c.node == "n0")
    w.apply(fetching(deadline=120.0, stall_timeout=1000.0, min_processors=3))
    w.run_until(lambda w: any(p.fetch_began is not None for p in w.pods.values()))
    (sender,) = (p for p in w.pods.values() if p.fetch_began is not None)
    assert sender.chunk.node == "n0"
    w.node("n0", 1.0, ready=False)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")


def test_where_nothing_is_shared_a_chunk_is_made_with_its_turn():
    w = world(spec=replace(ONE_PORT, discipline=Discipline()))
    w.apply(fetching(deadline=30.0, min_processors=3))
    actions = []
    w.run_until(lambda w: w.done("j1") or actions.extend(w.tick()))
    created = [a.chunk for a in actions if isinstance(a, CreateChunk)]
    assert created
    assert all(chunk.turn == chunk.created for chunk in created)
    assert overlapping(w)
    assert not turns(w)


def test_a_pool_that_becomes_concurrent_lets_all_fetch():
    w = world()
    w.workers = lambda uid, c: Worker(fetch=20.0)
    w.apply(fetching(deadline=150.0, min_processors=3))
    w.run_until(lambda w: len(turns(w)) == 1)
    w.edit_pool(replace(ONE_PORT, generation=2, discipline=Discipline()))
    w.run_until(lambda w: len(turns(w)) == len(w.pods), within=5)
    assert len(w.pods) >= 3


def test_who_sends_by_itself_is_waited_for_as_planned():
    w = world()
    w.workers = lambda uid, c: Worker(pace=1.0)
    w.apply(job("itself", units=20, tau=0.5, deadline=40.0, max_processors=1))
    w.run(0.5)
    w.apply(fetching("asked", units=10, arrival=w.now, deadline=w.now + 60))
    w.run_until(turns)
    (chunk,) = w.records["itself"].chunks
    assert chunk.sent <= w.now <= chunk.sent + 1.0


@pytest.mark.parametrize("when", range(1, 40))
def test_a_new_leader_gives_no_second_turn_while_a_transfer_may_be_under_way(when):
    w = world()
    w.workers = lambda uid, c: Worker(fetch=5.0)
    w.apply(fetching(deadline=150.0, min_processors=3))
    w.run(0.25 * when)
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert not overlapping(w)
    assert w.met("j1")


@pytest.mark.parametrize("comes_late", [True, False])
@pytest.mark.parametrize("reached", range(4))
@pytest.mark.parametrize("nth", range(1, 8))
def test_stopped_between_any_two_writes_and_with_what_comes_late_no_transfers_overlap(nth, reached, comes_late):
    w = world()
    w.workers = lambda uid, c: Worker(fetch=3.0)
    w.apply(fetching(deadline=150.0, min_processors=3))
    rest = w.interrupted(lambda count: min(count, reached), nth=nth)
    w.crash()
    if comes_late:
        w.late(rest)
    w.run_until(lambda w: w.done("j1"))
    assert not overlapping(w)
    assert w.met("j1")


def test_what_transfers_took_is_in_the_record():
    w = fetched()
    seen = w.records["j1"].transfers
    assert seen.units == 40
    assert seen.times == len(w.transfers)
    took = sum(end - begin for begin, end, _ in w.transfers)
    assert seen.tau == pytest.approx((took - 0.5 * seen.times) / 40)
    assert 0.5 <= seen.theta_cm <= 1.5  # that a turn is handed on a tick later is a part of it
    assert seen.size == sum(int(1000 * (end - begin)) for begin, end, _ in w.transfers)


def test_what_a_chunk_took_is_told_with_the_part_that_its_transfer_was():
    w = fetched()
    sums = w.records["j1"].transfers
    assert len(w.measured) == sums.times
    assert sum(m.fetched.units for m in w.measured) == 40
    assert sum(m.fetched.opening for m in w.measured) == pytest.approx(sums.opening)
    assert sum(m.fetched.seconds for m in w.measured) == pytest.approx(sums.opening + sums.sending)
    for m in w.measured:
        assert m.seconds - m.fetched.seconds == pytest.approx(m.units * 1.0, abs=w.startup + 1.0)


def test_a_transfer_that_would_have_taken_longer_than_its_chunk_is_not_believed():
    w = world()
    w.workers = lambda uid, c: Worker(fetch=2.0)
    w.apply(fetching(units=4, deadline=60.0, max_processors=1))
    w.run_until(lambda w: any(p.fetch_ended for p in w.pods.values()))
    (pod,) = w.pods.values()
    pod.fetch_began = -1000.0
    w.run_until(lambda w: w.done("j1"))
    assert [m.fetched for m in w.measured] == [None]


def test_the_port_is_free_as_soon_as_an_input_is_there():
    w = world()
    w.workers = lambda uid, c: Worker(fetch=1.0)
    w.apply(fetching("quick", units=10, tau=3.0, deadline=200.0, max_processors=1))
    w.run(6.0)
    w.apply(fetching("new", units=10, arrival=w.now, deadline=w.now + 20.0))
    w.run(7.0)
    assert w.records["new"].promise.start <= w.now


def test_a_pod_that_nobody_owns_any_more_has_the_port_until_it_is_gone():
    w = world()
    w.workers = lambda uid, c: Worker(fetch=50.0 if uid == "gone" else 1.0, deaf=True)
    w.apply(fetching("gone", units=4, deadline=100.0, max_processors=1))
    w.run_until(lambda w: any(p.fetch_began is not None for p in w.pods.values()))
    w.apply(fetching("waits", units=4, arrival=w.now, deadline=w.now + 100.0, max_processors=1))
    w.run(w.now + 3.0)
    w.delete("gone")
    w.crash()
    w.run_until(lambda w: w.done("waits"))
    assert len(w.transfers) == 2
    assert not overlapping(w)


def test_start_ups_of_those_that_wait_for_their_turn_are_nobodys_margin():
    w = world()
    w.workers = lambda uid, c: Worker(fetch=5.0)
    for n in range(8):
        w.apply(fetching(f"j{n}", units=4, deadline=400.0, max_processors=1))
    w.run_until(lambda w: all(w.done(f"j{n}") for n in range(8)))
    assert not w.pool_record.startups


def test_a_claim_that_is_not_there_is_the_jobs_own_failure_and_keeps_no_node_from_others():
    w = world(1)
    w.workers = lambda uid, c: Worker(never_starts="NoVolume" if uid == "lost" else None)
    w.apply(fetching("lost", units=4, deadline=300.0, chunk_retries=0))
    w.run_until(lambda w: w.done("lost"), within=60)
    assert w.records["lost"].failed_condition.reason == reasons.CHUNK_FAILED
    w.apply(job("other", units=4, arrival=w.now, deadline=w.now + 15.0))
    w.run_until(lambda w: w.done("other"))
    assert w.met("other")


def test_a_secret_that_is_not_there_is_the_jobs_own_failure_in_the_clusters_words():
    w = world(1)
    said = 'secret "archive" not found (spec.input.http.headers)'
    w.workers = lambda uid, c: Worker(never_starts="CreateContainerConfigError", says=said)
    w.apply(fetching("locked", units=4, deadline=300.0, chunk_retries=1))
    w.run_until(lambda w: w.done("locked"), within=120)
    failed = w.records["locked"].failed_condition
    assert failed.reason == reasons.CHUNK_FAILED
    assert "failed 2 times: " in failed.message
    assert failed.message.endswith(f"cannot start: CreateContainerConfigError: {said}")


def keeping(start=20.0, end=60.0, **more):
    """Return a world in which a reservation keeps the port over the first half of a window."""
    w = world(**more)
    as_declared(w)
    w.reserve("r", start, end, 1, io_ratio=0.5)
    w.tick()
    assert w.answers["r"].answer[:2] == ("True", reasons.FEASIBLE)
    return w


def meeting(w: World, start=20.0, until=40.0):
    """Return the transfers that were under way while the port was kept."""
    return [t for t in w.transfers if t[0] < until and t[1] > start]


def test_inputs_are_fetched_before_and_behind_the_time_in_which_a_reservation_keeps_the_port():
    w = keeping()
    assert "1 processor for 40s, the link for the first 20s" in w.answers["r"].answer.message
    w.apply(fetching(units=100, deadline=90.0))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert min(w.transfers)[1] <= 20.0
    assert max(w.transfers)[0] >= 40.0
    assert not meeting(w)
    assert not overlapping(w)


def test_who_begins_a_moment_after_it_was_planned_to_moves_those_that_are_booked_behind():
    w = keeping()
    w.apply(fetching(units=100, deadline=90.0))
    w.run(0.25)
    (placement,) = w.pool.view().plan
    place, planned = placement.where[0], placement.starts[0]
    assert list(placement.where).count(place) > 1, "it has a chunk on either side of what the port is kept for"
    w.run_until(lambda w: len(w.pods) == 2)  # the plan is checked in each step
    assert w.now > planned, "ticks do not meet it"
    (placement,) = w.pool.view().plan
    assert placement.starts[list(placement.where).index(place)] >= w.records["j1"].chunks[1].promised_end


def test_who_names_the_reservation_fetches_behind_that_time_too():
    w = keeping()
    w.apply(fetching(units=8, deadline=70.0, reservation=""))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert [begin >= 40.0 for begin, *_ in w.transfers] == [True]


def test_a_turn_that_comes_too_late_to_be_done_when_the_port_is_kept_comes_behind():
    w = keeping(start=30.0, end=60.0)  # to 45.0
    w.workers = lambda uid, c: Worker(fetch=24.0 if uid == "late" else 8.0)
    w.apply(fetching("late", units=10, deadline=60.0, max_processors=1))
    w.apply(fetching("next", units=40, arrival=0.1, deadline=140.0, max_processors=1))
    w.run_until(lambda w: w.done("late") and w.done("next"))
    (_, freed, _), second, *_ = sorted(w.transfers)
    assert freed <= 30.0
    assert w.records["next"].completed.total == 40
    assert second[0] >= 45.0
    assert not meeting(w, 30.0, 45.0)
    assert w.met("next")


@pytest.mark.parametrize("when", [1.0, 8.0, 19.75, 25.0, 39.0])
def test_a_new_leader_keeps_the_port_for_the_reservation(when):
    w = keeping()
    w.apply(fetching(units=100, deadline=100.0))
    w.run(when)
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert not meeting(w)


def test_pilots_measure_what_their_transfers_take_apart_from_the_work():
    w = world()
    as_declared(w)
    w.apply(job("j1", units=40, deadline=300.0, chi=None, fetches=True))
    w.run_until(lambda w: "j1" in w.records and w.records["j1"].promise is not None)
    cost, sent = w.records["j1"].cost, w.records["j1"].transfers
    assert (cost.tau, cost.theta_cm) == (sent.tau, sent.theta_cm)
    assert cost.tau == pytest.approx(0.2, abs=0.1)  # a clock of quarters of a second
    assert cost.chi == pytest.approx(1.0, abs=0.1)
    assert cost.theta_cm + cost.theta_cp == pytest.approx(1.5, abs=0.3)
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert not overlapping(w)


def test_pilots_do_not_fetch_meanwhile():
    w = keeping()
    w.run(19.0)
    w.apply(job("pilot", units=20, deadline=300.0, arrival=w.now, chi=None, fetches=True))
    w.run(21.0)
    w.apply(job("another", units=20, deadline=300.0, arrival=w.now, chi=None, fetches=True))
    w.run_until(lambda w: w.done("pilot") and w.done("another"))
    assert len(w.transfers) >= 2
    assert not meeting(w, 20.0 + 2.0)  # how long a pilot's takes is not known: one may have begun before


@pytest.mark.parametrize("fetches", [True, False])
def test_what_runs_on_leftovers_does_not_send_meanwhile(fetches):
    w = keeping(start=60.0, end=220.0)  # to 140.0
    w.workers = lambda uid, c: Worker(pace=6.0)
    w.apply(job("late", units=40, tau=0.5, deadline=50.0, fetches=fetches, max_processors=2))
    sent = {}
    while not w.done("late"):
        w.run(w.now + 0.25)
        sent.update({c.key: (c.created, c.sent) for c in w.records["late"].chunks if c.leftover})
    assert min(sent.values())[0] < 60.0
    assert max(sent.values())[0] >= 140.0
    if fetches:
        assert not meeting(w, 60.0, 140.0)
    else:
        assert not [s for s in sent.values() if s[0] < 140.0 and s[1] > 60.0]


@pytest.mark.parametrize("fetches", [True, False])
def test_what_runs_on_leftovers_does_not_send_when_who_is_booked_is_to(fetches):
    w = world(5)
    w.reserve("far ahead", 400.0, 450.0, 1)
    w.workers = lambda uid, c: Worker(pace=6.0 if uid == "late" else 1.0)
    w.apply(job("late", units=80, tau=0.1, deadline=100.0, fetches=fetches, max_processors=2))
    w.run_until(lambda w: "late" in w.records and any(c.leftover for c in w.records["late"].chunks))
    cost = {"tau": 1.0, "fetches": fetches, "max_processors": 1, "arrival": w.now}
    w.apply(job("sends", units=20, deadline=w.now + 150, **cost))
    w.apply(job("waits", units=20, deadline=w.now + 151, **cost))
    w.run_until(lambda w: w.done("late") and w.done("waits"))  # each step checks the plan
    assert w.met("sends")
    assert w.met("waits")


def test_two_reservations_do_not_have_the_port_at_the_same_time():
    w = keeping()
    w.reserve("other", 39.0, 49.0, 1, io_ratio=0.1)
    w.run_until(lambda w: "other" in w.windows)
    assert w.answers["other"].answer[:2] == ("False", reasons.INFEASIBLE_RESERVATION)
    assert "at the same time as another reservation's" in w.answers["other"].answer.message
    assert w.windows["other"] == 40.0
    w.reserve("third", 40.0, 50.0, 1, io_ratio=0.1)
    w.tick()
    assert w.answers["third"].answer.status == "True"


def test_where_transfers_share_no_port_none_can_be_kept():
    w = world(spec=replace(ONE_PORT, discipline=Discipline()))
    w.reserve("r", 20.0, 60.0, 1, io_ratio=0.5)
    w.reserve("without", 20.0, 60.0, 1)
    w.tick()
    status, reason, text = w.answers["r"].answer
    assert (status, reason) == ("False", reasons.INFEASIBLE_RESERVATION)
    assert text.startswith("spec.transferShare: with network Concurrent")
    assert w.answers["without"].answer.status == "True"


def test_a_pool_does_not_become_concurrent_while_a_reservation_is_to_have_the_port():
    w = keeping()
    w.edit_pool(replace(ONE_PORT, generation=2, discipline=Discipline()))
    w.tick()
    assert w.pool_record.spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert "1 reservation would lose the link" in w.pool_record.spec_applied.message
    w.unreserve("r")
    w.edit_pool(replace(ONE_PORT, generation=3, discipline=Discipline()))
    w.run(1.0)
    assert w.pool_record.spec_applied.status == "True"
