"""What the edge knows of our kinds: the newest of each pool, job, reservation and profile, as the API server has them.

kopf's events and a new leader's lists fill it, on one loop, on each replica. It tells its listener what changed; a
leader's term reads the rest from it. A job's spec is kept as bytes: these take a
tenth of the memory of dicts, and only a new pod needs the spec. Statuses are not kept: a new leader reads them anew,
after its stamp.

A replica may lead more than once, and another replica may have decided in between. So each object has two parts. The
facts come from its body, and stay as long as the process runs. What a term has read from its status or decided is in
``term``, which is replaced as a whole before and after each term (`Directory.forget_term`). Only this module changes
facts, and a term changes nothing but ``term``.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Literal, NamedTuple

import orjson

from punctual import reasons
from punctual.control.cost_estimation import ClassSpeed
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.cluster.conditions import TransitionTimes
from punctual.kube.cluster.oversize import kept
from punctual.kube.cluster.pods import Owner
from punctual.kube.cluster.resources import Resource
from punctual.kube.format.duration import format_time, parse_time
from punctual.rates.model import UNRECORDED, Record
from punctual.scheduling.model.events import Share
from punctual.scheduling.model.job import Job, JobRecord

POOLS: Final = Resource(api.API_VERSION, "pools")
JOBS: Final = Resource(api.API_VERSION, "divisiblejobs")
PROFILES: Final = Resource(api.API_VERSION, "profiles")
RESERVATIONS: Final = Resource(api.API_VERSION, "reservations")
TARGET_RATES: Final = Resource(api.API_VERSION, "targetrates")

HIGHEST: Final = 2**30
"""Highest epoch that is believed: with an election a second it takes 34 years to get there. The number in
the Lease has 32 bits, so it leaves as many again above it, whatever number a status carries."""

ENDED: Final = "Ended"
"""Why a job is `settled` that has come to its end, well or not."""

Body = Mapping[str, Any]
WindowState = Literal["Booked", "Active", "Completed", "Refused"]
HELD: Final = frozenset({"Booked", "Active"})
"""States of a window that has processors reserved, now or later."""


@dataclass(slots=True)
class JobInTerm:
    """What a term has read or decided about a job."""

    job: Job | None = None
    """As the Pool was last told."""
    record: JobRecord | None = None
    """As the Pool last said, or as the term found it."""
    transition_times: TransitionTimes = field(default_factory=dict)
    """Its conditions."""


@dataclass(slots=True)
class KnownJob:
    """A job as it is now."""

    owner: Owner
    generation: int
    deleting: bool
    profile: str
    reservation: str
    spec: bytes
    """As the user wrote it, JSON; nothing where it has a flaw."""
    version: str
    """Its resource version when it was first seen or, later, stamped: its first status is written over this one."""
    flaw: str = ""
    """What is so wrong with it that its spec cannot even be kept."""
    epoch: int = 0
    """Of the leader that had last written its status when it was first seen; 0: no leader had."""
    created: float = 0.0
    """The API server's clock."""
    settled: str = ""
    """`settled` of its status as it was last seen."""
    guest: bool = False
    """It is of class Guest."""
    term: JobInTerm = field(default_factory=JobInTerm)

    @property
    def open(self) -> bool:
        """Whether its pool has to wait for it: promised, running or being measured."""
        record = self.term.record
        if self.deleting or record is None or record.ended:
            return False
        measuring = record.admitted is not None and record.admitted.reason == reasons.MEASURING
        return bool(record.promise or record.chunks) or measuring

    def template(self) -> Any:
        """Return the spec, with template and reduce, as the user wrote it."""
        return orjson.loads(self.spec)

    def manifest(self) -> dict[str, Any]:
        """Return the job without its status."""
        meta = {
            "name": self.owner.name,
            "namespace": self.owner.namespace,
            "uid": self.owner.uid,
            "generation": self.generation,
            "creationTimestamp": format_time(self.created),
        }
        return {"apiVersion": api.API_VERSION, "kind": "DivisibleJob", "metadata": meta, "spec": self.template()}


