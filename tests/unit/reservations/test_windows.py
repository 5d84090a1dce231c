"""The life of a reservation's windows: asked about, answered, active, over; what follows for jobs that name it."""

import pytest

from punctual.notation.duration import format_time
from punctual.reservations.recurrence import AskedWindows
from punctual.reservations.windows import PoolTerms, Windows, inside
from punctual.scheduling.model.events import Share
from punctual.scheduling.model.processors import Place
from punctual.verdict import Verdict

DAY = 86400.0
BEGIN = 1_900_000_000.0
YES = Verdict("True", "Feasible", "2 processors for 1m0s")
NO = Verdict("False", "InfeasibleReservation", "too few")
PLACES = (Place("n1", 0), Place("n1", 1))
AHEAD = "Pool main reserves at most 28 days ahead (its spec.reservations.horizon)"
LATER = (
    f"spec.end: the window ends at {format_time(BEGIN + 30 * DAY + 60)}, and {AHEAD}: choose one that ends by "
    f"{format_time(BEGIN + 28 * DAY)}, or wait: it is evaluated at {format_time(BEGIN + 2 * DAY + 60)}"
)
NOT_FOUND = ("PoolNotFound", "spec.pool: there is no Pool main")


class Life:
    """One reservation and its Pool, which answers as the test says. ``pool``: what the pool grants, or a refusal."""

    def __init__(self, start=60.0, end=120.0, **asked):
        self.at, self.pool = BEGIN, PoolTerms(28, None)
        self.windows = Windows("u", "main", BEGIN)
        self.asked = AskedWindows(start=BEGIN + start, end=BEGIN + end, **{"processors": 2, **asked})
        self.told, self.notes, self.refusals = [], [], 0

    def request(self):
        requests = self.windows.request(self.asked, self.pool, self.at)
        self.refusals += requests is None
        self.told += [event.reservation for event in requests or ()]
        return self

    def answer(self, verdict=YES, places=PLACES, which=0):
        self.notes.append(self.windows.answer(self.told[which].uid, verdict, places))

    def offer(self, start):
        assert self.windows.offer(self.told[0].uid, start, self.at, self.pool.horizon)

    def pass_to(self, at):
        """Let the clock go on, as the edge does when it looks after a reservation."""
        self.at = BEGIN + at
        if self.windows.by_name:
            self.notes += self.windows.advance(self.at)
            if self.asked.every is not None:
                self.request()
            self.windows.clean(self.asked, self.at)
        else:
            self.request()

    @property
    def states(self):
        return [window.state for window in self.windows.answered]

    @property
    def reasons(self):
        return [(note.reason, note.good) for note in self.notes]

    def condition(self, kind):
        return self.windows.verdicts().get(kind)

    def inside(self, pool="main"):
        return inside(self.windows, "r", namespace="ns", pool=pool)


def test_a_window_is_asked_about_once():
    life = Life().request()
    (asked,) = life.told
    assert (asked.start, asked.end, asked.processors, asked.group) == (BEGIN + 60, BEGIN + 120, 2, "u")
    assert (asked.uid, asked.arrival) == (f"u/{BEGIN + 60:.6f}", BEGIN)
    assert len(life.request().told) == 1
    life.answer()
    assert len(life.request().told) == 1


@pytest.mark.parametrize(
    ("at", "states", "held", "look"),
    [
        (0.0, ["Booked"], True, 60.0),
        (59.9, ["Booked"], True, 60.0),
        (60.0, ["Active"], True, 120.0),
        (119.9, ["Active"], True, 120.0),
        (120.0, ["Completed"], False, None),
    ],
)
def test_a_window_begins_and_ends_by_the_clock(at, states, held, look):
    life = Life().request()
    life.answer()
    life.pass_to(at)
    assert (life.states, life.windows.held) == (states, held)
    assert look is None or life.windows.look == BEGIN + look
    assert life.windows.finished == (None if held else BEGIN + 120)


def test_what_a_window_does_by_the_clock_is_told():
    life = Life().request()
    life.answer()
    assert life.condition("Active")[:2] == ("False", "NotActive")
    life.pass_to(60)
    assert life.condition("Active") == ("True", "Active", f"2 processors until {format_time(BEGIN + 120)}")
    assert life.notes[-1].message == f"2 processors kept empty until {format_time(BEGIN + 120)}"
    assert life.condition("Completed") is None
    life.pass_to(120)
    assert life.condition("Completed")[:2] == ("True", "Completed")
    assert life.reasons == [("Feasible", True), ("Active", True), ("Completed", True)]


def test_a_window_that_passed_while_nothing_led_was_never_active():
    life = Life(processors=1).request()
    life.answer()
    life.pass_to(121)
    assert life.states == ["Completed"]
    assert life.reasons == [("Feasible", True), ("Completed", True)]


