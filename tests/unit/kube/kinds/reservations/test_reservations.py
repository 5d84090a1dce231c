"""The life of a reservation at the edge: asked about, answered, active, over; what a new leader makes of its status."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from clocks import NO_CLIENT
from term_tools import make_tools

from punctual.kube import api
from punctual.kube.cluster.caches import Caches
from punctual.kube.kinds.reservations.records import restore
from punctual.kube.kinds.reservations.reservations import Reservations
from punctual.kube.known.directory import Directory
from punctual.notation.duration import format_time
from punctual.scheduling.model.actions import AnswerReservation, OfferWindow
from punctual.scheduling.model.events import ReservationApplied, ReservationDeleted, Share
from punctual.scheduling.model.processors import Place
from punctual.verdict import Verdict

DAY = 86400.0
BEGIN = 1_900_000_000.0
YES = Verdict("True", "Feasible", "2 processors for 1m0s")
NO = Verdict("False", "InfeasibleReservation", "too few")
PLACES = (Place("n1", 0), Place("n1", 1))


class Edge:
    """The windows' controller between a directory and a pool, all of it visible."""

    def __init__(self, directory=None):
        self.at, self.doubted = BEGIN, False
        self.directory = directory or Directory()
        self.told, self.statuses, self.events, self.changed, self.nodes = [], [], [], [], frozenset({"n1"})
        self.notes = []
        caches = Caches(NO_CLIENT)
        caches.directory, caches.labels = self.directory, lambda _: {"team": "a"}
        caches.nodes_of = lambda _pool, _selects: self.nodes
        actors = SimpleNamespace(tell=lambda _pool, event: self.told.append(event), runs=self.directory.pools.named)
        kinds = SimpleNamespace(signal=lambda _kind, key: self.changed.append(key))
        tools = replace(make_tools(self, self.now, caches=caches, epoch=7, kinds=kinds), clock=self)
        self.windows = Reservations(tools, actors)
        self.add_pool()

    def now(self):
        return self.at

    def submit(self, _key, operation):
        self.statuses.append(operation.body)

    def forget(self, _key):
        pass

    def emit(self, _about, kind, reason, note):
        self.events.append((kind, reason))
        self.notes.append(note)

    def add_pool(self, **spec):
        spec = {"nodeSelector": {}, "processor": {"cpu": "1"}, **spec}
        body = {"apiVersion": api.API_VERSION, "kind": "Pool", "metadata": {"name": "main", "uid": "p"}, "spec": spec}
        self.directory.pools.observe(body)

    def edit_pool(self, **reservations):
        """Put an edit of the pool's ``reservations`` in force, and let it be heard of."""
        rights = api.PoolReservations.model_validate(reservations, strict=True)
        self.directory.pools.named("main").term.in_force = api.PoolSelectors(node_selector={}, reservations=rights)
        for known in list(self.directory.reservations.values()):
            self.windows.consider(known)

    def add(self, start=60.0, end=120.0, uid="u", **spec):
        meta = {"name": "r", "namespace": "ns", "uid": uid, "generation": 1, "creationTimestamp": format_time(BEGIN)}
        spec = {"pool": "main", "start": format_time(BEGIN + start), "end": format_time(BEGIN + end), **spec}
        known = self.directory.reservations.observe(
            {"apiVersion": api.API_VERSION, "kind": "Reservation", "metadata": meta, "spec": spec}
        )
        self.windows.consider(known)
        return known

    def answer(self, verdict=YES, places=PLACES, which=0):
        asked = [event for event in self.told if isinstance(event, ReservationApplied)]
        self.windows.carry_out("main", AnswerReservation(asked[which].reservation.uid, verdict, places))

    def write(self):
        self.windows.written(self.directory.reservations["u"], self.status())

    def tend(self):
        for known in self.windows.tend():
            self.windows.consider(known)

    def status(self):
        api.ReservationStatus.model_validate(self.statuses[-1]["status"], strict=True)
        return self.statuses[-1]["status"]

    def condition(self, kind):
        found = {c["type"]: (c["status"], c["reason"], c["message"]) for c in self.status()["conditions"]}
        return found.get(kind)

    def inside(self, pool="main"):
        """Return the window of a job that names the reservation."""
        return self.directory.reservations.inside("r", "ns", pool)


@pytest.fixture
def edge():
    return Edge()


def test_a_window_is_asked_about_once_and_its_answer_written(edge):
    known = edge.add(processors=2)
    (event,) = edge.told
    asked = event.reservation
    assert (asked.start, asked.end, asked.processors, asked.group) == (BEGIN + 60, BEGIN + 120, 2, "u")
    edge.answer()
    edge.windows.consider(known)
    assert len(edge.told) == 1
    status = edge.status()
    assert (status["state"], status["processors"], status["epoch"]) == ("Booked", 2, 7)
    assert status["windows"][0]["nodes"] == [{"name": "n1", "processors": 2}]
    assert edge.condition("Admitted") == ("True", "Feasible", "2 processors for 1m0s")
    assert edge.condition("Active")[:2] == ("False", "NotActive")


