"""Reservations through the whole operator, against a real API server."""

import contextlib
import runpy
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from punctual.kube.api.resources import POOLS, RESERVATIONS
from punctual.notation.duration import format_time, parse_time

OPERATOR = runpy.run_path(str(Path(__file__).with_name("test_operator.py")))
condition, GROUP = OPERATOR["condition"], OPERATOR["GROUP"]
replica = OPERATOR["replica"]


class World(OPERATOR["World"]):
    """With reservations, told in seconds from now."""

    async def until(self, holds, *, within=60.0):
        return await super().until(holds, within=within)

    async def reserve(self, name, start, end, **spec):
        now = self.client.clock.now()
        body = {
            "apiVersion": GROUP,
            "kind": "Reservation",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"pool": self.pool, "start": format_time(now + start), "end": format_time(now + end), **spec},
        }
        self._cleanup.append(self.at(name))
        return await self.client.create(RESERVATIONS.path(namespace=self.namespace), body)

    def at(self, name):
        return RESERVATIONS.path(namespace=self.namespace, name=name)

    async def reserved(self, name, reason, kind="Admitted"):
        """Wait for a condition of a reservation, return its status."""

        async def holds():
            status = (await self.client.get(self.at(name))).get("status") or {}
            found = condition(status, kind)
            return status if found and found["reason"] == reason else None

        return await self.until(holds)

    async def settled(self, job):
        """Return the answer to a job whose reservation is there."""
        found = condition(await self.status(job), "Admitted")
        return found if found["reason"] != "ReservationNotFound" else None

    async def past(self, made):
        """Wait until a reservation is over or refused; return all the statuses with a state that it had."""
        found = []
        path = RESERVATIONS.path(namespace=self.namespace)
        version = made["metadata"]["resourceVersion"]
        watch = self.client.watch(path, resource_version=version, seconds=300, silence=310)
        async with contextlib.aclosing(watch) as events:
            async for event in events:
                body = event["object"]
                status = body.get("status") or {}
                if body["metadata"].get("uid") == made["metadata"]["uid"] and "state" in status:
                    found.append(status)
                    if status["state"] in {"Completed", "Refused"}:
                        break
        return found


@pytest.fixture
async def world(client, namespace):
    made = World(client, namespace)
    await made.add_node()
    await made.add_pool()
    yield made
    await made.clean()


async def test_a_reservation_is_booked_becomes_active_and_is_over(world, replica):
    await replica()
    for ahead, long in ((7, 5), (25, 20), (90, 60)):  # a machine too slow to see one of it all may see another
        made = await world.reserve(f"r-{ahead}", ahead, ahead + long, processors=3)
        # a job needs more than the one that is left, for longer than the time before: it is around the window
        job = await world.add_job(units=4000, deadline="5m", processors={"min": 1, "max": 4})
        assert (await world.answered(job, "Feasible"))["promise"]["processors"] > 1
        past = await world.past(made)
        states = [status["state"] for status in past]
        if {"Booked", "Active"} <= set(states):
            break
        await world.client.delete(world.path(job))
    assert [state for state, _ in groupby(states)] == ["Booked", "Active", "Completed"]
    (window,) = past[0]["windows"]
    assert condition(past[0], "Admitted")["reason"] == "Feasible"
    assert past[0]["processors"] == 3
    assert window["nodes"] == [{"name": world.node, "processors": 3}]
    assert past[0]["start"] == window["start"]
    assert condition(past[states.index("Active")], "Active")["reason"] == "Active"
    assert condition(past[-1], "Completed")["reason"] == "Completed"
    assert parse_time(past[-1]["finishTime"]) == parse_time(window["end"])


