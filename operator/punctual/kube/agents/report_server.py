"""The report server for agents: HTTPS, one POST per node and second. The answer has the set points of the node's pods.

A report is accepted only if all of this holds. Each refusal is counted by its reason:

    this replica leads                       else 503, and the connection is closed, so that the Service routes anew
    the token is the agent's, for us         TokenReview, cached up to a minute (``identity.py``)
    it comes from the node that it names     the token's node-name, not the body's
    it is newer than the last one            (instance, sequence); of two running instances the younger counts
    it has heard no other leader of this     else a newer leader exists, or there was one before the API server's store
    epoch or a higher one                    was set back: this one must not answer, and begins again above it

The term takes the accepted report, and ignores pods that are not known on that node. The answer is made from the set
points. TokenReviews are the only calls to the API server.
"""

import asyncio
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import structlog
from aiohttp import web
from pydantic import ValidationError

from punctual import wire
from punctual.errors import ClusterError
from punctual.kube.agents.identity import Identity, Reviewer
from punctual.kube.agents.set_points import SetPointStore
from punctual.kube.port import Cause, Limits, Port
from punctual.runtime.clock import ServerClock

log = structlog.get_logger(__name__)

LARGEST: Final = 1 << 20
"""Limit of a report in bytes. A pod takes some 200, and a kubelet has a few hundred pods at most."""
PATIENCE: Final = 10.0
"""Seconds for the body to arrive."""
SILENT: Final = 10.0
"""Seconds after which an agent without a report counts as silent."""
LIMITS: Final = Limits(strangers=1500, of_one=4, headers=16)
"""Limits on connections. All agents are strangers at once after a takeover. A node has up to four connections: of two
agents during an upgrade, and of a network that lost others without a sign."""

Refusal = Literal[
    "notLeading",
    "noToken",
    "badToken",
    "reviewFailed",
    "otherAccount",
    "otherNode",
    "tooLarge",
    "tooSlow",
    "brokenOff",
    "malformed",
    "oldInstance",
    "oldSequence",
    "higherEpoch",
    "unknownPod",
]
_STATUS: Final[dict[Refusal, int]] = {
    "notLeading": 503,
    "noToken": 401,
    "badToken": 401,
    "reviewFailed": 503,
    "otherAccount": 403,
    "otherNode": 403,
    "tooLarge": 413,
    "tooSlow": 408,
    "brokenOff": 400,
    "malformed": 400,
    "oldInstance": 409,
    "oldSequence": 409,
    "higherEpoch": 409,
}


class Receiver(Protocol):
    """What a report server works for: the operator. All is called in its event loop."""

    def leading_epoch(self) -> int | None:
        """Return the leader's epoch. None while this replica does not lead."""

    def heard(self, report: wire.Report) -> None:
        """Receive an accepted report."""

    def heard_another(self, epoch: int) -> None:
        """Learn that an agent has heard another leader, with this leader's epoch or a higher one."""

    def count_refusal(self, reason: Refusal) -> None:
        """Count a refusal."""


@dataclass(slots=True)
class _LastReport:
    """The last accepted report of a node."""

    instance: str
    sequence: int
    born: float
    """The start of that agent process, on this replica's monotonic clock."""
    heard: float
    quota: float
    """CPU caps in force on the node's pods together, in cores."""
    drift: int
    """The number of times that another program changed one of them."""


class _Refused(Exception):  # noqa: N818  an outcome, not an error of the program
    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason = reason


