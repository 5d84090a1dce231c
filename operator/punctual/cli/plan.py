"""``punctual plan``: the answer that admission would give to a job, and how the job would run. Nothing is applied.

The answer is the Pool's own: a Pool is rebuilt from what the API server stores (:mod:`punctual.kube.snapshot`), gets
the job, and is discarded. This module reads the input and returns answers; :mod:`punctual.cli.plan_screen` draws them.
"""

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from punctual.cli.cluster_state import ClusterState
from punctual.cli.documents import documents
from punctual.errors import PunctualError, UserError
from punctual.kube import api
from punctual.kube.known.jobs import Owner
from punctual.kube.known.oversize import refusal
from punctual.kube.known.translate import job_status, pool_missing
from punctual.kube.snapshot import EPOCH, Snapshot, settle
from punctual.notation.duration import format_time, parse_time
from punctual.scheduling.model.events import JobApplied
from punctual.scheduling.model.job import Job, JobRecord, Kind
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.wording import listed, some
from punctual.scheduling.pool import Pool
from punctual.scheduling.view import PoolView

Json = dict[str, Any]
NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
STATE = {"Pool", "Profile", "Reservation", "Namespace"}
"""A saved state has an object of at least one of these kinds."""
SHOWN = 3
"""Maximum number of kinds that a message names."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk on a processor: of the job, or, if ``own`` is False, of another job. Absolute times, s."""

    place: Place
    kind: Kind
    begin: int
    end: int
    start: float
    until: float
    own: bool = True


@dataclass(frozen=True, slots=True)
class Unread:
    """What an answer leaves out because the user may not read it: jobs of other namespaces."""

    namespaces: tuple[str, ...]
    """The namespaces that were read."""
    busy: int
    """Processors of the pool on which chunks of other jobs run now."""
    processors: int
    """Number of the pool's processors."""


class Headroom(NamedTuple):
    """Headroom in the time of units: of the chunk that ends last, or of all units on one processor."""

    what: str
    """Which units, in words."""
    seconds: float
    """Their planned time, set-up and headroom included."""
    spare: float
    """Seconds of it that are headroom."""
    part: float
    """Part of each processor that the pool's plans leave free, in (0, 1)."""


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """The answer of admission to one job."""

    job: Job
    pool: str
    now: float
    record: JobRecord
    pieces: tuple[Piece, ...] = ()
    """The job's chunks in order of processors, then other jobs' chunks on these processors until the deadline."""
    left: int = 0
    """Units that are assigned when processors become free. No plan states the processors."""
    known: bool = False
    """A job of this name exists. The answer is as if it were deleted first."""
    more: int = 0
    """Processors that the pool does not have: the answer is as if they had joined it."""
    unread: Unread | None = None
    """What the answer leaves out. None: nothing."""
    headroom: Headroom | None = None
    """None: the pool has none, or the job's cost is not known."""
    margin: float | None = None
    """Seconds before the deadline by which the plan must end. None: nothing was planned."""

    @property
    def promised(self) -> bool:
        """Whether the deadline would be promised."""
        return self.record.admitted is not None and self.record.admitted.status == "True"

    def document(self) -> Json:
        """Return the answer as JSON, in the notation of statuses."""
        assert self.record.admitted is not None
        owner = Owner(self.job.uid, self.job.namespace, self.job.name, self.pool, self.job.units)
        status = job_status(self.record, self.job, owner=owner, transition_times={}, now=self.now)
        said, reason, message = self.record.admitted
        found: Json = {
            "name": self.job.name,
            "namespace": self.job.namespace,
            "pool": self.pool,
            "time": format_time(self.now),
            "admitted": said,
            "reason": reason,
            "message": message,
            "deadlineTime": format_time(self.job.deadline),
        }
        found |= {field: status[field] for field in ("promise", "offer", "cost") if field in status}
        if self.more:
            found["addedProcessors"] = self.more
        if own := [piece for piece in self.pieces if piece.own]:
            found["chunks"] = [_document(piece) for piece in own]
        if self.unread:
            found["unread"] = {"exceptNamespaces": list(self.unread.namespaces), "busyProcessors": self.unread.busy}
        return found


def _document(piece: Piece) -> Json:
    return {
        "kind": piece.kind,
        "begin": piece.begin,
        "end": piece.end,
        "node": piece.place.node,
        "processor": piece.place.slot,
        "createdTime": format_time(piece.start),
        "promisedEnd": format_time(piece.until),
    }


