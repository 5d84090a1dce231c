"""A pool that namespaces share: what each may be promised, and what it may use beyond that."""

from dataclasses import replace

import pytest
from world import World, job

from punctual import reasons
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.pool_spec import Tenancy

HALF = Tenancy(max_share=0.5)
ADMISSIONS = {
    "Exact": {"admission": "Exact"},
    "Fast": {"admission": "Fast"},
    "Hybrid": {"admission": "Hybrid", "threshold": 2},
    "Statistical": {"bound": 1.0},
    "Utilization": {"admission": "Utilization", "pods_per_processor": 4},
}


def world(tenancy=HALF, nodes=4, **spec):
    w = World()
    w.edit_pool(replace(w.spec, generation=2, tenancy=tenancy, **{"margin": 0.0, **spec}))
    for n in range(nodes):
        w.node(f"n{n}", cpu=1)
    w.tick()
    return w


def ask(w, uid, namespace, *, units, deadline, **more):
    more.setdefault("theta_cp", 0.0)
    w.apply(job(uid, namespace=namespace, units=units, deadline=w.now + deadline, arrival=w.now, **more))
    w.tick()
    return w.records[uid].admitted[:2]


YES, NO = ("True", reasons.FEASIBLE), ("False", reasons.SHARE_USED_UP)


@pytest.mark.parametrize("name", ADMISSIONS)
def test_each_admission_test_keeps_a_namespace_within_its_share(name):
    w = world(**ADMISSIONS[name])
    yes = ("True", reasons.ADMITTED_STATISTICALLY) if name == "Statistical" else YES
    for k in range(6):  # 50 of the 200 processor seconds of its part until then
        assert ask(w, f"a{k}", "a", units=50, deadline=100.0) == (yes if k < 4 else NO)
    assert ask(w, "b", "b", units=50, deadline=100.0) == yes


def test_a_refusal_says_which_share_is_used_up_and_by_how_much():
    w = world()
    ask(w, "a0", "a", units=150, deadline=100.0)
    ask(w, "a1", "a", units=80, deadline=100.0)
    assert w.records["a1"].admitted.message.startswith(
        "80 units due in 1m40s take 1m20s of processor time; namespace a may be promised 50% of 4 processors "
        "(maxShare of the pool), and 50s of that are left until then: 30s too little"
    )


def test_the_offers_of_a_refusal_are_within_the_share():
    w = world(nodes=4)
    ask(w, "a0", "a", units=150, deadline=100.0)
    ask(w, "a1", "a", units=80, deadline=100.0)
    w.run(w.now + 1)
    offer = w.records["a1"].offer
    assert offer.largest_load == 50
    assert offer.processors.more == 1  # 2.5 processors do 250 s of work until then
    assert 115.0 <= offer.earliest_deadline <= 119.0  # 230 s of work on two processors, and an allowance
    assert ask(w, "a2", "a", units=50, deadline=100.0 - w.now) == YES
    assert ask(w, "a3", "a", units=30, deadline=offer.earliest_deadline) == YES


def test_a_namespace_with_many_far_deadlines_takes_no_more_than_its_share():
    """The attack: a team asks for all of the pool for weeks ahead, as early as it can."""
    w = world(Tenancy(max_share=0.5, horizon=28 * 86400.0))
    day = 86400
    got = [ask(w, f"far-{k}", "greedy", units=day, deadline=(27 + k / 100) * 86400.0) for k in range(100)]
    assert got.count(YES) == 55  # two processors for almost 28 days
    assert set(got) == {YES, NO}
    got = [ask(w, f"near-{k}", "greedy", units=400, deadline=400.0) for k in range(4)]
    assert got.count(YES) == 0
    assert ask(w, "modest", "modest", units=27 * day * 2 - 1000, deadline=27 * 86400.0) == YES


def test_chunks_that_run_are_not_ended_for_a_namespace_within_its_share():
    """The corner: all processors have a chunk of a day, though only half of the pool until then is promised."""
    w = world()
    for k in range(4):
        assert ask(w, f"a{k}", "a", units=86400, deadline=2.0 * 86400.0) == YES
    assert ask(w, "soon", "b", units=400, deadline=400.0) == ("False", reasons.INFEASIBLE_CAPACITY)
    assert ask(w, "later", "b", units=86400, deadline=2.0 * 86400.0) == YES


def test_a_namespace_cannot_have_its_share_a_second_time_once_its_work_is_done():
    w = world(margin=2.0, discipline=Discipline(assign="AN"))
    assert ask(w, "a0", "a", units=180, deadline=100.0, theta_cp=2.0) == YES
    w.run_until(lambda w: w.records["a0"].finished)
    assert w.now < 50.0
    left = 100.0 - w.now
    assert ask(w, "a1", "a", units=30, deadline=left, theta_cp=2.0) == NO
    assert ask(w, "b", "b", units=int(2 * left - 20), deadline=left, theta_cp=2.0) == YES


