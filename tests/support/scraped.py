"""A real Prometheus on this machine that scrapes a cluster's operator and agents, through the API server's proxy."""

import base64
import contextlib
import json
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import yaml

SCRAPE = 2
"""Seconds between two scrapes."""
ROOT = Path(__file__).parents[2]


class Prometheus:
    """Scrapes pods ({name: port}) of a namespace from when it is started; a context manager."""

    def __init__(self, program, folder, kubeconfig, namespace, pods):
        self.folder, self._program = folder, program
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        (folder / "prometheus.yaml").write_text(json.dumps(self._config(kubeconfig, namespace, pods)))

    def _config(self, kubeconfig, namespace, pods):
        config = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        files = {
            "ca_file": cluster["certificate-authority-data"],
            "cert_file": user["client-certificate-data"],
            "key_file": user["client-key-data"],
        }
        for name, data in files.items():
            (self.folder / name).write_bytes(base64.b64decode(data))
            (self.folder / name).chmod(0o600)
        server = urlsplit(cluster["server"]).netloc
        targets = [
            {
                "targets": [server],
                "labels": {
                    "__metrics_path__": f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics",
                    "instance": pod,
                },
            }
            for pod, port in pods.items()
        ]
        job = {
            "job_name": "punctual",
            "scheme": "https",
            "honor_labels": True,
            "tls_config": {name: str(self.folder / name) for name in files},
            "static_configs": targets,
        }
        return {
            "global": {"scrape_interval": f"{SCRAPE}s", "evaluation_interval": f"{SCRAPE}s"},
            "rule_files": [str(ROOT / "charts/punctual/alerts/punctual.yaml")],
            "scrape_configs": [job],
        }

    def __enter__(self):
        with (self.folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--config.file={self.folder / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address={self.address}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(30)

    def query(self, expr, start, end, step=SCRAPE):
        """Return [(labels, [(time, value)])] of a query over some time."""
        return self._get("query_range", query=expr, start=start, end=end, step=step)

    def _get(self, what, **words):
        end = time.monotonic() + 30
        while True:
            try:
                with urlopen(f"http://{self.address}/api/v1/{what}?{urlencode(words)}", timeout=30) as answer:
                    found = json.load(answer)["data"]["result"]
            except OSError:  # it is starting
                if time.monotonic() > end:
                    raise AssertionError((self.folder / "log").read_text()[-3000:]) from None
                time.sleep(0.1)
            else:
                return [(one["metric"], [(at, float(value)) for at, value in one["values"]]) for one in found]
