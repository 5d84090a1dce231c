"""What each mode wants, keeps and leaves: values, without files or clocks."""

import pytest

from punctual.wire import ApplicationOrder, GuestOrder, HoldOrder, LineOrder, ResponseModel, SetPoint
from punctual_agent.cgroup import Cap
from punctual_agent.modes import MODES
from punctual_agent.modes.application import ApplicationMode, Folder
from punctual_agent.modes.guest import GuestMode
from punctual_agent.modes.hold import HoldMode
from punctual_agent.modes.line import LineMode
from punctual_agent.modes.mode import Moment, Told
from punctual_agent.state import Saved, State

HOLD, KEPT = HoldMode(0.9, 0.1, 0.3), HoldMode(0.9, 0.1)
LINE = LineMode(0.9, 0.1, 0.3, ends=50.0)
GUEST = GuestMode(0.01, 0.1, 7)
APPLICATION = ApplicationMode(Cap(3_000, 10_000), {"": Folder(Cap(None), Cap(None), (Cap(3_000, 10_000),))})
ALL = (HOLD, KEPT, LINE, LINE.at(0.4), GUEST, APPLICATION)


def cap(cores):
    return None if cores is None else Cap.of(cores, 0.1)


@pytest.mark.parametrize(
    ("mode", "answered", "away", "begins"),
    [
        (HOLD, 0.3, 0.9, 0.3),
        (KEPT, 0.9, 0.9, None),
        (LINE, 0.3, 0.9, 0.3),
        (LINE.at(0.4), 0.4, 0.4, 0.4),
        (GUEST, 0.01, 0.01, 0.01),
        (GuestMode(0.01, 0.1, 7, 2.5), 2.5, 2.5, 2.5),
    ],
    ids=["hold", "saved", "line without a choice", "line", "guest that has come", "guest"],
)
def test_what_a_mode_wants_while_the_operator_answers_is_away_or_has_not_answered_yet(mode, answered, away, begins):
    moments = (Moment(10.0, answered=a, begun=b) for a, b in ((True, True), (False, True), (True, False)))
    assert [mode.wanted(moment) for moment in moments] == [cap(answered), cap(away), cap(begins)]


def test_a_line_that_has_ended_while_the_operator_is_away_rests():
    line, moments = LINE.at(0.4), ((50.0, False), (50.1, False), (50.1, True))
    found = [line.wanted(Moment(now, answered=answered, begun=True)) for now, answered in moments]
    assert found == [cap(0.4), cap(0.9), cap(0.4)]


def test_small_steps_of_a_line_are_left_out_but_the_one_to_its_own_processor_is_not():
    chosen = [LINE.at(0.302).at(cores).steered for cores in (0.3045, 0.306, 0.3)]
    assert chosen == [0.302, 0.306, 0.3]


def test_a_mode_leaves_its_rest_cap_and_an_application_its_last_one():
    assert [mode.rest for mode in ALL] == [*[cap(0.9)] * 4, cap(0.01), None]


def test_what_a_mode_keeps_comes_back_and_moves_no_cap_by_itself(tmp_path):
    state = State(tmp_path)
    saved = Saved(3, 5.0, {str(n): mode.saved for n, mode in enumerate(ALL)})
    state.save(saved)
    assert state.load() == saved
    assert [*saved.modes.values()] == [*[KEPT] * 4, GUEST, APPLICATION]
    assert GuestMode(0.01, 0.1, 7, 2.5).saved == GUEST, "its part changes each second, and is measured again"


ORDERS = [
    HoldOrder(),
    LineOrder(pool="main", pool_cores=2.0, units=9, seconds_left=40.0, model=ResponseModel(a=0.0, b=1.0)),
    ApplicationOrder(),
    GuestOrder(weight=7),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.kind)
@pytest.mark.parametrize("before", [None, *ALL], ids=str)
def test_whatever_mode_a_pod_had_its_set_point_makes_the_new_one(order, before):
    point = SetPoint(uid="p", cap=0.3, rest_cap=0.9, mode=order)
    made = MODES[order.kind].ordered(Told(point, 10.0, before, None))
    assert made.kind == order.kind
    kept = {
        "Hold": HOLD,
        "Line": LINE.at(0.4) if before == LINE.at(0.4) else LINE,
        "Application": ApplicationMode(Cap.of(0.3, 0.1), APPLICATION.folders if before is APPLICATION else {}),
        "Guest": GuestMode(0.9, 0.1, 7),
    }
    assert made == kept[order.kind]


def test_the_first_cap_of_a_line_is_the_one_that_an_agent_before_this_has_chosen():
    point = SetPoint(uid="p", cap=0.3, rest_cap=0.9, mode=ORDERS[1])
    for there, steered in ((cap(0.5), 0.5), (Cap(None), 2.0), (None, None)):
        assert LineMode.ordered(Told(point, 10.0, KEPT, there)).steered == steered
