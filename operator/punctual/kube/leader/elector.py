"""Who leads: a Lease, and the epoch that makes a leader who does not know that it lost harmless.

The holder renews the Lease; it stops leading when it could not for ``renew`` seconds, counted on its own monotonic
clock from *before* the last good request, and so before others, who wait ``lease`` seconds from when they saw that
renewal, may begin. ``spec.leaseTransitions`` is the epoch: raised at every acquisition, by the same name too, and to at
least one more than ``min_epoch()`` (the highest epoch that any status carries), or a deleted Lease would begin
again at 0. A standby watches the Lease and acts at its expiry or release.

`ElectorThread` runs it in a thread and loop of its own, so that a long plan cannot starve a renewal. Written to be read
beside `writer`: between an expiry and the moment the main loop hears of it, `leading` is already False.
"""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from punctual import errors
from punctual.kube.cluster.client import LEASES, ApiClient, Json
from punctual.kube.format.clock import ServerClock

NEVER = float("-inf")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; ``retry`` < ``renew`` < ``lease``, and a takeover after a crash takes at most lease + retry."""

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew < self.lease:
            raise ValueError(f"need 0 < retry < renew < lease, not {self}")


class Elector:
    """One candidate, in the loop that calls `run`.

    ``identity`` must be of this process alone (pod name and a random part). ``on_started(epoch)`` and
    ``on_stopped()`` are called in turns, in the elector's loop; they must not block. ``min_epoch()`` as well.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        on_started: Callable[[int], None],
        on_stopped: Callable[[], None],
        min_epoch: Callable[[], int] = lambda: 0,
        timing: Timing = Timing(),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._collection = LEASES.path(namespace=namespace)
        self._path = LEASES.path(namespace=namespace, name=name)
        self._meta = {"namespace": namespace, "name": name}
        self._identity = identity
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._min_epoch = min_epoch
        self._timing = timing
        self._monotonic = monotonic
        self._epoch = 0  # of our last term
        self._acquired = ""
        self._until = NEVER  # we lead until then
        self._lease: Json | None = None  # as last read or written
        self._seen: Json = {}  # its spec, and since when we have known it
        self._seen_at = NEVER

    @property
    def leading(self) -> bool:
        """Whether this candidate may act now. To be asked before each write, from any thread."""
        return self._monotonic() < self._until

    def leads(self, epoch: int) -> bool:
        """Whether the term of that epoch goes on: who has lost the Lease may hold it again, under another one."""
        return self.leading and self._epoch == epoch

    async def run(self) -> None:
        """Stand for election until cancelled; then stop leading and release the Lease."""
        while True:
            await self._acquire()
            log.info("leading", lease=self._path, identity=self._identity, epoch=self._epoch)
            self._on_started(self._epoch)
            try:
                await self._hold()
            except asyncio.CancelledError:
                self._stop()
                await self._release()
                raise
            except BaseException:
                self._stop()
                raise
            self._stop()

    def _stop(self) -> None:
        self._until = NEVER
        log.info("led", lease=self._path, identity=self._identity, epoch=self._epoch)
        self._on_stopped()

    # standing by

    async def _acquire(self) -> None:
        """Wait for our turn and take it."""
        while True:
            try:
                async with asyncio.timeout(self._timing.renew):
                    await self._read()
                if self._patience() <= 0:
                    async with asyncio.timeout(self._timing.renew):
                        await self._take()
                    return
                await self._stand_by()
            except errors.Conflict:
                log.info("lease_taken_by_another", lease=self._path)
            except (errors.ClusterError, TimeoutError) as error:
                log.warning("lease_unreachable", lease=self._path, error=str(error))
                await asyncio.sleep(self._timing.retry)

    async def _read(self) -> None:
        try:
            self._see(await self._client.get(self._path))
        except errors.NotFound:
            self._lease = None

    def _see(self, lease: Json) -> None:
        """Note the Lease, and when its spec was first seen as it is: others' clocks tell us nothing."""
        self._lease = lease
        if lease.get("spec", {}) != self._seen:
            self._seen, self._seen_at = lease.get("spec", {}), self._monotonic()

    def _patience(self) -> float:
        """Seconds until the holder's time is over; 0 or less when there is no holder but us."""
        if self._lease is None or self._seen.get("holderIdentity") in {None, "", self._identity}:
            return 0.0
        return self._seen_at + float(self._seen.get("leaseDurationSeconds", 0)) - self._monotonic()

    async def _stand_by(self) -> None:
        """Watch the Lease until it is released, gone or over, or the watch ends."""
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
                        self._see(event["object"])
                        if self._patience() <= 0:
                            return
                        limit.reschedule(loop.time() + self._patience())

    async def _take(self) -> None:
        """Make the Lease ours, over the very version we read, under a new epoch."""
        epoch = max(self._seen.get("leaseTransitions", 0), self._epoch, self._min_epoch()) + 1
        sent = self._monotonic()
        self._acquired = self._stamp()
        spec = self._spec(epoch)
        if self._lease is None:
            body = {"apiVersion": LEASES.version, "kind": "Lease", "metadata": self._meta, "spec": spec}
            lease = await self._client.create(self._collection, body)
        else:
            lease = await self._client.replace(self._path, {**self._lease, "spec": spec})
        self._see(lease)
        self._epoch = epoch
        self._until = sent + self._timing.renew

    # leading

    async def _hold(self) -> None:
        """Renew until the Lease is lost or cannot be renewed in time."""
        while (left := self._until - self._monotonic()) > 0:
            # the less is left after failures, the sooner again
            await asyncio.sleep(min(self._timing.retry, max(left / 3, self._timing.retry / 20)))
            left = self._until - self._monotonic()
            if left <= 0:
                break
            try:
                # half of it, so that a call that hangs leaves time for another
                async with asyncio.timeout(min(left, self._timing.renew / 2)):
                    if not await self._renew():
                        log.warning("lease_lost", lease=self._path, epoch=self._epoch)
                        return
            except (errors.ClusterError, TimeoutError) as error:
                log.warning("lease_not_renewed", lease=self._path, epoch=self._epoch, error=str(error))
        log.warning("lease_ran_out", lease=self._path, epoch=self._epoch)

    async def _renew(self) -> bool:
        """Renew the Lease; False when it is not ours any more."""
        while True:
            assert self._lease is not None
            sent = self._monotonic()
            try:
                self._see(await self._client.replace(self._path, {**self._lease, "spec": self._spec(self._epoch)}))
            except errors.NotFound:
                return False
            except errors.Conflict:
                if not await self._still_ours():
                    return False
            else:
                if self._monotonic() >= self._until:  # too late: a term may have ended over it
                    return False
                self._until = sent + self._timing.renew
                return True

    async def _still_ours(self) -> bool:
        """Read what another wrote: perhaps ourselves, in a call whose answer was lost, or a person an annotation."""
        await self._read()
        holder, epoch = self._seen.get("holderIdentity"), self._seen.get("leaseTransitions")
        return self._lease is not None and (holder, epoch) == (self._identity, self._epoch)

    async def _release(self) -> None:
        """Let a standby begin at once; when it cannot be, it waits for the expiry."""
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
        except (errors.ClusterError, TimeoutError) as error:
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
        """Now, as a MicroTime; for people, nobody decides by it."""
        return datetime.fromtimestamp(self._client.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class ElectorThread(threading.Thread):
    """An `Elector` with its own client, loop and thread; callbacks are posted to the loop that made it.

    ``thread.start()``; ``thread.leading``; ``await thread.stop()`` releases the Lease and ends the thread. What ends
    it otherwise is raised by ``await thread.ended``. ``min_epoch`` is called in the thread.
    """

    def __init__(
        self,
        kubeconfig: str | None,
        *,
        namespace: str,
        name: str,
        identity: str,
        on_started: Callable[[int], None],
        on_stopped: Callable[[], None],
        min_epoch: Callable[[], int] = lambda: 0,
        timing: Timing = Timing(),
        clock: ServerClock | None = None,
    ) -> None:
        super().__init__(name="elector", daemon=True)
        self._home = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._home.create_future()
        self._client = ApiClient(kubeconfig, clock=clock, user_agent="punctual-elector")
        self._elector = Elector(
            self._client,
            namespace=namespace,
            name=name,
            identity=identity,
            on_started=lambda epoch: self._post(on_started, epoch),
            on_stopped=lambda: self._post(on_stopped),
            min_epoch=min_epoch,
            timing=timing,
        )
        self._stopping = threading.Event()
        self._cancel: Callable[[], object] = lambda: None

    @property
    def leading(self) -> bool:
        """See `Elector.leading`."""
        return self._elector.leading

    def leads(self, epoch: int) -> bool:
        """See `Elector.leads`."""
        return self._elector.leads(epoch)

    def run(self) -> None:
        """Do not call it: `start` does, in the new thread."""
        try:
            asyncio.run(self._stand())
        except BaseException as error:  # noqa: BLE001  it is raised where somebody waits for it
            self._post(self._end, error)
        else:
            self._post(self._end, None)

    async def stop(self) -> None:
        """Stop leading, release the Lease (within ``renew`` seconds, if it can be) and end the thread."""
        if self.ident is None:  # never started
            return
        self._stopping.set()
        with contextlib.suppress(RuntimeError):  # its loop has ended already
            self._cancel()
        await asyncio.wait([self.ended])

    async def _stand(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._client:
            task = asyncio.ensure_future(self._elector.run())
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._stopping.is_set():  # before there was anything to cancel
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
        with contextlib.suppress(RuntimeError):  # that loop is closed: nobody listens
            self._home.call_soon_threadsafe(callback, *args)
