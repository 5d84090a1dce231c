"""The small values of the core: ranges, counts, the ledger's moves, start-ups, pilots, offers, findings."""

import pkgutil
from dataclasses import FrozenInstanceError, astuple, fields, is_dataclass
from importlib import import_module
from itertools import pairwise
from types import ModuleType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from world import World, job

from punctual import reasons, scheduling, theory
from punctual.errors import InvariantError
from punctual.scheduling.chunks import ledger
from punctual.scheduling.engine.health import finding
from punctual.scheduling.model import pilots
from punctual.scheduling.model.events import NodeObserved, PodObserved
from punctual.scheduling.model.job import Chunk, JobRecord, PilotSample, Transfers
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.processors import Occupant, Place, Processors
from punctual.scheduling.model.ranges import Counts, Range, RangeCount, Ranges, tiles
from punctual.scheduling.model.startup_times import StartupTimes
from punctual.scheduling.model.wording import last_words, span
from punctual.scheduling.state.job_state import ChunkObservation, expected_end
from punctual.theory.cost import Cost

CHANGE = {
    "scheduling.model": {"Processors", "Scarcity"},
    "scheduling.placement": {"Blackouts", "LazyPlan", "Placement", "Timeline", "_Port", "_Search"},
    "scheduling.admission": {
        "BookedReservations", "ExactSchedule", "FastSchedule", "StatisticalQueue", "UtilizationSchedule", "WaitingJob",
        "WaitingLoad", "_Lookahead", "_Queue", "_Used",
    },
    "scheduling.view": set(),
    "theory": {"_Line", "_Served", "_Walk"},
}  # fmt: skip
"""The classes that are no values, by package. In engine and state nearly all change."""


def dataclasses_in(*packages: ModuleType) -> list[type]:
    names = [found.name for p in packages for found in pkgutil.walk_packages(p.__path__, f"{p.__name__}.")]
    members = [(name, each) for name in names for each in vars(import_module(name)).values()]
    own = [each for name, each in members if isinstance(each, type) and each.__module__ == name]
    return [each for each in own if is_dataclass(each)]


DATACLASSES = dataclasses_in(scheduling, theory)


def cannot_change(each: type) -> bool:
    try:
        setattr(object.__new__(each), fields(each)[0].name, None)
    except FrozenInstanceError:
        return True
    return False


@pytest.mark.parametrize("package", CHANGE)
def test_all_classes_but_the_named_ones_are_values_that_cannot_change(package):
    """An event or a demand that one reader changed would be another one for all that hold it."""
    there = [each for each in DATACLASSES if f"{each.__module__}.".startswith(f"punctual.{package}.")]
    assert {each.__name__ for each in there if not cannot_change(each)} == CHANGE[package]


@pytest.mark.parametrize("each", DATACLASSES, ids=lambda each: each.__name__)
def test_no_instance_has_an_attribute_that_its_class_does_not_declare(each):
    with pytest.raises(AttributeError):
        object.__setattr__(object.__new__(each), "misspelt", None)


def test_values_of_five_or_more_fields_are_made_by_the_names_of_these():
    many = [each for each in DATACLASSES if cannot_change(each) and sum(f.init for f in fields(each)) >= 5]
    by_order = {each.__name__ for each in many if not all(f.kw_only for f in fields(each) if f.init)}
    assert by_order == {"Plan", "StoreResult"}


def test_classes_with_arrays_are_compared_by_identity():
    """Arrays have no single truth value."""
    found = {each.__name__ for each in DATACLASSES if each.__eq__ is object.__eq__}
    assert found == {"Blackouts", "LazyPlan", "Partition", "Placement", "Timeline"}


pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)


def members(ranges: Ranges) -> set[int]:
    return {u for r in ranges for u in range(r.begin, r.end)}


@given(pairs, pairs)
def test_ranges_are_sets(a, b):
    left, right = Ranges.of(*a), Ranges.of(*b)
    for made, wanted in (
        (left | right, members(left) | members(right)),
        (left - right, members(left) - members(right)),
        (left & right, members(left) & members(right)),
    ):
        made.check()
        assert members(made) == wanted
        assert made.total == len(wanted)


@given(pairs, st.data())
def test_slices_cover_the_set_in_order(a, data):
    ranges = Ranges.of(*a)
    cuts = sorted({0, ranges.total, *data.draw(st.lists(st.integers(0, ranges.total), max_size=4))})
    slices = ranges.slices(cuts)
    assert [u for s in slices for r in s for u in range(r.begin, r.end)] == sorted(members(ranges))
    assert [sum(r.size for r in s) for s in slices] == [b - a for a, b in pairwise(cuts)]


