"""What chunks took tells what units cost: the line, who is left out, what is kept, and how classes of nodes compare."""

import numpy as np
import pytest

from punctual.control.cost_estimation import (
    KEPT,
    Estimate,
    Fetched,
    Timed,
    estimate,
    estimate_transfer,
    remember,
    speeds,
)


def chunks(*units, theta=5.0, chi=0.1):
    return [Timed(n, theta + chi * n) for n in units]


def test_two_numbers_are_found_and_explain_all():
    found = estimate(chunks(10, 20, 50, 100, 200, 500))
    assert found == Estimate(pytest.approx(5.0), pytest.approx(0.1), 6, 0, pytest.approx(1.0))


def test_too_few_chunks_say_nothing():
    assert estimate(chunks(1, 10, 100, 1000)) is None


def test_who_is_far_from_the_others_is_left_out():
    slow = [Timed(50, 300.0), Timed(100, 90.0)]
    found = estimate([*chunks(10, 20, 30, 50, 80, 100, 200, 500), *slow])
    assert (found.theta, found.chi, found.outliers) == (pytest.approx(5.0), pytest.approx(0.1), 2)


def test_chunks_of_one_size_do_not_tell_the_numbers_apart():
    found = estimate(chunks(100, 100, 100, 101, 102, 103))
    assert (found.theta, found.r2) == (2.0, None)
    assert found.theta + found.chi * 100 == pytest.approx(15.0, rel=0.01)
    quick = estimate(chunks(100, 100, 100, 100, 100, theta=1.0, chi=0.001))
    assert quick.theta == pytest.approx(0.55)


def test_one_chunk_of_another_size_is_not_believed():
    found = estimate([*chunks(*[100] * 10), Timed(1, 60.0)])
    assert found.theta == 2.0
    assert found.outliers == 1


@pytest.mark.parametrize(
    ("known", "theta", "chi"),
    [({"theta": 5.0}, 5.0, 0.1), ({"chi": 0.1}, 5.0, 0.1), ({"theta": 5.0, "chi": 0.1}, 5.0, 0.1)],
)
def test_the_other_number_is_found_beside_one_that_is_known(known, theta, chi):
    for seen in (chunks(10, 20, 50, 100, 200, 500), chunks(*[100] * 8)):
        found = estimate(seen, **known)
        assert (found.theta, found.chi) == (pytest.approx(theta), pytest.approx(chi))


def test_numbers_are_never_negative():
    found = estimate([Timed(n, 0.001 * n**2) for n in (10, 20, 50, 100, 200, 500)])
    assert found.theta == 0.0
    assert found.chi > 0.0
    assert estimate([Timed(n, 10.0 - 0.001 * n) for n in (10, 20, 50, 100, 200, 500)]).chi > 0.0


def test_a_crowd_of_equal_chunks_does_not_push_out_the_others():
    seen = ()
    for timed in [*chunks(1, 1, 8, 8), *chunks(*[100] * 500)]:
        seen = remember(seen, timed)
    assert len(seen) == KEPT
    assert [t.units for t in seen[:4]] == [1, 1, 8, 8]
    newest = Timed(100, 7.0)
    assert remember(seen, newest)[-1] == newest


def transfers(*units, opening=0.5, tau=0.01):
    return [Fetched(n, opening, opening + tau * n) for n in units]


SLOW = [Fetched(50, 9.0, 30.0), Fetched(100, 0.5, 40.0)]
"""A server that did not answer, and one that all others asked too."""


@pytest.mark.parametrize(
    ("seen", "known", "tau", "theta", "outliers"),
    [
        pytest.param(transfers(10, 20, 50, 100, 200, 500), {}, 0.01, 0.5, 0, id="of many sizes"),
        pytest.param(transfers(*[100] * 5), {}, 0.01, 0.5, 0, id="of one size"),
        pytest.param([*transfers(10, 20, 50, 80, 100, 200), *SLOW], {}, 0.01, 0.5, 2, id="two outliers"),
        pytest.param([*transfers(*[100] * 5), *SLOW], {}, 0.01, 0.5, 2, id="outliers among equals"),
        pytest.param(transfers(*[100] * 5), {"tau": 0.01}, 0.01, 0.5, 0, id="tau by hand"),
        pytest.param(transfers(*[100] * 5), {"theta": 0.7}, 0.008, 0.7, 0, id="theta by hand: tau of the rest"),
        pytest.param(transfers(10, 20, 50, 80, 100), {"tau": 0.0, "theta": 0.0}, 0.0, 0.0, 0, id="both by hand"),
        pytest.param(transfers(10, 20, 50, 80, 100, tau=0.0), {}, 1e-9, 0.5, 0, id="nothing but the opening"),
    ],
)
def test_transfers_tell_their_two_numbers_apart(seen, known, tau, theta, outliers):
    found = estimate_transfer(seen, **known)
    assert (found.chi, found.theta) == (pytest.approx(tau), pytest.approx(theta))
    assert (found.samples, found.outliers) == (len(seen), outliers)