def test_work_of_others_that_is_done_first_takes_nothing_of_a_share():
    w = world(nodes=1, margin=2.0)
    assert ask(w, "b", "b", units=20, deadline=60.0, theta_cp=2.0) == YES
    assert ask(w, "a", "a", units=34, deadline=100.0, theta_cp=2.0) == YES
    w.run(24.0)
    assert w.records["b"].finished
    assert not w.records["a"].completed
    more = "36 of the 74 s that are left until then are promised to it, and less than half of 98 s from the begin"
    assert ask(w, "a1", "a", units=9, deadline=76.0, theta_cp=2.0) == YES, more


def test_a_refused_job_that_goes_on_uses_what_no_promise_needs_and_gives_it_back():
    w = world(nodes=2, margin=2.0)
    assert ask(w, "a0", "a", units=90, deadline=100.0, theta_cp=2.0) == YES
    assert ask(w, "a1", "a", units=60, deadline=100.0, theta_cp=2.0, on_refusal="Continue") == NO
    w.run(5.0)
    assert w.records["a1"].chunks, "it runs on the other processor"
    assert ask(w, "b", "b", units=70, deadline=90.0, theta_cp=2.0) == YES
    w.run(110.0)
    assert w.met("b")
    assert w.met("a0")


@pytest.mark.parametrize("name", ["Exact", "Fast", "Utilization"])
def test_promises_stay_when_a_share_is_lowered_or_nodes_are_lost_or_another_leader_comes(name):
    w = world(margin=2.0, **ADMISSIONS[name])
    assert ask(w, "a0", "a", units=80, deadline=100.0, theta_cp=2.0) == YES
    assert ask(w, "a1", "a", units=80, deadline=100.0, theta_cp=2.0) == YES
    w.edit_pool(replace(w.spec, generation=3, tenancy=Tenancy(max_share=0.1)))
    w.tick()
    assert w.pool_record.spec_applied[:2] == ("True", reasons.APPLIED)
    w.crash()
    w.tick()
    assert {uid: w.records[uid].admitted[:2] for uid in ("a0", "a1")} == {"a0": YES, "a1": YES}
    assert ask(w, "a2", "a", units=1, deadline=100.0) == NO
    assert ask(w, "b", "b", units=3, deadline=90.0) == YES
    w.run(110.0)
    assert w.met("a0")
    assert w.met("a1")


def test_a_share_that_is_raised_lets_more_in():
    w = world()
    assert ask(w, "a0", "a", units=200, deadline=100.0) == YES
    assert ask(w, "a1", "a", units=100, deadline=100.0) == NO
    w.edit_pool(replace(w.spec, generation=3, tenancy=Tenancy(max_share=0.5, own=(("a", 0.8),))))
    w.tick()
    assert ask(w, "a2", "a", units=100, deadline=100.0 - w.now) == YES
    assert ask(w, "a3", "a", units=30, deadline=100.0 - w.now) == NO


def test_shares_that_are_set_later_count_what_is_promised():
    w = world(Tenancy())
    assert ask(w, "a0", "a", units=200, deadline=100.0) == YES
    w.edit_pool(replace(w.spec, generation=3, tenancy=HALF))
    w.tick()
    assert ask(w, "a1", "a", units=10, deadline=100.0) == NO
    assert ask(w, "b", "b", units=100, deadline=100.0) == YES


@pytest.mark.parametrize("how", ["delete", "suspend"])
def test_a_promise_that_is_given_back_leaves_its_share(how):
    w = world()
    assert ask(w, "a0", "a", units=200, deadline=100.0) == YES
    if how == "delete":
        w.delete("a0")
    else:
        w.apply(replace(w.jobs["a0"], generation=2, suspend=True))
    w.tick()
    assert ask(w, "a1", "a", units=190, deadline=100.0) == YES


def test_a_deadline_is_moved_within_the_share_only():
    w = world()
    assert ask(w, "a0", "a", units=150, deadline=100.0) == YES
    w.apply(replace(w.jobs["a0"], generation=2, deadline=60.0))
    w.tick()
    assert w.records["a0"].spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    assert "share of namespace a" in w.records["a0"].spec_applied.message
    w.apply(replace(w.jobs["a0"], generation=3, deadline=80.0))
    w.tick()
    assert w.records["a0"].spec_applied[:2] == ("True", reasons.APPLIED)
    assert ask(w, "a1", "a", units=30, deadline=80.0 - w.now) == NO


def test_a_deadline_beyond_the_horizon_is_refused_with_the_latest_one():
    w = world(Tenancy(horizon=86400.0))
    assert ask(w, "a0", "a", units=1, deadline=86401.0) == ("False", reasons.DEADLINE_TOO_FAR)
    assert w.records["a0"].admitted.message == (
        "spec.deadline: the deadline is 1d1s away, and the pool promises deadlines at most 1d ahead (its "
        "spec.promiseHorizon): the latest one that may be asked for now is 1970-01-02T00:00:00Z"
    )
    assert ask(w, "a1", "a", units=1, deadline=86400.0) == YES
    w.apply(replace(w.jobs["a1"], generation=2, deadline=86500.0))
    w.tick()
    assert w.records["a1"].spec_applied[:2] == ("False", reasons.EDIT_REFUSED)
    w.run(2.0)
    assert w.records["a0"].offer is None


