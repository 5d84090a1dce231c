"""Dry-run creates of pods: whether quota, LimitRange, Pod Security and webhooks would accept a template.

A trial may take as long as a webhook takes, and a tenant may have thousands of templates. Few trials therefore run at
once, fewer of one namespace, and namespaces take turns. They use their own connections, so that statuses do not wait
for them. A failed trial is retried without a limit, behind the waiting ones. Meanwhile `trouble` names the cause.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog

from punctual import reasons
from punctual.errors import ClusterError, Forbidden, Invalid, NoRight, NotFound
from punctual.kube.api.resources import PODS
from punctual.kube.cluster.client import RIGHTS, ApiClient, Json
from punctual.kube.cluster.pod_needs import PodNeeds, pod_needs
from punctual.kube.cluster.requests import requested
from punctual.kube.gate.pod_size import ignored, others_of, takes_devices, wrong_size
from punctual.labels import KIND_LABEL
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import NOTHING, Resources

KEPT: Final = 60.0
"""Seconds for which the API server's answer about a template is valid."""
MOST: Final = 4096
"""Maximum number of stored answers."""
AT_ONCE: Final = 8
"""Maximum trials at the same time."""
EACH: Final = 4
"""Maximum trials of one namespace at the same time."""
FIRST_RETRY: Final = 0.2
LAST_RETRY: Final = 10.0
"""Maximum seconds before a failed trial is retried; doubled in between."""
ANY: Final = "any"
"""The node of the pods that are tried."""
BEST_EFFORT: Final = "BestEffort"
"""The quality-of-service class of pods without requests and limits of CPU and memory."""
DEADLINE: Final = 35.0
"""Seconds for one trial. The API server allows a webhook at most 30, and then names it in the error."""

log = structlog.get_logger(__name__)

Refusal = tuple[str, str]
Build = Callable[[Resources | None], dict[str, Any]]
"""Builds a pod's manifest when it is needed, because thousands may wait; ``others`` as for `chunk_pod`."""


class TrialAnswer(NamedTuple):
    """The API server's answer about a template."""

    at: float
    refusal: Refusal | None
    """(reason, message). None: the pods would be accepted."""
    needs: PodNeeds | None = None
    """What the pods ask of their nodes, also by what admission plugins and webhooks have added; None: not known."""
    requests: Resources = NOTHING
    """What a pod requests."""
    others: Resources | None = None
    """What a pod requests beside the work, if the work has to give way to more than its template's containers."""


@dataclass(slots=True)
class _Question:
    """A template without an answer."""

    key: bytes
    namespace: str
    pod: "Build"
    processor: PoolSpec
    others: Resources | None = None
    """What the last answer shows beside the work: the work gives way to it in the next trial."""
    tries: int = 0
    pause: float = FIRST_RETRY
    error: str = ""


