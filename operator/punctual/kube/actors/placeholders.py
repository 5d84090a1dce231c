"""Pods that keep a pool's capacity: one per unoccupied processor, on its node (``hold: Placeholder``).

Each requests one processor and sleeps, in the operator's own namespace. The pool owns them. Other pods of their
priority cannot take that capacity. A chunk's class is one above theirs, so the scheduler itself preempts them and
reserves their capacity for the chunk. If they were deleted first, a pending pod could take it before the chunk. Only if
the preemption does not happen within `PATIENCE` (a template with a low class of its own), the controller here deletes
them.

Pods of ordinary Jobs may request less than a processor. Each such pod has a placeholder of the rest beside it, unless
the pool's taint keeps other pods off. It is deleted as soon as its pod has ended: a chunk that comes next may need the
whole processor, and may not be allowed to preempt it.

The wanted placeholders are compared with the existing ones: a deleted one is created again, and a surplus one is
deleted. The placeholders of a pool without a decision in this term stay as an earlier leader left them. Those of a
deleted pool are deleted.
"""

import hashlib
import zlib
from collections import Counter
from typing import Final, NamedTuple

from punctual import reasons
from punctual.kube import api
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.cluster.placeholder_pod import Placeholder, PlaceholderSettings, node_of
from punctual.kube.cluster.pod_manifest import label, on_node, size, toleration
from punctual.kube.writes.keys import Key, placeholders_key
from punctual.kube.writes.operations import CreatePod, DeletePod, Outcome, same
from punctual.kube.writes.writer import Writer
from punctual.labels import PLACEHOLDER, POOL_LABEL, PROCESSOR
from punctual.notation.quantity import format_bytes, format_cores
from punctual.runtime.clock import ServerClock
from punctual.scheduling.model.actions import HeldCapacity, HoldCapacity
from punctual.scheduling.model.resources import Resources

PATIENCE: Final = 2.0
"""Seconds for the scheduler to preempt a placeholder for a chunk."""
REST: Final = 10.0
"""Seconds of pause for a node after a placeholder could not be created there, or did not last."""
LANES: Final = 4
"""Maximum number of placeholder writes at the same time."""


class _Site(NamedTuple):
    """A pool's part of a node."""

    pool: str
    node: str


