"""The agent's state for the pods of one node, and its work of each second. The time is passed in, so tests control it.

The agent follows a pod that the operator names or that has a volume ``punctual``. Reports therefore begin before the
first set point. Each :meth:`Agent.tick` reads the workers' files and the cgroups, restores caps that another program
changed, and returns the report. :meth:`Agent.tell` takes the operator's answer.

An agent that was killed and starts again leaves caps as they are for a lease, in which the operator answers.

While the operator answers, a pod gets the cap of its last set point, or is kept on its line (`steering`). After
``patience`` seconds of silence, it gets the rest cap, with which a chunk finishes in time without control. A line
goes on until its end. A pod that the operator no longer names keeps its last set point, because a new leader may not
know the pod yet. Rest caps are saved before caps are written, so the watchdog always knows a safe cap, however the
agent ends.

An application's pod keeps the cap of its last set point, also while the operator is away, and never has more than its
own limits (`application`). It gets them back when a complete answer does not name it.

A guest's cap follows what the node's own work leaves, each second, also while the operator is away (`guests`). Its rest
cap is its floor, which the watchdog gives it. Its memory is held to what is left, too (`guest_memory`).

An answer with an epoch below the highest one seen is refused and changes nothing. The highest epoch survives a restart.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from punctual.wire import Hosts, NodeReport, PodReport, Report, SetPoint, SetPoints
from punctual_agent.actuator import Actuator, Held, NodeLock
from punctual_agent.application import Application
from punctual_agent.cgroup import Cap, Hierarchy, NodeUse, Priority, Throttling, valid_uid
from punctual_agent.disk import Disk
from punctual_agent.disk import Kind as DiskKind
from punctual_agent.guest_memory import Found, GuestMemory
from punctual_agent.guest_share import GuestShare
from punctual_agent.guests import Guests, Seen
from punctual_agent.memory import Kind as MemoryKind
from punctual_agent.metrics import Metrics
from punctual_agent.progress import Progress, with_volume
from punctual_agent.state import Rest, Saved, State
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
DEAD = 0.01
"""Part of a cap by which it must change to be written: smaller changes are lost in the kernel's own accounting."""
EXACT = 1e-6
"""Cores by which caps may differ and be the same."""


@dataclass(slots=True)
class _Pod:
    """The agent's state for one pod."""

    uid: str
    progress: Progress
    seen: float
    """The time at which the pod last had a cgroup or a volume."""
    counted: Mapping[str, Throttling] | None
    """How it was throttled, by folder, at the last look. None: it had begun before the agent, and an earlier one
    may have counted it."""
    looked: float | None = None
    """The time at which its files were last read."""
    over: bool = False
    """Its files are gone, and the last read of them is final."""
    told: Rest | None = None
    """Cap and period of the last set point since this process started."""
    rest: Rest | None = None
    held: Held = field(default_factory=Held)
    cpu: float = 0.0
    throttled: float = 0.0
    """The largest values of these counters: a container's counter disappears with the container."""
    drift: int = 0
    error: str | None = None
    trouble: str | None = None
    """The last failed writes, so that each is told once."""
    steered: float | None = None
    """Cap that keeps it on its line, cores. None: it has no line."""
    application: Application | None = None
    """Its caps as an application that is held at a rate."""
    guest: int | None = None
    """Its weight among guests. 0: it is paused. None: it is no guest."""

    @property
    def named(self) -> bool:
        """A set point has named it."""
        return self.told is not None or self.rest is not None or self.application is not None


class Capabilities(NamedTuple):
    """How guests can be held on this node, as the kernel's files show. The fields are those of the report."""

    guest_priority: Priority | None = None
    guest_memory: MemoryKind | None = None
    guest_disk: tuple[DiskKind, ...] = ()


