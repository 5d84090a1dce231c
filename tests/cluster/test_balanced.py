"""A busy pod that is balanced with its node's own work, on a real kubelet: less beside other busy pods, then more."""

import pytest
from busy import deployment, target_rate
from live import POOL, condition, container, eventually

from punctual.kube.api.resources import PODS, TARGET_RATES

CPU, HOGS = 0.15, 6
"""Cores of the pod, and pods of the node without an end: more than four tasks for each CPU of a small node."""
WITHIN = 300.0
"""Seconds for a change of the part. A load is smoothed over a minute."""


def application(image, nodes):
    """A deployment of one pod, which requests all its CPU: so 90 % of it have a place."""
    body = deployment(image, nodes, replicas=1, cpu=CPU)
    (main,) = body["spec"]["template"]["spec"]["containers"]
    main["resources"]["requests"]["cpu"] = main["resources"]["limits"]["cpu"]
    return body


def hog(space, name, node):
    """A pod without an end. It requests nothing, so that it takes no processor and little from other tests."""
    main = {"name": "main", "image": space.cluster.image, "command": ["python3", "-c", "while True: pass"]}
    spec = {
        "containers": [main],
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    meta = {"name": name, "namespace": space.namespace, "labels": {"app": "hog"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@pytest.mark.timeout(1200, func_only=True)
async def test_a_busy_pod_yields_to_its_nodes_own_work_and_gets_its_part_back(cluster, client, space):
    pool = await client.get(f"/apis/punctual.dev/v1alpha1/pools/{POOL}")
    await space.apply(application(cluster.image, pool["spec"]["nodeSelector"]["matchLabels"]))
    await space.kubectl("rollout", "status", "deployment/busy", "--timeout=120s")
    (pod,) = (await client.list(PODS.path(namespace=space.namespace), label_selector="app=busy")).items
    await space.apply(target_rate(POOL, cpu=CPU, rate="Balanced"))

    async def balanced():
        """Return its status, if the part follows from a load."""
        path = TARGET_RATES.path(namespace=space.namespace, name="busy")
        status = (await client.get(path)).get("status") or {}
        return status if condition(status, "OnTarget").get("reason") == "Balanced" else None

    async def part():
        status = await balanced()
        return float(status["target"].rstrip("%")) / 100 if status else None

    async def below(most):
        found = await part()
        return found if found is not None and found <= most else None

    async def above(least):
        found = await part()
        return found if found is not None and found >= least else None

    status = await eventually(balanced, within=120, every=1.0)
    assert "error" not in status
    assert status["load"] >= 0.0
    first = await eventually(lambda: above(0.4), within=WITHIN, every=1.0)

    names = [f"hog-{number}" for number in range(HOGS)]
    await space.apply(*(hog(space, name, pod["spec"]["nodeName"]) for name in names))
    low = await eventually(lambda: below(first - 0.19), within=WITHIN, every=1.0)
    await eventually(lambda: held(cluster, pod) <= (low + 0.02) * CPU, within=30, every=0.5)

    await space.kubectl("delete", "pod", *names, "--wait=false")
    await eventually(lambda: above(low + 0.09), within=WITHIN, every=1.0)

    await space.kubectl("delete", "tr", "busy")
    await eventually(lambda: held(cluster, pod) == pytest.approx(CPU), within=60, every=1.0)


def held(cluster, pod):
    """Return the CPU limit of a pod's container, in cores, as the kernel has it."""
    ((quota, period),) = [value for folder, value in cluster.caps(pod).items() if container(pod) in folder]
    return quota / period
