"""One replica of the operator in the loop: the product's `Operator` on parts that reach the simulated world.

Elector and watches have threads of their own, as in the product. TLS, the authority's keys, probes and the page are
left out.
"""

import asyncio
import contextlib

from edge.link import Session
from edge.loop import Process, near
from edge.watches import SimWatches
from punctual.kube.agents.report_server import ReportServer
from punctual.kube.cluster.access import Access
from punctual.kube.cluster.client import ApiClient
from punctual.kube.election.claim import Claim
from punctual.kube.election.elector import Elector
from punctual.kube.main import Config, Makers, Operator


class Anonymous:
    """Credentials of a client that shows none."""

    def authorization(self):
        return None


SYSTEM = "punctual-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:punctual-agent"
AT = Access("", Anonymous())


class Client(ApiClient):
    """The product's client, on a simulated session."""

    network = process = None

    @staticmethod
    def _load(_):
        return AT

    def _connect(self, _):
        return Session(self.network, self.process)


def client_of(network, process):
    """Return the class of the clients of a process."""
    return type("ProcessClient", (Client,), {"network": network, "process": process})


class ElectorTask:
    """The product's elector as a task in a thread of its own. It has the interface of `ElectorThread`."""

    def __init__(self, loop, client, *, candidate, installation, clock=None, **more):
        self._loop = loop
        self._home = loop.context()
        self._candidate = candidate
        self.ended = loop.create_future()
        self._client = client(clock=clock, user_agent="punctual-elector")
        self._task = None
        self._elector = Elector(
            self._client,
            candidate=self,
            claim=Claim(self._client, installation),
            **more,
        )

    def lead(self, epoch):
        self._post(self._candidate.lead, epoch)

    def follow(self):
        self._post(self._candidate.follow)

    def min_epoch(self):
        return self._candidate.min_epoch()

    @property
    def leading(self):
        return self._elector.leading

    def leads(self, epoch):
        return self._elector.leads(epoch)

    def begin_above(self, epoch):
        self._elector.begin_above(epoch)

    def began_above(self, epoch):
        return self._elector.began_above(epoch)

    @property
    def other_installation(self):
        return self._elector.other_installation

    def start(self):
        self._task = self._loop.start(self._loop.current.process, self._run())

    async def _run(self):
        try:
            async with self._client:
                with contextlib.suppress(asyncio.CancelledError):
                    await self._elector.run()
        except BaseException as error:  # noqa: BLE001  it is raised from ``ended``
            self._post(self.ended.set_exception, error)
        else:
            self._post(self.ended.set_result, None)

    async def stop(self):
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self.ended])

    def _post(self, callback, *args):
        self._loop.call_soon(callback, *args, context=self._home)


class NoRotation:
    """No authority: TLS is left out."""

    context = serving = trust = None

    def __init__(self, *_):
        pass

    async def tend(self):
        pass

    async def run(self):
        await asyncio.Event().wait()


class NoProbes:
    """No probes are asked."""

    def __init__(self, *_, **__):
        pass

    async def start(self, *, port):
        return port

    async def stop(self):
        pass


class Replica:
    """A pod of the operator. ``begin()`` starts a process in it, a further one after an end."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.process = self.context = None
        self.report_server = None
        self.over = True
        """Whether no process of it runs."""
        self._stop = None

    def begin(self):
        """Start a process."""
        self.over = False
        loop, random = self.world.loop, self.world.random
        self.process = Process(self.name, rate=near(random), epoch=random.uniform(0, 1e5))
        self.process.wall = random.uniform(-0.5, 0.5)
        self.context = loop.context_of(self.process)
        loop.create_task(self._run(), context=self.context)

    async def _run(self):
        self._stop = asyncio.Event()
        try:
            await Operator(self._config(), make=self._makers()).run(self._stop)
            how = None
        except Exception as error:  # noqa: BLE001  the end of the process, as in `main`
            how = error
        self.over = True
        self.world.ended(self, how)

    def _config(self):
        return Config.read({"POD_NAME": self.name, "POD_NAMESPACE": SYSTEM})

    def _makers(self):
        loop, process = self.world.loop, self.process
        client = client_of(self.world.network, process)
        replica = self

        class Reports(ReportServer):
            async def start(self, *_, port, **__):
                replica.report_server = self
                return port

            async def stop(self):
                replica.report_server = None

        return Makers(
            client=client,
            watches=lambda receiver, **_: SimWatches(self.world, process, client, receiver),
            elector=lambda _, **more: ElectorTask(loop, client, **more),
            rotation=NoRotation,
            report_server=Reports,
            probe_server=NoProbes,
        )

    def kill(self):
        """End its process at once. Nothing of it runs on."""
        self.world.loop.kill(self.process)
        self.report_server = None
        self.over = True

    def stop(self):
        """Tell it to stop, as SIGTERM does."""
        if self._stop is not None:
            self._stop.set()
