"""The chart's rights and policies on an API server, and the operator's own account under them."""

import asyncio
import contextlib
import json
import time
from pathlib import Path

import helm_python
import yaml

from punctual import errors

ROOT = Path(__file__).parents[2]
RBAC = "rbac.authorization.k8s.io/v1"
ADMISSION = "admissionregistration.k8s.io/v1"
PLURALS = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "PriorityClass": "priorityclasses"}


def rendered(namespace, **values):
    """Return the objects of the chart for a release `punctual` in a namespace, with the claim there too."""
    values = {"crds": {"enabled": False}, "operator": {"claimNamespace": namespace}, **values}
    with helm_python.Chart.load(ROOT / "charts" / "punctual") as chart:
        texts = chart.render(values, name="punctual", namespace=namespace)
    return [o for path, text in texts.items() if path.endswith(".yaml") for o in yaml.safe_load_all(text) if o]


def path_of(body):
    """Return the path of an object's collection."""
    meta, version = body["metadata"], body["apiVersion"]
    where = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
    plural = PLURALS.get(body["kind"], f"{body['kind'].lower()}s")
    return f"/{'api' if version == 'v1' else 'apis'}/{version}/{where}{plural}"


class Installed:
    """The release in a namespace. ``objects``: all of the chart; ``user``, ``own``: the operator's account."""

    def __init__(self, client, kubeconfig, namespace, objects):
        self.client, self.kubeconfig, self.namespace, self.objects = client, kubeconfig, namespace, objects
        self.own = None
        self.user = f"system:serviceaccount:{namespace}:punctual-operator"

    async def account(self, name, to):
        """Write a kubeconfig of an account of the release."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}/token"
        token = (await self.client.create(path, {"spec": {"expirationSeconds": 3600}}))["status"]["token"]
        config = json.loads(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        to.write_text(json.dumps(config))
        return to


@contextlib.asynccontextmanager
async def installed(client, kubeconfig, namespace, **values):
    """Create the objects that say what the operator may do; remove those of the cluster at the end."""
    objects, made = rendered(namespace, **values), []
    try:
        for body in objects:
            if body["kind"] in ("ServiceAccount", "Secret", "PriorityClass") or body["apiVersion"] in (RBAC, ADMISSION):
                await client.create(path_of(body), body)
                if "namespace" not in body["metadata"]:
                    made.append(f"{path_of(body)}/{body['metadata']['name']}")
        yield Installed(client, kubeconfig, namespace, objects)
    finally:
        for path in made:
            with contextlib.suppress(errors.NotFound):
                await client.delete(path)


async def refusal(call, *, within=20.0):
    """Return the message with which the policies refuse a request; empty: they do not, within so many seconds.

    A new policy is in force after a moment. ``call()`` starts the request, which must be harmless until then.
    """
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            await call()
        except (errors.Forbidden, errors.Invalid) as error:
            if "ValidatingAdmissionPolicy" in str(error):
                return str(error)
        await asyncio.sleep(0.05)
    return ""
