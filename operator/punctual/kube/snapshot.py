"""A Pool rebuilt from objects as the API server shows them. It rebuilds like a new leader but writes nothing.

It contains neither the states of pods nor the sizes of nodes. The operator decides from statuses: each pool's status
has the number of processors of its nodes, and each job's has its running chunks with their ends. Called by ``punctual
plan``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from punctual import reasons
from punctual.errors import PunctualError, UserError
from punctual.kube import api
from punctual.kube.kinds.profiles import records as profile_records
from punctual.kube.kinds.reservations.records import restore
from punctual.kube.known.directory import Directory
from punctual.kube.known.oversize import kept
from punctual.kube.known.translate import (
    MOST_NODES,
    cost_in_force,
    not_allowed,
    to_job,
    to_pool_record,
    to_pool_spec,
    to_record,
    to_speeds,
    to_unreadable_job,
    undecided,
    without_decision,
)
from punctual.notation.duration import format_time
from punctual.profiles.learning import Learning
from punctual.profiles.samples import Samples
from punctual.scheduling.model.events import Event, JobApplied, NodeObserved, PoolApplied, ReservationApplied
from punctual.scheduling.model.job import Job, JobRecord
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.processors import node_with
from punctual.scheduling.model.resources import Resources
from punctual.scheduling.pool import Pool

Body = Mapping[str, Any]
ADDED = "(added)"
"""Node of the processors that a caller adds: no node of a cluster has such a name."""
EPOCH = 2**30
"""Not the epoch of a leader: nothing that such a Pool returns is ever written."""


@dataclass(slots=True)
class Snapshot:
    """Pools, jobs, profiles, reservations and namespaces at one moment."""

    pools: dict[str, Body] = field(default_factory=dict)
    jobs: list[Body] = field(default_factory=list)
    profiles: dict[tuple[str, str], Body] = field(default_factory=dict)
    reservations: Directory = field(default_factory=Directory)
    """Contains reservations only."""
    learning: Learning = field(init=False)
    """The costs that profiles have learned."""
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels by name."""

    def __post_init__(self) -> None:
        """Let what was learned be read as the pools' specs say."""
        self.learning = Learning(
            lambda name: to_speeds(self._pool(name).spec.speeds if name in self.pools else api.NodeSpeeds())
        )

    @classmethod
    def of(cls, bodies: Iterable[Body]) -> "Snapshot":
        """Create a snapshot of objects and lists of objects. Other kinds are ignored."""
        made = cls()
        for body in bodies:
            made.add(body)
        return made

    def add(self, body: Body) -> None:
        """Add one object. Raises PunctualError if it has no name. A file written by hand may lack many fields."""
        for one in objects(body):
            self._add(one)

    def _add(self, body: Body) -> None:
        kind, meta = body.get("kind"), body.get("metadata") or {}
        if not isinstance(kind, str) or kind not in {"Pool", "DivisibleJob", "Profile", "Reservation", "Namespace"}:
            return
        _check(body, kind, meta)
        name, namespace = str(meta["name"]), str(meta.get("namespace") or "default")
        match kind:
            case "Pool":
                self.pools[name] = body
            case "DivisibleJob":
                meta = {"uid": f"{namespace}/{name}", **meta, "namespace": namespace}
                self.jobs.append({**body, "metadata": meta})
            case "Profile":
                meta = {"uid": "", **meta, "namespace": namespace}
                self.profiles[namespace, name] = {**body, "metadata": meta}
                self._load(namespace, name)
            case "Reservation":
                meta = {"uid": f"{namespace}/{name}", **meta, "namespace": namespace}
                self._add_reservation({**body, "metadata": meta})
            case "Namespace":
                self.namespaces[name] = meta.get("labels") or {}

    def selector(self, pool: str) -> api.LabelSelector | None:
        """Return the selector of the namespaces that a pool serves. None: all namespaces."""
        return self._pool(pool).spec.namespace_selector

    def job(self, asked: api.DivisibleJob) -> Job:
        """Return a new job as its pool would get it, with any refusal by the admission gate."""
        namespace, pool = asked.metadata.namespace, asked.spec.pool
        profile = None
        if asked.spec.profile is not None and (body := self.profiles.get((namespace, asked.spec.profile))):
            profile = api.parse_asked(api.Profile, body)
        refusal = None
        selector = self.selector(pool) if pool in self.pools else None
        if selector is not None:
            if namespace not in self.namespaces:
                raise PunctualError(f"Pool {pool} has a namespaceSelector, and Namespace {namespace} is not known")
            if not selector.matches(self.namespaces[namespace]):
                refusal = not_allowed(pool, namespace)
        group = self._inside(namespace, asked.spec.reservation, pool)
        if isinstance(group, tuple):
            group, refusal = None, refusal or group
        learned = self.learning.for_job(namespace, asked.spec.profile or "", pool)
        return to_job(
            asked, profile=profile.spec if profile else None, learned=learned, refusal=refusal, reservation=group
        )

    def pool(self, name: str, *, now: float, without: Collection[tuple[str, str]] = (), more: int = 0) -> Pool:
        """Return a Pool with all promises, after it has answered all jobs that were due for an answer.

        ``without`` has jobs (namespace, name) to leave out. ``more``: free processors that then join the pool, on a
        node of their own that is open to all pods. Raises PunctualError if the pool cannot be planned from its
        status.
        """
        model = self._pool(name)
        try:
            status = api.parse_status(api.PoolStatus, self.pools[name])
        except UserError as error:
            raise PunctualError(f"Pool {name}: {error.message}") from error
        if status is None or not (status.applied or status.nodes):
            raise PunctualError(f"Pool {name} has no status to plan from: no operator has processed it yet")
        record = to_pool_record(name, status)
        spec = record.applied or to_pool_spec(model)
        known, new = self._jobs(name, without, now)
        deleting = model.metadata.deletion_timestamp is not None
        pool = Pool(EPOCH)
        pool.restore(now, [PoolApplied(spec, record, deleting), *_nodes(status, spec, known), *known])
        open_questions: list[Event] = [*self._promised(name, now), *new]
        settle(pool, now, open_questions)
        if more:
            settle(pool, now, [node_with(ADDED, more, spec)])
        return pool

    def _load(self, namespace: str, name: str) -> None:
        samples = Samples()
        self.learning.begin((namespace, name), samples)
        with suppress(UserError):  # the operator ignores it
            if status := api.parse_status(api.ProfileStatus, self.profiles[namespace, name]):
                profile_records.restore(samples, status)

    def _add_reservation(self, body: Body) -> None:
        known = self.reservations.reservations.observe({**body, "status": None})  # whatever its epoch
        try:
            status = api.parse_status(api.ReservationStatus, body)
        except UserError:
            return  # the operator ignores it
        if known and status:
            restore(known, status)

    def _promised(self, pool: str, now: float) -> Iterator[ReservationApplied]:
        for known in self.reservations.reservations.of_pool(pool):
            windows = known.term.windows
            nodes = frozenset(share.node for w in windows.by_name.values() for share in w.nodes)
            selects = known.spec is not None and known.spec.nodes is not None
            if not known.deleting:
                yield from windows.promised(known.asked, nodes if selects else None, now)

    def _inside(self, namespace: str, name: str | None, pool: str) -> str | tuple[str, str] | None:
        """Return the reservation window in which a job is to run, or a refusal. None: the job names no reservation."""
        if name is None:
            return None
        found = self.reservations.reservations.inside(name, namespace, pool)
        return found or (reasons.RESERVATION_REFUSED, f"Reservation {name} has no answer yet")

    def _pool(self, name: str) -> api.Pool:
        try:
            return api.parse_asked(api.Pool, self.pools[name])
        except UserError as error:
            raise PunctualError(f"Pool {name}: {error.message}") from error

    def _jobs(
        self, pool: str, without: Collection[tuple[str, str]], now: float
    ) -> tuple[list[JobApplied], list[JobApplied]]:
        """Return the pool's jobs: those with a decision, and the others."""
        known, new = [], []
        for found in self.jobs:
            meta = {"creationTimestamp": format_time(now), **found["metadata"]}
            body = {**found, "metadata": meta}
            if (body.get("spec") or {}).get("pool") != pool or meta.get("deletionTimestamp"):
                continue
            if (meta["namespace"], meta["name"]) in without or body["spec"].get("class") == "Guest":
                continue  # a guest job has no promise, and its chunks take no processor from one
            try:
                status = api.parse_status(api.DivisibleJobStatus, body)
            except UserError:
                continue  # the operator ignores such a job
            record = to_record(status) if status else None
            if undecided(record):
                new.append(JobApplied(self._known(body), without_decision(record)))
            else:
                known.append(JobApplied(self._known(body, record), record))
        return known, new

    def _known(self, body: Body, record: JobRecord | None = None) -> Job:
        namespace, name = body["metadata"]["namespace"], str(body["spec"].get("profile") or "")
        found = self.profiles.get((namespace, name))
        units = body["spec"].get("units")
        units = units if isinstance(units, int) else 1
        if flaw := kept(body).flaw:
            return to_unreadable_job(api.parse_metadata(body), units, UserError(reasons.INVALID_SPEC, flaw))
        try:
            model = api.parse_asked(api.DivisibleJob, body)
            group = self._inside(namespace, model.spec.reservation, model.spec.pool)
            profile = api.parse_asked(api.Profile, found) if found else None
            return to_job(
                model,
                profile=profile.spec if profile else None,
                learned=self.learning.for_job(namespace, name, model.spec.pool),
                in_force=cost_in_force(record),
                reservation=group if isinstance(group, str) else None,
            )
        except UserError as error:
            return to_unreadable_job(api.parse_metadata(body), units, error)