@dataclass(slots=True)
class PoolInTerm:
    """What a term has read or decided about a pool."""

    in_force: api.PoolSelectors
    """Which nodes, jobs and reservations it takes: as its spec says, or said before an edit that was refused or is not
    tested yet."""
    classes: Mapping[str, ClassSpeed] = field(default_factory=dict)
    """How the classes of its nodes compare."""
    transition_times: TransitionTimes = field(default_factory=dict)


@dataclass(slots=True)
class KnownPool:
    """A pool as it is now."""

    uid: str
    pool: api.Pool
    finalizers: tuple[str, ...]
    deleting: bool
    term: PoolInTerm


@dataclass(slots=True)
class ReservationWindow:
    """One window of a reservation, and how it stands."""

    start: float
    end: float
    state: WindowState | None = None
    """None: it has no answer yet."""
    reason: str = ""
    message: str = ""
    nodes: tuple[Share, ...] = ()
    offer: float | None = None
    """Of a refused one the start that would do."""

    @property
    def held(self) -> bool:
        """Whether its processors are reserved, now or later."""
        return self.state in HELD


@dataclass(slots=True)
class ReservationInTerm:
    """What a term has read or decided about a reservation."""

    windows: dict[str, ReservationWindow] = field(default_factory=dict)
    """By what the Pool calls each."""
    refusal: tuple[str, str] | None = None
    """(reason, message) of what the edge has against it: then no Pool is asked."""
    finished: float | None = None
    recorded: bool = False
    """A window that it holds is in its written status: what counts on it may be promised."""
    comes: float = inf
    """When its next window that is not asked about comes within the pool's horizon."""
    look: float = 0.0
    """When it has to be looked at by the clock alone."""
    transition_times: TransitionTimes = field(default_factory=dict)


