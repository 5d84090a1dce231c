"""``punctual submit`` and ``punctual cancel``: the commands that change something. kubectl does the writing.

Submitting is ``kubectl apply`` (``create`` for objects with ``generateName``), and waiting for the operator's answer.
To an ordinary Job with a deadline, that is the answer to its DivisibleJob, or in its annotations if it is flawed.
"""

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from punctual import reasons
from punctual.cli.kubectl import Follower, Kubectl
from punctual.cli.program import similar
from punctual.errors import ClusterError, PunctualError
from punctual.labels import DEADLINE, DEADLINE_TIME, MESSAGE, POOL_LABEL, STATE
from punctual.notation.duration import parse_duration, parse_time
from punctual.view.changes import Change, Json
from punctual.view.jobs import OFFERED, JobView, job_of

JOBS = "divisiblejobs.punctual.dev"
BATCH_JOBS = "jobs.batch"
LOOK = 0.5
OFFER = 5.0
"""Seconds that a refused job's offer is awaited."""
PROMISED, REFUSED, SILENT = 0, 1, 2
"""Exit status of submit: all jobs are promised; one is refused, or has failed; one has no answer."""


class Asking(NamedTuple):
    """An ordinary Job that asks for a deadline."""

    uid: str
    created: float
    due: float | None
    """None: it cannot be read here, or the Job has a time limit, too."""
    refused: str
    """Why it was refused when it was applied, if it was."""

    @classmethod
    def of(cls, body: Json) -> Self | None:
        """Return what a Job asks for. None: it asks for nothing."""
        meta = body["metadata"]
        notes, created = meta.get("annotations") or {}, parse_time(meta["creationTimestamp"])
        if POOL_LABEL not in (meta.get("labels") or {}) or not {DEADLINE, DEADLINE_TIME} & notes.keys():
            return None
        due = None
        try:
            if "activeDeadlineSeconds" not in body["spec"]:
                due = (
                    created + parse_duration(notes[DEADLINE]) if DEADLINE in notes else parse_time(notes[DEADLINE_TIME])
                )
        except ValueError:
            pass
        return cls(meta["uid"], created, due, _flaw(body))

    def is_asked_by(self, body: Json) -> bool:
        """Return whether a DivisibleJob asks for its deadline, and not for one before an edit."""
        asked = body["spec"].get("deadlineTime")
        return self.due is None or (asked is not None and abs(parse_time(asked) - self.due) < 1.0)


def _flaw(body: Json) -> str:
    """Return why a Job is refused, by its annotations."""
    notes = body["metadata"].get("annotations") or {}
    return str(notes.get(MESSAGE, "")) if notes.get(STATE) == "Refused" else ""


def _held(body: Json, flaw: str = "") -> JobView:
    """Return a Job as if it were its DivisibleJob: without an answer, or refused for a flaw."""
    meta, spec = body["metadata"], body["spec"]
    said = {"type": "Admitted", "status": "False", "reason": reasons.INVALID_SPEC, "message": flaw}
    status = {"state": "Refused", "conditions": [said]} if flaw else {}
    units = spec.get("completions") or 0
    return job_of({"metadata": {**meta, "generation": 0}, "spec": {"units": units}, "status": status})


@dataclass(slots=True)
class Submitted:
    """A job that was applied, and its newest state."""

    job: JobView
    changed: str
    """created, configured or unchanged."""
    asking: Asking | None = None
    """The ordinary Job that was applied, if it is one."""
    accepted: bool = False
    """Whether its deadline was replaced by the offered one."""
    answered_at: float | None = None

    @property
    def answer(self) -> int:
        """The exit status that it stands for."""
        job = self.job
        if self.ended:
            return PROMISED if job.kept else REFUSED
        admitted = job.conditions.get("Admitted")
        if not job.answered or admitted is None or admitted.status == "Unknown" or self.waits_for_pool:
            return SILENT
        return PROMISED if admitted.status == "True" else REFUSED

    @property
    def ended(self) -> bool:
        """Whether it has ended without an answer: all its work was measuring, or that has failed."""
        admitted = self.job.conditions.get("Admitted")
        return self.job.state in {"Completed", "Failed"} and admitted is not None and admitted.status == "Unknown"

    @property
    def waits_for_pool(self) -> bool:
        """Whether it has no answer because its pool does not exist."""
        return self.job.answered and self.job.state == "Waiting" and self.job.reason == reasons.POOL_NOT_FOUND

    def settled(self, now: float) -> bool:
        """Whether there is an answer, and with a refusal the offer, if one is to come; or none will come soon."""
        if self.waits_for_pool:
            return True
        if self.ended or self.answer != REFUSED:
            return self.answer != SILENT
        self.answered_at = self.answered_at or now
        searched = self.job.reason in OFFERED and self.job.offer_until is None
        return not searched or now >= self.answered_at + OFFER


