"""Pods that are told to end: once each, with a grace period, and which of them stay to be read."""

from dataclasses import dataclass

from punctual.scheduling.chunks.life import left_behind
from punctual.scheduling.model.actions import EndPod, StopPod
from punctual.scheduling.model.events import PodObserved
from punctual.scheduling.model.job import Retention
from punctual.scheduling.model.processors import Occupant
from punctual.scheduling.model.timing import GRACE, LOOK
from punctual.scheduling.state.pool_state import PoolState


@dataclass(slots=True)
class Endings:
    """Ends pods, and notes until when they hold their processors."""

    state: PoolState

    def leave(self, now: float, pod: PodObserved, retention: Retention) -> None:
        """End what is to end of a pod after the end of its work. Helpers that still run get its grace period."""
        match left_behind(pod, retention):
            case "Stop":
                self.stop(now, pod)
            case "End":
                self.end(now, pod, pod.grace if pod.detained else GRACE)

    def stop(self, now: float, pod: PodObserved) -> None:
        """End the containers of a pod that stays to be read."""
        if pod.uid not in self.state.pods.ending:
            self.state.pods.ending[pod.uid] = _occupant(pod), now + pod.grace + LOOK
            self.state.outbox.add(StopPod(pod.namespace, pod.name, pod.uid))

    def end(self, now: float, pod: PodObserved, grace: float = GRACE, *, sooner: bool = False) -> None:
        """Delete a pod, once. This includes a pod that is already terminating: its grace period may be longer.

        ``sooner``: also one that was told to end before, if it ends earlier by that.
        """
        before = self.state.pods.ending.get(pod.uid)
        if before is not None and not (sooner and now + grace + LOOK < before[1]):
            return
        if pod.phase == "Succeeded":
            grace = 1.0
        self.state.pods.ending[pod.uid] = _occupant(pod), now + max(grace, GRACE)
        self.state.outbox.add(EndPod(pod.namespace, pod.name, pod.uid, grace))

    def hurry(self, now: float, occupant: Occupant) -> None:
        """Cut the grace period of helpers short, as their processor is needed. A reduce pod must stay to be read."""
        for uid, (there, until) in list(self.state.pods.ending.items()):
            if there == occupant and occupant.kind != "Reduce" and until > now + GRACE + LOOK:
                for pod in [pod for pod in self.state.pods.seen.values() if pod.uid == uid]:
                    self.end(now, pod, sooner=True)

    def any_lingers(self, now: float) -> bool:
        """Whether a pod has been given longer than a chunk that is ended."""
        return any(until > now + GRACE for _, until in self.state.pods.ending.values())


def _occupant(pod: PodObserved) -> Occupant:
    return Occupant(pod.job, pod.kind, pod.begin, pod.attempt)