@pytest.mark.parametrize(
    ("start", "offer", "nearest"),
    [
        (500.0, 500.0, f"the nearest window is {format_time(BEGIN + 500)} to {format_time(BEGIN + 560)}"),
        (None, None, "no window as long would be reserved at any later time"),
        (28 * DAY - 60, 28 * DAY - 60, None),
        (28 * DAY, None, "no window as long would be reserved within the horizon of Pool main"),
    ],
)
def test_a_refusal_carries_the_window_that_would_do(start, offer, nearest):
    life = Life().request()
    life.answer(NO, ())
    assert life.condition("Admitted") == NO
    life.offer(None if start is None else BEGIN + start)
    assert life.windows.answered[0].offer == (None if offer is None else BEGIN + offer)
    assert nearest is None or life.condition("Admitted").message == f"too few; {nearest}"
    assert not life.windows.held
    assert life.reasons == [("InfeasibleReservation", False)]


def test_what_is_said_of_a_window_that_is_gone_changes_nothing():
    life = Life().request()
    life.windows.release()
    assert life.windows.answer(life.told[0].uid, YES, PLACES) is None
    assert not life.windows.offer(life.told[0].uid, None, BEGIN, 28)
    assert life.states == []


def test_what_nodes_took_away_is_told():
    life = Life().request()
    life.answer()
    lost = Verdict("True", "CapacityLost", "1 of 2 processors are left, because nodes were lost")
    life.answer(lost, PLACES[:1])
    assert life.condition("Admitted")[:2] == ("True", "CapacityLost")
    assert life.windows.answered[0].nodes == (Share("n1", 1),)
    assert life.reasons[-1] == ("CapacityLost", False)


def test_each_window_of_a_recurrence_is_answered_by_itself_and_new_ones_follow():
    life = Life(every=7).request()
    assert len(life.told) == 4
    for which in (0, 2, 3):
        life.answer(which=which)
    life.answer(NO, (), which=1)
    status, reason, text = life.condition("Admitted")
    assert (status, reason) == ("False", "InfeasibleReservation")
    assert text.startswith(f"1 of 4 windows, that of {format_time(BEGIN + 60 + 7 * DAY)}: too few")
    assert life.states == ["Booked", "Refused", "Booked", "Booked"]
    life.pass_to(119)
    assert len(life.told) == 4
    life.pass_to(120)
    assert len(life.told) == 5, "the one that ends in 28 days has come within the horizon"
    life.answer(which=4)
    life.pass_to(120)
    assert life.states == ["Refused", "Booked", "Booked", "Booked"]
    assert life.windows.finished is None


def test_a_recurrence_is_over_behind_its_last_window():
    life = Life(every=1, until=BEGIN + 2 * DAY).request()
    for which in (0, 1):
        life.answer(which=which)
    life.pass_to(DAY + 120)
    assert life.windows.finished == BEGIN + DAY + 120
    assert life.states == ["Completed"]


@pytest.mark.parametrize("part", [0.0, 0.25, 1.0])
def test_the_part_in_which_the_link_is_kept_is_told_to_the_pool_and_to_the_next_leaders(part):
    life = Life(transfer_share=part).request()
    life.answer()
    (held,) = life.windows.promised(life.asked, None, BEGIN)
    assert life.told[0].io_ratio == part
    assert life.told[0].sent == BEGIN + 60 + 60 * part
    assert (held.reservation, held.held) == (life.told[0], (Share("n1", 2),))


def test_a_node_is_kept_for_its_maintenance_as_it_was_promised():
    life = Life(processors=None)
    life.pool = PoolTerms(28, frozenset({"n1"}))
    life.request()
    assert (life.told[0].processors, life.told[0].nodes) == (0, {"n1"})
    life.answer()
    moved = frozenset({"n2"})  # the label has been moved
    (event,) = life.windows.promised(life.asked, moved, BEGIN)
    assert event.reservation.nodes == {"n1"}
    assert life.windows.by_name


@pytest.mark.parametrize(("at", "promises"), [(0.0, 1), (119.9, 1), (120.0, 0)])
def test_a_window_that_is_held_stands_though_its_spec_cannot_be_read_any_more(at, promises):
    life = Life().request()
    assert list(life.windows.promised(life.asked, None, BEGIN)) == [], "it has no answer yet"
    life.answer()
    found = list(life.windows.promised(None, None, BEGIN + at))
    assert [event.reservation.processors for event in found] == [2] * promises


def test_giving_it_back_names_the_windows_that_the_pool_knows():
    life = Life(every=7).request()
    life.answer()
    life.answer(NO, (), which=1)
    names = [asked.uid for asked in life.told]
    assert life.windows.release() == [names[0], *names[2:]]
    assert life.windows.by_name == {}
    assert life.windows.release() == []


