"""The parts of a term, made and connected.

They are made from the bottom up: each knows only those made before it. Where a call goes the other way, it goes through
the loop over all kinds. Nothing runs yet, and nothing is decided here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from punctual import reasons
from punctual.kube import api
from punctual.kube.actors.actors import PoolActors, PoolCore, Spawn
from punctual.kube.actors.executor import PoolExecutor
from punctual.kube.actors.guests import GuestExecutor, Guests
from punctual.kube.actors.job_results import JobResults
from punctual.kube.actors.pod_events import PodEvents
from punctual.kube.actors.promise_metrics import PromiseMetrics
from punctual.kube.actors.tools import Tools
from punctual.kube.actors.unseen_pods import UnseenPods
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.api.resources import NODES, Resource
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.holding.placeholders import Placeholders
from punctual.kube.holding.taints import Taints
from punctual.kube.kinds.jobs.jobs import Jobs
from punctual.kube.kinds.pools.pools import Pools
from punctual.kube.kinds.profiles.profiles import Profiles
from punctual.kube.kinds.rates.prometheus import Prometheus
from punctual.kube.kinds.rates.rates import Rates
from punctual.kube.kinds.reservations.reservations import Reservations
from punctual.kube.leader.kinds import Kinds
from punctual.kube.learning.profiles import ProfileLearning
from punctual.kube.metrics import Metrics
from punctual.kube.takeover.fencing import Fence
from punctual.kube.takeover.late import LateReader
from punctual.kube.takeover.takeover import Takeover
from punctual.kube.writes.keys import taints_key
from punctual.kube.writes.operations import Outcome, Patch
from punctual.kube.writes.writer import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a replica gives to each of its terms."""

    client: ApiClient
    trials: ApiClient
    """For dry runs of pods alone."""
    caches: Caches
    metrics: Metrics
    set_points: SetPointStore
    instance: str
    image: str
    prometheus: str
    """Its address, or empty."""
    core: Callable[[int], PoolCore]
    monotonic: Callable[[], float]
    leading: Callable[[], bool]
    """Returns whether this replica holds the Lease."""
    leads: Callable[[], bool]
    """Returns whether the term decides: not during the takeover."""
    spawn: Spawn
    on_fenced: Callable[[], None]
    """Called when a newer leader has written."""
    on_outcome: Callable[[Outcome], None]
    """Called for each finished operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a term runs, asks and ends."""

    tools: Tools
    gate: AdmissionGate
    actors: PoolActors
    guests: Guests
    pods: PodEvents
    pools: Pools
    rates: Rates
    kinds: Kinds
    unseen: UnseenPods
    takeover: Takeover
    forget: Callable[[Resource, str], None]


def make_parts(epoch: int, given: Surroundings) -> Parts:
    """Make the parts of a term."""
    tools = _make_tools(epoch, given)
    caches, writer, spawn = given.caches, tools.writer, given.spawn
    fence = Fence(
        epoch,
        given.client,
        leading=given.leading,
        forget=caches.forget,
        now=tools.now,
        monotonic=given.monotonic,
    )
    kinds = Kinds(LateReader(fence), writer, leads=given.leads, spawn=spawn)
    gate = AdmissionGate(
        given.trials,
        caches,
        lambda uid: kinds.signal("job", uid),
        learned=tools.learning.of,
        image=given.image,
    )
    actors = PoolActors(
        lambda: given.core(epoch),
        lambda pool, tell: PoolExecutor(pool, tools, gate, kinds.carry_out, tell),
        clock=tools.clock,
        metrics=given.metrics,
        spawn=spawn,
    )
    guests = Guests(tools, lambda pool, tell: GuestExecutor(pool, tools, gate, kinds.carry_out, tell), spawn=spawn)
    pods = PodEvents(caches, actors, guests, kinds.signal)
    pools = Pools(tools, actors, guests, pods, recorded=kinds.recorded, signal=kinds.signal)
    rates = Rates(tools, Prometheus(given.prometheus, given.monotonic), spawn)
    kinds.order(
        (
            Profiles(tools, kinds.signal, actors.rewrite),
            pools,
            Reservations(tools, actors, kinds.signal),
            rates,
            Jobs(tools, fence, gate, actors=actors, guests=guests, pods=pods),
        )
    )
    return Parts(
        tools=tools,
        gate=gate,
        actors=actors,
        guests=guests,
        pods=pods,
        pools=pools,
        rates=rates,
        kinds=kinds,
        unseen=UnseenPods(given.client, writer, pods),
        takeover=Takeover(fence, tuple(kinds), clock=tools.clock, monotonic=given.monotonic),
        forget=caches.forget,
    )


def _make_tools(epoch: int, given: Surroundings) -> Tools:
    metrics, caches, directory = given.metrics, given.caches, given.caches.directory

    def count_write(kind: str, result: str, seconds: float) -> None:
        metrics.writes.labels(kind, result).inc()
        metrics.write_seconds.observe(seconds)

    def write_taints(node: str, patch: list[Json]) -> None:
        writer.submit(taints_key(node), Patch(NODES.path(name=node), patch))

    def report_refused_placeholder(pool: str, text: str) -> None:
        if known := directory.pools.get(pool):
            recorder.emit(
                Regarding.pool(known.name, pool), "Warning", reasons.POD_REFUSED, f"a placeholder was refused: {text}"
            )

    def speeds_of(pool: str) -> api.NodeSpeeds:
        return known.spec.speeds if (known := directory.pools.named(pool)) else api.NodeSpeeds()

    writer = Writer(
        given.client,
        on_outcome=given.on_outcome,
        on_fenced=given.on_fenced,
        leading=given.leading,
        on_write=count_write,
    )
    recorder = EventRecorder(
        given.client, controller="punctual.dev/operator", instance=given.instance, urgent=writer.caught_up
    )
    return Tools(
        epoch=epoch,
        clock=given.client.clock,
        monotonic=given.monotonic,
        image=given.image,
        caches=caches,
        writer=writer,
        recorder=recorder,
        set_points=given.set_points,
        metrics=metrics,
        promise_metrics=PromiseMetrics(metrics, given.client.clock.now),
        taints=Taints([known.name for known in directory.pools.values()], write_taints),
        placeholders=Placeholders(caches.placeholder_settings, writer.submit, report_refused_placeholder),
        results=JobResults(directory, recorder),
        learning=ProfileLearning(directory, speeds_of),
    )
