"""The operator that is installed in a cluster, as benchmarks see it: its pods, metrics and memory."""

import json
import re

from punctual.cli.kubectl import Kubectl
from punctual.errors import ClusterError

METRICS = 8080
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE", "APPLY"})


class Installed:
    """The operator in a namespace of the cluster of KUBECONFIG."""

    def __init__(self, namespace="punctual"):
        self.kubectl = Kubectl()
        self.namespace = namespace

    def pods(self, component="operator"):
        """Return the pods of operator or agent that are not going."""
        found = self.kubectl.get("pods", "-n", self.namespace, "-l", f"app.kubernetes.io/component={component}")
        return [p for p in found["items"] if not p["metadata"].get("deletionTimestamp")]

    def leader(self):
        """Return the name of the pod that leads."""
        for pod in self.pods():
            if pod["metadata"]["labels"].get("punctual.dev/leader") == "true":
                return pod["metadata"]["name"]
        raise ClusterError("no operator leads")

    def metrics(self, pod):
        """Return {series: value} of an operator's pod."""
        return self._series(f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{METRICS}/proxy/metrics")

    def _series(self, path):
        lines = self.kubectl.run("get", "--raw", path).splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in pairs}

    def requests(self):
        """Return {(verb, resource): count} of all writes that the API server has been asked for, by anybody."""
        counts = {}
        for series, value in self._series("/metrics").items():
            if series.startswith("apiserver_request_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
                if labels["verb"] in WRITES:
                    key = labels["verb"], labels["resource"]
                    counts[key] = counts.get(key, 0) + value
        return counts

    def memory(self, pod):
        """Return MiB of a pod's containers as its kubelet counts them: {container: {working_set, rss}}."""
        node = pod["spec"]["nodeName"]
        told = json.loads(self.kubectl.run("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary"))
        for stats in told["pods"]:
            if stats["podRef"]["uid"] == pod["metadata"]["uid"]:
                return {
                    c["name"]: {
                        "working_set_mib": round(c["memory"]["workingSetBytes"] / 2**20, 1),
                        "rss_mib": round(c["memory"]["rssBytes"] / 2**20, 1),
                    }
                    for c in stats["containers"]
                }
        return {}

    def unfinished(self):
        """Return the names of jobs that have no end yet and are not refused."""
        names = []
        for job in self.kubectl.get("divisiblejobs", "-A")["items"]:
            conditions = {c["type"]: c["status"] for c in (job.get("status") or {}).get("conditions") or ()}
            over = "True" in (conditions.get("Completed"), conditions.get("Failed"))
            if not over and conditions.get("Admitted") != "False":
                names.append(f"{job['metadata']['namespace']}/{job['metadata']['name']}")
        return names
