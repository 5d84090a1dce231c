"""Profiles learn from chunks: what is kept, what jobs are planned with, how classes of nodes compare."""

import pytest
from learned import NEW, OLD, SIZES, Shown

from punctual.control.cost_estimation import KEPT, Timed
from punctual.control.response import KEPT as KEPT_RESPONSES
from punctual.control.response import Response
from punctual.profiles.learning import AskedSpeeds, Learning
from punctual.profiles.samples import MOST, ByHand, Samples, Where, cost


class Known(Shown):
    """One profile, and what was learned about it. ``by_hand``: what its spec sets."""

    def __init__(self, **by_hand):
        self.by_hand = ByHand(**by_hand)
        self.asked = AskedSpeeds(2.0, {})
        self.learning = Learning(lambda _pool: self.asked)
        self.samples = {}
        self.begin("ns")

    def begin(self, namespace, name="thumbs"):
        self.samples[namespace, name] = Samples()
        self.learning.begin((namespace, name), self.samples[namespace, name])

    def add(self, where, units, seconds, *, fetched=None, response=None, namespace="ns", name="thumbs"):
        self.samples[namespace, name].add(where, Timed(units, seconds), fetched, response)
        self.learning.changed(where.pool)

    def learned(self, pool="main"):
        return self.learning.for_job("ns", "thumbs", pool)(self.by_hand)

    def response(self, pool="main"):
        found = self.learned(pool)
        return None if found is None else found.response

    def cost(self, pool="main", *, fetches=False):
        return cost(self.by_hand, self.learned(pool), fetches=fetches)


def numbers(cost):
    return (cost.chi, cost.tau, cost.theta_cm, cost.theta_cp)


def response(cpu_per_unit=0.1, lag=8.0, delay=2.0, noise=0.04):
    return Response(cpu_per_unit, lag, delay, noise)


def test_a_profile_by_itself_knows_nothing_and_learns_it_from_five_chunks():
    known = Known().see(*SIZES[:4])
    assert known.cost() is None
    known.see(*SIZES[4:])
    assert numbers(known.cost()) == pytest.approx((0.1, 0.0, 0.0, 5.0))


def test_what_is_set_by_hand_wins_and_the_rest_is_learned_beside_it():
    assert numbers(Known(chi=1.0, theta_cp=3.0).see(*SIZES).cost()) == (1.0, 0.0, 0.0, 3.0)
    assert numbers(Known(chi=0.1).see(*SIZES).cost()) == pytest.approx((0.1, 0.0, 0.0, 5.0))
    assert numbers(Known(theta_cp=5.0).see(*SIZES).cost()) == pytest.approx((0.1, 0.0, 0.0, 5.0))
    assert numbers(Known(chi=0.1).cost()) == (0.1, 0.0, 0.0, 2.0)


def test_what_is_said_of_transfers_is_taken_off_what_was_seen_of_the_whole():
    known = Known(tau=0.04, theta_cm=1.0).see(*SIZES)
    assert numbers(known.cost()) == pytest.approx((0.06, 0.04, 1.0, 4.0))


def test_what_transfers_took_is_told_apart_for_jobs_that_have_an_input_and_added_up_for_others():
    known = Known().fetch(*SIZES)
    assert numbers(known.cost(fetches=True)) == pytest.approx((0.1, 0.02, 0.5, 5.0))
    assert numbers(known.cost()) == pytest.approx((0.12, 0.0, 0.0, 5.5))
    known.see(*SIZES)  # of jobs without an input: the same work
    assert numbers(known.cost(fetches=True)) == pytest.approx((0.1, 0.02, 0.5, 5.0))


def test_a_job_with_an_input_is_planned_with_the_sums_until_transfers_were_seen():
    known = Known(tau=0.02).see(*SIZES).fetch(*SIZES[:4])
    assert numbers(known.cost(fetches=True)) == pytest.approx((0.08, 0.02, 0.0, 5.0), rel=0.01)
    known.fetch(200)
    assert numbers(known.cost(fetches=True)) == pytest.approx((0.1, 0.02, 0.5, 5.0))


