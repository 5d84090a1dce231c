"""Pods created on trial (dry run): whether quota, LimitRange, Pod Security and webhooks would let a template through.

A trial may take as long as a webhook takes, and a tenant may have thousands of templates. So few are under way at
once, fewer of one namespace, and namespaces take turns. They go over connections of their own: statuses do not wait
for them. What fails is tried again for as long as it takes, behind what waits, and `trouble` tells why meanwhile.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog

from punctual import reasons
from punctual.errors import ClusterError, Forbidden, Invalid, NoRight, NotFound
from punctual.kube.cluster.client import PODS, RIGHTS, ApiClient

KEPT: Final = 60.0
"""Seconds that the API server's answer about a template is relied on."""
MOST: Final = 4096
"""Answers kept."""
AT_ONCE: Final = 8
"""Trials under way at once."""
EACH: Final = 4
"""Of those, of one namespace at most."""
FIRST_RETRY: Final = 0.2
LAST_RETRY: Final = 10.0
"""Seconds before a trial that failed is tried again; doubled in between."""
DEADLINE: Final = 35.0
"""Seconds that a trial may take: the API server gives a webhook 30 at most, and then says which one it was."""

log = structlog.get_logger(__name__)

Refusal = tuple[str, str]


class Answer(NamedTuple):
    """What the API server said of a template."""

    at: float
    refusal: Refusal | None
    """(reason, message); None: the pods would be let through."""


@dataclass(slots=True)
class _Question:
    """A template that has no answer yet."""

    key: bytes
    namespace: str
    pod: Callable[[], dict[str, Any]]
    """Makes the pod's manifest: thousands may wait."""
    tries: int = 0
    pause: float = FIRST_RETRY
    error: str = ""


class Trials:
    """``answered(key)`` hears when there is an answer; a key stands for namespace, template and processor."""

    def __init__(
        self,
        client: ApiClient,
        answered: Callable[[bytes], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._answered = answered
        self._monotonic = monotonic
        self._answers: dict[bytes, Answer] = {}
        self._questions: dict[bytes, _Question] = {}
        self._queues: dict[str, deque[_Question]] = {}  # what waits, by namespace; that whose turn it is comes first
        self._busy: dict[str, int] = {}  # trials under way, by namespace
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    def answer(self, key: bytes, *, since: float) -> Answer | None:
        """Return the answer, if it can be relied on: it is new, or was given to who waits ``since`` then."""
        found = self._answers.get(key)
        if found is None or (found.at < since and found.at + KEPT < self._monotonic()):
            return None
        return found

    def ask(self, key: bytes, namespace: str, pod: Callable[[], dict[str, Any]]) -> None:
        """Have a template tried unless it waits for that already."""
        if key not in self._questions:
            self._questions[key] = question = _Question(key, namespace, pod)
            self._wait(question)

    def trouble(self, key: bytes) -> str:
        """Return why there is no answer yet."""
        question = self._questions.get(key)
        if question and question.error:
            return f"the API server does not say whether its pods may be created, and is asked again: {question.error}"
        return (
            "its pods wait for their turn to be created on trial: too many templates are asked about, or they are slow"
        )

    async def close(self) -> None:
        """Give up on what is being asked."""
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
        """Begin as many trials as may be under way, a namespace after the other."""
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
        refusal: Refusal | None = None
        again: ClusterError | None = None
        try:
            # strict: a field that this API server does not know, ours may
            await self._client.create(path, question.pod(), dry_run=True, strict=True)
        except ClusterError as error:
            for_good = isinstance(error, Forbidden | Invalid | NotFound)
            if for_good and not (isinstance(error, NoRight) and question.tries < RIGHTS):
                refusal = (reasons.POD_REFUSED, f"its pods would be refused: {error}")
            else:
                again = error
        finally:
            self._busy[question.namespace] -= 1
            if not self._busy[question.namespace]:
                del self._busy[question.namespace]
        if again is not None:
            self._later(question, again)
        else:
            self._settle(question, refusal)
        self._fill()

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

    def _settle(self, question: _Question, refusal: Refusal | None) -> None:
        del self._questions[question.key]
        self._answers.pop(question.key, None)  # the newest stand last
        if len(self._answers) >= MOST:
            self._answers.pop(next(iter(self._answers)))
        self._answers[question.key] = Answer(self._monotonic(), refusal)
        self._answered(question.key)
