"""Stories of guest jobs on a modelled cluster: where chunks start, when they go, and what that costs."""

from collections import Counter
from itertools import pairwise

import pytest
from guest_world import Manners, Pod, World, guest

from punctual import reasons
from punctual.guests.nodes import FLAPS
from punctual.scheduling.model.job import JobRecord

POLICIES = ("LingerLonger", "LingerForever", "ImmediateEviction", "PauseAndMigrate")


def running(world: World, uid: str = "g1") -> dict[str, str]:
    """Return the nodes of a job's running pods, by name."""
    return {pod.name: pod.chunk.node for pod in world.running() if pod.job == uid}


def steps(world: World, cause: str = "Policy") -> list[str]:
    return [told.decision.step for _, told in world.decided if told.cause == cause]


def test_a_job_fills_all_nodes_and_each_unit_is_done_once():
    world = World(nodes=4)
    world.apply(guest(units=400))
    took = world.until_done()
    world.check()
    assert world.records["g1"].completed.total == 400
    assert world.used["g1"] == 400.0
    assert took < 400 / 4 * 1.5


def test_chunks_start_on_idle_nodes_first_then_on_the_least_used():
    world = World(nodes=3)
    for name, use in (("n0", 0.6), ("n1", 0.0), ("n2", 0.3)):
        world.hosts[name].use = use
    world.run(1)
    for most, nodes in ((1, {"n1"}), (2, {"n1", "n2"}), (None, {"n0", "n1", "n2"})):
        world.apply(guest(f"m{most}", units=10_000, most=most))
        world.run(4)
        assert set(running(world, f"m{most}").values()) == nodes
        world.delete(f"m{most}")
        world.run(2)


def test_a_policy_that_does_not_linger_leaves_busy_nodes_alone():
    world = World(nodes=2)
    world.hosts["n0"].use = 0.3
    world.run(1)
    world.apply(guest(policy="ImmediateEviction"))
    world.run(5)
    assert set(running(world).values()) == {"n1"}


def one_busy(policy: str, *, use: float = 0.9, manners: Manners | None = None, **more) -> World:
    """One chunk with long work runs on n0; n1 is idle; then the hosts of n0 come."""
    world = World(nodes=2)
    world.manners = manners or Manners()
    world.hosts["n1"].use = 0.02  # n0 is the better one
    world.run(3)
    world.apply(guest(units=10_000, most=1, policy=policy, **{"restart": "Resume", **more}))
    world.run(200)  # chunks have become long
    while list(running(world).values()) != ["n0"] or next(world.running()).done > 5:
        world.tick()
    world.decided.clear()
    world.hosts["n0"].use = use
    return world


@pytest.mark.parametrize(
    ("policy", "until", "after"),
    [
        ("LingerLonger", 2, 8),  # start 2 s: (1 − l)/(h − l) · 2 s
        ("ImmediateEviction", 0, 6),
        ("PauseAndMigrate", 600, 606),
    ],
)
def test_a_chunk_leaves_a_node_that_becomes_busy_when_its_policy_says(policy, until, after):
    world = one_busy(policy)
    moved = []
    for second in range(after + 1):
        world.tick()
        if "n1" in running(world).values():
            moved.append(second)
    assert moved
    assert until <= moved[0] <= after
    assert steps(world)[-1] == "Move"
    world.check()
    assert world.lost == 0.0


def test_a_rest_starts_elsewhere_within_five_seconds_of_the_decision():
    world = one_busy("LingerLonger")
    while "Move" not in steps(world):
        world.tick()
    decided = world.now
    while "n1" not in running(world).values():
        world.tick()
    assert world.now - decided <= 5.0
    _, told = world.decided[-1]
    assert (told.node, told.goal, told.acted) == ("n0", "n1", True)
    assert told.host_use == pytest.approx(0.9)
    assert told.goal_use == pytest.approx(0.02)
    assert told.move.pause == pytest.approx(2.0)
    assert told.decision.linger == pytest.approx(0.98 / 0.88 * 2.0)
    assert told.decision.age >= told.decision.linger