@pytest.mark.parametrize(
    ("by_hand", "wanted"),
    [
        pytest.param({"tau": 0.02}, (0.1, 0.02, 0.5, 5.0), id="tau"),
        pytest.param({"theta_cm": 0.5}, (0.1, 0.02, 0.5, 5.0), id="theta_cm"),
        pytest.param({"tau": 0.02, "theta_cm": 0.5}, (0.1, 0.02, 0.5, 5.0), id="both"),
        pytest.param(
            {"tau": 0.0, "theta_cm": 0.0},
            (0.12, 0.0, 0.0, 5.5),
            id="both: what they lack is in the work",
        ),
        pytest.param({"chi": 1.0, "theta_cp": 3.0}, (1.0, 0.02, 0.5, 3.0), id="the work"),
        pytest.param({"chi": 0.1}, (0.1, 0.02, 0.5, 5.0), id="chi"),
    ],
)
def test_what_is_set_of_a_transfer_by_hand_wins_and_the_other_is_learned_beside_it(by_hand, wanted):
    assert numbers(Known(**by_hand).fetch(*SIZES).cost(fetches=True)) == pytest.approx(wanted)


def test_slow_transfers_make_neither_the_work_nor_the_others_dearer():
    known = Known().fetch(*SIZES, *SIZES).fetch(50, opening=60.0).fetch(200, tau=3.0)
    assert numbers(known.cost(fetches=True)) == pytest.approx((0.1, 0.02, 0.5, 5.0))


def test_nodes_are_compared_by_the_work_and_not_by_what_their_network_takes():
    near, far = Where("main", "near"), Where("main", "far")
    known = Known().fetch(*SIZES, where=near).fetch(*SIZES, *SIZES, tau=0.3, where=far)
    assert known.slow() == {"near": 1.0, "far": 1.0}
    assert numbers(known.cost(fetches=True)) == pytest.approx((0.1, 0.3, 0.5, 5.0)), "where most was seen"


def test_each_pool_has_processors_of_its_own():
    known = Known().see(*SIZES).see(*SIZES, chi=0.4, where=Where("small", ""))
    assert known.cost().chi == pytest.approx(0.1)
    assert known.cost("small").chi == pytest.approx(0.4)
    assert known.cost("new") is None


def test_a_class_of_nodes_that_is_slower_is_found_and_jobs_are_planned_with_the_quickest():
    known = Known().see(*SIZES, *SIZES, chi=0.15, where=OLD).see(*SIZES, chi=0.1, where=NEW)
    assert known.slow() == {"old": pytest.approx(1.5, abs=0.01), "new": 1.0}
    assert known.cost().chi == pytest.approx(0.1, rel=0.01)
    assert known.slow("other") == {}


@pytest.mark.parametrize("most", [OLD, NEW])
def test_a_job_is_not_planned_with_less_than_its_profile_has_seen_on_a_class_beyond_the_limit(most):
    """0.3 s on old nodes, which are taken to be twice as slow: 0.15 s on new ones."""
    known = Known().see(*SIZES, chi=0.3, where=OLD).see(*SIZES, chi=0.1, where=NEW).see(10, 10, where=most)
    assert known.cost().chi * known.slow()["old"] >= 0.299
    known = Known().see(*SIZES, chi=0.3, where=OLD).see(*SIZES, *SIZES, chi=0.1, where=NEW)
    assert known.cost().chi == pytest.approx(0.15, rel=0.01)


def test_classes_that_differ_little_are_taken_to_be_alike():
    known = Known().see(*SIZES, chi=0.108, where=Where("main", "a")).see(*SIZES, where=Where("main", "b"))
    assert known.slow() == {"a": 1.0, "b": 1.0}


def test_a_response_is_of_the_quickest_class_and_of_its_own_pool():
    known = Known().see(*SIZES, *SIZES, chi=0.15, where=OLD).see(*SIZES, chi=0.1, where=NEW)
    known.see(*SIZES, where=Where("small", "")).answer(response(0.15), where=OLD)
    assert known.response() == response(pytest.approx(0.1, rel=0.01))
    assert known.response("small") is None
    assert known.response("new") is None


