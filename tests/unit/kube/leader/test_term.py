"""A leader's term against the API server's model: what goes on around it while it takes over, and after."""

import asyncio
import copy
from dataclasses import replace

import pytest
from edge.kinds import BY_RESOURCE
from term_world import NODE, Replica, World

from punctual import errors
from punctual.control.response import Response
from punctual.kube.actors.results import config_map_name
from punctual.kube.api.resources import CONFIG_MAPS, JOBS, PODS, POOLS
from punctual.kube.cluster.nodes import project_node
from punctual.kube.gate import admission_gate
from punctual.kube.kinds.jobs import waiting
from punctual.kube.kinds.pools import pools
from punctual.kube.known import oversize
from punctual.kube.leader import term
from punctual.kube.takeover import fencing
from punctual.kube.writes import writer
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import PutStatus, perform
from punctual.notation.duration import format_time
from punctual.runtime.clock import ServerClock
from punctual.scheduling.model.actions import Measured, StoreResult


def told(replica, job):
    """Return the pool that was told of a job."""
    return replica.caches.directory.jobs[job["metadata"]["uid"]].term.pool


@pytest.fixture(params=["another", "returning"])
async def world(request):
    """A world in which another replica leads next, or the one that led before."""
    async with World(returning=request.param == "returning") as made:
        yield made


async def test_an_edited_profile_destroys_no_promise_while_a_new_leader_takes_over(world):
    world.profile("100ms")
    job = world.job("precious", profile="fast")
    await world.promised(job)
    gate = world.server.gates[JOBS.path()] = asyncio.Event()
    new = world.replica()
    new.lead(2)
    await world.until(lambda: world.status(world.pool)["epoch"] == 2)
    new.observe("MODIFIED", world.profile("110ms"))
    new.caches._on_namespace_change("MODIFIED", "ns", {"a": "b"})
    gate.set()
    other = world.job("other")
    new.observe("ADDED", other)
    await world.until(lambda: world.admitted(other))
    assert [s for p, s in world.server.written if p == world.path(job) and not s.get("promise")] == []
    assert world.status(job)["epoch"] == 2
    assert world.status(job)["chunks"]


async def test_a_job_is_planned_with_what_its_profile_has_learned_and_keeps_that_whatever_is_learned_later(world):
    samples = {"pool": "main", "units": [10, 20, 50, 100, 200, 500], "seconds": [3, 4, 7, 12, 22, 52]}
    world.server.put("Profile", "fast", "ns", spec={}, status={"classes": [samples]})
    job = world.job("precious", profile="fast")
    await world.promised(job)
    cost = world.status(job)["cost"]
    assert (cost["perUnit"], cost["startup"]) == (pytest.approx(0.1), pytest.approx(2.0))
    samples["seconds"] = [2 * s for s in samples["seconds"]]
    world.server.put("Profile", "fast", "ns", spec={}, status={"classes": [samples]})
    new = world.replica()
    new.lead(2)
    other = world.job("other", profile="fast")
    new.observe("ADDED", other)
    await world.until(lambda: world.admitted(other) and world.status(job)["epoch"] == 2)
    assert world.status(other)["cost"]["perUnit"] == pytest.approx(0.2)
    assert world.status(job)["cost"] == cost


async def test_what_chunks_took_is_written_into_their_profile_when_the_leader_goes(world):
    profile = world.server.put("Profile", "fast", "ns", spec={"perUnit": "100ms"})
    job, plain = world.job("job", profile="fast"), world.job("plain")
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: world.status(job).get("chunks") and world.status(plain).get("chunks"))
    response = Response(cpu_per_unit=0.1, lag=3.0, delay=0.0, noise=0.05)
    for uid in (job["metadata"]["uid"], plain["metadata"]["uid"], "nobody"):
        leader.term._parts.kinds.carry_out("main", Measured(uid, "n1", 50, 7.25, response=response))
    await leader.term.retire(within=10)
    (learned,) = world.status(profile)["classes"]
    shown = {"cpuPerUnit": 0.1, "lag": 3.0, "delay": 0.0, "noise": 0.05}
    assert learned == {"pool": "main", "nodeClass": "", "units": [50], "seconds": [7.25], "responses": [shown]}


@pytest.mark.parametrize("as_created", [False, True])
async def test_a_promised_job_that_the_list_lacks_is_taken_over_when_a_watch_tells_of_it(world, as_created):
    job = world.job("late")
    await world.promised(job)
    there = world.server.objects.pop(world.path(job))
    before = there["status"]
    new = world.replica()
    new.lead(2)
    other = world.job("other")
    new.observe("ADDED", other)
    await world.until(lambda: world.admitted(other))
    world.server.objects[world.path(job)] = there
    # a watch from where that list ends begins with the job as it was created
    new.observe("ADDED", job if as_created else there)
    await world.until(lambda: world.status(job)["epoch"] == 2)
    job_again = world.job("another")
    new.observe("ADDED", job_again)
    await world.until(lambda: world.admitted(job_again))
    assert world.status(job)["promise"]["deadline"] == before["promise"]["deadline"]
    assert world.status(job)["chunks"] == before["chunks"]
    assert world.server.events.count(("late", "Feasible")) == 1


async def test_the_first_status_of_a_job_that_is_read_late_is_written_over_its_stamp(world):
    new = world.replica()
    new.lead(1)
    first, late = world.job("first"), world.job("late")
    new.observe("ADDED", first)
    await world.until(lambda: world.admitted(first))
    new.observe("ADDED", late)
    await world.until(lambda: world.admitted(late))
    assert (world.path(late) in world.server.stamped, world.server.conflicts) == (True, [])


