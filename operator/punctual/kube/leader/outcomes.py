"""What becomes of a term's writes: each outcome goes to the part that it concerns, by the types of key and operation.

A status that was refused is a danger: a new leader would plan from an older record, so no pod goes beyond it. A pool is
halted for that; the owner of another object is told by an event, and the writer creates no pod of it.
"""

import structlog

from punctual import reasons
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.directory import Directory
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.cluster.pods import ATTEMPT, BEGIN, KIND_LABEL
from punctual.kube.holding.placeholders import Placeholders
from punctual.kube.holding.taints import Taints
from punctual.kube.leader.actors import PoolActors
from punctual.kube.leader.guests import Guests
from punctual.kube.leader.jobs import Jobs
from punctual.kube.leader.pod_events import PodEvents
from punctual.kube.leader.pools import Pools
from punctual.kube.leader.promise_metrics import PromiseMetrics
from punctual.kube.leader.rates import Rates
from punctual.kube.leader.reservations import Reservations
from punctual.kube.takeover.job_results import JobResults
from punctual.kube.windows.controller import WindowController
from punctual.kube.writes.keys import JobKey, Key, NodeKey, PlaceholderKey, PoolKey, RateKey, ReservationKey
from punctual.kube.writes.operations import AddToConfigMap, ApplyConfigMap, CreatePod, Outcome, Patch, PutStatus
from punctual.scheduling.model.events import CreateRefused

log = structlog.get_logger(__name__)


class Outcomes:
    """``take(outcome)`` is called by the writer for each finished operation."""

    def __init__(
        self,
        *,
        directory: Directory,
        actors: PoolActors,
        guests: Guests,
        jobs: Jobs,
        pods: PodEvents,
        pools: Pools,
        reservations: Reservations,
        rates: Rates,
        windows: WindowController,
        results: JobResults,
        placeholders: Placeholders,
        taints: Taints,
        promise_metrics: PromiseMetrics,
        recorder: EventRecorder,
    ) -> None:
        self._directory = directory
        self._actors = actors
        self._guests = guests
        self._jobs = jobs
        self._pods = pods
        self._pools = pools
        self._reservations = reservations
        self._rates = rates
        self._windows = windows
        self._results = results
        self._placeholders = placeholders
        self._taints = taints
        self._promise_metrics = promise_metrics
        self._recorder = recorder

    def take(self, outcome: Outcome) -> None:
        """Take in the outcome of an operation."""
        match outcome.key, outcome.operation:
            case key, PutStatus() as write:
                self._actors.settled(key)
                self._guests.settled(key)
                self._take_status(outcome, write)
            case PlaceholderKey(), CreatePod():
                self._placeholders.settled(outcome)
            case JobKey(uid), CreatePod(_, body):
                if outcome.result in {"refused", "conflict"}:
                    self._jobs.refused(_refused(uid, outcome, body))
                if outcome.existed:  # behind the refusal: a pod of an earlier attempt is not this chunk's
                    self._pods.told_again(uid, outcome.body["metadata"]["uid"])
            case JobKey(uid), ApplyConfigMap() | Patch() if outcome.result != "done":
                self._results.failed(uid, outcome)
            case JobKey(uid), AddToConfigMap() as write if outcome.result != "done":
                self._results.unreadable(uid, write, outcome.message)
            case NodeKey(name), Patch(path):
                log.info("taint_written", path=path, result=outcome.result)
                self._taints.settled(name)
            case _:
                pass

    def _take_status(self, outcome: Outcome, write: PutStatus) -> None:
        match outcome.result:
            case "done":
                self._written(outcome.key, write)
            case "gone":
                self._gone(outcome.key)
            case _:
                log.error("status_refused", key=str(outcome.key), message=outcome.message)
                self._status_refused(outcome.key, write, outcome.message)

    def _written(self, key: Key, write: PutStatus) -> None:
        match key:
            case JobKey(uid):
                self._promise_metrics.written(uid)
            case ReservationKey(uid):
                self._windows.written(uid, write.body)
            case PoolKey(uid):
                self._pools.status_written(uid)

    def _gone(self, key: Key) -> None:
        match key:
            case JobKey(uid) if job := self._directory.forget_job(uid):
                self._jobs.gone(job)
            case ReservationKey(uid) if reservation := self._directory.forget_reservation(uid):
                self._reservations.gone(reservation)
            case RateKey(uid) if rate := self._directory.forget_rate(uid):
                self._rates.gone(rate)
            case PoolKey(uid):
                self._pools.status_unfound(uid)

    def _status_refused(self, key: Key, write: PutStatus, message: str) -> None:
        if isinstance(key, PoolKey) and self._pools.status_refused(key.uid, write, message):
            return
        text = f"its status cannot be written: {message}"
        self._recorder.emit(Regarding.of(write.body), "Warning", reasons.STATUS_REFUSED, text)


def _refused(job: str, outcome: Outcome, body: Json) -> CreateRefused:
    notes = body["metadata"]["annotations"]
    return CreateRefused(
        job=job,
        kind=body["metadata"]["labels"][KIND_LABEL],
        begin=int(notes[BEGIN]),
        attempt=int(notes[ATTEMPT]),
        message=outcome.message,
        taken=outcome.result == "conflict",
    )