def test_it_becomes_active_and_is_over_by_the_clock(edge):
    known = edge.add(processors=2)
    edge.answer()
    written = len(edge.statuses)
    for edge.at in (BEGIN + 30, BEGIN + 59.9):
        edge.tend()
    assert len(edge.statuses) == written
    edge.at = BEGIN + 60
    edge.tend()
    assert edge.status()["state"] == "Active"
    assert edge.condition("Active")[:2] == ("True", "Active")
    assert edge.notes[-1] == f"2 processors kept empty until {format_time(BEGIN + 120)}"
    edge.at = BEGIN + 120
    edge.tend()
    assert edge.status()["state"] == "Completed"
    assert edge.condition("Completed")[:2] == ("True", "Completed")
    assert known.term.windows.finished == BEGIN + 120
    assert not known.term.windows.held
    assert edge.events == [("Normal", "Feasible"), ("Normal", "Active"), ("Normal", "Completed")]


def test_a_new_leader_tells_the_pool_what_was_promised_and_asks_nothing_twice(edge):
    edge.add(processors=2)
    edge.answer()
    later = Edge()
    later.at = BEGIN + 70
    body = edge.statuses[-1]
    meta = {**body["metadata"], "generation": 1, "creationTimestamp": format_time(BEGIN)}
    spec = {"pool": "main", "start": format_time(BEGIN + 60), "end": format_time(BEGIN + 120), "processors": 2}
    known = later.directory.reservations.observe({**body, "metadata": meta, "spec": spec})
    restore(known, api.parse_status(api.ReservationStatus, body))
    (event,) = later.windows.recorded("main")
    assert event.held == (Share("n1", 2),)
    assert event.reservation == edge.told[0].reservation
    later.windows.consider(known)
    assert later.told == []
    later.tend()
    assert later.status()["state"] == "Active"
    assert later.inside() == "u"


def test_deleting_it_gives_all_windows_back(edge):
    known = edge.add(processors=2, recurrence={"every": "7d"})
    edge.answer()
    names = [event.reservation.uid for event in edge.told]
    edge.windows.gone(known)
    assert edge.told[4:] == [ReservationDeleted(name) for name in names]
    assert edge.changed == ["ns/r"]


def test_jobs_wait_until_the_answer_is_written(edge):
    assert edge.inside()[0] == "ReservationNotFound"
    edge.add(processors=2)
    assert edge.inside() is None
    edge.answer()
    assert edge.inside() is None
    edge.write()
    assert edge.changed == ["ns/r"]
    assert edge.inside() == "u"
    assert edge.inside(pool="other")[0] == "ReservationRefused"


def test_it_waits_for_its_pool_and_is_asked_about_when_that_comes(edge):
    edge.directory.pools.forget(edge.directory.pools.named("main").uid)
    known = edge.add(processors=2)
    assert edge.condition("Admitted")[:2] == ("False", "PoolNotFound")
    assert edge.told == []
    edge.add_pool()
    edge.windows.consider(known)
    edge.answer()
    assert edge.condition("Admitted")[:2] == ("True", "Feasible")
    edge.directory.pools.forget(edge.directory.pools.named("main").uid)
    edge.windows.consider(known)
    assert edge.condition("Admitted")[:2] == ("False", "PoolNotFound"), "and with it all it had"


def test_a_pool_that_does_not_serve_the_namespace_is_not_asked(edge):
    edge.directory.pools.forget(edge.directory.pools.named("main").uid)
    edge.add_pool(namespaceSelector={"matchLabels": {"team": "b"}})
    edge.add(processors=2)
    assert edge.condition("Admitted")[:2] == ("False", "NotAllowed")
    assert edge.told == []


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        (
            {
                "start": -90000.0,
                "end": -89000.0,
                "processors": 2,
                "recurrence": {"every": "1d", "until": "2000-01-01T00:00:00Z"},
            },
            "InvalidSpec",
            "spec.recurrence.until: ",
        ),
        (
            {"processors": 2, "recurrence": {"every": "1d", "timeZone": "X/Y"}},
            "InvalidSpec",
            "spec.recurrence.timeZone: ",
        ),
        ({"processors": 0}, "InvalidSpec", "spec.processors: "),
        ({"end": 60.0, "processors": 1}, "InvalidSpec", "spec.end: "),
        ({"processors": 1, "transferShare": "110%"}, "InvalidSpec", "spec.transferShare: "),
        ({"processors": 1, "transferShare": "-10%"}, "InvalidSpec", "spec.transferShare: "),
        ({"processors": 1, "transferShare": "0.1"}, "InvalidSpec", "spec.transferShare: "),
    ],
)
def test_what_cannot_be_is_refused_with_the_field(edge, spec, reason, says):
    edge.add(**spec)
    status, told, text = edge.condition("Admitted")
    assert (status, told) == ("False", reason)
    assert says in text
    assert edge.status()["state"] == "Refused"
    assert edge.told == []


