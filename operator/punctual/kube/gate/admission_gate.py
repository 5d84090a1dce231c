"""Checks jobs before they reach their Pool. A reason against a job is passed to the Pool as a refusal.

    namespaceSelector     the pool does not take jobs from this namespace
    jobRef                the Job that it names is not the owner
    profile               the one it names does not exist
    reservation           the one it names does not exist, or is refused
    dry-run create        quota, LimitRange, Pod Security or another admission plugin would refuse its pods
    size of its pods      they request more than a processor, or what no node has for each of its processors; those of
                          an ordinary Job are compared as they are

The dry run is made once a minute per namespace, template and processor. Meanwhile jobs wait here, not in the Pool, and
`overdue` names those that wait long. A job with a decision is not checked again: its promise stands.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import orjson

from punctual import reasons
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.cluster.batch_jobs import job_reference, nameless
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import ApiClient
from punctual.kube.cluster.pod_manifest import IMAGE, InputStep, chunk_pod, input_volumes
from punctual.kube.cluster.pod_needs import PodNeeds, pod_needs
from punctual.kube.cluster.requests import beside, cpu_limit, requested
from punctual.kube.gate.pod_size import not_offered, wrong_job_size
from punctual.kube.gate.trials import ANY, Trials
from punctual.kube.known.jobs import KnownJob, Owner
from punctual.kube.known.pools import KnownPool
from punctual.kube.known.translate import (
    cost_in_force,
    not_allowed,
    to_job,
    to_pool_spec,
    to_unreadable_job,
)
from punctual.profiles.learning import Learned
from punctual.scheduling.model.job import Chunk, Job, Kind, PodSize
from punctual.scheduling.model.node_rules import Fit
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import Resources

OVERDUE: Final = 15.0
"""Seconds that a job waits here before its status names the cause."""

Refusal = tuple[str, str] | None
"""The (reason, message) against a job. None: there is none."""


@dataclass(slots=True)
class _Wait:
    """A job that waits here."""

    since: float
    questions: list[bytes] = field(default_factory=list)
    """Keys of its trials. Without any, it waits for its reservation."""


class AdmissionGate:
    """Turns known jobs into jobs for the Pool. ``again(uid)`` is called when a waiting job may be tried again.

    ``trials`` is a client that nothing else uses.
    """

    def __init__(
        self,
        trials: ApiClient,
        caches: Caches,
        again: Callable[[str], None],
        *,
        learned: Callable[[str, str, str], Learned] = lambda _namespace, _profile, _pool: lambda _by_hand: None,
        image: str = IMAGE,
    ) -> None:
        self._caches = caches
        self._directory = caches.directory
        self._again = again
        self._learned = learned
        self._image = image
        self._clock = trials.clock
        self._trials = Trials(trials, self._answered)
        self._others: dict[str, dict[bool, Resources]] = {}  # by job; whether it is about the reduce's pod
        self._waiting: dict[str, _Wait] = {}  # by job
        self._asking: dict[bytes, set[str]] = {}  # jobs by the trial that they wait for

    def job(self, known: KnownJob, *, decided: bool) -> Job | None:
        """Return the job for the Pool. None: it waits, and ``again`` follows when its pods have been tried."""
        manifest = known.manifest()
        try:
            model = _read(manifest, known)
        except UserError as error:
            self.forget(known.owner.uid)
            return to_unreadable_job(api.parse_metadata(manifest), known.owner.units, error)
        found = self._directory.profiles.named(known.profile, known.namespace)
        profile = None if found is None else found.spec
        name, reservations = known.reservation, self._directory.reservations
        inside = reservations.inside(name, known.namespace, known.owner.pool) if name else None
        group = inside if isinstance(inside, str) else None
        learned = self._learned(known.owner.namespace, known.profile, known.owner.pool)
        pod = self._pod_size(known)
        made = partial(to_job, model, profile=profile, learned=learned, reservation=group, pod=pod)
        if decided:
            return made(in_force=cost_in_force(known.term.record), fit=self._fit(known, manifest["spec"]))
        pool = self._directory.pools.named(known.owner.pool)
        assert pool is not None
        refusal = self._not_allowed(known, pool.term.in_force.namespace_selector)
        if refusal is None and pod is not None:
            refusal = wrong_job_size(pod.requests, self._processor(pool).share)
        if refusal is None and known.reservation:
            if inside is None:
                self._wait(known).questions.clear()
                return None
            refusal = None if group else (inside[0], inside[1])
        if refusal is None:
            answered, refusal = self._tried(known, self._processor(pool))
            if not answered:
                return None
        self._waiting.pop(known.owner.uid, None)
        return made(refusal=refusal, fit=self._fit(known, manifest["spec"]))

    def _pod_size(self, known: KnownJob) -> PodSize | None:
        """Return what the pods of an ordinary Job take. None: the job has other pods, or the Job is gone."""
        batch = self._caches.batch.of_uid(known.owner.batch) if known.owner.batch else None
        if batch is None:
            return None
        spec = orjson.loads(batch.template)["spec"]
        return PodSize(requested(spec), cpu_limit(spec))

    def _fit(self, known: KnownJob, spec: Mapping[str, Any]) -> Fit:
        """Return which nodes the job's pods may run on, by the API server's last answer, otherwise by the template."""
        pool = self._directory.pools.named(known.owner.pool)
        step = InputStep.of(spec, image=self._image)
        needs = None
        if pool is not None:
            kind: Kind = "Guest" if known.guest else "Chunk"
            processor = self._processor(pool)
            answer = self._trials.last(_key(known, kind, spec["template"], step, processor))
            needs = _own(answer.needs, processor, spec["template"]["spec"]) if answer and answer.needs else None
        if needs is None:
            volumes = [*(spec["template"]["spec"].get("volumes") or ()), *(input_volumes(step) if step else ())]
            needs = pod_needs({**spec["template"]["spec"], "volumes": volumes}, planned_node=ANY)
        return self._caches.claims.fit(known.owner.namespace, needs)

    @staticmethod
    def _processor(pool: KnownPool) -> PoolSpec:
        return pool.term.spec or to_pool_spec(pool)

    def others(self, uid: str, kind: Kind, template: Mapping[str, Any], processor: PoolSpec) -> Resources | None:
        """Return what a pod of a job (uid) requests beside the work; None: just what its template's containers do.

        Known from the trial of its pods. For a job of an earlier leader's it is seen from the first pod that is too
        large.
        """
        known, reduce = self._others.get(uid, {}), kind == "Reduce"
        if kind != "Guest" and reduce not in known:
            same = (pod for pod in self._caches.pods.of_job(uid) if pod.requests and (pod.kind == "Reduce") == reduce)
            pod = next(same, None)
            if pod is not None and pod.requests and (excess := pod.requests - processor.share):
                spec = template["spec"]
                known = self._others.setdefault(uid, known)
                known[reduce] = beside(spec, spec["containers"][0]["name"]) + excess
        return known.get(reduce)

    def forget(self, uid: str) -> None:
        """Forget a job."""
        self._waiting.pop(uid, None)
        self._others.pop(uid, None)

    def overdue(self) -> Iterator[tuple[str, str]]:
        """Yield the jobs (uid) that have waited here for `OVERDUE` seconds, with the cause."""
        late = self._clock.monotonic() - OVERDUE
        for uid, wait in self._waiting.items():
            if wait.since > late:
                continue
            open_questions = [key for key in wait.questions if self._trials.answer(key, since=wait.since) is None]
            yield uid, self._trials.trouble(open_questions[0]) if open_questions else _NO_WINDOW

    async def close(self) -> None:
        """Cancel all running trials."""
        await self._trials.close()

    def _not_allowed(self, known: KnownJob, selector: api.LabelSelector | None) -> Refusal:
        if selector is None or selector.matches(self._caches.labels(known.namespace)):
            return None
        return not_allowed(known.owner.pool, known.owner.namespace)

    def _wait(self, known: KnownJob) -> _Wait:
        return self._waiting.setdefault(known.owner.uid, _Wait(self._clock.monotonic()))

    def _tried(self, known: KnownJob, processor: PoolSpec) -> tuple[bool, Refusal]:
        """Return whether every pod of the job has an answer of the API server, and the first refusal.

        All pods are tried at once. An answer that was given while the job waited for another one is valid.
        """
        spec = known.template()
        step = InputStep.of(spec, image=self._image)
        chunk: Kind = "Guest" if known.guest else "Chunk"
        kinds: list[tuple[Kind, Any, InputStep | None]] = [(chunk, spec["template"], step)]
        if reduce := spec.get("reduce"):
            kinds.append(("Reduce", reduce["template"], None))
        wait = self._waiting.get(known.owner.uid)
        since = wait.since if wait else self._clock.monotonic()
        questions = {_key(known, kind, template, step, processor): kind for kind, template, step in kinds}
        answers = {key: self._trials.answer(key, since=since) for key in questions}
        given = [answer for answer in answers.values() if answer]
        if len(given) == len(questions):
            refusal = next((a.refusal for a in given if a.refusal), None)
            if refusal is None and not known.guest and any(a.requests.others for a in given):
                rules = self._fit(known, spec).rules
                nodes = [
                    node for node in self._caches.inventory.events_of(known.owner.pool) if rules.objection(node) is None
                ]
                refusals = (not_offered(answer.requests, processor, nodes) for answer in given)
                refusal = next((found for found in refusals if found), None)
            added = ((kind == "Reduce", a.others) for kind, a in zip(questions.values(), given, strict=True))
            self._others[known.owner.uid] = {reduce: others for reduce, others in added if others is not None}
            return True, refusal
        self._wait(known).questions = list(questions)
        for key, kind in questions.items():
            if answers[key] is None:
                self._asking.setdefault(key, set()).add(known.owner.uid)
                pod = partial(self._pod, known.owner, known.spec, kind, processor)
                self._trials.ask(key, known.owner.namespace, pod, processor)
        return False, None

    def _pod(
        self, owner: Owner, spec: bytes, kind: Kind, processor: PoolSpec, others: Resources | None
    ) -> dict[str, Any]:
        """Return the pod that is tried for a job's chunks, or for its reduce."""
        asked = orjson.loads(spec)
        chunk = Chunk(
            begin=0, end=1, origin=1, node=ANY, attempt=0, kind=kind, created=0.0, promised_end=0.0, leftover=True
        )
        template = (asked["reduce"] if kind == "Reduce" else asked)["template"]
        step, chunk_class = InputStep.of(asked, image=self._image), self._caches.placeholder_settings.chunk_class
        pod = chunk_pod(
            owner, chunk, template, processor=processor, epoch=0, priority_class=chunk_class, step=step, others=others
        )
        if owner.batch:  # the Job's controller creates it: the chart's policy bounds only what the operator creates
            pod["metadata"]["ownerReferences"] = [job_reference(owner.name, owner.batch)]
        return pod

    def _answered(self, key: bytes) -> None:
        for uid in self._asking.pop(key, ()):
            self._again(uid)