def test_no_offer_lies_beyond_the_horizon():
    w = world(Tenancy(horizon=1000.0))
    ask(w, "full", "a", units=3900, deadline=990.0)
    assert ask(w, "a", "a", units=200, deadline=900.0)[1] == reasons.INFEASIBLE_CAPACITY
    w.run(5.0)
    assert w.records["a"].offer.earliest_deadline is None
    assert w.records["a"].offer.largest_load == 0


def reserve(w, uid, namespace, start, end, processors):  # noqa: PLR0917
    w.reserve(uid, w.now + start, w.now + end, processors, namespace=namespace)
    w.tick()
    return w.answers[uid].answer[:2]


def test_windows_take_their_processors_from_the_share():
    w = world()
    assert reserve(w, "r0", "a", 100.0, 200.0, 3) == NO
    assert reserve(w, "r1", "a", 100.0, 200.0, 1) == YES
    assert reserve(w, "r2", "a", 150.0, 300.0, 2) == NO
    assert reserve(w, "r3", "b", 150.0, 300.0, 2) == YES
    assert ask(w, "a0", "a", units=350, deadline=200.0) == NO
    assert ask(w, "a1", "a", units=290, deadline=200.0) == YES


def test_a_window_must_leave_promised_jobs_of_the_namespace_their_share():
    w = world()
    assert ask(w, "a0", "a", units=390, deadline=200.0) == YES
    assert reserve(w, "r0", "a", 100.0, 150.0, 1) == NO
    assert reserve(w, "r1", "a", 200.0, 250.0, 2) == YES


def test_jobs_inside_a_window_are_in_the_share_of_the_window():
    w = world()
    assert ask(w, "a0", "a", units=340, deadline=200.0) == YES
    assert reserve(w, "r0", "a", 100.0, 120.0, 2) == YES
    assert ask(w, "inside", "a", units=15, deadline=180.0, reservation="") == YES
    assert ask(w, "a2", "a", units=30, deadline=180.0) == NO


def test_of_jobs_that_are_tested_together_no_more_fit_a_share_than_one_by_one():
    """Those with earlier deadlines come later, so they fit only before other placements: a step tests many at once."""
    w = world(Tenancy(max_share=0.5, own=(("c", 1.0),)), nodes=8)
    for k in range(60):
        deadline = 1000.0 - 10 * k
        w.apply(job(f"a{k}", namespace="a", units=100, deadline=deadline, arrival=k / 100, theta_cp=0.0))
        w.apply(job(f"b{k}", namespace="b", units=20, deadline=deadline, arrival=k / 100, theta_cp=0.0))
        if k % 7 == 6:  # it fits nowhere, and those that are tested with it are tested again
            w.apply(job(f"c{k}", namespace="c", units=9000, deadline=deadline, arrival=k / 100, theta_cp=0.0))
    w.tick()
    answers = {uid: record.admitted[:2] for uid, record in w.records.items()}
    assert [answers[f"b{k}"] for k in range(60)] == [YES] * 60
    promised = [k for k in range(60) if answers[f"a{k}"] == YES]
    assert {answers[f"a{k}"] for k in range(60)} == {YES, NO}
    for until in (1000.0 - 10 * k for k in range(60)):
        assert 100 * sum(1000.0 - 10 * k <= until for k in promised) <= 4 * until
    assert len(promised) == 40


def test_an_account_follows_processors_that_come_and_go():
    w = world()
    assert ask(w, "a0", "a", units=190, deadline=100.0) == YES
    assert ask(w, "a1", "a", units=100, deadline=100.0) == NO
    for n in range(4):
        w.node(f"more-{n}", cpu=1)
    w.tick()
    assert ask(w, "a2", "a", units=100, deadline=100.0) == YES
    w.node("half", cpu=4, speed=2.0)  # as two of the others
    w.tick()
    assert ask(w, "a3", "a", units=130, deadline=100.0) == YES
    assert ask(w, "a4", "a", units=100, deadline=100.0) == NO


def test_what_a_job_would_be_offered_now_is_within_its_share():
    w = world()
    ask(w, "a0", "a", units=150, deadline=100.0)
    quote = w.pool.quote(w.now, job("x", namespace="a", units=100, deadline=100.0, theta_cp=0.0))
    assert not quote.fits()
    assert quote.earliest_deadline() == pytest.approx(125.0, abs=0.01)
    other = w.pool.quote(w.now, job("x", namespace="b", units=100, deadline=100.0, theta_cp=0.0))
    assert other.fits()
