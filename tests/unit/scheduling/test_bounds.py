"""What a user or the world can make of a job stays within what is written down: lists, times, numbers."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import Worker, World, job

from punctual.kube.api.fields import MAX_RANGES
from punctual.notation import duration
from punctual.scheduling.admission import offers
from punctual.scheduling.chunks import ledger
from punctual.scheduling.model.job import Chunk, JobRecord
from punctual.scheduling.model.ranges import Counts, Ranges

counted = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9), st.integers(1, 3)), max_size=30)


def chunk(begin, end, *, attempt=1):
    return Chunk(begin=begin, end=end, origin=end, node="n", attempt=attempt, created=0.0, promised_end=9.0)


@given(counted, st.integers(1, 8))
def test_coarse_counts_are_few_sound_and_never_lower(parts, most):
    fine = Counts()
    for begin, size, times in parts:
        fine = fine.add(begin, begin + size, times)
    coarse = fine.coarse(most)
    coarse.check()
    assert len(coarse.parts) <= max(most, 1)
    assert all(coarse.largest(u, u + 1) >= fine.largest(u, u + 1) for u in range(70))
    assert coarse.largest(0, 70) == fine.largest(0, 70)
    if len(fine.parts) <= most:
        assert coarse == fine


def owned(record, chunk):
    """Return the record with one more chunk."""
    return record._replace(chunks=(*record.chunks, chunk))


def test_counts_of_failures_everywhere_fit_into_a_status(monkeypatch):
    monkeypatch.setattr(ledger, "MOST", 100)
    record = JobRecord()
    for n in range(250):
        # every other unit fails, and each second of them twice
        record = ledger.lose(owned(record, chunk(2 * n, 2 * n + 1)), chunk(2 * n, 2 * n + 1), own=True)
        if n % 2:
            again = chunk(2 * n, 2 * n + 1, attempt=2)
            record = ledger.lose(owned(record, again), again, own=True)
    assert len(record.failed.parts) <= ledger.MOST
    assert len(record.tried.parts) <= ledger.MOST
    assert record.failed.largest(0, 10**6) == 2
    assert ledger.next_attempt(record, 2, 3) > 2


def test_completed_ranges_and_chunks_fit_into_a_status_together():
    done = Ranges.of(*((2 * n, 2 * n + 1) for n in range(ledger.MOST + 50)))
    assert ledger.most_chunks(JobRecord()) == ledger.MOST < MAX_RANGES
    assert ledger.most_chunks(JobRecord(completed=Ranges(done.parts[:3900]))) == 100
    assert ledger.most_chunks(JobRecord(completed=done)) == 1


def test_a_job_in_a_thousand_pieces_is_finished_with_few_chunks_at_a_time(monkeypatch):
    monkeypatch.setattr(ledger, "MOST", 40)
    w = World()
    w.node("n1", cpu=64)
    w.apply(job(units=200, deadline=500.0))
    w.tick()
    done = Ranges.of(*((2 * n, 2 * n + 1) for n in range(38)))  # as many interruptions have left it
    record = w.records["j1"]._replace(completed=done, chunks=())
    w.pods.clear()
    w.records["j1"] = record
    w.crash()
    seen = []
    w.run_until(lambda w: seen.append(w.records["j1"]) or w.done("j1"), within=2000.0)
    assert all(len(r.completed.parts) + len(r.chunks) <= 41 for r in seen)
    assert w.records["j1"].completed == Ranges.of((0, 200))


def test_no_deadline_is_offered_that_cannot_be_asked_for():
    assert offers.LONGEST == duration.MAX_SECONDS
    w = World()
    w.node("n1", cpu=4)
    w.apply(job("long", units=10**15, chi=1.0, deadline=1000.0))
    w.apply(job("short", units=10**6, chi=1.0, deadline=1000.0))
    w.run(5)
    assert w.state("long") == w.state("short") == ("False", "InfeasibleCapacity")
    assert w.records["long"].offer.earliest_deadline is None
    assert w.records["short"].offer.earliest_deadline < offers.LONGEST


@pytest.mark.parametrize("units", [10**9, 10**15])
def test_a_job_whose_units_take_a_billion_times_as_long_as_declared_leaves_the_others_alone(units):
    w = World(workers=lambda uid, _: Worker(pace=10.0 if uid == "huge" else 1.0))
    w.node("n1", cpu=4)
    w.apply(job("huge", units=units, chi=40.0 / units, deadline=60.0))
    w.run(2)
    assert w.state("huge") == ("True", "Feasible")
    w.run(100)
    w.apply(job("small", units=20, arrival=w.now, deadline=w.now + 60))
    w.run(w.now + 60)
    assert w.met("small")
    assert w.records["huge"].on_track.status == "False"


def test_a_job_loses_thousands_of_chunks_at_once_and_no_leader_sits_over_them():
    """Work that grew with the square of their number kept a leader from all else for minutes, and the next one too."""
    n = 4000
    w = World()
    w.node("n1", 4.0)
    w.tick()
    w.apply(job(units=8, deadline=100_000))
    w.run(2)
    record = w.records["j1"]
    chunk = record.chunks[0]
    w.jobs["j1"] = replace(w.jobs["j1"], units=10 * n)
    chunks = tuple(
        chunk._replace(begin=10 * i, end=10 * i + 9, origin=10 * i + 9, node=f"gone{i % 7}", attempt=1 + i % 3)
        for i in range(n)
    )
    w.records["j1"] = record._replace(chunks=chunks)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    w.crash()
    sys.setprofile(count)
    try:
        w.tick()
    finally:
        sys.setprofile(None)
    assert {c.node for c in w.records["j1"].chunks} <= {"n1"}
    assert w.records["j1"].tried.largest(0, 10 * n) == 3
    assert calls < 200 * n
