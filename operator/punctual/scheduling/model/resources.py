"""Amounts of a node's resources, as one value: what a pod takes, what a processor has, what a node has left.

CPU is in cores and memory in bytes. Other resources (ephemeral-storage, hugepages-2Mi, nvidia.com/gpu, …) have their
Kubernetes names and whole numbers. What is not named is zero.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple, Self

_CPU = 1e-9
"""Cores below which two amounts of CPU are equal: sums of floats."""


class Excess(NamedTuple):
    """A resource of which more is needed than there is."""

    name: str
    """As Kubernetes names it: cpu, memory, …"""
    needed: float
    there: float


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts of resources. Hashable; equal amounts are equal values."""

    cpu: float = 0.0
    memory: int = 0
    others: tuple[tuple[str, int], ...] = ()
    """(name, amount) of other resources, by name, without zeros."""

    @classmethod
    def of(cls, amounts: Mapping[str, float]) -> Self:
        """Return amounts by Kubernetes' names."""
        others = {name: int(amount) for name, amount in amounts.items() if name not in {"cpu", "memory"}}
        # rounded: a sum of floats must not depend on the order of its terms
        return cls(round(float(amounts.get("cpu", 0.0)), 9), int(amounts.get("memory", 0)), _sorted(others.items()))

    @classmethod
    def sum(cls, all_of: Iterable["Resources"]) -> "Resources":
        """Return the sum of amounts."""
        cpu, memory, others = 0.0, 0, dict[str, int]()
        for one in all_of:
            cpu += one.cpu
            memory += one.memory
            for name, amount in one.others:
                others[name] = others.get(name, 0) + amount
        return cls(round(cpu, 9), memory, _sorted(others.items()))

    def __bool__(self) -> bool:
        """Whether any amount is not zero."""
        return self.cpu > _CPU or self.memory != 0 or bool(self.others)

    def __add__(self, other: "Resources") -> "Resources":
        """Return the sum."""
        return Resources.sum((self, other))

    def __sub__(self, other: "Resources") -> "Resources":
        """Return what is left, not below zero."""
        there = dict(self.others)
        for name, amount in other.others:
            there[name] = max(0, there.get(name, 0) - amount)
        cpu = round(self.cpu - other.cpu, 9)
        return Resources(max(0.0, cpu), max(0, self.memory - other.memory), _sorted(there.items()))

    def __mul__(self, count: int) -> "Resources":
        """Return as much ``count`` times."""
        return Resources(
            round(self.cpu * count, 9), self.memory * count, _sorted((name, n * count) for name, n in self.others)
        )

    def __floordiv__(self, count: int) -> "Resources":
        """Return one of ``count`` equal parts, whole numbers rounded down."""
        others = _sorted((name, amount // count) for name, amount in self.others)
        return Resources(self.cpu / count, self.memory // count, others)

    def __getitem__(self, name: str) -> float:
        """Return the amount of a resource, by Kubernetes' name."""
        match name:
            case "cpu":
                return self.cpu
            case "memory":
                return self.memory
            case _:
                return next((amount for known, amount in self.others if known == name), 0)

    def names(self) -> tuple[str, ...]:
        """Return the names of the resources with an amount."""
        named = [name for name in ("cpu", "memory") if self[name]]
        return (*named, *(name for name, _ in self.others))

    def larger(self, other: "Resources") -> tuple[Excess, ...]:
        """Return the resources of which this is more than ``other``, with both amounts."""
        compared = ((name, self[name], other[name]) for name in self.names())
        return tuple(Excess(*one) for one in compared if one[1] > one[2] + (_CPU if one[0] == "cpu" else 0))

    def fits(self, other: "Resources") -> bool:
        """Whether ``other`` has at least as much of every resource."""
        return not self.larger(other)

    def largest(self, other: "Resources") -> "Resources":
        """Return the larger amount of each resource."""
        names = {*self.names(), *other.names()}
        return Resources.of({name: max(self[name], other[name]) for name in names})


NOTHING = Resources()


def _sorted(others: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in others if amount))


Quotients = Mapping[str, int]
"""For how many processors there is enough of each resource, by Kubernetes' name, and of pod places ("pods")."""


@dataclass(slots=True)
class Scarcity:
    """Sums of the nodes' quotients. They follow each change of a node, because a pool may have thousands."""

    _nodes: dict[str, tuple[bool, Quotients]] = field(default_factory=dict)
    """Usable nodes: whether they have a taint, and what they have."""
    _counts: Counter[bool] = field(default_factory=Counter)
    """Numbers of usable nodes with a taint, and without."""
    _sums: dict[bool, Counter[str]] = field(default_factory=lambda: {False: Counter(), True: Counter()})

    def observe(self, name: str, there: Quotients | None, *, tainted: bool) -> None:
        """Record what a node has. None: it is not usable, or gone."""
        if (before := self._nodes.pop(name, None)) is not None:
            self._counts[before[0]] -= 1
            self._sums[before[0]].subtract(before[1])
        if there is not None:
            self._nodes[name] = tainted, there
            self._counts[tainted] += 1
            self._sums[tainted].update(there)

    def scarcest(self) -> tuple[str, int] | None:
        """Return the resource of which the nodes have the fewest processors, and for how many. None: no usable node.

        Nodes with a taint count only if there are no others.
        """
        if not self._nodes:
            return None
        return min(self._sums[not self._counts[False]].items(), key=itemgetter(1))
