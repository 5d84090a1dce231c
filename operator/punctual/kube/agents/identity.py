"""Identifies callers by TokenReview, with a cache of its answers.

The agent's projected token has an audience of its own, and the API server returns its account and node. A review per
report would be one write a second and node, so an answer is cached for up to a minute, by the token's hash. A revoked
token therefore works up to a minute longer. Tokens themselves are neither stored nor logged.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from punctual import wire
from punctual.runtime.clock import ServerClock

KEEP = 60.0
KEEP_REFUSED = 10.0  # not every API server may know a new token yet
NODE_NAME = "authentication.kubernetes.io/node-name"


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller that the API server has authenticated."""

    account: str
    """``system:serviceaccount:<namespace>:<name>``."""
    node: str | None
    """The node of its pod. None for a token that is not bound to a pod."""


T = TypeVar("T")
"""What a token stands for: the identity of an agent, or a user."""


def identity_of(status: Mapping[str, Any]) -> Identity | None:
    """Read the status of a TokenReview."""
    # an API server without support for audiences omits them: then the token may be for another audience
    if not status.get("authenticated") or wire.AUDIENCE not in (status.get("audiences") or ()):
        return None
    user = status.get("user") or {}
    nodes = (user.get("extra") or {}).get(NODE_NAME) or [None]
    return Identity(account=str(user.get("username", "")), node=nodes[0])


class Reviewer(Generic[T]):
    """Caches identities by token. One review at a time per token, and a bounded number of tokens.

    ``review(token)`` returns None for a token that is invalid or for another audience. It raises ClusterError if the
    API server gives no answer.
    """

    def __init__(
        self,
        review: Callable[[str], Awaitable[T | None]],
        clock: ServerClock,
        *,
        size: int = 4096,
        at_once: int = 16,
    ) -> None:
        self._review = review
        self._clock = clock
        self._size = size
        self._known: OrderedDict[bytes, tuple[float, T | None]] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[T | None]] = {}
        self._slots = asyncio.Semaphore(at_once)  # unknown callers must not keep the API server busy with their tokens

    def __len__(self) -> int:
        return len(self._known)

    async def identify(self, token: str) -> T | None:
        """Return the identity of a token, or None if it has none.

        Raises ClusterError if the API server does not answer.
        """
        key = hashlib.sha256(token.encode()).digest()
        if (known := self._known.get(key)) is not None:
            until, identity = known
            if self._clock.monotonic() < until:
                return identity
            del self._known[key]
        if (task := self._asked.get(key)) is None:
            task = asyncio.create_task(self._ask(key, token))
            self._asked[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)  # a caller that disconnects must not cancel the answer for the others

    def _forget(self, key: bytes, done: asyncio.Task[T | None]) -> None:
        self._asked.pop(key, None)
        if not done.cancelled():
            done.exception()  # retrieved here, because every waiting caller may have disconnected

    async def _ask(self, key: bytes, token: str) -> T | None:
        async with self._slots:
            asked = self._clock.monotonic()
            identity = await self._review(token)
        self._known[key] = (asked + (KEEP if identity else KEEP_REFUSED), identity)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return identity
