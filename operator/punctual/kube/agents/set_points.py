"""What each node's agent shall hold, kept for the moment it asks.

The actor puts the Pool's ``SetPoint`` and ``DropSetPoint`` actions here, the exchange takes answers. Ends are absolute
here and become seconds left when an answer is made: a queue in between must not make a chunk late. Lives as long as a
turn of leadership: a new leader's Pool says everything again.
"""

from collections.abc import Mapping

from punctual import wire
from punctual.scheduling.model.actions import DropSetPoint, SetPoint

MOST = 1000  # as wire.SetPoints has it: a kubelet holds far fewer pods


class SetPointStore:
    """The latest set point of each pod, by node."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, SetPoint]] = {}

    def __len__(self) -> int:
        return sum(len(pods) for pods in self._nodes.values())

    def put(self, point: SetPoint) -> None:
        """Take in a set point; a newer one of the same pod replaces it."""
        self._nodes.setdefault(point.node, {})[point.pod] = point

    def drop(self, gone: DropSetPoint) -> None:
        """Forget a pod; one that is not here is forgotten already."""
        pods = self._nodes.get(gone.node, {})
        pods.pop(gone.pod, None)
        if not pods:
            self._nodes.pop(gone.node, None)

    def clear(self) -> None:
        """Forget everything: the turn of leadership is over."""
        self._nodes.clear()

    def answer(self, node: str, *, now: float, epoch: int, done: Mapping[str, int | None]) -> wire.SetPoints:
        """Return what the node's agent is told at ``now``; ``done``: units by pod, as its report says."""
        pods = sorted(self._nodes.get(node, {}).items())[:MOST]
        return wire.SetPoints(epoch=epoch, pods=[_told(point, done.get(uid), now) for uid, point in pods])


def _told(point: SetPoint, done: int | None, now: float) -> wire.SetPoint:
    return wire.SetPoint(
        uid=point.pod,
        cap=point.cap,
        rest_cap=point.cap,  # a promise is planned with headroom under the whole processor: left alone it is kept
        period=point.period,
        units=point.units,
        units_left=None if done is None else float(max(0, point.units - done)),
        seconds_left=point.end - now,
    )