class Placeholders:
    """The existing and the wanted placeholders, during one term of a leader.

    :meth:`settled` must follow for each create. :meth:`tick` is called regularly.
    """

    def __init__(
        self,
        settings: PlaceholderSettings,
        clock: ServerClock,
        writer: Writer,
        recorder: EventRecorder,
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._pools: set[str] = set()
        self._names: dict[str, str] = {}  # of pools with a decision in this term, by uid
        self._wanted: dict[str, HoldCapacity] = {}
        self._there: dict[_Site, dict[str, Placeholder]] = {}
        self._making: dict[_Site, dict[str, str]] = {}  # sizes, by name
        self._unseen: dict[str, tuple[_Site, float]] = {}  # created but not seen yet, by name, with the end of the wait
        self._dropped: set[str] = set()  # uids
        self._surplus: dict[_Site, float] = {}  # since when
        self._resting: dict[_Site, float] = {}  # until when

    def want(self, pool: str, name: str, capacity: HoldCapacity) -> None:
        """Record the capacity that a pool (uid, name) wants kept."""
        before = self._wanted.get(pool)
        self._pools.add(pool)
        self._names[pool] = name
        self._wanted[pool] = capacity
        nodes = {site.node for site in self._there if site.pool == pool} | capacity.nodes.keys()
        for node in sorted(nodes):
            if before is None or _kept(before, node) != _kept(capacity, node):
                self._compare(_Site(pool, node))

    def know_pool(self, pool: str) -> None:
        """Record that a pool (uid) exists. Its placeholders stay until it decides."""
        self._pools.add(pool)

    def forget_pool(self, pool: str) -> None:
        """Remove a pool (uid) that is gone."""
        self._pools.discard(pool)
        self._wanted.pop(pool, None)
        self._names.pop(pool, None)
        for site in [site for site in self._there if site.pool == pool]:
            self._compare(site)

    def observe(self, seen: Placeholder) -> None:
        """Record the present state of a placeholder."""
        site = _Site(seen.pool, seen.node)
        self._made(site, seen.name)
        self._there.setdefault(site, {})[seen.name] = seen
        if seen.ended:
            self._resting[site] = self._clock.monotonic() + REST
        self._compare(site)

    def forget(self, gone: Placeholder) -> None:
        """Remove a placeholder that is gone."""
        site = _Site(gone.pool, gone.node)
        self._dropped.discard(gone.uid)
        there = self._there.get(site, {})
        there.pop(gone.name, None)
        if not there:
            self._there.pop(site, None)
        self._compare(site)

    def settled(self, outcome: Outcome) -> None:
        """Record the result of a create. A created placeholder will be observed, unless it is gone before."""
        operation = outcome.operation
        if not isinstance(operation, CreatePod):
            return
        meta = operation.body["metadata"]
        site, until = (
            _Site(meta["labels"][PLACEHOLDER], node_of(operation.body["spec"])),
            self._clock.monotonic() + REST,
        )
        if outcome.result == "done":
            if meta["name"] in self._making.get(site, ()):
                self._unseen[meta["name"]] = site, until
            return
        self._made(site, meta["name"])
        self._resting[site] = until
        if outcome.result == "refused":
            about = Regarding.pool(self._names.get(site.pool, ""), site.pool)
            text = f"a placeholder was refused: {outcome.message}"
            self._recorder.emit(about, "Warning", reasons.POD_REFUSED, text)

    def tick(self) -> None:
        """Do the work that waited for its time."""
        now = self._clock.monotonic()
        rested = [site for site, until in self._resting.items() if until <= now]
        for site in rested:
            del self._resting[site]
        unseen = [(name, site) for name, (site, until) in self._unseen.items() if until <= now]
        for name, site in unseen:
            self._made(site, name)
            rested.append(site)
        for site in {*rested, *(s for s, since in self._surplus.items() if since + PATIENCE <= now)}:
            self._compare(site)

    def _compare(self, site: _Site) -> None:
        """Create missing placeholders of a site, and delete surplus ones."""
        capacity = self._wanted.get(site.pool)
        if capacity is None and site.pool in self._pools:
            return  # no decision in this term yet
        wanted = _wanted(capacity, site.node) if capacity else {}
        alive: dict[str, list[Placeholder]] = {}
        for one in list(self._there.get(site, {}).values()):
            if one.ended or one.size not in wanted:
                self._drop(site, one)
            elif not one.going and one.uid not in self._dropped:
                alive.setdefault(one.size, []).append(one)
        waits = False
        for name, (amounts, count) in wanted.items():
            there, making = alive.get(name, []), self._making.get(site, {})
            missing = count - len(there) - sum(made == name for made in making.values())
            if missing >= 0:
                self._make(site, amounts, missing)
            elif capacity is not None and name == size(capacity.processor) and not self._has_waited(site):
                waits = True
            else:
                # those that hold nothing first
                for one in sorted(there, key=lambda p: (p.bound, p.name))[:-missing]:
                    self._drop(site, one)
        if not waits:
            self._surplus.pop(site, None)

    def _has_waited(self, site: _Site) -> bool:
        """Return whether the scheduler has had `PATIENCE` to preempt placeholders of processors."""
        now = self._clock.monotonic()
        return self._surplus.setdefault(site, now) + PATIENCE <= now

    def _make(self, site: _Site, amounts: Resources, count: int) -> None:
        if self._resting.get(site, 0.0) > self._clock.monotonic() or not count:
            return
        making = self._making.setdefault(site, {})
        taken = self._there.get(site, {}).keys() | making.keys()
        index = 0
        while count > 0:
            name = _name(site, amounts, index)
            index += 1
            if name in taken:
                continue
            count -= 1
            body = self._body(site, amounts, name)
            making[name] = size(amounts)
            self._writer.submit(
                _key(site), CreatePod(self._settings.namespace, body, same(body, labels=(PLACEHOLDER,)))
            )

    def _made(self, site: _Site, name: str) -> None:
        self._unseen.pop(name, None)
        making = self._making.get(site, {})
        making.pop(name, None)
        if not making:
            self._making.pop(site, None)

    def _drop(self, site: _Site, one: Placeholder) -> None:
        if one.going or one.uid in self._dropped:
            return
        self._dropped.add(one.uid)
        self._writer.submit(_key(site), DeletePod(self._settings.namespace, one.name, one.uid, grace=1.0))

    def _body(self, site: _Site, amounts: Resources, name: str) -> Json:
        pool = self._names[site.pool]
        first, *others = self._settings.spec["containers"]
        devices = {name: str(amount) for name, amount in amounts.others}
        asked = {"cpu": format_cores(amounts.cpu), "memory": format_bytes(amounts.memory), **devices}
        limits = {"limits": devices} if devices else {}  # Kubernetes wants them to equal the requests
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self._settings.namespace,
                "labels": {POOL_LABEL: label(pool), PLACEHOLDER: site.pool},
                "annotations": {PROCESSOR: size(amounts)},
                "ownerReferences": [{"apiVersion": api.API_VERSION, "kind": "Pool", "name": pool, "uid": site.pool}],
            },
            "spec": {
                **self._settings.spec,
                "containers": [{**first, "resources": {"requests": asked, **limits}}, *others],
                "affinity": on_node({}, site.node),
                "tolerations": [toleration(pool)],
            },
        }


def _kept(capacity: HoldCapacity, node: str) -> tuple[HeldCapacity | None, Resources]:
    return capacity.nodes.get(node), capacity.processor


def _wanted(capacity: HoldCapacity, node: str) -> dict[str, tuple[Resources, int]]:
    """Return what is to be kept on a node: by size, what a placeholder requests, and their number."""
    if (kept := capacity.nodes.get(node)) is None:
        return {}
    counts = Counter(kept.rests)
    counts[capacity.processor] += kept.placeholders
    return {size(amounts): (amounts, count) for amounts, count in counts.items()}


def _key(site: _Site) -> Key:
    """Return the writer's key, one of `LANES`.

    At most that many writes run at once, because no promise waits for them.
    """
    return placeholders_key(zlib.crc32(site.node.encode()) % LANES)


def _name(site: _Site, amounts: Resources, index: int) -> str:
    """Return the unique name of a placeholder. Another size gives another name."""
    about = f"{site.pool}/{site.node}/{size(amounts)}/{index}"
    return f"placeholder-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
