"""One term of a leader: takes over what stands in the API server, lets each pool's actor decide, until it ends.

Taking over goes in this order, and nothing is decided before its end:

    list       pools, profiles, reservations and jobs as they are now
    stamp      the new epoch onto each pool and each unfinished job and reservation, by itself: what comes back is what
               an earlier leader wrote last, for from then on the API server refuses what it still has under way
    wait       while the time is in doubt: what is decided at a wrong time stands for good
    restore    a Pool from each pool's, its jobs' and its reservations' records, with nodes and pods of the informers

A term never goes on after an error: what was decided is written down, and the next one begins from there.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson
import structlog

from punctual import metric_names as names
from punctual import reasons
from punctual.control.chunk_times import Timed
from punctual.errors import ClusterError, Fenced, NotFound, UserError
from punctual.kube import api
from punctual.kube.accounts import Accounts
from punctual.kube.board import SetPointBoard
from punctual.kube.bookings import Bookings, Doors
from punctual.kube.bookings import restore as restore_reservation
from punctual.kube.caches import Caches
from punctual.kube.client import CONFIG_MAPS, NODES, ApiClient, Json
from punctual.kube.conditions import standing
from punctual.kube.convert import (
    pool_missing,
    to_pool_record,
    to_pool_spec,
    to_record,
    to_selectors,
    undecided,
    without_decision,
)
from punctual.kube.directory import (
    JOBS,
    POOLS,
    PROFILES,
    RESERVATIONS,
    KnownJob,
    KnownPool,
    KnownReservation,
)
from punctual.kube.hands import PoolHands, Tools, pool_key, status_write
from punctual.kube.hold import Holds
from punctual.kube.intake import Intake
from punctual.kube.inventory import Node
from punctual.kube.learning import Learning, Where
from punctual.kube.metrics import Metrics
from punctual.kube.operations import ApplyConfigMap, CreatePod, Outcome, Patch, PutStatus
from punctual.kube.placeholders import KEY as ROOM
from punctual.kube.placeholders import Placeholder, Placeholders
from punctual.kube.podspec import ATTEMPT, BEGIN, GROUP, IMAGE, KIND_LABEL
from punctual.kube.recorder import Recorder, Regarding
from punctual.kube.results import Results, config_map_name
from punctual.kube.stamper import Stamper, ended
from punctual.kube.unheard import unheard
from punctual.kube.writer import Writer
from punctual.runtime.actor import Core, PoolActor
from punctual.runtime.mailbox import Mailbox
from punctual.scheduling import ledger
from punctual.scheduling.actions import Measured
from punctual.scheduling.events import (
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
from punctual.scheduling.job import JobRecord
from punctual.scheduling.pool import Pool
from punctual.scheduling.spec import PoolRecord, PoolSpec
from punctual.scheduling.words import some

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
RELIST: Final = 30.0
"""Seconds between looks for what nobody has told."""

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class _Seat:
    """A pool with its actor."""

    actor: PoolActor
    hands: PoolHands
    task: asyncio.Task[None]


class Term:
    """A leader's term, from its epoch to its end. ``await run()`` raises what ends it."""

    def __init__(
        self,
        epoch: int,
        *,
        client: ApiClient,
        caches: Caches,
        metrics: Metrics,
        board: SetPointBoard,
        instance: str,
        leading: Callable[[], bool],
        image: str = IMAGE,
        core: Callable[[int], Core] = Pool,
    ) -> None:
        self.epoch = epoch
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
        self._recorder = Recorder(
            client, controller="punctual.dev/operator", instance=instance, urgent=self._writer.caught_up
        )
        manner = caches.manner
        self._stamper = Stamper(
            epoch,
            client,
            leading=leading,
            leave=self._leave,
            forget=lambda resource, meta: caches.observe(resource.plural, "DELETED", {"metadata": meta}),
        )
        self._bookings = Bookings(
            epoch,
            caches=caches,
            writer=self._writer,
            recorder=self._recorder,
            now=client.clock.now,
            doubted=lambda: client.clock.doubted,
            doors=Doors(self.tell, lambda pool: pool in self._seats, self._reservation_written),
        )
        self._learning = Learning(self._directory)
        self._intake = Intake(
            client,
            self._directory,
            caches.labels,
            self._again,
            chunk_class=manner.chunk_class,
            reserved=self._bookings.of_job,
            learned=self._learning.of,
            image=image,
        )
        self._accounts = Accounts(metrics, client.clock.now)
        self._holds = Holds(self._directory.pools, self._write_taints)
        self._placeholders = Placeholders(manner, self._writer.submit, self._refuse_placeholder)
        self._results: dict[str, Results] = {}
        self._seats: dict[str, _Seat] = {}
        self._told: dict[str, str] = {}  # pool that was told of a job, by uid
        self._host: dict[str, str] = {}  # pool that was told of a pod, by uid
        self._taken = False
        self._begun = client.clock.now()
        self._slots = asyncio.Semaphore(LATE)  # for those that are taken over behind the others
        self._left: set[str] = set()  # jobs that are left alone until they are edited
        self._read: set[str] = set()  # jobs whose status was looked at
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
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for work in (self._writer.run(), self._recorder.run(), self._watch_for_failure()):
                    group.create_task(work)
                await self._take_over()
                log.info("term_begun", epoch=self.epoch, pools=len(self._seats), jobs=len(self._directory.jobs))
                group.create_task(self._keep_house())
                group.create_task(self._tell_progress())
                group.create_task(self._tend_placeholders())
                group.create_task(self._sweep())
        finally:
            if self._caches.listener is self:
                self._caches.listener = None
                self._directory.on_epoch = lambda _: None
            # before anything is waited for: a replica that loses its lease twice in a row may not get behind that
            self._taken = False
            self._board.clear()
            self._metrics.forget_pools()
            await self._intake.close()

    async def retire(self, within: float) -> None:
        """Decide nothing more, and write what was decided, within so many seconds."""
        self._taken = False
        for seat in self._seats.values():
            seat.task.cancel()
            seat.hands.tell_progress()
        self._write_profiles(now=math.inf)
        if not await self._writer.flush(within):
            log.warning("not_all_written", left=self._writer.depth)
        await self._recorder.flush(1.0)

    @property
    def _leads(self) -> bool:
        """Whether it has taken over and goes on."""
        # a group that ends cancels who watches for failure at that moment, and takes no more tasks from then on
        return self._taken and not self._failure.done()

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
        async for body in self._stamper.all(PROFILES, before[PROFILES]):
            self._take_profile(body)
        async for body in self._stamper.all(POOLS, before[POOLS]):
            self._take_pool(body, records)
        async for body in self._stamper.all(RESERVATIONS, before[RESERVATIONS]):
            self._take_reservation(body)
        async for body in self._stamper.all(JOBS, before[JOBS]):
            await self._take_job(body)
        while self._client.clock.doubted:
            await asyncio.sleep(PROGRESS)
            self._begun = self._client.clock.now()
        self._begin(records)

    def _take_profile(self, body: Json) -> None:
        self._directory.observe_profile(body)
        self._learning.load(body)

    def _take_pool(self, body: Json, records: dict[str, PoolRecord | None]) -> None:
        if body["metadata"]["uid"] not in self._gone:
            records[body["metadata"]["name"]] = self._restore_pool(body)

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
        owner = known.owner
        meta = {"uid": owner.uid, "namespace": owner.namespace, "name": owner.name}
        async with self._slots:
            async for body in self._stamper.missed(JOBS, [meta]):
                await self._take_job(body)
        self._late.discard(owner.uid)
        if owner.uid not in self._read or self._directory.jobs.get(owner.uid) is not known:
            return
        if known.record:
            log.warning("job_found_late", job=owner.uid, namespace=owner.namespace, name=owner.name)
        self._consider(known)
        for key, pod in list(self._caches.pods.items()):
            if pod.job == owner.uid:
                self.pod(key, pod.job, pod)

    def _begin(self, records: Mapping[str, PoolRecord | None]) -> None:
        """Seat every pool, and ask it about the jobs that nobody has decided about."""
        self._taken = True
        for node in self._caches.inventory.nodes():
            self._holds.observe(node)
        self._tell_speeds()
        for name, pool in self._directory.pools.items():
            self._placeholders.know_pool(pool.uid)
            self._seat(pool, records.get(name))
        for placeholder in self._caches.placeholders.values():
            self._placeholders.observe(placeholder)
        for known in list(self._directory.reservations.values()):
            self._consider_reservation(known)
        for job in list(self._directory.jobs.values()):
            if job.owner.uid not in self._told:
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
        kept = {n.name: n.held_since for n in status.nodes if n.held_since is not None} if status else {}
        self._caches.inventory.keep(name, kept)
        if status is None:
            return None
        known.standing = standing(c.manifest() for c in status.conditions)
        self._tools.found[pool_key(known.uid)] = orjson.dumps(body["status"])
        return to_pool_record(name, status) if status.applied else None

    def _restore_job(self, body: Json) -> None:
        self._directory.observe_job(body)
        self._read.add(body["metadata"]["uid"])
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
            self._tools.found[known.owner.uid] = orjson.dumps(body["status"])

    def _leave(self, body: Json, text: str) -> None:
        self._left.add(body["metadata"]["uid"])
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
        hands = PoolHands(name, self._tools)
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
        if name in self._seats:
            self.tell(name, PoolApplied(to_pool_spec(known.pool), None, known.deleting, self._caches.asked(known)))
        else:
            self._seat(known, None)
        self._consider_reservations(name)
        for job in self._directory.of_pool(name):
            if undecided(job.record) or _refused_at_the_door(job):
                self._consider(job)

    def _learn(self, pool: str, measured: Measured) -> None:
        """Take in what a chunk took, if its job names a profile."""
        known = self._directory.jobs.get(measured.job)
        if known and known.profile:
            where = Where(pool, self._caches.inventory.class_of(measured.node))
            timed = Timed(measured.units, measured.seconds)
            self._learning.add(known.owner.namespace, known.profile, where, timed, measured.fetched)

    def _write_profiles(self, *, now: float) -> None:
        for uid, write in self._learning.due(now):
            self._writer.submit(f"profile:{uid}", write)

    def _tell_speeds(self) -> None:
        for pool in self._directory.pools:
            self._caches.inventory.observe_speeds(pool, self._learning.speeds(pool))

    def _in_force(self, name: str, spec: PoolSpec) -> None:
        """Let a pool have the nodes and the jobs that the spec selects which it has taken."""
        known, now = self._directory.pools[name], to_selectors(spec)
        if known.in_force == now:
            return
        known.in_force = now
        self._caches.claim(known)
        self._consider_reservations(name)
        for job in self._directory.of_pool(name):
            if _refused_at_the_door(job):
                self._consider(job)

    def pool_gone(self, known: KnownPool) -> None:
        """Take in that a pool is gone."""
        self._gone.add(known.uid)
        name = known.pool.metadata.name
        if (seat := self._seats.pop(name, None)) is None:
            return
        seat.task.cancel()
        self._holds.forget_pool(name)
        self._placeholders.forget_pool(known.uid)
        self._metrics.forget_pool(name)
        self._writer.forget(pool_key(known.uid))
        for job in self._directory.of_pool(name):
            self._told.pop(job.owner.uid, None)
            self._consider(job)
        self._consider_reservations(name)

    def profile_changed(self, namespace: str, name: str) -> None:
        """Take in that a profile is new or edited: jobs that are not promised yet are asked with it."""
        for job in list(self._directory.jobs.values()):
            if (job.owner.namespace, job.profile) == (namespace, name) and (
                undecided(job.record) or _refused_at_the_door(job)
            ):
                self._consider(job)

    def namespace_changed(self, namespace: str) -> None:
        """Take in that a namespace has other labels: jobs refused for them are asked again."""
        for job in list(self._directory.jobs.values()):
            if job.owner.namespace == namespace and _refused_at_the_door(job):
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
        if not self._leads or known.uid in self._left:
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
        for job in list(self._directory.jobs.values()):
            if (job.owner.namespace, job.reservation) == known.key and (
                undecided(job.record) or _refused_at_the_door(job)
            ):
                self._consider(job)

    # jobs

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
        if uid not in self._read and (known.epoch or known.created <= self._begun + SAME_TIME):
            self._take_late(known)
            return
        told = self._told.get(uid)
        if told is not None and told != pool:
            self.tell(told, JobDeleted(uid))
            del self._told[uid]
            known.record = _without_chunks(known.record)
        if pool not in self._seats:
            self._miss_pool(known)
            return
        promised = (
            known.record is not None and known.record.admitted is not None and (known.record.admitted.status != "False")
        )
        job = self._intake.job(known, decided=promised)
        if job is None:
            return
        known.job = job
        self._told[uid] = pool
        record = without_decision(known.record) if undecided(known.record) else known.record
        self.tell(pool, JobApplied(job, record))

    def _miss_pool(self, known: KnownJob) -> None:
        if known.record is not None and known.record.ended:
            return
        known.job = self._intake.job(known, decided=True)
        if known.job is not None:
            record = pool_missing(known.record, known.job, known.owner.pool, epoch=self.epoch)
            self._accounts.job(known, record)
            known.record = record
            self._writer.submit(known.owner.uid, status_write(self._tools, known, known.job, record, urgent=True))

    def _drop(self, known: KnownJob) -> None:
        uid = known.owner.uid
        self._read.discard(uid)
        self._caches.expect(known.owner, self._writer.forget(uid))
        self._settled(uid)
        self._results.pop(uid, None)
        if (pool := self._told.pop(uid, None)) is not None:
            self.tell(pool, JobDeleted(uid))

    # what becomes of writes

    def _on_outcome(self, outcome: Outcome) -> None:
        operation = outcome.operation
        match operation:
            case PutStatus():
                self._settled(outcome.key)
                self._on_status(outcome)
            case CreatePod() if outcome.key.startswith(ROOM):
                self._placeholders.settled(outcome)
            case CreatePod(_, body) if outcome.result in {"refused", "conflict"}:
                if pool := self._told.get(outcome.key):
                    self.tell(pool, _refused(outcome, body))
            case ApplyConfigMap() | Patch() if outcome.key in self._results and outcome.result != "done":
                self._lose_result(outcome)
            case Patch(path) if outcome.key.startswith(_NODE):
                log.info("taint_written", path=path, result=outcome.result)
                self._holds.settled(outcome.key.removeprefix(_NODE))
            case _:
                pass

    def _settled(self, key: str) -> None:
        """Let no pool wait for a status any more: it is written, or never will be."""
        for seat in self._seats.values():
            seat.hands.settled(key)

    def _lose_result(self, outcome: Outcome) -> None:
        text = self._results[outcome.key].lost(outcome)
        if text and (known := self._directory.jobs.get(outcome.key)):
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

    def _on_status(self, outcome: Outcome) -> None:
        if outcome.result == "done":
            self._accounts.written(outcome.key)
            assert isinstance(outcome.operation, PutStatus)
            self._bookings.written(outcome.key, outcome.operation.body)
        elif outcome.result == "gone":
            if known := self._directory.forget_job(outcome.key):
                self.job_gone(known)
            if reservation := self._directory.forget_reservation(outcome.key):
                self.reservation_gone(reservation)
            for name, pool in list(self._directory.pools.items()):
                if pool_key(pool.uid) == outcome.key:
                    self._caches.forget_pool(name)
        else:
            # the schema will not have it: a new leader would plan from an older record, so no pod goes beyond that
            log.error("status_refused", key=outcome.key, message=outcome.message)
            self._tell_refused(outcome)

    def _tell_refused(self, outcome: Outcome) -> None:
        assert isinstance(outcome.operation, PutStatus)
        text = f"its status cannot be written: {outcome.message}"
        self._recorder.emit(_regarding(outcome.operation.body), "Warning", reasons.STATUS_REFUSED, text)

    def _on_write(self, kind: str, result: str, seconds: float) -> None:
        self._metrics.writes.labels(kind, result).inc()
        self._metrics.write_seconds.observe(seconds)

    def _write_taints(self, node: str, patch: list[Json]) -> None:
        self._writer.submit(f"{_NODE}{node}", Patch(NODES.path(name=node), patch))

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
            self._bookings.tend()
            self._write_profiles(now=self._client.clock.now())
            self._tell_speeds()
            await asyncio.sleep(HOUSEKEEPING)

    async def _sweep(self) -> None:
        """Take in, some time, what nobody has told."""
        while True:
            await asyncio.sleep(RELIST)
            try:
                async for resource, change, body in unheard(self._client, self._directory):
                    log.info("unheard", kind=resource.plural, uid=body["metadata"]["uid"], change=change)
                    self._caches.observe(resource.plural, change, body)
            except ClusterError as error:
                log.warning("sweep_failed", error=str(error))

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
        self._writer.submit(
            f"{pool_key(known.uid)}:finalizers", Patch(POOLS.path(name=known.pool.metadata.name), patch)
        )

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


