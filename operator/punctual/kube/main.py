"""``punctual-operator``: one replica. It owns signals, the event loop and the order of start and shutdown.

    start       the API server's answer · metrics and probes · authority · report server · informers and kopf · elector
    lead        a Term while this replica holds the Lease; the label that the Service selects
    shut down   no new decisions · statuses flushed (5 s) · lease released · kopf stopped

A lost lease ends the term, and this replica is a standby again. An unexpected failure (a broken invariant, a newer
leader's write, a thread that ended) ends the process. Another replica then starts from the recorded state. A store of
the API server that was set back ends the process, too, and nothing is written before: its caches show what may never
have happened.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, get_args

import structlog

from punctual import __version__, wire
from punctual import metric_names as names
from punctual.errors import ClusterError, Fenced, InvariantError, PunctualError, StoreFellBack
from punctual.kube.actors.actors import PoolCore
from punctual.kube.agents.ca import service_names
from punctual.kube.agents.ca_store import ClusterCaStore
from punctual.kube.agents.identity import Identity, Reviewer, identity_of
from punctual.kube.agents.report_server import Refusal, ReportServer
from punctual.kube.agents.rotation import Rotation
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.api.resources import JOBS, POOLS, RESERVATIONS, TARGET_RATES
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.handlers import Watches
from punctual.kube.cluster.informer import Informer
from punctual.kube.cluster.placeholder_pod import PlaceholderSettings
from punctual.kube.cluster.pod_manifest import IMAGE
from punctual.kube.cluster.resync import Resync
from punctual.kube.cluster.walk import walk
from punctual.kube.election.claim import SHARED, Installation, describe
from punctual.kube.election.elector import ElectorThread, Timing
from punctual.kube.election.leader_label import LeaderLabel
from punctual.kube.gate.trials import DEADLINE
from punctual.kube.kinds.rates.prometheus import check_url
from punctual.kube.leader.lost_promises import Fall
from punctual.kube.leader.parts import Surroundings
from punctual.kube.leader.term import Term
from punctual.kube.metrics import Metrics, begin
from punctual.kube.page.model import Reading
from punctual.kube.page.server import PageServer
from punctual.kube.page.viewers import Viewers
from punctual.kube.port import allow_open_files
from punctual.kube.serve import ProbeServer
from punctual.runtime.clock import ServerClock, ask_while_doubted
from punctual.scheduling.pool import Pool

FLUSH = 5.0
"""Seconds for the last statuses to be written."""
LABEL = 2.0
"""Seconds to remove the leader's label at the end."""
LOOK = 0.5
"""Seconds between two measurements of the event-loop lag."""
HUNG = 10.0
"""Seconds without a step after which the planner counts as stalled."""
STALLED = 60.0
"""Seconds without a page read or a stamp accepted after which a takeover counts as stalled. One call may take 10 s."""
STEP = 10_000
"""How many epochs a leader goes up at once because an agent names a higher one."""
BEGIN = 300.0
"""The same before a pool's first step, which may write a status of each of its jobs."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration, read from the environment."""

    pod: str
    """Name of this replica's pod. Empty outside a cluster."""
    namespace: str
    service: str
    lease: str
    installation: Installation
    """Which of the cluster's installations this one is."""
    authority: str
    """Name of the Secret and of the ConfigMap of the authority."""
    agent: str
    """Service account of the agents."""
    image: str
    """The operator's image. The input step of a chunk runs in it."""
    report_port: int
    metrics_port: int
    page_ports: tuple[int, int] | None
    """Ports of the page: with a token, and on loopback. None: no page is served."""
    log_level: str
    kubeconfig: str | None = None
    """None: the pod's own account, or the user's kubeconfig."""
    timing: Timing
    placeholder_settings: PlaceholderSettings
    """Settings of placeholders."""
    prometheus: str
    """Address of the Prometheus that counts iterations for TargetRates. Empty: there is none."""

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Self:
        """Read the environment. A ValueError names the variable that is wrong."""
        namespace = env.get("POD_NAMESPACE", "default")
        service = env.get("PUNCTUAL_SERVICE", "punctual")
        timing = Timing(
            **{
                field: _number(env, f"PUNCTUAL_LEASE_{field.upper()}", standard)
                for field, standard in (("lease", 15.0), ("renew", 10.0), ("retry", 2.0))
            }
        )
        return cls(
            pod=env.get("POD_NAME", ""),
            namespace=namespace,
            service=service,
            lease=env.get("PUNCTUAL_LEASE", service),
            installation=Installation(
                namespace, env.get("PUNCTUAL_RELEASE", service), env.get("PUNCTUAL_CLAIM_NAMESPACE", SHARED)
            ),
            authority=env.get("PUNCTUAL_CA", f"{service}-ca"),
            agent=env.get("PUNCTUAL_AGENT_ACCOUNT", f"system:serviceaccount:{namespace}:{service}-agent"),
            image=env.get("PUNCTUAL_IMAGE") or f"{IMAGE}:{__version__}",
            report_port=int(_number(env, "PUNCTUAL_REPORT_PORT", 8443)),
            metrics_port=int(_number(env, "PUNCTUAL_METRICS_PORT", 8080)),
            page_ports=_page_ports(env),
            log_level=env.get("PUNCTUAL_LOG_LEVEL", "info"),
            kubeconfig=env.get("KUBECONFIG"),
            timing=timing,
            placeholder_settings=_placeholder_settings(env, namespace),
            prometheus=_prometheus(env),
        )


