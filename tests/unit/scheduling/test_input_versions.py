"""Stories about inputs that change while a job runs: chunks that have read different versions make no whole."""

import pytest
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.actions import WriteStatus
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.job import InputVersion
from punctual.scheduling.model.pool_spec import PoolSpec

OLD, NEW = InputVersion(1000, '"old"'), InputVersion(1500, '"new"')
CONCURRENT = PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0)
ONE_PORT = PoolSpec(name="main", cpu=1.0, headroom=0.0, margin=2.0, discipline=Discipline(network="OnePort"))


def world(reads, *, nodes: int = 2, spec: PoolSpec = CONCURRENT) -> World:
    """A world in which a chunk finds the version of its input that ``reads`` says."""
    w = World(spec=spec)
    for n in range(nodes):
        w.node(f"n{n}", 1.0)
    w.workers = lambda _uid, chunk: Worker(fetch=2.0, reads=reads(chunk))
    w.tick()
    return w


def fetching(**more):
    more = {"units": 20, "deadline": 100.0, "chi": 1.0, "tau": 0.1, "theta_cm": 0.5, **more}
    return job("j1", fetches=True, min_processors=2, **more)


def failed(w: World) -> str:
    """Return the words with which the job has failed since its input has changed."""
    record = w.records["j1"]
    assert record.failed_condition is not None
    assert record.failed_condition[:2] == ("True", reasons.INPUT_CHANGED)
    assert record.chunks == ()
    return record.failed_condition.message


def test_a_job_whose_chunks_all_read_one_version_is_done_and_says_which():
    w = world(lambda _chunk: OLD)
    w.apply(fetching())
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.records["j1"].input == OLD


@pytest.mark.parametrize("spec", [CONCURRENT, ONE_PORT])
def test_where_the_first_chunks_of_a_job_read_two_versions_it_fails_and_the_second_one_counts_nowhere(spec):
    w = world(lambda chunk: OLD if chunk.begin == 0 else NEW, spec=spec)
    w.apply(fetching(reduce_duration=2.0))
    w.run_until(lambda w: w.done("j1"))
    text = failed(w)
    assert '1500 bytes, validator "new"' in text
    assert '1000 bytes, validator "old"' in text
    assert w.records["j1"].completed.total == 0
    assert w.results == {}
    w.run(w.now + 10.0)
    assert not [pod for pod in w.pods.values() if pod.phase in {"Pending", "Running"}]


def test_a_version_of_the_same_size_with_another_validator_is_another():
    w = world(lambda chunk: OLD if chunk.begin == 0 else OLD._replace(validator='"new"'))
    w.apply(fetching())
    w.run_until(lambda w: w.done("j1"))
    failed(w)


def test_a_later_pod_is_told_the_version_ends_before_it_works_and_no_retry_is_spent_on_it():
    tries = []

    def worker(_uid, chunk):
        tries.append(chunk.attempt)
        return Worker(fetch=2.0, reads=OLD) if len(tries) <= 2 else Worker(fetch=2.0, reads=NEW)

    w = world(lambda _chunk: OLD)
    w.workers = worker
    w.apply(fetching(chunk_retries=5))
    w.run_until(lambda w: any(p.phase == "Running" for p in w.pods.values()))
    (first, *_) = (p for p in w.pods.values() if p.phase == "Running")
    w.delete_pod(first.name)
    w.run_until(lambda w: w.done("j1"))
    failed(w)
    last = [p for p in w.pods.values() if p.exit_code == 65]
    assert [p.begun_with for p in last] == [OLD]
    assert all(p.started is None for p in last)
    assert len(tries) == 3
    w.run(w.now + 10.0)
    assert last[0].name in w.pods  # to be read


@pytest.mark.parametrize("chi", [1.0, None])
def test_the_version_is_on_record_before_any_unit_counts_or_any_pod_is_made_by_it(chi):
    w = world(lambda _chunk: OLD)
    w.apply(fetching(chi=chi, units=60, deadline=300.0))
    written = []
    while not w.done("j1"):
        w.now += 0.25
        written += [a.record for a in w.tick() if isinstance(a, WriteStatus) and a.job == "j1"]
    assert w.met("j1")
    assert all(record.input == OLD for record in written if record.completed)
    assert any(record.input == OLD and not record.completed for record in written)