_NOT_OWNED: Final = (
    "spec.jobRef: is set by Punctual alone, and names the Job in metadata.ownerReferences, which has the name of this "
    "job: leave it out, and give the Job the label punctual.dev/pool and the annotation punctual.dev/deadline"
)
_NO_WINDOW: Final = "the Reservation that it names has no answer yet"


def _own(needs: PodNeeds, processor: PoolSpec, template: Mapping[str, Any]) -> PodNeeds:
    """Return what pods need without the extended resources that they get only because their processor has them.

    An edit of the pool that takes these from its processors takes nothing from them.
    """
    given = {name for name, _ in processor.others} - {name for name, _ in requested(template).others}
    left = tuple(one for one in needs.rules.devices if one[0] not in given)
    return replace(needs, rules=replace(needs.rules, devices=left)) if given else needs


def _read(manifest: Mapping[str, Any], known: KnownJob) -> api.DivisibleJob:
    if known.flaw:
        raise UserError(reasons.INVALID_SPEC, known.flaw)
    if not known.owned:
        raise UserError(reasons.INVALID_SPEC, _NOT_OWNED)
    return api.parse(api.DivisibleJob, manifest)


def _key(
    known: KnownJob, kind: Kind, template: Mapping[str, Any], step: InputStep | None, processor: PoolSpec
) -> bytes:
    if known.owner.batch:
        template = nameless(template)  # so that Jobs of one kind are tried once
    of = (known.owner.namespace, known.owner.pool, bool(known.owner.batch))
    size = (processor.cpu, processor.share.cpu, processor.memory, processor.others, processor.hold)
    about = (*of, kind == "Guest", *size, template, step and tuple(step))
    return hashlib.blake2b(orjson.dumps(about, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