def _placeholder_settings(env: Mapping[str, str], namespace: str) -> PlaceholderSettings:
    try:
        return PlaceholderSettings.read(env.get("PUNCTUAL_PLACEHOLDER", ""), namespace)
    except (TypeError, ValueError) as error:
        raise ValueError(f"PUNCTUAL_PLACEHOLDER: {error}") from error


def _prometheus(env: Mapping[str, str]) -> str:
    try:
        return check_url(env.get("PUNCTUAL_PROMETHEUS", ""))
    except ValueError as error:
        raise ValueError(f"PUNCTUAL_PROMETHEUS: {error}") from error


def _page_ports(env: Mapping[str, str]) -> tuple[int, int] | None:
    if not env.get("PUNCTUAL_PAGE_PORT"):
        return None
    return int(_number(env, "PUNCTUAL_PAGE_PORT", 0)), int(_number(env, "PUNCTUAL_PAGE_LOOPBACK_PORT", 8090))


def _number(env: Mapping[str, str], name: str, standard: float) -> float:
    try:
        return float(env.get(name, standard))
    except ValueError as error:
        raise ValueError(f"{name}={env[name]!r} is not a number") from error


@dataclass(frozen=True, slots=True)
class Makers:
    """Constructors of the parts by which a replica reaches the API server, agents and people."""

    client: Callable[..., ApiClient] = ApiClient
    watches: Callable[..., Watches] = Watches
    elector: Callable[..., ElectorThread] = ElectorThread
    rotation: Callable[..., Rotation] = Rotation
    report_server: Callable[..., ReportServer] = ReportServer
    probe_server: Callable[..., ProbeServer] = ProbeServer


