"""The set points of each node's pods, stored until the node's agent asks.

The actor puts the Pool's ``SetPoint`` and ``DropSetPoint`` actions here, and the report server takes the answers. Ends
are absolute here and become seconds left when an answer is made, so that a delay in a queue does not make a chunk late.
The store lives for one term: a new leader's Pool sets every point again.
"""

from collections.abc import Mapping

from punctual import wire
from punctual.scheduling.model.actions import DropSetPoint, SetPoint

MOST = 1000  # the limit of wire.SetPoints; a kubelet has far fewer pods


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


def _told(point: SetPoint, done: int | None, now: float) -> wire.SetPoint:
    return wire.SetPoint(
        uid=point.pod,
        cap=point.cap,
        rest_cap=point.cap,  # enough to finish in time: a promise is planned with headroom
        period=point.period,
        units=point.units,
        units_left=None if done is None else float(max(0, point.units - done)),
        seconds_left=point.end - now,
    )
