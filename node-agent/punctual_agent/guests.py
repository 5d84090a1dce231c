"""What a node's own work uses, and the caps of the guests that may have the rest.

The agent passes in counters, at each tick and once between two. The node's own work (its hosts) is everything but
guests: ordinary pods, the system, promised chunks. The cap of all guests and each one's part come from
:mod:`punctual.linger.guest_cap`, and whether the node is busy from :mod:`punctual.linger.episode`.

A pod's counter ends with the pod, and a pod's first set point comes after the pod. Neither may look like work of the
hosts, because all guests would yield for seconds. So a guest that is gone counts once more with what it used before,
and what a pod without a set point has used at the first look counts for neither side.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from punctual.linger.episode import Watch
from punctual.linger.guest_cap import GuestCap, GuestClaim, share, want
from punctual.wire import Hosts
from punctual_agent.cgroup import NodeUse

SHORTEST: Final = 0.2
"""Seconds below which a look says little, as after one that was late: programs run in bursts."""


class Seen(NamedTuple):
    """One pod at a look."""

    cpu: float
    """CPU seconds since it started."""
    named: bool
    """A set point has named it."""
    weight: int | None = None
    """Among guests. 0: it is paused. None: it is no guest."""
    floor: float = 0.0
    """Least cap of a guest, cores."""


@dataclass(slots=True)
class _Guest:
    used: float = 0.0
    """CPU between the last two looks, cores."""
    want: float = inf
    """CPU that it can use, cores."""
    cap: float = 0.0


@dataclass(slots=True)
class GuestsAndHosts:
    """All guests of a node, and its hosts."""

    _guests: dict[str, _Guest] = field(default_factory=dict)
    _cap: GuestCap = field(default_factory=lambda: GuestCap(0.0))
    _watch: Watch = field(default_factory=Watch)
    _at: float | None = None
    """The time of the last look, and the counters of then: CPU seconds of the node and of its pods."""
    _node: float = 0.0
    _pods: dict[str, float] = field(default_factory=dict)
    _seconds: float = 0.0
    _hosts_used: float = 0.0
    _guests_used: float = 0.0
    """Time since the last report, and the CPU seconds used in it."""
    _reported: Hosts | None = None

    def __len__(self) -> int:
        return len(self._guests)

    def cap(self, uid: str, floor: float) -> float:
        """Return a guest's cap, cores: its floor until the next look, if it has just come."""
        one = self._guests.get(uid)
        return floor if one is None else max(floor, one.cap)

    def look(self, now: float, node: NodeUse, pods: Mapping[str, Seen]) -> None:
        """Take the counters of the node and of all its pods that the agent follows."""
        if self._at is not None:
            if now < self._at + SHORTEST:
                return
            self._measure(now - self._at, node, pods)
        self._at, self._node, self._pods = now, node.cpu, {uid: one.cpu for uid, one in pods.items()}
        guests = {uid: one for uid, one in pods.items() if one.weight is not None}
        self._guests = {uid: self._guests.get(uid) or _Guest() for uid in guests}
        caps = share(
            self._cap.cap,
            {uid: GuestClaim(float(one.weight or 0), one.floor, self._guests[uid].want) for uid, one in guests.items()},
        )
        for uid, cap in caps.items():
            self._guests[uid].cap = cap

    def _measure(self, seconds: float, node: NodeUse, pods: Mapping[str, Seen]) -> None:
        """Divide what the node used in the last seconds between hosts and guests."""
        guests = other = 0.0
        for uid, one in pods.items():
            used = min(max(0.0, one.cpu - self._pods.get(uid, 0.0)) / seconds, node.cores)
            if one.weight is not None:
                guests += used
                guest = self._guests.setdefault(uid, _Guest())
                guest.want, guest.used = want(guest.want, used, guest.cap), used
            elif not one.named and uid not in self._pods:
                other += used
        guests += sum(one.used for uid, one in self._guests.items() if uid not in pods)
        guests = min(guests, node.cores)
        total = max(0.0, node.cpu - self._node) / seconds
        hosts = min(max(0.0, total - guests - other), node.cores)
        self._cap.cores = node.cores
        self._cap.see(seconds, hosts, guests)
        self._seconds += seconds
        self._hosts_used += seconds * hosts
        self._guests_used += seconds * guests

    def report(self) -> Hosts | None:
        """Return what was used since the last report. None: not known yet."""
        seconds, cores = self._seconds, self._cap.cores
        if seconds > 0.0:
            used = min(self._hosts_used / seconds, cores)  # the node may have had more cores at an earlier look
            self._watch.see(seconds, used / cores)
            episode = self._watch.now
            self._reported = Hosts(
                cores=cores,
                used=used,
                guests=min(self._guests_used / seconds, cores),
                busy=episode.busy,
                age=episode.age,
                mean=min(episode.use, 1.0) * cores,
            )
            self._seconds = self._hosts_used = self._guests_used = 0.0
        return self._reported