@dataclass(slots=True)
class KnownReservation:
    """A reservation as it is now."""

    metadata: api.Metadata
    pool: str
    spec: api.ReservationSpec | None
    """None: it cannot be read; ``flaw`` tells why."""
    flaw: str
    deleting: bool
    term: ReservationInTerm = field(default_factory=ReservationInTerm)

    @property
    def held(self) -> bool:
        """Whether any of its windows is."""
        return any(window.held for window in self.term.windows.values())

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.metadata.uid

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and name."""
        return self.metadata.namespace, self.metadata.name


@dataclass(slots=True)
class RateInTerm:
    """What a term has read or decided about a TargetRate."""

    record: Record = UNRECORDED
    """What an earlier leader has left in its status."""
    transition_times: TransitionTimes = field(default_factory=dict)


@dataclass(slots=True)
class KnownRate:
    """A TargetRate as it is now."""

    metadata: api.Metadata
    spec: api.TargetRateSpec | None
    """None: it cannot be read; ``flaw`` tells why."""
    flaw: str
    deleting: bool
    term: RateInTerm = field(default_factory=RateInTerm)

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.metadata.uid


class Known(NamedTuple):
    """What tells whether an object is as it was known (many are asked about at once, so it is small)."""

    uid: str
    name: str
    namespace: str
    generation: int
    deleting: bool
    finalizers: tuple[str, ...] | None = None
    """None: they do not matter."""

    @property
    def metadata(self) -> dict[str, Any]:
        """Which object that is, as it says itself."""
        return {"uid": self.uid, "name": self.name, "namespace": self.namespace}


class Directory:
    """Pools and profiles by name, jobs, reservations and target rates by uid.

    Each ``observe`` tells whether it changed anything that matters.
    """

    def __init__(self) -> None:
        self.pools: dict[str, KnownPool] = {}
        self.jobs: dict[str, KnownJob] = {}
        self.profiles: dict[tuple[str, str], api.Profile] = {}
        self.reservations: dict[str, KnownReservation] = {}
        self.rates: dict[str, KnownRate] = {}
        self._named: dict[tuple[str, str], KnownReservation] = {}  # of each name the one that was created last
        self._inside: dict[tuple[str, str], dict[str, KnownJob]] = {}  # jobs that name a reservation, by that and uid
        self.on_job: Callable[[str], None] = lambda _: None
        """Hears of each job (uid) that was not known."""
        self.on_unsettled: Callable[[str], None] = lambda _: None
        """Called with the uid of each job that was `settled` when it was last seen, and is no longer."""
        self.epoch = 0
        """The highest epoch that any status carries. Only leaders may write those; an annotation of a pod says
        nothing."""
        self.on_epoch: Callable[[int], None] = lambda _: None
        """Hears when that rises."""
        self.on_unreadable: Callable[[str, str, str], None] = lambda _kind, _name, _why: None
        """Called with kind, name and reason for each pool and profile that the models refuse."""

    def forget_term(self) -> None:
        """Forget what a term has read or decided. What watches said stays."""
        for job in self.jobs.values():
            job.term = JobInTerm()
        for pool in self.pools.values():
            pool.term = PoolInTerm(pool.pool.spec)
        for reservation in self.reservations.values():
            reservation.term = ReservationInTerm()
        for rate in self.rates.values():
            rate.term = RateInTerm()

    def observe_job(self, body: Body) -> KnownJob | None:
        """Take in a job; None where nothing has changed but its status, or it is older than what is known."""
        self._see_epoch(body)
        meta = body["metadata"]
        known = self.jobs.get(meta["uid"])
        deleting = meta.get("deletionTimestamp") is not None
        generation = meta.get("generation", 0)
        # a list may have been newer than the event that comes now
        if known and (generation, deleting) <= (known.generation, known.deleting):
            if generation == known.generation:
                self._see_settled(known, settled(body))
            return None
        spec = body.get("spec") or {}
        units = spec.get("units")
        owner = Owner(
            meta["uid"],
            sys.intern(meta["namespace"]),
            meta["name"],
            sys.intern(str(spec.get("pool"))),
            units if isinstance(units, int) else 0,
        )
        packed, flaw = kept(body)
        profile, reservation = str(spec.get("profile") or ""), str(spec.get("reservation") or "")
        if known:
            known.owner, known.generation, known.deleting = owner, generation, deleting
            known.spec, known.profile, known.flaw = packed, profile, flaw
            self._leave_reservation(known)
            known.reservation = reservation
            self._join_reservation(known)
            known.settled = settled(body)
            return known
        self.jobs[owner.uid] = made = KnownJob(
            owner,
            generation,
            deleting,
            profile,
            reservation,
            packed,
            meta.get("resourceVersion", ""),
            flaw,
            _epoch(body),
            parse_time(meta["creationTimestamp"]) if "creationTimestamp" in meta else 0.0,
            settled(body),
            spec.get("class") == "Guest",
        )
        self._join_reservation(made)
        self.on_job(owner.uid)
        return made

    def _see_settled(self, known: KnownJob, now: str) -> None:
        was, known.settled = known.settled, now
        if was and not now:
            self.on_unsettled(known.owner.uid)

    def forget_job(self, uid: str) -> KnownJob | None:
        """Take in that a job is gone."""
        known = self.jobs.pop(uid, None)
        if known is not None:
            self._leave_reservation(known)
        return known

    def inside(self, namespace: str, reservation: str) -> list[KnownJob]:
        """Return the jobs that name a reservation."""
        return list(self._inside.get((namespace, reservation), {}).values())

    def _join_reservation(self, known: KnownJob) -> None:
        if known.reservation:
            self._inside.setdefault((known.owner.namespace, known.reservation), {})[known.owner.uid] = known

    def _leave_reservation(self, known: KnownJob) -> None:
        if known.reservation:
            key = known.owner.namespace, known.reservation
            del self._inside[key][known.owner.uid]
            if not self._inside[key]:
                del self._inside[key]

    def observe_pool(self, body: Body) -> KnownPool | None:
        """Take in a pool; None where nothing has changed but its status, or it cannot be read."""
        self._see_epoch(body)
        meta = body["metadata"]
        known = self.pools.get(meta["name"])
        if known and known.uid == meta["uid"]:
            old = known.pool.metadata
            deleting = meta.get("deletionTimestamp") is not None
            finalizers = tuple(meta.get("finalizers") or ())
            if (meta.get("generation", 0), deleting) < (old.generation, known.deleting):
                return None
            known.finalizers = finalizers
            if (meta.get("generation", 0), deleting) == (old.generation, known.deleting):
                return None
        try:
            pool = api.parse_asked(api.Pool, body)
        except UserError as error:
            self.on_unreadable("Pool", meta["name"], error.message)
            return None
        made = KnownPool(
            uid=pool.metadata.uid,
            pool=pool,
            finalizers=tuple(pool.metadata.finalizers),
            deleting=pool.metadata.deletion_timestamp is not None,
            term=known.term if known and known.uid == pool.metadata.uid else PoolInTerm(pool.spec),
        )
        self.pools[pool.metadata.name] = made
        return made

    def forget_pool(self, name: str) -> KnownPool | None:
        """Take in that a pool is gone."""
        return self.pools.pop(name, None)

    def observe_profile(self, body: Body) -> api.Profile | None:
        """Take in a profile; None where no cost has changed, or it cannot be read."""
        meta = body["metadata"]
        key = (meta["namespace"], meta["name"])
        try:
            profile = api.parse_asked(api.Profile, body)
        except UserError as error:
            self.on_unreadable("Profile", "/".join(key), error.message)
            return None
        known = self.profiles.get(key)
        self.profiles[key] = profile
        return None if known and known.spec == profile.spec else profile

    def forget_profile(self, namespace: str, name: str, uid: str) -> None:
        """Take in that a profile is gone. A list may have shown another of its name already."""
        known = self.profiles.get((namespace, name))
        if known is not None and known.metadata.uid == uid:
            del self.profiles[namespace, name]

    def observe_reservation(self, body: Body) -> KnownReservation | None:
        """Take in a reservation; None where nothing has changed but its status."""
        self._see_epoch(body)
        meta = api.parse_metadata(body)
        deleting = meta.deletion_timestamp is not None
        known = self.reservations.get(meta.uid)
        if known and (meta.generation, deleting) <= (known.metadata.generation, known.deleting):
            return None
        spec, flaw = None, ""
        try:
            spec = api.parse_asked(api.Reservation, body).spec
        except UserError as error:
            flaw = error.message
        if known:
            known.metadata, known.spec, known.flaw, known.deleting = meta, spec, flaw, deleting
            return known
        pool = spec.pool if spec else str((body.get("spec") or {}).get("pool"))
        self.reservations[meta.uid] = made = KnownReservation(meta, pool, spec, flaw, deleting)
        named = self._named.get(made.key)
        if named is None or named.metadata.creation_timestamp <= meta.creation_timestamp:
            self._named[made.key] = made
        return made

    def forget_reservation(self, uid: str) -> KnownReservation | None:
        """Take in that a reservation is gone."""
        known = self.reservations.pop(uid, None)
        if known is not None and self._named.get(known.key) is known:
            del self._named[known.key]
        return known

    def reservation(self, namespace: str, name: str) -> KnownReservation | None:
        """Return the reservation of that name; None: there is none, or it is being deleted."""
        known = self._named.get((namespace, name))
        return None if known is None or known.deleting else known

    def observe_rate(self, body: Body) -> KnownRate | None:
        """Take in a TargetRate; None where nothing has changed but its status."""
        self._see_epoch(body)
        meta = api.parse_metadata(body)
        deleting = meta.deletion_timestamp is not None
        known = self.rates.get(meta.uid)
        if known and (meta.generation, deleting) <= (known.metadata.generation, known.deleting):
            return None
        spec, flaw = None, ""
        try:
            spec = api.parse_asked(api.TargetRate, body).spec
        except UserError as error:
            flaw = error.message
        if known:
            known.metadata, known.spec, known.flaw, known.deleting = meta, spec, flaw, deleting
            return known
        self.rates[meta.uid] = made = KnownRate(meta, spec, flaw, deleting)
        return made

    def forget_rate(self, uid: str) -> KnownRate | None:
        """Take in that a TargetRate is gone."""
        return self.rates.pop(uid, None)

    def metadata(self, resource: Resource) -> dict[str, Known]:
        """Return what is known of a kind, by uid."""
        if resource is JOBS:
            known = [
                Known(j.owner.uid, j.owner.name, j.owner.namespace, j.generation, j.deleting)
                for j in self.jobs.values()
            ]
        elif resource is POOLS:
            known = [
                Known(p.uid, name, "", p.pool.metadata.generation, p.deleting, p.finalizers)
                for name, p in self.pools.items()
            ]
        elif resource in (RESERVATIONS, TARGET_RATES):
            objects = self.reservations if resource is RESERVATIONS else self.rates
            each = [(r.metadata, r.deleting) for r in objects.values()]
            known = [Known(m.uid, m.name, m.namespace, m.generation, deleting) for m, deleting in each]
        else:
            found = [p.metadata for p in self.profiles.values()]
            # that one is going is of no interest
            known = [Known(m.uid, m.name, m.namespace, m.generation, True) for m in found]
        return {one.uid: one for one in known}

    def see_epoch(self, epoch: int) -> None:
        """Take in an epoch that stands in a status; ignore one that no leader reaches."""
        if self.epoch < epoch <= HIGHEST:
            self.epoch = epoch
            self.on_epoch(epoch)

    def of_pool(self, pool: str) -> Iterator[KnownJob]:
        """Return the jobs that ask for a pool."""
        return (j for j in list(self.jobs.values()) if j.owner.pool == pool)

    def _see_epoch(self, body: Body) -> None:
        self.see_epoch(_epoch(body))


def settled(body: Body) -> str:
    """Return why a job needs no decision and holds nothing: `ENDED`, or the reason of its answer; else "".

    Its status is a leader's answer to the spec as it stands, and no promise, chunk or processor comes with that answer:
    it has ended, is refused, or was asked on trial. A status that is not what a leader writes is not settled.
    """
    status, meta = body.get("status"), body["metadata"]
    if not isinstance(status, dict) or meta.get("deletionTimestamp") is not None:
        return ""
    if ended(body):
        return ENDED
    if status.get("promise") or status.get("chunks") or status.get("observedGeneration") != meta.get("generation"):
        return ""
    said = _conditions(status).get("Admitted", {})
    answer, reason = said.get("status"), said.get("reason")
    if reason == reasons.POOL_NOT_FOUND and not status.get("finishTime"):
        return ""  # it waits for its pool, until its deadline
    if isinstance(reason, str) and (answer == "False" or (answer == "True" and reason == reasons.DRY_RUN)):
        return sys.intern(reason)
    return ""


def holds_nothing(body: Body) -> bool:
    """Whether a reservation is refused: its status answers its spec, and none of its windows has processors."""
    status, meta = body.get("status"), body["metadata"]
    if not isinstance(status, dict) or meta.get("deletionTimestamp") is not None:
        return False
    windows = status.get("windows") or []
    return (
        status.get("observedGeneration") == meta.get("generation")
        and _conditions(status).get("Admitted", {}).get("status") == "False"
        and isinstance(windows, list)
        and all(isinstance(window, dict) and window.get("state") == "Refused" for window in windows)
    )


def ended(body: Body) -> bool:
    """Whether a job or reservation has come to its end: nothing of it is written any more.

    A refused job is finished too, but an edit asks again: it has not ended.
    """
    status = body.get("status")
    if not isinstance(status, dict) or "finishTime" not in status:
        return False
    said = _conditions(status)
    return "Completed" in said or "Failed" in said or said.get("Admitted", {}).get("status") != "False"


def _conditions(status: Mapping[str, Any]) -> dict[Any, Mapping[str, Any]]:
    said = status.get("conditions")
    return {c.get("type"): c for c in said if isinstance(c, dict)} if isinstance(said, list) else {}


def _epoch(body: Body) -> int:
    return (body.get("status") or {}).get("epoch") or 0
