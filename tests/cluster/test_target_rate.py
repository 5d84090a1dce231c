"""Two busy pods of a deployment on real kubelets: held at a rate, held at another one, and let go."""

import json

from busy import LIMIT, deployment, target_rate
from live import POOL, condition, container, eventually

from punctual.kube.api.resources import PODS, TARGET_RATES


async def test_busy_pods_are_held_at_a_rate_at_another_one_and_let_go(cluster, client, space):
    pool = await client.get(f"/apis/punctual.dev/v1alpha1/pools/{POOL}")
    nodes = pool["spec"]["nodeSelector"]["matchLabels"]
    await space.apply(deployment(cluster.image, nodes))
    await space.kubectl("rollout", "status", "deployment/busy", "--timeout=120s")
    found = (await client.list(PODS.path(namespace=space.namespace), label_selector="app=busy")).items
    assert len(found) == 2
    before = {pod["metadata"]["uid"]: cluster.caps(pod) for pod in found}
    assert all(limit(pod, before[pod["metadata"]["uid"]]) == LIMIT for pod in found)

    await space.apply(target_rate(POOL))

    async def on_target(target):
        path = TARGET_RATES.path(namespace=space.namespace, name="busy")
        status = (await client.get(path)).get("status") or {}
        if status.get("target") == target and condition(status, "OnTarget").get("status") == "True":
            return status
        return None

    for target in (0.4, 0.2):
        text = f"{100 * target:g}%"
        await space.kubectl("patch", "tr", "busy", "--type=merge", "-p", json.dumps({"spec": {"rate": text}}))
        status = await eventually(lambda text=text: on_target(text), within=180, every=1.0)
        assert abs(float(status["rate"].rstrip("%")) / 100 - target) <= 0.05
        for pod in found:
            held = limit(pod, cluster.caps(pod))
            assert abs(held / LIMIT - target) <= 0.06, "the kernel holds it, too"

    await space.kubectl("delete", "tr", "busy")
    await eventually(lambda: {p["metadata"]["uid"]: cluster.caps(p) for p in found} == before, every=1.0)


def limit(pod, caps):
    """Return the CPU limit of a pod's container, in cores, as the kernel has it."""
    ((quota, period),) = [value for folder, value in caps.items() if container(pod) in folder]
    return quota / period