def test_what_pilots_have_read_is_the_version_of_the_whole_job():
    w = world(lambda chunk: OLD if chunk.kind == "Pilot" else NEW)
    w.apply(fetching(chi=None, units=200, deadline=500.0))
    w.run_until(lambda w: w.done("j1"))
    failed(w)
    done = w.records["j1"].completed
    assert done.total == sum(sample.units for sample in w.records["j1"].pilots)


@pytest.mark.parametrize("seen_by_the_first", [False, True])
def test_a_new_leader_holds_what_it_finds_to_the_version_on_record(seen_by_the_first):
    """Also pods that have ended while nobody led."""
    w = world(lambda chunk: OLD if chunk.begin == 0 else NEW, spec=ONE_PORT)
    w.apply(fetching())
    w.run_until(lambda w: w.records.get("j1") is not None and w.records["j1"].input is not None)
    if not seen_by_the_first:  # the second is given its turn, and fetches while nobody looks
        w.run_until(lambda w: sum(p.turn for p in w.pods.values()) == 2)
        w.leaderless(w.now + 40.0)
        assert [p.phase for p in w.pods.values()] == ["Succeeded"] * 2
    else:
        w.run_until(lambda w: any(p.chunk.begin > 0 and p.fetch_ended for p in w.pods.values()))
    w.crash()
    w.run_until(lambda w: w.done("j1"))
    assert "1000 bytes" in failed(w)
    assert w.records["j1"].input == OLD


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
def test_units_done_with_another_version_are_never_durable(restart):
    w = world(lambda chunk: OLD if chunk.begin == 0 else NEW)
    w.apply(fetching(restart=restart))
    w.run_until(lambda w: w.done("j1"))
    failed(w)
    assert w.records["j1"].completed.total == 0


@pytest.mark.parametrize("restart", ["Redo", "Resume"])
def test_a_step_that_does_not_say_what_it_has_read_fails_its_chunk_and_nothing_of_it_counts(restart):
    w = world(lambda _chunk: None)
    w.apply(fetching(restart=restart, chunk_retries=1))
    w.run_until(lambda w: w.done("j1"))
    _, reason, text = w.records["j1"].failed_condition
    assert reason == reasons.CHUNK_FAILED
    assert "does not say which version of the input it has read" in text
    assert "spec.input.image" in text
    assert w.records["j1"].completed.total == 0


@pytest.mark.parametrize("resumed_with", [OLD, NEW])
def test_a_suspended_job_that_has_done_units_goes_on_with_the_version_it_began_with_only(resumed_with):
    reads = [OLD]
    w = world(lambda _chunk: reads[0])
    w.workers = lambda _uid, chunk: Worker(pace=0.5 if chunk.begin == 0 else 1.0, reads=reads[0])
    wanted = {"units": 60, "deadline": 300.0}
    w.apply(fetching(**wanted))
    w.run_until(lambda w: "j1" in w.records and w.records["j1"].completed.total > 0)
    w.apply(fetching(**wanted, suspend=True, generation=2))
    w.run(w.now + 5.0)
    reads[0] = resumed_with
    w.apply(fetching(**wanted, generation=3))
    w.run_until(lambda w: w.done("j1"))
    if resumed_with == OLD:
        assert not w.records["j1"].failed_condition
    else:
        failed(w)


def test_a_suspended_job_that_has_done_nothing_may_be_given_another_input():
    reads = [OLD]
    w = world(lambda _chunk: reads[0])
    w.apply(fetching())
    w.run_until(lambda w: "j1" in w.records and w.records["j1"].input == OLD)
    w.apply(fetching(suspend=True, generation=2))
    w.run(w.now + 5.0)
    assert w.records["j1"].completed.total == 0
    assert w.records["j1"].input is None
    reads[0] = NEW
    w.apply(fetching(generation=3))
    w.run_until(lambda w: w.done("j1"))
    assert w.met("j1")
    assert w.records["j1"].input == NEW
