"""``punctual submit`` and ``punctual cancel``: the commands that change something. kubectl does the writing.

Submitting is ``kubectl apply`` (``create`` for objects with ``generateName``), and waiting for the operator's answer.
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from punctual import reasons
from punctual.cli.kubectl import Follower, Kubectl
from punctual.cli.program import similar
from punctual.errors import ClusterError, PunctualError
from punctual.view.changes import Change, Json
from punctual.view.jobs import OFFERED, JobView, job_of

JOBS = "divisiblejobs.punctual.dev"
LOOK = 0.5
OFFER = 5.0
"""Seconds that a refused job's offer is awaited."""
PROMISED, REFUSED, SILENT = 0, 1, 2
"""Exit status of submit: all jobs are promised; one is refused, or has failed; one has no answer."""


@dataclass(slots=True)
class Submitted:
    """A job that was applied, and its newest state."""

    job: JobView
    changed: str
    """created, configured or unchanged."""
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
            if body.get("kind") == "DivisibleJob":
                meta = body["metadata"]
                old = before.get(meta["uid"])
                changed = "created" if old is None else "unchanged" if old == meta["generation"] else "configured"
                self.jobs[meta["uid"]] = Submitted(job_of(body), changed)

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
                    if isinstance(news, Change) and (one := self.jobs.get(news.body["metadata"]["uid"])):
                        if news.what == "DELETED":
                            raise PunctualError(
                                f"{one.job.namespace}/{one.job.name} was deleted before its answer came"
                            )
                        one.job = job_of(news.body)
                for one in self.jobs.values():
                    self._accept(one)

    def _open(self, now: float) -> list[Submitted]:
        """Return the jobs that still wait."""
        return [one for one in self.jobs.values() if not one.settled(now)]

    def _accept(self, one: Submitted) -> None:
        """Give a refused job the deadline that it is offered: once, and only if that is asked for."""
        if not self.accept or one.accepted or one.answer != REFUSED or not one.job.offered_time:
            return
        one.accepted, one.answered_at = True, None
        patch = json.dumps({"spec": {"deadline": None, "deadlineTime": one.job.offered_time}})
        words = "patch", JOBS, one.job.name, "--namespace", one.job.namespace, "--type=merge", "-p", patch, "-o", "json"
        one.job = job_of(json.loads(self.kubectl.run(*words)))


def _generated(text: str) -> bool:
    """Whether an object gets its name from the API server: kubectl can then only create it."""
    return any(line.strip().strip('",{').startswith("generateName") for line in text.splitlines())


def submit(file: str, *, kubectl: Kubectl, namespace: str | None, timeout: float, accept: bool) -> Submission:
    """Apply a file and wait for the answers to its jobs."""
    submission = Submission(kubectl, namespace, accept)
    submission.apply(_read(file))
    if not submission.jobs:
        raise PunctualError(f"{file}: was applied, but contains no DivisibleJob that could be answered")
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
