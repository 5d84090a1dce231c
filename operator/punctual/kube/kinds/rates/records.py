"""A TargetRate between its spec and status, and :class:`punctual.rates.control.RateControl`."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from punctual import reasons, wire
from punctual.control.rate import Limits
from punctual.kube import api
from punctual.kube.api.conditions import conditions
from punctual.kube.api.fields import BALANCED
from punctual.kube.cluster.caches import Caches
from punctual.kube.known.pools import KnownPool
from punctual.kube.known.rates import KnownRate
from punctual.kube.known.translate import not_allowed
from punctual.notation.quantity import format_cores
from punctual.rates.balanced import LEAST
from punctual.rates.model import (
    Member,
    MembersSeen,
    MemorySeen,
    PhaseSeen,
    PodsReported,
    RateApplied,
    RateStatus,
    Record,
    ReportedPod,
    TargetRate,
)
from punctual.verdict import Verdict

MOST: Final = 100.0
"""Highest rate that is shown, a part of the rate alone: counts may jump."""


def applied(known: KnownRate, caches: Caches) -> RateApplied:
    """Return what a TargetRate asks for."""
    meta, spec = known.metadata, known.spec
    name = f"{meta.namespace}/{meta.name}"
    if spec is None:
        flawed = TargetRate(
            uid=known.uid,
            name=name,
            created=meta.creation_timestamp,
            target=1.0,
            refusal=(reasons.INVALID_SPEC, known.flaw),
        )
        return RateApplied(flawed, known.term.record)
    pool = caches.directory.pools.named(spec.pool)
    asked = TargetRate(
        uid=known.uid,
        name=name,
        created=meta.creation_timestamp,
        target=LEAST if spec.rate == BALANCED else spec.rate,
        balanced=spec.rate == BALANCED,
        epsilon=spec.epsilon,
        limits=Limits(spec.period.min, spec.period.max),
        max_rate=spec.max_rate,
        query=spec.iterations.query if spec.iterations else None,
        aligned=spec.coscheduling == "Aligned",
        max_slice=pool.spec.max_slice if pool else 1.0,  # without a pool it is refused
        refusal=_refusal(spec.pool, pool, meta.namespace, caches.labels(meta.namespace)),
    )
    return RateApplied(asked, known.term.record)


def _refusal(name: str, pool: KnownPool | None, namespace: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    if pool is None:
        return reasons.POOL_NOT_FOUND, f"spec.pool: there is no Pool {name}: create it, and this is evaluated"
    selector = pool.term.in_force.namespace_selector
    if selector is not None and not selector.matches(labels):
        return not_allowed(name, namespace)
    return None


def members(known: KnownRate, caches: Caches) -> MembersSeen:
    """Return the pods that a TargetRate selects. Those of a node that is gone will be deleted, and do not count."""
    spec = known.spec
    if spec is None:
        return MembersSeen(known.uid, ())
    there = caches.applications.in_namespace(known.metadata.namespace)
    selected = [pod for pod, labels in there if caches.inventory.knows(pod.node) and spec.selector.matches(labels)]
    return MembersSeen(
        known.uid,
        tuple(
            Member(
                pod=pod.uid,
                name=pod.name,
                node=pod.node,
                cpu=pod.cpu,
                request=pod.request,
                running=pod.running,
                in_pool=caches.inventory.owner(pod.node) == spec.pool,
                cores=caches.inventory.cpus_of(pod.node),
            )
            for pod in selected
        ),
    )


def reported(report: wire.Report, pods: Iterable[wire.PodReport], *, at: float, epoch: int) -> PodsReported:
    """Return what a node's report, which came at ``at``, says of ``pods``, which are no chunk pods.

    Its moments are of this leader's clock only if its agent has heard this leader, which has ``epoch``.
    """
    heard = report.epoch == epoch
    seen = tuple(
        ReportedPod(
            pod=pod.uid,
            done=pod.done,
            written=pod.written,
            cap=pod.cap,
            period=pod.period,
            phase=_phase(pod) if heard else None,
            throttled=pod.throttled,
            memory=_memory(pod),
        )
        for pod in pods
        if not pod.over
    )
    clock = report.host.clock if heard else None
    return PodsReported(report.node, at, seen, clock.bound if clock else None, report.host.load)


def _phase(pod: wire.PodReport) -> PhaseSeen | None:
    if (seen := pod.phase) is None:
        return None
    return PhaseSeen(seen.begins, seen.half, seen.error, seen.age, seen.moves, seen.failed)


def _memory(pod: wire.PodReport) -> MemorySeen | None:
    seen = pod.memory
    return None if seen is None else MemorySeen(seen.used, seen.limit, seen.cause)


def to_record(status: api.TargetRateStatus) -> Record:
    """Return what an earlier leader has left."""
    on_target = any(c.type == "OnTarget" and c.status == "True" for c in status.conditions)
    return Record(
        status.target, status.max_rate, status.utilization, status.period, status.rate, on_target, status.offset
    )


def rate_status(known: KnownRate, status: RateStatus, *, epoch: int, now: float) -> dict[str, Any]:
    """Return a TargetRate's status as the API server takes it."""
    rate = None if status.rate is None else min(round(status.rate, 3), MOST)
    balanced = known.spec is not None and known.spec.rate == BALANCED
    error = None if rate is None or status.target is None or balanced else rate - status.target
    made = api.TargetRateStatus(
        epoch=epoch,
        observed_generation=known.metadata.generation,
        target=status.target,
        rate=rate,
        error=None if error is None else f"{100 * error:+.1f}%",
        quota=None if status.cap is None else format_cores(round(status.cap, 3)),
        utilization=status.utilization,
        period=status.period,
        offset=status.offset,
        skew=None if status.skew is None else round(status.skew, 6),
        load=status.load,
        max_rate=status.max_rate,
        pods=status.pods,
    )
    verdicts = {
        "Admitted": Verdict(*status.admitted),
        "OnTarget": Verdict(*status.on_target) if status.on_target else None,
        "Aligned": Verdict(*status.aligned) if status.aligned else None,
    }
    found = conditions(verdicts, known.term.transition_times, now=now, generation=known.metadata.generation)
    return {**made.manifest(), "conditions": found}