class Operator:
    """One replica: ``await Operator(config).run(stop)`` runs until ``stop`` is set.

    Any other end raises its cause.
    """

    def __init__(self, config: Config, *, core: Callable[[int], PoolCore] = Pool, make: Makers = Makers()) -> None:
        self._config = config
        self._core = core
        self._make = make
        self._metrics = Metrics()
        self._set_points = SetPointStore()
        self._given: Surroundings | None = None
        self._term: Term | None = None
        self._leading: asyncio.Task[None] | None = None
        self._elector: ElectorThread | None = None
        self._fall: Fall | None = None  # what agents have said since this term began
        self._begun = False
        self._caches: Caches | None = None
        self._label: LeaderLabel | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended.add_done_callback(_seen)
        self._instance = config.pod or socket.gethostname()
        self.ports: tuple[int, int] = (0, 0)
        """The ports of the report server and of the metrics server."""

    async def run(self, stop: asyncio.Event) -> None:
        """Start, stand for election, lead for a term whenever elected, and shut down.

        If told to stop during the start, it ends at once.
        """
        work, told = asyncio.ensure_future(self._run(stop)), asyncio.ensure_future(stop.wait())
        first: list[asyncio.Future[Any]] = [work, told, self._ended]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not self._begun:
                work.cancel()  # nothing was decided, so nothing has to be written
                await asyncio.wait([work])
                if self._ended.done():
                    self._ended.result()
            if not work.cancelled():
                await work
        finally:
            told.cancel()
            work.cancel()
            await asyncio.wait([work])

    async def _run(self, stop: asyncio.Event) -> None:
        config, make = self._config, self._make
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(make.client(config.kubeconfig, user_agent="punctual-operator"))
            clock = client.clock
            clock.on_end = lambda how: self._metrics.clock_doubts.labels(how).inc()
            trials = make.client(config.kubeconfig, clock=clock, deadline=DEADLINE, user_agent="punctual-operator")
            await stack.enter_async_context(trials)
            if await _patiently(lambda: client.get("/version"), stop) is None:
                return
            asker = make.client(config.kubeconfig, clock=clock, user_agent="punctual-clock", keep=False)
            await stack.enter_async_context(asker)
            caches = self._caches = Caches(client, config.placeholder_settings)
            self._set_points.job_of = caches.job_of_pod
            group = await stack.enter_async_context(_Tasks(self._fail))
            watches = make.watches(self, kubeconfig=config.kubeconfig)
            group.begin(watches.run())
            group.begin(Resync(client, caches.directory, self, watches).run())
            group.begin(caches.run())
            group.begin(self._measure_lag())
            group.begin(ask_while_doubted(clock, partial(asker.get, "/version")))
            self._label = LeaderLabel(client, namespace=config.namespace, pod=config.pod)
            group.begin(self._label.run())
            reports = await self._serve(client, caches, stack, group)
            await caches.synced()
            await _see_epochs(client, caches)
            self._given = Surroundings(
                client=client,
                trials=trials,
                caches=caches,
                metrics=self._metrics,
                set_points=self._set_points,
                instance=self._instance,
                image=config.image,
                prometheus=config.prometheus,
                core=self._core,
            )
            self._elector = elector = make.elector(
                config.kubeconfig,
                namespace=config.namespace,
                name=config.lease,
                identity=f"{self._instance}-{secrets.token_hex(4)}",
                candidate=self,
                installation=config.installation,
                timing=config.timing,
                clock=clock,
            )
            elector.start()
            self._begun = True
            log.info("started", instance=self._instance, reports=reports[0], metrics=reports[1])
            try:
                await self._wait(stop)
            finally:
                await self._retire()
                await elector.stop()

    async def _wait(self, stop: asyncio.Event) -> None:
        assert self._elector is not None
        stopping = asyncio.ensure_future(stop.wait())
        try:
            ends: list[asyncio.Future[Any]] = [stopping, self._ended, self._elector.ended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                self._ended.result()
            if self._elector.ended.done():
                self._elector.ended.result()
                raise ClusterError("the elector ended")
        finally:
            stopping.cancel()

    def observe(self, plural: str, change: str | None, body: Json) -> None:
        """Receive an event of one of Punctual's kinds."""
        assert self._caches is not None
        try:
            self._caches.observe(plural, change, body)
        except InvariantError as error:
            self._fail(error)
        except Exception:
            # one unreadable object must not stop the others from being processed
            log.exception("object_rejected", kind=plural, name=body.get("metadata", {}).get("name"))

    # serving

    async def _serve(
        self, client: ApiClient, caches: Caches, stack: contextlib.AsyncExitStack, group: "_Tasks"
    ) -> tuple[int, int]:
        config, metrics, make = self._config, self._metrics, self._make
        probe_server = make.probe_server(metrics, healthy=self._unhealthy, ready=self._unready)
        metrics_port = await probe_server.start(port=config.metrics_port)
        stack.push_async_callback(probe_server.stop)
        store = ClusterCaStore(client, config.namespace, config.authority)
        rotation = make.rotation(store, service_names(config.service, config.namespace), client.clock)
        await _again_until_done(rotation.tend)
        group.begin(rotation.run())
        report_server = make.report_server(
            self._set_points,
            Reviewer(self._review(client), client.clock),
            self,
            clock=client.clock,
            account=config.agent,
            closed=metrics.closing("reports"),
        )
        caches.on_node_gone = report_server.forget
        report_port = await report_server.start(rotation.context, port=config.report_port)
        stack.push_async_callback(report_server.stop)
        if config.page_ports is not None:
            state = partial(self._reading, client.clock, caches)
            page_server = PageServer(state, Viewers(client), closed=metrics.closing("page"))
            port, loopback_port = config.page_ports
            await page_server.start(rotation.context, port=port, loopback_port=loopback_port)
            stack.push_async_callback(page_server.stop)
        self._watch(client.clock, caches, report_server, rotation)
        self.ports = (report_port, metrics_port)
        return self.ports

    def _watch(self, clock: ServerClock, caches: Caches, report_server: ReportServer, rotation: Rotation) -> None:
        metrics = self._metrics
        begin(metrics.refusals, *get_args(Refusal))
        ends = metrics.certificate_end
        ends.labels("authority").set_function(lambda: rotation.trust.signing.end if rotation.trust else 0.0)
        ends.labels("serving").set_function(lambda: rotation.serving.end if rotation.serving else 0.0)
        metrics.watch(names.LEADER, lambda: float(self.leading_epoch() is not None))
        metrics.watch(names.EPOCH, lambda: float(self._term.epoch if self._term else caches.directory.epoch))
        metrics.watch_age(names.TAKEOVER_BEGUN, lambda: self._term.taking_over if self._term else 0.0)
        metrics.watch_age(names.TAKEOVER_MOVED, lambda: self._term.stalled if self._term else 0.0)
        metrics.watch(names.POOLS_STOPPED, lambda: float(self._term.stopped if self._term else 0))
        metrics.watch_age(names.PLANNER_TICK, lambda: self._term.silent if self._term else 0.0)
        metrics.watch_age(names.CLOCK_DOUBT, lambda: clock.doubt)
        metrics.watch(names.WRITER_DEPTH, lambda: float(self._term.depth if self._term else 0))
        metrics.watch_age(names.WRITER_OLDEST, lambda: self._term.oldest_write if self._term else 0.0)
        metrics.watch(
            names.AGENTS_SILENT,
            lambda: float(
                len(report_server.silent(caches.inventory.owners())) if self.leading_epoch() is not None else 0
            ),
        )
        metrics.watch(names.REPORTED_QUOTA, report_server.quota)
        metrics.watch(names.REPORTED_DRIFT, report_server.drift)
        for informer in caches.informers:
            resource = informer.path.rpartition("/")[2]
            metrics.informer_heard.labels(resource).set_function(partial(_heard, informer))

    def _reading(self, clock: ServerClock, caches: Caches) -> Reading | None:
        """Return what the page shows. None: this replica does not lead."""
        if self._term is None or self.leading_epoch() is None:
            return None
        directory = caches.directory
        return Reading(clock.now(), self._term.views(), directory.jobs, directory.reservations, directory.rates)

    async def _measure_lag(self) -> None:
        """Measure the event-loop lag. While the loop is busy, events wait in sockets, where no queue counts them."""
        while True:
            due = time.monotonic() + LOOK
            await asyncio.sleep(LOOK)
            self._metrics.loop_lag.observe(max(0.0, time.monotonic() - due))

    def _review(self, client: ApiClient) -> Callable[[str], Any]:
        async def review(token: str) -> Identity | None:
            identity = identity_of(await client.review_token(token, (wire.AUDIENCE,)))
            self._metrics.token_reviews.labels("known" if identity else "unknown").inc()
            return identity

        return review

    # what the report server tells

    def heard(self, report: wire.Report) -> None:
        """Receive an accepted report."""
        self._metrics.reports.inc()
        if self._term:
            self._term.heard(report)

    def heard_another(self, epoch: int) -> None:
        """Lead on above an epoch that an agent has heard of another leader.

        If another replica leads by now, the Lease says so before it is acquired again. An epoch that is far away is
        approached in steps: one node that lies must not use all epochs up.
        """
        if self._term and self._elector:
            epoch = min(epoch, self._term.epoch + STEP)
            known = max(epoch, self._fall.known if self._fall else 0)
            self._fall = Fall(self._term.epoch, known, self._term.began)
            self._elector.begin_above(epoch)

    def count_refusal(self, reason: Refusal) -> None:
        """Count a refusal."""
        self._metrics.refusals.labels(reason).inc()
        if reason == "notLeading" and self._label:
            self._label.doubt()

    def leading_epoch(self) -> int | None:
        """Return the leader's epoch. None while this replica does not lead."""
        term, elector = self._term, self._elector
        return term.epoch if term is not None and elector is not None and elector.leads(term.epoch) else None

    def _unhealthy(self) -> str | None:
        if (term := self._term) is None:
            return None
        if term.stalled > STALLED:
            return f"the takeover has not read or written anything for {term.stalled:.1f} s"
        if term.silent <= HUNG and term.waiting <= BEGIN:
            return None
        return f"the planner has not ticked for {max(term.silent, term.waiting):.1f} s"

    def _unready(self) -> str | None:
        if self._elector is not None and (other := self._elector.other_installation):
            return describe(other)
        return None if self._caches is not None and self._caches.ready else "the caches are not filled yet"

    # leading

    def min_epoch(self) -> int:
        """Return the highest epoch that any status carries."""
        return self._caches.directory.epoch if self._caches else 0

    def lead(self, epoch: int) -> None:
        """Begin a term."""
        assert self._elector is not None
        assert self._given is not None
        fall = self._fall if self._elector.began_above(epoch) else None
        self._fall = None
        self._term = Term(epoch, self._given, self._elector, fall=fall)
        self._leading = asyncio.ensure_future(self._lead(self._term, self._leading))

    async def _lead(self, term: Term, before: asyncio.Task[None] | None) -> None:
        if before:
            await asyncio.gather(before, return_exceptions=True)
        self._show(leading=True)
        try:
            await term.run()
        except asyncio.CancelledError:
            pass  # the lease is lost, or the operator shuts down
        except BaseException as error:  # noqa: BLE001  any other error ends the process
            if self._elector and not self._elector.leads(term.epoch) and _is_fenced(error):
                # the writer may find the expired lease before the callback, and this replica may even lead again by now
                log.info("term_ended", epoch=term.epoch)
            else:
                self._fail(error)
        finally:
            self._show(leading=False)

    def follow(self) -> None:
        """Become a standby: the lease is lost, so another replica may lead and nothing may be written."""
        if self._leading:
            self._leading.cancel()
        self._term = None

    async def _retire(self) -> None:
        """Write the recorded decisions and end the term."""
        if self._leading is None:
            return
        if self._term and not self._leading.done():
            await self._term.retire(FLUSH)
        self.follow()
        await asyncio.gather(self._leading, return_exceptions=True)
        if self._label:
            await self._label.settled(LABEL)

    def _show(self, *, leading: bool) -> None:
        if self._label:
            self._label.show(leading=leading)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, StoreFellBack):
            self.follow()  # what was decided from a store that is no more must not be written
        if not self._ended.done():
            self._ended.set_exception(error)