async def test_what_cannot_be_is_told_with_its_field_and_the_nearest_window_which_is_booked_then(world, replica):
    await replica()
    bad = {
        "past": ((-60, 60), {"processors": 1}, "spec.start: "),
        "many": ((600, 630), {"processors": 5}, "the pool has 4"),
        "zone": (
            (600, 630),
            {"processors": 1, "recurrence": {"every": "1d", "timeZone": "Mars/A"}},
            "recurrence.timeZone",
        ),
        "nodes": ((600, 630), {"nodes": {"matchLabels": {"no": "node"}}}, "spec.nodes: "),
        "pool": ((600, 630), {"processors": 1, "pool": "none"}, "spec.pool: there is no Pool none"),
    }
    for name, (when, spec, _) in bad.items():
        await world.reserve(name, *when, **spec)
    reasons = {"many": "InfeasibleReservation", "nodes": "InfeasibleReservation", "pool": "PoolNotFound"}
    for name, (_, _, text) in bad.items():
        status = await world.reserved(name, reasons.get(name, "InvalidSpec"))
        assert text in condition(status, "Admitted")["message"]
        assert status["state"] == "Refused"
    job = await world.add_job(reservation="many")
    status = await world.answered(job, "ReservationRefused")
    assert "the pool has 4" in condition(status, "Admitted")["message"]

    await world.reserve("first", 600, 660, processors=3)
    await world.reserved("first", "Feasible")
    await world.reserve("second", 630, 690, processors=2)
    await world.reserved("second", "InfeasibleReservation")

    async def offered():
        status = (await world.client.get(world.at("second")))["status"]
        return status if status["windows"][0].get("offer") else None

    status = await world.until(offered)
    offer = parse_time(status["windows"][0]["offer"])
    assert status["state"] == "Refused"
    message = condition(status, "Admitted")["message"]
    assert "at some time in it, 3 of 4 are reserved" in message
    assert f"the nearest window is {format_time(offer)}" in message
    now = world.client.clock.now()
    await world.reserve("third", offer - now, offer - now + 60, processors=2)
    await world.reserved("third", "Feasible")


async def test_a_job_runs_inside_the_reservation_that_it_names_also_under_a_new_leader(world, replica):
    first = await replica()
    for ahead in (10, 40, 120):  # the answer is to come before the window does
        name = f"r-{ahead}"
        job = await world.add_job(units=50, reservation=name)
        await world.answered(job, "ReservationNotFound")
        made = await world.reserve(name, ahead, ahead + 900, processors=2)
        begin = parse_time(made["spec"]["start"])
        found = await world.until(lambda job=job: world.settled(job))
        if found["reason"] == "Feasible" and parse_time(found["lastTransitionTime"]) < begin:
            break
        await world.client.delete(world.path(job))
        await world.client.delete(world.at(name))
    status = await world.answered(job, "Feasible")
    assert parse_time(status["promise"]["start"]) == pytest.approx(begin, abs=0.01)
    await first.kill()
    await world.let_go()
    await replica()
    pods = await world.given(job, 1)
    (pod,) = pods.values()
    assert parse_time(pod["metadata"]["creationTimestamp"]) >= begin - 1
    after = (await world.reserved(name, "Active", kind="Active"))["windows"]
    assert [(w["state"], w["nodes"]) for w in after] == [("Active", [{"name": world.node, "processors": 2}])]
    await world.work(job)
    await world.answered(job, "Completed", kind="Completed")


async def test_a_window_is_free_when_its_reservation_is_deleted_and_a_node_is_reserved_as_a_whole_each_week(
    world, replica
):
    await replica()
    await world.reserve("r", 120, 3000, processors=4)
    await world.reserved("r", "Feasible")

    async def guarded():
        return (await world.client.get(POOLS.path(name=world.pool)))["metadata"].get("finalizers")

    await world.until(guarded)
    inside = await world.add_job(units=2000, deadline="20m", reservation="r")
    await world.answered(inside, "Feasible")
    await world.client.delete(world.path(inside))
    first = await world.add_job(units=8000, deadline="8m")
    await world.answered(first, "InfeasibleCapacity")
    await world.client.delete(world.at("r"))

    async def unguarded():
        return not await guarded()

    await world.until(unguarded)  # the operator knows, by a watch that is not in step with that of jobs
    second = await world.add_job(units=8000, deadline="8m")
    await world.answered(second, "Feasible")

    await world.add_node(cpu="2", name=f"{world.node}-b", **{"kubernetes.io/hostname": "b"})
    selector = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}

    async def has_it():
        return (await world.client.get(POOLS.path(name=world.pool)))["status"]["processors"] == 6

    await world.until(has_it)
    await world.reserve(
        "r", 600, 1200, nodes={"matchLabels": {"kubernetes.io/hostname": "b"}}, recurrence={"every": "7d"}
    )
    status = await world.reserved("r", "Feasible")

    async def all_booked():
        windows = (await world.client.get(world.at("r")))["status"]["windows"]
        return windows if len(windows) == 4 else None

    windows = await world.until(all_booked)
    assert all(w["nodes"] == [{"name": f"{world.node}-b", "processors": 2}] for w in windows)
    starts = [parse_time(w["start"]) for w in windows]
    assert {round(b - a) for a, b in pairwise(starts)} == {7 * 86400}
    await world.reserve("all", 600, 1200, nodes=selector)
    status = await world.reserved("all", "InfeasibleReservation")
    assert "of 6 are reserved" in condition(status, "Admitted")["message"]