async def test_the_pool_goes_on_when_a_job_is_deleted_whose_status_waits(world):
    job = world.job("going")
    await world.promised(job)
    world.say(job, progress=None)  # so that the new leader has something to write
    new = world.replica()
    world.server.broken[world.path(job), "put"] = errors.Unreachable("no answer", retry_after=0.01)
    new.lead(2)
    await world.until(lambda: new.term.depth)
    world.remove(job)
    new.observe("DELETED", job)
    other = world.job("other")
    new.observe("ADDED", other)
    await world.until(lambda: world.admitted(other) == "Feasible")


async def test_a_pod_that_is_seen_only_when_its_job_is_gone_is_ended(world):
    job = world.job("going")
    leader = world.replica()
    leader.lead(1)
    (created,) = await world.until(lambda: world.server.pods)
    world.remove(job)
    leader.observe("DELETED", job)
    leader.see_pod(created)
    await world.until(lambda: world.server.deleted == [ended(created)])


def ended(pod):
    """Return what a deletion of this pod is noted as."""
    return pod["metadata"]["name"], pod["metadata"]["uid"]


@pytest.mark.parametrize("gone", [False, True])
async def test_pods_of_a_job_that_went_while_nobody_led_are_ended(world, gone):
    job = world.job("going")
    first = world.replica()
    first.lead(1)
    (created,) = await world.until(lambda: world.server.pods)
    first.see_pod(created)
    await first.end()
    going = world.server.put("DivisibleJob", "going", "ns", spec=job["spec"], finalizers=["somebodys/own"])
    if gone:
        world.remove(job)
    else:
        going = world.server.ask("DELETE", world.path(job))
    first.observe("DELETED" if gone else "MODIFIED", going)
    first.lead(2)
    await world.until(lambda: world.server.deleted == [ended(created)])


async def test_what_was_deleted_while_nobody_looked_is_forgotten_by_a_new_leader(world):
    profile = world.profile("100ms")
    new = world.replica()
    for body in (profile, world.pool):
        world.remove(body)
    new.lead(2)
    job = world.job("late", profile="fast")
    new.observe("ADDED", job)
    await world.until(lambda: world.admitted(job))
    assert world.admitted(job) == "PoolNotFound"
    assert not new.caches.directory.pools
    assert not new.caches.directory.profiles


async def test_a_pool_deleted_during_the_takeover_is_not_taken_from_the_list(world):
    gate = world.server.gates[POOLS.path()] = asyncio.Event()
    new = world.replica()
    new.lead(2)
    await asyncio.sleep(0.05)
    new.observe("DELETED", world.pool)
    gate.set()
    job = world.job("late")
    new.observe("ADDED", job)
    assert await world.until(lambda: world.admitted(job)) == "PoolNotFound"


async def test_a_result_that_the_namespace_has_no_room_for_is_told_and_the_job_goes_on(world):
    template = {"spec": {"containers": [{"name": "sum", "image": "sum:1"}]}}
    job = world.job("sum", reduce={"duration": "1s", "template": template})
    new = world.replica()
    new.lead(1)
    await world.until(lambda: world.status(job).get("chunks"))
    uid = job["metadata"]["uid"]
    path = CONFIG_MAPS.path(namespace="ns", name=config_map_name(uid, 0))
    world.server.broken[path, "apply"] = errors.Forbidden("exceeded quota")
    new.term._parts.actors._running["main"].executor.perform(StoreResult(uid, 0, 50, "x"))
    await world.until(lambda: ("sum", "ResultLost") in world.server.events)
    await world.until(lambda: new.term.depth == 0)


async def test_results_that_somebody_has_deleted_while_nobody_led_are_told_of(world):
    template = {"spec": {"containers": [{"name": "sum", "image": "sum:1"}]}}
    job = world.job("sum", reduce={"duration": "1s", "template": template})
    await world.promised(job)
    done, *rest = world.status(job)["chunks"]
    world.say(job, completed=[{"begin": done["begin"], "end": done["end"]}], chunks=rest)
    new = world.replica()
    new.lead(2)
    await world.until(lambda: ("sum", "ResultLost") in world.server.events)
    assert await world.until(lambda: told(new, job))


async def test_a_job_that_is_moved_while_it_is_measured_is_measured_in_its_new_pool(world):
    other = world.server.put("Pool", "other", spec={**world.pool["spec"], "nodeSelector": {"matchLabels": {"of": "o"}}})
    new = world.replica()
    there = {"name": "n2", "uid": "n2", "labels": {"of": "o"}}
    new.caches._on_node_change("ADDED", "n2", project_node({**NODE, "metadata": there}))
    job = world.job("m")
    del job["spec"]["cost"]
    job = world.server.put("DivisibleJob", "m", "ns", spec=job["spec"])
    new.observe("ADDED", job)
    new.lead(1)
    await world.until(lambda: [c["node"] for c in world.status(job).get("chunks", ())] == ["n1"])
    spec = {**job["spec"], "pool": "other"}
    new.observe("MODIFIED", world.server.put("DivisibleJob", "m", "ns", spec=spec))
    (chunk,) = await world.until(lambda: [c for c in world.status(job).get("chunks", ()) if c["node"] == "n2"])
    assert chunk["attempt"] == 2
    assert len(world.status(job)["chunks"]) == 1
    assert world.status(other)["epoch"] == 1