_NODE = "node:"


def _regarding(body: Mapping[str, Any]) -> Regarding:
    meta = body["metadata"]
    return Regarding(api.API_VERSION, body["kind"], meta.get("namespace", ""), meta["name"], meta["uid"])


def _without_chunks(record: JobRecord | None) -> JobRecord | None:
    """Take its chunks back from a job that moves: they were on the other pool's nodes, which ends their pods."""
    if record is not None:
        for chunk in record.chunks:
            record = ledger.lose(record, chunk)
    return record


def _refused_at_the_door(known: KnownJob) -> bool:
    """Whether it was refused for what the edge found, not for want of processors."""
    verdict = known.record.admitted if known.record else None
    return verdict is not None and verdict.reason in {
        reasons.NOT_ALLOWED,
        reasons.PROFILE_NOT_FOUND,
        reasons.POD_REFUSED,
        reasons.RESERVATION_NOT_FOUND,
        reasons.RESERVATION_REFUSED,
    }


def _refused(outcome: Outcome, body: Json) -> CreateRefused:
    notes = body["metadata"]["annotations"]
    return CreateRefused(
        job=outcome.key,
        kind=body["metadata"]["labels"][KIND_LABEL],
        begin=int(notes[BEGIN]),
        attempt=int(notes[ATTEMPT]),
        message=outcome.message,
        taken=outcome.result == "conflict",
    )