@pytest.mark.parametrize(
    ("asked", "nodes", "reason", "says"),
    [
        (
            {"end": 29 * DAY, "processors": 1},
            None,
            "TooFarAhead",
            f"spec.end: the window lasts 695h59m, and {AHEAD}: make it ",
        ),
        ({"start": 30 * DAY, "end": 30 * DAY + 60, "processors": 1}, None, "TooFarAhead", LATER),
        ({"start": -5.0}, None, "InvalidSpec", "spec.start: "),
        (
            {"start": -90000.0, "end": -89000.0, "every": 1, "until": 946_684_800.0},
            None,
            "InvalidSpec",
            "spec.recurrence.until: ",
        ),
        ({"every": 1, "time_zone": "X/Y"}, None, "InvalidSpec", "spec.recurrence.timeZone: "),
        ({"end": 86000.0, "every": 1}, None, "InvalidSpec", "spec.end: "),
        ({"processors": None}, frozenset(), "InfeasibleReservation", "spec.nodes: selects no node of Pool main"),
    ],
)
def test_what_cannot_be_is_refused_with_the_field(asked, nodes, reason, says):
    life = Life(**asked)
    life.pool = PoolTerms(28, nodes)
    life.request()
    status, told, text = life.condition("Admitted")
    assert (status, told) == ("False", reason)
    assert says in text
    assert (life.refusals, life.told) == (1, [])


def test_what_its_pool_says_against_it_refuses_it_until_the_pool_says_something_else():
    life = Life()
    life.pool = ("NotAllowed", "not from there")
    life.request()
    assert life.condition("Admitted") == ("False", "NotAllowed", "not from there")
    life.pool = PoolTerms(28, None)
    life.request()
    assert (life.windows.refusal, len(life.told)) == (None, 1)


def test_a_window_that_is_held_is_lost_only_with_its_pool():
    life = Life().request()
    life.answer()
    life.pool = ("NotAllowed", "not from there")
    life.request()
    assert (life.states, life.windows.refusal, life.refusals) == (["Booked"], None, 0)
    life.pool = NOT_FOUND
    life.request()
    assert (life.states, life.windows.refusal, life.refusals) == ([], NOT_FOUND, 1)


def test_a_window_behind_the_horizon_is_asked_about_when_it_comes_within():
    life = Life(start=30 * DAY, end=30 * DAY + 60).request()
    for at in (2 * DAY, 2 * DAY + 60):
        assert life.told == []
        assert life.condition("Admitted")[:2] == ("False", "TooFarAhead")
        assert life.windows.look == BEGIN + 2 * DAY + 60
        life.pass_to(at)
    life.answer()
    assert life.states == ["Booked"]


def test_a_longer_horizon_lets_in_what_was_too_far_ahead():
    life = Life(start=30 * DAY, end=30 * DAY + 60).request()
    life.pool = PoolTerms(35, None)
    assert len(life.request().told) == 1


def test_a_recurrence_waits_for_a_window_that_is_still_behind_the_horizon():
    life = Life(every=7)
    life.pool = PoolTerms(2, None)
    assert len(life.request().told) == 1
    life.answer()
    life.windows.recorded = True
    life.pass_to(120)
    assert life.states == ["Completed"]
    assert life.windows.finished is None
    comes = BEGIN + 5 * DAY + 120
    assert life.inside() == (
        "ReservationRefused",
        f"Reservation r: no window is reserved, the next is evaluated at {format_time(comes)}",
    )
    life.pass_to(5 * DAY + 120)
    assert len(life.told) == 2
    life.answer(which=1)
    assert life.states == ["Booked"]
    assert life.inside() == "u"


def test_a_job_is_told_which_window_it_has_or_why_it_has_none():
    assert inside(None, "r", namespace="ns", pool="main") == (
        "ReservationNotFound",
        "there is no Reservation r in namespace ns: create it, and this job is evaluated",
    )
    life = Life().request()
    assert life.inside() is None, "it has no answer"
    life.answer()
    assert life.inside() is None, "the answer is not recorded"
    life.windows.recorded = True
    assert life.inside() == "u"
    assert life.inside(pool="other")[0] == "ReservationRefused"
    life.pass_to(120)
    assert life.inside() == ("ReservationRefused", "Reservation r: it is over")


def test_jobs_are_refused_with_the_reservation_that_they_name():
    life = Life().request()
    life.answer(NO, ())
    assert life.inside() == ("ReservationRefused", "Reservation r: too few")
    life = Life()
    life.pool = NOT_FOUND
    life.request()
    assert life.inside() == ("ReservationRefused", f"Reservation r: {NOT_FOUND[1]}")
