"""The set points of each node's pods, stored until the node's agent asks.

The actors put actions of Pools, guests and target rates here, and the report server takes the answers. Ends
are absolute here and become seconds left when an answer is made, so that a delay in a queue does not make a chunk late.
The store lives for one term: a new leader's Pool sets every point again. Pods that are held at a rate are beside them:
their caps stay in force without an operator, and an agent releases a pod only when all of them are known here.
"""

from collections.abc import Callable, Mapping

import structlog

from punctual import wire
from punctual.control.line import GUEST_FLOOR, first_model, floor, sample_length, spare
from punctual.guests.model import LendTo
from punctual.kube.agents.loops import Loops
from punctual.kube.agents.responses import model_of, response_of
from punctual.rates.model import Grid, HoldPod, ReleasePod
from punctual.scheduling.model.actions import DropSetPoint, FollowedLine, SendSetPoint

Ordered = SendSetPoint | LendTo | HoldPod
"""What a Pool, guests' control and the control of target rates order for a pod."""

log = structlog.get_logger(__name__)

MOST = 1000  # the limit of wire.SetPoints; a kubelet has far fewer pods
MOST_CORES = 4096.0  # the limit of wire.Cores


class SetPointStore:
    """The latest set point of each pod, by node."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Ordered]] = {}
        self._seen: dict[str, wire.Followed] = {}
        """What agents have said of pods since these have shown something."""
        self.applications_complete = False
        """Whether all pods that are held at a rate are here."""
        self.job_of: Callable[[str], str | None] = lambda _: None
        """The job ("namespace/name") of a pod (uid); None if it is not known."""
        self._crowded: set[str] = set()
        """Nodes with more pods than an answer has room for."""
        self._loops = Loops()

    def __len__(self) -> int:
        return sum(len(pods) for pods in self._nodes.values())

    def put(self, point: Ordered) -> None:
        """Store what is ordered for a pod. It replaces an earlier order for the same pod."""
        self._nodes.setdefault(point.node, {})[point.pod] = point

    def drop(self, gone: DropSetPoint | ReleasePod) -> None:
        """Remove what is ordered for a pod, if there is anything."""
        pods = self._nodes.get(gone.node, {})
        pods.pop(gone.pod, None)
        if not pods:
            self._nodes.pop(gone.node, None)
        self._seen.pop(gone.pod, None)

    def clear(self) -> None:
        """Remove all set points: the term is over."""
        self._nodes.clear()
        self._seen.clear()
        self._crowded.clear()
        self.applications_complete = False

    def answer(self, node: str, *, now: float, epoch: int, pods: Mapping[str, wire.PodReport]) -> wire.SetPoints:
        """Return the answer for the node's agent at ``now``. ``pods`` is what it has reported."""
        # if there are more pods than fit, chunks come first
        points = sorted(
            self._nodes.get(node, {}).values(), key=lambda one: (not isinstance(one, SendSetPoint), one.pod)
        )
        if len(points) > MOST and node not in self._crowded:
            self._crowded.add(node)
            log.warning("set_points_left_out", node=node, pods=len(points), most=MOST)
        return wire.SetPoints(
            epoch=epoch,
            pods=[self._told(point, pods.get(point.pod), now) for point in points[:MOST]],
            applications_complete=self.applications_complete and len(points) <= MOST,
        )

    def _told(self, point: Ordered, seen: wire.PodReport | None, now: float) -> wire.SetPoint:
        """Return the set point of a pod. Each rests at its cap: a promise is planned with headroom."""
        match point:
            case LendTo(weight=weight):
                guest = wire.GuestOrder(weight=max(1, min(10_000, round(100 * weight))), paused=point.paused)
                return wire.SetPoint(
                    uid=point.pod, cap=GUEST_FLOOR, rest_cap=GUEST_FLOOR, units=point.units, mode=guest
                )
            case HoldPod(cap=cap):
                order = wire.ApplicationOrder(grid=_grid(point.grid), watch_memory=point.watch_memory)
                return wire.SetPoint(uid=point.pod, cap=cap, rest_cap=cap, period=point.period, mode=order)
            case SendSetPoint(cap=cap, line=line):
                followed = None if seen is None else seen.followed
                return wire.SetPoint(
                    uid=point.pod,
                    cap=cap,
                    rest_cap=cap,
                    period=point.period,
                    units=point.units,
                    job=self.job_of(point.pod),
                    mode=wire.HoldOrder() if line is None else self._line(point, line, now, followed),
                )

    def _line(self, point: SendSetPoint, line: FollowedLine, now: float, seen: wire.Followed | None) -> wire.LineOrder:
        """Return a line in seconds left."""
        cpu_per_unit = line.cpu_per_unit if line.response is None else line.response.cpu_per_unit
        # where chunks share processors, the cap moves, and the sample must not: a chunk's line tells its usual CPU
        cap = point.cap if line.ceiling is None else line.units * line.cpu_per_unit / max(1.0, line.planned)
        sample = sample_length(cpu_per_unit, cap, line.planned)
        if seen is not None and seen.samples > 0:
            self._seen[point.pod] = seen
        last = self._seen.get(point.pod)
        own = None if last is None else response_of(last)
        learned = last is not None and last.model.learned
        first = first_model(own, line.response, line.cpu_per_unit, sample, learned=learned)
        model = model_of(first)
        loop = None
        if seen is not None:
            loop = self._loops.loop(seen.model, seen.noise)
        elif model.learned:
            loop = self._loops.loop(model, first.noise)
        return wire.LineOrder(
            pool=line.pool,
            pool_cores=min(line.pool_cores, MOST_CORES),
            units=line.units,
            seconds_left=point.end - now - spare(sample, line.planned),
            due_seconds_left=line.due - now,
            floor=floor(point.cap, line.ceiling),
            ceiling=line.ceiling,
            sample=sample,
            model=model,
            noise=first.noise,
            loop=loop,
        )


def _grid(grid: Grid | None) -> wire.GridOrder | None:
    return None if grid is None else wire.GridOrder(begins=grid.begins, slice=grid.slice)
