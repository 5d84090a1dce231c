"""Leader election with a Lease, and an epoch that makes a replaced leader harmless.

The holder renews the Lease. It stops leading after ``renew`` seconds without success, counted on its own monotonic
clock from *before* the last successful request. Others wait ``lease`` seconds from when they saw that renewal, so the
holder stops before another replica may start. ``spec.leaseTransitions`` is the epoch. It is raised at every
acquisition, also by the same holder, and to at least one more than ``min_epoch()`` (the highest epoch in any status).
Otherwise a deleted Lease would restart it at 0. After a restore of the API server's store, agents may know epochs
that are not in the statuses: told of one (`begin_above`), the holder ends its term and acquires the Lease again, above
it. A standby watches the Lease and acts at its expiry or release. Before a replica takes the Lease and while it holds
it, it holds the `claim` of its installation, too.

`ElectorThread` runs the elector in a separate thread and loop, so that a long plan cannot delay a renewal. `writer`
relies on it: between an expiry and the moment when the main loop learns of it, `leading` is already False.

A Lease that shows that the store was set back ends the elector, leading or not (`lease_history`).
"""

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from punctual import errors
from punctual.kube.api.resources import LEASES
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.election.claim import Claim, Installation
from punctual.kube.election.lease_history import LeaseHistory
from punctual.notation.duration import format_micro_time
from punctual.runtime.bucket import Bucket
from punctual.runtime.clock import ServerClock

NEVER = float("-inf")
AGAIN_RATE, AGAIN_BURST = 1 / 60, 3
"""How many terms a second, and at once, may end because an agent knows a higher epoch: one node must not end each."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. ``retry`` < ``renew`` < ``lease``, and a takeover after a crash takes at most lease + retry."""

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew < self.lease:
            raise ValueError(f"need 0 < retry < renew < lease, not {self}")


class Candidate(Protocol):
    """What stands for election. `lead` and `follow` are called alternately. Nothing here may block."""

    def lead(self, epoch: int) -> None:
        """Begin to lead."""

    def follow(self) -> None:
        """Cease to lead."""

    def min_epoch(self) -> int:
        """Return the highest epoch that is known: the next one is higher."""


