"""Work that takes longer than declared: its tail goes to idle processors, by a handshake; what is late pays itself."""

import asyncio

from live import POOL, condition, covers, eventually, note, said


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
