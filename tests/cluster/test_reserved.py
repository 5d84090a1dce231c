"""A window on real kubelets: processors empty from its start to its end, but for the job that names the reservation."""

import math

from live import LABEL, eventually, lend, ready

from punctual.kube.api.resources import RESERVATIONS
from punctual.notation.duration import format_time, parse_time

LENGTH = 18


async def test_a_window_is_empty_from_start_to_end_but_for_the_job_that_names_it(cluster, client, space):
    async with lend(cluster, client, cluster.nodes[-1]) as pool:
        await ready(client, pool, cluster.nodes[-1])
        start = math.ceil(client.clock.now()) + 26
        end = start + LENGTH
        spec = {
            "pool": pool,
            "start": format_time(start),
            "end": format_time(end),
            "nodes": {"matchLabels": {LABEL: pool}},
        }
        meta = {"name": "window", "namespace": space.namespace}
        body = {"apiVersion": "punctual.dev/v1alpha1", "kind": "Reservation", "metadata": meta, "spec": spec}
        await client.create(RESERVATIONS.path(namespace=space.namespace), body)

        async def said(kind):
            found = (await client.get(RESERVATIONS.path(namespace=space.namespace, name="window"))).get("status") or {}
            return (
                found if any(c["type"] == kind and c["status"] == "True" for c in found.get("conditions", ())) else None
            )

        booked = await eventually(lambda: said("Admitted"))
        count = booked["processors"]
        assert booked["windows"][0]["nodes"] == [{"name": cluster.nodes[-1], "processors": count}]

        cost = {"perUnit": "200ms", "startup": "1s"}
        one, most = {"min": 1, "max": 1}, count - 1
        those = {"processors": {"min": most, "max": most}}
        await space.apply(
            # more than the time before the window holds: it goes on behind
            space.manifest("around", units=130 * most, deadline="4m", cost=cost, pause=0.2, pool=pool, **those),
            # units take five times as long as declared: it would run on
            space.manifest("late", units=26, deadline="4m", cost=cost, pause=1.0, pool=pool, processors=one),
            space.manifest("inside", units=15, deadline="4m", cost=cost, pause=0.2, pool=pool, reservation="window"),
        )
        for name in ("around", "late", "inside"):
            assert (await space.answer(name))["reason"] == "Feasible"
        await eventually(lambda: said("Active"))
        assert client.clock.now() < end
        await space.end("inside")
        assert parse_time(space.status("inside")["finishTime"]) < end
        await eventually(lambda: said("Completed"))
        for name in ("around", "late"):
            await space.end(name)
        assert space.is_so("around", "Completed", "Completed")

    ran = {name: [*filter(None, map(_ran, space.pods_of(name)))] for name in ("around", "late", "inside")}
    for name in ("around", "late"):
        assert [(a, b) for a, b in ran[name] if a < end and b > start] == [], name
        assert any(b <= start for _, b in ran[name]), f"{name} had the time before"
        assert any(a >= end for a, _ in ran[name]), f"{name} went on behind"
    assert all(start - 1 <= a and b <= end for a, b in ran["inside"])


def _ran(pod):
    """Return from when to when a pod's container ran, in whole seconds; None: it never did."""
    state = next((c["state"] for c in pod["status"].get("containerStatuses", ())), {})
    if "running" in state:  # the last that was seen: by then its kubelet had ended it
        return parse_time(state["running"]["startedAt"]), parse_time(pod["metadata"]["deletionTimestamp"])
    ended = state.get("terminated", {})
    return (parse_time(ended["startedAt"]), parse_time(ended["finishedAt"])) if ended.get("startedAt") else None