class Elector:
    """Lets one candidate stand for election, in the loop that calls `run`.

    ``identity`` must be unique to this process (pod name and a random part).
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        candidate: Candidate,
        claim: Claim,
        timing: Timing = Timing(),
    ) -> None:
        self._client = client
        self._collection = LEASES.path(namespace=namespace)
        self._path = LEASES.path(namespace=namespace, name=name)
        self._meta = {"namespace": namespace, "name": name}
        self._identity = identity
        self._candidate = candidate
        self._claim = claim
        self._timing = timing
        self._monotonic = client.clock.monotonic
        self._epoch = 0  # of the last term
        self._acquired = ""
        self._above = 0  # the highest epoch that anything has named: the next one is higher
        self._raised = 0  # the epoch of the term, if that began above what an agent had heard
        self._again = Bucket(AGAIN_RATE, AGAIN_BURST, client.clock)
        self._history = LeaseHistory(self._path)
        self._until = NEVER  # this replica leads until then
        self._lease: Json | None = None  # as last read or written
        self._seen: Json = {}  # its spec, and since when it is known
        self._seen_at = NEVER

    @property
    def leading(self) -> bool:
        """Whether this candidate may act now. Check it before each write, from any thread."""
        return self._monotonic() < self._until

    def leads(self, epoch: int) -> bool:
        """Return whether the term of that epoch continues.

        A replica that lost the Lease may hold it again in a later term.
        """
        return self.leading and self._epoch == epoch

    @property
    def other_installation(self) -> str:
        """The installation ("namespace/release") that leads instead of this one; empty if none does."""
        return self._claim.other

    def begin_above(self, epoch: int) -> None:
        """End the term soon, and acquire the Lease again above this epoch. May be called from any thread."""
        self._above = max(self._above, epoch)

    def began_above(self, epoch: int) -> bool:
        """Return whether the term of that epoch began because of `begin_above`, while this replica held the Lease."""
        return self._raised == epoch

    async def run(self) -> None:
        """Stand for election until cancelled, then stop leading and release the Lease.

        Raises StoreFellBack if the Lease shows that the API server's store was set back.
        """
        above = False
        while True:
            await self._acquire()
            self._raised = self._epoch if above else 0
            log.info("leadership_acquired", lease=self._path, identity=self._identity, epoch=self._epoch)
            self._candidate.lead(self._epoch)
            try:
                above = await self._hold()
            except asyncio.CancelledError:
                self._stop()
                await self._release()
                raise
            except BaseException:
                self._stop()
                raise
            self._stop()
            if self._claim.other:  # no replica of this installation may lead
                await self._release()

    def _stop(self) -> None:
        self._until = NEVER
        log.info("leadership_ended", lease=self._path, identity=self._identity, epoch=self._epoch)
        self._candidate.follow()

    # standby

    async def _acquire(self) -> None:
        """Wait until the Lease is free and take it."""
        while True:
            try:
                async with asyncio.timeout(self._timing.renew):
                    await self._read()
                if self._patience() > 0:
                    await self._stand_by()
                elif await self._claims():
                    async with asyncio.timeout(self._timing.renew):
                        await self._take()
                    return
                else:
                    await asyncio.sleep(self._timing.retry)
            except errors.Conflict:
                log.info("lease_taken_by_another", lease=self._path)
            except (errors.ClusterError, TimeoutError) as error:
                log.warning("lease_not_reached", lease=self._path, error=str(error))
                await asyncio.sleep(self._timing.retry)

    async def _claims(self) -> bool | None:
        """Hold the installation's claim. Returns False if another installation has it, None if it is not known."""
        try:
            async with asyncio.timeout(self._timing.renew / 2):
                return await self._claim.hold()
        except errors.Conflict:  # another replica, of this or another installation, was faster: the next try sees which
            return None
        except (errors.ClusterError, TimeoutError) as error:
            log.warning("claim_not_reached", claim=self._claim.path, error=str(error))
            return None

    async def _read(self) -> None:
        try:
            lease = await self._client.get(self._path)
        except errors.NotFound:
            self._lease = None
        else:
            self._history.check(lease)
            self._see(lease)

    def _see(self, lease: Json) -> None:
        """Record the Lease, and when its present spec was first seen. The times of other clocks are not used."""
        self._lease = lease
        if lease.get("spec", {}) != self._seen:
            self._seen, self._seen_at = lease.get("spec", {}), self._monotonic()

    def _patience(self) -> float:
        """Return the seconds until the holder's time ends. 0 or less if no other replica holds the Lease."""
        if self._lease is None or self._seen.get("holderIdentity") in {None, "", self._identity}:
            return 0.0
        return self._seen_at + float(self._seen.get("leaseDurationSeconds", 0)) - self._monotonic()

    async def _stand_by(self) -> None:
        """Watch the Lease until it is released, deleted or expired, or until the watch ends."""
        assert self._lease is not None
        watch = self._client.watch(
            self._collection,
            resource_version=self._lease["metadata"]["resourceVersion"],
            field_selector=f"metadata.name={self._meta['name']}",
        )
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience()) as limit, contextlib.aclosing(watch):
                async for event in watch:
                    if event["type"] == "DELETED":
                        return
                    if event["type"] != "BOOKMARK":
                        self._history.note(event["object"])
                        self._see(event["object"])
                        if self._patience() <= 0:
                            return
                        limit.reschedule(loop.time() + self._patience())

    async def _take(self) -> None:
        """Acquire the Lease over the version that was read, with a new epoch."""
        epoch = max(self._seen.get("leaseTransitions", 0), self._epoch, self._above, self._candidate.min_epoch()) + 1
        sent = self._monotonic()
        self._acquired = self._stamp()
        spec = self._spec(epoch)
        if self._lease is None:
            body = {"apiVersion": LEASES.version, "kind": "Lease", "metadata": self._meta, "spec": spec}
            lease = await self._client.create(self._collection, body)
        else:
            lease = await self._client.replace(self._path, {**self._lease, "spec": spec})
        self._history.check(lease)
        self._see(lease)
        self._epoch = epoch
        self._until = sent + self._timing.renew

    # leader

    async def _hold(self) -> bool:
        """Renew until the Lease is lost or cannot be renewed in time: False.

        True: this replica holds it, and an agent has heard another leader with this epoch or a higher one.
        """
        while (left := self._until - self._monotonic()) > 0:
            # the less time is left after failures, the shorter the pause
            await asyncio.sleep(min(self._timing.retry, max(left / 3, self._timing.retry / 20)))
            left = self._until - self._monotonic()
            if left <= 0:
                break
            try:
                # half of it, so that a call that hangs leaves time for another
                async with asyncio.timeout(min(left, self._timing.renew / 2)):
                    if not await self._renew():
                        log.warning("lease_lost", lease=self._path, epoch=self._epoch)
                        return False
                if await self._claims() is False:
                    return False
                if self._above >= self._epoch and self._again.take():
                    log.warning("epochs_fell_back", lease=self._path, epoch=self._epoch, known=self._above)
                    return True
            except (errors.ClusterError, TimeoutError) as error:
                log.warning("lease_not_renewed", lease=self._path, epoch=self._epoch, error=str(error))
        log.warning("lease_expired", lease=self._path, epoch=self._epoch)
        return False

    async def _renew(self) -> bool:
        """Renew the Lease. Returns False if another replica holds it."""
        while True:
            assert self._lease is not None
            sent = self._monotonic()
            try:
                lease = await self._client.replace(self._path, {**self._lease, "spec": self._spec(self._epoch)})
            except errors.NotFound:
                return False
            except errors.Conflict:
                if not await self._still_ours():
                    return False
            else:
                self._history.check(lease)
                self._see(lease)
                if self._monotonic() >= self._until:  # too late: the term may have ended meanwhile
                    return False
                self._until = sent + self._timing.renew
                return True

    async def _still_ours(self) -> bool:
        """Read the Lease after a conflict and return whether it is still held.

        The other write may be this replica's, in a call without an answer, or a person's annotation.
        """
        await self._read()
        holder, epoch = self._seen.get("holderIdentity"), self._seen.get("leaseTransitions")
        return self._lease is not None and (holder, epoch) == (self._identity, self._epoch)

    async def _release(self) -> None:
        """Release the Lease so that a standby can start at once. If this fails, the standby waits for the expiry."""
        assert self._lease is not None
        spec = self._spec(self._epoch) | {"leaseDurationSeconds": 1}
        del spec["holderIdentity"]
        try:
            async with asyncio.timeout(self._timing.renew / 2):
                try:
                    await self._client.replace(self._path, {**self._lease, "spec": spec})
                except errors.Conflict:
                    if await self._still_ours():
                        await self._client.replace(self._path, {**self._lease, "spec": spec})
        except (errors.ClusterError, errors.StoreFellBack, TimeoutError) as error:
            log.warning("lease_not_released", lease=self._path, error=str(error))

    def _spec(self, epoch: int) -> Json:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._timing.lease),
            "leaseTransitions": epoch,
            "acquireTime": self._acquired,
            "renewTime": self._stamp(),
        }

    def _stamp(self) -> str:
        """Return the present time as a MicroTime. It informs people only; no decision uses it."""
        return format_micro_time(self._client.clock.now())


