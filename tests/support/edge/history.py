"""What is written to each object, one state after the other: nothing in a status goes back.

It hears of each write as it is stored, so no state is missed.
"""

import collections
from dataclasses import dataclass

from edge.apiserver import ENDED
from edge.kinds import BY_RESOURCE
from edge.store import Event
from punctual.kube.cluster.batch_jobs import INDEX
from punctual.labels import JOB_UID_LABEL, KIND_LABEL
from punctual.notation.duration import parse_time

CHANGES = {"ADDED": "created", "DELETED": "deleted"}
OURS = "punctual.dev/v1alpha1"
ENDS = ("Completed", "Failed")
WINDOWS = ("Booked", "Active", "Completed")
"""States of a window, in their order."""


@dataclass
class Stay:
    """A pod of a job on a node. Times in seconds since the epoch."""

    job: str
    node: str
    begin: float
    end: float = float("inf")


@dataclass
class Run:
    """A pod of a Job, or a chunk's, from the moment it may be placed. ``index``: of an Indexed Job; ``of``: its Job."""

    name: str
    of: str
    index: str | None
    begin: float
    end: float = float("inf")
    well: bool = False
    leaves: bool = False
    guest: bool = False


@dataclass
class Window:
    """A window of a reservation that has begun. ``nodes``: reserved processors by node."""

    name: str
    nodes: dict
    begin: float
    end: float


class History:
    """``wrong``: what went back, as sentences. ``counts``: by ("created" or "deleted", plural, name of its owner)."""

    def __init__(self, store, now):
        self.wrong = []
        self.counts = collections.Counter()
        self.listens = True
        self.stays = {}  # by uid of the pod
        self.strangers = {}  # their stays, by uid
        self.runs = {}  # by uid of the pod
        self.windows = {}  # by (uid of the reservation, start)
        self._unaware_until = 0.0
        self._doubtful = {}  # by path: the epoch of a leader that has written and did not know of a restore
        self._now = now
        store.written.append(self._hear)

    def begin_anew(self, bodies, *, unaware):
        """Know only what is there: what came later was taken back.

        A leader may not know of it for some seconds (``unaware``). What it writes then is not compared with.
        """
        self._unaware_until = self._now() + unaware
        self._doubtful.clear()
        for known in (self.stays, self.strangers, self.runs, self.windows):
            known.clear()
        for body in bodies:
            if body["kind"] == "Pod":
                self._note_pod(Event(0, "ADDED", "", body, None))
        for uid, run in list(self.runs.items()):
            if run.end < float("inf"):  # it had ended before
                run.begin = run.end = 0.0
                if not run.well:
                    del self.runs[uid]

    def _hear(self, resource, event):
        if not self.listens:
            return
        plural = resource.rpartition("/")[2]
        if event.change in CHANGES:
            self.counts[CHANGES[event.change], plural, _owner(event.body)] += 1
        if plural == "pods":
            self._note_pod(event)
        elif plural == "reservations":
            self._note_windows(event)
        elif plural == "leases" and event.change == "MODIFIED":
            self.wrong += _lease(event.before["spec"], event.body["spec"])
        if event.before is None or event.change == "DELETED" or OURS not in resource:
            return
        before, now = (body.get("status") or {} for body in (event.before, event.body))
        if self._doubts(event.path, before.get("epoch"), now.get("epoch")):
            return
        for check in (_numbers, _KINDS.get(BY_RESOURCE[OURS, plural].kind, _nothing)):
            self.wrong += [f"{event.path.rpartition('/')[2]}: {what}" for what in check(before, now)]

    def _doubts(self, path, before, now):
        """Return whether a status, with its epoch and that before it, follows one of an unaware leader.

        The next leader's stamp and its first status do.
        """
        if self._now() < self._unaware_until:
            self._doubtful[path] = now
        if path not in self._doubtful:
            return False
        if before == now != self._doubtful[path]:
            del self._doubtful[path]
        return True

    def _note_run(self, event):
        meta, body = event.body["metadata"], event.body
        if JOB_UID_LABEL not in (meta.get("labels") or {}) or body["spec"].get("schedulingGates"):
            return
        owner, index = meta["ownerReferences"][0]["uid"], (meta.get("annotations") or {}).get(INDEX)
        run = self.runs.setdefault(meta["uid"], Run(meta["name"], owner, index, self._now()))
        run.guest = meta["labels"][KIND_LABEL] == "Guest"
        if event.change == "DELETED" or body["status"]["phase"] in ENDED:
            run.end = min(run.end, self._now())
        run.leaves = run.leaves or "deletionTimestamp" in meta
        run.well = run.well or body["status"]["phase"] == "Succeeded"

    def _note_pod(self, event):
        self._note_run(event)
        meta, node = event.body["metadata"], event.body["spec"].get("nodeName")
        if node is None:
            return
        job = (meta.get("labels") or {}).get(JOB_UID_LABEL)
        if job is None:
            if meta["name"].startswith("stranger"):
                self.strangers.setdefault(meta["uid"], Stay(meta["name"], node, self._now()))
            return
        stay = self.stays.setdefault(meta["uid"], Stay(job, node, self._now()))
        if event.change == "DELETED" or event.body["status"]["phase"] in ENDED:
            stay.end = min(stay.end, self._now())

    def _note_windows(self, event):
        meta = event.body["metadata"]
        for window in (event.body.get("status") or {}).get("windows") or ():
            if window["state"] == "Active":
                nodes = {node["name"]: node["processors"] for node in window["nodes"]}
                begin, end = parse_time(window["start"]), parse_time(window["end"])
                self.windows[meta["uid"], begin] = Window(meta["name"], nodes, begin, end)
        if event.change == "DELETED":
            for (uid, _), window in self.windows.items():
                if uid == meta["uid"]:
                    window.end = min(window.end, self._now())