async def test_a_job_that_is_edited_while_it_is_stamped_is_not_taken_for_gone(world, monkeypatch):
    job = world.job("precious")
    await world.promised(job)
    promise = world.status(job)["promise"]
    edited = [job]

    async def meet_an_edit(verb, path, _):
        if (verb, path) == ("patch", world.path(job)) and edited:
            edited.pop()
            raise errors.Conflict("the object has been modified")

    monkeypatch.setattr(world.server, "meet", meet_an_edit)
    new = world.replica()
    new.lead(2)
    await world.until(lambda: told(new, job))
    assert not edited
    assert world.status(job)["epoch"] == 2
    assert world.status(job)["promise"] == promise


@pytest.mark.parametrize(("seen", "edits"), [(True, 2), (False, 1)])
async def test_a_status_is_written_at_once_although_a_few_edits_come_between(world, monkeypatch, seen, edits):
    pool = world.pool["metadata"]
    body = {**world.pool, "metadata": {"name": "main", "uid": pool["uid"]}, "status": {"epoch": 1}}
    put = PutStatus(world.path(world.pool), body, version=pool["resourceVersion"] if seen else "")
    left = edits + 1

    async def meets_an_edit(verb, *_):
        nonlocal left
        if verb == "put" and left:
            left -= 1
            world.server.put("Pool", "main", spec=world.pool["spec"], labels={"at": str(world.server.store.version)})

    monkeypatch.setattr(world.server, "meet", meets_an_edit)
    client = Replica(world.server).client
    with pytest.raises(errors.Conflict):  # the next try waits
        await perform(client, Key(POOLS, pool["uid"]), put)
    left = edits
    world.server.conflicts.clear()
    await perform(client, Key(POOLS, pool["uid"]), put)
    assert len(world.server.conflicts) == edits
    assert world.status(world.pool) == {"epoch": 1}


async def test_a_pool_whose_status_finds_no_object_is_gone(world):
    new = world.replica()
    new.lead(1)
    await world.until(lambda: world.status(world.pool).get("conditions"))
    world.remove(world.pool)
    for name in ("first", "second"):  # the promise of one changes the pool's status
        new.observe("ADDED", world.job(name))
    await world.until(lambda: not new.caches.directory.pools)
    late = world.job("late")
    new.observe("ADDED", late)
    assert await world.until(lambda: world.admitted(late)) == "PoolNotFound"


async def test_a_pool_whose_status_nobody_can_read_is_led_on_and_told(world):
    job = world.job("running")
    await world.promised(job)
    status = world.status(world.pool)
    conditions = [one | {"lastTransitionTime": "soon"} for one in status["conditions"]]
    world.found(world.pool, status=status | {"conditions": conditions})
    promise = world.status(job)["promise"]
    new = world.replica()
    new.lead(2)
    other = world.job("other")
    new.observe("ADDED", other)
    assert await world.until(lambda: world.admitted(other)) == "Feasible"
    assert world.status(job)["promise"] == promise
    assert ("main", "StatusUnreadable") in await world.until(lambda: world.server.events)
    assert world.status(world.pool)["conditions"][0]["lastTransitionTime"] != "soon"


async def decides(world, new):
    """Have a new leader answer another job and an edit of the pool: it looks at all jobs for that."""
    other = world.job("other")
    new.observe("ADDED", other)
    assert await world.until(lambda: world.admitted(other)) == "Feasible"
    new.observe("MODIFIED", world.server.put("Pool", "main", spec={**world.pool["spec"], "headroom": "10%"}))
    await world.until(lambda: world.status(world.pool)["observedGeneration"] == 2)


async def test_a_job_whose_status_nobody_can_read_is_left_alone_until_it_is_edited(world):
    job = world.job("odd")
    await world.promised(job)
    status = world.status(job)
    world.found(job, status=status | {"promise": status["promise"] | {"finish": "soon"}})
    before = {**world.status(job), "epoch": 2}
    new = world.replica()
    new.lead(2)
    await decides(world, new)
    assert ("odd", "StatusUnreadable") in world.server.events
    assert world.status(job) == before
    new.observe("MODIFIED", world.server.put("DivisibleJob", "odd", "ns", spec={**job["spec"], "deadline": "11m"}))
    await world.until(lambda: world.status(job)["promise"]["finish"] != "soon")


@pytest.mark.parametrize("error", [errors.Invalid, errors.Busy, errors.Forbidden])
async def test_a_job_that_cannot_be_written_keeps_no_leader_from_the_others(world, error):
    large, job = world.job("large"), world.job("running")
    await world.promised(large, job)
    before = world.status(large).copy()
    refusal = error("etcdserver: request is too large", retry_after=0.001)
    for verb in ("patch", "put"):
        world.server.broken[world.path(large), verb] = refusal
    new = world.replica()
    new.lead(2)
    other = world.job("other")
    new.observe("ADDED", other)
    assert await world.until(lambda: world.admitted(other)) == "Feasible"
    assert world.status(job)["epoch"] == 2
    assert ("large", "StatusUnreadable") in world.server.events
    assert world.status(large) == before
    world.server.broken.clear()
    new.observe("MODIFIED", world.server.put("DivisibleJob", "large", "ns", spec={**large["spec"], "deadline": "11m"}))
    await world.until(lambda: world.status(large)["epoch"] == 2)


