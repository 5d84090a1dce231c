"""How a job gets to its Pool: what the edge knows against it is found out before, and goes along as a refusal.

    namespaceSelector     the pool does not take jobs from this namespace
    profile               the one it names does not exist
    reservation           the one it names does not exist, or is refused
    dry-run create        quota, LimitRange, Pod Security or another admission plugin would not have its pods

Whether pods would be let through is asked once a minute per namespace, template and processor; meanwhile jobs wait
here, not in the Pool. A job that is decided already is not asked about again: its promise stands.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

import orjson
import structlog

from punctual import reasons
from punctual.errors import ClusterError, Forbidden, Invalid, NoRight, NotFound, UserError
from punctual.kube import api
from punctual.kube.client import PODS, RIGHTS, ApiClient
from punctual.kube.convert import (
    Learned,
    cost_in_force,
    not_allowed,
    to_job,
    to_pool_spec,
    to_unreadable_job,
)
from punctual.kube.directory import Directory, KnownJob
from punctual.kube.podspec import IMAGE, InputStep, chunk_pod
from punctual.scheduling.job import Chunk, Job, Kind
from punctual.scheduling.spec import PoolSpec

KEPT: Final = 60.0
"""Seconds that the API server's answer about a template is relied on."""
MOST: Final = 4096
"""Answers kept."""

log = structlog.get_logger(__name__)

Answer = tuple[str, str] | None
"""None: the pods would be let through."""


class Intake:
    """Turns known jobs into what the Pool is told; ``again(uid)`` hears when a job that waited may be tried anew."""

    def __init__(
        self,
        client: ApiClient,
        directory: Directory,
        labels: Callable[[str], Mapping[str, str]],
        again: Callable[[str], None],
        *,
        chunk_class: str = "",
        reserved: Callable[[KnownJob], str | tuple[str, str] | None] = lambda _: None,
        learned: Callable[[str, str, str], Learned] = lambda _namespace, _profile, _pool: lambda _spec: None,
        image: str = IMAGE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._image = image
        self._client = client
        self._chunk_class = chunk_class
        self._directory = directory
        self._labels = labels
        self._again = again
        self._reserved = reserved
        self._learned = learned
        self._monotonic = monotonic
        self._answers: dict[bytes, tuple[float, Answer]] = {}
        self._waiting: dict[bytes, set[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def job(self, known: KnownJob, *, decided: bool) -> Job | None:
        """Return the job to tell the Pool of; None: ``again`` follows when it is known whether its pods may be."""
        manifest = known.manifest()
        try:
            model = _read(manifest, known.flaw)
        except UserError as error:
            return to_unreadable_job(api.parse_metadata(manifest), known.owner.units, error)
        profile = self._directory.profiles.get((known.owner.namespace, known.profile))
        inside = self._reserved(known) if known.reservation else None
        group = inside if isinstance(inside, str) else None
        learned = self._learned(known.owner.namespace, known.profile, known.owner.pool)
        if decided:
            in_force = cost_in_force(known.record)
            return to_job(model, profile=profile, learned=learned, in_force=in_force, reservation=group)
        pool = self._directory.pools[known.owner.pool]
        refusal = self._not_allowed(known, pool.in_force.namespace_selector)
        if refusal is None and known.reservation:
            if inside is None:
                return None
            refusal = None if group else (inside[0], inside[1])
        if refusal is None:
            spec = known.template()
            for kind, template in (("Chunk", spec["template"]), ("Reduce", (spec.get("reduce") or {}).get("template"))):
                if template is None:
                    continue
                step = InputStep.of(spec, image=self._image) if kind == "Chunk" else None
                key = _key(known, template, step, to_pool_spec(pool.pool))
                answer = self._answers.get(key)
                if answer is None or answer[0] < self._monotonic():
                    self._ask(key, known, kind, template, step=step, processor=to_pool_spec(pool.pool))
                    return None
                refusal = refusal or answer[1]
        return to_job(model, profile=profile, learned=learned, refusal=refusal, reservation=group)

    async def close(self) -> None:
        """Give up on what is being asked."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _not_allowed(self, known: KnownJob, selector: api.LabelSelector | None) -> Answer:
        if selector is None or selector.matches(self._labels(known.owner.namespace)):
            return None
        return not_allowed(known.owner.pool, known.owner.namespace)

    def _ask(
        self,
        key: bytes,
        known: KnownJob,
        kind: str,
        template: Mapping[str, Any],
        *,
        step: InputStep | None,
        processor: PoolSpec,
    ) -> None:
        if waiting := self._waiting.get(key):
            waiting.add(known.owner.uid)
            return
        self._waiting[key] = {known.owner.uid}
        named: Kind = "Reduce" if kind == "Reduce" else "Chunk"
        chunk = Chunk(
            begin=0, end=1, origin=1, node="any", attempt=0, kind=named, created=0.0, promised_end=0.0, leftover=True
        )
        body = chunk_pod(
            known.owner, chunk, template, processor=processor, epoch=0, priority_class=self._chunk_class, step=step
        )
        task = asyncio.ensure_future(self._find_out(key, known.owner.namespace, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find_out(self, key: bytes, namespace: str, body: dict[str, Any]) -> None:
        pause = 0.2
        answer: Answer = None
        for tries in count(1):
            try:
                # strict: what stands in a template is ours to check, for our own schema takes any field there
                await self._client.create(PODS.path(namespace=namespace), body, dry_run=True, strict=True)
                break
            except ClusterError as error:
                for_good = isinstance(error, Forbidden | Invalid | NotFound)
                if for_good and not (isinstance(error, NoRight) and tries < RIGHTS):
                    answer = (reasons.POD_REFUSED, f"its pods would be refused: {error}")
                    break
                log.warning("dry_run_failed", namespace=namespace, error=str(error), again_in=pause)
                await asyncio.sleep(max(pause, error.retry_after))
                pause = min(2 * pause, 5.0)
        if len(self._answers) >= MOST:
            self._answers.pop(next(iter(self._answers)))
        self._answers[key] = (self._monotonic() + KEPT, answer)
        for uid in self._waiting.pop(key):
            self._again(uid)


def _read(manifest: Mapping[str, Any], flaw: str) -> api.DivisibleJob:
    if flaw:
        raise UserError(reasons.INVALID_SPEC, flaw)
    return api.parse(api.DivisibleJob, manifest)


def _key(known: KnownJob, template: Mapping[str, Any], step: InputStep | None, processor: PoolSpec) -> bytes:
    room = (processor.cpu, processor.memory, processor.hold)
    about = (known.owner.namespace, known.owner.pool, *room, template, step and tuple(step))
    return hashlib.blake2b(orjson.dumps(about, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
