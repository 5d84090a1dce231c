"""The parts of a term, made and connected.

They are made from the bottom up: each knows only those made before it. Where a call goes the other way, it is one
function, given by name. Nothing runs yet, and nothing is decided here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from punctual.kube import api
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.directory import JOBS, RESERVATIONS, KnownJob, KnownReservation
from punctual.kube.cluster.events import EventRecorder
from punctual.kube.cluster.resources import NODES
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.holding.placeholders import Placeholders
from punctual.kube.holding.taints import Taints
from punctual.kube.leader.actors import PoolActors, PoolCore, Spawn
from punctual.kube.leader.changes import Changes
from punctual.kube.leader.executor import PoolExecutor, Tools
from punctual.kube.leader.guests import GuestExecutor, Guests
from punctual.kube.leader.jobs import Jobs
from punctual.kube.leader.outcomes import Outcomes
from punctual.kube.leader.pod_events import PodEvents
from punctual.kube.leader.pools import Pools
from punctual.kube.leader.profiles import Profiles
from punctual.kube.leader.promise_metrics import PromiseMetrics
from punctual.kube.leader.rates import Rates
from punctual.kube.leader.reservations import Reservations
from punctual.kube.leader.settled_jobs import SettledJobs
from punctual.kube.learning.profiles import ProfileLearning
from punctual.kube.metrics import Metrics
from punctual.kube.rates.executor import RateExecutor
from punctual.kube.rates.prometheus import Prometheus
from punctual.kube.takeover.fencing import Fence
from punctual.kube.takeover.job_results import JobResults
from punctual.kube.takeover.late import LateReader
from punctual.kube.takeover.restore import Restore
from punctual.kube.takeover.statuses import Statuses
from punctual.kube.takeover.takeover import Takeover
from punctual.kube.windows.controller import PoolAccess, WindowController
from punctual.kube.writes.keys import Key, NodeKey
from punctual.kube.writes.operations import Outcome, Patch
from punctual.kube.writes.writer import Writer
from punctual.scheduling.model.pool_spec import PoolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a term runs, asks and ends."""

    writer: Writer
    recorder: EventRecorder
    statuses: Statuses
    found: dict[Key, bytes]
    gate: AdmissionGate
    actors: PoolActors
    windows: WindowController
    jobs: Jobs
    pods: PodEvents
    reservations: Reservations
    rates: Rates
    guests: Guests
    pools: Pools
    settled_jobs: SettledJobs
    takeover: Takeover
    profiles: Profiles
    taints: Taints
    placeholders: Placeholders
    changes: Changes