async def test_a_server_that_takes_no_write_is_waited_for(world, monkeypatch):
    job = world.job("running")
    await world.promised(job)
    tries = []

    async def busy(verb, path, _):
        if verb == "patch":
            tries.append(path)
            if "divisiblejobs" in path or len(tries) > 1:
                raise errors.Busy("overloaded", retry_after=0.001)

    monkeypatch.setattr(world.server, "meet", busy)
    new = world.replica()
    new.lead(2)
    await world.until(lambda: len(tries) > 3 * fencing.TRIES)
    assert world.server.events.count(("running", "StatusUnreadable")) == 0
    monkeypatch.undo()
    await world.until(lambda: world.status(job)["epoch"] == 2)


async def test_an_epoch_that_somebody_wrote_into_a_job_keeps_no_leader_from_the_others(world):
    forged, job = world.job("forged"), world.job("running")
    await world.promised(forged, job)
    world.say(forged, epoch=2**31 - 1)
    new = world.replica()
    assert new.caches.directory.epoch == 1
    new.lead(2)
    other = world.job("other")
    new.observe("ADDED", other)
    assert await world.until(lambda: world.admitted(other)) == "Feasible"
    assert world.status(job)["epoch"] == 2
    assert ("forged", "StatusUnreadable") in world.server.events


async def test_a_term_that_is_ended_twice_leaves_no_number_behind(world, monkeypatch):
    job = world.job("running")
    new = world.replica()
    new.lead(1)
    metrics = new.term._given.metrics
    await world.until(lambda: b"punctual_promises_open{" in metrics.text() and world.admitted(job))
    closing, never = asyncio.Event(), asyncio.Event()

    async def close():
        closing.set()
        await never.wait()

    monkeypatch.setattr(new.term._parts.gate, "close", close)
    new.task.cancel()
    await closing.wait()
    await new.end()
    assert b"punctual_promises_open{" not in metrics.text()


async def test_what_comes_while_a_term_ends_is_left_to_the_next(world):
    job = world.job("running")
    old = world.replica()
    old.lead(1)
    await world.until(lambda: world.admitted(job))
    old.task.cancel()
    came = 0
    while not old.task.done():
        old.observe("ADDED", world.job(f"late-{came}"))
        old.observe("ADDED", world.server.put("Pool", f"late-{came}", spec=world.pool["spec"]))
        came += 1
        await asyncio.sleep(0)
    assert came > 1


async def test_a_leader_that_meets_a_newer_one_ends(world):
    job = world.job("running")
    await world.promised(job)
    world.say(job, epoch=7)
    old = world.replica()
    old.lead(2)
    with pytest.raises(BaseExceptionGroup) as ended:
        await old.task
    assert ended.group_contains(errors.Fenced)
    old.task = None


class DoubtfulClock(ServerClock):
    """Counts how often it was asked whether the time is in doubt. It hears no answers but those of `hear`."""

    looks = 0

    @property
    def doubted(self):
        self.looks += 1
        return super().doubted

    def observe(self, *_, **__):
        pass

    def hear(self, *, ahead):
        """Hear an answer whose Date is so many seconds ahead."""
        at = self._monotonic()
        super().observe(self.now() + ahead, sent=at, received=at)


@pytest.mark.parametrize("seated", [False, True])
async def test_a_leader_decides_nothing_while_the_time_is_in_doubt(world, seated):
    world.server.clock = clock = DoubtfulClock()
    job = world.job("precious", onMiss="Stop")
    await world.promised(job)
    new = world.replica()
    if seated:
        new.lead(2)
        first = world.job("first")
        new.observe("ADDED", first)
        await world.until(lambda: world.admitted(first))
    clock.hear(ahead=0.0)
    clock.hear(ahead=3600.0)
    if not seated:
        new.lead(2)
        await world.until(lambda: world.status(job)["epoch"] == 2)
    other = world.job("other")
    new.observe("ADDED", other)
    looks = clock.looks
    await world.until(lambda: clock.looks > looks + 3)
    assert world.admitted(other) is None
    clock.hear(ahead=0.0)
    await world.until(lambda: world.admitted(other) == "Feasible")
    assert not world.status(job).get("finishTime")
    assert "Overrun" not in str(world.server.written)


@pytest.mark.parametrize(
    ("how", "sent"),
    [
        ("the server selects", ["trial"]),
        ("the CRD is older than the operator", ["refused", "trial", "ended"]),
        ("a replica knows few of the jobs", ["refused", "trial", "ended"]),
    ],
)
async def test_settled_jobs_are_neither_stamped_nor_written_by_a_new_leader(world, monkeypatch, how, sent):
    refused, trial, ended = world.job("refused", deadline="2s"), world.job("trial", dryRun=True), world.job("ended")
    await world.promised(ended)
    world.end(ended)
    await world.settled(refused, trial)
    assert [world.admitted(b) for b in (refused, trial)] == ["InfeasibleStartup", "DryRun"]
    new = world.replica()
    if how == "the CRD is older than the operator":
        kind = BY_RESOURCE[JOBS.version, JOBS.plural]
        monkeypatch.setitem(BY_RESOURCE, (JOBS.version, JOBS.plural), replace(kind, selectable=()))
    elif how == "a replica knows few of the jobs":
        monkeypatch.setattr(fencing, "PAGE", 1)
        for body in (refused, ended):
            new.caches.directory.jobs.forget(body["metadata"]["uid"])
    world.server.sent.clear()
    new.lead(2)
    await decides(world, new)
    assert set(world.server.sent) - {"other"} == set(sent)
    assert [world.writes(b) for b in (refused, trial, ended)] == [0, 0, 0]


