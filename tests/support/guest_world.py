"""A cluster with guests in a few lines: nodes with hosts, kubelets, workers that answer offers, agents that report once
a second, and an API server that holds what was written. It knows nothing of how the control decides.

Time moves in seconds. ``crash()`` drops the control and builds a new one from what was written. Of what an
``interrupted()`` tick wants, only a part reaches the API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from punctual.guests.control import GuestControl
from punctual.guests.model import (
    Action,
    ChunkSeen,
    Decided,
    Event,
    Guest,
    GuestApplied,
    GuestDeleted,
    GuestNode,
    HostSeen,
    LendTo,
    NodeReported,
    NodesSeen,
)
from punctual.linger.episode import Watch
from punctual.scheduling.model.actions import (
    CreateChunk,
    DeleteJob,
    DropSetPoint,
    Emit,
    EndPod,
    OfferEnd,
    StopPod,
    StoreResult,
    WriteStatus,
)
from punctual.scheduling.model.events import CreateRefused, Helper, Outcome, PodGone, PodObserved
from punctual.scheduling.model.job import Chunk, JobRecord
from punctual.scheduling.model.ranges import Ranges

GIB = 2**30


def guest(uid: str = "g1", **more) -> Guest:
    usual = {"namespace": "default", "name": uid, "units": 100, "cpu_per_unit": 1.0}
    return Guest(uid=uid, **{**usual, **more})


@dataclass
class Manners:
    """How a worker behaves."""

    start: float = 2.0
    """Seconds until its pod runs."""
    factor: float = 1.0
    """CPU of its units against what is declared."""
    deaf: bool = False
    """Answers no offer."""
    slow_to_answer: float = 0.0
    """Seconds until it reads an offer."""
    fails_after: float | None = None
    """CPU seconds after which it fails."""
    reason: str = ""
    """Reason of the pods that fail, as their kubelet says."""
    log: str = ""
    """What they have said at their end."""
    hangs: bool = False
    memory: int = 100
    helper: bool = False
    """A container beside the work runs on until it is ended."""


@dataclass
class Pod:
    name: str
    uid: str
    job: str
    chunk: Chunk
    born: float
    manners: Manners
    phase: str = "Pending"
    started: float | None = None
    exit_code: int | None = None
    offered: int | None = None
    offered_at: float = 0.0
    end: int = 0
    """The end that the worker honours."""
    answered: bool = False
    cpu: float = 0.0
    done: float = 0.0
    paused: bool = False
    disrupted: bool = False
    lines: int = 0
    """Lines of reports since its end."""
    ended: Outcome | None = None
    """How its work has ended while its helper goes on."""

    @property
    def whole(self) -> int:
        """Units done."""
        return min(int(self.done + 1e-6), self.end - self.chunk.begin)


@dataclass
class Host:
    """The hosts of a node. ``raw``: tells busy from idle by the use of the second, without the quiet minute."""

    use: float = 0.0
    watch: Watch = field(default_factory=Watch)
    raw: bool = False
    silent: bool = False
    powerless: bool = False
    """Its agent cannot write caps."""

    def seen(self, use: float) -> HostSeen:
        if self.raw:
            return HostSeen(use, use >= 0.1, 1.0, use)
        now = self.watch.now
        return HostSeen(use, now.busy, now.age, now.use)


class World:
    def __init__(self, nodes: int = 2, cores: float = 1.0, memory: int = GIB, *, now: float = 1000.0) -> None:
        self.now = now
        self.nodes = {f"n{i}": GuestNode(f"n{i}", cores, memory) for i in range(nodes)}
        self.hosts = {name: Host() for name in self.nodes}
        self.guests: dict[str, Guest] = {}
        self.records: dict[str, JobRecord] = {}
        self.pods: dict[str, Pod] = {}
        self.manners = Manners()
        self.manners_of: dict[str, Manners] = {}
        """Of jobs with their own."""
        self.decided: list[tuple[float, Decided]] = []
        self.told: list[tuple[str, str]] = []
        """Type and reason of each event on a job."""
        self.lent: dict[str, LendTo] = {}
        """What the agents know of pods, by uid."""
        self.stored: dict[str, list[tuple[int, int, str]]] = {}
        self.worked: dict[str, Ranges] = {}
        """Units that some pod has done, by job."""
        self.ended_with: dict[str, tuple[int, int]] = {}
        """What pods that ended well have done, by uid."""
        self.used: dict[str, float] = {}
        """CPU seconds by job."""
        self.lost = 0.0
        """CPU seconds of pods that were killed."""
        self.kills = 0
        self.excess: dict[str, int] = {}
        self.offers = 0
        self.epoch = 1
        self.control = GuestControl(self.epoch)
        self.serial = 0
        self.events: list[Event] = [NodesSeen(tuple(self.nodes.values()))]
        self.refuses = False
        self.visited: set[str] = set()
        """Nodes with pods so far."""
        self.last_lines = 2
        """How often an agent reports a pod after its end, but for the first time."""

    # what users and the cluster do

    def apply(self, one: Guest) -> None:
        self.guests[one.uid] = one
        self.events.append(GuestApplied(one))

    def delete(self, uid: str) -> None:
        del self.guests[uid]
        self.records.pop(uid, None)
        self.events.append(GuestDeleted(uid))

    def set_nodes(self) -> None:
        for name in self.nodes:
            self.hosts.setdefault(name, Host())
        self.events.append(NodesSeen(tuple(self.nodes.values())))

    def cordon(self, name: str, *, schedulable: bool = False) -> None:
        self.nodes[name] = self.nodes[name]._replace(schedulable=schedulable)
        self.set_nodes()

    def vanish(self, name: str) -> None:
        """A node is gone, and what runs there."""
        del self.nodes[name]
        for pod in [pod for pod in self.pods.values() if pod.chunk.node == name]:
            self._remove(pod)
        self.set_nodes()

    def kill(self, pod: Pod) -> None:
        """The cluster evicts a pod."""
        pod.phase, pod.disrupted = "Failed", True
        self._lose(pod)
        self._show(pod)

    # time

    def tick(self, seconds: float = 1.0) -> None:
        self._perform(self._step(seconds))

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.tick()

    def until_done(self, limit: float = 100_000.0) -> float:
        """Run until all jobs have ended; return the seconds that it took."""
        began = self.now
        while not all((record := self.records.get(uid)) and record.ended for uid in self.guests):
            assert self.now - began < limit, {uid: self.records.get(uid) for uid in self.guests}
            self.tick()
        return self.now - began

    def interrupted(self, part: float) -> None:
        """A tick of which only the first part is carried out; then the leader is gone."""
        actions = self._step(1.0)
        self._perform(actions[: int(part * len(actions))])
        self.crash()

    def crash(self) -> None:
        """A new leader takes over from what was written. What was on its way to the old one is lost."""
        self.epoch += 1
        self.control = GuestControl(self.epoch)
        self.lent.clear()
        pods = [self._observed(pod) for pod in self.pods.values()]
        jobs = [GuestApplied(one, self.records.get(uid)) for uid, one in self.guests.items()]
        self.events = []
        for uid, kept in self.stored.items():  # a result counts only if a status says so
            record = self.records.get(uid, JobRecord())
            self.stored[uid] = [one for one in kept if not (Ranges.of(one[:2]) - record.completed).total]
        self._perform(self.control.restore(self.now, [*jobs, NodesSeen(tuple(self.nodes.values())), *pods]))

    def _step(self, seconds: float) -> list[Action]:
        self.now += seconds
        for name in self.nodes:
            self._work(name, seconds)
        for pod in list(self.pods.values()):
            if pod.phase == "Pending" and self.now >= pod.born + pod.manners.start:
                pod.phase, pod.started = "Running", self.now
                self._show(pod)
        for name, host in self.hosts.items():
            host.watch.see(seconds, host.use)
            if name in self.nodes and not host.silent:
                self.events.append(self._report(name, host))
        events, self.events = self.events, []
        return self.control.step(self.now, events)

    def _work(self, name: str, seconds: float) -> None:
        """Let the pods of a node share what its hosts leave."""
        run = [pod for pod in self.pods.values() if pod.chunk.node == name and pod.phase == "Running"]
        run = [pod for pod in run if not pod.ended and not pod.paused and not pod.manners.hangs]
        wanted = sum(self.guests[pod.job].cores if pod.job in self.guests else 1.0 for pod in run)
        part = min(1.0, self.nodes[name].cores * (1.0 - self.hosts[name].use) / wanted) if run else 0.0
        for pod in run:
            one = self.guests.get(pod.job)
            cost = (one.cpu_per_unit if one else 1.0) * pod.manners.factor
            self._read_offer(pod)
            cpu = min(seconds * part * (one.cores if one else 1.0), (pod.end - pod.chunk.begin - pod.done) * cost)
            pod.cpu += cpu
            pod.done += cpu / cost
            self.used[pod.job] = self.used.get(pod.job, 0.0) + cpu
            did = Ranges.of((pod.chunk.begin, pod.chunk.begin + pod.whole))
            self.worked[pod.job] = self.worked.get(pod.job, Ranges()) | did
            if pod.manners.fails_after is not None and pod.cpu >= pod.manners.fails_after:
                self._finish(pod, "Failed", 1)
                self._lose(pod)
            elif pod.chunk.begin + pod.whole >= pod.end:
                self._read_offer(pod)
                self.ended_with[pod.uid] = pod.chunk.begin, pod.end
                self._finish(pod, "Succeeded", 0)

    def _finish(self, pod: Pod, outcome: Outcome, code: int) -> None:
        pod.ended, pod.exit_code = outcome, code
        if not pod.manners.helper:
            pod.phase = outcome
        self._show(pod)

    def _read_offer(self, pod: Pod) -> None:
        if pod.offered is None or pod.manners.deaf or self.now < pod.offered_at + pod.manners.slow_to_answer:
            return
        begun = pod.chunk.begin + int(pod.done + 1e-6) + 1
        pod.end, pod.answered = min(pod.end, max(pod.offered, begun)), True

    def _report(self, name: str, host: Host) -> NodeReported:
        lines = []
        for pod in self.pods.values():
            if pod.chunk.node != name or pod.phase == "Pending" or pod.lines > self.last_lines:
                continue
            over = pod.phase != "Running"
            pod.lines += over
            end = pod.end if pod.answered else None
            lines.append(ChunkSeen(pod.uid, pod.whole, end, pod.cpu, pod.manners.memory, over))
        seen = None if host.powerless else host.seen(host.use)
        return NodeReported(name, seen, tuple(lines), self.excess.get(name, 0))

    # what the API server does

    def _perform(self, actions: list[Action]) -> None:  # noqa: C901, PLR0912  one arm per kind of action
        for action in actions:
            match action:
                case WriteStatus(uid, record):
                    if uid in self.guests:
                        record.check(self.guests[uid].units)
                        self.records[uid] = record
                case CreateChunk(uid, chunk):
                    self._create(uid, chunk)
                case OfferEnd(_, name, uid, end):
                    if (pod := self.pods.get(name)) and pod.uid == uid:
                        pod.offered, pod.offered_at = end, self.now
                        self.offers += 1
                case EndPod(_, name, uid):
                    if (pod := self.pods.get(name)) and pod.uid == uid:
                        self._remove(pod)
                case StopPod(_, name, uid):
                    if (pod := self.pods.get(name)) and pod.uid == uid:
                        pod.phase = "Failed"
                        self._show(pod)
                case StoreResult(uid, begin, end, message):
                    # a leader that crashed may have stored it before: stored again, it is the same
                    found = self.stored.setdefault(uid, [])
                    if (begin, end, message) not in found:
                        found.append((begin, end, message))
                case LendTo(_, uid, _, _, paused):
                    self.lent[uid] = action
                    for pod in self.pods.values():
                        if pod.uid == uid:
                            pod.paused = paused
                case DropSetPoint(_, uid):
                    self.lent.pop(uid, None)
                case Emit(_, kind, reason):
                    self.told.append((kind, reason))
                case DeleteJob(uid):
                    self.delete(uid)
                case Decided():
                    self.decided.append((self.now, action))

    def _create(self, uid: str, chunk: Chunk) -> None:
        assert chunk in self.records[uid].chunks, "a chunk is in the status before its pod is created"
        name = f"{uid}-{chunk.begin}-{chunk.attempt}"
        assert name not in self.pods, f"two pods of one name: {name}"
        if self.refuses:
            refused = CreateRefused(job=uid, kind="Guest", begin=chunk.begin, attempt=chunk.attempt, message="quota")
            self.events.append(refused)
            return
        self.serial += 1
        self.visited.add(chunk.node)
        pod = Pod(
            name, f"u{self.serial}", uid, chunk, self.now, self.manners_of.get(uid, self.manners), end=chunk.origin
        )
        self.pods[name] = pod
        self._show(pod)

    def _remove(self, pod: Pod) -> None:
        if pod.phase in {"Pending", "Running"} and pod.ended is None:
            self._lose(pod)
        del self.pods[pod.name]
        self.events.append(PodGone("default", pod.name, pod.uid))

    def _lose(self, pod: Pod) -> None:
        """Count what the end of a pod that has not ended by itself costs."""
        if pod.cpu <= 0.0:
            return
        one = self.guests.get(pod.job)
        resumes = one is not None and one.restart == "Resume"
        cost = (one.cpu_per_unit if one else 1.0) * pod.manners.factor
        self.lost += max(0.0, pod.cpu - pod.whole * cost) if resumes else pod.cpu
        self.kills += 1

    def _show(self, pod: Pod) -> None:
        self.events.append(self._observed(pod))

    def _observed(self, pod: Pod) -> PodObserved:
        return PodObserved(
            name=pod.name,
            uid=pod.uid,
            namespace="default",
            job=pod.job,
            kind="Guest",
            begin=pod.chunk.begin,
            end=pod.chunk.origin,
            attempt=pod.chunk.attempt,
            node=pod.chunk.node,
            phase=pod.phase,
            created=pod.born,
            started=pod.started,
            exit_code=pod.exit_code,
            disrupted=pod.disrupted,
            reason=pod.manners.reason if pod.phase == "Failed" else "",
            message={"Succeeded": pod.uid, "Failed": pod.manners.log}.get(pod.ended or pod.phase, ""),
            ended=pod.ended,
            helpers=(Helper("side"),) if pod.manners.helper and pod.ended and pod.phase == "Running" else (),
            offered=pod.offered is not None,
        )

    # what a test asks

    def check(self) -> None:
        """No unit is accounted that no pod has done, and under Redo each by the one pod that ended with it."""
        for uid, one in self.guests.items():
            record = self.records.get(uid)
            if record is None:
                continue
            record.check(one.units)
            assert not (record.completed - self.worked.get(uid, Ranges())).total, "a unit was lost"
            if one.restart == "Redo":
                self._check_results(uid, record)

    def _check_results(self, uid: str, record: JobRecord) -> None:
        kept = self.stored.get(uid, [])
        assert all(self.ended_with[pod] == (begin, end) for begin, end, pod in kept), (kept, self.ended_with)
        whole = Ranges.of(*((begin, end) for begin, end, _ in kept))
        assert not (record.completed - whole).total, "a completed unit has no result"
        if not record.chunks:
            assert whole.total == sum(end - begin for begin, end, _ in kept), "a unit was done twice"

    def running(self) -> Iterator[Pod]:
        return (pod for pod in self.pods.values() if pod.phase == "Running")

    def edit(self, uid: str, **changes) -> None:
        self.apply(replace(self.guests[uid], **changes))
