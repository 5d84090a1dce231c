"""One term of a leader: takes over what stands in the API server, lets each pool's actor decide, until it ends.

Taking over goes in this order, and nothing is decided before its end:

    list       pools, profiles, reservations and jobs as they are now
    stamp      the new epoch onto each pool and each unfinished job and reservation, by itself: what comes back is what
               an earlier leader wrote last, for from then on the API server refuses what it still has under way
    wait       while the time is in doubt: what is decided at a wrong time stands for good
    restore    a Pool from each pool's, its jobs' and its reservations' records, with nodes and pods of the informers

Settled jobs (`directory.settled`: ended, refused, asked on trial) are put aside: neither stamped nor told to a Pool,
for there may be ten thousands of them. The fence holds for them all the same:

- The list that put a job aside was read after the lease was acquired. What an earlier leader writes onto it later is
  either another answer without a promise, which changes nothing, or a promise.
- Nothing is decided about the job before it is stamped and read: whatever asks about it (an edit, its namespace, its
  profile, its pool, one of its pods) leads to `_take_late`. After that stamp the API server refuses earlier leaders;
  what one of them wrote before it is read, and is taken over as if it had been there from the beginning.
- An earlier leader's promise is seen although nothing asks: the watch tells of it (`on_unsettled`). If its event comes
  before the page of the list that lacks it is read, the job is not put aside; if after, it is taken over then.
- Onto an ended job only the leader that ended it can write, and later ones, which have read that it ended.

A pool whose status cannot be written is not led until it can: what is decided must be on record. Others go on.

A term never goes on after an error: what was decided is written down, and the next one begins from there.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson
import structlog

from punctual import metric_names as names
from punctual import reasons
from punctual.control.cost_estimation import Timed
from punctual.errors import Fenced, NotFound, UserError
from punctual.kube import api
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.conditions import standing
from punctual.kube.cluster.directory import (
    ENDED,
    JOBS,
    POOLS,
    PROFILES,
    RESERVATIONS,
    KnownJob,
    KnownPool,
    KnownReservation,
    ended,
    settled,
)
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.cluster.keys import (
    FinalizersKey,
    JobKey,
    Key,
    NodeKey,
    PlaceholderKey,
    PoolKey,
    ProfileKey,
    ReservationKey,
)
from punctual.kube.cluster.nodes import Node
from punctual.kube.cluster.operations import AddToConfigMap, ApplyConfigMap, CreatePod, Outcome, Patch, PutStatus
from punctual.kube.cluster.placeholder_pod import Placeholder
from punctual.kube.cluster.pods import ATTEMPT, BEGIN, GROUP, IMAGE, KIND_LABEL
from punctual.kube.cluster.resources import CONFIG_MAPS, NODES
from punctual.kube.leader.admission_gate import AdmissionGate
from punctual.kube.leader.executor import PoolExecutor, Tools, status_write
from punctual.kube.leader.fencing import Fence
from punctual.kube.leader.placeholders import Placeholders
from punctual.kube.leader.promise_metrics import PromiseMetrics
from punctual.kube.leader.reservation_windows import restore as restore_reservation
from punctual.kube.leader.reservations import PoolAccess, ReservationController
from punctual.kube.leader.taints import Taints
from punctual.kube.leader.writer import Writer
from punctual.kube.learning.profiles import ProfileLearning, Where
from punctual.kube.learning.results import Results, config_map_name
from punctual.kube.metrics import Metrics
from punctual.kube.translate import (
    delayed,
    pool_missing,
    to_pool_record,
    to_pool_spec,
    to_record,
    to_selectors,
    undecided,
    without_decision,
)
from punctual.runtime.actor import Core, PoolActor
from punctual.runtime.mailbox import Mailbox
from punctual.scheduling.model import ledger
from punctual.scheduling.model.actions import Measured
from punctual.scheduling.model.events import (
    CreateRefused,
    Event,
    JobApplied,
    JobDeleted,
    NodeGone,
    PodGone,
    PodObserved,
    PoolApplied,
    Progress,
    Reported,
)
from punctual.scheduling.model.job import JobRecord
from punctual.scheduling.model.pool_spec import PoolRecord, PoolSpec
from punctual.scheduling.model.wording import some
from punctual.scheduling.pool import Pool
from punctual.sim.gc_pause import uncollected

FINALIZER: Final = f"{GROUP}/jobs"
"""On a pool while jobs of it are promised or run: its deletion waits for them."""
LATE: Final = 32
"""Jobs taken over at once behind the others."""
PROGRESS: Final = 0.25
"""Seconds between looks at progress that waits to be written."""
TEND: Final = 0.25
"""Seconds between looks at placeholders whose time has come."""
HOUSEKEEPING: Final = 2.0
"""Seconds between looks at what is shown and what waits."""
SAME_TIME: Final = 2.0
"""Seconds by which the API server's clock, as we know it, and the time of an object's creation may be apart."""
RETRY: Final = 30.0
"""Seconds between tries to write the status of a pool that is stopped."""
AT_THE_DOOR: Final = frozenset({
    reasons.NOT_ALLOWED, reasons.PROFILE_NOT_FOUND, reasons.POD_REFUSED, reasons.RESERVATION_NOT_FOUND,
    reasons.RESERVATION_REFUSED,
})  # fmt: skip
"""Reasons of a refusal for what the edge found, not for want of processors."""

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class _Seat:
    """A pool with its actor."""

    actor: PoolActor
    hands: PoolExecutor
    task: asyncio.Task[None]


class Term:
    """A leader's term, from its epoch to its end. ``await run()`` raises what ends it."""

    def __init__(
        self,
        epoch: int,
        *,
        client: ApiClient,
        trials: ApiClient,
        caches: Caches,
        metrics: Metrics,
        board: SetPointStore,
        instance: str,
        leading: Callable[[], bool],
        image: str = IMAGE,
        core: Callable[[int], Core] = Pool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.epoch = epoch
        self._monotonic = monotonic
        self._elected = self._moved = monotonic()  # when it began to take over; when that last came forward
        self._client = client
        self._caches = caches
        self._metrics = metrics
        self._board = board
        self._core = core
        self._leading = leading
        self._directory = caches.directory
        self._writer = Writer(
            client,
            on_outcome=self._on_outcome,
            on_fenced=lambda: self._fail(Fenced("a newer leader has written")),
            leading=leading,
            on_write=self._on_write,
        )
        self._recorder = EventRecorder(
            client, controller="punctual.dev/operator", instance=instance, urgent=self._writer.caught_up
        )
        manner = caches.manner
        self._stamper = Fence(
            epoch,
            client,
            leading=leading,
            leave=self._leave,
            forget=lambda resource, meta: caches.observe(resource.plural, "DELETED", {"metadata": meta}),
            moved=self._come_forward,
        )
        self._bookings = ReservationController(
            epoch,
            caches=caches,
            writer=self._writer,
            recorder=self._recorder,
            now=client.clock.now,
            doubted=lambda: client.clock.doubted,
            doors=PoolAccess(self.tell, lambda pool: pool in self._seats, self._reservation_written),
        )
        self._learning = ProfileLearning(self._directory)
        self._intake = AdmissionGate(
            trials,
            self._directory,
            caches.labels,
            self._again,
            chunk_class=manner.chunk_class,
            reserved=self._bookings.of_job,
            learned=self._learning.of,
            image=image,
        )
        self._accounts = PromiseMetrics(metrics, client.clock.now)
        self._holds = Taints(self._directory.pools, self._write_taints)
        self._placeholders = Placeholders(manner, self._writer.submit, self._refuse_placeholder)
        self._results: dict[str, Results] = {}
        self._seats: dict[str, _Seat] = {}
        self._told: dict[str, str] = {}  # pool that was told of a job, by uid
        self._host: dict[str, str] = {}  # pool that was told of a pod, by uid
        self._taking, self._taken = True, False
        self._begun = client.clock.now()
        self._slots = asyncio.Semaphore(LATE)  # for those that are taken over behind the others
        self._left: set[str] = set()  # jobs that are left alone until they are edited
        self._read: set[str] = set()  # jobs whose status was looked at
        self._aside: dict[str, str] = {}  # jobs that are settled, and neither stamped nor read: why they are
        self._unseated: set[str] = set()  # pools whose status could not be stamped
        self._halted: dict[str, PutStatus | None] = {}  # pools that wait until their status is written, the refused one
        self._late: set[str] = set()  # jobs that are being taken over behind the others
        self._gone: set[str] = set()  # jobs and pools that went while we took over
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tools = Tools(
            epoch=epoch,
            now=client.clock.now,
            directory=self._directory,
            writer=self._writer,
            recorder=self._recorder,
            board=board,
            holds=self._holds,
            placeholders=self._placeholders,
            accounts=self._accounts,
            bookings=self._bookings,
            results=self._results,
            image=image,
            job_of=caches.job_of,
            refuse=self.tell,
            learn=self._learn,
            in_force=self._in_force,
            keep=caches.inventory.keep,
            chunk_class=manner.chunk_class,
        )

    async def run(self) -> None:
        """Take over, then lead until cancelled or something fails."""
        self._caches.listener = self
        self._directory.on_epoch = self._epoch_seen
        self._directory.on_unsettled = self._unsettled
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for work in (self._writer.run(), self._recorder.run(), self._watch_for_failure()):
                    group.create_task(work)
                await self._take_over()
                log.info(
                    "term_begun",
                    epoch=self.epoch,
                    pools=len(self._seats),
                    jobs=len(self._directory.jobs),
                    aside=len(self._aside),
                    seconds=round(self._monotonic() - self._elected, 3),
                )
                group.create_task(self._keep_house())
                group.create_task(self._tell_progress())
                group.create_task(self._tend_placeholders())
                group.create_task(self._look_after_aside())
                group.create_task(self._retry_stopped())
        finally:
            if self._caches.listener is self:
                self._caches.listener = None
                self._directory.on_epoch = lambda _: None
                self._directory.on_unsettled = lambda _: None
            # before anything is waited for: a replica that loses its lease twice in a row may not get behind that
            self._taking = self._taken = False
            self._board.clear()
            self._metrics.forget_pools()
            await self._intake.close()

    async def retire(self, within: float) -> None:
        """Decide nothing more, and write what was decided, within so many seconds."""
        self._taking = self._taken = False
        for seat in self._seats.values():
            seat.task.cancel()
            seat.hands.tell_progress()
        self._write_profiles(now=self._client.clock.now(), last=True)
        if not await self._writer.flush(within):
            log.warning("not_all_written", left=self._writer.depth)
        await self._recorder.flush(1.0)

    @property
    def _leads(self) -> bool:
        """Whether it has taken over and goes on."""
        # a group that ends cancels who watches for failure at that moment, and takes no more tasks from then on
        return self._taken and not self._failure.done()

    @property
    def taking_over(self) -> float:
        """Seconds since the takeover began; 0 when it is done."""
        return self._monotonic() - self._elected if self._taking else 0.0

    @property
    def stalled(self) -> float:
        """Seconds since the takeover last read a page or took a stamp; 0 when it is done."""
        return self._monotonic() - self._moved if self._taking else 0.0

    @property
    def stopped(self) -> int:
        """Pools in which nothing is decided, because their status cannot be written."""
        return len(self._unseated) + len(self._halted)

    @property
    def silent(self) -> float:
        """Seconds since the pool that has been silent longest was stepped."""
        return max((seat.actor.silent for seat in self._seats.values()), default=0.0)

    @property
    def waiting(self) -> float:
        """Seconds that a pool has waited for its first step; 0 when all have begun."""
        return max((seat.actor.waiting for seat in self._seats.values()), default=0.0)

    @property
    def depth(self) -> int:
        """Writes that wait."""
        return self._writer.depth

    @property
    def oldest_write(self) -> float:
        """Seconds that the oldest of them has waited."""
        return self._writer.oldest

    def reported(self, reported: Reported) -> None:
        """Take in a node's report: each pool hears of its own pods."""
        pods: dict[str, list[Progress]] = {}
        for pod in reported.pods:
            if pool := self._told.get(self._caches.job_of(pod.pod) or ""):
                pods.setdefault(pool, []).append(pod)
        for pool, own in pods.items():
            self.tell(pool, Reported(reported.node, tuple(own)))

    # taking over

    async def _take_over(self) -> None:
        before = {resource: self._directory.metadata(resource) for resource in (PROFILES, POOLS, RESERVATIONS, JOBS)}
        records: dict[str, PoolRecord | None] = {}
        with uncollected():  # half of the CPU that reading so many bodies takes went into looking for cycles in them
            async for body in self._stamper.all(PROFILES, before[PROFILES]):
                self._take_profile(body)
            async for body in self._stamper.all(POOLS, before[POOLS]):
                self._take_pool(body, records)
            async for body in self._stamper.all(RESERVATIONS, before[RESERVATIONS]):
                self._take_reservation(body)
            async for body in self._stamper.all(JOBS, before[JOBS], aside=self._set_aside):
                await self._take_job(body)
        while self._client.clock.doubted:
            self._come_forward()  # to wait for that is not to hang
            await asyncio.sleep(PROGRESS)
            self._begun = self._client.clock.now()
        self._begin(records)

    def _come_forward(self) -> None:
        self._moved = self._monotonic()

    def _set_aside(self, body: Json) -> bool:
        """Put a job aside if it is settled, and nothing of it is left to be done."""
        uid, why = body["metadata"]["uid"], settled(body)
        known = self._directory.jobs.get(uid)
        if uid in self._gone:
            return True
        if not why or (known is not None and not known.settled):  # a watch tells of what this list does not know yet
            return False
        if why == reasons.POOL_NOT_FOUND and str(body["spec"].get("pool")) in self._directory.pools:
            return False
        if any(not _stays(pod) for _, pod in self._caches.pods_of(uid)):
            return False
        self._directory.observe_job(body)
        self._aside[uid] = why
        return True

    def _take_profile(self, body: Json) -> None:
        self._directory.observe_profile(body)
        self._learning.load(body)

    def _take_pool(self, body: Json, records: dict[str, PoolRecord | None]) -> None:
        uid, name = body["metadata"]["uid"], body["metadata"]["name"]
        if uid in self._gone:
            return
        # also of one that is not led: its nodes are its own
        records[name] = self._restore_pool(body)
        if uid in self._left:
            self._unseated.add(name)

    def _take_reservation(self, body: Json) -> None:
        uid = body["metadata"]["uid"]
        if uid in self._gone:
            return
        self._directory.observe_reservation(body)
        self._read.add(uid)
        if uid in self._left:
            return
        try:
            restore_reservation(self._directory.reservations[uid], api.parse_status(api.ReservationStatus, body))
        except UserError as error:
            self._leave(body, f"its status cannot be read, so the reservation is left alone: {error.message}")

    async def _take_job(self, body: Json) -> None:
        await self._load_results(body)
        if body["metadata"]["uid"] not in self._gone:
            self._restore_job(body)

    def _take_late(self, known: KnownJob) -> None:
        """Take over a job that an earlier leader may have written about and no list told of: the server lagged behind.

        A watch that begins where such a list ends tells of it as it was created, without what was promised since.
        """
        if known.owner.uid not in self._late:
            self._late.add(known.owner.uid)
            self._group.create_task(self._look_late(known))

    async def _look_late(self, known: KnownJob) -> None:
        owner, aside = known.owner, known.owner.uid in self._aside
        meta = {"uid": owner.uid, "namespace": owner.namespace, "name": owner.name}
        async with self._slots:
            async for body in self._stamper.missed(JOBS, [meta]):
                await self._take_job(body)
        self._late.discard(owner.uid)
        if owner.uid not in self._read or self._directory.jobs.get(owner.uid) is not known:
            return
        if known.record and not aside:
            log.warning("job_found_late", job=owner.uid, namespace=owner.namespace, name=owner.name)
        self._consider(known)
        for key, pod in self._caches.pods_of(owner.uid):
            self.pod(key, pod.job, pod)

    async def _look_after_aside(self) -> None:
        """Take up, one by one, jobs put aside for which something is due; decisions go first."""
        for uid, why in list(self._aside.items()):
            await asyncio.sleep(0)
            known = self._directory.jobs.get(uid)
            if known is None or uid not in self._aside or uid in self._late or not self._is_due(known, why):
                continue
            await self._writer.caught_up()
            self._late.add(uid)
            await self._look_late(known)

    def _is_due(self, known: KnownJob, why: str) -> bool:
        """Whether a job put aside ends by the clock, or what it was refused for may have changed since."""
        owner = known.owner
        if why == ENDED:
            return b"ttlSecondsAfterFinished" in known.spec
        if owner.pool in self._unseated:
            return False
        due = (owner.pool in self._seats) == (why == reasons.POOL_NOT_FOUND)
        if due:
            return True
        match why:
            case reasons.NOT_ALLOWED:
                selector = self._directory.pools[owner.pool].in_force.namespace_selector
                due = selector is None or selector.matches(self._caches.labels(owner.namespace))
            case reasons.PROFILE_NOT_FOUND:
                due = (owner.namespace, known.profile) in self._directory.profiles
            case reasons.RESERVATION_NOT_FOUND | reasons.RESERVATION_REFUSED:
                due = isinstance(self._bookings.of_job(known), str)
            case reasons.POD_REFUSED:
                due = True  # the API server is asked
            case reasons.SUSPENDED | reasons.DRY_RUN:
                return False
        if b"ttlSecondsAfterFinished" in known.spec:  # refused is finished
            return True
        return due

    def _unsettled(self, uid: str) -> None:
        """Take up a job that was put aside, and about which somebody has written."""
        if uid in self._aside and (known := self._directory.jobs.get(uid)):
            self._consider(known)

    def _begin(self, records: Mapping[str, PoolRecord | None]) -> None:
        """Seat every pool, and ask it about the jobs that nobody has decided about."""
        self._taking, self._taken = False, True
        for node in self._caches.inventory.nodes():
            self._holds.observe(node)
        self._tell_speeds()
        for name, pool in self._directory.pools.items():
            self._placeholders.know_pool(pool.uid)
            if name not in self._unseated:
                self._seat(pool, records.get(name))
        for placeholder in self._caches.placeholders.values():
            self._placeholders.observe(placeholder)
        for known in list(self._directory.reservations.values()):
            self._consider_reservation(known)
        for job in list(self._directory.jobs.values()):
            uid = job.owner.uid
            if uid not in self._told and (uid not in self._aside or not job.settled):
                self._consider(job)

    async def _load_results(self, body: Json) -> None:
        """Read back which results are stored of a job whose reduce pod is still to come."""
        if ended(body) or "reduce" not in body["spec"] or not (body.get("status") or {}).get("completed"):
            return
        meta = body["metadata"]
        maps: list[Mapping[str, Any]] = []
        while (data := await self._config_map(meta["namespace"], config_map_name(meta["uid"], len(maps)))) is not None:
            maps.append(data)
        known = self._directory.jobs.get(meta["uid"]) or self._directory.observe_job(body)
        if known and maps:
            self._results[meta["uid"]] = results = Results(known.owner)
            results.load(maps)

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        try:
            found = await self._stamper.patiently(
                lambda: self._client.get(CONFIG_MAPS.path(namespace=namespace, name=name))
            )
        except NotFound:
            return None
        return found.get("data") or {}

    def _restore_pool(self, body: Json) -> PoolRecord | None:
        self._directory.observe_pool(body)
        name = body["metadata"]["name"]
        known = self._directory.pools.get(name)
        try:
            status = api.parse_status(api.PoolStatus, body)
        except UserError as error:
            # its jobs' records stand in their own statuses: nothing that was promised is lost with it
            self._tell_unreadable(body, f"its status cannot be read and is written anew: {error.message}")
            status = None
        if known is None:
            return None
        known.in_force = (status and status.applied) or known.pool.spec
        self._caches.claim(known)
        kept = {n.name: n.held_time for n in status.nodes if n.held_time is not None} if status else {}
        self._caches.inventory.keep(name, kept)
        if status is None:
            return None
        known.standing = standing(c.manifest() for c in status.conditions)
        self._tools.found[PoolKey(known.uid)] = orjson.dumps(body["status"])
        return to_pool_record(name, status) if status.applied else None

    def _restore_job(self, body: Json) -> None:
        self._directory.observe_job(body)
        self._read.add(body["metadata"]["uid"])
        self._aside.pop(body["metadata"]["uid"], None)
        known = self._directory.jobs[body["metadata"]["uid"]]
        if known.owner.uid in self._left:
            return
        try:
            status = api.parse_status(api.DivisibleJobStatus, body)
        except UserError as error:
            # of one job: the others go on, and what it has running is left alone until somebody edits it
            self._leave(body, f"its status cannot be read, so the job is left alone: {error.message}")
            return
        if status is not None:
            known.standing = standing(c.manifest() for c in status.conditions)
            known.record = to_record(status)
            self._miss_results(known)
            self._tools.found[JobKey(known.owner.uid)] = orjson.dumps(body["status"])

    def _leave(self, body: Json, text: str) -> None:
        self._left.add(body["metadata"]["uid"])
        if body["kind"] == "Pool":
            self._tell_stopped(_regarding(body), text)
        else:
            self._tell_unreadable(body, text)

    def _tell_unreadable(self, body: Json, text: str) -> None:
        log.error("status_unreadable", kind=body["kind"], name=body["metadata"]["name"], error=text)
        self._recorder.emit(_regarding(body), "Warning", reasons.STATUS_UNREADABLE, text)

    def _seat(self, known: KnownPool, record: PoolRecord | None) -> None:
        """Begin with a pool: its Pool knows all that is decided before its first step."""
        name = known.pool.metadata.name
        asked = self._caches.asked(known)
        events: list[Event] = [PoolApplied(to_pool_spec(known.pool), record, known.deleting, asked)]
        events += self._caches.inventory.of(name)
        for job in self._directory.of_pool(name):
            if not undecided(job.record) and not job.deleting:
                job.job = self._intake.job(job, decided=True)
                assert job.job is not None
                self._told[job.owner.uid] = name
                events.append(JobApplied(job.job, job.record))
        events += self._bookings.of_pool(name)
        pods = [pod for pod in self._caches.pods.values() if self._pool_of(pod) == name]
        self._host.update((pod.uid, name) for pod in pods)
        events += pods
        hands = PoolExecutor(name, self._tools)
        actor = PoolActor(
            self._core(self.epoch),
            Mailbox(),
            hands,
            now=self._client.clock.now,
            doubted=lambda: self._client.clock.doubted,
            timed=self._metrics.step_seconds.observe,
        )
        self._seats[name] = _Seat(actor, hands, self._group.create_task(actor.run(events)))
        mailbox = actor.mailbox
        self._metrics.watch_pool(
            name, {names.MAILBOX_DEPTH: lambda: float(mailbox.depth), names.MAILBOX_AGE: lambda: mailbox.age}
        )

    def _pool_of(self, pod: PodObserved) -> str | None:
        """Return the pool whose room a pod takes: its job's; its node's where the job is gone."""
        known = self._directory.jobs.get(pod.job)
        if known is None or known.deleting:
            return self._caches.inventory.owner(pod.node)
        return self._told.get(pod.job)

    # what changes: the caches tell

    def tell(self, pool: str, event: Event) -> None:
        """Put into a pool's mailbox; of a pool that is not here nobody needs to hear."""
        if seat := self._seats.get(pool):
            seat.actor.mailbox.put(event)
        if isinstance(event, NodeGone):
            self._holds.hold(event.name, pool, held=False)

    def job_changed(self, known: KnownJob) -> None:
        """Take in that a job is new, edited or going."""
        self._left.discard(known.owner.uid)
        self._consider(known)

    def job_gone(self, known: KnownJob) -> None:
        """Take in that a job is gone."""
        self._gone.add(known.owner.uid)
        self._drop(known)

    def pool_changed(self, known: KnownPool) -> None:
        """Take in that a pool is new, edited or going."""
        if not self._leads:
            return
        name = known.pool.metadata.name
        if name in self._unseated:
            self._group.create_task(self._try_seat(name))
            return
        if name in self._seats:
            self.tell(name, PoolApplied(to_pool_spec(known.pool), None, known.deleting, self._caches.asked(known)))
        else:
            self._seat(known, None)
        self._consider_reservations(name)
        for job in self._directory.of_pool(name):
            if self._hangs_on_others(job):
                self._consider(job)

    def _learn(self, pool: str, measured: Measured) -> None:
        """Take in what a chunk took, if its job names a profile."""
        known = self._directory.jobs.get(measured.job)
        if known and known.profile:
            where = Where(pool, self._caches.inventory.class_of(measured.node))
            timed = Timed(measured.units, measured.seconds)
            self._learning.add(known.owner.namespace, known.profile, where, timed, measured.fetched)

    def _write_profiles(self, *, now: float, last: bool = False) -> None:
        for uid, write in self._learning.due(now, last=last):
            self._writer.submit(ProfileKey(uid), write)

    def _tell_speeds(self) -> None:
        for pool in self._directory.pools:
            self._caches.inventory.observe_speeds(pool, self._learning.speeds(pool))

    def _in_force(self, name: str, spec: PoolSpec) -> None:
        """Let a pool have the nodes and the jobs that the spec selects which it has taken."""
        known, now = self._directory.pools[name], to_selectors(spec)
        was = known.in_force  # perhaps a whole spec, which never equals what is only part of one
        if all(getattr(was, name) == getattr(now, name) for name in api.PoolSelectors.model_fields):
            return
        known.in_force = now
        self._caches.claim(known)
        self._consider_reservations(name)
        for job in self._directory.of_pool(name):
            if self._refused_at_the_door(job):
                self._consider(job)

    def pool_gone(self, known: KnownPool) -> None:
        """Take in that a pool is gone."""
        self._gone.add(known.uid)
        name = known.pool.metadata.name
        seat = self._seats.pop(name, None)
        if seat is None and name not in self._unseated:
            return
        self._unseated.discard(name)
        self._halted.pop(name, None)
        if seat is not None:
            seat.task.cancel()
        self._holds.forget_pool(name)
        self._placeholders.forget_pool(known.uid)
        self._metrics.forget_pool(name)
        self._writer.forget(PoolKey(known.uid))
        for job in self._directory.of_pool(name):
            self._told.pop(job.owner.uid, None)
            self._consider(job)
        self._consider_reservations(name)

    def profile_changed(self, namespace: str, name: str) -> None:
        """Take in that a profile is new or edited: jobs that are not promised yet are asked with it."""
        for job in list(self._directory.jobs.values()):
            if (job.owner.namespace, job.profile) == (namespace, name) and self._hangs_on_others(job):
                self._consider(job)

    def namespace_changed(self, namespace: str) -> None:
        """Take in that a namespace has other labels: jobs refused for them are asked again."""
        for job in list(self._directory.jobs.values()):
            if job.owner.namespace == namespace and self._refused_at_the_door(job):
                self._consider(job)
        for known in list(self._directory.reservations.values()):
            if known.metadata.namespace == namespace and known.refusal:
                self._consider_reservation(known)

    def node_changed(self, node: Node) -> None:
        """Take in a node as it is."""
        if self._taken:
            self._holds.observe(node)

    def node_gone(self, name: str) -> None:
        """Take in that a node is gone."""
        self._holds.forget_node(name)

    def pod(self, key: str, job: str, event: PodObserved | PodGone) -> None:
        """Take in what became of a pod of ours."""
        self._writer.observed(key)
        # a job that is gone leaves pods behind that keep their processors until they are gone too
        pool = self._host.get(event.uid)
        if pool is None:
            pool = self._pool_of(event) if isinstance(event, PodObserved) else self._told.get(job)
        if pool is None and job in self._aside and isinstance(event, PodObserved):
            self._consider(self._directory.jobs[job])  # it comes back here once its job is read
        if isinstance(event, PodGone):
            self._host.pop(event.uid, None)
        elif pool:
            self._host[event.uid] = pool
        if pool:
            self.tell(pool, event)

    def placeholder(self, key: str, seen: Placeholder, *, gone: bool) -> None:
        """Take in what became of a placeholder."""
        self._writer.observed(key)
        if gone:
            self._placeholders.forget(seen)
        elif self._taken:
            self._placeholders.observe(seen)

    def _refuse_placeholder(self, pool: str, message: str) -> None:
        known = next((known for known in self._directory.pools.values() if known.uid == pool), None)
        if known is not None:
            about = Regarding(api.API_VERSION, "Pool", "", known.pool.metadata.name, pool)
            self._recorder.emit(about, "Warning", reasons.POD_REFUSED, f"a placeholder was refused: {message}")

    # reservations

    def reservation_changed(self, known: KnownReservation) -> None:
        """Take in that a reservation is new or going."""
        self._left.discard(known.uid)
        self._consider_reservation(known)

    def reservation_gone(self, known: KnownReservation) -> None:
        """Take in that a reservation is gone."""
        self._gone.add(known.uid)
        self._read.discard(known.uid)
        self._bookings.drop(known)

    def _consider_reservation(self, known: KnownReservation) -> None:
        """Ask about a reservation once its status is read: a watch may tell of one as it was created."""
        if not self._leads or known.uid in self._left or known.pool in self._unseated:
            return
        if known.uid in self._read:
            self._bookings.consider(known)
        elif known.uid not in self._late:
            self._late.add(known.uid)
            self._group.create_task(self._look_at_reservation(known))

    async def _look_at_reservation(self, known: KnownReservation) -> None:
        meta = {"uid": known.uid, "namespace": known.metadata.namespace, "name": known.metadata.name}
        async with self._slots:
            async for body in self._stamper.missed(RESERVATIONS, [meta]):
                self._take_reservation(body)
        self._late.discard(known.uid)
        if known.uid not in self._read or self._directory.reservations.get(known.uid) is not known:
            return
        if known.pool in self._seats:
            for event in self._bookings.of_pool(known.pool):
                self.tell(known.pool, event)  # what it holds already is no news
        self._consider_reservation(known)

    def _consider_reservations(self, pool: str) -> None:
        for known in list(self._directory.reservations.values()):
            if known.pool == pool:
                self._consider_reservation(known)

    def _reservation_written(self, known: KnownReservation) -> None:
        """Ask about jobs that wait for a reservation, or were refused for it."""
        for job in self._directory.inside(*known.key):
            if self._hangs_on_others(job):
                self._consider(job)

    # jobs

    def _hangs_on_others(self, known: KnownJob) -> bool:
        """Whether a change of its pool, profile or reservation may change its answer: it has none, or one for these."""
        if why := self._aside.get(known.owner.uid):
            return why in AT_THE_DOOR or why == reasons.POOL_NOT_FOUND
        return undecided(known.record) or self._refused_at_the_door(known)

    def _refused_at_the_door(self, known: KnownJob) -> bool:
        """Whether it was refused for what the edge found, not for want of processors."""
        verdict = known.record.admitted if known.record else None
        return (self._aside.get(known.owner.uid) or (verdict.reason if verdict else "")) in AT_THE_DOOR

    def _again(self, uid: str) -> None:
        if known := self._directory.jobs.get(uid):
            self._consider(known)

    def _consider(self, known: KnownJob) -> None:
        """Tell the job's pool how the job is now, or the job that its pool is not there."""
        if not self._leads or known.owner.uid in self._left:
            return  # what is promised is not read (yet): it would look undecided, and without a pool
        uid, pool = known.owner.uid, known.owner.pool
        if known.deleting:
            self._drop(known)
            return
        unread = uid not in self._read and (known.epoch or known.created <= self._begun + SAME_TIME)
        if unread or uid in self._aside:
            self._take_late(known)
            return
        told = self._told.get(uid)
        if told is not None and told != pool:
            self.tell(told, JobDeleted(uid))
            del self._told[uid]
            known.record = _without_chunks(known.record)
        if pool in self._unseated:
            return
        if pool not in self._seats:
            self._miss_pool(known)
            return
        record = known.record or JobRecord()
        promised = not undecided(known.record) and record.admitted is not None and record.admitted.status != "False"
        stands = record.refused is not None and record.observed_generation == known.generation
        refused = stands and not self._refused_at_the_door(
            known
        )  # no pod of it is to be tried: it only waits for its end
        job = self._intake.job(known, decided=record.ended or promised or refused)
        if job is None:
            return
        known.job = job
        self._told[uid] = pool
        # of one that it has not heard of the Pool cannot see that it was refused for something else than now
        anew = undecided(known.record) or (told is None and self._refused_at_the_door(known))
        self.tell(pool, JobApplied(job, without_decision(known.record) if anew else known.record))

    def _tell_delayed(self, known: KnownJob, text: str) -> None:
        """Say what an answer waits for; one that was given before stands until there is another."""
        said = known.record.admitted if known.record else None
        if not undecided(known.record) or (said and (said.reason, said.message) == (reasons.ANSWER_DELAYED, text)):
            return
        known.job = self._intake.job(known, decided=True)
        assert known.job is not None
        known.record = delayed(known.record, known.job, text, epoch=self.epoch)
        if said is None or said.reason != reasons.ANSWER_DELAYED:
            owner = known.owner
            about = Regarding(api.API_VERSION, "DivisibleJob", owner.namespace, owner.name, owner.uid)
            self._recorder.emit(about, "Warning", reasons.ANSWER_DELAYED, text)
        write = status_write(self._tools, known, known.job, known.record, urgent=True)
        self._writer.submit(JobKey(known.owner.uid), write)

    def _miss_pool(self, known: KnownJob) -> None:
        if known.record is not None and known.record.ended:
            return
        self._intake.forget(known.owner.uid)
        known.job = self._intake.job(known, decided=True)
        if known.job is not None:
            record = pool_missing(known.record, known.job, known.owner.pool, epoch=self.epoch)
            self._accounts.job(known, record)
            known.record = record
            self._writer.submit(
                JobKey(known.owner.uid), status_write(self._tools, known, known.job, record, urgent=True)
            )

    def _drop(self, known: KnownJob) -> None:
        uid = known.owner.uid
        self._read.discard(uid)
        self._aside.pop(uid, None)
        self._intake.forget(uid)
        self._caches.expect(known.owner, self._writer.forget(JobKey(uid)))
        self._settled(JobKey(uid))
        self._results.pop(uid, None)
        if (pool := self._told.pop(uid, None)) is not None:
            self.tell(pool, JobDeleted(uid))

    # what becomes of writes

    def _on_outcome(self, outcome: Outcome) -> None:
        match outcome.key, outcome.operation:
            case key, PutStatus() as write:
                self._settled(key)
                self._on_status(outcome, write)
            case PlaceholderKey(), CreatePod():
                self._placeholders.settled(outcome)
            case JobKey(uid), CreatePod(_, body) if outcome.result in {"refused", "conflict"}:
                if pool := self._told.get(uid):
                    self.tell(pool, _refused(uid, outcome, body))
            case JobKey(uid), ApplyConfigMap() | Patch() if uid in self._results and outcome.result != "done":
                self._lose_result(uid, outcome)
            case JobKey(uid), AddToConfigMap(path, _, entry) if outcome.result != "done":
                name = path.rpartition("/")[2]
                if known := self._directory.jobs.get(uid):
                    self._tell_lost(known, f"the result of units {entry} is not in ConfigMap {name}: {outcome.message}")
            case NodeKey(name), Patch(path):
                log.info("taint_written", path=path, result=outcome.result)
                self._holds.settled(name)
            case _:
                pass

    def _settled(self, key: Key) -> None:
        """Let no pool wait for a status any more: it is written, or never will be."""
        for seat in self._seats.values():
            seat.hands.settled(key)

    def _lose_result(self, uid: str, outcome: Outcome) -> None:
        text = self._results[uid].lost(outcome)
        if text and (known := self._directory.jobs.get(uid)):
            self._tell_lost(known, text)

    def _tell_lost(self, known: KnownJob, text: str) -> None:
        owner = known.owner
        about = Regarding(api.API_VERSION, "DivisibleJob", owner.namespace, owner.name, owner.uid)
        self._recorder.emit(about, "Warning", reasons.RESULT_LOST, text)

    def _miss_results(self, known: KnownJob) -> None:
        """Say which results are gone that were kept while an earlier leader led."""
        record = known.record
        if record is None or record.ended or "reduce" not in known.template():
            return
        results = self._results.get(known.owner.uid) or Results(known.owner)
        if missing := results.missing(record.completed):
            first = missing.parts[0]
            self._tell_lost(
                known, f"the results of {some(missing.total, 'unit')} are gone, those from {first.begin} on the first"
            )

    def _on_status(self, outcome: Outcome, write: PutStatus) -> None:
        if outcome.result == "done":
            self._on_written(outcome.key, write)
        elif outcome.result == "gone":
            self._on_gone(outcome.key)
        else:
            # the schema will not have it: a new leader would plan from an older record, so no pod goes beyond that
            log.error("status_refused", key=str(outcome.key), message=outcome.message)
            match outcome.key:
                case PoolKey(uid) if pool := self._pool_named(uid):
                    self._halt(pool, outcome.message, write)
                case _:
                    text = f"its status cannot be written: {outcome.message}"
                    self._recorder.emit(_regarding(write.body), "Warning", reasons.STATUS_REFUSED, text)

    def _on_written(self, key: Key, write: PutStatus) -> None:
        match key:
            case JobKey(uid):
                self._accounts.written(uid)
            case ReservationKey(uid):
                self._bookings.written(uid, write.body)
            case PoolKey(uid) if (pool := self._pool_named(uid)) in self._halted:
                self._go_on(pool)

    def _on_gone(self, key: Key) -> None:
        match key:
            case JobKey(uid) if job := self._directory.forget_job(uid):
                self.job_gone(job)
            case ReservationKey(uid) if reservation := self._directory.forget_reservation(uid):
                self.reservation_gone(reservation)
            case PoolKey(uid) if pool := self._pool_named(uid):
                self._caches.forget_pool(pool)

    def _pool_named(self, uid: str) -> str:
        return next((name for name, known in self._directory.pools.items() if known.uid == uid), "")

    # pools that are stopped

    def _halt(self, pool: str, why: str, write: PutStatus | None) -> None:
        """Decide nothing more in a pool until its status is written; ``write``: what was refused, to be tried again."""
        if pool not in self._halted and pool in self._seats:
            self._seats[pool].actor.halt()
            about = Regarding(api.API_VERSION, "Pool", "", pool, self._directory.pools[pool].uid)
            self._tell_stopped(about, f"its status cannot be written: {why}")
        self._halted[pool] = write

    def _go_on(self, pool: str) -> None:
        del self._halted[pool]
        if seat := self._seats.get(pool):
            seat.actor.go_on()
        log.info("pool_goes_on", pool=pool)

    def _tell_stopped(self, pool: Regarding, why: str) -> None:
        log.error("pool_stopped", pool=pool.name, error=why)
        text = f"{why}; nothing is decided in this pool until it can be written, which is tried every {RETRY:.0f} s"
        self._recorder.emit(pool, "Warning", reasons.POOL_STOPPED, text)

    async def _retry_stopped(self) -> None:
        while True:
            await asyncio.sleep(RETRY)
            for name in list(self._unseated):
                await self._try_seat(name)
            for name, write in self._halted.items():
                if write is not None:
                    self._writer.submit(PoolKey(self._directory.pools[name].uid), write)

    async def _try_seat(self, name: str) -> None:
        """Stamp a pool that could not be stamped in the takeover, and lead it from then on."""
        known = self._directory.pools.get(name)
        if known is None:
            return
        self._left.discard(known.uid)
        async for body in self._stamper.missed(POOLS, [{"uid": known.uid, "name": name}]):
            if known.uid in self._left or name not in self._unseated:
                return
            record = self._restore_pool(body)
            self._unseated.discard(name)
            self._seat(self._directory.pools[name], record)
            log.info("pool_goes_on", pool=name)
            self._consider_reservations(name)
            for job in self._directory.of_pool(name):
                if job.owner.uid not in self._told and job.owner.uid not in self._aside:
                    self._consider(job)

    def _on_write(self, kind: str, result: str, seconds: float) -> None:
        self._metrics.writes.labels(kind, result).inc()
        self._metrics.write_seconds.observe(seconds)

    def _write_taints(self, node: str, patch: list[Json]) -> None:
        self._writer.submit(NodeKey(node), Patch(NODES.path(name=node), patch))

    # keeping house

    async def _keep_house(self) -> None:
        self._tools.found.clear()  # the stamps are behind us
        while True:
            jobs: dict[str, list[KnownJob]] = {name: [] for name in self._seats}
            for job in self._directory.jobs.values():
                if job.owner.pool in jobs:
                    jobs[job.owner.pool].append(job)
            for name in self._seats:
                self._accounts.promises(name, jobs[name])
                if known := self._directory.pools.get(name):
                    self._guard(known, wanted=any(j.open for j in jobs[name]) or self._bookings.open(name))
                    if name not in self._halted and (why := self._writer.stuck(PoolKey(known.uid))):
                        self._halt(name, why, None)
            for uid, text in list(self._intake.overdue()):
                if waiting := self._directory.jobs.get(uid):
                    self._tell_delayed(waiting, text)
            self._bookings.tend()
            self._write_profiles(now=self._client.clock.now())
            self._tell_speeds()
            await asyncio.sleep(HOUSEKEEPING)

    async def _tend_placeholders(self) -> None:
        while True:
            await asyncio.sleep(TEND)
            self._placeholders.tick()

    async def _tell_progress(self) -> None:
        """Make statuses of progress, no more of them a second than the writer has a budget for."""
        while True:
            await asyncio.sleep(PROGRESS)
            for seat in self._seats.values():
                seat.hands.tell_progress(5)

    def _guard(self, known: KnownPool, *, wanted: bool) -> None:
        """Let a pool's deletion wait while it has promises to keep."""
        there = known.finalizers
        if wanted == (FINALIZER in there) or (wanted and known.deleting):
            return
        after = [*there, FINALIZER] if wanted else [f for f in there if f != FINALIZER]
        patch: list[Json] = [
            {"op": "test", "path": "/metadata/uid", "value": known.uid},
            {"op": "test", "path": "/metadata/finalizers", "value": list(there) or None},
            {"op": "add", "path": "/metadata/finalizers", "value": after},
        ]
        self._writer.submit(FinalizersKey(known.uid), Patch(POOLS.path(name=known.pool.metadata.name), patch))

    def _epoch_seen(self, epoch: int) -> None:
        """End at once where a newer leader has stamped something: deletions and the like are not fenced."""
        if epoch > self.epoch:
            self._writer.drop_all()
            self._fail(Fenced(f"a status carries epoch {epoch}: a newer leader has begun"))

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def _watch_for_failure(self) -> None:
        await self._failure


def _regarding(body: Mapping[str, Any]) -> Regarding:
    meta = body["metadata"]
    return Regarding(api.API_VERSION, body["kind"], meta.get("namespace", ""), meta["name"], meta["uid"])


def _without_chunks(record: JobRecord | None) -> JobRecord | None:
    """Take its chunks back from a job that moves: they were on the other pool's nodes, which ends their pods."""
    if record is not None:
        for chunk in record.chunks:
            record = ledger.lose(record, chunk)
    return record


def _stays(pod: PodObserved) -> bool:
    """Whether a pod of a job that nothing is done for stays as it is: to be read, and no processor is taken by it."""
    return pod.phase == "Failed" or (pod.kind == "Reduce" and pod.phase == "Succeeded")


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
