"""The operator as a process of its own, with its log, its memory and its metrics."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path


class OperatorProcess:
    """Begun with it; ``env`` adds to what the environment says."""

    def __init__(self, kubeconfig, namespace, log, **env):
        self.log = log
        ports = {"PUNCTUAL_REPORT_PORT": "0", "PUNCTUAL_METRICS_PORT": "0"}
        # the claim: beside other tests' operators on the same server
        spaces = {"POD_NAMESPACE": namespace, "PUNCTUAL_CLAIM_NAMESPACE": namespace}
        env = {**os.environ, "KUBECONFIG": str(kubeconfig), **spaces, **ports, **env}
        with log.open("wb") as output:
            command = [sys.executable, "-m", "punctual.kube.main"]
            self.process = subprocess.Popen(command, env=env, stdout=output, stderr=output)

    @property
    def alive(self):
        return self.process.poll() is None

    @property
    def leads(self):
        """Whether it has begun to lead; AssertionError where it has ended."""
        assert self.alive, self.log.read_text()
        return '"term_begun"' in self.log.read_text()

    @property
    def resident(self):
        """Resident memory, MiB."""
        return self._memory("VmRSS")

    @property
    def peak(self):
        """The most resident memory that it ever had, MiB."""
        return self._memory("VmHWM")

    def _memory(self, what):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split(f"{what}:")[1].split()[0]) / 1024

    def metrics(self):
        """Return {series: value}."""
        started = next(x for x in self.log.read_text().splitlines() if '"started"' in x)
        url = f"http://127.0.0.1:{json.loads(started)['metrics']}/metrics"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=90) as answer:
            lines = [x.rpartition(" ") for x in answer.read().decode().splitlines() if not x.startswith("#")]
        return {series: float(value) for series, _, value in lines}

    def end(self, within=120.0):
        """Stop it in good order; return its exit status."""
        self.process.terminate()
        return self.process.wait(within)
