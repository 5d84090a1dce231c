"""Viewers of the page: a token's user, by TokenReview, and the namespaces that it may see, by SubjectAccessReview.

A user sees the namespaces in which it may list DivisibleJobs. Answers are cached for a minute, so a right that is taken
away works up to a minute longer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from punctual.kube.agents.identity import KEEP, Reviewer
from punctual.kube.api.resources import ACCESS_REVIEWS, JOBS
from punctual.kube.cluster.client import ApiClient

AT_ONCE: Final = 8
"""Access reviews at the same time: viewers must not keep the API server busy."""
REMEMBERED: Final = 10_000
"""Number of answers (user and namespace) that are kept."""


class User(NamedTuple):
    """A user as the API server has authenticated it."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]


def user_of(status: Mapping[str, Any]) -> User | None:
    """Read the status of a TokenReview. None: not authenticated."""
    if not status.get("authenticated"):
        return None
    user = status.get("user") or {}
    extra = tuple((key, tuple(values)) for key, values in sorted((user.get("extra") or {}).items()))
    return User(str(user.get("username", "")), str(user.get("uid", "")), tuple(user.get("groups") or ()), extra)


class Viewers:
    """Asks the API server, and caches its answers. ClusterError: it gave none."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._clock = client.clock
        self._users = Reviewer(self._review, client.clock)
        self._answers: OrderedDict[tuple[User, str], tuple[float, bool]] = OrderedDict()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def user(self, token: str) -> User | None:
        """Return the user of a token. None: the API server does not accept it."""
        return await self._users.identify(token)

    async def visible(self, user: User, namespaces: Collection[str]) -> frozenset[str] | None:
        """Return which of the namespaces the user may see. None: all, also those to come."""
        if await self._allowed(user, ""):
            return None
        wanted = sorted(namespaces)
        answers = await asyncio.gather(*(self._allowed(user, namespace) for namespace in wanted))
        return frozenset(namespace for namespace, yes in zip(wanted, answers, strict=True) if yes)

    async def _allowed(self, user: User, namespace: str) -> bool:
        known = self._answers.get((user, namespace))
        if known is None or known[0] < self._clock.monotonic():
            async with self._slots:
                known = self._clock.monotonic() + KEEP, await self._ask(user, namespace)
            self._answers[user, namespace] = known
            while len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
        return known[1]

    async def _review(self, token: str) -> User | None:
        return user_of(await self._client.review_token(token, ()))

    async def _ask(self, user: User, namespace: str) -> bool:
        group = JOBS.version.partition("/")[0]
        asked = {"group": group, "resource": JOBS.plural, "verb": "list", "namespace": namespace}
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": asked,
        }
        body = {"apiVersion": ACCESS_REVIEWS.version, "kind": "SubjectAccessReview", "spec": spec}
        status = (await self._client.create(ACCESS_REVIEWS.path(), body)).get("status") or {}
        return status.get("allowed") is True