@dataclass(slots=True)
class Submission:
    """The jobs of a file while they wait for their answers."""

    kubectl: Kubectl
    namespace: str | None
    accept: bool
    jobs: dict[str, Submitted] = field(default_factory=dict)
    """By uid."""

    def apply(self, text: str) -> None:
        """Apply the objects. Raises ClusterError with kubectl's words, PunctualError if none of them is a job."""
        where = ["--namespace", self.namespace] if self.namespace else []
        verb = "create" if _generated(text) else "apply"
        before = {} if verb == "create" else self._versions(text, where)
        found = json.loads(self.kubectl.run(verb, "-f", "-", "-o", "json", *where, stdin=text))
        for body in found["items"] if found.get("kind") == "List" else [found]:
            meta, asking = body["metadata"], Asking.of(body) if body.get("kind") == "Job" else None
            if asking or body.get("kind") == "DivisibleJob":
                old = before.get(meta["uid"])
                changed = "created" if old is None else "unchanged" if old == meta["generation"] else "configured"
                self.jobs[meta["uid"]] = Submitted(_held(body) if asking else job_of(body), changed, asking)

    def _versions(self, text: str, where: Sequence[str]) -> dict[str, int]:
        """Return the generations of the objects that exist already, by uid."""
        told = self.kubectl.run("get", "-f", "-", "--ignore-not-found", "-o", "json", *where, stdin=text)
        found: Json = json.loads(told) if told.strip() else {"kind": "List", "items": []}
        bodies = found["items"] if found.get("kind") == "List" else [found]
        return {body["metadata"]["uid"]: body["metadata"].get("generation", 0) for body in bodies}

    def wait(self, timeout: float) -> None:
        """Follow the jobs until each has its answer, or the time is over."""
        end = time.monotonic() + timeout
        spaces = {one.job.namespace for one in self.jobs.values()}
        space = next(iter(spaces)) if len(spaces) == 1 else None
        with Follower(self.kubectl, namespace=space, pods=False) as follower:
            while self._open(time.monotonic()) and time.monotonic() < end:
                for news in follower.wait(min(LOOK, max(0.0, end - time.monotonic()))):
                    if isinstance(news, Change) and (one := self._about(news.body)):
                        if news.what == "DELETED":
                            raise PunctualError(
                                f"{one.job.namespace}/{one.job.name} was deleted before its answer came"
                            )
                        one.job = job_of(news.body)
                for one in self.jobs.values():
                    self._look(one)
                    self._accept(one)

    def _about(self, body: Json) -> Submitted | None:
        """Return which job a DivisibleJob answers. None: none of these, or not as it was asked last."""
        meta = body["metadata"]
        uids = (meta["uid"], *(owner["uid"] for owner in meta.get("ownerReferences") or ()))
        one = next((self.jobs[uid] for uid in uids if uid in self.jobs), None)
        return one if one and (not one.asking or one.asking.is_asked_by(body)) else None

    def _look(self, one: Submitted) -> None:
        """Look whether an ordinary Job that has no DivisibleJob was refused for a flaw."""
        if one.asking is None or one.job.uid != one.asking.uid:
            return
        where = one.job.name, "--namespace", one.job.namespace
        body = self.kubectl.get(BATCH_JOBS, *where)
        flaw = _flaw(body)
        if not flaw or (one.changed == "configured" and flaw == one.asking.refused):
            return
        if not self.kubectl.run("get", JOBS, *where, "--ignore-not-found", "-o", "name").strip():
            one.job = _held(body, flaw)

    def _open(self, now: float) -> list[Submitted]:
        """Return the jobs that still wait."""
        return [one for one in self.jobs.values() if not one.settled(now)]

    def _accept(self, one: Submitted) -> None:
        """Give a refused job the deadline that it is offered: once, and only if that is asked for."""
        offered = one.job.offered_time
        if not self.accept or one.accepted or one.answer != REFUSED or not offered:
            return
        one.accepted, one.answered_at = True, None
        where = "--namespace", one.job.namespace, "--type=merge", "-o", "json"
        if one.asking is None:
            spec = {"deadline": None, "deadlineTime": offered}
            words = "patch", JOBS, one.job.name, *where, "-p", json.dumps({"spec": spec})
            one.job = job_of(json.loads(self.kubectl.run(*words)))
            return
        seconds = math.ceil(parse_time(offered) - one.asking.created)
        notes = {DEADLINE: f"{seconds}s", DEADLINE_TIME: None}  # a Job of a CronJob may have no moment
        words = "patch", BATCH_JOBS, one.job.name, *where, "-p", json.dumps({"metadata": {"annotations": notes}})
        body = json.loads(self.kubectl.run(*words))
        one.asking, one.job = Asking.of(body), _held(body)


def _generated(text: str) -> bool:
    """Whether an object gets its name from the API server: kubectl can then only create it."""
    return any(line.strip().strip('",{').startswith("generateName") for line in text.splitlines())


def submit(file: str, *, kubectl: Kubectl, namespace: str | None, timeout: float, accept: bool) -> Submission:
    """Apply a file and wait for the answers to its jobs."""
    submission = Submission(kubectl, namespace, accept)
    submission.apply(_read(file))
    if not submission.jobs:
        raise PunctualError(
            f"{file}: was applied, but contains no DivisibleJob, and no Job with a deadline, that could be answered"
        )
    submission.wait(timeout)
    return submission


def _read(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        with open(file, encoding="utf-8") as opened:  # noqa: PTH123  pathlib takes a while to import
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise PunctualError(f"{file}: cannot be read: {error}") from error


def status(submitted: Iterable[Submitted]) -> int:
    """Return the exit status for all of them: a job without an answer counts most."""
    return max((one.answer for one in submitted), default=PROMISED)


class Cancelled:
    """Jobs that are deleted, as they were last seen, and names without a job."""

    def __init__(self, names: Sequence[str], kubectl: Kubectl, namespace: str | None) -> None:
        """Delete the jobs. Raises ClusterError with kubectl's words if that fails."""
        where = ["--namespace", namespace] if namespace else []
        found = kubectl.get(JOBS, *where)
        there: Mapping[str, Json] = {body["metadata"]["name"]: body for body in found["items"]}
        self.missing = {name: similar(name, there) for name in dict.fromkeys(names) if name not in there}
        self.jobs = [job_of(there[name]) for name in dict.fromkeys(names) if name in there]
        if self.jobs:
            told = [job.name for job in self.jobs]
            try:
                kubectl.run("delete", JOBS, *told, *where, "--ignore-not-found")
            except ClusterError as error:
                raise ClusterError(f"{', '.join(told)}: {error}") from error
