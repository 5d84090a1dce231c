"""The laws for target rates, on a plant with one number: how many gaps between slices an iteration loses."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from punctual.control.rate import (
    AIM,
    BOLD,
    MOST,
    QUOTA,
    Admitted,
    Bracketing,
    FixedPeriod,
    Iteration,
    KnownPair,
    Limits,
    LinearSearch,
    Overcommitted,
    Pair,
    RateDecision,
    RateDemand,
    admit,
)

EPSILON = 0.01


@dataclass
class Plant:
    """An application: seconds of an iteration alone, waits, cost of a switch; ``other``: s that no CPU shortens."""

    alone: float = 6.0
    waits: float = 3.0
    switch: float = 0.0001
    other: float = 0.0
    slow: float = 1.0

    def rate(self, pair):
        """Return the rate that a pair gives."""
        work = (self.alone - self.other) / (pair.utilization * self.slow - self.switch / pair.period)
        return self.alone / (work + self.waits * (1 - pair.utilization) * pair.period + self.other)

    def run(self, law, iterations):
        """Report iterations one after the other; return the pairs that were in force, and their rates."""
        seen = []
        for _ in range(iterations):
            pair, rate = law.pair, self.rate(law.pair)
            seen.append((pair, rate))
            law.report(Iteration(rate, pair.utilization))
        return seen


def in_band(pair, rate, target, epsilon=EPSILON):
    return max(abs(rate - target), abs(pair.utilization - target)) <= epsilon * (1 + 1e-9)


def settled(seen, target):
    """Return the number of the first iteration in band."""
    return next(n for n, (pair, rate) in enumerate(seen, 1) if in_band(pair, rate, target))


def bracketing(plant, **more):
    return Bracketing(EPSILON, plant.alone, **more)


@given(
    alone=st.floats(2.0, 60.0),
    waits=st.floats(0.3, 7.0),
    target=st.floats(0.05, 0.9),
    then=st.floats(0.05, 0.9),
)
def test_a_pair_holds_in_the_second_iteration_and_stays(alone, waits, target, then):
    plant = Plant(alone, waits)
    law = bracketing(plant)
    for aim in (target, then):
        law.aim(aim)
        seen = plant.run(law, 6)
        first = settled(seen, aim)
        assert first <= 2 + (waits > 6)
        assert len({pair for pair, _ in seen[first - 1 :]}) == 1, "no change in band"


@given(alone=st.floats(2.0, 60.0), waits=st.floats(0.3, 7.0), target=st.floats(0.05, 0.9))
@example(alone=2.0, waits=2.0, target=0.5)
def test_its_period_is_about_half_of_the_longest_that_holds_or_more(alone, waits, target):
    plant = Plant(alone, waits)
    law = bracketing(plant)
    law.aim(target)
    plant.run(law, 4)
    limits = Limits()
    held = [
        period
        for period in (n * 0.002 for n in range(1, 101))
        if period >= limits.least(target)
        and in_band(p := Pair(period, period * (target + 0.009)), plant.rate(p), target)
    ]
    # with few waits the guess for BOLD waits is in band at once, and stays. The law lets a pair lose AIM + 1 − SPARE of
    # ε, three quarters of what is possible. The starts of slices cost a fifth of that at the shortest guess, 36 ms
    assert law.pair.period >= 0.6 * min(waits / BOLD, 0.8) * max(held, default=0.0)


@given(
    st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.01, 1.0)), max_size=40),
    st.lists(st.floats(0.002, 1.0), min_size=1, max_size=4),
    st.floats(0.0001, 0.1),
)
def test_whatever_is_reported_a_pair_is_within_its_limits(reports, targets, epsilon):
    limits = Limits(0.005, 0.1)
    for law in (Bracketing(epsilon, 5.0, limits), LinearSearch(epsilon, limits)):
        for target in targets:
            law.aim(target, ceiling=target + epsilon / 2)
            for rate, share in reports:
                pair = law.report(Iteration(rate, law.pair.utilization, share)).pair
                assert pair == law.pair
                assert limits.min_period <= pair.period <= max(limits.max_period, 1.000001 * QUOTA / target) or (
                    pair.slice == pytest.approx(QUOTA)
                )
                assert pair.slice >= QUOTA * (1 - 1e-9)
                assert abs(pair.utilization - target) <= epsilon * (1 + 1e-9)
                assert pair.utilization <= target + epsilon / 2 + 1e-12


def test_a_target_below_the_kernels_least_quota_gets_the_period_that_it_needs():
    law = Bracketing(EPSILON, 6.0, Limits(0.002, 0.2))
    pair = law.aim(0.004, ceiling=0.004).pair
    assert (pair.period, pair.slice) == (pytest.approx(0.25), pytest.approx(QUOTA))


def test_a_target_that_was_held_gets_its_pair_again_also_from_a_new_controller():
    plant = Plant(waits=6.0)
    law = bracketing(plant)
    law.aim(0.6)
    plant.run(law, 5)
    held = law.pair
    law.aim(0.2)
    plant.run(law, 5)
    assert law.aim(0.6).pair == held
    assert bracketing(plant, known=law.known).aim(0.6).pair == held


def test_another_target_gets_the_slice_that_held_if_that_allows_a_longer_period():
    law = Bracketing(EPSILON, 1.0, known=(KnownPair(0.6, Pair(0.05, 0.0304), 0.605),))
    pair = law.aim(0.3).pair
    assert pair.slice == pytest.approx(0.0304)
    assert pair.utilization == pytest.approx(0.3 + AIM * EPSILON)


def test_a_bold_period_is_left_before_the_second_iteration_if_the_first_does_not_speak_for_it():
    plant = Plant(alone=3.0, waits=6.0)
    law = bracketing(plant)
    law.aim(0.2)
    plant.run(law, 3)
    bold = law.aim(0.6).pair
    mixed = 1 / (0.5 / plant.rate(bold) + 0.5 / 0.2)
    share = mixed * 0.5 / plant.rate(bold)
    assert not in_band(bold, plant.rate(bold), 0.6)
    decision = law.report(Iteration(mixed, bold.utilization, share))
    assert decision.reason == "Search"
    assert in_band(decision.pair, plant.rate(decision.pair), 0.6)


def test_a_bold_period_stays_if_most_of_an_iteration_shows_that_it_loses_little():
    plant = Plant(alone=3.0, waits=1.0)
    law = bracketing(plant)
    law.aim(0.2)
    before = plant.run(law, 3)[-1][1]
    bold = law.aim(0.6).pair
    mixed = 1 / (0.8 / plant.rate(bold) + 0.2 / before)
    assert law.report(Iteration(mixed, bold.utilization, mixed * 0.8 / plant.rate(bold))).reason == "Wait"
    assert law.pair == bold


def test_one_iteration_out_of_band_changes_nothing_and_two_do():
    plant = Plant()
    law = bracketing(plant)
    law.aim(0.4)
    plant.run(law, 4)
    pair = law.pair
    bad = Iteration(0.3, pair.utilization)
    assert law.report(bad).reason == "Wait"
    plant.run(law, 4)
    assert (law.report(bad).reason, law.pair) == ("Wait", pair)
    assert law.report(bad).reason == "Search"
    assert law.pair != pair


def test_a_rate_that_is_no_number_and_a_pair_that_the_nodes_do_not_give_teach_nothing():
    law = bracketing(Plant())
    pair = law.aim(0.4).pair
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        assert law.report(Iteration(rate, pair.utilization)).reason == "Wait"
    assert law.report(Iteration(0.3, 0.3)).reason == "Limited"
    assert law.pair == pair


def test_an_application_that_waits_for_its_disk_runs_faster_than_asked_and_gets_the_least_slice_in_band():
    plant = Plant(alone=7.0, waits=0.5, other=1.0)
    law = bracketing(plant)
    law.aim(0.4)
    seen = plant.run(law, 12)
    assert seen[-1][0].utilization == pytest.approx(0.4 - MOST * EPSILON)
    assert seen[-1][1] > 0.4 + EPSILON
    assert len({pair for pair, _ in seen[-8:]}) == 1


@pytest.mark.parametrize("switch", [0.0005, 0.001, 0.002])
def test_where_switches_cost_much_no_short_period_is_taken_for_the_answer(switch):
    plant = Plant(alone=5.0, waits=1.0, switch=switch)
    law = bracketing(plant)
    law.aim(0.4)
    seen = plant.run(law, 12)
    assert in_band(*seen[-1], 0.4)


def test_what_no_pair_holds_is_given_up_at_the_period_that_loses_least():
    plant = Plant(alone=0.05, waits=5.0, switch=0.0008)
    law = bracketing(plant)
    law.aim(0.5)
    seen = plant.run(law, 40)
    assert len({pair for pair, _ in seen[-15:]}) == 1
    best = max(plant.rate(Pair(n / 1000, n / 1000 * 0.508)) for n in range(2, 201))
    assert seen[-1][1] >= 0.8 * best


@pytest.mark.parametrize("waits", [4.0, 4.8, 5.8])
def test_it_finds_a_pair_again_when_the_application_slows_down_for_good(waits):
    """Periods that lost too much before lose even more now."""
    plant = Plant(alone=6.0, waits=waits)
    law = bracketing(plant)
    law.aim(0.5)
    plant.run(law, 12)
    plant.slow = 0.98
    seen = plant.run(law, 8)
    assert in_band(*seen[-1], 0.5)


def test_a_lower_ceiling_is_kept_at_once_and_a_higher_one_changes_nothing():
    law = bracketing(Plant(waits=6.0))
    law.aim(0.5)
    assert law.pair.utilization > 0.503
    assert law.aim(0.5, ceiling=0.503).pair.utilization <= 0.503
    pair = law.pair
    assert law.aim(0.5, ceiling=1.0).pair == pair


class TestLinearSearch:
    """The paper, 4.2."""

    def law(self, target=0.5):
        law = LinearSearch(0.03, Limits(0.01, 0.2))
        law.aim(target)
        return law

    def test_it_begins_with_the_longest_period_and_the_utilization_asked_for(self):
        assert self.law().pair == Pair(0.2, 0.1)

    def test_out_of_band_the_period_is_a_step_shorter_and_the_utilization_stays(self):
        law = self.law()
        for rate in (0.4, 0.6):
            law.report(Iteration(rate, 0.5))
        assert law.pair == Pair(pytest.approx(0.196), pytest.approx(0.098))

    def test_in_band_nothing_changes(self):
        law = self.law()
        assert law.report(Iteration(0.47, 0.5)).reason == "Hold"
        assert law.pair == Pair(0.2, 0.1)

    def test_at_the_shortest_period_it_begins_again(self):
        law = self.law()
        reasons = [law.report(Iteration(0.3, 0.5)).reason for _ in range(95)]
        assert reasons == ["Search"] * 94 + ["Reset"]
        assert law.pair == Pair(0.2, 0.1)

    def test_a_change_of_target_is_a_report_too_and_utilization_follows_in_any_case(self):
        law = self.law()
        law.report(Iteration(0.49, 0.5))
        assert law.aim(0.48).pair == Pair(0.2, pytest.approx(0.096)), "0.49 is in band"
        assert law.aim(0.3).pair == Pair(pytest.approx(0.198), pytest.approx(0.0594))


NODES = {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize(
    ("rates", "node"),
    [((0.5, 0.5), None), ((0.5, 0.51), "a"), ((1.0,), None), ((0.0,), None), ((0.4, 0.3, 0.3), None)],
)
def test_rates_are_admitted_up_to_what_a_node_has(rates, node):
    demands = [RateDemand(f"p{n}", rate, 0.01, {"a": 1.0, "b": 1.0}) for n, rate in enumerate(rates)]
    answer = admit(demands, NODES)
    assert (answer.node if isinstance(answer, Overcommitted) else None) == node


def test_a_refusal_names_the_node_and_its_numbers():
    demands = [RateDemand("p1", 0.4, 0.01, {"a": 1.0}), RateDemand("p2", 0.35, 0.01, {"a": 2.0, "b": 2.0})]
    answer = admit(demands, NODES)
    assert answer == Overcommitted("a", pytest.approx(1.1), 1.0, {"p1": 0.4, "p2": 0.7})
    assert str(answer) == (
        "node a is asked for 1.1 CPU (p1 0.4, p2 0.7) and has 1: lower the rates by 0.1 CPU in all, or use other nodes"
    )


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.1, 2.0)), min_size=1, max_size=6), st.floats(0.5, 4.0))
def test_ceilings_fit_together_and_none_is_below_its_rate(asked, has):
    demands = [RateDemand(f"p{n}", rate, 0.01, {"a": cpu}) for n, (rate, cpu) in enumerate(asked)]
    answer = admit(demands, {"a": has})
    total = sum(d.rate * d.cpus["a"] for d in demands)
    assert isinstance(answer, Overcommitted) == (total > has * (1 + 1e-9))
    if isinstance(answer, Admitted):
        used = sum(answer.ceilings[d.name] * d.cpus["a"] for d in demands)
        assert used <= max(has, total) * (1 + 1e-9)
        assert all(d.rate <= answer.ceilings[d.name] <= d.rate + d.epsilon for d in demands)


SHARES = st.floats(0.0, 1.0)


@given(
    st.lists(
        st.tuples(st.floats(allow_nan=True, allow_infinity=True), st.floats(0.001, 1.0), SHARES, st.floats(0.1, 1.2)),
        min_size=1,
        max_size=20,
    ),
    st.floats(0.01, 0.99),
    st.floats(0.001, 0.3),
)
def test_a_fixed_period_stays_and_its_slice_is_within_epsilon_whatever_is_reported(reports, target, epsilon):
    law = FixedPeriod(epsilon, 0.1)
    for rate, utilization, share, above in reports:
        ceiling = target * above
        law.aim(target, ceiling=ceiling)
        law.report(Iteration(rate, utilization, share))
        assert law.pair.period == 0.1
        assert law.pair.utilization <= min(target + MOST * epsilon, ceiling, 1.0) + 1e-9
        assert law.pair.utilization >= min(target - MOST * epsilon, ceiling) - 1e-9


@given(st.floats(0.05, 0.9), st.floats(0.02, 0.05), st.floats(0.97, 1.04))
def test_a_fixed_period_finds_its_slice_in_two_iterations_and_keeps_it(target, epsilon, gain):
    law = FixedPeriod(epsilon, 0.1)
    law.aim(target)
    for _ in range(2):
        law.report(Iteration(gain * law.pair.utilization, law.pair.utilization))
    pair = law.pair
    if in_band(pair, gain * pair.utilization, target, epsilon):
        assert law.report(Iteration(gain * pair.utilization, pair.utilization)).reason == "Hold"
        assert law.held
        assert not law.given_up


def fixed(*reports, epsilon=0.03, target=0.5, **more):
    """Return a law with a period of 100 ms after reports of rates, and its last decision."""
    law = FixedPeriod(epsilon, 0.1)
    decision = law.aim(target, **more)
    for rate in reports:
        decision = law.report(Iteration(rate, law.pair.utilization))
    return law, decision


@pytest.mark.parametrize(
    ("reports", "reason", "utilization", "held", "given_up"),
    [
        ((), "Start", 0.505, False, False),
        ((0.5,), "Hold", 0.505, True, False),
        ((0.46,), "Slice", 0.527, False, False),
        ((0.46, 0.46), "Unreachable", 0.527, False, True),
        ((0.46, 0.46, 0.48), "Hold", 0.527, True, False),
        ((0.46, 0.46, 0.54), "Slice", 0.487, False, False),
        ((0.54,), "Slice", 0.473, False, False),
        ((0.54, 0.54), "Unreachable", 0.473, False, False),
        ((0.5, 0.4), "Wait", 0.505, True, False),
        ((0.5, 0.4, 0.4), "Slice", 0.527, False, False),
    ],
)
def test_with_a_fixed_period_only_the_slice_follows_the_rate(reports, reason, utilization, held, given_up):
    law, decision = fixed(*reports)
    assert (decision.reason, law.held, law.given_up) == (reason, held, given_up)
    assert decision.pair.utilization == pytest.approx(utilization)
    assert decision.pair == law.pair


def test_a_fixed_period_learns_nothing_from_what_was_not_whole_or_not_in_force():
    law, decision = fixed(0.5)
    for seen, reason in [
        (Iteration(0.1, 0.505, 0.95), "Wait"),
        (Iteration(float("nan"), 0.505), "Wait"),
        (Iteration(0.2, 0.2), "Limited"),
    ]:
        assert law.report(seen) == replace(decision, reason=reason)


def test_a_fixed_period_keeps_to_a_lower_ceiling_at_once():
    law, decision = fixed(0.5)
    assert law.aim(0.5, ceiling=0.505).reason == "Hold"
    assert law.held
    assert law.aim(0.5, ceiling=0.502).pair.utilization == pytest.approx(0.502)
    assert not law.held
    assert decision.pair != law.pair


def test_a_new_controller_with_a_fixed_period_goes_on_with_the_slice_that_held():
    law, _ = fixed(0.46, 0.5)
    other = FixedPeriod(0.03, 0.1, law.known)
    assert other.aim(0.5) == RateDecision(law.pair, "Known")
    assert FixedPeriod(0.03, 0.2, law.known).aim(0.5).pair == Pair(0.2, 2 * law.pair.slice)
    assert FixedPeriod(0.03, 0.1, law.known).aim(0.5, ceiling=0.51).reason == "Start"