async def test_a_pool_says_whose_reservations_it_takes_and_how_far_ahead_and_an_edit_leaves_what_is_booked(
    world, replica
):
    day, pool = 86400, POOLS.path(name=world.pool)
    first = await replica()
    await world.reserve("soon", 600, 660, processors=2)
    await world.reserve("late", 27 * day, 27 * day + 60, processors=2)
    await world.reserve("long", 600, 29 * day, processors=1)
    await world.reserve("later", 28 * day, 28 * day + 60, processors=2)
    booked = {name: await world.reserved(name, "Feasible") for name in ("soon", "late")}
    status = await world.reserved("long", "TooFarAhead")
    assert "28 days ahead (its spec.reservations.horizon): make it shorter" in condition(status, "Admitted")["message"]
    status = await world.reserved("later", "TooFarAhead")
    assert status["state"] == "Refused"
    assert "choose one that ends by" in condition(status, "Admitted")["message"]

    await world.client.patch_merge(pool, {"spec": {"reservations": {"horizon": "30d"}}})
    await world.reserved("later", "Feasible")
    await world.client.patch_merge(pool, {"spec": {"reservations": {"horizon": "1d"}}})
    await world.reserve("tomorrow", day, day + 60, processors=1)
    await world.reserved("tomorrow", "TooFarAhead")
    nobody = {"namespaceSelector": {"matchLabels": {"reserves": "yes"}}}
    await world.client.patch_merge(pool, {"spec": {"reservations": nobody}})
    await world.reserve("other", 6000, 6060, processors=1)
    status = await world.reserved("other", "NotAllowed")
    assert "spec.reservations.namespaceSelector" in condition(status, "Admitted")["message"]

    await first.kill()
    await world.let_go()
    await replica()
    job = await world.add_job(units=50, deadline="20m", reservation="soon")
    await world.answered(job, "Feasible")
    for name, status in booked.items():
        assert (await world.reserved(name, "Feasible"))["windows"] == status["windows"]
    await world.client.patch_merge(
        f"/api/v1/namespaces/{world.namespace}", {"metadata": {"labels": {"reserves": "yes"}}}
    )
    await world.reserved("other", "Feasible")


@pytest.mark.timeout(180, func_only=True)
async def test_a_window_keeps_the_link_for_its_input_also_under_a_new_leader_and_an_edit_of_the_pool(world, replica):
    first = await replica()
    half = {"processors": 1, "transferShare": "50%"}
    await world.reserve("early", 600, 1200, **half)
    status = await world.reserved("early", "InfeasibleReservation")
    assert "spec.transferShare: with network Concurrent" in condition(status, "Admitted")["message"]

    async def edited(network, reason):
        made = await world.client.patch_merge(POOLS.path(name=world.pool), {"spec": {"network": network}})

        async def holds():
            found = condition((await world.client.get(POOLS.path(name=world.pool)))["status"], "SpecApplied")
            seen = found and found["observedGeneration"] == made["metadata"]["generation"]
            return found if seen and found["reason"] == reason else None

        return await world.until(holds)

    await edited("OnePort", "Applied")
    made = await world.reserve("r", 600, 1200, **half)
    status = await world.reserved("r", "Feasible")
    assert "1 processor for 10m, the link for the first 5m" in condition(status, "Admitted")["message"]
    job = await world.add_job(units=1, deadline="1h", cost={"perUnit": "1s", "transferSetup": "650s"})
    begins = parse_time((await world.answered(job, "Feasible"))["promise"]["start"])
    assert begins >= parse_time(made["spec"]["start"]) + 300
    await first.kill()
    await world.let_go()
    await replica()
    await world.reserve("second", 700, 1000, **half)
    status = await world.reserved("second", "InfeasibleReservation")
    assert "at the same time as another reservation's" in condition(status, "Admitted")["message"]
    assert "1 reservation would lose the link" in (await edited("Concurrent", "EditRefused"))["message"]