def _owner(body):
    """Return the name of what an object is about: its owner, what an event regards, or itself."""
    meta = body["metadata"]
    owners = meta.get("ownerReferences") or [body.get("regarding") or meta]
    return owners[0].get("name", "")


def _nothing(_before, _now):
    return ()


def _numbers(before, now):
    for name in ("epoch", "observedGeneration"):
        if (now.get(name) or 0) < (before.get(name) or 0):
            yield f"{name} falls from {before[name]} to {now.get(name)}"


def _lease(before, now):
    """Each term has an epoch of its own: else the API server takes the writes of an earlier one for its own."""
    holder, epoch = now.get("holderIdentity"), now.get("leaseTransitions", 0)
    taken = holder and (holder, now.get("acquireTime")) != (before.get("holderIdentity"), before.get("acquireTime"))
    if taken and epoch <= before.get("leaseTransitions", 0):
        yield f"{holder} takes the Lease with epoch {epoch}, which a term has had before"


def _job(before, now):
    lost = [r for r in before.get("completed") or () if not _covered(r, now.get("completed") or ())]
    if lost:
        yield f"{lost} was accounted and is not: {now.get('completed')}"
    for kind in ENDS:
        old, new = _condition(before, kind), _condition(now, kind)
        if old.get("status") == "True" and (new.get("status"), new.get("reason")) != ("True", old["reason"]):
            yield f"it was {kind} by {old['reason']} and is {new}"
        elif old.get("status") == "True" and now.get("finishTime") != before.get("finishTime"):
            yield f"its end moves from {before.get('finishTime')} to {now.get('finishTime')}"


def _reservation(before, now):
    states = {window["start"]: window["state"] for window in now.get("windows") or ()}
    for window in before.get("windows") or ():
        old, new = window["state"], states.get(window["start"])
        if old in WINDOWS and new in WINDOWS and WINDOWS.index(new) < WINDOWS.index(old):
            yield f"its window was {old} and is {new}"
    if before.get("finishTime") and now.get("finishTime") != before["finishTime"]:
        yield f"its end moves from {before['finishTime']} to {now.get('finishTime')}"


_KINDS = {"DivisibleJob": _job, "Reservation": _reservation}


def _condition(status, kind):
    return next((c for c in status.get("conditions") or () if c["type"] == kind), {})


def _covered(part, ranges):
    """Return whether one of the ranges has all of a part. They are joined where they touch."""
    return any(r["begin"] <= part["begin"] and part["end"] <= r["end"] for r in ranges)
