"""A cluster in a few lines, for stories about the Pool: a virtual clock, nodes, kubelets that start pods and workers
that make progress, an API server that holds what was written. It knows nothing of how the Pool decides.

Time moves in ticks; at each one pods move on, events go to ``Pool.step`` and its actions are carried out in order.
``crash()`` drops the Pool and builds a new one from what was written, with the next epoch. Of what an ``interrupted()``
tick wants only a part reaches the API server; the rest may still come ``late()``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from agents import Agents

from punctual.control.response import Response
from punctual.scheduling.model.actions import (
    Action,
    AnswerReservation,
    CreateChunk,
    DeleteJob,
    DropSetPoint,
    Emit,
    EndPod,
    FollowedLine,
    GiveTurn,
    HeldCapacity,
    HoldCapacity,
    HoldNode,
    Measured,
    OfferEnd,
    OfferWindow,
    SendSetPoint,
    StopPod,
    StoreResult,
    WithdrawChunk,
    WritePool,
    WriteStatus,
)
from punctual.scheduling.model.events import (
    CreateRefused,
    Event,
    Helper,
    JobApplied,
    JobDeleted,
    NodeGone,
    NodeObserved,
    Outcome,
    PodGone,
    PodObserved,
    PoolApplied,
    Progress,
    Reported,
    ReservationApplied,
    ReservationDeleted,
    Share,
)
from punctual.scheduling.model.job import Chunk, InputVersion, Job, JobRecord, Transfer
from punctual.scheduling.model.node_rules import conflict
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec
from punctual.scheduling.model.reservation import Reservation
from punctual.scheduling.model.resources import Resources
from punctual.scheduling.pool import Pool
from punctual.sim.work import Work
from punctual.theory.cost import Cost

TICK = 0.25
ONE = InputVersion(1000, '"one"')


def job(uid: str = "j1", *, units: int = 100, deadline: float = 100.0, chi: float | None = 1.0, **more) -> Job:
    rest = {name: more.pop(name, usual) for name, usual in (("tau", 0.0), ("theta_cm", 0.0), ("theta_cp", 2.0))}
    cost = None if chi is None else Cost(chi=chi, **rest)
    more.setdefault("namespace", "default")
    more.setdefault("name", uid)
    more.setdefault("arrival", 0.0)
    return Job(uid=uid, units=units, deadline=deadline, cost=cost, **more)


@dataclass
class Worker:
    """What runs in a pod: seconds per unit, and its manners."""

    pace: float = 1.0
    saturated: bool = False
    """Its agent says that no cap brings it back to its line."""
    response: Response | None = None
    """How it answers to CPU, as its agent tells from the tenth second on."""
    answers: bool = True
    answer: int | None = None
    """The end it answers instead of the honest one."""
    hears: float = 0.0
    """Seconds until an offer has come to it, as the kubelet writes it into a file first."""
    stands: float = 0.0
    """Seconds for which its last answer has stood before it exits, so that its agent has read it."""
    exit_code: int = 0
    fails_after: float | None = None
    hangs: bool = False
    deaf: bool = False
    """Ignores SIGTERM: told to end it goes on until it is killed."""
    never_starts: str | None = None
    """A waiting reason ..."""
    says: str = ""
    """... and what the cluster says of it."""
    fetch: float = 2.0
    """Seconds of its transfer, where its job has an input."""
    fetch_hangs: bool = False
    unavailable: float | None = None
    """Seconds after which its input step gives up, as the server sends nothing; None: it does not."""
    reads: InputVersion | None = ONE
    """The version of the input that it finds; None: its step does not say."""
    result: str | None = None
    """What it leaves as its result; None: where its range begins."""
    cut: int | None = None
    """Where the kubelet cuts its result, if it does."""
    helper: float | None = None
    """Seconds for which a container beside the work goes on after it (inf: until it is ended); None: there is none."""
    helper_exit: int = 0
    heeds: bool = True
    """Its helper ends when it is told to; if not, it is killed after the pod's grace period."""
    grace: float = 30.0
    """The pod's grace period."""
    ends_for: str | None = None
    """The reason for which the pod ends instead of by itself (with ``fails_after``): Evicted, …"""
    requests: Resources | None = None
    """What its pod requests, once it is on its node; None: a processor."""


