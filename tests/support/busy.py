"""An application of busy pods that count their iterations, and a TargetRate that holds them."""

from punctual.kube.api.resources import TARGET_RATES

BUSY = """
import os, time

done = 0
while True:
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    done += 1
    with open("/punctual/progress.tmp", "w") as file:
        file.write(str(done))
    os.replace("/punctual/progress.tmp", "/punctual/progress")
"""
LIMIT = 0.3
"""CPU limit of a pod, cores: both pods get it also while other tests' pods run."""
ITERATION = 0.02
"""CPU seconds of an iteration."""


def deployment(image, node_selector, *, replicas=2, cpu=LIMIT):
    """Return a deployment of pods that are always busy; ``cpu``: the limit of each, of which it requests the half."""
    resources = {"requests": {"cpu": f"{500 * cpu:g}m", "memory": "32Mi"}, "limits": {"cpu": f"{1000 * cpu:g}m"}}
    main = {
        "name": "main",
        "image": image,
        "command": ["python3", "-c", BUSY],
        "resources": resources,
        "volumeMounts": [{"name": "punctual", "mountPath": "/punctual"}],
    }
    spec = {
        "containers": [main],
        "volumes": [{"name": "punctual", "emptyDir": {}}],
        "nodeSelector": node_selector,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    labels = {"app": "busy"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "busy"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def target_rate(pool, *, cpu=LIMIT, **spec):
    """Return a TargetRate of the pods of `deployment`: 40 %."""
    asked = {
        "pool": pool,
        "selector": {"matchLabels": {"app": "busy"}},
        "rate": "40%",
        "maxRate": f"{cpu / ITERATION:g}/s",
        "epsilon": "5%",
        **spec,
    }
    return {"apiVersion": TARGET_RATES.version, "kind": "TargetRate", "metadata": {"name": "busy"}, "spec": asked}