async def refused_reservations(world, count):
    """Return reservations that a first leader refused: the pool has four processors."""
    made = [world.reservation(f"window-{n}", processors=99) for n in range(count)]
    await world.settled(*made)
    assert {world.admitted(b) for b in made} == {"InfeasibleReservation"}
    return made


async def test_refused_reservations_are_stamped_after_the_first_decision_one_by_one(world, monkeypatch):
    refused = await refused_reservations(world, 10)
    held = world.reservation("held")
    await world.settled(held)
    new = world.replica()
    at_once, gate = slow_stamps(world, monkeypatch, *refused)
    new.lead(3)
    await decides(world, new)
    assert world.path(held) in world.server.stamped
    gate.set()
    await world.until(lambda: all(world.status(b)["epoch"] == 3 for b in refused))
    assert max(at_once) == 1


async def test_what_an_old_leader_still_books_for_a_refused_reservation_is_taken_over(world, monkeypatch):
    (refused,) = await refused_reservations(world, 1)
    new = world.replica()
    _, gate = slow_stamps(world, monkeypatch, refused)
    new.lead(2)
    await decides(world, new)
    (window,) = world.status(refused)["windows"]
    booked = {"state": "Booked", "reason": "Feasible", "nodes": [{"name": "n1", "processors": 4}]}
    world.say(refused, windows=[window | booked])
    start = new.caches.directory.reservations[refused["metadata"]["uid"]].spec.start
    gate.set()
    await world.until(lambda: new.term.views()["main"].outlook(world.server.clock.now()).next_window == start)


async def test_a_job_that_names_a_refused_reservation_is_answered_by_a_new_leader(world):
    await refused_reservations(world, 1)
    job = world.job("inside", reservation="window-0")
    new = world.replica()
    new.lead(2)
    await world.until(lambda: world.admitted(job) == "ReservationRefused")


def slow_stamps(world, monkeypatch, *bodies):
    """Let stamps of these wait for the event. Returns how many were under way as each began, and the event."""
    paths, gate = {world.path(b) for b in bodies}, asyncio.Event()
    under_way, began = set(), []

    async def slow(verb, path, deadline):
        if verb == "patch" and path in paths:
            large = oversize.MARK in oversize.lightened(world.server.objects[path])
            assert deadline == (30.0 if large else 10.0)
            under_way.add(path)
            began.append(len(under_way))
            await gate.wait()
            await asyncio.sleep(0)
            under_way.remove(path)

    monkeypatch.setattr(world.server, "meet", slow)
    return began, gate


def oversized(world, body):
    """Let a job have an oversized spec."""
    template = {**body["spec"]["template"], "metadata": {"annotations": {"text": "x" * oversize.LARGEST}}}
    return world.found(body, spec={**body["spec"], "template": template})


async def test_oversized_jobs_are_stamped_one_by_one_after_the_first_decision(world, monkeypatch):
    big = [oversized(world, world.job(f"big-{n}")) for n in range(40)]
    at_once, gate = slow_stamps(world, monkeypatch, *big)
    new = world.replica()
    new.lead(1)
    await decides(world, new)
    gate.set()
    await world.until(lambda: all(world.admitted(b) == "InvalidSpec" for b in big))
    assert max(at_once) == 1


async def test_an_oversized_job_with_a_promise_is_read_before_anything_is_decided(world):
    job = world.job("precious")
    await world.promised(job)
    oversized(world, job)
    new = world.replica()
    new.lead(2)
    await world.until(lambda: new.term.leads)
    assert world.path(job) in world.server.stamped


async def test_a_settled_job_that_is_gone_since_is_forgotten(world):
    refused = world.job("refused", deadline="2s")
    await world.settled(refused)
    new = world.replica()
    world.remove(refused)
    new.lead(2)
    await decides(world, new)
    new.observe("DELETED", refused)
    assert refused["metadata"]["uid"] not in new.caches.directory.jobs
    assert all(known.term.aside is None for known in new.caches.directory.jobs.values())


async def test_a_settled_job_that_is_edited_is_stamped_before_it_is_answered(world):
    refused = world.job("refused", deadline="2s")
    await world.settled(refused)
    new = world.replica()
    new.lead(2)
    await world.until(lambda: new.term.leads)
    assert world.status(refused)["epoch"] == 1
    new.observe(
        "MODIFIED", world.server.put("DivisibleJob", "refused", "ns", spec={**refused["spec"], "deadline": "9m"})
    )
    assert await world.until(lambda: world.status(refused).get("promise"))
    assert world.server.stamped.count(world.path(refused)) == 1
    assert world.status(refused)["epoch"] == 2


async def test_a_refused_job_that_was_edited_while_no_leader_looked_is_asked_again(world):
    refused = world.job("refused", deadline="2s")
    await world.settled(refused)
    world.server.put("DivisibleJob", "refused", "ns", spec={**refused["spec"], "deadline": "9m"})
    world.replica().lead(2)
    assert await world.until(lambda: world.status(refused).get("promise"))