@dataclass
class Pod:
    name: str
    uid: str
    job: str
    chunk: Chunk
    born: float
    worker: Worker
    phase: str = "Pending"
    bound: bool = False
    """The scheduler has put it on its node."""
    started: float | None = None
    work: Work | None = None
    part: float = 1.0
    """CPU cap that its agent holds, as a part of a processor."""
    used: float = 0.0
    """CPU seconds when the cap last changed, and ..."""
    capped: float = 0.0
    """... when that was."""
    finished: float | None = None
    offered: int | None = None
    offered_at: float = 0.0
    heard: int | None = None
    """The offer it has answered last."""
    answered: int | None = None
    answered_at: float = 0.0
    cpu: float = 0.0
    done: int = 0
    ends_at: float | None = None
    exit_code: int | None = None
    reason: str = ""
    disrupted: bool = False
    deleting: bool = False
    skew: float = 0.0
    fetches: bool = False
    turn: bool = False
    fetch_began: float | None = None
    fetch_ended: float | None = None
    received: int = 0
    begun_with: InputVersion | None = None
    """The version of the input that it was told to read; None: any."""
    ended: Outcome | None = None
    """How its work has ended while its helper goes on."""
    grace: float | None = None
    """The grace period with which it was deleted last."""

    def _message(self) -> str:
        if self.phase != "Succeeded" and self.ended != "Succeeded":
            return self.worker.says
        return f"{self.chunk.begin}" if self.worker.result is None else self.worker.result

    def observed(self) -> PodObserved:
        return PodObserved(
            name=self.name,
            uid=self.uid,
            namespace="default",
            job=self.job,
            kind=self.chunk.kind,
            begin=self.chunk.begin,
            end=self.chunk.origin,
            attempt=self.chunk.attempt,
            node=self.chunk.node,
            phase=self.phase,
            created=self.born,
            started=None if self.started is None else self.started + self.skew,
            finished=None if self.finished is None else self.finished + self.skew,
            exit_code=self.exit_code,
            reason=self.reason,
            disrupted=self.disrupted,
            message=self._message(),
            cut=self.worker.cut if "Succeeded" in {self.phase, self.ended} else None,
            deleting=self.deleting,
            offered=self.offered is not None,
            turn=self.turn,
            fetched=self.fetch_ended is not None,
            transfer=self._transfer(),
            input=self.worker.reads if self.fetch_ended is not None else None,
            input_changed=self.exit_code == 65,
            input_unavailable=self.exit_code == 75,
            container="main" if self.exit_code is not None else "",
            ended=None if self.deleting or self.reason in {"Evicted", "DeadlineExceeded"} else self.ended,
            helpers=self._helpers(),
            preparing=self.fetches,
            grace=self.worker.grace,
            requests=self.worker.requests if self.bound else None,
        )

    def _helpers(self) -> tuple[Helper, ...]:
        if self.worker.helper is None or self.ended is None:
            return ()
        if self.phase == "Running":
            return (Helper("side"),)
        return (Helper("side", self.worker.helper_exit, "Error"),) if self.worker.helper_exit else ()

    def _transfer(self) -> Transfer | None:
        if self.fetch_began is None or self.fetch_ended is None:
            return None
        return Transfer(self.received, 0.5, self.fetch_ended - self.fetch_began, self.fetch_began - self.born)


