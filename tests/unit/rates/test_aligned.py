"""Stories of applications with aligned slices under a RateControl, with agents that steer."""

from dataclasses import replace

import pytest
from held import Held, Ranks, member, rate

from punctual.control.rate import Limits
from punctual.rates.control import RateControl
from punctual.rates.model import (
    HoldPod,
    MembersSeen,
    PhaseSeen,
    PodsReported,
    RateApplied,
    Record,
    ReportedPod,
    WriteRate,
)

ALONE = 0.5
"""Seconds of an iteration alone."""
CLOCK = 4321.0123
"""How far a new leader's clock is from that of the one before."""


def cluster(*names, cores=1.0, **more):
    held = Held({name: Ranks(name, alone=ALONE, **more) for name in names or ("a",)})
    for ranks in held.ranks.values():
        ranks.pods = [pod._replace(cores=cores) for pod in ranks.pods]
    return held


def ask(held, uid="a", target=0.4, **more):
    return held.ask(uid, target, **{"aligned": True, "max_rate": 1 / ALONE, **more})


def reasons(held, uid="a"):
    """Return the reasons of Admitted, OnTarget and Aligned."""
    status = held.statuses[uid]
    return tuple(verdict and verdict.reason for verdict in (status.admitted, status.on_target, status.aligned))


def restore(heir, uid, held, **more):
    """Let a new leader go on from the last status of an application."""
    s = held.statuses[uid]
    record = Record(s.target, s.max_rate, s.utilization, s.period, s.rate, True, s.offset)
    return heir.restore(uid, record, aligned=True, max_rate=1 / ALONE, **more)


def moves(held):
    return [n for ranks in held.ranks.values() for n in ranks.steered]


def test_an_application_is_admitted_steered_aligned_and_held_at_its_rate():
    held = ask(cluster()).run(1)
    assert reasons(held) == ("Feasible", "Settling", "Steering")
    held.run(60)
    assert reasons(held) == ("Feasible", "OnTarget", "Aligned")
    status, hold = held.statuses["a"], held.holds["a-0"]
    assert (status.period, status.offset) == (0.1, 0.0)
    assert status.skew < 0.0005
    assert hold.grid.slice == pytest.approx(hold.cap * hold.period)
    assert held.holds["a-1"] == replace(hold, pod="a-1", node="n1")
    assert held.rate_of("a", 60) * ALONE == pytest.approx(0.4, abs=0.03)
    assert moves(held) == [1, 1]


@pytest.mark.parametrize("longest", [0.1, 0.2])
def test_while_the_rate_alone_is_measured_there_is_no_grid(longest):
    """Also not if its period is that of its slot: pods with all their CPU must not go before others."""
    held = ask(cluster(), max_rate=None, limits=Limits(max_period=longest)).run(5)
    assert reasons(held) == ("Feasible", "Measuring", None)
    assert held.holds["a-0"].grid is None
    assert held.statuses["a"].offset is None
    held.run(60)
    assert reasons(held) == ("Feasible", "OnTarget", "Aligned")


def test_pods_that_never_write_are_aligned_too():
    held = cluster()
    held.writes = False
    ask(held, max_rate=None).run(100)
    assert reasons(held) == ("Feasible", "NoProgress", "Aligned")
    assert held.holds["a-0"].grid.slice == pytest.approx(0.04)
    record = Record(0.4, None, 0.4, 0.1, None, False, 0.0)
    heir = held.led_anew(clock=CLOCK).restore("a", record, aligned=True).run(1)
    assert heir.holds["a-0"].grid.slice == pytest.approx(0.04), "it does not wait for their progress once more"


def test_the_slice_stays_until_the_slices_meet():
    held = cluster(ranks=4)
    ranks = held.ranks["a"]
    steer, ranks.steer = ranks.steer, lambda *_: None
    ask(held).run(20)
    assert reasons(held) == ("Feasible", "Settling", "Steering")
    assert len(held.changes) == 4, "each pod is named once"
    ranks.steer = steer
    held.run(40)
    assert reasons(held) == ("Feasible", "OnTarget", "Aligned")


def test_a_restarted_pod_is_steered_and_the_others_stay():
    held = ask(cluster(pattern="none")).run(60)
    hold = held.holds["a-0"]
    held.ranks["a"].replace(0, "new")
    held.inbox.append(MembersSeen("a", tuple(held.ranks["a"].pods)))
    held.run(1)
    assert held.holds["new"] == replace(hold, pod="new")
    assert reasons(held)[2] == "Steering"
    held.run(20)
    assert reasons(held)[2] == "Aligned"
    assert held.ranks["a"].steered == [1, 1]


def test_pods_that_come_and_go_all_the_time_do_not_keep_the_others_from_their_rate():
    """None of those of the last rank is ever on the grid."""
    held = cluster(ranks=4, pattern="none")
    ranks = held.ranks["a"]
    steer = ranks.steer

    def but_the_last(r, hold, clock):
        return None if r == 3 else steer(r, hold, clock)

    ranks.steer = but_the_last
    for target in (0.4, 0.2):
        ask(held, target=target)
        for n in range(12):
            held.run(20)
            ranks.replace(3, f"{target}-{n}")
            held.inbox.append(MembersSeen("a", tuple(ranks.pods)))
        assert reasons(held)[1:] == ("OnTarget", "Steering")
        before = ranks.counts[0]
        held.run(20)
        assert (ranks.counts[0] - before) / 20 * ALONE == pytest.approx(target, abs=0.06)