def test_too_few_transfers_say_nothing():
    assert estimate_transfer(transfers(1, 10, 100, 1000)) is None
    assert estimate_transfer([]) is None


def learned(chi, samples=20):
    return Estimate(2.0, chi, samples, 0, 1.0)


def slow(*profiles, **more):
    """Return how much slower each class is, by the profiles of one tenant."""
    return {name: found.slow for name, found in speeds({"us": profiles}, **more).items()}


def of(ratio, samples=20):
    """Return a profile by which class b takes so many times as long as class a."""
    return {"a": learned(0.1, samples), "b": learned(0.1 * ratio, samples)}


def test_classes_are_compared_by_what_profiles_know_of_both():
    assert speeds({}) == speeds({"us": []}) == {}
    assert speeds({"us": [{"a": learned(0.1)}]}) == {"a": (1.0, None, ())}
    found = slow({"quick": learned(0.1), "slow": learned(0.2)}, {"quick": learned(3.0), "slow": learned(6.0)})
    assert found == pytest.approx({"quick": 1.0, "slow": 2.0})
    assert slow(of(1.5), of(1.5), of(1.5), of(9.0, 5)) == pytest.approx({"a": 1.0, "b": 1.5})


def test_a_class_that_none_can_compare_is_taken_to_be_like_the_best_known():
    found = speeds({"us": [{"a": learned(1.0, 60), "b": learned(0.5)}, {"c": learned(77.0)}]})
    assert {name: one.slow for name, one in found.items()} == pytest.approx({"a": 2.0, "b": 1.0, "c": 2.0})
    assert (found["c"].measured, found["c"].tenants) == (None, ())


@pytest.mark.parametrize(
    ("votes", "counts"),
    [
        ({"us": [1.5], "them": [1.5], "liar": [9.0, 9.0, 9.0]}, 1.5),  # however many profiles, and samples, it has
        ({"us": [1.5], "them": [1.6], "liar": [0.01] * 9}, 1.5),
        ({"us": [1.0], "liar": [9.0]}, 1.0),  # of two, the one that claims less
        ({"us": [1.0], "liar": [0.1]}, 1.0),
        ({"liar": [9.0]}, 9.0),
        ({"us": [1.2], "them": [1.4], "others": [1.6], "liar": [9.0]}, 1.4),
    ],
)
def test_a_tenant_has_one_vote_however_many_profiles_it_has(votes, counts):
    tenants = {name: [of(ratio, 64) for ratio in ratios] for name, ratios in votes.items()}
    found = speeds(tenants)["b"]
    assert found.slow == found.measured == pytest.approx(counts)
    assert found.tenants == tuple(sorted(votes))


def test_measurements_count_up_to_the_limit_and_what_is_given_counts_as_it_is():
    found = speeds({"us": [of(9.0)]}, limit=2.0)
    assert (found["b"].slow, found["b"].measured) == (2.0, pytest.approx(9.0))
    found = speeds({"us": [of(9.0)]}, limit=2.0, given={"b": 3.0, "c": 1.5})
    assert (found["b"].slow, found["b"].measured, found["b"].tenants) == (3.0, pytest.approx(9.0), ("us",))
    assert found["c"] == (1.5, None, ())


def test_the_order_of_samples_does_not_matter():
    rng = np.random.default_rng(1)
    seen = [Timed(int(n), float((3 + 0.2 * n) * f)) for n, f in rng.uniform([1, 0.9], [900, 1.1], (40, 2))]
    first = estimate(seen)
    rng.shuffle(seen)
    again = estimate([Timed(*t) for t in seen])
    assert (again.theta, again.chi) == (pytest.approx(first.theta), pytest.approx(first.chi))