@dataclass
class World:
    spec: PoolSpec = field(default_factory=lambda: PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0))
    startup: float = 1.0
    now: float = 0.0
    epoch: int = 1
    nodes: dict[str, NodeObserved] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    records: dict[str, JobRecord] = field(default_factory=dict)
    pool_record: PoolRecord | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    results: dict[tuple[str, int, int], str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    left_pending: list[tuple[str, str, str]] = field(default_factory=list)
    """Pods that the scheduler could not put on the node that they were made for: job, node, why."""
    said: list[tuple[str | None, str, str]] = field(default_factory=list)
    """Events: job, reason, message."""
    warned: set[tuple[str | None, str]] = field(default_factory=set)
    """Job and reason of the events that are warnings."""
    inbox: list[Event] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    set_points: list[SendSetPoint] = field(default_factory=list)
    """In the order in which they were sent."""
    workers: Callable[[str, Chunk], Worker] = lambda _job, _chunk: Worker()
    held: set[str] = field(default_factory=set)
    kept: dict[str, HeldCapacity] = field(default_factory=dict)
    """What placeholders keep, by node."""
    rates: dict[str, float] = field(default_factory=dict)
    """Speed of a node's processors, by node; 1 where there is none (`set_rate`)."""
    silent_agents: set[str] = field(default_factory=set)
    processed: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    pool: Pool = field(init=False)
    serial: int = 0
    quota: dict[str, int] = field(default_factory=dict)
    """Pods that a job's namespace may have at a time, by job."""
    strangers: set[str] = field(default_factory=set)
    """Names of pods that others have."""
    reserved: dict[str, Reservation] = field(default_factory=dict)
    answers: dict[str, AnswerReservation] = field(default_factory=dict)
    """To reservations, the newest of each."""
    windows: dict[str, float | None] = field(default_factory=dict)
    """Starts that were offered instead, by reservation."""
    skew: dict[str, float] = field(default_factory=dict)
    """Seconds by which a node's clock is off."""
    agents: Agents | None = None
    """They move the caps of pods that share processors; without them, pods have the caps of their set points."""
    told: dict[str, int] = field(default_factory=dict)
    """Epoch of the last record of a job: the first of an epoch repeats what an earlier leader wrote."""
    transfers: list[tuple[float, float, str]] = field(default_factory=list)
    """Begin and end of each transfer that is over, and its pod."""

    def __post_init__(self) -> None:
        self.pool = Pool(self.epoch)
        self.inbox.append(PoolApplied(self.spec))

    # what people and the cluster do

    def node(self, name: str, cpu: float = 4.0, *, ready: bool = True, speed: float = 1.0, **more) -> None:
        """Let a node be like this. ``more``: its labels, taints and the host ports that other pods hold there."""
        self.nodes[name] = NodeObserved(name=name, ready=ready, cpu=cpu, memory=2**40, speed=speed, **more)
        self.inbox.append(self.nodes[name])
        if not ready:
            for pod in self.pods.values():
                if pod.chunk.node == name:
                    pod.reason = pod.reason or "NodeLost"

    def lose(self, name: str) -> None:
        del self.nodes[name]
        for pod in [p for p in self.pods.values() if p.chunk.node == name]:
            del self.pods[pod.name]
            self.inbox.append(PodGone("default", pod.name, pod.uid))
        self.inbox.append(NodeGone(name))

    def set_rate(self, node: str, rate: float) -> None:
        """Let a node's processors go on at another speed: 0.5 is half as fast as its nodes say."""
        self.rates[node] = rate
        for pod in self.pods.values():
            if pod.work is not None and pod.chunk.node == node:
                self._go_on(pod)

    def set_worker(self, pod: Pod, worker: Worker) -> None:
        """Let a pod's program go on in another manner and at another pace."""
        pod.worker = worker
        self._go_on(pod)

    def cap(self, pod: Pod, part: float) -> None:
        """Let a pod have this part of a processor."""
        if part != pod.part:
            pod.used, pod.capped = self._cpu(pod), self.now
            pod.part = part
            self._go_on(pod)

    def _go_on(self, pod: Pod) -> None:
        if pod.work is not None:
            rate = self.rates.get(pod.chunk.node, 1.0) * pod.part
            pod.work.set_rate(self.now, rate * pod.work.chi / pod.worker.pace)

    def _cpu(self, pod: Pod) -> float:
        """Return the CPU seconds that a pod has used: all that its cap allows."""
        if pod.started is None:
            return 0.0
        return pod.used + max(0.0, self.now - max(pod.started, pod.capped)) * pod.part * self.spec.cpu

    def apply(self, wanted: Job) -> None:
        self.jobs[wanted.uid] = wanted
        self.inbox.append(JobApplied(wanted))

    def reserve(self, uid: str, start: float, end: float, processors: int = 0, **more) -> None:
        wanted = Reservation(uid=uid, arrival=self.now, start=start, end=end, processors=processors, **more)
        self.reserved[uid] = wanted
        self.inbox.append(ReservationApplied(wanted))

    def unreserve(self, uid: str) -> None:
        del self.reserved[uid]
        self.answers.pop(uid, None)
        self.inbox.append(ReservationDeleted(uid))

    def delete_pod(self, name: str, *, grace: float = 30.0, disrupted: bool = False) -> None:
        """Delete a pod as a person, an eviction (``disrupted``) or the scheduler does."""
        pod = self.pods[name]
        pod.deleting, pod.disrupted = True, disrupted
        pod.ends_at = self.now + (grace if pod.worker.deaf else 0.5)
        self._observe(pod)

    def delete(self, uid: str) -> None:
        self.jobs.pop(uid)
        self.records.pop(uid, None)
        self.inbox.append(JobDeleted(uid))

    def edit_pool(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.inbox.append(PoolApplied(spec))

    # time

    def run(self, until: float) -> World:
        while self.now < until - 1e-9:
            self.now = round(self.now + TICK, 6)
            self.tick()
        return self

    def run_until(self, done: Callable[[World], bool], within: float = 1000.0) -> World:
        end = self.now + within
        while not done(self):
            if self.now >= end:
                raise AssertionError(f"not reached within {within} s; log: {self.log[-20:]}")
            self.now = round(self.now + TICK, 6)
            self.tick()
        return self

    def tick(self) -> list[Action]:
        self._kubelets()
        actions = self.pool.step(self.now, self._mail())
        self.carry_out(actions)
        self.pool.check()
        rounds = 0
        while self.pool.backlog and rounds < 1000:
            rounds += 1
            more = self.pool.step(self.now, self._mail())
            self.carry_out(more)
            actions += more
        return actions

    def leaderless(self, until: float) -> World:
        """Let time pass while no Pool steps: what happens meanwhile nobody is told."""
        while self.now < until - 1e-9:
            self.now = round(self.now + TICK, 6)
            self._kubelets()
        self.inbox.clear()
        return self

    def set_back(self, seconds: float) -> World:
        """Set the API server's clock back. Nodes keep theirs, and what runs goes on: its times move with the clock."""
        self.now = round(self.now - seconds, 6)
        self.skew = {name: self.skew.get(name, 0.0) + seconds for name in self.nodes}
        self.transfers = [(begin - seconds, end - seconds, name) for begin, end, name in self.transfers]
        for pod in self.pods.values():
            pod.skew += seconds
            for of in ("born", "started", "finished", "ends_at", "fetch_began", "fetch_ended", "capped"):
                if (at := getattr(pod, of)) is not None:
                    setattr(pod, of, at - seconds)
            if pod.work is not None:
                pod.work.shift(-seconds)
        return self

    def _mail(self) -> list[Event]:
        mail, self.inbox = self.inbox, []
        return mail

    def _observe(self, pod: Pod) -> None:
        self.inbox.append(pod.observed())

    def _kubelets(self) -> None:
        told: dict[str, list[Progress]] = {}
        for pod in list(self.pods.values()):
            if pod.chunk.node not in self.nodes or not self.nodes[pod.chunk.node].ready:
                continue
            self._kubelet(pod)
            if pod.started is not None or pod.fetch_began is not None:
                over = pod.phase in {"Succeeded", "Failed"}
                progress = Progress(
                    pod=pod.uid,
                    done=pod.done,
                    end=pod.answered,
                    cpu_seconds=pod.cpu,
                    received=pod.received,
                    over=over,
                    saturated=self.now - pod.started if pod.worker.saturated and pod.started is not None else 0.0,
                    response=pod.worker.response if pod.started is not None and self.now >= pod.started + 10 else None,
                )
                told.setdefault(pod.chunk.node, []).append(progress)
        if round(self.now % 1.0, 6) == 0:
            if self.agents is not None:
                for node in [n for n, seen in self.nodes.items() if seen.ready and n not in self.silent_agents]:
                    self.agents.second(self, node)
            for node, pods in told.items():
                if node not in self.silent_agents:
                    self.inbox.append(Reported(node, tuple(pods)))

    def _kubelet(self, pod: Pod) -> None:  # noqa: C901, PLR0912  one life in one place
        w = pod.worker
        if pod.deleting and pod.ends_at is not None and self.now >= pod.ends_at:
            self._end(pod)
            return
        if pod.phase == "Pending":
            if not pod.bound and not self._scheduled(pod):
                return
            if w.never_starts:
                if pod.reason != w.never_starts:
                    pod.reason = w.never_starts
                    self._observe(pod)
            elif self.now >= pod.born + self.startup and self._input_is_there(pod):
                pod.phase, pod.started = "Running", self.now
                size = pod.chunk.origin - pod.chunk.begin
                pod.work = Work(size, w.pace, self.now, rate=self.rates.get(pod.chunk.node, 1.0) * pod.part)
                self._observe(pod)
            return
        if pod.phase == "Running" and pod.ended is not None:
            self._go_on_beside(pod)
            return
        if pod.phase != "Running" or pod.started is None or pod.work is None or (pod.deleting and not w.deaf):
            return
        run = self.now - pod.started
        if w.hangs:
            return
        pod.cpu = self._cpu(pod)
        begun = pod.work.done(self.now)
        heard = pod.offered is not None and self.now >= pod.offered_at + w.hears
        if heard and pod.offered != pod.heard and w.answers:
            pod.heard, pod.answered_at = pod.offered, self.now
            last = pod.chunk.origin if pod.answered is None else pod.answered
            honest = min(last, max(pod.offered, pod.chunk.begin + begun + 1))
            pod.answered = honest if w.answer is None else w.answer
        end = pod.chunk.origin if pod.answered is None else max(pod.answered, pod.chunk.begin)
        pod.done = min(begun, end - pod.chunk.begin)
        if w.fails_after is not None and run >= w.fails_after:
            self._finish(pod, 1)
        elif pod.done >= end - pod.chunk.begin and (pod.heard is None or self.now >= pod.answered_at + w.stands):
            self._finish(pod, w.exit_code)
            if w.exit_code == 0 and pod.chunk.kind != "Reduce":
                self.processed.setdefault(pod.job, []).append((pod.chunk.begin, end))

    def _finish(self, pod: Pod, code: int) -> None:
        """Let the work's container end. Its pod ends with it, unless a helper goes on."""
        pod.exit_code, pod.finished, pod.reason = code, self.now, pod.worker.ends_for or pod.reason
        pod.ended = "Failed" if code else "Succeeded"
        if pod.worker.helper is None or pod.worker.ends_for:
            pod.phase = pod.ended
        self._observe(pod)

    def _go_on_beside(self, pod: Pod) -> None:
        """Let a helper go on after the work, to its end or until it is stopped."""
        assert pod.finished is not None
        assert pod.worker.helper is not None
        stopped = not pod.deleting and pod.ends_at is not None and self.now >= pod.ends_at
        if stopped or self.now >= pod.finished + pod.worker.helper:
            pod.reason = "DeadlineExceeded" if stopped else pod.reason
            failed = stopped or pod.ended == "Failed" or pod.worker.helper_exit
            pod.phase = "Failed" if failed else "Succeeded"
            self._observe(pod)

    def _scheduled(self, pod: Pod) -> bool:
        """Put a pod on its node, as the scheduler does if its rules allow it there; say so if they do not."""
        if (why := self._unschedulable(pod)) is None:
            pod.bound, pod.born = True, self.now if pod.reason == "Unschedulable" else pod.born
            pod.reason = "" if pod.reason == "Unschedulable" else pod.reason
            return True
        if pod.reason != "Unschedulable":
            pod.reason = "Unschedulable"
            self.left_pending.append((pod.job, pod.chunk.node, why))
            self._observe(pod)
        return False

    def _unschedulable(self, pod: Pod) -> str | None:
        wanted = self.jobs.get(pod.job)
        if wanted is None:
            return None
        rules = wanted.rules
        if (why := rules.objection(self.nodes[pod.chunk.node])) is not None:
            return why
        others = [p for p in self.pods.values() if p.bound and p.phase in {"Pending", "Running"} and p is not pod]
        for other in others:
            theirs = self.jobs[other.job].rules.ports if other.job in self.jobs else frozenset()
            if other.chunk.node == pod.chunk.node and conflict(rules.ports, theirs):
                return "host port"
            if rules.one_node and other.job == pod.job and other.chunk.node != pod.chunk.node:
                return rules.one_node
        return None

    def _input_is_there(self, pod: Pod) -> bool:
        """Let the input step go on, if there is one."""
        if pod.fetch_ended is not None or not pod.fetches:
            return True
        if pod.turn and pod.fetch_began is None:
            pod.fetch_began = self.now
        if pod.fetch_began is None or pod.worker.fetch_hangs:
            return False
        if pod.worker.unavailable is not None:
            if self.now >= pod.fetch_began + pod.worker.unavailable:
                pod.phase, pod.exit_code, pod.finished = "Failed", 75, self.now
                self._note_transfer(pod)
                self._observe(pod)
            return False
        pod.received = int(1000 * (self.now - pod.fetch_began))
        if pod.begun_with not in (None, pod.worker.reads):
            pod.phase, pod.exit_code, pod.finished = "Failed", 65, self.now
            self._note_transfer(pod)
            self._observe(pod)
        elif self.now >= pod.fetch_began + pod.worker.fetch:
            pod.fetch_ended = self.now
            self._note_transfer(pod)
            self._observe(pod)
        return False

    def _note_transfer(self, pod: Pod) -> None:
        if pod.reason != "NodeLost":  # nobody waits for one on a lost node, though it may come back
            self.transfers.append((pod.fetch_began or self.now, self.now, pod.name))

    def _end(self, pod: Pod) -> None:
        """The grace period is over. What the pod has come to is told before it goes."""
        if pod.fetch_began is not None and pod.fetch_ended is None:
            self._note_transfer(pod)
        if pod.phase == "Running":
            pod.deleting = False
            self._kubelet(pod)
            pod.deleting = True
            if pod.phase == "Running":
                pod.phase, pod.exit_code, pod.reason, pod.finished = "Failed", 137, "Error", self.now
            self._observe(pod)
        del self.pods[pod.name]
        self.inbox.append(PodGone("default", pod.name, pod.uid))
        if pod.ended is not None and pod.chunk.node not in self.silent_agents:
            last = Progress(pod=pod.uid, done=pod.done, end=pod.answered, cpu_seconds=pod.cpu, over=True)
            self.inbox.append(Reported(pod.chunk.node, (last,)))

    def check(self, uid: str, record: JobRecord) -> None:
        """Raise InvariantError where a record is unsound; the Pool may have yet to hear that units became fewer."""
        wanted = self.jobs[uid]
        record.check(wanted.units if record.observed_generation == wanted.generation else sys.maxsize)
        said = record.admitted
        if (
            record.promise
            and said
            and said.status == "True"
            and not record.ended
            and record.epoch == self.told.get(uid)
        ):
            on_track = record.on_track is None or record.on_track.status == "True"
            assert record.eta is not None, f"{uid} has a promise and no ETA"
            assert record.eta <= record.promise.deadline or not on_track, f"{uid} is on track, but ends too late"
            assert record.eta >= self.now - 2.0, f"{uid} is to end in the past"
        self.told[uid] = record.epoch

    # what the Pool wants

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            self.carry_out_one(action)

    def carry_out_one(self, action: Action) -> None:  # noqa: C901, PLR0912, PLR0915
        match action:
            case WriteStatus(uid, record):
                if uid in self.jobs and record.epoch >= self.records.get(uid, JobRecord()).epoch:
                    self.check(uid, record)
                    self._say(uid, record)
                    self.records[uid] = record
            case WritePool(record):
                if self.pool_record is None or record.epoch >= self.pool_record.epoch:
                    self.pool_record = record
            case CreateChunk(uid, chunk):
                self._create(uid, chunk)
            case WithdrawChunk(uid, chunk):
                if f"{uid}-{chunk.kind}-{chunk.begin}-{chunk.attempt}" not in self.pods:
                    refused = {"kind": chunk.kind, "begin": chunk.begin, "attempt": chunk.attempt}
                    self.inbox.append(CreateRefused(job=uid, message="", taken=True, **refused))
            case StopPod(_, name, uid):
                pod = self.pods.get(name)
                if pod and pod.uid == uid:
                    pod.ends_at = self.now + (0.5 if pod.worker.heeds else pod.worker.grace)
                    self.log.append(f"{self.now:g} stop {pod.job} [{pod.chunk.begin},{pod.chunk.origin})")
            case EndPod(_, name, uid, grace):
                pod = self.pods.get(name)
                if pod and pod.uid == uid:
                    pod.grace = grace
                    soon = self.now + (grace if pod.worker.deaf or not pod.worker.heeds else 0.5)
                    pod.ends_at = soon if pod.ends_at is None else min(pod.ends_at, soon)
                    if not pod.deleting:
                        pod.deleting = True
                        self._observe(pod)
            case OfferEnd(_, name, uid, end):
                pod = self.pods.get(name)
                if pod and pod.uid == uid:
                    pod.offered, pod.offered_at = end, self.now
                    self.log.append(f"{self.now:g} offer {pod.job} [{pod.chunk.begin},{pod.chunk.origin}) -> {end}")
            case GiveTurn(_, name, uid, _):
                pod = self.pods.get(name)
                if pod and pod.uid == uid:
                    pod.turn = True
                    self.log.append(f"{self.now:g} turn {pod.job} [{pod.chunk.begin},{pod.chunk.origin})")
                    self._observe(pod)
            case StoreResult(uid, begin, end, message):
                self.results[uid, begin, end] = message
            case SendSetPoint(pod=uid, cap=cap, line=FollowedLine(ceiling=ceiling)) if ceiling is not None:
                if self.agents is not None:
                    self.agents.put(action)
                    return
                for pod in [p for p in self.pods.values() if p.uid == uid]:
                    self.cap(pod, cap / ceiling)
            case DropSetPoint() if self.agents is not None:
                self.agents.drop(action)
            case HoldNode(node, held):
                (self.held.add if held else self.held.discard)(node)
            case HoldCapacity(nodes):
                if nodes or self.kept:  # a Pool says at first what it keeps, also where that is nothing
                    self.log.append(f"{self.now:g} keep {' '.join(f'{n}:{k.placeholders}' for n, k in nodes.items())}")
                self.kept = dict(nodes)
            case AnswerReservation(uid, (status, reason, _)):
                self.answers[uid] = action
                self.log.append(f"{self.now:g} {uid} reserved={status} {reason}")
            case OfferWindow(uid, start):
                self.windows[uid] = start
            case Measured():
                self.measured.append(action)
            case SendSetPoint():
                self.set_points.append(action)
            case DeleteJob(uid):
                self.log.append(f"{self.now:g} delete {uid}")
                self.jobs.pop(uid, None)
                self.records.pop(uid, None)
                self.inbox.append(JobDeleted(uid))
            case Emit(uid, kind, reason, message):
                self.log.append(f"{self.now:g} event {uid} {reason}")
                self.said.append((uid, reason, message))
                if kind == "Warning":
                    self.warned.add((uid, reason))
            case _:
                pass

    def _create(self, uid: str, chunk: Chunk) -> None:
        recorded = self.records.get(uid)
        assert recorded is not None, "a chunk's pod before its record"
        assert chunk.key in {c.key for c in recorded.chunks}, "a chunk's pod before it is in the status"
        self._make(uid, chunk)

    def _make(self, uid: str, chunk: Chunk) -> None:
        name = f"{uid}-{chunk.kind}-{chunk.begin}-{chunk.attempt}"
        if name in self.pods:
            return
        refused = {"kind": chunk.kind, "begin": chunk.begin, "attempt": chunk.attempt}
        if name in self.strangers:
            self.inbox.append(CreateRefused(job=uid, message="already exists", taken=True, **refused))
            return
        there = [p for p in self.pods.values() if p.job == uid and p.phase in {"Pending", "Running"}]
        if len(there) >= self.quota.get(uid, len(there) + 1):
            self.log.append(f"{self.now:g} refused {uid}")
            self.inbox.append(CreateRefused(job=uid, message="exceeded quota", **refused))
            return
        self.serial += 1
        pod = Pod(name, f"p{self.serial}", uid, chunk, self.now, self.workers(uid, chunk))
        pod.skew = self.skew.get(chunk.node, 0.0)
        wanted = self.jobs.get(uid)
        pod.fetches = wanted is not None and wanted.fetches and chunk.kind != "Reduce"
        pod.turn = chunk.turn is not None
        pod.begun_with = self.records[uid].input if uid in self.records else None
        self.pods[name] = pod
        self.log.append(f"{self.now:g} create {uid} {chunk.kind} [{chunk.begin},{chunk.end}) {chunk.node}")
        self._observe(pod)

    def _say(self, uid: str, record: JobRecord) -> None:
        before = self.records.get(uid, JobRecord())
        for name in ("admitted", "on_track", "completed_condition", "failed_condition", "spec_applied"):
            was, now = getattr(before, name), getattr(record, name)
            if now is not None and (was is None or was[:2] != now[:2]):
                self.log.append(f"{self.now:g} {uid} {name}={now.status} {now.reason}")

    # crash and rebuild

    def interrupted(self, reached: Callable[[int], int], *, nth: int = 1) -> dict[str, list[Action]]:
        """Go on to the nth tick that decides; of its n actions about one thing the first ``reached(n)`` come through.

        Each job has a line of its own in the writer, so each may have come to another point. Returns the rest.
        """
        for _ in range(400):
            self.now = round(self.now + TICK, 6)
            self._kubelets()
            actions = self.pool.step(self.now, self._mail())
            nth -= any(isinstance(a, WriteStatus) and a.urgent for a in actions)
            if nth == 0:
                break
            self.carry_out(actions)
        else:
            return {}
        lines = self.lines(actions)
        for line in lines.values():
            done = reached(len(line))
            self.carry_out(line[:done])
            del line[:done]
        return lines

    def lines(self, actions: list[Action]) -> dict[str, list[Action]]:
        """Actions as the writer queues them: by what they are about, in order."""
        lines: dict[str, list[Action]] = {}
        for action in actions:
            match action:
                case WriteStatus(job) | CreateChunk(job) | StoreResult(job) | DeleteJob(job):
                    key = job
                case EndPod(_, name) | StopPod(_, name) | OfferEnd(_, name) | GiveTurn(_, name) if name in self.pods:
                    key = self.pods[name].job
                case _:
                    key = ""
            lines.setdefault(key, []).append(action)
        return lines

    def late(self, lines: dict[str, list[Action]]) -> None:
        """What an old leader still had under way arrives: of each line all before the first write that is fenced."""
        for line in lines.values():
            for action in line:
                if isinstance(action, WriteStatus):
                    there = self.records.get(action.job)
                    if there is None or action.record.epoch < there.epoch:
                        break
                if isinstance(action, CreateChunk):
                    self._make(action.job, action.chunk)
                else:
                    self.carry_out_one(action)

    def written(self) -> list[Event]:
        events: list[Event] = [PoolApplied(self.spec, self.pool_record), *self.nodes.values()]
        events += [JobApplied(j, self.records.get(uid)) for uid, j in self.jobs.items()]
        events += [p.observed() for p in self.pods.values()]
        events += [ReservationApplied(r, self._given(uid)) for uid, r in self.reserved.items()]
        return events

    def _given(self, uid: str) -> tuple[Share, ...] | None:
        """What is written down of a reservation: how many processors of which node."""
        answer = self.answers.get(uid)
        if answer is None:
            return None
        nodes = [place.node for place in answer.places]
        return tuple(Share(node, nodes.count(node)) for node in sorted(set(nodes)))

    def crash(
        self, reached: Callable[[int], int] = lambda n: n, *, unseen: Callable[[Event], bool] = lambda _: False
    ) -> Pool:
        """Drop the Pool, build another from what was written; return the old one (for split brain).

        Only the first ``reached(n)`` of its n stamps are written. What is ``unseen`` is not among what it reads, and
        stands in its inbox afterwards.
        """
        old = self.pool
        self.epoch += 1
        self.inbox.clear()
        self.pool = Pool(self.epoch)
        found = self.written()
        late = [event for event in found if unseen(event)]
        stamps = self.pool.restore(self.now, [event for event in found if event not in late])
        self.inbox += late
        self.carry_out(stamps[: reached(len(stamps))])
        return old

    # what came of it

    def state(self, uid: str) -> tuple[str, str]:
        verdict = self.records[uid].admitted
        return (verdict.status, verdict.reason) if verdict else ("", "")

    def done(self, uid: str) -> bool:
        record = self.records.get(uid)
        return record is not None and record.finished is not None

    def check_promise(self, uid: str) -> None:
        """Assert that a job with a promise has ended, by the promised deadline."""
        record = self.records[uid]
        if record.promise is not None:
            assert record.finished is not None, (uid, record)
            assert record.finished <= record.promise.deadline, (uid, record)

    def met(self, uid: str) -> bool:
        record = self.records[uid]
        return (
            record.finished is not None and record.finished <= self.jobs[uid].deadline and not record.failed_condition
        )


def job_of(event: Event) -> str:
    """Return the job that a job's or pod's event is of."""
    match event:
        case JobApplied(wanted):
            return wanted.uid
        case PodObserved():
            return event.job
        case _:
            return ""
