"""Which target rates are admitted together: tables."""

import pytest
from held import member, rate

from punctual.control.rate import Limits
from punctual.rates.admission import answers
from punctual.rates.application import Application
from punctual.rates.model import Place


def app(uid, target, *members, in_force=None, created=0.0, **more):
    made = Application(rate(uid, target, created=created, **more))
    made.select(members, now=0.0)
    made.target = in_force
    return made


def said(found):
    """Return target and reason of each answer."""
    return {uid: (answer.target, answer.refusal and answer.refusal[0]) for uid, answer in found.items()}


def pod(name, request=0.5, node="n0", **more):
    return member(name, node, request=request, **more)


TABLE = {
    "one that fits": ([app("a", 0.4, pod("p"))], {"a": (0.4, None)}),
    "one that takes all that is requested": ([app("a", 0.5, pod("p"))], {"a": (0.5, None)}),
    "one that takes more": ([app("a", 0.6, pod("p"))], {"a": (None, "RatesDoNotFit")}),
    "one without pods": ([app("a", 1.0)], {"a": (1.0, None)}),
    "the requests of two are one sum": (
        [app("a", 0.6, pod("p")), app("b", 0.4, pod("q"))],
        {"a": (None, "RatesDoNotFit"), "b": (0.4, None)},
    ),
    "the younger one finds no place": (
        [app("b", 0.6, pod("q", 0.4), created=2.0), app("a", 0.5, pod("p"), created=1.0)],
        {"a": (0.5, None), "b": (None, "RatesDoNotFit")},
    ),
    "what is in force comes before an older one": (
        [app("a", 0.6, pod("p", 0.1), created=1.0), app("b", 0.5, pod("q", 0.5), created=2.0, in_force=0.5)],
        {"a": (None, "RatesDoNotFit"), "b": (0.5, None)},
    ),
    "an edit that does not fit leaves the old target": (
        [app("a", 0.6, pod("p"), in_force=0.3)],
        {"a": (0.3, "EditRefused")},
    ),
    "an edit that fits": ([app("a", 0.5, pod("p"), in_force=0.3)], {"a": (0.5, None)}),
    "a lower rate makes place at once": (
        [app("a", 0.2, pod("p", 0.3), in_force=0.3, created=1.0), app("b", 0.4, pod("q", 0.3), created=2.0)],
        {"a": (0.2, None), "b": (0.4, None)},
    ),
    "pods that request less than they did": (
        [app("a", 0.5, pod("p", 0.4), in_force=0.5)],
        {"a": (None, "RatesDoNotFit")},
    ),
    "a second node counts by itself": (
        [app("a", 0.4, pod("p", 0.7), pod("q", 0.1, "n1"))],
        {"a": (None, "RatesDoNotFit")},
    ),
    "a pod outside of the pool": ([app("a", 0.4, pod("p", in_pool=False))], {"a": (None, "PodOutsidePool")}),
    "a pod of two": (
        [app("b", 0.1, pod("p"), pod("q"), created=2.0), app("a", 0.1, pod("p"), created=1.0)],
        {"a": (0.1, None), "b": (None, "PodShared")},
    ),
    "a pod of two, the older one not of a pool": (
        [app("b", 0.1, pod("p"), created=2.0), app("a", 0.1, pod("p"), created=1.0, refusal=("PoolNotFound", ""))],
        {"a": (None, "PoolNotFound"), "b": (0.1, None)},
    ),
    "less than the kernel gives": ([app("a", 0.005, pod("p", cpu=0.1))], {"a": (None, "InvalidSpec")}),
}


@pytest.mark.parametrize(("applications", "expected"), TABLE.values(), ids=TABLE)
def test_admission(applications, expected):
    assert said(answers(applications)) == expected


def test_a_refusal_says_what_would_fit():
    found = answers([app("a", 0.6, pod("p", 0.5, node="n7"), pod("q", 0.9))])
    message = found["a"].refusal[1]
    assert "node n7 is asked for 0.6 CPU (default/a 0.6) and has 0.5" in message
    assert "50% would fit there" in message
    (refused,) = answers([app("a", 0.6, pod("p", 0.0))]).values()
    assert "no rate would fit there" in refused.refusal[1]