class _Tasks:
    """Tasks that live as long as the replica. A failure of one is reported, and all are cancelled at the end."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._failed(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _see_epochs(client: ApiClient, caches: Caches) -> None:
    """Read the highest epoch that any object carries.

    If the Lease was deleted, the epochs of new terms must not start below it.
    """
    for resource in (POOLS, JOBS, RESERVATIONS, TARGET_RATES):
        async for page in walk(client, resource.path(), patience=_be_patient):
            for body in page.items:
                caches.directory.see_epoch((body.get("status") or {}).get("epoch") or 0)


def _is_fenced(error: BaseException) -> bool:
    """Return whether the only cause is that another replica leads."""
    return isinstance(error, BaseExceptionGroup) and error.split(Fenced)[1] is None


def _seen(ended: "asyncio.Future[None]") -> None:
    """Mark a second error as seen, so that asyncio does not log it after the first has ended the process."""
    if not ended.cancelled():
        ended.exception()


def _heard(informer: Informer[Any]) -> float:
    return time.time() - informer.staleness


async def _patiently(call: Callable[[], Any], stop: asyncio.Event) -> Any:
    """Call until the API server answers. Returns None when told to stop before."""
    while not stop.is_set():
        try:
            return await call()
        except ClusterError as error:
            log.warning("api_server_not_reached", error=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(error.retry_after):
                    await stop.wait()
    return None


async def _again_until_done(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except ClusterError as error:
            await _be_patient(error)
        else:
            return


async def _be_patient(error: ClusterError) -> None:
    log.warning("startup_delayed", error=str(error))
    await asyncio.sleep(error.retry_after)


def _log_as_json(level: str) -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper(), logging.INFO)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)  # kopf's and aiohttp's loggers


async def _serve(config: Config) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await Operator(config).run(stop)


def main() -> int:
    """Run until told to stop. Returns 1 for any other end."""
    try:
        config = Config.read(os.environ)
    except ValueError as error:
        sys.stderr.write(f"punctual-operator: {error}\n")
        return 2
    _log_as_json(config.log_level)
    allow_open_files()
    try:
        asyncio.run(_serve(config))
    except PunctualError as error:
        log.error("operator_failed", error=str(error), kind=type(error).__name__)  # noqa: TRY400
        return 1
    except BaseExceptionGroup as group:
        log.exception("operator_failed", error=str(group))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
