"""What all profiles have learned: what jobs are planned with, and how the classes of a pool's nodes compare."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from punctual.control.cost_estimation import ClassSpeed, Estimate, speeds
from punctual.control.response import middle
from punctual.profiles.samples import ByHand, Estimates, Samples, Where

TELLING: Final = 0.1
"""Part by which a class must be slower or quicker than was thought to be told: plans are made anew then."""

Learned = Callable[[ByHand], Estimates | None]
"""What a job is planned with, beside what its profile sets by hand."""
Key = tuple[str, str]
"""A profile's namespace and name."""


class AskedSpeeds(NamedTuple):
    """What a pool's spec says of its nodes' speeds; see :func:`punctual.control.cost_estimation.speeds`."""

    limit: float
    given: Mapping[str, float]


class Learning:
    """The samples of all profiles. ``speeds_of``: what the spec of a pool (name) says of its nodes' speeds."""

    def __init__(self, speeds_of: Callable[[str], AskedSpeeds]) -> None:
        self._profiles: dict[Key, Samples] = {}
        self._speeds_of = speeds_of
        self._classes: dict[str, dict[str, ClassSpeed]] = {}
        # by what pools of which nothing was learned since asked when their classes were compared
        self._compared: dict[str, AskedSpeeds] = {}

    def begin(self, key: Key, samples: Samples) -> None:
        """Take these as all that is known of a profile."""
        self._profiles[key] = samples
        self._compared.clear()

    def keep(self, keys: Collection[Key]) -> None:
        """Forget all other profiles: what they have measured counts no more."""
        if gone := self._profiles.keys() - keys:
            self._profiles = {key: samples for key, samples in self._profiles.items() if key not in gone}
            self._compared.clear()

    def changed(self, pool: str) -> None:
        """Note that a profile has learned something in a pool."""
        self._compared.pop(pool, None)

    def for_job(self, namespace: str, name: str, pool: str) -> Learned:
        """Return what a job in this pool is planned with, beside what is set by hand: on the pool's quickest class."""

        def learned(by_hand: ByHand) -> Estimates | None:
            known = self._profiles.get((namespace, name))
            classes = known.of_pool(pool) if known else {}
            if known is None or not classes:
                return None
            most = max(sorted(classes), key=lambda name: len(known.seen[classes[name]]))
            found = known.work(classes[most], by_hand)
            if found is None:
                return None
            work = replace(found, chi=self._chi_on_quickest(known, classes, most, by_hand))
            most = max(sorted(classes), key=lambda name: len(known.fetched.get(classes[name], ())))
            transfer = known.transfer(classes[most], by_hand)
            most = max(sorted(classes), key=lambda name: len(known.responses.get(classes[name], ())))
            response = middle(known.responses.get(classes[most], ()))
            if response is not None:
                response = response.slower(1.0 / self._slow(pool, most))
            return Estimates(work, transfer, response)

        return learned

    def classes(self, pool: str) -> dict[str, ClassSpeed]:
        """Return how long a unit takes on each class of a pool's nodes, where on the quickest it takes 1."""
        told, asked = self._classes.get(pool, {}), self._speeds_of(pool)
        if self._compared.get(pool) != asked:
            self._compared[pool] = asked
            tenants: dict[str, list[dict[str, Estimate]]] = {}
            for (namespace, _), known in self._profiles.items():
                found = {name: e for name, where in known.of_pool(pool).items() if (e := known.work(where))}
                tenants.setdefault(namespace, []).append(found)
            compared = speeds(tenants, limit=asked.limit, given=asked.given)
            told = self._classes[pool] = {
                name: now if name in asked.given else _steady(told.get(name), now) for name, now in compared.items()
            }
        return told

    def _slow(self, pool: str, node_class: str) -> float:
        found = self.classes(pool).get(node_class)
        return 1.0 if found is None else found.slow

    def _chi_on_quickest(self, known: Samples, classes: Mapping[str, Where], most: str, by_hand: ByHand) -> float:
        """Return χ on the pool's quickest class, by the class that most is known of.

        A class that is slower than the pool takes it to be counts as well: a chunk there must not take longer than
        planned.
        """
        told = self.classes(classes[most].pool)
        limited = [name for name in classes if name in told and told[name].slow < (told[name].measured or 0.0)]
        found = ((name, known.work(classes[name], by_hand)) for name in {most, *limited})
        return max(e.chi / self._slow(classes[name].pool, name) for name, e in found if e is not None)


def _steady(before: ClassSpeed | None, now: ClassSpeed) -> ClassSpeed:
    """Return how a class compares, with the speed that was told before if the new one hardly differs from it."""
    told = 1.0 if before is None else before.slow
    return now._replace(slow=told if abs(now.slow / told - 1.0) <= TELLING else round(now.slow, 2))