counts = st.lists(
    st.tuples(st.sampled_from(["add", "raise", "drop"]), st.integers(0, 20), st.integers(0, 20)), max_size=8
)


@given(counts)
def test_counts_are_step_functions(moves):
    made, naive = Counts(), dict.fromkeys(range(20), 0)
    for what, a, b in moves:
        begin, end = min(a, b), max(a, b)
        if what == "add":
            made = made.add(begin, end)
        elif what == "raise":
            made = made.raise_to(begin, end, 3)
        else:
            made = made.drop(begin, end)
        for u in range(begin, end):
            naive[u] = {"add": naive[u] + 1, "raise": max(naive[u], 3), "drop": 0}[what]
        made.check()
    assert {u: made.largest(u, u + 1) for u in naive} == naive


@pytest.mark.parametrize(
    ("unsound", "why"),
    [
        (Ranges((Range(3, 3),)), "empty or negative"),
        (Ranges((Range(-1, 3),)), "empty or negative"),
        (Ranges((Range(0, 3), Range(3, 4))), "touch"),
        (Ranges((Range(5, 6), Range(0, 3))), "out of order"),
        (Counts((RangeCount(3, 3, 1),)), "empty count"),
        (Counts((RangeCount(3, 4, 0),)), "empty count"),
        (Counts((RangeCount(0, 3, 1), RangeCount(2, 4, 2))), "overlap"),
        (Counts((RangeCount(0, 3, 1), RangeCount(3, 4, 1))), "should be one"),
    ],
    ids=str,
)
def test_unsound_ranges_and_counts_are_an_error(unsound, why):
    with pytest.raises(InvariantError, match=why):
        unsound.check()


def chunk(begin=0, end=10, **more) -> Chunk:
    more.setdefault("attempt", 1)
    return Chunk(begin=begin, end=end, origin=more.pop("origin", end), node="n", created=0.0, promised_end=10.0, **more)


def owning(*chunks: Chunk) -> JobRecord:
    return JobRecord(chunks=chunks)


def test_a_chunk_is_accounted_once():
    c = chunk()
    done = ledger.account(owning(c), c)
    assert done.completed == Ranges.of((0, 10))
    assert not done.chunks
    done.check(10)


def test_a_lost_chunk_under_resume_keeps_what_was_reported():
    c = chunk(10, 20)
    lost = ledger.lose(owning(c), c, durable=4, own=True)
    assert lost.completed == Ranges.of((10, 14))
    assert lost.failed.parts == (RangeCount(14, 20, 1),)
    assert ledger.remaining(20, lost) == Ranges.of((0, 10), (14, 20))


def test_no_two_attempts_share_begin_and_number():
    record = JobRecord(tried=Counts().raise_to(5, 10, 2))
    c = chunk(0, 10, attempt=ledger.next_attempt(record, 0, 10))
    assert c.attempt == 3
    record = ledger.lose(record._replace(chunks=(c,)), c)
    assert ledger.next_attempt(record, 0, 1) == 4  # unit 0 had been tried less often than the rest


def test_who_begins_where_a_whole_range_was_given_back_is_another_attempt():
    record = ledger.cut(owning(chunk(20, 40)), chunk(20, 40), 20)
    (empty,) = record.chunks
    record = ledger.lose(record, empty)
    assert ledger.next_attempt(record, 20, 30) == 2
    assert ledger.remaining(40, record).total == 40


def test_fewer_units_leave_the_failures_of_those_that_are_left_and_of_reduce():
    failed = Counts().add(3, 5).add(10, 11)
    kept = JobRecord(completed=Ranges.of((0, 10)), failed=failed)
    assert ledger.within(kept, 10) == kept
    assert ledger.within(kept, 9).completed == Ranges.of((0, 9))
    assert ledger.within(kept, 9).failed == Counts().add(3, 5)


@pytest.mark.parametrize(("answer", "end"), [(4, 4), (10, 10), (99, 10), (0, 0), (-3, 0)])
def test_an_answer_cuts_within_what_is_owned(answer, end):
    c = chunk(offered=5)
    assert ledger.cut(owning(c), c, answer).chunks[0].end == end


def test_two_owners_of_one_unit_are_an_error():
    with pytest.raises(InvariantError, match="own the same unit"):
        owning(chunk(0, 10), chunk(5, 15)).check(20)


SPEC = PoolSpec(name="p", cpu=0.1, memory=2**20)