def test_what_is_left_on_the_nodes_is_the_ceiling():
    found = answers([app("a", 0.4, pod("p", 0.41)), app("b", 0.4, pod("q", 1.0, "n1"))])
    assert found["a"].ceiling == pytest.approx(0.41)
    assert found["b"].ceiling == pytest.approx(0.43), "no more than epsilon"


def aligned(uid, target, *members, place=None, **more):
    """Return an application that asks for aligned slices; ``place``: (period, offset) of those that it has, ms."""
    made = app(uid, target, *(m._replace(cores=1.0) for m in members), aligned=True, **more)
    made.place = place and Place(place[0] / 1e3, place[1] / 1e3)
    return made


SLICES = {
    "one that fits": ([aligned("a", 0.4, pod("p"))], {"a": (0.4, (100, 0), None)}),
    "the longest period with slices that the pool allows": (
        [aligned("a", 0.2, pod("p")), aligned("b", 0.1, pod("q", node="m"), max_slice=0.01)],
        {"a": (0.2, (200, 0), None), "b": (0.1, (100, 0), None)},
    ),
    "shorter slices than the pool allows by default": (
        [aligned("a", 0.4, pod("p"), max_slice=0.02)],
        {"a": (0.4, (50, 0), None)},
    ),
    "a slice of exactly what the pool allows": ([aligned("a", 0.5, pod("p"))], {"a": (0.5, (100, 0), None)}),
    "no period is short enough": (
        [aligned("a", 0.5, pod("p"), max_slice=0.02, limits=Limits(0.05, 0.2))],
        {"a": (None, None, "SliceTooLong")},
    ),
    "all its CPU, in a period that is short enough": (
        [aligned("a", 1.0, pod("p", 1.0))],
        {"a": (None, None, "SliceTooLong")},
    ),
    "nearly all its CPU": ([aligned("a", 0.99, pod("p", 1.0))], {"a": (0.99, (50, 0), None)}),
    "all its CPU, of which a process has half": (
        [aligned("a", 1.0, pod("p", 1.0, cpu=0.5))],
        {"a": (1.0, (100, 0), None)},
    ),
    "it had all its CPU aligned": (
        [aligned("a", 1.0, pod("p", 1.0), in_force=1.0, place=(50, 0))],
        {"a": (1.0, None, "EditRefused")},
    ),
    "no period nests": (
        [aligned("a", 0.4, pod("p"), limits=Limits(0.06, 0.09))],
        {"a": (None, None, "InvalidSpec")},
    ),
    "a small pod needs a longer period": (
        [aligned("a", 0.1, pod("p", cpu=0.05), limits=Limits(0.005, 0.1))],
        {"a": (0.1, (400, 0), None)},
    ),
    "two on one core": (
        [aligned("a", 0.4, pod("p")), aligned("b", 0.4, pod("q"), created=1.0)],
        {"a": (0.4, (100, 0), None), "b": (0.4, (100, 42.7), None)},
    ),
    "half a CPU is a whole one for half the time": (
        [aligned("a", 0.8, pod("p", cpu=0.5)), aligned("b", 0.8, pod("q", cpu=0.5), created=1.0)],
        {"a": (0.8, (100, 0), None), "b": (0.8, (100, 41.35), None)},
    ),
    "three on one core": (
        [
            aligned("c", 0.3, pod("r"), created=2.0),
            aligned("a", 0.4, pod("p")),
            aligned("b", 0.4, pod("q"), created=1.0),
        ],
        {"a": (0.4, (100, 0), None), "b": (0.4, (100, 42.7), None), "c": (None, None, "SlicesDoNotFit")},
    ),
    "what is in force keeps its place": (
        [aligned("a", 0.4, pod("p")), aligned("b", 0.4, pod("q"), created=1.0, in_force=0.4, place=(100, 10))],
        {"a": (0.4, (100, 52.7), None), "b": (0.4, (100, 10), None)},
    ),
    "a new pod of the older one moves the younger one": (
        [
            aligned("a", 0.4, pod("p"), in_force=0.4, place=(100, 0)),
            aligned("b", 0.4, pod("q"), created=1.0, in_force=0.4, place=(100, 20)),
        ],
        {"a": (0.4, (100, 0), None), "b": (0.4, (100, 42.7), None)},
    ),
    "an edit moves what is edited, if it must": (
        [
            aligned("a", 0.5, pod("p", 0.6), in_force=0.4, place=(100, 0)),
            aligned("b", 0.4, pod("q"), created=1.0, in_force=0.4, place=(100, 43)),
        ],
        {"a": (0.5, (100, 85.7), None), "b": (0.4, (100, 43), None)},
    ),
    "an edit that needs more than there is": (
        [
            aligned("a", 0.65, pod("p", 0.9), in_force=0.4, place=(100, 0), max_slice=0.1),
            aligned("b", 0.4, pod("q"), created=1.0, in_force=0.4, place=(100, 43)),
        ],
        {"a": (0.4, (100, 0), "EditRefused"), "b": (0.4, (100, 43), None)},
    ),
    "the pool allows less than is in force": (
        [aligned("a", 0.4, pod("p"), in_force=0.4, place=(100, 30), max_slice=0.02)],
        {"a": (0.4, (50, 30), None)},
    ),
    "the pool allows too little": (
        [aligned("a", 0.4, pod("p"), in_force=0.4, place=(100, 0), max_slice=0.02, limits=Limits(0.1, 0.2))],
        {"a": (0.4, (100, 0), "EditRefused")},
    ),
    "a place that cannot be": (
        [aligned("a", 0.4, pod("p"), in_force=0.4, place=(77, -1e12))],
        {"a": (0.4, (100, 0), None)},
    ),
    "another one on the node is not aligned": (
        [aligned("a", 0.5, pod("p")), app("b", 0.5, pod("q"), created=1.0)],
        {"a": (0.5, (100, 0), None), "b": (0.5, None, None)},
    ),
}


