"""The tools of a term for tests of single parts: what writes and reports is the test's."""

import time
from unittest.mock import Mock

from clocks import NO_CLIENT, clock

from punctual.kube.actors.job_results import JobResults
from punctual.kube.actors.placeholders import Placeholders
from punctual.kube.actors.promise_metrics import PromiseMetrics
from punctual.kube.actors.taints import Taints
from punctual.kube.actors.tools import Tools
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.placeholder_pod import PlaceholderSettings
from punctual.kube.cluster.pod_manifest import IMAGE
from punctual.kube.metrics import Metrics
from punctual.profiles.learning import AskedSpeeds, Learning


def make_tools(log, now=lambda: 4.0, *, caches=None, epoch=3, metrics=None, monotonic=time.monotonic, kinds=None):
    """Return tools with ``log`` as writer and recorder."""
    caches, metrics = caches or Caches(NO_CLIENT), metrics or Metrics()
    by = clock(monotonic, now=now)
    return Tools(
        epoch=epoch,
        kinds=kinds or Mock(),
        clock=by,
        image=IMAGE,
        caches=caches,
        writer=log,
        recorder=log,
        set_points=SetPointStore(),
        metrics=metrics,
        promise_metrics=PromiseMetrics(metrics, by),
        taints=Taints([], log),
        placeholders=Placeholders(PlaceholderSettings(namespace="sys"), by, log, log),
        results=JobResults(caches.directory, log),
        learning=Learning(lambda _: AskedSpeeds(2.0, {})),
    )