@pytest.mark.parametrize("when", ["before the list", "during the list", "after the list"])
async def test_what_an_old_leader_still_promises_a_refused_job_is_taken_over(world, when):
    promised, refused = world.job("promised"), world.job("refused", deadline="2s")
    await world.promised(promised)
    await world.settled(refused)
    late = {**world.status(promised), "chunks": None, "finishTime": None}  # as an old leader would promise it
    gate = world.server.gates[JOBS.path()] = asyncio.Event()
    new = world.replica()

    def promise_late():
        world.say(refused, **late)
        new.observe("MODIFIED", copy.deepcopy(world.server.objects[world.path(refused)]))

    if when == "before the list":
        promise_late()
    new.lead(2)
    await world.until(lambda: world.status(world.pool)["epoch"] == 2)
    if when == "during the list":  # its page is read, and has not arrived yet
        promise_late()
    gate.set()
    if when == "after the list":
        await world.until(lambda: new.term.leads)
        promise_late()
    await world.until(lambda: world.status(refused)["epoch"] == 2 and world.status(refused).get("chunks"))
    assert world.status(refused)["promise"]["deadline"] == late["promise"]["deadline"]
    assert world.status(promised)["promise"]


async def test_a_job_refused_for_its_namespace_is_asked_again_when_that_changes_under_a_new_leader(world):
    spec = {**world.pool["spec"], "namespaceSelector": {"matchLabels": {"team": "a"}}}
    world.pool = world.server.put("Pool", "main", spec=spec)
    job = world.job("job")
    await world.settled(job)
    assert world.admitted(job) == "NotAllowed"
    new = world.replica()
    new.lead(2)
    await world.until(lambda: new.term.leads)
    assert world.writes(job) == 0
    new.caches._on_namespace_change("MODIFIED", "ns", {"team": "a"})
    assert await world.until(lambda: world.status(job).get("promise"))


@pytest.mark.parametrize("there", [True, False])
async def test_a_refused_job_whose_pool_came_or_went_while_no_leader_looked_is_told_so(world, there):
    job = world.job("job", pool="other", deadline="2s")
    spec = {**world.pool["spec"], "nodeSelector": {"matchLabels": {"of": "other"}}}
    if there:
        other = world.server.put("Pool", "other", spec=spec)
    await world.settled(job)
    assert world.admitted(job) == ("InfeasibleCapacity" if there else "PoolNotFound")
    if there:
        world.remove(other)
    else:
        world.server.put("Pool", "other", spec=spec)
    world.replica().lead(2)
    await world.until(lambda: world.admitted(job) == ("PoolNotFound" if there else "InfeasibleCapacity"))
    assert world.status(job)["epoch"] == 2


@pytest.mark.parametrize("takeover", [False, True])
async def test_a_job_waits_for_a_pool_that_does_not_exist_until_its_deadline(world, monkeypatch, takeover):
    monkeypatch.setattr(term, "HOUSEKEEPING", 0.01)
    job = world.job("job", pool="other", deadline="2s")
    patient = world.job("patient", pool="other", deadline="2h")
    old = world.replica()
    old.lead(1)
    await world.until(lambda: world.status(job).get("state") and world.status(patient).get("state"))
    assert (world.status(job)["state"], world.admitted(job)) == ("Waiting", "PoolNotFound")
    leader = old
    if takeover:
        await old.end()
        world.replicas.remove(old)
        leader = world.replica()
        leader.lead(2)
    await world.until(lambda: world.status(job)["state"] == "Refused")
    assert world.admitted(job) == "PoolNotFound"
    assert "no Pool other by the deadline" in world.status(job)["conditions"][0]["message"]
    assert world.status(job)["finishTime"]
    assert ("job", "PoolNotFound") in world.server.events
    assert world.status(patient)["state"] == "Waiting"
    leader.observe("ADDED", world.server.put("Pool", "other", spec=world.pool["spec"]))
    assert await world.until(
        lambda: world.status(patient).get("promise") or world.status(patient)["state"] == "Refused"
    )
    await world.until(lambda: world.admitted(job) == "InfeasibleCapacity")  # none of its nodes is left to that pool


async def test_an_ended_job_goes_at_its_time_under_a_new_leader(world):
    ended = world.job("ended", ttlSecondsAfterFinished=0)
    await world.promised(ended)
    world.end(ended)
    world.replica().lead(2)
    await world.until(lambda: ("ended", ended["metadata"]["uid"]) in world.server.deleted)


@pytest.mark.parametrize("refusal", [{"deadline": "2s"}, {"profile": "none"}], ids=["no time", "no profile"])
async def test_a_refused_job_goes_at_its_time_under_a_new_leader(world, refusal):
    refused = world.job("refused", ttlSecondsAfterFinished=3600, **refusal)
    await world.settled(refused)
    status = world.status(refused)
    assert status["state"] == "Refused"
    new = world.replica()
    new.lead(2)
    await world.until(lambda: world.status(refused)["epoch"] == 2)
    assert world.status(refused)["finishTime"] == status["finishTime"]
    assert not world.server.deleted
    await new.end()
    world.say(refused, finishTime=format_time(int(world.server.clock.now()) - 3601))
    world.replica().lead(3)
    await world.until(lambda: ("refused", refused["metadata"]["uid"]) in world.server.deleted)


async def test_a_refused_job_goes_at_its_time_although_a_webhook_that_its_pods_would_meet_fails(world):
    refused = world.job("refused", deadline="2s", ttlSecondsAfterFinished=3600)
    await world.settled(refused)
    world.say(refused, finishTime=format_time(int(world.server.clock.now()) - 3601))
    broken = errors.Busy("failed calling webhook no.example: 500", retry_after=0.01)
    world.server.broken[PODS.path(namespace="ns"), "try"] = broken
    world.replica().lead(2)
    await world.until(lambda: ("refused", refused["metadata"]["uid"]) in world.server.deleted)


