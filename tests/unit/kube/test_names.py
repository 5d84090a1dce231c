"""Every name that the operator makes of a user's name is valid and different, whatever name Kubernetes takes."""

import re
from types import SimpleNamespace

import pytest

from punctual.kube.actors.results import readable
from punctual.kube.actors.taints import Taints
from punctual.kube.cluster.events import EventRecorder, event_name
from punctual.kube.cluster.pod_manifest import label, toleration
from punctual.kube.known.jobs import Owner
from punctual.kube.known.pod_names import pod_name, results_name
from punctual.runtime.clock import ServerClock
from punctual.scheduling.model.actions import StoreResult
from punctual.scheduling.model.job import Chunk

PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME = re.compile(rf"{PART}(\.{PART})*")
"""DNS subdomain (RFC 1123), as the API server checks names."""
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
CHUNK = Chunk(begin=0, end=9, origin=9, node="n1", attempt=1, created=0.0, promised_end=9.0)


def owner(name):
    return Owner("u1", "ns", name, name, 10)


def instance(name):
    class Client:
        clock = ServerClock()

    return EventRecorder(Client(), controller="c", instance=name)._who["reportingInstance"]


def taint(name):
    """Return the value of a pool's taint, as it is written."""
    written = []
    taints = Taints([name], SimpleNamespace(submit=lambda _, write: written.extend(write.body[-1]["value"])))
    taints.hold("n1", name, held=True)

    class Node:
        name = "n1"
        taints = ()

    taints.observe(Node())
    return written[0]["value"]


MADE = {
    "event": (event_name, NAME, 253),
    "event's reporter": (instance, NAME, 128),
    "pod": (lambda name: pod_name(owner(name), CHUNK), NAME, 63),  # it is a hostname
    "pod's label": (label, LABEL, 63),
    "node's taint": (taint, LABEL, 63),
    "toleration": (lambda name: toleration(name)["value"], LABEL, 63),
    "results": (results_name, NAME, 253),
    "results' label": (
        lambda name: readable(owner(name), StoreResult("u1", 0, 1, "x")).meta["labels"]["punctual.dev/job"],
        LABEL,
        63,
    ),
}
LONG = [c * n for c, n in (("a", 63), ("a", 64), ("0", 245), ("a", 246), ("a", 253))]
CUT = [f"{'a' * cut}{mark}b{'c' * 20}" for cut in range(25, 231) for mark in (".", "-", "--")]
"""Names in which a cut at any place comes behind a dot or a dash."""
NAMES = ["a", "0", "a.b", "a" * 62 + ".b", *LONG, *CUT, "a." * 126 + "a", "a-" * 126 + "a"]


@pytest.mark.parametrize(("make", "pattern", "most"), MADE.values(), ids=MADE)
def test_what_is_made_of_a_name_is_valid(make, pattern, most):
    made = {name: make(name) for name in NAMES}
    assert all(len(name) <= 253 and NAME.fullmatch(name) for name in NAMES)
    assert [name for name, text in made.items() if len(text) > most or not pattern.fullmatch(text)] == []


@pytest.mark.parametrize("kind", MADE.keys() - {"pod"})  # its digest is of the job's uid
def test_names_that_begin_alike_stay_apart(kind):
    make, beginning = MADE[kind][0], "a" * 252
    assert make(beginning + "b") != make(beginning + "c")
    assert kind == "event" or make(beginning + "b") == make(beginning + "b")


@pytest.mark.parametrize("kind", ["pod's label", "node's taint", "toleration"])
def test_a_name_that_fits_is_kept(kind):
    assert [MADE[kind][0](name) for name in ("a.b", "a" * 63)] == ["a.b", "a" * 63]