class Trials:
    """``answered(key)`` is called when there is an answer. A key stands for namespace, template and processor."""

    def __init__(
        self,
        client: ApiClient,
        answered: Callable[[bytes], None],
    ) -> None:
        self._client = client
        self._answered = answered
        self._answers: dict[bytes, TrialAnswer] = {}
        self._questions: dict[bytes, _Question] = {}
        self._queues: dict[str, deque[_Question]] = {}  # waiting templates by namespace; the next namespace comes first
        self._busy: dict[str, int] = {}  # running trials, by namespace
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    def answer(self, key: bytes, *, since: float) -> TrialAnswer | None:
        """Return the answer, if it is valid: it is recent, or was given to a job that has waited ``since`` then."""
        found = self._answers.get(key)
        if found is None or (found.at < since and found.at + KEPT < self._client.clock.monotonic()):
            return None
        return found

    def last(self, key: bytes) -> TrialAnswer | None:
        """Return the last answer, however old."""
        return self._answers.get(key)

    def ask(self, key: bytes, namespace: str, pod: Build, processor: PoolSpec) -> None:
        """Queue a trial of a template, unless one is queued."""
        if key not in self._questions:
            self._questions[key] = question = _Question(key, namespace, pod, processor)
            self._wait(question)

    def trouble(self, key: bytes) -> str:
        """Return why there is no answer yet."""
        question = self._questions.get(key)
        if question and question.error:
            return f"the dry run of its pods failed and is tried again: {question.error}"
        return "its pods wait for a dry run: too many templates are being tried, or the trials are slow"

    async def close(self) -> None:
        """Cancel all trials."""
        for timer in self._timers:
            timer.cancel()
        self._queues.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _wait(self, question: _Question) -> None:
        self._queues.setdefault(question.namespace, deque()).append(question)
        self._fill()

    def _fill(self) -> None:
        """Start as many trials as allowed, one namespace after the other."""
        for namespace in list(self._queues):
            if sum(self._busy.values()) >= AT_ONCE:
                return
            if self._busy.get(namespace, 0) >= EACH:
                continue
            queue = self._queues.pop(namespace)
            question = queue.popleft()
            if queue:
                self._queues[namespace] = queue  # behind the others
            self._busy[namespace] = self._busy.get(namespace, 0) + 1
            task = asyncio.ensure_future(self._try(question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _try(self, question: _Question) -> None:
        question.tries += 1
        path = PODS.path(namespace=question.namespace)
        answer: TrialAnswer | None = None
        again: ClusterError | None = None
        try:
            sent = question.pod(question.others)
            # strict: the template may have a field that this API server does not know
            tried = await self._client.create(path, sent, dry_run=True, strict=True)
            answer = self._judge(question, sent, tried)
        except ClusterError as error:
            for_good = isinstance(error, Forbidden | Invalid | NotFound)
            if for_good and not (isinstance(error, NoRight) and question.tries < RIGHTS):
                refusal = reasons.POD_REFUSED, f"its pods would be refused: {error}"
                answer = TrialAnswer(self._client.clock.monotonic(), refusal)
            else:
                again = error
        finally:
            self._busy[question.namespace] -= 1
            if not self._busy[question.namespace]:
                del self._busy[question.namespace]
        if again is not None:
            self._later(question, again)
        elif answer is not None:
            self._settle(question, answer)
        else:
            self._wait(question)
        self._fill()

    def _judge(self, question: _Question, sent: Json, tried: Json) -> TrialAnswer | None:
        """Return the answer to a trial. None: it is tried once more, with work that gives way to what was added."""
        processor = question.processor
        guest = tried["metadata"]["labels"][KIND_LABEL] == "Guest"
        refusal = _not_lowest(tried) or takes_devices(tried, processor) if guest else ignored(sent, tried)
        if refusal is None and not guest:
            refusal = wrong_size(tried, processor)
            others = others_of(sent, tried, processor) if refusal and question.others is None else None
            if others is not None:
                question.others = others
                return None
        needs = pod_needs(tried["spec"], planned_node=ANY)
        return TrialAnswer(self._client.clock.monotonic(), refusal, needs, requested(tried["spec"]), question.others)

    def _later(self, question: _Question, error: ClusterError) -> None:
        question.error = str(error)
        wait = max(question.pause, error.retry_after)
        log.warning("dry_run_failed", namespace=question.namespace, error=question.error, again_in=wait)
        question.pause = min(2 * question.pause, LAST_RETRY)

        def again() -> None:
            self._timers.discard(timer)
            self._wait(question)

        timer = asyncio.get_running_loop().call_later(wait, again)
        self._timers.add(timer)

    def _settle(self, question: _Question, answer: TrialAnswer) -> None:
        del self._questions[question.key]
        self._answers.pop(question.key, None)  # the newest are last
        if len(self._answers) >= MOST:
            self._answers.pop(next(iter(self._answers)))
        self._answers[question.key] = answer
        self._answered(question.key)


def _not_lowest(pod: Json) -> Refusal | None:
    """Return the refusal of a guest's pod to which something has added requests: the kernel would not hold it down."""
    got = (pod.get("status") or {}).get("qosClass", BEST_EFFORT)
    if got == BEST_EFFORT:
        return None
    text = (
        f"its pods would be of the class {got}, but guests must be BestEffort: something adds CPU or memory to their "
        "requests or limits, such as a LimitRange with defaults in this namespace"
    )
    return reasons.POD_REFUSED, text
