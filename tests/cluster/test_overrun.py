"""Work that takes longer than declared: its tail goes to idle processors, by a handshake; what is late pays itself."""

import asyncio
import time

import pytest
from lib import prometheus
from live import POOL, SYSTEM, condition, covers, eventually, note, said
from monitoring_lib.alerts import ALERTS
from scraped import Prometheus

from punctual.notation.duration import parse_time

LATE = next(alert.expr for alert in ALERTS if alert.name == "PunctualPromiseLate")


async def test_a_chunk_that_overruns_gives_its_tail_to_idle_processors(space):
    # declared so cheap that one processor does; units take ten times as long, and alone it would be late
    await space.apply(
        space.manifest(
            "cheap",
            units=100,
            deadline="66s",
            cost={"perUnit": "50ms", "startup": "2s"},
            pause=0.5,
            reduce="30s",  # it takes some, the rest is there for slow starts
            processors={"min": 1, "max": 6},
        )
    )
    assert (await space.answer("cheap"))["reason"] == "Feasible"
    assert space.status("cheap")["promise"]["processors"] == 1
    first, *_ = await space.running("cheap")
    name = first["metadata"]["name"]
    assert (note(first, "begin"), note(first, "end")) == (0, 100)

    await eventually(lambda: "punctual.dev/offered-end" in space.pods[name]["metadata"]["annotations"])
    offered = note(space.pods[name], "offered-end")
    assert 0 < offered < 100
    status = await space.end("cheap")
    assert space.is_so("cheap", "Completed", "Completed")
    assert status["completed"] == [{"begin": 0, "end": 100}]

    # the worker may have begun a unit beyond what it was offered, and stops where it said
    given, cut = next(
        (written, chunk)
        for written, status in space.written("cheap")
        for chunk in status.get("chunks", ())
        if chunk.get("origin") == 100
    )
    assert offered <= cut["end"] < 100
    found = space.ranges("cheap")
    assert covers([r for r, _ in found], 100)
    assert found[0] == ((0, cut["end"]), str(cut["end"]))
    assert sum(int(said) for _, said in found) == 100

    # others do the tail, and none of them was made before the cut was written
    others = [p for p in space.pods_of("cheap") if p["metadata"]["name"] != name]
    assert len(others) > 1
    assert min(note(p, "begin") for p in others) == cut["end"]
    assert min(space.born[p["metadata"]["name"]] for p in others) > given


async def test_who_overruns_pays_itself_goes_on_late_or_stops_and_is_counted(cluster, space):
    leader = (await eventually(cluster.in_order))["metadata"]["name"]
    lie = {"units": 64, "deadline": "24s", "cost": {"perUnit": "50ms", "startup": "2s"}, "pause": 0.5}
    truth = {"units": 60, "deadline": "2m", "cost": {"perUnit": "500ms", "startup": "3s"}, "pause": 0.4}
    await space.apply(
        space.manifest("goes-on", processors={"max": 1}, **lie),
        space.manifest("stops", processors={"max": 1}, onMiss="Stop", **lie),
        space.manifest("honest", **truth),
    )
    for name in ("goes-on", "stops", "honest"):
        assert (await space.answer(name))["reason"] == "Feasible"

    await eventually(lambda: space.is_so("stops", "Failed", "Overrun"))
    await eventually(lambda: not space.pods_of("stops", gone=False))

    goes_on, stops, honest = await asyncio.gather(*(space.end(name) for name in ("goes-on", "stops", "honest")))
    told = [condition(status, "OnTrack") for _, status in space.written("goes-on")]
    assert ("False", "Overrun") in {(c["status"], c["reason"]) for c in told if c}
    assert space.is_so("goes-on", "Completed", "DeadlineMissed")
    assert goes_on["completed"] == [{"begin": 0, "end": 64}]
    assert goes_on["finishTime"] > goes_on["promise"]["deadline"]
    assert stops["units"]["done"] < 64
    assert space.is_so("honest", "Completed", "Completed")
    assert honest["finishTime"] < honest["promise"]["deadline"]
    await eventually(lambda: said(space, "goes-on", {"Overrun", "DeadlineMissed"}))

    def counted(name, **more):
        labels = {"namespace": space.namespace, "pool": POOL, **more}
        series = ",".join(f'{label}="{value}"' for label, value in labels.items())
        return cluster.metrics(leader, 8080).get(f"punctual_{name}_total{{{series}}}", 0)

    await eventually(lambda: counted("deadline_misses", reason="Overrun") == 2)
    assert counted("promises_kept") == 1


@pytest.mark.timeout(600, func_only=True)
async def test_units_that_cost_nine_times_as_declared_are_told_from_apply_to_the_alert(cluster, space, tmp_path):
    await eventually(cluster.in_order)
    pods = {p["metadata"]["name"]: 8080 for p in cluster.pods("operator")}
    await asyncio.to_thread(prometheus.program, "prometheus")  # fetched before the clock runs
    with Prometheus(tmp_path, cluster.kubeconfig, SYSTEM, pods) as scraped:

        def newest(expr):
            """Return the highest value that an expression has now; None: it has none, so an alert is silent."""
            now = time.time()
            return max((values[-1][1] for _, values in scraped.query(expr, now, now)), default=None)

        await eventually(lambda: newest("count(sum_over_time(up[1m]) >= 2)") == len(pods))
        await eventually(lambda: newest(LATE) is None)  # what other tests have left
        lie = {"cost": {"perUnit": "100ms", "startup": "3s"}, "pause": 0.9, "processors": {"max": 1}}
        await space.apply(space.manifest("nine", units=260, deadline="40s", **lie))
        assert (await space.answer("nine"))["reason"] == "Feasible"
        promise = space.status("nine")["promise"]

        await eventually(lambda: space.status("nine")["state"] == "Late", within=60)
        row = (await space.kubectl("get", "dj", "nine", "-o", "wide", "--no-headers")).split()
        assert row[1] == "Late"
        assert row[5].startswith("-"), row
        assert row[-1] in {"Late", "LoopSaturated", "Overrun"}
        await eventually(lambda: (newest(LATE) or 0) > 0, within=60)
        assert "finishTime" not in space.status("nine"), "the alert came before its end"
        await eventually(lambda: space.condition("nine", "OnTrack")["reason"] == "Overrun", within=60)
        await space.edit("nine", processors={"max": 12})  # or it would take four minutes
        await space.end("nine")
        await eventually(lambda: newest(LATE) is None, within=60)

    assert space.status("nine")["state"] == "Missed"
    before_its_end = [
        status for _, status in space.written("nine") if "promise" in status and "finishTime" not in status
    ]
    late = [status for status in before_its_end if status["state"] == "Late"]
    first = condition(late[0], "OnTrack")
    assert parse_time(first["lastTransitionTime"]) < parse_time(promise["finish"]), "it was told before its planned end"
    for status in before_its_end:
        assert (condition(status, "OnTrack")["status"] == "False") == (status["state"] == "Late"), status
        assert status["slack"], status
        assert status["state"] == "Late" or parse_time(status["eta"]) <= parse_time(status["promise"]["deadline"]), (
            status
        )
    assert before_its_end[-len(late) :] == late, "it was not taken for one on track again"