def test_a_takeover_keeps_pair_offset_and_origin():
    held = ask(ask(cluster("a", "b", cores=1.0), "a"), "b", created=1.0).run(60)
    before, phases = dict(held.holds), {name: list(ranks.phases) for name, ranks in held.ranks.items()}
    assert held.statuses["b"].offset == pytest.approx(0.043, abs=0.004)
    heir = held.led_anew(clock=CLOCK)
    restore(heir, "a", held)
    restore(heir, "b", held, created=1.0)
    heir.reports = False
    heir.run(3)
    assert {hold.grid.begins for hold in heir.holds.values()} == {None}, "nothing moves before the grid is found"
    assert reasons(heir)[2] == "Steering"
    heir.reports = True
    heir.run(40)
    for pod, hold in heir.holds.items():
        old = before[pod]
        assert (hold.cap, hold.period, hold.grid.slice) == (old.cap, old.period, old.grid.slice)
        apart = (hold.grid.begins - CLOCK - old.grid.begins) % hold.period
        assert min(apart, hold.period - apart) < 0.0011, "as far as its agent errs, at most"
    assert {name: ranks.phases for name, ranks in heir.ranks.items()} == phases
    assert moves(heir) == [1, 1, 1, 1]
    assert reasons(heir) == ("Feasible", "OnTarget", "Aligned")


def test_a_takeover_without_reports_takes_any_origin_in_the_end():
    held = ask(cluster()).run(60)
    heir = restore(held.led_anew(clock=CLOCK), "a", held)
    heir.reports = False
    heir.run(30)
    assert heir.holds["a-0"].grid.begins is None
    heir.run(2)
    assert heir.holds["a-0"].grid.begins is not None
    heir.reports = True
    heir.run(40)
    assert reasons(heir) == ("Feasible", "OnTarget", "Aligned")


def test_a_takeover_goes_by_the_others_when_one_agent_is_silent_or_lies():
    held = ask(cluster(ranks=4)).run(60)
    heir = restore(held.led_anew(clock=CLOCK), "a", held)
    heir.ranks["a"].phases[0] = 0.77
    heir.silent = {"n1"}
    heir.run(40)
    assert heir.ranks["a"].steered == [2, 1, 1, 1]


def test_two_applications_share_a_full_node():
    held = ask(ask(cluster("a", "b"), "a", 0.5), "b", 0.5, created=1.0).run(60)
    assert [held.holds[pod].grid.begins - held.holds["a-0"].grid.begins for pod in ("a-1", "b-0", "b-1")] == [
        0.0,
        pytest.approx(0.05),
        pytest.approx(0.05),
    ]
    assert {held.holds[pod].cap for pod in ("a-0", "b-0")} == {0.5}, "there is nothing to spare"
    assert reasons(held, "a")[2] == reasons(held, "b")[2] == "Aligned"


def test_a_third_application_is_refused_and_the_others_stay():
    held = ask(ask(cluster("a", "b", "c", request=1.0), "a"), "b", created=1.0).run(60)
    before = dict(held.holds)
    ask(held, "c", 0.3, created=2.0).run(5)
    assert reasons(held, "c") == ("SlicesDoNotFit", None, None)
    text = held.statuses["c"].admitted.message
    assert "30 ms in each 100 ms" in text
    assert "node n0" in text
    assert "default/a" in text
    assert held.holds == before
    held.delete("a")
    held.run(60)
    assert reasons(held, "c") == ("Feasible", "OnTarget", "Aligned")
    assert held.holds["b-0"].grid.begins == before["b-0"].grid.begins, "it does not move"
    assert held.statuses["c"].offset == 0.0


def test_coscheduling_is_turned_on_and_off():
    held = cluster().ask("a", 0.4, max_rate=1 / ALONE).run(60)
    assert reasons(held)[2] is None
    assert held.holds["a-0"].grid is None
    ask(held).run(60)
    assert reasons(held) == ("Feasible", "OnTarget", "Aligned")
    held.ask("a", 0.4, max_rate=1 / ALONE).run(60)
    assert reasons(held) == ("Feasible", "OnTarget", None)
    assert held.holds["a-0"].grid is None
    assert held.statuses["a"].offset is None


def test_an_edit_without_a_slot_is_refused_and_the_old_one_stays():
    held = ask(ask(cluster("a", "b", request=1.0), "a"), "b", 0.4, created=1.0).run(60)
    before = dict(held.holds)
    ask(held, "b", 0.65, created=1.0).run(5)
    assert reasons(held, "b")[0] == "EditRefused"
    assert "40% stays in force" in held.statuses["b"].admitted.message
    assert held.holds == before