@pytest.mark.parametrize(
    ("node", "count"),
    [
        (NodeObserved(name="n", ready=True, cpu=0.6, memory=2**30), 6),
        (NodeObserved(name="n", ready=True, cpu=0.59, memory=2**30), 5),
        (NodeObserved(name="n", ready=True, cpu=4.0, memory=3 * 2**20), 3),
        (NodeObserved(name="n", ready=True, cpu=4.0, memory=2**30, pods=7), 7),
        (NodeObserved(name="n", ready=False, cpu=4.0, memory=2**30), 0),
        (NodeObserved(name="n", ready=True, cpu=4.0, memory=2**30, left_out=reasons.STATIC_CPU_MANAGER), 0),
        (NodeObserved(name="n", ready=True, cpu=-0.5, memory=2**30), 0),
    ],
)
def test_processors_of_a_node(node, count):
    processors = Processors()
    processors.observe(node, SPEC)
    assert processors.whole["n"] == count


def test_a_foreign_pod_takes_free_places_first_and_crowds_out_none_that_runs():
    p = Processors()
    p.observe(NodeObserved(name="n", ready=True, cpu=0.4, memory=2**30), SPEC)
    p.seat(Occupant("j", "Chunk", 0, 1), "n")
    p.seat(Occupant("j", "Chunk", 5, 1), "n")
    p.observe(NodeObserved(name="n", ready=True, cpu=0.3, memory=2**30), SPEC)
    assert p.usable(0.0) == [Place("n", 0), Place("n", 1), Place("n", 2)]
    p.observe(NodeObserved(name="n", ready=True, cpu=0.1, memory=2**30), SPEC)
    assert p.usable(0.0) == [Place("n", 0)]
    assert p.free == 0
    p.check()


def test_startups_beyond_the_declared_setup_become_margin():
    s = StartupTimes([1.0] * 16 + [4.0] * 4)
    assert s.beyond(2.0) == 2.0
    assert StartupTimes([1.0] * 17 + [4.0] * 3).beyond(2.0) == 0.0  # so many may be of one job
    assert StartupTimes([1.0] * 60 + [4.0] * 4).beyond(2.0) == 2.0
    assert s.beyond(5.0) == 0.0
    assert StartupTimes([9.0]).beyond(0.0) == 0.0  # one sample says nothing


@given(st.floats(0.01, 5), st.floats(0, 5))
def test_pilots_separate_chi_from_theta(chi, theta):
    samples: list[PilotSample] = []
    left = 10_000
    while (size := pilots.next_pilot(samples, left)) is not None:
        samples.append(PilotSample(size, theta + chi * size))
        left -= size
    cost = pilots.fit(samples)
    assert len({s.units for s in samples}) >= 2
    assert cost.chi == pytest.approx(chi, rel=1e-6)
    assert cost.theta_cp == pytest.approx(theta, abs=1e-6)


def test_a_job_of_one_unit_is_measured_on_the_safe_side():
    assert pilots.next_pilot([PilotSample(1, 3.0)], 0) is None
    assert pilots.fit([PilotSample(1, 3.0)]).chi == 3.0


def test_what_the_transfers_of_pilots_took_is_told_apart_from_their_work():
    cost = Cost(chi=1.5, tau=0.25, theta_cm=0.5, theta_cp=2.0)
    sizes = 1, 2, 8
    sent = Transfers()
    for units in sizes:
        sent = sent.add(units, 1000 * units, opening=0.5, sending=0.25 * units)
    found = pilots.fit([PilotSample(units, cost.seconds(units)) for units in sizes], sent)
    assert list(astuple(found)) == pytest.approx(list(astuple(cost)))
    alone = pilots.fit([PilotSample(4, cost.seconds(4))], sent)
    assert (alone.tau, alone.theta_cm, alone.chi) == pytest.approx((0.25, 0.5, 2.0))
    nothing_left = pilots.fit(
        [PilotSample(4, 1.0)], sent
    )  # of a pilot that was quicker than transfers are on the whole
    assert nothing_left.chi > 0.0
    assert nothing_left.theta_cp == 0.0


def watched(**more) -> ChunkObservation:
    pod = PodObserved(
        name="p", uid="u", namespace="d", job="j", kind="Chunk", begin=0, end=10, attempt=1, node="n",
        phase=more.pop("phase", "Running"), created=0.0, reason=more.pop("reason", ""),
    )  # fmt: skip
    return ChunkObservation(pod=pod, **more)