class ReportServer:
    """The server that receives the agents' reports."""

    def __init__(
        self,
        set_points: SetPointStore,
        reviewer: Reviewer[Identity],
        receiver: Receiver,
        *,
        clock: ServerClock,
        account: str,
        limits: Limits = LIMITS,
        closed: Callable[[Cause], None] = lambda _: None,
    ) -> None:
        """``account`` is the agent's: ``system:serviceaccount:<namespace>:<name>``. ``closed``: see `Port`."""
        self._set_points = set_points
        self._reviewer = reviewer
        self._receiver = receiver
        self._clock = clock
        self._account = account
        self._reports: dict[str, _LastReport] = {}
        self._port = Port(limits, closed=closed)
        self._answered: dict[str, int] = {}
        """The epoch of the last answer to each node: an agent knows an epoch only from an answer."""

    async def start(self, context: ssl.SSLContext, *, host: str | None = None, port: int = 8443) -> int:
        """Listen. Returns the port (for 0, the one that was assigned)."""
        app = web.Application(client_max_size=LARGEST)
        app.router.add_post(wire.REPORT_PATH, self.handle)
        return await self._port.open(app, host=host, port=port, context=context, grace=2.0)

    async def stop(self) -> None:
        """Stop listening. Open requests have two seconds to end."""
        await self._port.close()

    def silent(self, expected: Collection[str]) -> list[str]:
        """Return those of the expected nodes that have not reported lately, or never."""
        limit = self._clock.monotonic() - SILENT
        return sorted(n for n in expected if (v := self._reports.get(n)) is None or v.heard < limit)

    def quota(self) -> float:
        """Return the sum of the caps in force, in cores, over all nodes that reported lately."""
        return sum(v.quota for v in self._lately())

    def drift(self) -> int:
        """Return the number of caps of present pods that another program changed."""
        return sum(v.drift for v in self._lately())

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._reports.pop(node, None)

    def _lately(self) -> list[_LastReport]:
        limit = self._clock.monotonic() - SILENT
        return [v for v in self._reports.values() if v.heard >= limit]

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one report."""
        came = self._clock.monotonic()
        try:
            return await self._take(request, came)
        except _Refused as refused:
            self._receiver.count_refusal(refused.reason)
            response = web.json_response({"reason": refused.reason}, status=_STATUS[refused.reason])
            if refused.reason == "notLeading":
                response.force_close()  # a kept connection would stay with a replica that no longer leads
            return response

    async def _take(self, request: web.Request, came: float) -> web.Response:
        self._epoch()
        identity = await self._identify(request)
        report = await self._read(request)
        if identity.node != report.node:
            raise _Refused("otherNode")
        epoch = self._epoch()  # read again: a term may end during any await
        if report.epoch > epoch or (report.epoch == epoch and self._answered.get(report.node) != epoch):
            self._receiver.heard_another(report.epoch)
            raise _Refused("higherEpoch")
        if self._order(report):
            self._receiver.heard(report)
        self._answered[report.node] = epoch
        pods = {pod.uid: pod for pod in report.pods}
        points = self._set_points.answer(report.node, now=self._clock.now(), epoch=epoch, pods=pods)
        # agents learn this clock: nothing slow may follow, and the report must not have come later than it says
        sent = self._clock.monotonic()
        points = points.model_copy(update={"sent": sent, "held": sent - came})
        return web.Response(text=wire.encoded(points, report.modes), content_type="application/json")

    def _epoch(self) -> int:
        if (epoch := self._receiver.leading_epoch()) is None:
            raise _Refused("notLeading")
        return epoch

    async def _identify(self, request: web.Request) -> Identity:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _Refused("noToken")
        try:
            identity = await self._reviewer.identify(token.strip())
        except ClusterError as error:
            log.warning("token_not_reviewed", error=str(error))
            raise _Refused("reviewFailed") from error
        if identity is None:
            raise _Refused("badToken")
        if identity.account != self._account:
            raise _Refused("otherAccount")
        if identity.node is not None:
            self._port.identified(request.transport, identity.node)
        return identity

    async def _read(self, request: web.Request) -> wire.Report:
        try:
            async with asyncio.timeout(PATIENCE):
                body = await request.read()
            return wire.Report.model_validate_json(body)
        except web.HTTPRequestEntityTooLarge as error:
            raise _Refused("tooLarge") from error
        except TimeoutError as error:
            raise _Refused("tooSlow") from error
        except (ConnectionError, web.RequestPayloadError) as error:  # the agent was killed, or its node was cut off
            raise _Refused("brokenOff") from error
        except ValidationError as error:
            raise _Refused("malformed") from error

    def _order(self, report: wire.Report) -> bool:
        """Refuse a report older than the last one, and record a newer one.

        Returns False for a repeated report, the answer of which was lost.
        """
        now = self._clock.monotonic()
        born = now - report.started
        last = self._reports.get(report.node)
        if last is not None and last.instance == report.instance:
            if report.sequence == last.sequence:
                return False
            if report.sequence < last.sequence:
                raise _Refused("oldSequence")
            born = last.born  # the first estimate: later reports may have travelled longer
        elif last is not None and born <= last.born and now - last.heard <= SILENT:
            raise _Refused("oldInstance")
        quota = sum(p.cap or 0.0 for p in report.pods)
        drift = sum(p.drift for p in report.pods)
        self._reports[report.node] = _LastReport(report.instance, report.sequence, born, now, quota, drift)
        return True
