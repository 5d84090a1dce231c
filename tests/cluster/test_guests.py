"""Guests on real kubelets: they fill nodes, are held down, hand back what is left for the nodes' own work, and end."""

from live import eventually, pool_status

BURNS = """
import time
from punctual import worker

for unit in worker.units():
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
"""
"""Each unit takes 0.2 s of CPU, however long that takes."""


def guest(space, name, units, **spec):
    """Return a guest job."""
    body = space.manifest(name, units=units, deadline=None, program=BURNS, **spec)
    body["spec"] |= {"class": "Guest"}
    del body["spec"]["deadline"]
    return body


def priority(cluster, pod):
    """Return what the kernel holds the pod's cgroup at: its weight, or "idle"."""
    uid = pod["metadata"]["uid"]
    find = f"find /sys/fs/cgroup -maxdepth 8 -type d \\( -name '*{uid}*' -o -name '*{uid.replace('-', '_')}*' \\)"
    script = (
        f"for d in $({find}); do "
        "if [ -e $d/cpu.idle ] && [ $(cat $d/cpu.idle) = 1 ]; then echo idle; "
        "elif [ -e $d/cpu.shares ]; then cat $d/cpu.shares; elif [ -e $d/cpu.weight ]; then cat $d/cpu.weight; fi; done"
    )
    return set(cluster.on_node(pod["spec"]["nodeName"], script).split())


async def test_a_guest_job_fills_both_nodes_at_the_lowest_priority_and_ends(cluster, client, space, pool):
    await space.apply(guest(space, "filler", 150))
    assert (await space.answer("filler"))["reason"] == "Guest"
    nodes = {n["name"] for n in (await pool_status(client))["nodes"]}

    def everywhere():
        running = space.pods_of("filler", "Guest", phase="Running", gone=False)
        return running if {pod["spec"]["nodeName"] for pod in running} == nodes else None

    running = await eventually(everywhere)
    for pod in running:
        assert pod["status"]["qosClass"] == "BestEffort"
    await eventually(lambda: any(priority(cluster, pod) in ({"idle"}, {"2"}, {"1"}) for pod in everywhere() or ()))
    status = await space.end("filler")
    assert status["state"] == "Completed"
    assert status["units"]["done"] == 150
    assert "deadlineTime" not in status["applied"]
    assert {"Guest", "Completed"} <= (await space.events("filler")).keys()
    await eventually(lambda: not space.pods_of("filler", "Guest", gone=False))