def objects(body: Any) -> Iterator[dict[str, Any]]:
    """Yield an object, or those of a list, at any nesting depth.

    Raises PunctualError if a value is not an object.
    """
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise PunctualError("is not a Kubernetes object")
    items = body.get("items")
    if items is None or not str(body.get("kind") or "List").endswith("List"):
        yield body
        return
    try:
        for one in items if isinstance(items, list) else [items]:
            yield from objects(one)
    except (PunctualError, RecursionError):  # also a list that contains itself
        raise PunctualError("items: an item is not a Kubernetes object") from None


def _check(body: Body, kind: str, meta: Body) -> None:
    if not isinstance(meta.get("name"), str) or not isinstance(meta.get("namespace") or "", str):
        raise PunctualError(f"the state has a {kind} without metadata.name, or metadata.namespace is not a string")
    for part, value in {**body, "metadata.labels": meta.get("labels")}.items():
        if part in {"spec", "status", "metadata.labels"} and not isinstance(value or {}, dict):
            raise PunctualError(f"the state's {kind} {meta['name']}: {part} is not an object (fields with values)")


def settle(pool: Pool, now: float, events: Iterable[Event] = ()) -> None:
    """Process the events and return when every answer and offer is made. The actions are not carried out."""
    pool.step(now, list(events))
    while pool.backlog:
        pool.step(now, [])


