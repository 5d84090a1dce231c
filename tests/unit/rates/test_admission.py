"""Which target rates are admitted together: tables."""

import pytest
from held import member, rate

from punctual.rates.admission import answers
from punctual.rates.application import Application


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
