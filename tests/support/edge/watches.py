"""kopf's watches as a task: it lists and watches each kind, and says what it sees late, merged, or not at all.

As kopf's code can: of several changes of an object within its batch only the last is delivered; what was deleted
between two lists is not reported; a watch may end for good, until `renew`.
"""

import asyncio
import contextlib

from punctual.errors import ClusterError, Gone
from punctual.kube.api import KINDS
from punctual.kube.api.resources import Resource

BATCH = 0.1
PAUSE = 1.0
AGAIN = (0.2, 0.5, 1.0, 2.0, 5.0)


class SimWatches:
    """The interface of `Watches`. ``receiver.observe(plural, change, body)`` is called on the thread that made it."""

    def __init__(self, world, process, client, receiver):
        self._world, self._process = world, process
        self._client = client(user_agent="kopf")
        self._receiver = receiver
        self._loop = world.loop
        self._home = self._loop.context()
        self._thread = self._loop.context_of(process)
        self._renewed = asyncio.Event()
        self._tasks = {}
        self._newest = {}  # by uid: what is to be delivered
        world.watches[process] = self

    def renew(self):
        self._renewed.set()

    async def run(self):
        async with self._client:
            while True:
                self._renewed.clear()
                self._newest.clear()
                self._tasks = {
                    kind.NAMES.plural: self._loop.create_task(self._follow(kind), context=self._thread)
                    for kind in KINDS
                }
                try:
                    await self._renewed.wait()
                finally:
                    for task in self._tasks.values():
                        task.cancel()
                await asyncio.sleep(PAUSE)

    def end(self, plural):
        """Let the watch of a kind end for good, as a bug of kopf's did."""
        if task := self._tasks.get(plural):
            task.cancel()

    async def _follow(self, kind):
        plural, path = kind.NAMES.plural, Resource("punctual.dev/v1alpha1", kind.NAMES.plural).path()
        tries = 0
        version = ""
        while True:
            try:
                if not version:
                    found = await self._client.list(path, page=4)
                    version = found.resource_version
                    for body in found.items:
                        self._hear(plural, None, body)
                watch = self._client.watch(path, resource_version=version, seconds=12, silence=15)
                async with contextlib.aclosing(watch):
                    async for event in watch:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            self._hear(plural, event["type"], event["object"])
                tries = 0
            except Gone:
                version = ""
            except ClusterError:
                await asyncio.sleep(AGAIN[min(tries, len(AGAIN) - 1)])
                tries += 1

    def _hear(self, plural, change, body):
        uid = body["metadata"]["uid"]
        if self._world.loses(self._process):
            return
        if uid not in self._newest:
            self._loop.call_later(self._world.random.uniform(0, BATCH), self._deliver, uid, context=self._thread)
        self._newest[uid] = plural, change, body

    def _deliver(self, uid):
        if (found := self._newest.pop(uid, None)) is not None:
            self._loop.call_soon(self._receiver.observe, *found, context=self._home)
