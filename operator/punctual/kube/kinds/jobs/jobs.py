"""The jobs of a term: which pool is told of each.

`consider` is where everything about a job leads: an edit, a change of what it names, the answer of the admission gate.
It tells the job's pool how the job is now, or writes that the pool does not exist. A Pool's own decisions never pass
here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
import structlog

from punctual.errors import NotFound, UserError
from punctual.guests.model import GuestDeleted
from punctual.kube import api
from punctual.kube.actors.actors import PoolActors
from punctual.kube.actors.guests import Guests
from punctual.kube.actors.pod_events import TermPods
from punctual.kube.actors.runners import Runners
from punctual.kube.actors.tools import Tools
from punctual.kube.api.conditions import transition_times
from punctual.kube.api.resources import CONFIG_MAPS, JOBS
from punctual.kube.cluster.client import Json
from punctual.kube.gate.admission_gate import AdmissionGate
from punctual.kube.kinds.jobs.settled import depends_on_others, is_due, put_aside, refused_at_edge
from punctual.kube.kinds.jobs.waiting import WaitingJobs
from punctual.kube.known.jobs import KnownJob
from punctual.kube.known.store import Signal
from punctual.kube.known.translate import to_record, undecided, without_decision
from punctual.kube.takeover.fencing import Fence
from punctual.kube.takeover.kind import Kind
from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import AddToConfigMap, ApplyConfigMap, CreatePod, Outcome, Patch, StartPod
from punctual.scheduling.chunks import ledger
from punctual.scheduling.model.events import JobApplied, JobDeleted
from punctual.scheduling.model.job import Job, JobRecord

SAME_TIME: Final = 2.0
"""Maximum seconds between the API server's clock as it is known here and the creation time of an object."""

log = structlog.get_logger(__name__)