def plan(
    file: str, *, namespace: str | None, source: ClusterState | Path, moment: str | None = None, more: int = 0
) -> Sequence[JobAnswer]:
    """Answer the jobs of a file. ``source``: the cluster, or a file that its state was saved to.

    ``more``: processors that join each pool first.

    Raises PunctualError if the jobs or the state cannot be read.
    """
    now = _written(source) if isinstance(source, Path) else time.time()
    if moment is not None:
        try:
            now = parse_time(moment)
        except ValueError as error:
            raise PunctualError(f"--at: {error}") from error
    if namespace is None:
        namespace = "default" if isinstance(source, Path) else source.namespace()
    bodies = list(documents(_read(file), file))
    if not isinstance(source, Path):  # the defaults and the rules are the API server's
        bodies = source.tried([body for body in bodies if body.get("kind") == "DivisibleJob"]) or bodies
    asked = jobs(bodies, file, namespace=namespace, now=now)
    if isinstance(source, Path):
        return list(answers(_saved(source), asked, now=now, more=more))
    snapshot, namespaces = _fetch(source, asked)
    unread = {job.spec.pool: _unread(snapshot, job.spec.pool, namespaces) for job in asked}
    return [replace(answer, unread=unread[answer.pool]) for answer in answers(snapshot, asked, now=now, more=more)]


def _saved(file: Path) -> Snapshot:
    bodies = list(documents(_read(str(file)), str(file)))
    snapshot = Snapshot.of(bodies)
    if bodies and not any(body.get("kind") in STATE for body in bodies):
        raise PunctualError(f"{file}: holds {_kinds(bodies)}, expected pools and other kinds that --pool-state names")
    return snapshot


def _read(file: str) -> str:
    if file == "-" and sys.stdin is None:
        raise PunctualError("-: cannot be read: standard input is closed")
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PunctualError(f"{file}: cannot be read: {error}") from error


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError as error:
        raise PunctualError(f"{file}: cannot be read: {error.strerror}") from error


def jobs(bodies: Iterable[Json], source: str, *, namespace: str, now: float) -> list[api.DivisibleJob]:
    """Return the jobs among objects as they would be if they were created now.

    Raises PunctualError with the field if one is not valid, and with the kinds of the objects if none is a job.
    """
    bodies = list(bodies)
    found = [body for body in bodies if body.get("kind") == "DivisibleJob"]
    if not found:
        raise PunctualError(f"{source}: {f'holds {_kinds(bodies)}' if bodies else 'is empty'}, expected a DivisibleJob")
    return [_created(body, source, namespace, now) for body in found]


def _kinds(bodies: Iterable[Json]) -> str:
    """Return the kinds of objects for a message: "a ConfigMap", or "a ConfigMap, a Service and 2 more kinds"."""
    words = [str(body.get("kind") or "object without kind") for body in bodies]
    kinds = list(dict.fromkeys(word if word.replace(" ", "").isidentifier() else repr(word[:40]) for word in words))
    named = [f"{'an' if kind[0] in 'AEIOo' else 'a'} {kind}" for kind in kinds]
    if len(named) > SHOWN:
        named = [*named[: SHOWN - 1], some(len(named) - SHOWN + 1, "more kind")]
    return listed(named)


def _created(body: Json, source: str, namespace: str, now: float) -> api.DivisibleJob:
    given = body.get("metadata") or {}
    name = given.get("name") or given.get("generateName")
    if not name:
        raise PunctualError(f"{source}: metadata.name: is required")
    meta = {"name": name, "namespace": given.get("namespace") or namespace, "creationTimestamp": format_time(now)}
    meta["uid"] = f"planned {meta['namespace']}/{name}"
    if isinstance(name, str) and not NAME.fullmatch(name if given.get("name") else f"{name}x"):
        raise PunctualError(
            f"{source}: metadata.name: {name[:80]!r} is not a valid name: use at most 253 lower-case letters, digits, "
            "'-' and '.', with a letter or digit at both ends"
        )
    spec = body.get("spec")
    if flaw := refusal(len(json.dumps(spec, separators=(",", ":"), ensure_ascii=False).encode())):
        raise PunctualError(f"{source}: {flaw}")
    if isinstance(spec, dict) and spec.get("class") == "Guest":
        raise PunctualError(f"{source}: spec.class: a Guest has no deadline, so there is nothing to plan: apply it")
    if isinstance(spec, dict):  # answer as for the same job without these: it runs if it is promised
        spec = {field: value for field, value in spec.items() if field not in {"dryRun", "suspend", "onRefusal"}}
    manifest = {**body, "metadata": meta, "status": None, "spec": spec}
    try:
        model = api.parse(api.DivisibleJob, manifest)
        unknown = api.unknown_fields(api.DivisibleJob, manifest)
    except UserError as error:
        raise PunctualError(f"{source}: {error.message}") from error
    if unknown:
        raise PunctualError(f"{source}: {', '.join(unknown)}: a DivisibleJob has no such field")
    return model


