"""A bare API server as a test that asks a lot sees it: plain calls, one after the other, by one kept connection."""

import http.client
import json
import ssl
import time
from urllib.parse import urlsplit

from lib import testbed

from punctual.kube.api import KINDS

GROUP = "/apis/punctual.dev/v1alpha1"
PLURALS = {kind.NAMES.kind: kind.NAMES.plural for kind in KINDS}
MERGE = "application/merge-patch+json"


class Server:
    """``server.create(body)`` answers with status code and body; kubectl would take its time, a hundred times over."""

    def __init__(self, kubeconfig):
        config = json.loads(kubeconfig.read_text())
        cluster, self._token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._host = urlsplit(cluster["server"]).netloc
        self._connection = None

    def call(self, method, path, body=None, content_type="application/json"):
        """Return (code, answer). Of a kind that is not served yet, the server answers 404 in plain text."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        for again in (False, True):
            if self._connection is None:
                self._connection = http.client.HTTPSConnection(self._host, context=self._context, timeout=90)
            try:
                self._connection.request(method, path, data, headers)
                answer = self._connection.getresponse()
                text = answer.read() or b"{}"
                return answer.status, json.loads(text) if text.startswith(b"{") else {"message": text.decode()}
            except (http.client.HTTPException, OSError):  # the server ends connections now and then
                self.close()
                if again:
                    raise
        raise AssertionError

    def close(self):
        if self._connection:
            self._connection.close()
        self._connection = None

    def path(self, body):
        """Return the collection that an object belongs to."""
        kind, namespace = body["kind"], (body.get("metadata") or {}).get("namespace")
        if kind in PLURALS:
            space = f"/namespaces/{namespace}" if kind != "Pool" else ""
            return f"{GROUP}{space}/{PLURALS[kind]}"
        space = f"/namespaces/{namespace}" if namespace else ""
        return f"/api/v1{space}/{kind.lower()}s"

    def create(self, body, *, dry_run=False):
        return self.call("POST", self.path(body) + ("?dryRun=All" if dry_run else ""), body)

    def patch(self, path, body):
        code, answer = self.call("PATCH", path, body, MERGE)
        assert code == 200, answer
        return answer

    def get(self, path):
        return self.call("GET", path)[1]

    def delete(self, path, **options):
        return self.call("DELETE", path, options or None)

    def until(self, holds, *, within=120.0, every=0.1, what=None):
        """Wait until ``holds()`` is true and return what it gave; too late: fail, and say ``what()``."""
        end = time.monotonic() + within
        while not (found := holds()):
            if time.monotonic() > end:
                raise AssertionError(f"not within {within:.0f} s: {what() if what else holds}")
            time.sleep(every)
        return found

    # a place to work in

    def add_namespace(self, name):
        code, answer = self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        assert code == 201, answer

    def add_node(self, name, *, pool, cpu="4", pods="110"):
        """Make a node that is ready; its label ``pool`` is what pools select."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": pool}}}
        code, answer = self.create(node)
        assert code == 201, answer
        path = f"/api/v1/nodes/{name}"
        # admission taints a new node until a controller, that is not here, sees it ready
        self.patch(path, {"spec": {"taints": None}})
        room = {"cpu": cpu, "memory": "64Gi", "pods": pods}
        self.patch(
            f"{path}/status", {"status": {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}}
        )

    def add_pool(self, name, **spec):
        code, answer = self.create(pool(name, **spec))
        assert code == 201, answer

    def add_job(self, name, namespace, of, **spec):
        code, answer = self.create(job(name, namespace, of, **spec))
        assert code == 201, answer
        return answer

    # what is said of jobs

    def jobs(self, namespace):
        """Return all jobs of a namespace by name."""
        return {j["metadata"]["name"]: j for j in self.get(f"{GROUP}/namespaces/{namespace}/divisiblejobs")["items"]}

    def status(self, namespace, name):
        return self.get(f"{GROUP}/namespaces/{namespace}/divisiblejobs/{name}").get("status") or {}

    def pods(self, namespace):
        return self.get(f"/api/v1/namespaces/{namespace}/pods")["items"]

    def events(self, namespace, name):
        """Return {reason: note} of what was said about an object."""
        found = self.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        return {e["reason"]: e["note"] for e in found if e["regarding"]["name"] == name}

    def clean(self, namespace, *pools):
        """Delete what is in a namespace, and pools with their nodes."""
        self.delete(f"{GROUP}/namespaces/{namespace}/divisiblejobs")
        self.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
        for name in pools:
            self.call("PATCH", f"{GROUP}/pools/{name}", {"metadata": {"finalizers": None}}, MERGE)
            self.delete(f"{GROUP}/pools/{name}")
            self.delete(f"/api/v1/nodes?labelSelector=pool%3D{name}")


def pool(name, **spec):
    """Return a pool of the nodes with the label ``pool``: there are no agents, so it may be large."""
    large = {"nodeSelector": {"matchLabels": {"pool": name}}, "processor": {"cpu": "1", "memory": "64Mi"}}
    return testbed.pool(name, **{**large, **spec})


def job(name, namespace, of, **spec):
    """Return a job of the pool ``of``."""
    spec = {
        "pool": of,
        "units": 100,
        "deadline": "10m",
        "cost": {"perUnit": "100ms", "startup": "1s"},
        "template": {"spec": {"containers": [{"name": "main", "image": "work:1"}]}},
        **spec,
    }
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "punctual.dev/v1alpha1", "kind": "DivisibleJob", "metadata": meta, "spec": spec}