async def test_an_edit_of_a_refused_job_takes_its_finish_back(world):
    refused = world.job("refused", deadline="2s")
    await world.settled(refused)
    assert world.status(refused)["finishTime"]
    new = world.replica()
    new.lead(2)
    new.observe(
        "MODIFIED", world.server.put("DivisibleJob", "refused", "ns", spec=refused["spec"] | {"deadline": "9m"})
    )
    await world.until(lambda: world.status(refused).get("promise"))
    assert "finishTime" not in world.status(refused)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_pod_that_a_settled_job_still_has_is_ended(world, when):
    job = world.job("ended")
    await world.promised(job)
    world.end(job)
    body = world.server.pods[-1]
    new = world.replica()
    if when == "before":
        new.see_pod(body)
    new.lead(2)
    if when == "after":
        await world.until(lambda: new.term.leads)
        new.see_pod(body)
    await world.until(lambda: ended(body) in world.server.deleted)


@pytest.fixture
def quick(monkeypatch):
    """Look after what is broken often enough for a test."""
    monkeypatch.setattr(pools, "RETRY", 0.01)
    monkeypatch.setattr(term, "HOUSEKEEPING", 0.01)
    monkeypatch.setattr(writer, "LAST_RETRY", 0.01)


def with_two_pools(world):
    """Add a pool ``other`` without nodes, and return it."""
    return world.server.put("Pool", "other", spec={**world.pool["spec"], "nodeSelector": {"matchLabels": {"of": "o"}}})


@pytest.mark.parametrize("error", [errors.Invalid, errors.Busy, errors.Forbidden])
async def test_a_pool_that_cannot_be_stamped_is_not_led_until_it_can_and_others_are(world, quick, error):
    other = with_two_pools(world)
    job = world.job("running")
    await world.promised(job)
    promise = world.status(job)["promise"]
    for verb in ("patch", "put"):
        world.server.broken[world.path(world.pool), verb] = error("refused by a webhook", retry_after=0.001)
    new = world.replica()
    new.lead(2)
    asked, waits = world.job("asked", pool="other", deadline="2s"), world.job("waits")
    for body in (asked, waits):
        new.observe("ADDED", body)
    assert await world.until(lambda: world.admitted(asked)) == "InfeasibleCapacity"
    await world.until(lambda: ("main", "PoolStopped") in world.server.events)
    assert new.term.stopped == 1
    assert max(new.term.silent, new.term.waiting) < 5.0
    assert world.admitted(waits) is None
    assert world.status(job)["promise"] == promise
    assert world.status(other)["epoch"] == 2
    assert ("other", "PoolStopped") not in world.server.events
    world.server.broken.clear()
    assert await world.until(lambda: world.admitted(waits)) == "Feasible"
    assert new.term.stopped == 0
    assert world.status(world.pool)["epoch"] == 2
    assert world.status(job)["promise"]["deadline"] == promise["deadline"]


async def test_a_pool_that_cannot_be_stamped_and_goes_leaves_its_jobs_without_a_pool(world, quick):
    with_two_pools(world)
    world.server.broken[world.path(world.pool), "patch"] = errors.Invalid("refused by a webhook")
    new = world.replica()
    new.lead(2)
    job = world.job("job")
    new.observe("ADDED", job)
    await world.until(lambda: new.term.stopped)
    world.remove(world.pool)
    new.observe("DELETED", world.pool)
    assert await world.until(lambda: world.admitted(job)) == "PoolNotFound"
    assert new.term.stopped == 0


@pytest.mark.parametrize("error", [errors.Invalid, errors.Busy])
async def test_a_pool_whose_status_cannot_be_written_decides_nothing_until_it_can_and_others_do(world, quick, error):
    other = with_two_pools(world)
    new = world.replica()
    new.lead(1)
    await world.until(lambda: world.status(world.pool).get("conditions") and world.status(other).get("conditions"))
    world.server.broken[world.path(world.pool), "put"] = error("refused by a webhook", retry_after=0.001)
    new.observe("MODIFIED", world.server.put("Pool", "main", spec={**world.pool["spec"], "headroom": "10%"}))
    asked = 0
    while new.term.stopped == 0:  # what others write tells that it is this one alone
        asked += 1
        new.observe("ADDED", one := world.job(f"asked-{asked}", pool="other", deadline="2s"))
        await world.until(lambda one=one: new.term.stopped or world.admitted(one))
    waits, answered = world.job("waits"), world.job("answered", pool="other", deadline="2s")
    for body in (waits, answered):
        new.observe("ADDED", body)
    assert await world.until(lambda: world.admitted(answered)) == "InfeasibleCapacity"
    await world.until(lambda: ("main", "PoolStopped") in world.server.events)
    assert world.admitted(waits) is None
    assert max(new.term.silent, new.term.waiting) < 5.0
    world.server.broken.clear()
    assert await world.until(lambda: world.admitted(waits)) == "Feasible"
    await world.until(lambda: world.status(world.pool)["applied"]["headroom"] == "10%")  # the writes have no order
    assert new.term.stopped == 0


async def test_an_epoch_that_somebody_wrote_into_a_pool_keeps_no_leader_from_the_others(world):
    other = with_two_pools(world)
    job = world.job("running")
    await world.promised(job)
    world.say(world.pool, epoch=2**31 - 1)
    new = world.replica()
    new.lead(2)
    await world.until(lambda: world.status(other).get("epoch") == 2 and world.status(job)["epoch"] == 2)
    assert new.term.stopped == 1