def test_a_lowered_longest_slice_leaves_what_has_no_shorter_period_as_it_is():
    held = ask(cluster(), limits=Limits(0.1, 0.2)).run(60)
    before, status = dict(held.holds), held.statuses["a"]
    ask(held, limits=Limits(0.1, 0.2), max_slice=0.02).run(60)
    assert reasons(held) == ("EditRefused", "OnTarget", "Aligned")
    assert held.statuses["a"].admitted.status == "True"
    assert "maxSlice of its pool is 20 ms" in held.statuses["a"].admitted.message
    assert "40% stays in force" in held.statuses["a"].admitted.message
    heir = restore(held.led_anew(clock=CLOCK), "a", held, limits=Limits(0.1, 0.2), max_slice=0.02).run(60)
    assert reasons(heir) == ("EditRefused", "OnTarget", "Aligned")
    for one in (held, heir):
        assert {pod: (hold.node, hold.period) for pod, hold in one.holds.items()} == {
            pod: (hold.node, hold.period) for pod, hold in before.items()
        }
        assert one.statuses["a"].offset == status.offset
        assert one.ranks["a"].steered == [1, 1], "nothing is moved"


def test_what_cannot_be_aligned_stays_as_it_was():
    held = ask(cluster("a", "b", request=1.0), "a", 0.6).ask("b", 0.5, max_rate=1 / ALONE, created=1.0).run(60)
    before = dict(held.holds)
    ask(held, "b", 0.5, created=1.0).run(5)
    assert reasons(held, "b")[0] == "EditRefused"
    assert "50%, not aligned, stays in force" in held.statuses["b"].admitted.message
    assert held.holds == before


def test_an_agent_that_does_not_report_leaves_the_slices_where_they_are():
    held = ask(cluster()).run(60)
    before = dict(held.holds)
    held.silent = {"n1"}
    held.run(60)
    assert reasons(held)[2] == "Steering"
    assert "the agent of node n1 does not report pod default/a-1" in held.statuses["a"].aligned.message
    assert held.holds == before


def test_a_clock_that_is_not_known_well_enough_is_said():
    held = cluster()
    held.bound = 0.02
    ranks = held.ranks["a"]
    ranks.steer = lambda r, hold, clock: hold.grid and PhaseSeen(ranks.phases[r] * 0.1 + clock, 0.02, None, 1.0, 0, 0)
    ask(held).run(20)
    assert reasons(held)[2] == "Steering"
    held.run(20)
    assert reasons(held)[2] == "ClockUncertain"
    assert "node n0 knows the leader's clock to within 20 ms" in held.statuses["a"].aligned.message


def test_slices_that_are_not_filled_are_said():
    held = cluster()
    held.throttled = 0.1
    ask(held).run(60)
    assert reasons(held)[2] == "SlicesNotFilled"
    held.throttled = 1.0
    held.run(60)
    assert reasons(held)[2] == "Aligned"


def test_an_error_on_an_earlier_grid_is_not_taken_for_one_on_this():
    control, statuses = RateControl(), []
    asked = RateApplied(rate("a", 0.4, aligned=True, max_rate=2.0))
    control.step(0.0, [asked, MembersSeen("a", (member("p", "n", cores=1.0),))])
    for now in range(1, 40):
        phase = PhaseSeen(begins=50.02, half=0.0, error=0.0, age=1.0, moves=0, failed=0)
        line = ReportedPod("p", now, 0.0, 0.4, 0.1, phase, 1.0)
        actions = control.step(float(now), [PodsReported("n", float(now), (line,), 0.0)])
        statuses += [action.status for action in actions if isinstance(action, WriteRate)]
    assert {status.aligned.reason for status in statuses} == {"Steering", "PhaseOff"}
    assert statuses[-1].skew == pytest.approx(0.02)


def test_hostile_reports_move_nothing():
    control = RateControl()
    actions, holds, statuses = [], {}, {}

    def step(now, *events):
        for action in control.step(now, events):
            match action:
                case HoldPod():
                    holds[action.pod] = action
                    actions.append(action)
                case WriteRate(uid, status):
                    statuses[uid] = status

    pods = tuple(member(f"p{n}", f"n{n}", cores=1.0) for n in range(4))
    record = Record(0.4, 2.0, 0.41, 0.1, 0.4, True, 0.02)
    step(0.0, RateApplied(rate("a", 0.4, aligned=True, max_rate=2.0), record), MembersSeen("a", pods))
    for now in range(1, 80):
        for n in range(4):
            begins = 1e9 if n == 0 else 50.0
            phase = PhaseSeen(begins, 1e9, -1.0 if n == 0 else 0.0001, 1e9, 2**62, 2**62 if n == 0 else 0)
            line = ReportedPod(f"p{n}", 2**62, 1e9, 4096.0, 1e9, phase, 0.0)
            stray = ReportedPod("stranger", 0, 0.0, None, None, phase, 1.0)
            step(float(now), PodsReported(f"n{n}", float(now), (line, stray), 1e9))
    assert {round(hold.grid.begins % 0.1, 6) % 0.1 for hold in holds.values()} == {0.0}, "50.0, as most say"
    assert len(actions) == 8, "each pod is named without and with the origin"
    assert statuses["a"].aligned.status == "False"
