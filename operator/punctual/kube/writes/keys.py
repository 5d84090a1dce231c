"""The writer's keys: what an operation is about, one type for each kind.

The operations of one key are carried out in order. The type of its key tells to which part of a leader's term the
outcome of an operation goes. As text, a key appears in logs only.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job: its status, its pods, its results."""

    uid: str

    def __str__(self) -> str:
        return self.uid


@dataclass(frozen=True, slots=True)
class PoolKey:
    """A pool's status."""

    uid: str

    def __str__(self) -> str:
        return f"pool:{self.uid}"


@dataclass(frozen=True, slots=True)
class FinalizersKey:
    """A pool's finalizers. They wait for no status."""

    uid: str

    def __str__(self) -> str:
        return f"pool:{self.uid}:finalizers"


@dataclass(frozen=True, slots=True)
class ReservationKey:
    """A reservation's status."""

    uid: str

    def __str__(self) -> str:
        return self.uid


@dataclass(frozen=True, slots=True)
class RateKey:
    """A TargetRate's status."""

    uid: str

    def __str__(self) -> str:
        return f"rate:{self.uid}"


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """A Profile's status."""

    uid: str

    def __str__(self) -> str:
        return f"profile:{self.uid}"


@dataclass(frozen=True, slots=True)
class PodKey:
    """A pod without a known job."""

    uid: str

    def __str__(self) -> str:
        return self.uid


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A node's taints."""

    name: str

    def __str__(self) -> str:
        return f"node:{self.name}"


@dataclass(frozen=True, slots=True)
class PlaceholderKey:
    """Some of the placeholders: those on nodes that share the number."""

    lane: int

    def __str__(self) -> str:
        return f"placeholders:{self.lane}"


Key = JobKey | PoolKey | FinalizersKey | ReservationKey | RateKey | ProfileKey | PodKey | NodeKey | PlaceholderKey
