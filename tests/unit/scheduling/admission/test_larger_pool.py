"""The processors that a refused job lacks: how many, when, and where no number helps."""

from dataclasses import replace

import pytest
from world import World, job

from punctual import reasons
from punctual.scheduling.admission import larger_pool
from punctual.scheduling.admission.larger_pool import LargerPool, Use, further_processors
from punctual.scheduling.model.job import FurtherProcessors
from punctual.scheduling.model.node_rules import NodeRules, Requirement, Rule, Taint, Toleration
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.placement.plan import Plan

SPEC = PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0)
SSD = NodeRules(rules=(Rule("nodeSelector: disk=ssd", ((Requirement("disk", "In", ("ssd",)),),)),))
TOLERANT = NodeRules(tolerations=(Toleration("gpu", "Exists", "", ""),))
BUSY = job("busy", units=100, deadline=110.0)


def refused(*wanted, spec=SPEC, cpus=(2.0,), **labels):
    """Return a pool that has promised all jobs but the last, which it has refused."""
    w = World(spec=spec)
    for i, cpu in enumerate(cpus):
        w.node(f"n{i}", cpu, **labels)
    for one in wanted:
        w.apply(one)
        w.tick()
    assert [w.records[one.uid].admitted.status for one in wanted] == ["True"] * (len(wanted) - 1) + ["False"]
    return w


@pytest.mark.parametrize(
    ("wanted", "spec", "found"),
    [
        # due 36 s from now: each processor does 34 units of 1 s behind 2 s of start-up
        pytest.param([job(units=102, deadline=38.0)], SPEC, (1, 0.0, 36.0), id="one more"),
        pytest.param([job(units=103, deadline=38.0)], SPEC, (2, 0.0, 28.0), id="two more"),
        pytest.param([job(units=1000, deadline=54.0)], SPEC, (18, 0.0, 52.0), id="many more"),
        pytest.param([job(units=1000, deadline=24.0)], SPEC, (48, 0.0, 22.0), id="the most but a few"),
        pytest.param([BUSY, job("new", units=80, deadline=60.0)], SPEC, (1, 0.0, 42.0), id="beside a promise"),
        pytest.param(
            [job(units=105, deadline=40.0, max_processors=3)], SPEC, (1, 0.0, 37.0), id="as many as it may use"
        ),
        pytest.param([job(units=100, deadline=40.0)], replace(SPEC, admission="Fast"), (1, 0.0, 37.0), id="fast"),
        pytest.param([job(units=100, deadline=40.0)], replace(SPEC, bound=0.5), (4, 0.0, 38.0), id="by a bound"),
        pytest.param(
            [job(f"j{i}", units=60, deadline=90.0) for i in range(3)],
            replace(SPEC, admission="Utilization", pods_per_processor=2),
            (1, 0.0, 88.0),
            id="shared processors",
        ),
    ],
)
def test_the_fewest_are_found_with_their_times(wanted, spec, found):
    record = refused(*wanted, spec=spec).records[wanted[-1].uid]
    assert record.offer.processors == FurtherProcessors(*found)
    assert f"; {found[0]} more processor" in record.admitted.message


@pytest.mark.parametrize(
    ("wanted", "spec"),
    [
        pytest.param(job(units=1, deadline=4.0), SPEC, id="set-up alone takes longer"),
        pytest.param(job(units=100, deadline=30.0, max_processors=3), SPEC, id="it may use too few"),
        pytest.param(job(units=10, deadline=30.0, chi=40.0), SPEC, id="one unit takes longer"),
        pytest.param(job(units=10000, deadline=30.0), SPEC, id="more than are tried"),
        pytest.param(job(units=100, deadline=99.0, min_processors=3), SPEC, id="a limit, not the deadline"),
        pytest.param(
            job(units=100, deadline=90.0), replace(SPEC, admission="Utilization"), id="its one pod has one processor"
        ),
        pytest.param(job(units=100, deadline=30.0, rules=SSD), SPEC, id="on no other node may it run"),
    ],
)
def test_none_is_told_where_no_number_helps(wanted, spec):
    record = refused(wanted, spec=spec, labels={"disk": "ssd"}).records["j1"]
    assert record.offer.processors is None
    assert "more processor" not in record.admitted.message


def test_they_take_pods_of_jobs_that_tolerate_more_than_they_have():
    w = World(spec=SPEC)
    w.node("n0", 1.0)
    w.node("n1", 1.0, taints=(Taint("gpu", "", "NoSchedule"),))
    w.apply(job(units=100, deadline=40.0, rules=TOLERANT))
    w.tick()
    assert w.records["j1"].offer.processors.more == 1