class Jobs(Kind[KnownJob]):
    """All jobs."""

    unfinished = ",".join(f"status.state!={state}" for state in ("Refused", "Completed", "Missed", "Failed"))

    def __init__(
        self,
        tools: Tools,
        fence: Fence,
        gate: AdmissionGate,
        runners: Runners,
        *,
        actors: PoolActors,
        guests: Guests,
        pods: TermPods,
    ) -> None:
        super().__init__(tools.directory.jobs, tools.recorder)
        self._jobs = tools.directory.jobs
        self._tools = tools
        self._fence = fence
        self._gate = gate
        self._runners = runners
        self._actors = actors
        self._guests = guests
        self._pods = pods
        self._results = tools.results
        self._waiting = WaitingJobs(tools, gate)

    # takeover

    def put_aside(self, uid: str, body: Json | None) -> bool:
        """Put a job aside if it is settled, or oversized, and nothing of it is left to be done."""
        return put_aside(self._tools.caches, uid, body)

    async def restore(self, body: Json, unwritable: str) -> None:
        """Read a job's status, and read back its results. If that cannot be read, only this job is left alone."""
        await self._results.load(body, self._config_map)
        known = self.taken(body, unwritable)
        if found := self.store.get(body["metadata"]["uid"]):
            found.version = body["metadata"]["resourceVersion"]  # a watch may have told an older one
        if known is None:
            return
        try:
            status = api.parse_status(api.DivisibleJobStatus, body)
        except UserError as error:
            text = f"its status cannot be read, so the job is left alone: {error.message}"
            self.leave_alone(known, body, text)
            return
        if status is not None:
            known.term.transition_times = transition_times(c.manifest() for c in status.conditions)
            known.term.record = to_record(status)
            self._results.report_missing(known)
            self._tools.found[Key(JOBS, known.uid)] = orjson.dumps(body["status"])

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        path = CONFIG_MAPS.path(namespace=namespace, name=name)
        try:
            found = await self._fence.get(path)
        except NotFound:
            return None
        return found.get("data") or {}

    def begin(self) -> list[KnownJob]:
        """Return the jobs without a decision. Those with one were told to their pools."""
        wanted = [
            known
            for known in self.store.values()
            if known.term.pool is None and (known.term.aside is None or not known.settled)
        ]
        for known in wanted:
            self._tools.promise_metrics.seen(known.uid)
        return wanted

    def is_due(self, known: KnownJob) -> bool:
        """Return whether a job that was put aside ends by the clock, or the cause of its refusal may have changed."""
        return is_due(known, self._tools.caches, self._actors)

    def recorded(self, pool: str) -> list[Any]:
        """Return the jobs of a pool with a decision."""
        found: list[Any] = []
        for known in self.store.values():
            if known.owner.pool == pool and not undecided(known.term.record) and not known.deleting:
                job = known.term.job = self._gate.job(known, decided=True)
                assert job is not None
                known.term.pool = pool
                applied = self._guests.applied(known, job) if known.guest else JobApplied(job, known.term.record)
                found.append(applied)
        return found

    # changes

    def edited(self, known: KnownJob) -> None:
        """Take in that a job is new, edited or being deleted."""
        super().edited(known)
        self._tools.promise_metrics.seen(known.uid)

    def must_read(self, known: KnownJob) -> bool:
        """Return whether an earlier leader may have written about a job what was not read yet."""
        if known.deleting:
            return False
        if known.term.aside is not None:
            return True
        return not known.term.read and (known.epoch != 0 or known.created <= self._fence.begun + SAME_TIME)

    def found(self, known: KnownJob, *, aside: bool) -> None:
        """Tell the pods of a job, and log that it was missing in the takeover's list."""
        if known.term.record and not aside:
            log.warning("job_found_late", job=known.uid, namespace=known.namespace, name=known.name)
        self._pods.job_was_read(known)

    def touched_by(self, signal: Signal) -> Iterable[KnownJob]:  # noqa: PLR0911  one for each signal
        """Return the jobs with an answer that may be another one now."""
        match signal:
            case Signal("job", uid):
                return [known] if (known := self.store.get(uid)) else []
            case Signal("pool", pool):
                return [known for known in self._jobs.of_pool(pool) if self._depends_on_pool(known)]
            case Signal("profile", key):
                named = (k for k in self.store.values() if k.profile and f"{k.namespace}/{k.profile}" == key)
                return [known for known in named if depends_on_others(known)]
            case Signal("reservation", key):
                namespace, _, name = key.partition("/")
                return [known for known in self._jobs.inside(namespace, name) if depends_on_others(known)]
            case Signal("namespace", namespace):
                return [
                    known for known in self.store.values() if known.namespace == namespace and refused_at_edge(known)
                ]
            case Signal("claim", key):
                namespace, _, name = key.partition("/")
                quoted = f'"{name}"'.encode()  # its pods may run on other nodes now
                return [k for k in self.store.values() if k.namespace == namespace and quoted in k.spec]
        return ()

    def _depends_on_pool(self, known: KnownJob) -> bool:
        """Return whether a change of its pool may change a job's answer, or is to be told to its guests."""
        if depends_on_others(known) or known.guest:
            return True
        told = known.term.pool
        return known.term.aside is None if told is None else not self._actors.runs(told)

    def consider(self, known: KnownJob) -> None:
        """Tell the job's pool how the job is now, or the job that its pool does not exist."""
        pool, told = known.owner.pool, known.term.pool
        if known.deleting:
            self.gone(known)
            return
        if told is not None and told != pool:
            self._forget(known, told)
            known.term.pool = None
            known.term.record = _without_chunks(known.term.record)
        there = self._tools.directory.pools.named(pool)
        if there is not None and there.term.unstamped:
            return
        if not self._actors.runs(pool):
            known.term.pool = None
            self._waiting.miss_pool(known)
            return
        job = self._gate.job(known, decided=_is_decided(known))
        if job is None:
            return
        known.term.job = job
        self._tell(known, job, anew=told is None)

    def _tell(self, known: KnownJob, job: Job, *, anew: bool) -> None:
        """Tell a job's pool how the job is now. ``anew``: the pool does not know it."""
        pool, record = known.owner.pool, known.term.record
        known.term.pool = pool
        self._waiting.told(known)
        # the Pool cannot see that a job, new to it, was refused for something else than now
        ask = undecided(record) or (anew and refused_at_edge(known))
        if known.guest:
            self._guests.tell(pool, self._guests.applied(known, job))
        else:
            self._actors.tell(pool, JobApplied(job, without_decision(record) if ask else record))

    def gone(self, known: KnownJob) -> None:
        """Take in that a job is gone, or being deleted."""
        uid, tools, pool = known.uid, self._tools, known.term.pool
        known.term.aside = None
        self._gate.forget(uid)
        self._runners.gated.forget(uid)
        tools.caches.pods.expect(known.owner, tools.writer.forget(Key(JOBS, uid)))
        self._actors.settled(Key(JOBS, uid))
        self._guests.settled(Key(JOBS, uid))
        self._results.forget(uid)
        tools.promise_metrics.forget(uid)
        self._waiting.forget(uid)
        if pool is not None:
            known.term.pool = None
            self._forget(known, pool)
        tools.kinds.signal("left", f"{known.namespace}/{known.name}")

    def _forget(self, known: KnownJob, pool: str) -> None:
        """Tell a pool that a job is no longer its own."""
        if known.guest:
            self._guests.tell(pool, GuestDeleted(known.uid))
        else:
            self._actors.tell(pool, JobDeleted(known.uid))

    # writes

    def written(self, known: KnownJob, status: Json) -> None:
        """Take in that a job's status was written: its first decision is visible."""
        self._tools.promise_metrics.written(known.uid)
        if known.owner.batch:
            self._tools.kinds.signal("answer", known.uid)

    def wrote(self, outcome: Outcome) -> None:
        """Take in what became of a pod or of a result."""
        uid = outcome.key.name
        match outcome.operation:
            case CreatePod() | StartPod():
                for event in self._runners.runner_of(uid).settled(outcome):
                    self._pods.changed(uid, event)
            case ApplyConfigMap() | Patch() if outcome.result != "done":
                self._results.failed(uid, outcome)
            case AddToConfigMap() as write if outcome.result != "done":
                self._results.unreadable(uid, write, outcome.message)

    def tend(self) -> list[KnownJob]:
        """Write what jobs wait for. Returns those that have waited for their pool until their deadline."""
        return self._waiting.tend()


def _is_decided(known: KnownJob) -> bool:
    """Return whether no pod of a job is to be tried: it has an answer that stands."""
    record = known.term.record or JobRecord()
    promised = not undecided(known.term.record) and record.admitted is not None and record.admitted.status != "False"
    answered = record.refused is not None or record.goes_on
    stands = answered and record.observed_generation == known.generation
    # refused for want of processors: it only waits for its end
    return record.ended or promised or (stands and not refused_at_edge(known))


def _without_chunks(record: JobRecord | None) -> JobRecord | None:
    """Take its chunks back from a job that moves: they are on the other pool's nodes, which ends their pods."""
    if record is not None:
        for chunk in record.chunks:
            record = ledger.lose(record, chunk)
    return record
