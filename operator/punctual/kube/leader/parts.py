"""The parts of a term, made and connected.

They are made from the bottom up: each knows only those made before it. Where a call goes the other way, it goes through
the loop over all kinds. Nothing runs yet, and nothing is decided here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from punctual.kube import api
from punctual.kube.actors.actors import Life, PoolActors, PoolCore
from punctual.kube.actors.created_pods import UnseenPods
from punctual.kube.actors.guests import Guests
from punctual.kube.actors.job_results import JobResults
from punctual.kube.actors.placeholders import Placeholders
from punctual.kube.actors.pod_events import TermPods
from punctual.kube.actors.promise_metrics import PromiseMetrics
from punctual.kube.actors.runners import Runners
from punctual.kube.actors.taints import Taints
from punctual.kube.actors.tools import Tools
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import ApiClient
from punctual.kube.cluster.events import EventRecorder
from punctual.kube.cluster.pod_manifest import IMAGE
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.kinds.batch.batch import OrdinaryJobs
from punctual.kube.kinds.jobs.jobs import Jobs
from punctual.kube.kinds.pools.pools import Pools
from punctual.kube.kinds.profiles.profiles import Profiles
from punctual.kube.kinds.rates.prometheus import Prometheus
from punctual.kube.kinds.rates.rates import Rates
from punctual.kube.kinds.reservations.reservations import Reservations
from punctual.kube.known.translate import to_speeds
from punctual.kube.leader.kinds import Kinds
from punctual.kube.leader.lost_promises import LostPromises
from punctual.kube.metrics import Metrics
from punctual.kube.takeover.fencing import Fence
from punctual.kube.takeover.late import LateReader
from punctual.kube.takeover.takeover import Takeover
from punctual.kube.writes.writer import Writer, WriterOwner
from punctual.profiles.learning import AskedSpeeds, Learning
from punctual.scheduling.pool import Pool


class TermOwner(Life, WriterOwner, Protocol):
    """The term that the parts belong to."""


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
    image: str = IMAGE
    """The operator's, for the input step."""
    prometheus: str = ""
    """Its address, or empty."""
    core: Callable[[int], PoolCore] = Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a term runs, asks and ends."""

    tools: Tools
    gate: AdmissionGate
    actors: PoolActors
    guests: Guests
    pods: TermPods
    pools: Pools
    rates: Rates
    kinds: Kinds
    unseen: UnseenPods
    lost: LostPromises
    takeover: Takeover


def make_parts(epoch: int, given: Surroundings, term: TermOwner) -> Parts:
    """Make the parts of a term."""
    caches, writer = given.caches, Writer(given.client, term)
    fence = Fence(epoch, given.client, caches, term)
    kinds = Kinds(LateReader(fence), writer, term)
    tools = _make_tools(epoch, given, kinds, writer)
    gate = AdmissionGate(
        given.trials, caches, lambda uid: kinds.signal("job", uid), learned=tools.learning.for_job, image=given.image
    )
    runners = Runners(tools, gate)
    actors = PoolActors(lambda: given.core(epoch), tools, runners, term)
    guests = Guests(tools, runners, term)
    pods = TermPods(caches, actors, guests, kinds)
    pools = Pools(tools, actors, guests, pods)
    rates = Rates(tools, Prometheus(given.prometheus, tools.clock), term)
    kinds.order(
        (
            Profiles(tools, actors),
            pools,
            Reservations(tools, actors),
            rates,
            Jobs(tools, fence, gate, runners, actors=actors, guests=guests, pods=pods),
        ),
        (OrdinaryJobs(tools, runners.gated, actors),),
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
        unseen=UnseenPods(given.client, writer, term),
        lost=LostPromises(tools, given.client, term),
        takeover=Takeover(fence, tuple(kinds), tools.clock),
    )


def _make_tools(epoch: int, given: Surroundings, kinds: Kinds, writer: Writer) -> Tools:
    caches, directory, clock = given.caches, given.caches.directory, given.client.clock

    def speeds_of(pool: str) -> AskedSpeeds:
        return to_speeds(known.spec.speeds if (known := directory.pools.named(pool)) else api.NodeSpeeds())

    recorder = EventRecorder(
        given.client, controller="punctual.dev/operator", instance=given.instance, urgent=writer.caught_up
    )
    return Tools(
        epoch=epoch,
        kinds=kinds,
        clock=clock,
        image=given.image,
        caches=caches,
        writer=writer,
        recorder=recorder,
        set_points=given.set_points,
        metrics=given.metrics,
        promise_metrics=PromiseMetrics(given.metrics, clock),
        taints=Taints([known.name for known in directory.pools.values()], writer),
        placeholders=Placeholders(caches.placeholder_settings, clock, writer, recorder),
        results=JobResults(directory, recorder),
        learning=Learning(speeds_of),
    )
