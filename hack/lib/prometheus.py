"""Debian's Prometheus: `prometheus` and `promtool`, unpacked into the cache; nothing is installed on this machine."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from lib import debian
from lib.home import CACHE, MissingError, lock

ALERTS = Path(__file__).resolve().parents[2] / "charts/punctual/alerts/punctual.yaml"

FOLDER = CACHE / f"prometheus-{debian.RELEASE}"


def program(name: str) -> Path:
    """Return the path of `prometheus` or `promtool`, fetched if it is not there."""
    with lock("prometheus"):
        if not FOLDER.exists():
            partial = FOLDER.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            debian.unpack("prometheus", partial)
            partial.rename(FOLDER)
    return FOLDER / "usr/bin" / name


class Prometheus:
    """A server on this machine that scrapes pods of a cluster through the API server's proxy; a context manager.

    ``pods``: the port with metrics, by the pod's name. ``folder``: for its data, which go with it. ``scrape``: seconds.
    MissingError if the kubeconfig has no client certificate: Prometheus knows no other way to log in.
    """

    def __init__(
        self, folder: Path, *, kubeconfig: Path, namespace: str, pods: Mapping[str, int], scrape: float, port: int = 0
    ) -> None:
        self.folder = folder
        with contextlib.closing(socket.create_server(("127.0.0.1", port))) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        config = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        if "client-certificate-data" not in user:
            raise MissingError(f"{kubeconfig} has no client certificate, and Prometheus has no other way to log in")
        logins = {
            "ca_file": cluster["certificate-authority-data"],
            "cert_file": user["client-certificate-data"],
            "key_file": user["client-key-data"],
        }
        for name, data in logins.items():
            file = folder / name
            file.touch(mode=0o600)
            file.write_bytes(base64.b64decode(data))
        job = {
            "job_name": "punctual",
            "scheme": "https",
            "honor_labels": True,
            "tls_config": {name: str(folder / name) for name in logins},
            "static_configs": [_target(urlsplit(cluster["server"]).netloc, namespace, *pod) for pod in pods.items()],
        }
        times = {"scrape_interval": f"{scrape:g}s", "evaluation_interval": f"{scrape:g}s"}
        made = {"global": times, "rule_files": [str(ALERTS)], "scrape_configs": [job]}
        (folder / "prometheus.yaml").write_text(json.dumps(made))

    def __enter__(self) -> Self:
        """Start it."""
        with (self.folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={self.folder / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address={self.address}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


def _target(server: str, namespace: str, pod: str, port: int) -> dict[str, Any]:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics"
    return {"targets": [server], "labels": {"__metrics_path__": path, "instance": pod}}
