"""The agent of one node, and its work of each second. The time is passed in, so tests control it.

The agent follows a pod that the operator names or that has a volume ``punctual``. Reports therefore begin before the
first set point. Each :meth:`Agent.tick` reads the workers' files and the cgroups, restores caps that another program
changed, and returns the report. :meth:`Agent.tell` takes the operator's answer.

What a pod is to have is told by its mode, a value (:mod:`punctual_agent.modes`). A set point makes a new one. Where the
caps of several pods depend on each other, a part of the agent chooses them each second: `steering` for pods on lines,
`node_guests` for guests. Modes are saved before anything is written, so the watchdog always knows a safe cap, however
the agent ends.

An agent that was killed and starts again leaves caps as they are for a lease, in which the operator answers. The
operator is away after ``patience`` seconds of silence. A pod that it no longer names keeps its last set point, because
a new leader may not know the pod yet.

An answer with an epoch below the highest one seen is refused and changes nothing. The highest epoch survives a restart.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable, Container, Mapping

from punctual.wire import Hosts, NodeReport, PodReport, Report, SetPoints
from punctual_agent.actuator import Actuator, Held, NodeLock
from punctual_agent.aligned_memory import AlignedMemory
from punctual_agent.aligned_pods import AlignedPods
from punctual_agent.cgroup import Cap, Hierarchy, NodeUse, Throttling, valid_uid
from punctual_agent.metrics import AgentMetrics
from punctual_agent.modes import MODES
from punctual_agent.modes.application import ApplicationMode
from punctual_agent.modes.guest import GuestMode
from punctual_agent.modes.line import LineMode
from punctual_agent.modes.mode import Moment, Told
from punctual_agent.node_guests import Capabilities, NodeGuests
from punctual_agent.operator_client import Answered
from punctual_agent.own_work import OwnWork
from punctual_agent.phases import Phases
from punctual_agent.pod import Pod
from punctual_agent.progress import PodProgress, with_volume
from punctual_agent.state import Saved, State
from punctual_agent.steering import Steering

log = logging.getLogger(__name__)

FORGET_AFTER = 60.0
"""Seconds without a cgroup and a volume after which a pod is forgotten."""
LAST_LOOK = 2.4
"""When a pod's files are gone, the last read of them counts as final if it is at most this many seconds old. The
kubelet removes the files when the containers have ended, and a worker waits longer than this between its answer and its
exit."""
MOST_PODS = 1000
"""The limit of the wire format. The kubelet's default limit is 110."""
MOST_CORES = 4096.0