@pytest.mark.parametrize(("applications", "expected"), SLICES.values(), ids=SLICES)
def test_slices(applications, expected):
    found = {
        uid: (
            answer.target,
            answer.place and (1e3 * answer.place.period, 1e3 * answer.place.offset),
            answer.refusal and answer.refusal[0],
        )
        for uid, answer in answers(applications).items()
    }
    assert found == {
        uid: (target, place and pytest.approx(place), reason) for uid, (target, place, reason) in expected.items()
    }


def test_refusals_of_slices_say_what_to_do():
    found = answers([aligned("a", 0.5, pod("p"), max_slice=0.02, limits=Limits(0.05, 0.2))])
    assert found["a"].refusal[1] == (
        "spec.rate: its slice would be 25 ms of each 50 ms, and maxSlice of its pool is 20 ms: ask for 40% at most, or "
        "allow a shorter spec.period.min"
    )
    whole = answers([aligned("a", 1.0, pod("p", 1.0))])
    assert whole["a"].refusal[1].endswith("has no slice that begins or ends: ask for less, or do not align it")
    a, b = aligned("a", 0.4, pod("p", node="n7")), aligned("b", 0.3, pod("q", 1.0, node="n7"), created=1.0)
    c = aligned("c", 0.28, pod("r", 1.0, node="n7"), created=2.0, max_slice=0.03)
    assert answers([a, b, c])["c"].refusal[1] == (
        "its slice of 28 ms in each 100 ms finds no place on node n7: at 0 ms of the grid, default/a leaves too few of "
        "its 1 CPU; lower one of the two rates, or use other nodes"
    )


def test_the_ceiling_of_an_aligned_application_is_its_slot():
    a = aligned("a", 0.4, pod("p", 1.0), in_force=0.4, place=(100, 0))
    b = aligned("b", 0.4, pod("q", 1.0), created=1.0, in_force=0.4, place=(100, 41))
    found = answers([a, b])
    assert found["a"].ceiling == pytest.approx(0.41), "b begins there"
    assert found["b"].ceiling == pytest.approx(0.427), "no more than the law uses"
    (alone,) = answers([aligned("a", 0.5, pod("p", 1.0))]).values()
    assert alone.ceiling == pytest.approx(0.5), "the pool allows no longer slice"
    (nearly,) = answers([aligned("a", 0.96, pod("p", 1.0))]).values()
    assert nearly.ceiling == pytest.approx(0.98), "1 ms of 50 ms is left to others"