def make_parts(
    epoch: int,
    *,
    client: ApiClient,
    trials: ApiClient,
    caches: Caches,
    metrics: Metrics,
    set_points: SetPointStore,
    instance: str,
    image: str,
    prometheus: str,
    core: Callable[[int], PoolCore],
    monotonic: Callable[[], float],
    leading: Callable[[], bool],
    leads: Callable[[], bool],
    spawn: Spawn,
    on_fenced: Callable[[], None],
) -> Parts:
    """Make the parts of a term.

    ``leading()`` returns whether this replica holds the Lease, ``leads()`` whether the term decides: not during the
    takeover. ``prometheus``: its address, or empty. ``on_fenced()`` is called when a newer leader has written.
    """
    directory, clock, placeholder_settings = caches.directory, client.clock, caches.placeholder_settings

    # made below, called later

    def take_outcome(outcome: Outcome) -> None:
        outcomes.take(outcome)

    def job_again(uid: str) -> None:
        jobs.again(uid)

    def job_was_read(known: KnownJob) -> None:
        pods.job_was_read(known)

    def reservation_changed(known: KnownReservation) -> None:
        jobs.reservation_changed(known)

    def put_in_force(pool: str, spec: PoolSpec) -> None:
        pools.put_in_force(pool, spec)
        jobs.put_in_force(pool, spec)
        rates.pool_changed(pool)

    def placeholder_refused(pool: str, message: str) -> None:
        pools.placeholder_refused(pool, message)

    def executor(pool: str) -> PoolExecutor:
        return PoolExecutor(pool, tools)

    def count_write(kind: str, result: str, seconds: float) -> None:
        metrics.writes.labels(kind, result).inc()
        metrics.write_seconds.observe(seconds)

    def write_taints(node: str, patch: list[Json]) -> None:
        writer.submit(NodeKey(node), Patch(NODES.path(name=node), patch))

    writer = Writer(
        client,
        on_outcome=take_outcome,
        on_fenced=on_fenced,
        leading=leading,
        on_write=count_write,
    )
    recorder = EventRecorder(client, controller="punctual.dev/operator", instance=instance, urgent=writer.caught_up)

    # what is on record
    found: dict[Key, bytes] = {}
    statuses = Statuses(clock.now(), recorder)
    results = JobResults(directory, recorder)
    learning = ProfileLearning(
        directory, lambda pool: known.pool.spec.speeds if (known := directory.pools.get(pool)) else api.NodeSpeeds()
    )
    fence = Fence(
        epoch,
        client,
        leading=leading,
        leave=statuses.leave_alone,
        forget=lambda resource, meta: caches.observe(resource.plural, "DELETED", {"metadata": meta}),
        monotonic=monotonic,
    )
    restore = Restore(
        client=client,
        fence=fence,
        caches=caches,
        statuses=statuses,
        learning=learning,
        results=results,
        found=found,
    )
    late = LateReader(fence, restore, statuses, directory)

    # what is written beside statuses
    promise_metrics = PromiseMetrics(metrics, clock.now)
    taints = Taints(directory.pools, write_taints)
    placeholders = Placeholders(placeholder_settings, writer.submit, placeholder_refused)

    # what changes
    actors = PoolActors(
        lambda: core(epoch),
        executor,
        clock=clock,
        metrics=metrics,
        spawn=spawn,
    )
    profiles = Profiles(directory, caches.inventory, learning, writer, now=clock.now, rewrite=actors.rewrite)
    guests = Guests(
        epoch,
        caches,
        lambda pool: GuestExecutor(pool, tools, guests.decided),
        recorder=recorder,
        clock=clock,
        metrics=metrics,
        spawn=spawn,
    )
    windows = WindowController(
        epoch,
        caches=caches,
        writer=writer,
        recorder=recorder,
        now=clock.now,
        doubted=lambda: clock.doubted,
        pools=PoolAccess(actors.tell, actors.runs, reservation_changed),
    )
    gate = AdmissionGate(
        trials,
        directory,
        caches.labels,
        job_again,
        claims=caches.claims,
        chunk_class=placeholder_settings.chunk_class,
        reserved=windows.of_job,
        learned=learning.of,
        nodes=caches.inventory.of,
        pods_of=caches.pods.of_job,
        image=image,
    )
    jobs = Jobs(
        epoch,
        caches=caches,
        statuses=statuses,
        gate=gate,
        late=late,
        actors=actors,
        guests=guests,
        writer=writer,
        recorder=recorder,
        promise_metrics=promise_metrics,
        results=results,
        now=clock.now,
        leads=leads,
        was_read=job_was_read,
        spawn=spawn,
        monotonic=monotonic,
    )
    pods = PodEvents(caches, statuses, jobs, actors, guests)
    reservations = Reservations(
        directory, statuses, windows, late, actors, leads=leads, spawn=spawn, caught_up=writer.caught_up
    )
    rate_executor = RateExecutor(
        epoch, directory=directory, set_points=set_points, writer=writer, recorder=recorder, now=clock.now
    )
    rates = Rates(
        caches,
        statuses,
        late,
        rate_executor,
        set_points,
        prometheus=Prometheus(prometheus, monotonic),
        monotonic=monotonic,
        doubted=lambda: clock.doubted,
        leads=leads,
        spawn=spawn,
    )
    pools = Pools(
        caches=caches,
        statuses=statuses,
        actors=actors,
        guests=guests,
        jobs=jobs,
        reservations=reservations,
        windows=windows,
        pods=pods,
        late=late,
        taints=taints,
        placeholders=placeholders,
        writer=writer,
        recorder=recorder,
        metrics=metrics,
        promise_metrics=promise_metrics,
        leads=leads,
        spawn=spawn,
    )
    settled_jobs = SettledJobs(
        caches,
        statuses,
        jobs,
        runs=actors.runs,
        reserved=windows.of_job,
        caught_up=writer.caught_up,
    )
    takeover = Takeover(
        fence,
        restore,
        statuses,
        directory,
        put_aside={JOBS: settled_jobs.put_aside, RESERVATIONS: reservations.put_aside},
        clock=clock,
        monotonic=monotonic,
    )

    # what is reported
    changes = Changes(
        jobs=jobs,
        pools=pools,
        reservations=reservations,
        rates=rates,
        pods=pods,
        actors=actors,
        guests=guests,
        taints=taints,
        placeholders=placeholders,
        writer=writer,
        leads=leads,
    )
    outcomes = Outcomes(
        directory=directory,
        actors=actors,
        guests=guests,
        jobs=jobs,
        pods=pods,
        pools=pools,
        reservations=reservations,
        rates=rates,
        windows=windows,
        results=results,
        placeholders=placeholders,
        taints=taints,
        promise_metrics=promise_metrics,
        recorder=recorder,
    )
    tools = Tools(
        epoch=epoch,
        now=clock.now,
        directory=directory,
        writer=writer,
        recorder=recorder,
        set_points=set_points,
        taints=taints,
        placeholders=placeholders,
        promise_metrics=promise_metrics,
        windows=windows,
        results=results.by_job,
        found=found,
        image=image,
        job_of=caches.pods.job_of,
        others=gate.others,
        refuse=jobs.refused,
        learn=profiles.measured,
        in_force=put_in_force,
        keep=caches.inventory.keep,
        chunk_class=placeholder_settings.chunk_class,
    )

    return Parts(
        writer=writer,
        recorder=recorder,
        statuses=statuses,
        found=found,
        gate=gate,
        actors=actors,
        windows=windows,
        jobs=jobs,
        pods=pods,
        reservations=reservations,
        rates=rates,
        guests=guests,
        pools=pools,
        settled_jobs=settled_jobs,
        takeover=takeover,
        profiles=profiles,
        taints=taints,
        placeholders=placeholders,
        changes=changes,
    )
