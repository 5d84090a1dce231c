"""Electors under a clock that jumps, and a server that holds one Lease for them."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from punctual import errors
from punctual.kube.cluster.client import Json
from punctual.kube.election.claim import Claim, Installation
from punctual.kube.election.elector import Elector, Timing
from punctual.runtime.clock import ServerClock

TIMING = Timing(lease=15, renew=10, retry=2)


@dataclass
class Server:
    lease: Json | None = None
    version: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    writes: int = 0

    def put(self, lease: Json | None) -> Json:
        self.version += 1
        self.lease = copy.deepcopy(lease)
        if self.lease is not None:
            self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.changed.set()
        self.changed = asyncio.Event()
        return copy.deepcopy(self.lease) or {}

    def set_back(self, lease: Json, *, writes: int = 0) -> None:
        """Have an earlier Lease again, as after a restore, and so many writes of others since."""
        self.lease = copy.deepcopy(lease)
        self.version = int(lease["metadata"]["resourceVersion"]) + writes
        if writes:
            self.lease["metadata"]["resourceVersion"] = str(self.version)

    @property
    def epoch(self) -> int:
        return self.lease["spec"]["leaseTransitions"]


class Client:
    """One candidate's way to a server; ``cut`` breaks it, ``hang`` lets calls hang, ``lose`` loses answers."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clock = ServerClock()
        self.clock.monotonic = asyncio.get_running_loop().time
        self.cut = self.hang = self.lose = False

    async def _pass(self) -> None:
        await asyncio.sleep(0.01)
        if self.hang:
            await asyncio.Event().wait()
        if self.cut:
            raise errors.Unreachable("cut off")

    async def get(self, path: str) -> Json:
        await self._pass()
        if self.server.lease is None:
            raise errors.NotFound("no lease")
        return copy.deepcopy(self.server.lease)

    async def create(self, path: str, body: Json) -> Json:
        await self._pass()
        if self.server.lease is not None:
            raise errors.AlreadyExists("there is one")
        return self._answer(body)

    async def replace(self, path: str, body: Json) -> Json:
        await self._pass()
        if self.server.lease is None:
            raise errors.NotFound("no lease")
        if body["metadata"]["resourceVersion"] != self.server.lease["metadata"]["resourceVersion"]:
            raise errors.Conflict("the object has been modified")
        return self._answer(body)

    def _answer(self, body: Json) -> Json:
        self.server.writes += 1
        answer = self.server.put(body)
        if self.lose:
            raise errors.Unreachable("the answer got lost")
        return answer

    async def watch(self, path: str, *, resource_version: str, **_) -> AsyncGenerator[Json, None]:
        await self._pass()
        seen = int(resource_version)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(12):
                while True:
                    changed = self.server.changed
                    if self.server.version != seen:
                        seen = self.server.version
                        if self.server.lease is None:
                            yield {"type": "DELETED", "object": {}}
                        else:
                            yield {"type": "MODIFIED", "object": copy.deepcopy(self.server.lease)}
                    await changed.wait()


class Candidate:
    """An elector that runs, and what its callbacks said. ``of``: its installation's namespace."""

    def __init__(
        self,
        server: Server,
        name: str,
        log: list[str],
        *,
        min_epoch: int = 0,
        claims: Server | None = None,
        of: str = "ns",
    ) -> None:
        self.client = Client(server)
        self.claims = Client(claims or Server())
        self.log = log
        self.name = name
        self.least = min_epoch
        self.elector = Elector(
            self.client,
            namespace="ns",
            name="punctual",
            identity=name,
            candidate=self,
            claim=Claim(self.claims, Installation(of, "punctual")),
            timing=TIMING,
        )
        self.task = asyncio.create_task(self.elector.run())

    def lead(self, epoch: int) -> None:
        self.say(f"leads {epoch}")

    def follow(self) -> None:
        self.say("stops")

    def min_epoch(self) -> int:
        return self.least

    def say(self, what: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():.0f} {self.name} {what}")

    async def end(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, errors.StoreFellBack):
            await self.task

    async def leave(self) -> None:
        """End without a jump of time: no call of its last goes through, and none is waited for."""
        for client in (self.client, self.claims):
            client.cut, client.hang = True, False
        await self.end()

    def kill(self) -> None:
        """As kill -9: no callback, no release; its requests just stop."""
        self.client.hang = self.claims.hang = True
        self.follow = lambda: None
