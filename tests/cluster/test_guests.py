"""Guests on real kubelets: they fill nodes, are held down, and end."""

from live import LOWEST, eventually, guest, pool_status

BURNS = """
import time
from punctual import worker

for unit in worker.units():
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
"""
"""Each unit takes 0.2 s of CPU, however long that takes."""


async def test_a_guest_job_fills_both_nodes_at_the_lowest_priority_and_ends(cluster, client, space, pool):
    await space.apply(guest(space, "filler", 150, program=BURNS))
    assert (await space.answer("filler"))["reason"] == "Guest"
    nodes = {n["name"] for n in (await pool_status(client))["nodes"]}

    def everywhere():
        running = space.pods_of("filler", "Guest", phase="Running", gone=False)
        return running if {pod["spec"]["nodeName"] for pod in running} == nodes else None

    running = await eventually(everywhere)
    for pod in running:
        assert pod["status"]["qosClass"] == "BestEffort"
    await eventually(lambda: any(LOWEST & set(cluster.priority(pod).values()) for pod in everywhere() or ()))
    status = await space.end("filler")
    assert status["state"] == "Completed"
    assert status["units"]["done"] == 150
    assert "deadlineTime" not in status["applied"]
    assert {"Guest", "Completed"} <= (await space.events("filler")).keys()
    await eventually(lambda: not space.pods_of("filler", "Guest", gone=False))