def test_what_is_kept_is_bounded():
    known = Known()
    for pool in range(2 * MOST):
        where = Where(f"pool-{pool}", "")
        known.fetch(*range(1, 2 * KEPT), where=where).answer(*[response()] * 2 * KEPT_RESPONSES, where=where)
    samples = known.samples["ns", "thumbs"]
    assert len(samples.seen) == len(samples.fetched) == len(samples.responses) == MOST
    assert {len(seen) for seen in samples.seen.values()} == {KEPT}
    assert {len(fetched) for fetched in samples.fetched.values()} == {KEPT}
    assert {len(responses) for responses in samples.responses.values()} == {KEPT_RESPONSES}


def test_lying_profiles_of_a_tenant_are_one_vote_and_none_when_they_are_deleted():
    known = Known().vote("a", 1.5).vote("b", 1.5)
    for n in range(3):
        known.vote("liar", 90.0, name=f"l{n}")
    found = known.learning.classes("main")["old"]
    assert (found.slow, found.tenants) == (pytest.approx(1.5, abs=0.01), ("a", "b", "liar"))
    known.learning.keep({("a", "thumbs"), ("b", "thumbs")})
    assert known.learning.classes("main")["old"].tenants == ("a", "b")


def test_what_a_profile_has_measured_is_forgotten_also_if_it_was_the_only_one():
    known = Known().vote("liar", 1.8)
    assert known.slow()["old"] == pytest.approx(1.8, abs=0.01)
    known.learning.keep({("ns", "thumbs")})
    assert known.slow().get("old", 1.0) == 1.0
    known.vote("liar", 1.5)
    assert known.slow()["old"] == pytest.approx(1.5, abs=0.01)


def test_a_profile_that_is_created_again_has_no_vote_of_the_first():
    known = Known().vote("us", 1.8)
    assert known.slow()["old"] == pytest.approx(1.8, abs=0.01)
    known.begin("us", "thumbs")
    assert known.slow().get("old", 1.0) == 1.0


@pytest.mark.parametrize(
    ("limit", "given", "slow"),
    [(2.0, {}, 2.0), (2.0, {"old": 3.0}, 3.0), (2.0, {"old": 3.05}, 3.05), (1.0, {}, 1.0), (4.0, {}, 3.0)],
)
def test_beyond_the_limit_only_the_pools_spec_makes_a_class_slow_and_an_edit_of_it_counts_at_once(limit, given, slow):
    known = Known().vote("a", 3.0)
    assert known.slow()["old"] == 2.0
    known.asked = AskedSpeeds(limit, given)
    assert known.slow()["old"] == pytest.approx(slow)
    assert known.learning.classes("main")["old"].measured == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize(
    ("by_hand", "seen", "status", "reason"),
    [
        ({}, (), "False", "NothingLearned"),
        ({}, SIZES[:4], "False", "NothingLearned"),
        ({}, SIZES, "True", "Learned"),
        ({"chi": 0.02}, (), "True", "SetByHand"),
        ({"chi": 0.02}, SIZES, "True", "SetByHand"),
        ({"theta_cp": 2.0}, (), "False", "NothingLearned"),
    ],
)
def test_a_profile_is_ready_when_it_knows_what_a_unit_costs(by_hand, seen, status, reason):
    known = Known(**by_hand).see(*seen)
    assert known.samples["ns", "thumbs"].ready(known.by_hand)[:2] == (status, reason)


def test_the_middle_response_counts():
    known = Known().answer(response())
    assert known.response() is None
    known.answer(*[response()] * 20, *[response(0.2, 4.0)] * 4)
    assert known.response() == response(), "a few chunks were on a node that was disturbed"
    known.see(*SIZES).answer(response(0.2, 4.0))
    assert known.response() == response(0.2, 4.0), "they have all changed"