class Agent:
    """Follows, caps and reports the pods of one node."""

    def __init__(
        self,
        *,
        node: str,
        hierarchy: Hierarchy,
        pods_root: str,
        state: State,
        metrics: AgentMetrics,
        now: float,
        lease: float,
        patience: float,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.instance = secrets.token_hex(8)
        self.ticked = now
        self._node = node
        self._hierarchy = hierarchy
        self._actuator = Actuator(hierarchy)
        self._lock = NodeLock(hierarchy)
        self._steering = Steering()
        self._guests = NodeGuests(hierarchy)
        self.phases = Phases(self._actuator, state)
        self._aligned = AlignedPods(self.phases)
        self._aligned_memory = AlignedMemory(hierarchy)
        self._own = OwnWork(hierarchy)
        self._pods_root = pods_root
        self._state = state
        self._metrics = metrics
        self._started = self._answered = now
        self._lease = lease
        self._patience = patience
        self._wall = wall
        self._sequence = 0
        self._pods: dict[str, Pod] = {}
        self._restored = False
        saved = state.load()
        self._saved = Saved(saved.epoch, lease, saved.modes)
        for uid, mode in saved.modes.items():
            self._pod(uid, now).mode = mode

    @property
    def epoch(self) -> int:
        """The highest epoch of the set points that the agent accepted."""
        return self._saved.epoch

    @property
    def capabilities(self) -> Capabilities:
        """How guests can be held here: nothing is known before the kubelet has made a folder."""
        return self._guests.capabilities

    def tick(self, now: float) -> Report:
        """Read every pod, apply every cap, and return the report."""
        self._state.beat(now)
        may_write = self._may_write(now)
        self._read_files(now)
        for pod in list(self._pods.values()):
            pod.held = self._actuator.read(pod.uid)
            if pod.held.found:
                pod.seen = now
                self._look(pod, now)
                self._see(pod, may_write=may_write)
                self._aligned.look(pod)
                continue
            # what ended, or has not begun, takes no CPU from others; a line comes again with each answer
            self._steering.forget(pod.uid)
            if now - pod.seen > FORGET_AFTER:
                self._forget(pod.uid)
        node = self._hierarchy.node()
        self._steer(now, node.pressure)
        hosts = self._guests.look(now, self._pods.values(), node, may_write=may_write)
        self._own.look(now, self._pods.values(), node)
        self._save(self.epoch)
        for pod in self._pods.values():
            self._assert(pod, now, may_write=may_write)
        self._aligned.steer(self._pods.values(), now, may_write=may_write and not self._state.trouble)
        self._aligned_memory.look(now, self._pods.values())
        self._sequence += 1
        self.ticked = now
        self._measure(now, node, hosts, may_write=may_write)
        return self._report(now, hosts, may_write=may_write)

    def glance(self, now: float) -> None:
        """Let guests yield to the node's own work between two ticks, so that a burst never lasts for a whole one."""
        guests = [pod for pod in self._pods.values() if isinstance(pod.mode, GuestMode)]
        if not guests:
            return
        for pod in guests:
            pod.held = self._actuator.read(pod.uid)
        self._guests.glance(now, self._pods.values(), self._hierarchy.node())
        may_write = self._may_write(now)
        for pod in guests:
            self._assert(pod, now, may_write=may_write)

    def hear(self, answered: Answered, now: float) -> bool:
        """Apply the operator's answer, and learn of its clock. Returns as :meth:`tell`."""
        accepted = self.tell(answered.points, now)
        if accepted:
            self._aligned.hear(answered)
        return accepted

    def tell(self, answer: SetPoints, now: float) -> bool:
        """Apply the operator's answer. Returns False if the answer is from a replaced leader."""
        if answer.epoch < self.epoch:
            log.warning("answer_refused", extra={"epoch": answer.epoch, "seen": self.epoch})
            return False
        self._answered = now
        points = {point.uid: point for point in answer.pods if valid_uid(point.uid)}
        may_write = self._may_write(now)
        for pod in self._pods.values():
            pod.named = False
        for uid, point in points.items():
            pod = self._pod(uid, now)
            pod.job, pod.named = point.job, True
            pod.progress.bound(point.units or None)
            there = pod.held.cap if pod.progress.done else None
            before, pod.mode = pod.mode, MODES[point.mode.kind].ordered(Told(point, now, pod.mode, there))
            pod.progress.application |= pod.mode.own
            self._steering.tell(uid, point, now)
            self._aligned.tell(uid, point.mode, answer.epoch)
            self._aligned_memory.tell(uid, point.mode)
            if may_write and isinstance(before, GuestMode) and not isinstance(pod.mode, GuestMode):
                self._guests.release(pod)
        released = self._release(points) if answer.applications_complete else []
        changed = [pod for uid in (*points, *released) if self._differs(pod := self._pods[uid], now)]
        for pod in changed:
            pod.held = self._actuator.read(pod.uid)
            self._see(pod, may_write=may_write)
        self._save(answer.epoch)
        for pod in changed:
            self._assert(pod, now, may_write=may_write)
        return True

    def rest(self) -> None:
        """Shut down.

        Every chunk gets its rest cap, and the heartbeat is removed, so that the watchdog does not act. Applications
        keep their caps.
        """
        self.phases.end()
        if self._lock.take():
            for pod in self._pods.values():
                self._count(pod, self._actuator.hold(pod.uid, pod.mode.rest if pod.mode is not None else None))
        self._state.end()
        self._lock.release()

    def _pod(self, uid: str, now: float) -> Pod:
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = Pod(uid, PodProgress(uid), now, {} if self._sequence else None)
        return pod

    def _may_write(self, now: float) -> bool:
        """Take the node's lock, and learn what the agent that had it before has saved of users' own pods."""
        if not self._lock.take():
            return False
        if not self._restored:
            self._restored = True
            self._saved = Saved(self._saved.epoch, self._lease)  # all is saved anew
            for uid, mode in self._state.load().modes.items():
                pod = self._pod(uid, now)
                if isinstance(mode, ApplicationMode) and isinstance(pod.mode, ApplicationMode):
                    mode = mode.told(pod.mode.cap, aligned=pod.mode.aligned)  # noqa: PLW2901  as was ordered since
                if mode.own:
                    pod.mode = mode
        return self._hierarchy.writable

    def _release(self, named: Container[str]) -> list[str]:
        """Let users' own pods that are not named have their limits back. Returns them."""
        released = []
        for uid, pod in self._pods.items():
            if uid not in named and pod.mode is not None and (mode := pod.mode.unnamed()) is not pod.mode:
                pod.mode = mode
                released.append(uid)
        return released

    def _save(self, epoch: int) -> None:
        modes = {pod.uid: pod.mode.saved for pod in self._pods.values() if pod.mode is not None}
        saved, before = Saved(epoch, self._lease, modes), self._state.trouble
        if saved != self._saved or before:
            self._state.save(saved, own=self._restored)
            self._saved = saved
            if (trouble := self._state.trouble) and trouble != before:
                log.warning("limits_not_saved", extra={"error": trouble})
            elif before and not trouble:
                log.info("limits_saved")

    def _forget(self, uid: str) -> None:
        del self._pods[uid]
        self._actuator.forget(uid)
        self._steering.forget(uid)
        self._aligned.forget(uid)
        self._aligned_memory.forget(uid)
        self._save(self.epoch)

    def _read_files(self, now: float) -> None:
        try:
            handle = os.open(self._pods_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:  # without the folder there is no progress, but caps still apply
            log.warning("pods_folder_not_read", extra={"path": self._pods_root, "error": error.strerror})
            return
        try:
            there = with_volume(handle)
            wall = self._wall()
            for uid in there:
                pod = self._pod(uid, now)
                pod.seen = pod.looked = now
                for file, fault in pod.progress.read(handle, now, wall):
                    self._metrics.faults.labels(fault).inc()
                    log.info("file_rejected", extra={"uid": uid, "file": file, "fault": fault})
            for uid in self._pods.keys() - there:
                pod = self._pods[uid]
                if pod.looked is not None and now - pod.looked <= LAST_LOOK:
                    pod.over = True
        finally:
            os.close(handle)

    def _moment(self, now: float) -> Moment:
        return Moment(now, now - self._answered <= self._patience, now - self._started > self._lease)

    def _look(self, pod: Pod, now: float) -> None:
        """Measure the progress of a pod on a line, and whether its cap holds it back."""
        cap, use = pod.held.cap, pod.held.use
        cpu = max(pod.cpu, use.cpu if use is not None else 0.0)
        self._steering.look(
            pod.uid,
            now,
            done=pod.progress.done,
            cpu=cpu,
            cap=cap.cores if cap is not None else None,
            bound=_bound(pod.counted, use.folders) if use is not None else None,
        )

    def _steer(self, now: float, pressure: float | None) -> None:
        """Choose the caps of the pods on lines."""
        for uid, cores in self._steering.caps(now, pressure).items():
            pod = self._pods[uid]
            if isinstance(pod.mode, LineMode):
                pod.mode = pod.mode.at(cores)

    def _see(self, pod: Pod, *, may_write: bool) -> None:
        """Let a pod's mode look at its folders. What it learns must be saved before anything is written.

        While another agent writes, its caps would be taken for limits.
        """
        if pod.mode is not None and pod.mode.weighed:
            self._actuator.weigh(pod.uid, pod.held)
        if isinstance(pod.mode, ApplicationMode):
            pod.mode = pod.mode.moving(self.phases.moves(pod.uid))
        if pod.mode is not None and pod.held.found and may_write:
            pod.mode, drift = pod.mode.seen(pod.held.names, pod.held.weight)
            pod.held.drift += drift

    def _differs(self, pod: Pod, now: float) -> bool:
        return pod.mode is not None and pod.mode.differs(pod.held.cap, self._moment(now))

    def _assert(self, pod: Pod, now: float, *, may_write: bool) -> None:
        """Bring a pod that was just read to what its mode wants.

        What a user's own pod has without this agent must be saved before. Only a pod that is let go gets its limits
        back in any case: an agent that finds them takes them for limits, which is what they are.
        """
        if pod.mode is not None and may_write and (not self._state.trouble or pod.mode.unnamed() == pod.mode):
            match pod.mode.wanted(self._moment(now)):
                case Cap() as cap:
                    if pod.mode.lowest:
                        self._actuator.lower(pod.uid, pod.held)
                    self._actuator.write(pod.uid, cap, pod.held)
                case Mapping() as caps:
                    if (weight := pod.mode.weight) is not None:
                        self._actuator.weigh(pod.uid, pod.held, weight)
                    pod.mode = pod.mode.wrote(self._actuator.keep(caps, pod.held), pod.held.weight)
        if pod.mode is not None and pod.mode.released:
            pod.mode = None
        self._count(pod, pod.held)

    def _count(self, pod: Pod, held: Held) -> None:
        pod.held = held
        pod.drift += held.drift
        if held.use is not None:
            pod.cpu = max(pod.cpu, held.use.cpu)
            self._metrics.throttling(pod.counted, held.use.folders)
            pod.counted = held.use.folders
        if held.drift:
            self._metrics.drift.inc(held.drift)
            log.info("cap_restored", extra={"uid": pod.uid, "folders": held.drift})
        for result, times in held.writes.items():
            self._metrics.writes.labels(result).inc(times)
        if isinstance(pod.mode, LineMode) and pod.mode.steered is not None:
            self._metrics.line_writes.inc(held.writes["written"])
        if held.error != pod.error:
            pod.error = held.error
            if held.error:
                log.warning("cap_not_written", extra={"uid": pod.uid, "error": held.error})

    def _measure(self, now: float, node: NodeUse, hosts: Hosts | None, *, may_write: bool) -> None:
        self._metrics.waited(node.waited)
        self._metrics.pods.set(len(self._pods))
        self._metrics.lines.set(len(self._steering))
        self._metrics.saturated.set(self._steering.saturated)
        self._metrics.applications.set(sum(isinstance(pod.mode, ApplicationMode) for pod in self._pods.values()))
        self._guests.measure(self._metrics, hosts)
        self._aligned.measure(self._metrics)
        self._metrics.epoch.set(self.epoch)
        self._metrics.answered(now - self._answered)
        self._metrics.may_write.set(may_write)
        self._metrics.caps({pod.uid: pod.held.cap for pod in self._pods.values() if pod.held.cap is not None})

    def _report(self, now: float, hosts: Hosts | None, *, may_write: bool) -> Report:
        # if there are more pods than fit, those with a set point come first
        pods = sorted(self._pods.values(), key=lambda pod: (pod.mode is None, pod.uid))[:MOST_PODS]
        return Report(
            node=self._node,
            instance=self.instance,
            started=now - self._started,
            sequence=self._sequence,
            epoch=self.epoch,
            modes=tuple(MODES),
            host=NodeReport(
                can_write=may_write,
                guest_priority=self._hierarchy.guest_priority,
                guest_excess=self._guests.excess,
                hosts=hosts,
                clock=self._aligned.clock(),
                load=self._own.load,
            ),
            pods=[self._pod_report(pod, now) for pod in pods],
        )

    def _pod_report(self, pod: Pod, now: float) -> PodReport:
        cap = pod.held.cap
        if cap is not None and isinstance(pod.mode, ApplicationMode):
            cap = pod.mode.steady(cap)
        return PodReport(
            uid=pod.uid,
            done=pod.progress.done,
            written=pod.progress.written(now),
            end=pod.progress.end,
            received=pod.progress.received,
            over=pod.over,
            faults={file: dict(kinds) for file, kinds in pod.progress.faults.items()},
            cpu_seconds=pod.cpu,
            memory_bytes=self._guests.memory_used(pod),
            cap=None if cap is None or cap.cores is None else min(cap.cores, MOST_CORES),
            period=None if cap is None else cap.period / 1e6,
            drift=pod.drift,
            followed=self._steering.report(pod.uid, now),
            phase=self._aligned.report(pod.uid, now),
            throttled=self._aligned.throttled(pod.uid),
            memory=self._aligned_memory.short(pod.uid),
            job=None if pod.named else pod.job,
        )


def _bound(before: Mapping[str, Throttling] | None, now: Mapping[str, Throttling]) -> float | None:
    """Return the part of the last periods in which a pod used up its cap; None: it did not run, or nothing is known."""
    pairs = [(one, (before or {})[folder]) for folder, one in now.items() if folder in (before or {})]
    parts = [
        (one.throttled - old.throttled) / (one.periods - old.periods) for one, old in pairs if one.periods > old.periods
    ]
    return max(parts, default=None)