async def test_a_takeover_that_hangs_shows(world):
    gate = world.server.gates[JOBS.path()] = asyncio.Event()
    new = world.replica()
    now = [0.0]
    world.server.clock.monotonic = lambda: now[0]
    new.lead(2)
    await world.until(lambda: world.status(world.pool).get("epoch") == 2)
    now[0] = 50.0
    new.term._parts.takeover._fence.note_progress()
    now[0] = 70.0
    assert (new.term.taking_over, new.term.stalled) == (70.0, 20.0)
    gate.set()
    await world.until(lambda: new.term.leads)
    assert (new.term.taking_over, new.term.stalled) == (0.0, 0.0)


async def test_a_job_that_a_webhook_keeps_from_its_answer_is_told_why_and_answered_when_it_may_be(world, monkeypatch):
    monkeypatch.setattr(admission_gate, "OVERDUE", 0.0)
    monkeypatch.setattr(term, "HOUSEKEEPING", 0.01)
    path = PODS.path(namespace="ns")
    world.server.broken[path, "try"] = errors.Busy("failed calling webhook no.example: 500", retry_after=0.01)
    job = world.job("waits")
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: "no.example: 500" in str(world.status(job).get("conditions")))
    (admitted,) = (c for c in world.status(job)["conditions"] if c["type"] == "Admitted")
    assert (admitted["status"], admitted["reason"]) == ("Unknown", "AnswerDelayed")
    await world.until(lambda: ("waits", "AnswerDelayed") in world.server.events)
    await leader.end()
    world.replace(leader)
    new = world.replica()
    new.lead(2)  # to whom the job is as undecided
    await world.until(lambda: world.status(job)["epoch"] == 2)
    assert world.admitted(job) == "AnswerDelayed"
    del world.server.broken[path, "try"]
    await world.until(lambda: world.admitted(job) == "Feasible")
    told = [name for name, reason in world.server.events if reason == "AnswerDelayed"]
    assert told == ["waits"], "once"


async def test_a_job_that_was_refused_keeps_that_answer_while_another_is_delayed(world, monkeypatch):
    monkeypatch.setattr(admission_gate, "OVERDUE", 0.0)
    monkeypatch.setattr(term, "HOUSEKEEPING", 0.01)
    monkeypatch.setattr("punctual.kube.gate.trials.KEPT", -1.0)
    path = PODS.path(namespace="ns")
    world.server.broken[path, "try"] = errors.Forbidden("exceeded quota")
    job = world.job("refused")
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: world.admitted(job) == "PodRefused")
    world.server.broken[path, "try"] = errors.Busy("failed calling webhook no.example: 500", retry_after=0.01)
    leader.caches._on_namespace_change("MODIFIED", "ns", {"a": "b"})
    other = world.job("other")
    leader.observe("ADDED", other)
    await world.until(lambda: world.admitted(other) == "AnswerDelayed")
    assert world.admitted(job) == "PodRefused"


@pytest.fixture
def overdue(monkeypatch):
    """Jobs are overdue as soon as their Pool is told."""
    monkeypatch.setattr(waiting, "OVERDUE", 0.0)
    monkeypatch.setattr(term, "HOUSEKEEPING", 0.01)


async def held(world, *names):
    """Return a leader with a Pool that takes no step, and jobs that this Pool was told of."""
    leader = world.replica()
    leader.lead(1)
    await world.until(lambda: world.status(world.pool).get("epoch") == 1 and leader.term.leads)
    leader.term._parts.actors.halt("main")
    made = []
    for name in names:
        made.append(body := world.job(name))
        leader.observe("ADDED", body)
        await world.until(lambda body=body: told(leader, body))
    return leader, made


async def test_jobs_that_wait_for_their_pools_decision_are_told_so_once_and_answered(world, overdue):
    leader, (first, second) = await held(world, "first", "second")
    await world.until(lambda: {world.admitted(first), world.admitted(second)} == {"AnswerDelayed"})
    told = [c for b in (first, second) for c in world.status(b)["conditions"] if c["type"] == "Admitted"]
    text = "its Pool has not decided yet; jobs without an answer that came before it: "
    assert [(c["status"], c["message"]) for c in told] == [("Unknown", f"{text}0"), ("Unknown", f"{text}1")]
    await world.until(lambda: world.server.events.count(("second", "AnswerDelayed")) == 1)
    leader.term._parts.kinds.tend()
    assert leader.term.depth == 0
    leader.term._parts.actors.go_on("main")
    await world.until(lambda: world.admitted(first) == world.admitted(second) == "Feasible")
    leader.term._parts.kinds.tend()
    assert world.server.events.count(("second", "AnswerDelayed")) == 1


async def test_of_many_jobs_that_wait_for_their_pool_a_few_are_told_at_a_time_the_last_ones_first(world, monkeypatch):
    monkeypatch.setattr(waiting, "REPORTS", 5)
    leader, made = await held(world, *(f"job-{n}" for n in range(20)))
    monkeypatch.setattr(waiting, "OVERDUE", 0.0)
    await world.until(lambda: leader.term.depth == 0)
    leader.term._parts.kinds.tend()
    assert leader.term.depth == 5
    await world.until(lambda: leader.term.depth == 0)
    assert [world.admitted(b) for b in made] == [None] * 15 + ["AnswerDelayed"] * 5


async def test_a_job_whose_pool_goes_before_it_decides_is_told_of_the_pool(world, overdue):
    leader, (job,) = await held(world, "job")
    world.remove(world.pool)
    leader.observe("DELETED", world.pool)
    await world.until(lambda: world.admitted(job) == "PoolNotFound")
    leader.term._parts.kinds.tend()
    assert leader.term.depth == 0
