"""A guest job, its nodes and their reports between the edge and :class:`punctual.guests.control.GuestControl`."""

from collections.abc import Iterable, Mapping
from typing import Any

from punctual import wire
from punctual.guests.estimates import UNKNOWN
from punctual.guests.model import ChunkSeen, Guest, GuestNode, HostSeen, NodeReported
from punctual.kube import api
from punctual.kube.cluster.nodes import Node
from punctual.kube.cluster.pod_manifest import memory_of
from punctual.linger.history import Episode, History
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.model.job import Job


def to_guest(job: Job, template: Mapping[str, Any], pool: api.PoolSpec) -> Guest:
    """Return a job of class Guest as its control knows it. ``template``: that of its pods."""
    cores = max(1.0, pool.processor.cpu)
    return Guest(
        uid=job.uid,
        namespace=job.namespace,
        name=job.name,
        units=job.units,
        cpu_per_unit=UNKNOWN if job.cost is None else job.cost.chi * pool.processor.cpu,
        most=job.max_processors,
        policy=pool.guests.policy,
        preview=pool.guests.preview,
        restart=job.restart,
        cores=cores,
        memory=(memory_of(template["spec"]) or pool.processor.memory) if job.refusal is None else 0,
        chunk_retries=job.chunk_retries,
        stall_timeout=job.stall_timeout,
        start_timeout=job.image_timeout,
        retention=job.retention,
        ttl=job.ttl,
        generation=job.generation,
        refusal=job.refusal,
        suspend=job.suspend,
    )


def to_nodes(observed: Iterable[NodeObserved], nodes: Mapping[str, Node]) -> tuple[GuestNode, ...]:
    """Return the nodes of a pool for its guests: all CPU of each, because its use counts, and free memory."""
    return tuple(
        GuestNode(
            seen.name,
            nodes[seen.name].allocatable.cpu,
            seen.memory,
            schedulable=seen.ready and seen.left_out is None and not seen.taints,
            speed=seen.speed,
        )
        for seen in observed
        if seen.name in nodes
    )


def to_report(node: str, host: wire.NodeReport, pods: Iterable[wire.PodReport]) -> NodeReported:
    """Return a node's report for its pool's guests. ``pods``: theirs."""
    lines = tuple(ChunkSeen(p.uid, p.done, p.end, p.cpu_seconds, p.memory_bytes or 0, over=p.over) for p in pods)
    return NodeReported(node, _host(host), lines, host.guest_excess)


def _host(host: wire.NodeReport) -> HostSeen | None:
    """Return what the hosts of a node use. None: its agent cannot hold guests down, or does not know yet."""
    seen = host.hosts
    if seen is None or not host.can_write or host.guest_priority is None:
        return None
    return HostSeen(use=_part(seen.used, seen), busy=seen.busy, age=seen.age, mean=_part(seen.mean, seen))


def note(history: History, now: float, seen: wire.Hosts) -> None:
    """Take what a report says of a node's CPU into its history."""
    history.see(
        now,
        hosts=_part(seen.used, seen),
        guests=_part(seen.guests, seen),
        episode=Episode(seen.age, _part(seen.mean, seen)) if seen.busy else None,
    )


def _part(cores: float, seen: wire.Hosts) -> float:
    """Return a use of a node as a fraction of it."""
    return min(1.0, cores / seen.cores)