class ElectorThread(threading.Thread):
    """An `Elector` with its own client, loop and thread.

    ``thread.start()``; ``thread.leading``; ``await thread.stop()`` releases the Lease and ends the thread. ``await
    thread.ended`` raises the cause of any other end. The candidate is told in the loop that created the thread, but
    asked for its epoch in the thread.
    """

    def __init__(
        self,
        kubeconfig: str | None,
        *,
        namespace: str,
        name: str,
        identity: str,
        candidate: Candidate,
        installation: Installation,
        timing: Timing = Timing(),
        clock: ServerClock | None = None,
    ) -> None:
        super().__init__(name="elector", daemon=True)
        self._home = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._home.create_future()
        self._candidate = candidate
        self._client = ApiClient(kubeconfig, clock=clock, user_agent="punctual-elector")
        self._elector = Elector(
            self._client,
            namespace=namespace,
            name=name,
            identity=identity,
            candidate=self,
            claim=Claim(self._client, installation),
            timing=timing,
        )
        self._stopping = threading.Event()
        self._cancel: Callable[[], object] = lambda: None

    # what the elector tells and asks, in the thread

    def lead(self, epoch: int) -> None:
        """Let the candidate lead."""
        self._post(self._candidate.lead, epoch)

    def follow(self) -> None:
        """Let the candidate cease to lead."""
        self._post(self._candidate.follow)

    def min_epoch(self) -> int:
        """Return the highest epoch that the candidate knows."""
        return self._candidate.min_epoch()

    # for any thread

    @property
    def leading(self) -> bool:
        """See `Elector.leading`."""
        return self._elector.leading

    def leads(self, epoch: int) -> bool:
        """See `Elector.leads`."""
        return self._elector.leads(epoch)

    def begin_above(self, epoch: int) -> None:
        """See `Elector.begin_above`."""
        self._elector.begin_above(epoch)

    def began_above(self, epoch: int) -> bool:
        """See `Elector.began_above`."""
        return self._elector.began_above(epoch)

    @property
    def other_installation(self) -> str:
        """See `Elector.other_installation`."""
        return self._elector.other_installation

    def run(self) -> None:
        """Run the elector. Do not call it; `start` does, in the new thread."""
        try:
            asyncio.run(self._stand())
        except BaseException as error:  # noqa: BLE001  it is raised from ``ended``
            self._post(self._end, error)
        else:
            self._post(self._end, None)

    async def stop(self) -> None:
        """Stop leading, release the Lease (within ``renew`` seconds, if possible) and end the thread."""
        if self.ident is None:  # never started
            return
        self._stopping.set()
        with contextlib.suppress(RuntimeError):  # its loop has already ended
            self._cancel()
        await asyncio.wait([self.ended])

    async def _stand(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._client:
            task = asyncio.ensure_future(self._elector.run())
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._stopping.is_set():  # set before there was anything to cancel
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _end(self, error: BaseException | None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # that loop is closed
            self._home.call_soon_threadsafe(callback, *args)