@pytest.mark.parametrize(
    ("watch", "now", "reason"),
    [
        (watched(running_since=0.0, moved=0.0, reported=99.0), 100.0, reasons.STALLED),
        (watched(running_since=0.0, moved=50.0, reported=99.0), 100.0, None),
        (watched(running_since=0.0, moved=0.0, reported=50.0), 100.0, None),  # a silent agent is no evidence
        (watched(phase="Pending", reason="ErrImagePull"), 30.0, reasons.IMAGE_UNAVAILABLE),
        (watched(phase="Pending", reason="InvalidImageName"), 30.0, reasons.CHUNK_FAILED),
        (watched(phase="Pending", reason="ContainerCreating"), 590.0, None),  # a large image takes its time
        (watched(phase="Pending", reason="ContainerCreating"), 610.0, reasons.NOT_STARTED),  # and not for ever
        (watched(phase="Pending", reason="NotPlaced"), 15.0, None),
        (watched(phase="Pending", reason="NotPlaced"), 21.0, reasons.NOT_STARTED),
        (watched(phase="Pending", reason="ErrImageNeverPull"), 0.5, reasons.CHUNK_FAILED),
        (watched(phase="Pending", reason="ErrImagePull"), 10.0, None),
        (watched(phase="Pending", reason="Unschedulable"), 6.0, reasons.CAPACITY_LOST),
        (watched(phase="Pending", reason="Nominated"), 6.0, None),  # room is made for it
        (watched(phase="Pending", reason="Nominated"), 21.0, reasons.CAPACITY_LOST),
        (ChunkObservation(), 1000.0, None),
    ],
)
def test_what_is_wrong_with_a_chunk(watch, now, reason):
    found = finding(job(stall_timeout=60.0), chunk(), watch, now)
    assert (found.reason if found else None) == reason


def test_of_a_long_message_of_the_cluster_the_first_300_characters_are_passed_on():
    pod = watched(phase="Pending", reason="ErrImagePull").pod
    found = finding(job(), chunk(), ChunkObservation(pod=pod._replace(message="x" * 999)), 30.0)
    assert found.message.count("x") == 300


@pytest.mark.parametrize(
    ("log", "text"),
    [
        ("x" * 999, "x" * 300),
        ("first\n \n second\n", "first | second"),
        (f"cut{'x' * 290}\n0123456789", "0123456789"),
        (f"whole{'x' * 285}\n012345678", f"whole{'x' * 285} | 012345678"),
        ("", ""),
    ],
    ids=["long", "short", "cut", "just not cut", "none"],
)
def test_of_a_log_the_last_300_characters_are_passed_on_as_whole_lines(log, text):
    assert last_words(log) == text


def test_an_end_is_expected_as_planned_then_by_progress():
    assert expected_end(chunk(), ChunkObservation(), now=5.0) == 10.0
    assert expected_end(chunk(), ChunkObservation(running_since=0.0, done=5), now=20.0) == 40.0
    assert expected_end(chunk(), ChunkObservation(), now=20.0) == 22.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0s"), (3.42, "3.4s"), (59.6, "1m"), (2583.4, "43m3s"), (90061.0, "1d1h1m1s"), (-3.0, "-3.0s")],
)
def test_spans_read_as_kubernetes_writes_them(seconds, text):
    assert span(seconds) == text


@given(
    st.integers(1, 400), st.integers(1, 60), st.lists(st.tuples(st.integers(1, 200), st.integers(20, 200)), max_size=5)
)
def test_what_the_core_offers_is_accepted_and_a_millionth_tighter_is_not(units, deadline, earlier):
    w = World()
    w.node("n", 3)
    for k, (load, due) in enumerate(earlier):
        w.apply(job(f"e{k}", units=load, deadline=due))
    w.run(1)
    quote = w.pool.quote(w.now, job("new", units=units, arrival=w.now, deadline=w.now + deadline))
    assume(not quote.fits())
    earliest = quote.earliest_deadline()
    assert earliest is not None
    assert quote.fits(earliest)
    assert not quote.fits(earliest * (1 - 1.000001e-6))


@pytest.mark.parametrize(
    ("ranges", "chosen"),
    [
        ([], None),
        ([(0, 10)], [(0, 10)]),
        ([(0, 4), (4, 10)], [(4, 10), (0, 4)]),
        ([(0, 4), (4, 8), (0, 6), (6, 10), (4, 6)], [(6, 10), (0, 6)]),
        ([(0, 4), (5, 10)], None),
        ([(0, 6), (4, 10)], None),
        ([(0, 12)], None),
        ([(0, 4), (2, 4), (4, 10), (4, 12)], [(4, 10), (0, 4)]),
    ],
)
def test_ranges_are_chosen_so_that_each_unit_is_in_one(ranges, chosen):
    assert tiles(ranges, 10) == chosen