def test_a_job_is_offered_no_further_processors_while_others_may_make_room_for_it_on_its_own_nodes():
    """They take no pod of the job, but the work that is in its way."""
    w = World(spec=SPEC)
    w.node("n0", 1.0, labels={"disk": "ssd"})
    w.apply(job("first", units=40, deadline=45.0))
    w.apply(job("other", units=40, deadline=90.0))
    w.tick()
    w.apply(job("new", units=30, deadline=80.0, rules=SSD))
    w.tick()
    assert w.records["new"].admitted.reason == reasons.INFEASIBLE_CAPACITY
    assert w.records["new"].offer.processors.more == 1


def test_a_job_counts_on_the_speed_of_its_own_nodes_beside_slow_ones():
    """What is before it on its nodes could go to further processors; alone, it ends in time only on both of its own."""
    w = World(spec=SPEC)
    w.node("n0", 3.0, speed=4.0)
    w.node("n1", 2.0, labels={"disk": "ssd"})
    for one in (
        job("runs", units=16, deadline=12.0, rules=SSD),
        job("other", units=80, deadline=48.0),
        job("new", units=60, deadline=49.0, rules=SSD),
    ):
        w.apply(one)
        w.tick()
    assert w.records["new"].offer.processors == FurtherProcessors(2, 0.0, 29.0)


def test_they_are_wanted_from_when_they_begin_together_with_others():
    """Two of three processors are free after 50 s, and the third after 102 s."""
    w = refused(
        job("a", units=96, deadline=52.0),
        job("b", units=100, deadline=110.0),
        job("new", units=60, deadline=82.0, min_processors=3),
        cpus=(3.0,),
    )
    assert w.records["new"].offer.processors == FurtherProcessors(1, 50.0, 72.0)
    assert w.records["new"].admitted.message.endswith("; 1 more processor would do, for 22s, beginning in 50s")


def stepwise(least: int, most: int, enough):
    """Return a larger pool for which ``enough`` tells whether a number is, and the numbers that it was asked for."""
    asked = []

    class Larger(LargerPool):
        there = type("", (), {"most": most})()

        @property
        def least(self):
            return least

        def use(self, more):
            asked.append(more)
            return Use(0.25, 9.75) if enough(more) else None

    return Larger, asked


@pytest.mark.parametrize(
    ("least", "most", "enough", "monotone", "found", "tests"),
    [
        pytest.param(1, 64, lambda k: k >= 5, False, 5, 5, id="one after the other"),
        pytest.param(4, 64, lambda k: k >= 5, False, 5, 2, id="from the first that may be enough"),
        pytest.param(1, 64, lambda k: k in (3, 4) or k > 9, False, 3, 3, id="the least, though not all above are"),
        pytest.param(65, 64, lambda _: True, False, None, 0, id="none may be"),
        pytest.param(1, 500, lambda _: False, False, None, larger_pool.TRIES, id="bounded"),
        pytest.param(1, 64, lambda k: k >= 40, True, 40, 12, id="bisected"),
        pytest.param(1, 64, lambda k: k >= 1, True, 1, 1, id="bisected, one"),
        pytest.param(1, 64, lambda k: k >= 64, True, 64, 7 + 5, id="bisected, the most"),
        pytest.param(1, 64, lambda _: False, True, None, 7, id="bisected, none"),
    ],
)
def test_the_search_is_bounded(least, most, enough, monotone, found, tests):  # noqa: PLR0917
    kind, asked = stepwise(least, most, enough)
    kind.monotone = monotone
    search = further_processors(kind())
    yields = 0
    while True:
        try:
            next(search)
        except StopIteration as end:
            answer = end.value
            break
        yields += 1
    assert answer == (None if found is None else FurtherProcessors(found, 0.0, 10.0))
    assert yields == len(asked) <= tests


def test_a_job_that_is_refused_costs_few_tests_more(monkeypatch):
    """Numbers that the sums of work exclude are not tested."""
    calls = []
    insert, of = Plan.insert, Plan.of
    monkeypatch.setattr(Plan, "insert", lambda self, demand: calls.append("insert") or insert(self, demand))
    monkeypatch.setattr(Plan, "of", classmethod(lambda _cls, *args, **kw: calls.append("plan") or of(*args, **kw)))
    before = [job(f"j{i}", units=100, deadline=400.0 + i) for i in range(6)]
    refused(*before, job("new", units=1000, deadline=54.0))
    further = refused(*before, job("new", units=1000, deadline=54.0)).records["new"].offer.processors
    assert further.more >= 18
    assert calls.count("plan") <= 12 + 2 * 4
    assert calls.count("insert") / 2 < 60
