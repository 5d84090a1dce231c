"""A real Prometheus on this machine that scrapes a cluster's operator and agents, and answers queries."""

import json
import time
from urllib.parse import urlencode
from urllib.request import urlopen

from lib import prometheus

SCRAPE = 2
"""Seconds between two scrapes."""


class Prometheus(prometheus.Prometheus):
    """Scrapes pods ({name: port}) of a namespace from when it is started; a context manager."""

    def __init__(self, folder, kubeconfig, namespace, pods):
        super().__init__(folder, kubeconfig=kubeconfig, namespace=namespace, pods=pods, scrape=SCRAPE)

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
