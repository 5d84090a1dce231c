"""The set points of each node's pods, stored until the node's agent asks.

The actor puts the Pool's ``SetPoint`` and ``DropSetPoint`` actions here, and the report server takes the answers. Ends
are absolute here and become seconds left when an answer is made, so that a delay in a queue does not make a chunk late.
The store lives for one term: a new leader's Pool sets every point again.
"""

from collections.abc import Mapping

from punctual import wire
from punctual.scheduling.model.actions import DropSetPoint, FollowedLine, SetPoint

MOST = 1000  # the limit of wire.SetPoints; a kubelet has far fewer pods
MOST_CORES = 4096.0  # the limit of wire.Cores


class SetPointStore:
    """The latest set point of each pod, by node."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, SetPoint]] = {}

    def __len__(self) -> int:
        return sum(len(pods) for pods in self._nodes.values())

    def put(self, point: SetPoint) -> None:
        """Store a set point. It replaces an earlier one of the same pod."""
        self._nodes.setdefault(point.node, {})[point.pod] = point

    def drop(self, gone: DropSetPoint) -> None:
        """Remove the set point of a pod, if there is one."""
        pods = self._nodes.get(gone.node, {})
        pods.pop(gone.pod, None)
        if not pods:
            self._nodes.pop(gone.node, None)

    def clear(self) -> None:
        """Remove all set points: the term is over."""
        self._nodes.clear()

    def answer(self, node: str, *, now: float, epoch: int, done: Mapping[str, int | None]) -> wire.SetPoints:
        """Return the answer for the node's agent at ``now``. ``done`` is the reported units by pod."""
        pods = sorted(self._nodes.get(node, {}).items())[:MOST]
        return wire.SetPoints(epoch=epoch, pods=[_told(point, done.get(uid), now) for uid, point in pods])


FLOOR = 0.05
"""Part of its processor that a chunk always has: a chunk that stood still could not tell how far it is."""
SPARE = 0.02
"""Part of the planned time by which a line ends before the planned end: noise would miss a line that ends there."""
SAMPLES = 3.0
"""The same in samples, if that is more."""
UNITS = 10.0
"""Units that a sample should have: with fewer, the number is mostly rounding ..."""
LONGEST = 1 / 20
"""... and the largest part of the planned time that a sample may take."""


def _followed(line: FollowedLine, cap: float, left: float) -> wire.Follow:
    """Return a line in seconds left. The model is the estimated cost of a unit until the agent has learned another."""
    sample = min(max(1.0, UNITS * line.cpu_per_unit / cap), max(1.0, LONGEST * line.planned), 60.0)
    return wire.Follow(
        pool=line.pool,
        pool_cores=min(line.pool_cores, MOST_CORES),
        units=line.units,
        seconds_left=left - max(SAMPLES * sample, SPARE * line.planned),
        floor=FLOOR * cap,
        sample=sample,
        model=wire.Model(a=0.0, b=sample / line.cpu_per_unit),
    )


def _told(point: SetPoint, done: int | None, now: float) -> wire.SetPoint:
    return wire.SetPoint(
        uid=point.pod,
        cap=point.cap,
        rest_cap=point.cap,  # enough to finish in time: a promise is planned with headroom
        period=point.period,
        units=point.units,
        units_left=None if done is None else float(max(0, point.units - done)),
        seconds_left=point.end - now,
        follow=None if point.line is None else _followed(point.line, point.cap, point.end - now),
    )