def _fetch(cluster: ClusterState, asked: Sequence[api.DivisibleJob]) -> tuple[Snapshot, tuple[str, ...]]:
    """Read the objects that the operator decides by. Also return the namespaces that were read; (): all."""
    pools, namespaces = {job.spec.pool for job in asked}, {job.metadata.namespace for job in asked}
    found = cluster.objects(pools, namespaces)
    snapshot = Snapshot.of(found.bodies)
    for job in asked:
        namespace, pool = job.metadata.namespace, job.spec.pool
        if pool in snapshot.pools and snapshot.selector(pool) and namespace not in snapshot.namespaces:
            snapshot.add(cluster.labelled(namespace))
    return snapshot, () if found.whole else tuple(sorted(namespaces))


def _unread(snapshot: Snapshot, pool: str, namespaces: tuple[str, ...]) -> Unread | None:
    """Return what the answer of a pool leaves out. ``namespaces``: those that were read; (): all."""
    if not namespaces or pool not in snapshot.pools:
        return None
    status = snapshot.pools[pool].get("status") or {}
    processors = status.get("processors") or 0
    seen = [body for body in snapshot.jobs if (body.get("spec") or {}).get("pool") == pool]
    ours = sum(len((body.get("status") or {}).get("chunks") or ()) for body in seen)
    return Unread(namespaces, max(0, processors - (status.get("free") or 0) - ours), processors)


def answers(snapshot: Snapshot, asked: Iterable[api.DivisibleJob], *, now: float, more: int = 0) -> Iterator[JobAnswer]:
    """Evaluate one job after the other: a promised job takes its processors from the next ones.

    ``more``: processors that join each pool first.
    """
    pools: dict[str, Pool] = {}
    asked = list(asked)
    names = {(model.metadata.namespace, model.metadata.name) for model in asked}
    there = {(body["metadata"]["namespace"], body["metadata"]["name"]) for body in snapshot.jobs}
    for model in asked:
        name, known = model.spec.pool, (model.metadata.namespace, model.metadata.name) in there
        if name not in snapshot.pools:
            job = snapshot.job(model)
            yield JobAnswer(job, name, now, pool_missing(None, job, name, epoch=EPOCH, now=now), known=known)
            continue
        pool = pools.get(name) or snapshot.pool(name, now=now, without=names, more=more)
        pools[name] = pool
        yield replace(ask(pool, snapshot.job(model), name, now=now, known=known), more=more)


def ask(pool: Pool, job: Job, name: str, *, now: float, known: bool = False) -> JobAnswer:
    """Submit a job to a Pool that has no other user, and return its decision."""
    settle(pool, now, [JobApplied(job)])
    view = pool.view()
    own = [Piece(*work) for work in (*view.running(job.uid), *view.planned(job.uid))]
    own.sort(key=lambda piece: (piece.place.node, piece.place.slot, piece.start))
    places = {piece.place for piece in own}
    others = [
        Piece(*work, own=False)
        for uid, work in (*view.all_running(), *view.all_planned())
        if uid != job.uid and work.place in places and work.start < job.deadline
    ]
    left, reserve = view.unplaced(job.uid), view.reserve(job.uid)
    return JobAnswer(
        job,
        name,
        now,
        view.record(job.uid),
        (*own, *others),
        left,
        known,
        headroom=_headroom(view, job, [] if left or view.schedule == "Utilization" else own),
        margin=reserve and reserve.margin,
    )


def _headroom(view: PoolView, job: Job, own: Sequence[Piece]) -> Headroom | None:
    """Return the headroom in a job's plan. ``own``: its chunks; (): no plan says how many units each has."""
    cost, reserve = view.cost(job.uid), view.reserve(job.uid)
    if cost is None or reserve is None or not reserve.headroom:
        return None
    part = reserve.headroom
    chunks = [piece for piece in own if piece.kind == "Chunk"]
    if not chunks:
        spare = job.units * (cost.with_headroom(part).chi - cost.chi)
        return Headroom(f"{some(job.units, 'unit')} on one processor", cost.seconds(job.units) + spare, spare, part)
    last = max(chunks, key=lambda piece: (piece.until, piece.until - piece.start))
    speed = next((node.speed for node in view.nodes if node.name == last.place.node), 1.0)
    spare = (last.end - last.begin) * (cost.with_headroom(part).chi - cost.chi) * speed
    return Headroom(f"units {last.begin}-{last.end}", last.until - last.start, spare, part)