@pytest.mark.parametrize(("policy", "more"), [("LingerForever", {}), ("LingerLonger", {"preview": True})])
def test_a_chunk_stays(policy, more):
    world = one_busy(policy, **more)
    world.run(100)
    assert set(running(world).values()) == {"n0"}
    assert world.offers == 0


@pytest.mark.parametrize("policy", ["LingerLonger", "ImmediateEviction", "PauseAndMigrate"])
def test_in_preview_moves_are_told_once_and_not_made(policy):
    world = one_busy(policy, preview=True)
    world.run(700 if policy == "PauseAndMigrate" else 50)
    told = [told for _, told in world.decided if told.decision.step == "Move"]
    assert len(told) == 1
    assert not told[0].acted
    assert world.offers == 0
    assert not any(pod.paused for pod in world.running())


def test_a_chunk_that_is_nearly_done_stays():
    world = one_busy("LingerLonger", use=0.5)
    pod = next(world.running())
    pod.done = float(pod.end - pod.chunk.begin - 2)  # the move costs 2 s, and with half the speed the rest takes 4 s
    world.run(3)
    assert world.offers == 0


def test_a_paused_chunk_goes_on_when_its_node_is_idle_again():
    world = one_busy("PauseAndMigrate")
    world.run(2)
    pod = next(world.running())
    before = pod.cpu
    world.run(20)
    assert pod.paused
    assert pod.cpu == before
    world.hosts["n0"].use = 0.0
    world.run(70)
    assert not pod.paused
    assert pod.cpu > before


def test_without_an_idle_node_an_evicted_rest_waits():
    world = World(nodes=1)
    world.apply(guest(units=100, policy="ImmediateEviction"))
    world.run(10)
    world.hosts["n0"].use = 0.5
    world.run(20)
    assert not list(world.running())
    assert steps(world) == ["Queue"]
    world.hosts["n0"].use = 0.0
    world.until_done()
    world.check()
    assert world.used["g1"] == 100.0  # no unit was begun twice


