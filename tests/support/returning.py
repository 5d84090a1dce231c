"""A world of `term_world` in which replicas lead in turn, with watches, pods that run, and links that are cut.

A replica that is frozen past its lease, and then leads again, has in memory what it knew of its own earlier term. A
frozen process does nothing; what it does when it goes on is to end its term. So its term is cancelled at the very
write at which it froze, and its watches say what they missed when it leads again (or only later: ``deaf``).
"""

import asyncio
import functools
import time

import orjson
from term_world import KINDS, POD, Replica, Server, World, path_of

from punctual import wire
from punctual.kube.api.resources import PODS
from punctual.labels import BEGIN, END, JOB_UID_LABEL, KIND_LABEL
from punctual.notation.duration import format_time
from punctual.runtime.clock import ServerClock

MODES = ("before", "after", "unanswered")
"""A replica is cut off before a write is done, after its answer, or in between: the answer is lost."""


def copied(body):
    """Return a body as it is read."""
    return orjson.loads(orjson.dumps(body))


class LiveServer(Server):
    """An API server with watches that tell of each change, with kubelets and a garbage collector.

    ``runs``: pods start and succeed at once; else they do what `run`, `succeed` and `fail` say.
    """

    def __init__(self):
        self.passed = 0.0
        super().__init__(lambda: 1_900_000_000.0 + self.passed)
        self.clock = ServerClock(monotonic=lambda: self.passed, wall=lambda: 1_900_000_000.0)
        self.clock.monotonic = time.monotonic  # back-offs and batches end by themselves
        self.clock.observe = lambda *_, **__: None  # it passes as the server's, whatever time it is here
        self.watching = []  # replicas
        self.runs = False
        self.succeeded = []  # (job, kind, begin, end) of each pod that did
        self.store.written.append(self._tell)

    def later(self, seconds):
        """Let time pass."""
        self.passed += seconds

    def _tell(self, _, event):
        for replica in self.watching:
            replica.hear(event.change, event.body)
        meta, soon = event.body["metadata"], asyncio.get_running_loop().call_soon
        if event.change == "DELETED":
            for path, body in self.objects.items():
                if any(owner["uid"] == meta["uid"] for owner in body["metadata"].get("ownerReferences", ())):
                    soon(self.answer, "DELETE", path, {}, {}, b"{}")
        elif event.body["kind"] == "Pod" and "deletionTimestamp" in meta:
            soon(self.drop, POD, event.path)
        elif event.change == "ADDED" and event.body["kind"] == "Pod" and self.runs:
            soon(self._run_through, event.body)

    # pods

    def add_pod(self, body, *, age=0.0):
        """Let a pod be there that was made so many seconds ago."""
        made = self.ask("POST", PODS.path(namespace=body["metadata"]["namespace"]), body)
        created = {"creationTimestamp": format_time(int(self.now() - age))}
        return self.set(POD, path_of(made), metadata={**made["metadata"], **created})

    def _run_through(self, pod):
        there = self.objects.get(path_of(pod))
        if there and there["metadata"]["uid"] == pod["metadata"]["uid"]:
            self.run(pod)
            self.succeed(pod)

    def run(self, pod):
        """Let a pod run on the node that it is meant for."""
        self._be(pod, "Running", {"running": {"startedAt": format_time(int(self.now()))}})

    def succeed(self, pod):
        """Let a pod end well."""
        meta = pod["metadata"]
        begin, end = (int(meta["annotations"][key]) for key in (BEGIN, END))
        self.succeeded.append((meta["labels"][JOB_UID_LABEL], meta["labels"][KIND_LABEL], begin, end))
        self._over(pod, "Succeeded", code=0, message=f"{begin}-{end}")

    def fail(self, pod):
        """Let a pod fail."""
        self._over(pod, "Failed", code=1, message="")

    def _over(self, pod, phase, *, code, message):
        now = format_time(int(self.now()))
        ended = {"exitCode": code, "startedAt": now, "finishedAt": now, "message": message}
        self._be(pod, phase, {"terminated": ended})

    def _be(self, pod, phase, state):
        name = pod["spec"]["containers"][0]["name"]
        self.be(pod, phase, containerStatuses=[{"name": name, "state": state}])


class Link:
    """What a replica reaches the server by. ``cut(nth, mode, then)``: the nth write from now on is its last."""

    def __init__(self, server):
        self._server = server
        self._nth, self._mode, self._then = 0, "", lambda: None
        self.writes = 0

    def cut(self, nth, mode, then):
        self._nth, self._mode, self._then = self.writes + nth, mode, then

    def mend(self):
        """Let writes come through again."""
        self._nth = 0

    async def request(self, method, path, *, params, **more):
        """Send a request."""
        send = functools.partial(self._server.request, method, path, params=params, **more)
        if method == "GET" or "dryRun" in (params or {}) or "/events" in path:
            return await send()
        self.writes += 1
        if self.writes < self._nth or not self._nth:
            return await send()
        if self.writes == self._nth and self._mode != "before":
            answer = await send()
            if self._mode == "after":
                asyncio.get_running_loop().call_soon(self._then)
                return answer
        self._then()
        return await asyncio.Event().wait()


class LiveReplica(Replica):
    """A replica with watches. ``deaf``: they say nothing, until it `hears`."""

    def __init__(self, server):
        self.link = Link(server)
        super().__init__(server, self.link)
        self.deaf = False
        self.hears_of_pods()
        server.watching.append(self)

    def hear(self, change, body):
        pods = self.caches.informers[1]
        if not self.deaf and body["kind"] in KINDS:
            self.observe(change, copied(body))
        elif not self.deaf and body["kind"] == "Pod":
            (pods._tell_deleted if change == "DELETED" else pods._told)(copied(body))

    def hears_of_pods(self):
        """Let its informers say what they missed."""
        pods = self.caches.informers[1]
        there = {pods._told(copied(body)) for body in self.server.living.values()}
        for key in pods._known.keys() - there:
            pods._tell_gone(key)

    def hears(self):
        """Let all its watches say what they missed, and go on."""
        if self.deaf:
            self.deaf = False
            self.catch_up()
            self.hears_of_pods()

    def lend(self):
        """Let the agent of the node report a node without work of its own."""
        said = wire.NodeReport(hosts=wire.Hosts(cores=4.0), guest_priority="weight")
        self.term.heard(wire.Report(node="n1", instance="a", sequence=1, host=said))


class LiveWorld(World):
    """`World` on a `LiveServer`: whoever leads, does so until told otherwise."""

    def __init__(self):
        super().__init__(LiveServer())

    def replica(self):
        self.replicas.append(LiveReplica(self.server))
        return self.replicas[-1]


def ended(world, body):
    return world.status(body).get("state") in {"Completed", "Missed", "Failed"}


async def quiet(world, leader):
    """Wait until a leader has nothing more to do. Progress may wait to be written."""
    server, same, before = world.server, 0, None

    def rests():
        nonlocal same, before
        now = [*map(len, (server.written, server.stamped, server.pods, server.deleted, server.events))]
        queues = leader.term._writer._queues
        retried = any(one.retrying for one in queues._queues.values())
        idle = leader.term.leads and queues.caught_up.is_set() and not retried
        same, before = (same + 1 if idle and now == before else 0), now
        return same > 10

    await world.until(rests)
