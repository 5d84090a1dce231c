"""A node that the cluster gives up, whose pods go on and end, and that comes back."""

import json

from live import container, covers, eventually, give_back, note

UNKNOWN = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting."}


async def test_a_node_lost_and_back_with_pods_that_ended_meanwhile_is_accounted_once(cluster, client, space):
    """Its kubelet is stopped, its containers are not. The node controller would notice after 50 s: the test says so."""
    leader = (await eventually(cluster.in_order))["spec"]["nodeName"]
    lost = next(node for node in cluster.nodes if node != leader)
    spec = {"deadline": "4m", "cost": {"perUnit": "500ms", "startup": "3s"}, "pause": 0.4, "reduce": "5s"}
    await space.apply(space.manifest("moved", units=120, chunkRetries=0, processors={"min": 2, "max": 2}, **spec))
    assert (await space.answer("moved"))["reason"] == "Feasible"
    pods = await space.running("moved", 2)
    there = {p["metadata"]["name"]: p for p in pods if p["spec"]["nodeName"] == lost}
    assert there
    await eventually(lambda: space.status("moved")["units"]["done"] > 2)
    cluster.on_node(lost, "systemctl stop kubelet")
    try:
        patch = json.dumps({"status": {"conditions": [UNKNOWN]}})
        cluster.kubectl("patch", "node", lost, "--subresource=status", "--type=strategic", "-p", patch)
        await eventually(lambda: not owned(space, there))
        assert all(name not in space.gone for name in there)
        await eventually(lambda: not working(cluster, there.values()))
    finally:
        cluster.on_node(lost, "systemctl start kubelet")
        await give_back(cluster, client, lost)
    await eventually(lambda: there.keys() <= space.gone)
    assert {space.pods[name]["status"]["phase"] for name in there} == {"Succeeded"}

    status = await space.end("moved")
    assert space.is_so("moved", "Completed", "Completed")
    assert status["finishTime"] <= status["promise"]["deadline"]
    again = {note(p, "begin"): p for p in space.pods_of("moved") if note(p, "attempt") == 2}
    assert {note(p, "begin") for p in there.values()} <= again.keys()
    assert lost not in {p["spec"]["nodeName"] for p in again.values()}
    found = space.ranges("moved")
    assert covers([r for r, _ in found], 120)
    assert sum(int(said) for _, said in found) == 120
    assert lost in (await space.events("moved"))["NodeLost"]


def owned(space, names):
    """Return which of these pods the job still counts on."""
    return {c["pod"] for c in space.status("moved").get("chunks", ())} & set(names)


def working(cluster, pods):
    """Return the processes of these pods' first containers."""
    finds = (
        f"find /sys/fs/cgroup -path '*{container(p)}*' -name cgroup.procs -exec cat {{}} + 2>/dev/null || true;"
        for p in pods
    )
    (node,) = {p["spec"]["nodeName"] for p in pods}
    return cluster.on_node(node, " ".join(finds)).split()