@pytest.mark.parametrize(("use", "leaves"), [(0.2, False), (1.0, True)])
def test_a_deaf_chunk_moves_only_if_that_pays_with_what_it_loses(use, leaves):
    world = one_busy("LingerLonger", use=use, manners=Manners(deaf=True), restart="Redo", most_lost=1000.0)
    world.run(40)
    assert ("n1" in running(world).values()) is leaves
    world.check()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_that_flaps_each_second_causes_few_decisions(policy):
    world = World(nodes=2)
    world.hosts["n0"].raw = True
    world.apply(guest(units=100_000, policy=policy, restart="Resume"))
    world.run(30)
    world.decided.clear()
    times = []
    for second in range(600):
        world.hosts["n0"].use = 0.9 if second % 2 else 0.0
        before = world.offers
        world.tick()
        times += [second] * (world.offers - before)
    minutes = Counter(second // 60 for second in times)
    assert max(minutes.values(), default=0) <= FLAPS + 1
    told = Counter(int(at - world.now + 600) // 60 for at, one in world.decided if one.node == "n0")
    assert max(told.values(), default=0) <= 3 * (FLAPS + 1)
    world.check()


def test_memory_is_freed_by_the_chunks_with_the_least_to_lose():
    world = World(nodes=1, cores=4.0)
    world.apply(guest("old", units=1, cpu_per_unit=1000.0))
    world.run(100)
    world.apply(guest("new", units=1, cpu_per_unit=1000.0))
    world.run(5)
    world.excess["n0"] = 50
    world.run(2)
    world.excess.clear()
    world.run(20)
    assert world.kills == 1
    assert len(running(world, "old")) == 1
    assert world.lost < 20.0


def test_a_chunk_that_must_free_memory_hands_back_its_rest_and_keeps_its_work():
    world = World(nodes=2)
    world.apply(guest(units=200))
    world.run(8)
    world.excess["n0"] = 50
    world.run(2)
    world.excess.clear()
    world.until_done()
    assert world.lost == 0.0
    assert world.used["g1"] == 200.0
    assert steps(world, "NodeFreed") == ["Queue"]


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
def test_what_a_lost_pod_costs_stays_under_the_bound_even_if_units_cost_more_than_declared(restart):
    world = World(nodes=2)
    world.manners = Manners(factor=8.0)
    world.apply(guest(units=300, restart=restart, most_lost=30.0))
    for _ in range(400):
        world.tick()
        for pod in world.running():
            saved = pod.whole * 8.0 if restart == "Resume" else 0.0
            assert pod.cpu - saved <= 30.0 + 2 * 8.0 + 3.0  # and the units that it had begun
    world.check()


def sizes(world: World) -> list[int]:
    return [end - begin for begin, end, _ in world.stored["g1"]]


def test_chunks_grow_while_nothing_is_lost_and_shrink_after_a_loss():
    world = World(nodes=1)
    world.apply(guest(units=2000, most_lost=100.0))
    world.run(600)
    grown = sizes(world)
    assert all(before <= after for before, after in pairwise(grown)), grown
    assert (grown[0], max(grown)) == (10, 100)
    for _ in range(4):
        while not any(pod.cpu > 1.0 for pod in world.running()):
            world.tick()
        world.kill(next(world.running()))
        world.run(3)
    del world.stored["g1"][:]
    while "g1" not in world.stored or not world.stored["g1"]:
        world.tick()
    assert sizes(world)[0] < 100


def test_guests_share_by_weight():
    world = World(nodes=4)
    for uid, weight in (("a", 1.0), ("b", 2.0), ("c", 5.0)):
        world.apply(guest(uid, units=100_000, weight=weight))
    world.run(3000)
    total = sum(world.used.values())
    for uid, part in (("a", 1 / 8), ("b", 2 / 8), ("c", 5 / 8)):
        assert world.used[uid] / total == pytest.approx(part, abs=0.03)


def test_a_new_job_neither_waits_for_others_nor_makes_them_wait_for_what_they_had():
    world = World(nodes=2)
    world.apply(guest("old", units=100_000))
    world.run(2000)
    before = dict(world.used)
    world.apply(guest("new", units=100_000))
    world.run(1500)
    assert world.used["new"] == pytest.approx(world.used["old"] - before["old"], rel=0.15)


def test_a_suspended_job_keeps_its_work_and_goes_on_later():
    world = World(nodes=2)
    world.apply(guest(units=100))
    world.run(8)
    world.edit("g1", suspend=True)
    world.run(5)
    assert not list(world.running())
    done = world.records["g1"].completed.total
    assert done > 0
    world.edit("g1", suspend=False)
    world.until_done()
    assert world.used["g1"] == 100.0


def test_chunks_leave_a_node_that_is_cordoned_and_nothing_starts_there():
    world = World(nodes=2)
    world.apply(guest(units=200))
    world.run(8)
    world.cordon("n0")
    world.run(5)
    assert "n0" not in running(world).values()
    world.until_done()
    assert world.used["g1"] == 200.0
    assert world.kills == 0


def test_nothing_starts_on_a_node_with_a_silent_agent():
    world = World(nodes=2)
    world.hosts["n0"].silent = True
    world.apply(guest(units=200))
    world.until_done()
    assert world.visited == {"n1"}


def test_a_job_fails_when_a_chunk_fails_too_often():
    world = World(nodes=2)
    world.manners = Manners(fails_after=2.0, reason="Evicted", log="writing\nno room")
    world.apply(guest(units=100, chunk_retries=2))
    world.until_done(limit=300.0)
    record = world.records["g1"]
    assert record.failed_condition is not None
    assert record.failed_condition.message.endswith(": exit code 1 (Evicted); its log ends: writing | no room")
    assert record.chunks == ()
    world.run(2)
    assert not list(world.running())


@pytest.mark.parametrize(("retention", "left"), [("Failed", 0), ("All", 1)])
def test_a_helper_that_never_ends_keeps_no_guest_from_being_done(retention, left):
    world = World(nodes=1)
    world.manners = Manners(helper=True)
    world.apply(guest(units=10, retention=retention))
    world.until_done(limit=60.0)
    world.run(3)
    assert world.records["g1"].completed.total == 10
    assert not list(world.running())
    assert (len(world.pods) > 0) == (left > 0)
    assert world.told.count(("Normal", reasons.HELPER_ENDED)) == 1


def test_a_guest_that_fails_beside_a_helper_has_failed_at_once():
    world = World(nodes=1)
    world.manners = Manners(helper=True, fails_after=2.0)
    world.apply(guest(units=10, chunk_retries=0))
    world.until_done(limit=60.0)
    world.run(3)
    assert world.records["g1"].failed_condition is not None
    assert not list(world.running())
    assert len(world.pods) == 1, "it stays to be read"


def test_a_hung_chunk_is_lost_on_an_idle_node_and_left_alone_on_a_busy_one():
    for use, lost in ((0.0, True), (0.95, False)):
        world = World(nodes=1)
        world.manners = Manners(hangs=True)
        world.hosts["n0"].use = use
        world.run(1)
        world.apply(guest(policy="LingerForever"))
        world.run(90)
        assert (world.serial > 1) is lost


def test_a_refused_pod_delays_its_job_alone():
    world = World(nodes=1)
    world.refuses = True
    world.apply(guest(units=10))
    world.run(35)
    assert world.records["g1"].tried.largest(0, 10) <= 5
    world.refuses = False
    world.until_done()
    world.check()


def test_a_new_leader_repeats_an_offer_that_was_recorded_and_not_sent():
    world = one_busy("ImmediateEviction")
    world.tick()
    pod = next(world.running())
    pod.offered, pod.answered = None, False  # the annotation was not written
    world.crash()
    world.run(15)  # a unit takes 10 s beside these hosts
    assert "n0" not in running(world).values()
    assert world.offers == 2
    assert world.kills == 0
    world.check()


def test_a_status_names_no_chunk_of_a_pod_that_a_crash_has_prevented():
    world = World(nodes=2)
    world.apply(guest(units=100))
    world.tick()
    world.interrupted(0.0)
    world.pods.clear()
    world.crash()
    assert world.records["g1"] != JobRecord()
    world.until_done()
    world.check()


def test_a_job_that_is_deleted_while_a_leader_takes_over_gets_no_pods():
    world = World(2)
    world.apply(guest("g1", units=100))
    world.run(3)
    world.crash()
    world.delete("g1")  # before the new leader's first step
    world.run(10)
    assert not list(world.running())
    assert not world.pods


def test_a_job_is_told_that_it_is_a_guest_and_that_it_is_done():
    world = World()
    world.apply(guest(units=20, generation=3))
    world.tick()
    record = world.records["g1"]
    assert (record.admitted.status, record.admitted.reason, record.observed_generation) == ("True", "Guest", 3)
    world.until_done()
    assert world.told == [("Normal", "Guest"), ("Normal", "Completed")]
    assert world.records["g1"].completed_condition.message.startswith("20 units done in ")


def test_what_is_refused_starts_nothing_until_it_is_not_refused_any_more():
    world = World()
    world.run(1)
    world.apply(guest(units=20, refusal=("PodRefused", "no quota")))
    world.run(5)
    record = world.records["g1"]
    assert (record.admitted.status, record.admitted.reason) == ("False", "PodRefused")
    assert record.refused == record.over == 1002.0
    assert not world.pods
    world.edit("g1", refusal=None)
    world.until_done()
    assert world.records["g1"].refused is None
    assert world.told == [("Warning", "PodRefused"), ("Normal", "Guest"), ("Normal", "Completed")]


def test_a_job_that_is_refused_while_it_runs_hands_back_what_is_left():
    world = World()
    world.apply(guest(units=1000))
    world.run(10)
    assert running(world)
    world.edit("g1", refusal=("NotAllowed", "its namespace lost the label"))
    world.run(10)
    assert not running(world)
    world.check()
    assert world.lost == 0.0


def test_a_new_leader_says_nothing_twice():
    world = World()
    world.apply(guest(units=1000))
    world.run(10)
    world.crash()
    world.run(10)
    assert world.told == [("Normal", "Guest")]


def test_agents_know_each_pod_that_runs_whichever_leader_there_is_and_forget_those_that_are_gone():
    world = World(nodes=3)
    world.apply(guest(units=100, weight=2.0))
    for second in range(30):
        world.tick()
        assert {pod.uid for pod in world.running()} <= world.lent.keys()
        if second == 10:
            world.crash()
            world.tick()  # it stamps
    assert {(one.weight, one.paused) for one in world.lent.values()} == {(2.0, False)}
    world.until_done()
    world.run(2)
    assert not world.lent


@pytest.mark.parametrize(
    ("retention", "kept"), [("Failed", {"Failed"}), ("All", {"Failed", "Succeeded"}), ("None", set())]
)
def test_which_pods_stay(retention, kept):
    world = World(nodes=1)
    world.manners = Manners(fails_after=1.5)
    world.apply(guest(units=20, retention=retention, chunk_retries=5))
    while not any(reason == "ChunkFailed" for _, reason in world.told):
        world.tick()
    world.manners = Manners()
    for pod in world.running():
        pod.manners = world.manners
    world.until_done()
    world.run(2)
    assert {pod.phase for pod in world.pods.values()} == kept
    world.crash()
    world.run(2)
    assert {pod.phase for pod in world.pods.values()} == kept
    world.check()


def test_a_new_leader_ends_what_a_job_that_has_ended_still_has():
    world = World(nodes=1)
    world.apply(guest(units=4))
    while not world.pods:
        world.tick()
    (left,) = world.pods.values()
    world.until_done()
    assert left.phase == "Succeeded"
    world.run(2)
    assert not world.pods
    world.pods[left.name] = left  # as if the leader had gone before it was ended
    world.crash()
    world.run(2)
    assert not world.pods


@pytest.mark.parametrize("refusal", [None, ("PodRefused", "no quota")])
def test_a_job_goes_when_its_time_to_live_is_over(refusal):
    world = World()
    world.apply(guest(units=4, ttl=60.0, refusal=refusal))
    while not ((record := world.records.get("g1")) and record.over):
        world.tick()
    over = world.now
    while "g1" in world.guests:
        world.tick()
    assert world.now - over == pytest.approx(60.0, abs=1.0)


def test_a_node_that_is_smaller_than_a_chunk_takes_one():
    world = World(nodes=1, cores=0.5)
    world.apply(guest(units=20))
    world.run(5)
    assert len(running(world)) == 1


def test_the_units_of_a_short_job_are_spread_over_nodes_that_are_smaller_than_a_chunk():
    world = World(nodes=2, cores=0.75)
    world.apply(guest(units=6))
    world.run(4)
    assert sorted(running(world).values()) == ["n0", "n1"]


def test_no_chunk_starts_where_an_agent_cannot_hold_it_down():
    world = World(nodes=2)
    world.hosts["n0"].powerless = True
    world.apply(guest(units=1000))
    world.run(10)
    assert set(running(world).values()) == {"n1"}


def test_a_chunk_moves_to_a_node_that_is_less_busy():
    world = one_busy("LingerLonger")
    world.hosts["n1"].use = 0.3
    while "Move" not in steps(world):
        world.tick()
    _, told = world.decided[-1]
    assert (told.node, told.goal) == ("n0", "n1")
    assert told.goal_use < 0.9
    world.run(10)
    assert set(running(world).values()) == {"n1"}
    assert world.lost == 0.0


@pytest.mark.parametrize("policy", ["ImmediateEviction", "PauseAndMigrate"])
def test_other_policies_move_to_idle_nodes_alone(policy):
    world = one_busy(policy)
    world.hosts["n1"].use = 0.3
    world.run(700)
    assert "Move" not in steps(world)


def test_hosts_that_alternate_between_two_nodes_move_a_chunk_a_few_times_a_minute_at_most():
    world = one_busy("LingerLonger")
    moves = []
    for second in range(600):
        near, far = ("n0", "n1") if second // 10 % 2 == 0 else ("n1", "n0")
        world.hosts[near].use, world.hosts[far].use = 0.9, 0.2
        world.tick()
        moves.append(steps(world).count("Move"))
    most = max(later - before for before, later in zip(moves, moves[60:], strict=False))
    assert most <= 4
    world.check()


def crowded(*jobs, use: float, cores: float = 4.0, manners: Manners | None = None, **more) -> World:
    """Guests fill n0 while n1 takes none; then the hosts of n0 come, and n1 is free."""
    world = World(nodes=2, cores=cores)
    world.manners = manners or Manners()
    world.nodes["n1"] = world.nodes["n1"]._replace(schedulable=False)
    world.set_nodes()
    world.run(1)
    each = int(cores) // (len(jobs) or 1)
    for uid in jobs or ("g1",):
        world.apply(guest(uid, units=100_000, most=each, **{"restart": "Resume", **more}))
    world.run(300)  # chunks have become long
    while len(list(world.running())) < cores or min(left(world, pod) for pod in world.running()) < 100.0:
        world.tick()
    world.decided.clear()
    world.hosts["n0"].use = use
    world.cordon("n1", schedulable=True)
    return world


def left(world: World, pod: Pod) -> float:
    """Return the CPU seconds that a pod has before it."""
    return (pod.end - pod.chunk.begin - pod.done) * world.guests[pod.job].cpu_per_unit


def goers(world: World) -> set[str]:
    """Return the pods that were told to move."""
    return {told.pod for _, told in world.decided if told.decision.step == "Move"}


@pytest.mark.parametrize("jobs", [("g1",), ("a", "b"), ("a", "b", "c", "d")])
@pytest.mark.parametrize(("use", "go"), [(0.25, 1), (0.5, 2), (0.95, 4)])
def test_as_many_chunks_move_as_gain_by_it(jobs, use, go):
    world = crowded(*jobs, use=use)
    world.run(60)
    assert len(goers(world)) == go
    assert Counter(pod.chunk.node for pod in world.running()) == Counter({"n0": 4 - go, "n1": go})
    assert world.lost == 0.0
    world.check()


def test_no_other_chunk_moves_while_one_ends_its_unit():
    world = crowded(use=0.25, cpu_per_unit=20.0)
    world.run(60)
    assert len(goers(world)) == 1


def test_in_preview_as_many_moves_are_told_as_would_be_made():
    world = crowded(use=0.25, preview=True)
    world.run(60)
    assert len(goers(world)) == 1
    assert world.offers == 0


def test_another_chunk_moves_if_the_first_one_does_not_answer():
    world = crowded("a", "b", use=0.25, restart="Redo", most_lost=1000.0)
    first = None
    while first is None:
        world.tick()
        first = next((pod for pod in world.running() if pod.offered is not None), None)
    first.manners = Manners(deaf=True)
    first.offered, first.answered, first.end = None, False, first.chunk.end  # the annotation was not written
    world.run(20)
    assert len(goers(world)) == 2
    assert "n1" in running(world, "b").values()
