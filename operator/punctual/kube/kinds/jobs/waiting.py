"""What is written about jobs that no Pool has decided: which answer they wait for, or that their pool does not exist.

A Pool's own decisions never pass here.
"""

from collections import Counter
from typing import Final

from punctual import reasons
from punctual.kube.actors.executor import status_write
from punctual.kube.actors.tools import Tools
from punctual.kube.api.resources import JOBS
from punctual.kube.cluster.events import Regarding
from punctual.kube.gate.admission_gate import OVERDUE, AdmissionGate
from punctual.kube.known.jobs import KnownJob
from punctual.kube.known.translate import delayed, pool_missing, undecided
from punctual.kube.writes.keys import Key
from punctual.scheduling.model.job import JobRecord

REPORTS: Final = 40
"""Maximum jobs of which one call of `WaitingJobs.tend` says that their Pool has not decided: as many as the writer's
rate for progress allows between two calls."""
_BEHIND: Final = "its Pool has not decided yet; jobs without an answer that came before it: "


class WaitingJobs:
    """The jobs of a term that wait."""

    def __init__(self, tools: Tools, gate: AdmissionGate) -> None:
        self._tools = tools
        self._gate = gate
        self._jobs = tools.directory.jobs
        self._asked: dict[str, float] = {}  # when a pool was told of a job that it has not decided, oldest first
        self._poolless: dict[str, float] = {}  # the deadlines of jobs that wait for their pool to appear

    def told(self, known: KnownJob) -> None:
        """Take in that a pool was told of a job."""
        self._poolless.pop(known.uid, None)
        if undecided(known.term.record):
            self._asked.setdefault(known.uid, self._tools.clock.monotonic())

    def forget(self, uid: str) -> None:
        """Forget a job."""
        self._asked.pop(uid, None)
        self._poolless.pop(uid, None)

    def miss_pool(self, known: KnownJob) -> None:
        """Write that the job's pool does not exist. The job waits for it until its deadline."""
        if known.term.record is not None and known.term.record.ended:
            return
        self._gate.forget(known.uid)
        known.term.job = self._gate.job(known, decided=True)
        if known.term.job is None:
            return
        before, tools = known.term.record or JobRecord(), self._tools
        record = pool_missing(before, known.term.job, known.owner.pool, epoch=tools.epoch, now=tools.now())
        self._poolless.pop(known.uid, None)
        if record.refused is None:
            self._poolless[known.uid] = known.term.job.deadline
        elif before.admitted != record.admitted and record.admitted is not None:
            tools.recorder.emit(Regarding.job(known.owner), "Warning", *record.admitted[1:])
        tools.promise_metrics.job(known, record)
        known.term.record = record
        self._write(known, record)

    def tend(self) -> list[KnownJob]:
        """Say of jobs that have waited long for the admission gate, or for their Pool, what their answer waits for.

        Returns the jobs that have waited for their pool until their deadline.
        """
        for uid, text in list(self._gate.overdue()):
            if known := self._jobs.get(uid):
                self._report_gate(known, text)
        self._report_undecided()
        now = self._tools.now()
        over = [uid for uid, deadline in self._poolless.items() if deadline <= now]
        return [known for uid in over if (known := self._jobs.get(uid))]

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
        late = self._tools.clock.monotonic() - OVERDUE
        for uid, since in list(self._asked.items()):
            known = self._jobs.get(uid)
            if known is None or known.term.pool is None or not undecided(known.term.record):
                del self._asked[uid]
                continue
            said = known.term.record.admitted if known.term.record else None
            if since <= late and not (said and said.message.startswith(_BEHIND)):
                overdue.append((known, f"{_BEHIND}{before[known.term.pool]}"))
            before[known.term.pool] += 1
        for known, text in overdue[-REPORTS:]:
            self._report_delay(known, text, urgent=False)

    def _report_delay(self, known: KnownJob, text: str, *, urgent: bool) -> None:
        assert known.term.job is not None
        said = known.term.record.admitted if known.term.record else None
        known.term.record = delayed(known.term.record, known.term.job, text, epoch=self._tools.epoch)
        if said is None or said.reason != reasons.ANSWER_DELAYED:
            self._tools.recorder.emit(Regarding.job(known.owner), "Warning", reasons.ANSWER_DELAYED, text)
        self._write(known, known.term.record, urgent=urgent)

    def _write(self, known: KnownJob, record: JobRecord, *, urgent: bool = True) -> None:
        assert known.term.job is not None
        write = status_write(known, known.term.job, record, now=self._tools.now(), urgent=urgent)
        self._tools.writer.submit(Key(JOBS, known.uid), write)