def _nodes(status: api.PoolStatus, spec: PoolSpec, jobs: Iterable[JobApplied]) -> list[NodeObserved]:
    """Return the nodes that the status names, just large enough for their number of processors.

    Nodes that are left out have none, and their reason.
    """
    counts = {node.name: node.processors for node in status.nodes}
    pods = {node.name: node.pods for node in status.nodes if node.pods is not None}
    speeds = {node.name: node.speed for node in status.nodes if node.speed}
    if len(counts) == MOST_NODES:  # the status names no more
        more: dict[str, int] = {}
        for applied in jobs:
            for chunk in (applied.record or JobRecord()).chunks:
                if chunk.node not in counts:
                    more[chunk.node] = more.get(chunk.node, 0) + 1
        counts |= more
        counts["other nodes"] = max(0, (status.processors or 0) - sum(counts.values()))
    left_out = {node.name: node.reason for node in status.nodes if node.reason and not node.processors}
    return [
        NodeObserved(
            name=name,
            ready=bool(n),
            left_out=left_out.get(name),
            cpu=n * spec.cpu,
            memory=pods.get(name, n) * spec.memory,
            others=(Resources(others=spec.others) * pods.get(name, n)).others,
            pods=pods.get(name, n),
            speed=speeds.get(name, 1.0),
        )
        for name, n in counts.items()
        if n or name in left_out
    ]
