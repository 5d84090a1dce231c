"""Serves ``/metrics`` and ``/healthz`` of the agent on their own port.

The agent is healthy if it ticked lately; a running process is not enough. The names come from
``punctual.metric_names``. The series of a pod end with the pod.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Container, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from punctual import metric_names as names
from punctual.metric_names import Metric
from punctual.wire import Fault
from punctual_agent.cgroup import Cap, Throttling

disable_created_metrics()  # type: ignore[no-untyped-call]  # of the whole library: each would double the counters

_CAPABILITIES: Final = (
    ("cpu", "idle"),
    ("cpu", "weight"),
    ("memory", "high"),
    ("memory", "soft"),
    ("disk", "weight"),
    ("disk", "class"),
)
"""All ways to hold guests, by resource and kind: those of :class:`punctual.wire.NodeReport`."""


class AgentMetrics:
    """The agent's metrics. The main thread writes them and the server's threads read them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.writes = self._counter(names.CGROUP_WRITES)
        self.drift = self._counter(names.CGROUP_DRIFT)
        self.faults = self._counter(names.FILE_FAULTS)
        for fault in get_args(Fault):  # an increase shows only in a series that exists
            self.faults.labels(fault)
        self.exchanges = self._counter(names.AGENT_EXCHANGES)
        self._answered = self._gauge(names.ANSWERED)
        self.epoch = self._gauge(names.AGENT_EPOCH)
        self.pods = self._gauge(names.AGENT_PODS)
        self.lines = self._gauge(names.AGENT_LINES)
        self.saturated = self._gauge(names.AGENT_SATURATED)
        self.line_writes = self._counter(names.AGENT_LINE_WRITES)
        self.applications = self._gauge(names.AGENT_APPLICATIONS)
        self.aligned = self._gauge(names.AGENT_ALIGNED)
        self.phase_error = self._gauge(names.PHASE_ERROR)
        self.phase_moves = self._counter(names.PHASE_MOVES)
        self.clock_bound = self._gauge(names.CLOCK_BOUND)
        self.guests = self._gauge(names.AGENT_GUESTS)
        self._guest_capability = self._gauge(names.GUEST_CAPABILITY)
        self.capabilities(())
        self.guest_share = self._gauge(names.GUEST_SHARE)
        self.guest_mark = self._gauge(names.GUEST_MARK)
        self.guest_excess = self._gauge(names.GUEST_EXCESS)
        self.host_use = self._gauge(names.HOST_USE)
        self.guest_use = self._gauge(names.GUEST_USE)
        self.may_write = self._gauge(names.MAY_WRITE)
        look = names.LOOK_DURATION
        self.look = Histogram(look.name, look.help, registry=self.registry, buckets=look.buckets)
        self._quota = self._gauge(names.CPU_QUOTA)
        self._period = self._gauge(names.CPU_PERIOD)
        self._caps: dict[str, Cap] = {}
        self._throttled = self._counter(names.CPU_THROTTLED)
        self._periods = self._counter(names.CPU_PERIODS)
        self._throttled_periods = self._counter(names.CPU_THROTTLED_PERIODS)
        self._pressure: Counter | None = None
        self._waited = 0.0

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)

    def answered(self, ago: float) -> None:
        """Set how many seconds ago the operator answered last."""
        self._answered.set(time.time() - ago)

    def throttling(self, before: Mapping[str, Throttling] | None, now: Mapping[str, Throttling]) -> None:
        """Count how a pod was throttled since the last look, from its folders' counters.

        ``before``: None at the first look at a pod of which an earlier agent may have counted a part: nothing counts.

        A folder of the pod and that of its container use up equal caps in the same periods, so the largest numbers of
        periods count.
        """
        if before is None or before == now:
            return
        pairs = [(one, before.get(folder, Throttling())) for folder, one in now.items()]
        self._periods.inc(max(0, *(one.periods - old.periods for one, old in pairs)))
        self._throttled_periods.inc(max(0, *(one.throttled - old.throttled for one, old in pairs)))
        self._throttled.inc(max(0.0, sum(one.seconds - old.seconds for one, old in pairs)))

    def waited(self, seconds: float | None) -> None:
        """Count the time in which a task of the node waited for a CPU, from its total; None: a kernel without PSI."""
        if seconds is None:
            return
        if self._pressure is None:
            self._pressure, self._waited = self._counter(names.CPU_PRESSURE), seconds
        self._pressure.inc(max(seconds - self._waited, 0.0))
        self._waited = seconds

    def capabilities(self, there: Container[tuple[str, str | None]]) -> None:
        """Set how guests can be held on this node, by resource and kind."""
        for one in _CAPABILITIES:
            self._guest_capability.labels(*one).set(one in there)

    def caps(self, caps: Mapping[str, Cap]) -> None:
        """Set the caps in force by pod. Series of pods that are not named are removed."""
        for uid in self._caps.keys() - caps.keys():
            self._quota.remove(uid)
            self._period.remove(uid)
        for uid, cap in caps.items():
            if self._caps.get(uid) != cap:
                self._quota.labels(uid).set(cap.cores or 0.0)
                self._period.labels(uid).set(cap.period / 1e6)
        self._caps = dict(caps)


def serve(metrics: AgentMetrics, healthy: Callable[[], bool], *, port: int, address: str = "") -> ThreadingHTTPServer:
    """Serve in separate threads until ``shutdown``. Port 0 takes a free port. Raises OSError if the port is in use."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(metrics.registry), CONTENT_TYPE_LATEST)
            elif path == "/healthz":
                well = healthy()
                self._answer(200 if well else 503, b"ok\n" if well else b"the agent does not tick\n", "text/plain")
            else:
                self._answer(404, b"not found: use /metrics or /healthz\n", "text/plain")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            # the client may have closed the connection, which is not an error of the agent
            with contextlib.suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Write no log line for a scrape."""

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