def test_while_the_time_is_in_doubt_nothing_is_asked_refused_or_over(edge):
    edge.add(processors=2)
    edge.answer()
    written = len(edge.statuses)
    edge.doubted = True
    edge.at = BEGIN + 3600.0
    edge.tend()
    other = edge.add(start=60.0, end=120.0, uid="v", processors=2)
    assert len(edge.statuses) == written
    assert len(edge.told) == 1
    edge.doubted = False
    edge.at = BEGIN + 5.0
    edge.tend()
    assert edge.status()["state"] == "Booked"
    assert [event.reservation.group for event in edge.told] == ["u", other.uid]


def test_a_reservation_that_went_while_the_time_was_in_doubt_is_not_asked_about(edge):
    edge.doubted = True
    known = edge.add(processors=2)
    edge.directory.reservations.forget("u")
    edge.windows.gone(known)
    edge.doubted = False
    edge.tend()
    assert edge.told == []


TEAM_B = {"match_labels": {"team": "b"}}


def test_a_pool_takes_reservations_only_from_the_namespaces_that_it_says(edge):
    edge.directory.pools.forget(edge.directory.pools.named("main").uid)
    edge.add_pool(reservations={"namespaceSelector": {"matchLabels": {"team": "b"}}})
    known = edge.add(processors=2)
    status, reason, text = edge.condition("Admitted")
    assert (status, reason) == ("False", "NotAllowed")
    assert text == (
        "Pool main takes no reservations from namespace ns: its labels do not match the pool's "
        "spec.reservations.namespaceSelector. Use another pool, or have the namespace labelled"
    )
    assert edge.told == []
    edge.edit_pool(namespace_selector={"match_labels": {"team": "a"}})
    assert len(edge.told) == 1
    assert known.term.windows.refusal is None


@pytest.mark.parametrize("edit", [{"horizon": 1}, {"namespace_selector": TEAM_B}])
def test_an_edit_of_the_pools_reservations_changes_nothing_about_what_is_booked(edge, edit):
    known = edge.add(start=2 * DAY, end=2 * DAY + 60, processors=2, recurrence={"every": "7d"})
    for which in range(4):
        edge.answer(which=which)
    edge.write()
    booked = edge.status()
    edge.edit_pool(**edit)
    assert edge.status() == booked
    assert edge.inside() == "u"
    assert [e for e in edge.told if isinstance(e, ReservationDeleted)] == []
    edge.at = BEGIN + 2 * DAY
    edge.tend()
    assert edge.status()["state"] == "Active"
    edge.at = BEGIN + 9 * DAY + 60
    edge.tend()
    assert [w["state"] for w in edge.status()["windows"]] == ["Booked", "Booked"]
    assert len(edge.told) == 4, "no window more is asked about"
    assert known.term.windows.finished is None


def test_a_new_leader_asks_about_a_window_when_it_comes_within_the_horizon(edge):
    edge.add(start=30 * DAY, end=30 * DAY + 60, processors=2)
    status = api.ReservationStatus.model_validate(edge.status(), strict=True)
    new = Edge()
    known = new.add(start=30 * DAY, end=30 * DAY + 60, processors=2)
    restore(known, status)
    new.windows.consider(known)
    new.at = BEGIN + 2 * DAY + 60
    new.tend()
    assert len(new.told) == 1


@pytest.mark.parametrize(("spec", "part"), [({}, 0.0), ({"transferShare": "25%"}, 0.25)])
def test_the_part_in_which_the_link_is_kept_is_told_to_the_pool_and_to_the_next_leaders(edge, spec, part):
    edge.add(processors=2, **spec)
    edge.answer()
    (asked,), (held,) = edge.told, edge.windows.recorded("main")
    assert asked.reservation.io_ratio == part
    assert asked.reservation.sent == BEGIN + 60 + 60 * part
    assert held.reservation == asked.reservation


def test_a_refusal_carries_the_window_that_would_do(edge):
    known = edge.add(processors=2)
    edge.answer(NO, ())
    assert edge.condition("Admitted") == ("False", "InfeasibleReservation", "too few")
    edge.windows.carry_out("main", OfferWindow(edge.told[0].reservation.uid, BEGIN + 500))
    assert format_time(BEGIN + 500) in edge.condition("Admitted")[2]
    assert format_time(BEGIN + 560) in edge.condition("Admitted")[2]
    assert edge.status()["windows"][0]["offer"] == format_time(BEGIN + 500)
    assert not known.term.windows.held


def test_a_selector_that_means_no_node_is_named(edge):
    edge.nodes = frozenset()
    edge.add(nodes={"matchLabels": {"a": "b"}})
    assert "spec.nodes: selects no node" in edge.condition("Admitted")[2]
