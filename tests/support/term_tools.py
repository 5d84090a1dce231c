"""The tools of a term for tests of single parts: what writes and reports is the test's."""

import time
from types import SimpleNamespace

from punctual.kube.actors.job_results import JobResults
from punctual.kube.actors.promise_metrics import PromiseMetrics
from punctual.kube.actors.tools import Tools
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.placeholder_pod import PlaceholderSettings
from punctual.kube.cluster.pods import IMAGE
from punctual.kube.holding.placeholders import Placeholders
from punctual.kube.holding.taints import Taints
from punctual.kube.learning.profiles import ProfileLearning
from punctual.kube.metrics import Metrics


def make_tools(log, now=lambda: 4.0, *, caches=None, epoch=3, metrics=None, clock=None, monotonic=time.monotonic):
    """Return tools with ``log`` as writer and recorder."""
    caches, metrics = caches or Caches(None), metrics or Metrics()
    return Tools(
        epoch=epoch,
        clock=clock or SimpleNamespace(now=now, doubted=False),
        monotonic=monotonic,
        image=IMAGE,
        caches=caches,
        writer=log,
        recorder=log,
        set_points=SetPointStore(),
        metrics=metrics,
        promise_metrics=PromiseMetrics(metrics, now),
        taints=Taints([], lambda *_: None),
        placeholders=Placeholders(PlaceholderSettings(namespace="sys"), log.submit, lambda *_: None),
        results=JobResults(caches.directory, log),
        learning=ProfileLearning(caches.directory, lambda _: None),
    )
