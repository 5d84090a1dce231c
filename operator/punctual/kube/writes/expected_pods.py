"""The pods that exist or may soon, since their create waits, runs or is done, and that the informer has not seen yet.

If their job goes meanwhile, they must be ended as soon as they appear. Pods are named "namespace/name".
"""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.kube.writes.keys import Key
from punctual.kube.writes.operations import CreatePod


@dataclass(slots=True)
class _Expected:
    key: Key
    create: CreatePod
    made: float | None = None
    """When its create was done, on the monotonic clock."""


class ExpectedPods:
    """Expected pods by the writer's key."""

    def __init__(self) -> None:
        self._of_key: dict[Key, dict[str, None]] = {}
        self._pods: dict[str, _Expected] = {}

    def add(self, key: Key, create: CreatePod) -> None:
        """Expect a pod."""
        self._of_key.setdefault(key, {})[create.pod] = None
        self._pods[create.pod] = _Expected(key, create)

    def made(self, pod: str, now: float) -> None:
        """Record that the create of a pod is done."""
        if (expected := self._pods.get(pod)) is not None:
            expected.made = now

    def unseen(self, before: float) -> Iterator[tuple[Key, CreatePod]]:
        """Yield the creates of the pods that were made before, and not seen since."""
        for expected in list(self._pods.values()):
            if expected.made is not None and expected.made <= before:
                yield expected.key, expected.create

    def observed(self, pod: str) -> None:
        """Stop expecting a pod: it was seen, or never will be."""
        expected = self._pods.pop(pod, None)
        if expected is not None:
            pods = self._of_key[expected.key]
            del pods[pod]
            if not pods:
                del self._of_key[expected.key]

    def pods_of(self, key: Key) -> frozenset[str]:
        """Return the expected pods of a key."""
        return frozenset(self._of_key.get(key, ()))

    def forget(self, key: Key) -> frozenset[str]:
        """Stop expecting the pods of a key, and return them."""
        pods = self._of_key.pop(key, {})
        for pod in pods:
            self._pods.pop(pod, None)
        return frozenset(pods)

    def clear(self) -> None:
        """Stop expecting any pod."""
        self._of_key.clear()
        self._pods.clear()
