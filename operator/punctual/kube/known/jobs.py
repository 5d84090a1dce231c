"""What is known of jobs.

A spec is kept as bytes: these take a tenth of the memory of dicts, and only a new pod needs the spec.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from punctual import reasons
from punctual.kube import api
from punctual.kube.api.resources import JOBS
from punctual.kube.known.oversize import kept
from punctual.kube.known.store import Body, InTerm, Store, StoreListener, conditions_of, epoch_of
from punctual.notation.duration import format_time, parse_time
from punctual.scheduling.model.job import Job, JobRecord

ENDED: Final = "Ended"
"""Why a job is `settled` that has come to its end, well or not."""


class Owner(NamedTuple):
    """The job that a pod belongs to."""

    uid: str
    namespace: str
    name: str
    pool: str
    units: int
    batch: str = ""
    """Uid of the Job with its pods. Empty: the operator creates them."""


@dataclass(slots=True)
class JobInTerm(InTerm):
    """What a term has read or decided about a job."""

    job: Job | None = None
    """As the Pool was last told."""
    record: JobRecord | None = None
    """As the Pool last said, or as the term found it."""
    pool: str | None = None
    """The pool that was told of it."""


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
    owned: bool = True
    """The Job that `spec.jobRef` names, if it names one, owns it."""
    term: JobInTerm = field(default_factory=JobInTerm)

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.owner.uid

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.owner.namespace

    @property
    def name(self) -> str:
        """Its name."""
        return self.owner.name

    @property
    def open(self) -> bool:
        """Whether its pool has to wait for it: promised, running, on leftover capacity or being measured."""
        record = self.term.record
        if self.deleting or record is None or record.ended:
            return False
        measuring = record.admitted is not None and record.admitted.reason == reasons.MEASURING
        return bool(record.promise or record.chunks or record.goes_on) or measuring

    def forget_term(self) -> None:
        """Forget what a term has read or decided."""
        self.term = JobInTerm()

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


class JobStore(Store[KnownJob]):
    """All jobs."""

    def __init__(self, listener: StoreListener) -> None:
        super().__init__(JOBS, listener)
        self._inside: dict[tuple[str, str], dict[str, KnownJob]] = {}  # jobs that name a reservation, by that and uid
        self._of_batch: dict[str, KnownJob] = {}  # jobs with the pods of a Job, by its uid

    def of_pool(self, pool: str) -> Iterator[KnownJob]:
        """Return the jobs that ask for a pool."""
        return (j for j in list(self.values()) if j.owner.pool == pool)

    def of_batch(self, uid: str) -> KnownJob | None:
        """Return the job with the pods of a Job (uid)."""
        return self._of_batch.get(uid)

    def of_batches(self) -> Iterator[KnownJob]:
        """Return all such jobs."""
        return iter(self._of_batch.values())

    def inside(self, namespace: str, reservation: str) -> list[KnownJob]:
        """Return the jobs that name a reservation."""
        return list(self._inside.get((namespace, reservation), {}).values())

    def forget(self, uid: str) -> KnownJob | None:
        """Take in that a job is gone."""
        known = super().forget(uid)
        if known is not None:
            self._leave_reservation(known)
            self._leave_batch(known)
        return known

    def _add(self, made: KnownJob) -> bool:
        super()._add(made)
        self._join_reservation(made)
        self._join_batch(made)
        self._listener.job_is_new(made.uid)
        return True

    def _make(self, body: Body) -> KnownJob:
        meta, spec = body["metadata"], body.get("spec") or {}
        packed, flaw = kept(body)
        return KnownJob(
            owner=_owner(body),
            generation=meta.get("generation", 0),
            deleting=meta.get("deletionTimestamp") is not None,
            profile=str(spec.get("profile") or ""),
            reservation=str(spec.get("reservation") or ""),
            spec=packed,
            version=meta.get("resourceVersion", ""),
            flaw=flaw,
            epoch=epoch_of(body),
            created=parse_time(meta["creationTimestamp"]) if "creationTimestamp" in meta else 0.0,
            settled=settled(body),
            guest=spec.get("class") == "Guest",
            owned=_is_owned(body),
        )

    def _edit(self, known: KnownJob, body: Body) -> bool:
        made = self._make(body)
        self._leave_reservation(known)
        self._leave_batch(known)
        known.owner, known.generation, known.deleting = made.owner, made.generation, made.deleting
        known.spec, known.profile, known.flaw = made.spec, made.profile, made.flaw
        known.reservation, known.settled, known.owned = made.reservation, made.settled, made.owned
        self._join_reservation(known)
        self._join_batch(known)
        return True

    def _see_again(self, known: KnownJob, body: Body) -> None:
        was, known.settled = known.settled, settled(body)
        if was and not known.settled:
            self._listener.job_is_unsettled(known.uid)

    def _join_reservation(self, known: KnownJob) -> None:
        if known.reservation:
            self._inside.setdefault((known.namespace, known.reservation), {})[known.uid] = known

    def _leave_reservation(self, known: KnownJob) -> None:
        if known.reservation:
            key = known.namespace, known.reservation
            del self._inside[key][known.uid]
            if not self._inside[key]:
                del self._inside[key]

    def _join_batch(self, known: KnownJob) -> None:
        if known.owner.batch and known.owned:
            self._of_batch[known.owner.batch] = known

    def _leave_batch(self, known: KnownJob) -> None:
        if self._of_batch.get(known.owner.batch) is known:
            del self._of_batch[known.owner.batch]


def _is_owned(body: Body) -> bool:
    """Return whether a job has no `spec.jobRef`, or one of its owner of its own name, of which there is only one."""
    meta, ref = body["metadata"], (body.get("spec") or {}).get("jobRef")
    if not isinstance(ref, Mapping):
        return True
    owners = {(owner.get("name"), owner.get("uid")) for owner in meta.get("ownerReferences") or ()}
    return ref.get("name") == meta["name"] and (ref.get("name"), ref.get("uid")) in owners


def _owner(body: Body) -> Owner:
    meta, spec = body["metadata"], body.get("spec") or {}
    units, ref = spec.get("units"), spec.get("jobRef")
    return Owner(
        meta["uid"],
        sys.intern(meta["namespace"]),
        meta["name"],
        sys.intern(str(spec.get("pool"))),
        units if isinstance(units, int) else 0,
        str(ref.get("uid", "")) if isinstance(ref, dict) else "",
    )


def settled(body: Body) -> str:
    """Return why a job needs no decision and holds nothing: `ENDED`, or the reason of its answer; else "".

    Its status is a leader's answer to the spec as it stands, and no promise, chunk or processor comes with that answer:
    it has ended, is refused, or was asked on trial. A status that is not what a leader writes is not settled.
    """
    status, meta = body.get("status"), body["metadata"]
    if not isinstance(status, Mapping) or meta.get("deletionTimestamp") is not None:
        return ""
    if ended(body):
        return ENDED
    if status.get("promise") or status.get("chunks") or status.get("observedGeneration") != meta.get("generation"):
        return ""
    said = conditions_of(status).get("Admitted", {})
    answer, reason = said.get("status"), said.get("reason")
    waits = reason == reasons.POOL_NOT_FOUND or status.get("state") in {"Waiting", "Running"}
    if waits and answer == "False" and not status.get("finishTime"):
        return ""  # for its pool, until its deadline; or it goes on without a promise
    if isinstance(reason, str) and (answer == "False" or (answer == "True" and reason == reasons.DRY_RUN)):
        return sys.intern(reason)
    return ""


def ended(body: Body) -> bool:
    """Whether a job or reservation has come to its end: nothing of it is written any more.

    A refused job is finished too, but an edit asks again: it has not ended.
    """
    status = body.get("status")
    if not isinstance(status, Mapping) or "finishTime" not in status:
        return False
    said = conditions_of(status)
    return "Completed" in said or "Failed" in said or said.get("Admitted", {}).get("status") != "False"
