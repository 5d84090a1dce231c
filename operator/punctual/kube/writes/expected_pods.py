"""The pods that exist or may soon, since their create waits, runs or is done, and that the informer has not seen yet.

If their job goes meanwhile, they must be ended as soon as they appear. Pods are named "namespace/name".
"""

from punctual.kube.writes.keys import Key


class ExpectedPods:
    """Expected pods by the writer's key."""

    def __init__(self) -> None:
        self._of_key: dict[Key, dict[str, None]] = {}
        self._keys: dict[str, Key] = {}  # by pod

    def add(self, key: Key, pod: str) -> None:
        """Expect a pod."""
        self._of_key.setdefault(key, {})[pod] = None
        self._keys[pod] = key

    def observed(self, pod: str) -> None:
        """Stop expecting a pod: it was seen, or never will be."""
        key = self._keys.pop(pod, None)
        if key is not None:
            pods = self._of_key[key]
            del pods[pod]
            if not pods:
                del self._of_key[key]

    def of(self, key: Key) -> frozenset[str]:
        """Return the expected pods of a key."""
        return frozenset(self._of_key.get(key, ()))

    def forget(self, key: Key) -> frozenset[str]:
        """Stop expecting the pods of a key, and return them."""
        pods = self._of_key.pop(key, {})
        for pod in pods:
            self._keys.pop(pod, None)
        return frozenset(pods)

    def clear(self) -> None:
        """Stop expecting any pod."""
        self._of_key.clear()
        self._keys.clear()