class Agent:
    """Follows, caps and reports the pods of one node."""

    def __init__(
        self,
        *,
        node: str,
        hierarchy: Hierarchy,
        pods_root: str,
        state: State,
        metrics: Metrics,
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
        self._guests = Guests()
        self._memory = GuestMemory(hierarchy)
        self._disk = Disk(hierarchy)
        self._share = GuestShare(hierarchy)
        self._pods_root = pods_root
        self._state = state
        self._metrics = metrics
        self._started = self._answered = now
        self._patience = patience
        self._wall = wall
        self._sequence = 0
        self._capabilities = Capabilities()
        self._pods: dict[str, _Pod] = {}
        saved = state.load()
        self._saved = Saved(saved.epoch, lease, saved.rests, saved.applications, saved.guests)
        for uid, rest in saved.rests.items():
            pod = self._pod(uid, now)
            pod.rest, pod.guest = rest, saved.guests.get(uid)
        for uid, application in saved.applications.items():
            self._pod(uid, now).application = application

    @property
    def epoch(self) -> int:
        """The highest epoch of the set points that the agent accepted."""
        return self._saved.epoch

    @property
    def capabilities(self) -> Capabilities:
        """How guests can be held here: nothing is known before the kubelet has made a folder."""
        return Capabilities(self._hierarchy.guest_priority, self._memory.kind, self._disk.kinds)

    def tick(self, now: float) -> Report:
        """Read every pod, apply every cap, and return the report."""
        self._state.beat(now)
        may_write = self._lock.take() and self._hierarchy.writable
        self._read_files(now)
        for pod in list(self._pods.values()):
            pod.held = self._actuator.read(pod.uid)
            if pod.held.found:
                pod.seen = now
                self._look(pod, now)
                self._see(pod, may_write=may_write)
                continue
            # what ended, or has not begun, takes no CPU from others; a line comes again with each answer
            self._steering.forget(pod.uid)
            if now - pod.seen > FORGET_AFTER:
                self._forget(pod.uid)
        node = self._hierarchy.node()
        self._steer(now, node.pressure)
        self._look_at_guests(now, node)
        hosts = self._guests.report()
        self._look_at_memory_and_disk(now, may_write=may_write)
        self._share.look(now, guests=len(self._guests) > 0)
        self._save(self.epoch)
        for pod in self._pods.values():
            self._assert(pod, now, may_write=may_write)
        self._sequence += 1
        self.ticked = now
        self._measure(now, node, hosts, may_write=may_write)
        return self._report(now, node, hosts, may_write=may_write)

    def glance(self, now: float) -> None:
        """Let guests yield to the node's own work between two ticks, so that a burst never lasts for a whole one."""
        guests = [pod for pod in self._pods.values() if pod.guest is not None]
        if not guests:
            return
        for pod in guests:
            pod.held = self._actuator.read(pod.uid)
        self._look_at_guests(now, self._hierarchy.node())
        may_write = self._lock.take() and self._hierarchy.writable
        for pod in guests:
            self._assert(pod, now, may_write=may_write)

    def tell(self, answer: SetPoints, now: float) -> bool:
        """Apply the operator's answer. Returns False if the answer is from a replaced leader."""
        if answer.epoch < self.epoch:
            log.warning("answer_refused", extra={"epoch": answer.epoch, "seen": self.epoch})
            return False
        self._answered = now
        points = {point.uid: point for point in answer.pods if valid_uid(point.uid)}
        may_write = self._lock.take() and self._hierarchy.writable
        for uid, point in points.items():
            pod = self._pod(uid, now)
            was = pod.guest
            self._take(pod, point, now)
            if may_write and was is not None and pod.guest is None:
                self._memory.release(pod.held.folder)
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
        if self._lock.take():
            for pod in self._pods.values():
                self._count(pod, self._actuator.hold(pod.uid, pod.rest.cap if pod.rest else None))
        self._state.end()
        self._lock.release()

    def _pod(self, uid: str, now: float) -> _Pod:
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = _Pod(uid, Progress(uid), now, {} if self._sequence else None)
        return pod

    def _take(self, pod: _Pod, point: SetPoint, now: float) -> None:
        if point.application:
            pod.application = (pod.application or Application(None)).told(Cap.of(point.cap, point.period))
            pod.told = pod.rest = pod.steered = pod.guest = None
            pod.progress.application = True
            self._steering.forget(pod.uid)
            return
        pod.application = None
        pod.told = Rest(point.cap, point.period)
        pod.rest = Rest(point.rest_cap, point.period)
        pod.guest = None if point.guest is None else 0 if point.guest.paused else point.guest.weight
        pod.progress.bound(point.units or None)
        self._steering.tell(pod.uid, point, now)
        if point.follow is None:
            pod.steered = None
        elif pod.steered is None and pod.progress.done and pod.held.cap is not None:
            pod.steered = min(pod.held.cap.share, point.follow.pool_cores)  # an agent before this one has chosen it

    def _release(self, named: Container[str]) -> list[str]:
        """Let applications that are not named have their limits back. Returns their pods."""
        released = []
        for uid, pod in self._pods.items():
            if pod.application is not None and uid not in named:
                pod.application = pod.application.told(None)
                released.append(uid)
        return released

    def _save(self, epoch: int) -> None:
        rests = {pod.uid: pod.rest for pod in self._pods.values() if pod.rest is not None}
        applications = {pod.uid: pod.application for pod in self._pods.values() if pod.application is not None}
        guests = {pod.uid: pod.guest for pod in self._pods.values() if pod.guest is not None}
        saved = Saved(epoch, self._saved.lease, rests, applications, guests)
        if saved != self._saved:
            self._state.save(saved)
            self._saved = saved

    def _forget(self, uid: str) -> None:
        del self._pods[uid]
        self._actuator.forget(uid)
        self._steering.forget(uid)
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

    def _wanted(self, pod: _Pod, now: float) -> Cap | None:
        if pod.guest is not None and pod.rest is not None:
            return Cap.of(self._guests.cap(pod.uid, pod.rest.cores), pod.rest.period)
        answered = now - self._answered <= self._patience
        if pod.told is not None and pod.steered is not None and (answered or not self._steering.over(pod.uid, now)):
            return Cap.of(pod.steered, pod.told.period)
        if pod.told is None and now - self._started <= self._saved.lease:
            return None  # a rest cap would be a bump for a pod on a line
        wanted = pod.told if pod.told is not None and answered else pod.rest
        return None if wanted is None else wanted.cap

    def _look(self, pod: _Pod, now: float) -> None:
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
            # its whole processor is written exactly, however small the step to it is
            whole = pod.told is not None and abs(cores - pod.told.cores) < EXACT
            if whole or pod.steered is None or abs(cores - pod.steered) > DEAD * pod.steered:
                pod.steered = cores

    def _look_at_guests(self, now: float, node: NodeUse) -> None:
        pods = {uid: seen for uid, pod in self._pods.items() if (seen := _seen(pod)) is not None}
        self._guests.look(now, node, pods)

    def _look_at_memory_and_disk(self, now: float, *, may_write: bool) -> None:
        """Bring guests' memory to what hosts leave, and their disk priority to the least. Once a second is enough."""
        guests = [pod for pod in self._pods.values() if pod.guest is not None and pod.held.found]
        found = [Found(pod.guest or 0, pod.held) for pod in guests]
        self._memory.look(now, found, may_write=may_write)
        if may_write:
            self._disk.lower(one.held for one in found)
        for pod in guests:
            if pod.held.trouble != pod.trouble:
                pod.trouble = pod.held.trouble
                if pod.trouble:
                    log.warning("guest_limit_not_written", extra={"uid": pod.uid, "error": pod.trouble})

    def _see(self, pod: _Pod, *, may_write: bool) -> None:
        """Note the limits of an application that was just read. They must be saved before anything is written.

        While another agent writes, its caps would be taken for limits.
        """
        if pod.application is not None and pod.held.found and may_write:
            pod.application, pod.held.drift = pod.application.seen(pod.held.names)

    def _differs(self, pod: _Pod, now: float) -> bool:
        """Return whether a pod has another cap than it is to have."""
        if pod.application is not None:
            return not pod.application.folders or not pod.application.settled
        wanted = self._wanted(pod, now)
        return wanted is not None and wanted != pod.held.cap

    def _assert(self, pod: _Pod, now: float, *, may_write: bool) -> None:
        """Bring a pod that was just read to its cap."""
        if pod.application is not None:
            if may_write:
                pod.application = self._actuator.keep(pod.application, pod.held)
            if pod.application.released:
                pod.application = None
        elif may_write and (wanted := self._wanted(pod, now)) is not None:
            if pod.guest is not None:
                self._actuator.lower(pod.uid, pod.held)
            self._actuator.write(pod.uid, wanted, pod.held)
        self._count(pod, pod.held)

    def _count(self, pod: _Pod, held: Held) -> None:
        pod.held = held
        pod.drift += held.drift
        if held.use is not None:
            pod.cpu, pod.throttled = max(pod.cpu, held.use.cpu), max(pod.throttled, held.use.throttled)
            self._metrics.throttling(pod.counted, held.use.folders)
            pod.counted = held.use.folders
        if held.drift:
            self._metrics.drift.inc(held.drift)
            log.info("cap_restored", extra={"uid": pod.uid, "folders": held.drift})
        for result, times in held.writes.items():
            self._metrics.writes.labels(result).inc(times)
        if pod.steered is not None:
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
        self._metrics.applications.set(sum(pod.application is not None for pod in self._pods.values()))
        self._metrics.guests.set(len(self._guests))
        if (can := self.capabilities) != self._capabilities:
            self._capabilities = can
            disk = (("disk", kind) for kind in can.guest_disk)
            self._metrics.capabilities([("cpu", can.guest_priority), ("memory", can.guest_memory), *disk])
        self._metrics.guest_share.set(self._share.part or 0.0)
        self._metrics.guest_mark.set(self._memory.mark)
        self._metrics.guest_excess.set(self._memory.excess)
        if hosts is not None:
            self._metrics.host_use.set(hosts.used)
            self._metrics.guest_use.set(hosts.guests)
        self._metrics.epoch.set(self.epoch)
        self._metrics.answered(now - self._answered)
        self._metrics.may_write.set(may_write)
        self._metrics.caps({pod.uid: pod.held.cap for pod in self._pods.values() if pod.held.cap is not None})

    def _report(self, now: float, node: NodeUse, hosts: Hosts | None, *, may_write: bool) -> Report:
        # if there are more pods than fit, those with a set point come first
        pods = sorted(self._pods.values(), key=lambda pod: (not pod.named, pod.uid))[:MOST_PODS]
        return Report(
            node=self._node,
            instance=self.instance,
            started=now - self._started,
            sequence=self._sequence,
            epoch=self.epoch,
            host=NodeReport(
                cpu_seconds=node.cpu,
                memory_bytes=node.memory,
                pressure=node.pressure,
                cgroup=self._hierarchy.version,
                driver=self._hierarchy.driver,
                can_write=may_write,
                guest_priority=self._capabilities.guest_priority,
                guest_memory=self._capabilities.guest_memory,
                guest_disk=self._capabilities.guest_disk,
                guest_excess=self._memory.excess,
                hosts=hosts,
            ),
            pods=[self._pod_report(pod, now) for pod in pods],
        )

    def _pod_report(self, pod: _Pod, now: float) -> PodReport:
        cap = pod.held.cap
        return PodReport(
            uid=pod.uid,
            done=pod.progress.done,
            written=pod.progress.written(now),
            end=pod.progress.end,
            received=pod.progress.received,
            over=pod.over,
            faults={file: dict(kinds) for file, kinds in pod.progress.faults.items()},
            cpu_seconds=pod.cpu,
            throttled_seconds=pod.throttled,
            memory_bytes=self._memory.used(pod.held.folder),
            cap=None if cap is None or cap.cores is None else min(cap.cores, MOST_CORES),
            period=None if cap is None else cap.period / 1e6,
            drift=pod.drift,
            followed=self._steering.report(pod.uid, now),
        )


def _seen(pod: _Pod) -> Seen | None:
    """Return a pod's counter for the account of guests and hosts; None: it was not found."""
    use = pod.held.use
    if not pod.held.found or use is None:
        return None
    return Seen(use.cpu, pod.named, pod.guest, pod.rest.cores if pod.rest is not None else 0.0)


def _bound(before: Mapping[str, Throttling] | None, now: Mapping[str, Throttling]) -> float | None:
    """Return the part of the last periods in which a pod used up its cap; None: it did not run, or nothing is known."""
    pairs = [(one, (before or {})[folder]) for folder, one in now.items() if folder in (before or {})]
    parts = [
        (one.throttled - old.throttled) / (one.periods - old.periods) for one, old in pairs if one.periods > old.periods
    ]
    return max(parts, default=None)
