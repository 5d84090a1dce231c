"""The jobs of a term: which pool is told of each, and what is written about those that no pool decides about.

`consider` is where everything about a job leads: an edit, a change of what it names, the answer of the admission gate.
It tells the job's pool how the job is now, or writes into its status what it waits for: a pool that does not exist, an
answer that is late. A job that was not read yet is read first (`late`). A Pool's own decisions never pass here.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from punctual import reasons
from punctual.guests.model import GuestApplied, GuestDeleted
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.directory import KnownJob, KnownReservation
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.gate.admission_gate import OVERDUE, AdmissionGate
from punctual.kube.leader.actors import PoolActors, Spawn
from punctual.kube.leader.executor import status_write
from punctual.kube.leader.guests import Guests
from punctual.kube.leader.promise_metrics import PromiseMetrics
from punctual.kube.takeover.job_results import JobResults
from punctual.kube.takeover.late import LateReader
from punctual.kube.takeover.statuses import Statuses
from punctual.kube.translate import delayed, pool_missing, undecided, without_decision
from punctual.kube.writes.keys import JobKey
from punctual.kube.writes.writer import Writer
from punctual.scheduling.chunks import ledger
from punctual.scheduling.model.events import CreateRefused, JobApplied, JobDeleted
from punctual.scheduling.model.job import Job, JobRecord
from punctual.scheduling.model.pool_spec import PoolSpec

REPORTS: Final = 40
"""Maximum jobs of which one call of `Jobs.tend` says that their Pool has not decided: as many as the writer's rate for
progress allows between two calls."""
_BEHIND: Final = "its Pool has not decided yet; jobs without an answer that came before it: "

log = structlog.get_logger(__name__)


class Jobs:
    """All jobs of the directory, for one term.

    ``leads()`` returns whether anything is decided yet, or still. ``was_read(job)`` is called when a job was read after
    the takeover.
    """

    def __init__(
        self,
        epoch: int,
        *,
        caches: Caches,
        statuses: Statuses,
        gate: AdmissionGate,
        late: LateReader,
        actors: PoolActors,
        guests: Guests,
        writer: Writer,
        recorder: EventRecorder,
        promise_metrics: PromiseMetrics,
        results: JobResults,
        now: Callable[[], float],
        leads: Callable[[], bool],
        was_read: Callable[[KnownJob], None],
        spawn: Spawn,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epoch = epoch
        self._caches = caches
        self._directory = caches.directory
        self._statuses = statuses
        self._gate = gate
        self._late = late
        self._actors = actors
        self._guests = guests
        self._writer = writer
        self._recorder = recorder
        self._promise_metrics = promise_metrics
        self._results = results
        self._now = now
        self._leads = leads
        self._was_read = was_read
        self._spawn = spawn
        self._monotonic = monotonic
        self._pools: dict[str, str] = {}  # the pool that was told of a job, by uid
        self._asked: dict[str, float] = {}  # when a pool was told of a job that it has not decided, oldest first
        self._poolless: dict[str, float] = {}  # the deadlines of jobs that wait for their pool to appear

    def pool_of(self, uid: str) -> str | None:
        """Return the pool that was told of a job."""
        return self._pools.get(uid)

    def restored(self, pool: str) -> tuple[list[JobApplied], list[GuestApplied]]:
        """Return the jobs with a decision of a pool that starts, and its guest jobs with one."""
        jobs: list[JobApplied] = []
        guests: list[GuestApplied] = []
        for known in self._directory.of_pool(pool):
            if not undecided(known.term.record) and not known.deleting:
                known.term.job = self._gate.job(known, decided=True)
                assert known.term.job is not None
                self._pools[known.owner.uid] = pool
                if known.guest:
                    guests.append(self._guests.applied(known, known.term.job))
                else:
                    jobs.append(JobApplied(known.term.job, known.term.record))
        return jobs, guests

    # changes

    def begin(self) -> None:
        """Consider the jobs without a decision: the takeover is done."""
        for known in list(self._directory.jobs.values()):
            uid = known.owner.uid
            if uid not in self._pools and (uid not in self._statuses.aside or not known.settled):
                self._promise_metrics.seen(uid)
                self.consider(known)

    def changed(self, known: KnownJob) -> None:
        """Take in that a job is new, edited or being deleted."""
        self._statuses.left_alone.discard(known.owner.uid)
        self._promise_metrics.seen(known.owner.uid)
        self.consider(known)

    def gone(self, known: KnownJob) -> None:
        """Take in that a job is gone."""
        self._statuses.gone.add(known.owner.uid)
        self._drop(known)

    def pool_changed(self, pool: str) -> None:
        """Consider the jobs that a changed pool may answer otherwise."""
        for known in self._directory.of_pool(pool):
            if known.guest or self._statuses.depends_on_others(known):
                self.consider(known)

    def pool_stamped(self, pool: str) -> None:
        """Consider the jobs of a pool that could not be stamped before."""
        for known in self._directory.of_pool(pool):
            if known.owner.uid not in self._pools and known.owner.uid not in self._statuses.aside:
                self.consider(known)

    def selectors_changed(self, pool: str) -> None:
        """Consider the jobs that the admission gate refused, because the pool's spec in force selects others."""
        for known in self._directory.of_pool(pool):
            if self._statuses.refused_at_edge(known):
                self.consider(known)

    def put_in_force(self, pool: str, spec: PoolSpec) -> None:
        """Consider the jobs that the admission gate refused, if pods have another share of a processor now."""
        if self._gate.put_in_force(self._directory.pools[pool].uid, spec):
            self.selectors_changed(pool)

    def pool_gone(self, pool: str) -> None:
        """Consider the jobs of a pool that is gone."""
        for known in self._directory.of_pool(pool):
            self._pools.pop(known.owner.uid, None)
            self.consider(known)

    def profile_changed(self, namespace: str, name: str) -> None:
        """Consider the jobs that name a profile and have no promise yet."""
        for known in list(self._directory.jobs.values()):
            if (known.owner.namespace, known.profile) == (namespace, name) and self._statuses.depends_on_others(known):
                self.consider(known)

    def namespace_changed(self, namespace: str) -> None:
        """Consider the jobs of a namespace that the admission gate refused, because its labels changed."""
        for known in list(self._directory.jobs.values()):
            if known.owner.namespace == namespace and self._statuses.refused_at_edge(known):
                self.consider(known)

    def claim_changed(self, namespace: str, name: str) -> None:
        """Consider the jobs that mount a claim: their pods may run on other nodes now."""
        quoted = f'"{name}"'.encode()
        for known in list(self._directory.jobs.values()):
            if known.owner.namespace == namespace and quoted in known.spec:
                self.consider(known)

    def reservation_changed(self, reservation: KnownReservation) -> None:
        """Consider the jobs that wait for a reservation, or were refused because of it."""
        for known in self._directory.inside(*reservation.key):
            if self._statuses.depends_on_others(known):
                self.consider(known)

    def again(self, uid: str) -> None:
        """Consider a job (uid) that waited for the admission gate."""
        if known := self._directory.jobs.get(uid):
            self.consider(known)

    # one job

    def consider(self, known: KnownJob) -> None:
        """Tell the job's pool how the job is now, or the job that its pool does not exist."""
        uid, pool, statuses = known.owner.uid, known.owner.pool, self._statuses
        if not self._leads() or uid in statuses.left_alone:
            return  # an earlier leader's promise is not read (yet): the job would look undecided, and without a pool
        if known.deleting:
            self._drop(known)
            return
        if statuses.must_read(known):
            if not self._late.reads(uid):
                self._spawn(self.read_late(known))
            return
        told = self._pools.get(uid)
        if told is not None and told != pool:
            self._forget(known, told)
            del self._pools[uid]
            known.term.record = _without_chunks(known.term.record)
        if pool in statuses.unstamped:
            return
        if not self._actors.runs(pool):
            self._miss_pool(known)
            return
        job = self._gate.job(known, decided=self._is_decided(known))
        if job is None:
            return
        known.term.job = job
        self._tell(known, job, anew=told is None)

    def _tell(self, known: KnownJob, job: Job, *, anew: bool) -> None:
        """Tell a job's pool how the job is now. ``anew``: the pool does not know it."""
        uid, pool = known.owner.uid, known.owner.pool
        self._pools[uid] = pool
        self._poolless.pop(uid, None)
        if undecided(known.term.record):
            self._asked.setdefault(uid, self._monotonic())
        # the Pool cannot see that a job, new to it, was refused for something else than now
        ask = undecided(known.term.record) or (anew and self._statuses.refused_at_edge(known))
        if known.guest:
            self._guests.tell(pool, self._guests.applied(known, job))
        else:
            self._actors.tell(pool, JobApplied(job, without_decision(known.term.record) if ask else known.term.record))

    def _is_decided(self, known: KnownJob) -> bool:
        """Return whether no pod of a job is to be tried: it has an answer that stands."""
        record = known.term.record or JobRecord()
        promised = (
            not undecided(known.term.record) and record.admitted is not None and record.admitted.status != "False"
        )
        stands = record.refused is not None and record.observed_generation == known.generation
        # refused for want of processors: it only waits for its end
        return record.ended or promised or (stands and not self._statuses.refused_at_edge(known))

    async def read_late(self, known: KnownJob) -> None:
        """Read a job's status, then consider the job."""
        if await self._late.job(known):
            self.consider(known)
            self._was_read(known)

    def _drop(self, known: KnownJob) -> None:
        uid = known.owner.uid
        self._statuses.forget_job(uid)
        self._gate.forget(uid)
        self._caches.pods.expect(known.owner, self._writer.forget(JobKey(uid)))
        self._actors.settled(JobKey(uid))
        self._guests.settled(JobKey(uid))
        self._results.forget(uid)
        self._promise_metrics.forget(uid)
        self._asked.pop(uid, None)
        self._poolless.pop(uid, None)
        if (pool := self._pools.pop(uid, None)) is not None:
            self._forget(known, pool)

    def _forget(self, known: KnownJob, pool: str) -> None:
        """Tell a pool that a job is no longer its own."""
        uid = known.owner.uid
        if known.guest:
            self._guests.tell(pool, GuestDeleted(uid))
        else:
            self._actors.tell(pool, JobDeleted(uid))

    def refused(self, event: CreateRefused) -> None:
        """Take in that the API server refused a pod of a job."""
        pool = self._pools.get(event.job)
        if pool is not None and event.kind == "Guest":
            self._guests.tell(pool, event)
        elif pool is not None:
            self._actors.tell(pool, event)

    # statuses of jobs that no pool decides about

    def tend(self) -> None:
        """Say of jobs that have waited long for the admission gate, or for their Pool, what their answer waits for."""
        for uid, text in list(self._gate.overdue()):
            if known := self._directory.jobs.get(uid):
                self._report_gate(known, text)
        self._report_undecided()
        for uid, deadline in list(self._poolless.items()):
            if deadline <= self._now():
                self.again(uid)

    def _report_gate(self, known: KnownJob, text: str) -> None:
        """Write what the gate waits for. An earlier answer stands until there is another."""
        said = known.term.record.admitted if known.term.record else None
        if not undecided(known.term.record) or (said and (said.reason, said.message) == (reasons.ANSWER_DELAYED, text)):
            return
        known.term.job = self._gate.job(known, decided=True)
        self._report_delay(known, text, urgent=True)

    def _report_undecided(self) -> None:
        """Write onto jobs that have been with their Pool for long how many came before; the last ones first.

        They will wait longest. The answer replaces such a status while that waits to be written.
        """
        before: Counter[str] = Counter()
        overdue: list[tuple[KnownJob, str]] = []
        late = self._monotonic() - OVERDUE
        for uid, since in list(self._asked.items()):
            known, pool = self._directory.jobs.get(uid), self._pools.get(uid)
            if known is None or pool is None or not undecided(known.term.record):
                del self._asked[uid]
                continue
            said = known.term.record.admitted if known.term.record else None
            if since <= late and not (said and said.message.startswith(_BEHIND)):
                overdue.append((known, f"{_BEHIND}{before[pool]}"))
            before[pool] += 1
        for known, text in overdue[-REPORTS:]:
            self._report_delay(known, text, urgent=False)

    def _report_delay(self, known: KnownJob, text: str, *, urgent: bool) -> None:
        assert known.term.job is not None
        said = known.term.record.admitted if known.term.record else None
        known.term.record = delayed(known.term.record, known.term.job, text, epoch=self._epoch)
        if said is None or said.reason != reasons.ANSWER_DELAYED:
            self._recorder.emit(Regarding.job(known.owner), "Warning", reasons.ANSWER_DELAYED, text)
        self._write(known, known.term.record, urgent=urgent)

    def _miss_pool(self, known: KnownJob) -> None:
        """Write that the job's pool does not exist. The job waits for it until its deadline."""
        if known.term.record is not None and known.term.record.ended:
            return
        self._gate.forget(known.owner.uid)
        known.term.job = self._gate.job(known, decided=True)
        if known.term.job is not None:
            before, uid = known.term.record or JobRecord(), known.owner.uid
            record = pool_missing(before, known.term.job, known.owner.pool, epoch=self._epoch, now=self._now())
            self._poolless.pop(uid, None)
            if record.refused is None:
                self._poolless[uid] = known.term.job.deadline
            elif before.admitted != record.admitted and record.admitted is not None:
                self._recorder.emit(Regarding.job(known.owner), "Warning", *record.admitted[1:])
            self._promise_metrics.job(known, record)
            known.term.record = record
            self._write(known, record)

    def _write(self, known: KnownJob, record: JobRecord, *, urgent: bool = True) -> None:
        assert known.term.job is not None
        write = status_write(known, known.term.job, record, now=self._now(), urgent=urgent)
        self._writer.submit(JobKey(known.owner.uid), write)


def _without_chunks(record: JobRecord | None) -> JobRecord | None:
    """Take its chunks back from a job that moves: they are on the other pool's nodes, which ends their pods."""
    if record is not None:
        for chunk in record.chunks:
            record = ledger.lose(record, chunk)
    return record
