"""What is counted about promises: kept, broken, failed by the job's own fault, and how long answers and starts took."""

from types import SimpleNamespace

import pytest
from clocks import clock

import punctual
from punctual import reasons
from punctual.kube.actors.promise_metrics import PromiseMetrics
from punctual.kube.known.jobs import JobInTerm
from punctual.kube.metrics import Metrics
from punctual.scheduling.model.job import Chunk, FurtherProcessors, JobRecord, Offer, Promise
from punctual.scheduling.model.pool_spec import MissCount, PoolRecord
from punctual.scheduling.model.ranges import Ranges
from punctual.theory.cost import Cost
from punctual.verdict import Verdict

YES = Verdict("True", reasons.FEASIBLE, "")
STATISTICAL = Verdict("True", reasons.ADMITTED_STATISTICALLY, "")
PROMISED = JobRecord(admitted=YES, promise=Promise(100.0, 80.0, 10.0, 2, 5.0))
TENANT = "main", "ns"
BUILD = {("operator_build_info", punctual.__version__)}
DONE = Verdict("True", reasons.COMPLETED, "")
LATE = Verdict("True", reasons.DEADLINE_MISSED, "")


ON_TRACK = Verdict("True", reasons.ON_TRACK, "")


def off_track(reason):
    return Verdict("False", reason, "")


def failed(reason):
    return {"failed_condition": Verdict("True", reason, ""), "on_track": off_track(reason)}


class Ledger:
    """Counts the records of one job, one after the other."""

    def __init__(self):
        self.now, self.metrics = 10.0, Metrics()
        self.counts = PromiseMetrics(self.metrics, clock(now=lambda: self.now))
        self.known = SimpleNamespace(
            owner=SimpleNamespace(uid="j", pool="main", namespace="ns"),
            term=JobInTerm(job=SimpleNamespace(deadline=60.0)),
        )

    def records(self, *records):
        for record in records:
            self.counts.job(self.known, record)
            self.known.term.record = record
        return self

    def samples(self):
        """Return what is not 0, without what all histograms share."""
        return {
            (sample.name.removeprefix("punctual_"), *sample.labels.values()): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.value and sample.name.startswith("punctual_") and "le" not in sample.labels
        }

    def buckets(self, name):
        """Return (upper bound, count up to it) of a histogram."""
        samples = (s for f in self.metrics.registry.collect() for s in f.samples)
        return [(s.labels["le"], s.value) for s in samples if s.name == f"punctual_{name}_bucket"]


@pytest.mark.parametrize(
    ("how", "end", "counted"),
    [
        ("in time", {"completed_condition": DONE, "finished": 90.0}, ("promises_kept_total", *TENANT)),
        (
            "late as nodes were lost",
            {"completed_condition": LATE, "finished": 130.0, "on_track": off_track(reasons.CAPACITY_LOST)},
            ("deadline_misses_total", *TENANT, "CapacityLost"),
        ),
        (
            "late although it was never told so",
            {"completed_condition": LATE, "finished": 130.0, "on_track": Verdict("True", reasons.ON_TRACK, "")},
            ("deadline_misses_total", *TENANT, "Late"),
        ),
        ("stopped", {**failed(reasons.OVERRUN), "finished": 50.0}, ("deadline_misses_total", *TENANT, "Overrun")),
        ("program", {**failed(reasons.CHUNK_FAILED), "finished": 9.0}, ("jobs_failed_total", *TENANT, "ChunkFailed")),
        ("input", {**failed(reasons.INPUT_CHANGED), "finished": 9.0}, ("jobs_failed_total", *TENANT, "InputChanged")),
    ],
)  # fmt: skip
def test_an_end_is_counted_once_for_what_caused_it(how, end, counted):
    ledger = Ledger().records(PROMISED, PROMISED._replace(**end), PROMISED._replace(**end))
    found = {key: value for key, value in ledger.samples().items() if key[0].endswith("_total")}
    assert found.pop(("admission_decisions_total", "main", "True", "Feasible")) == 1
    assert found == {counted: 1.0}, how


@pytest.mark.parametrize(
    ("finished", "below", "used"), [(90.0, "10.0", 0.0), (95.0, "10.0", 0.5), (99.0, "2.0", 0.9), (110.0, "-10.0", 2.0)]
)
def test_slack_and_the_margin_used_are_those_of_completed_jobs(finished, below, used):
    verdict = DONE if finished <= 100.0 else LATE
    ledger = Ledger().records(PROMISED, PROMISED._replace(completed_condition=verdict, finished=finished))
    found, buckets = ledger.samples(), ledger.buckets("finish_slack_seconds")
    assert next(bound for bound, count in buckets if count) == below
    assert found.get(("margin_used_ratio_sum", "main"), 0.0) == pytest.approx(used)
    assert found["margin_used_ratio_count", "main"] == 1


def test_a_failed_job_has_no_slack():
    found = Ledger().records(PROMISED, PROMISED._replace(**failed(reasons.CHUNK_FAILED), finished=50.0)).samples()
    assert not [key for key in found if key[0].startswith(("finish_slack", "margin_used"))]


def test_statistical_admission_is_counted_apart():
    admitted = PROMISED._replace(admitted=STATISTICAL)
    kept = Ledger().records(admitted, admitted._replace(completed_condition=DONE, finished=90.0)).samples()
    assert kept["statistical_kept_total", *TENANT] == 1
    late = admitted._replace(completed_condition=LATE, finished=130.0, on_track=off_track(reasons.LATE))
    assert Ledger().records(admitted, late).samples()["statistical_misses_total", *TENANT, "Late"] == 1
    assert not [key for key in kept if key[0].startswith(("promises_kept", "deadline", "finish_slack"))]


def chunk(begin, **more):
    return Chunk(
        begin=begin, end=begin + 5, origin=begin + 5, node="n", attempt=1, created=10.0, promised_end=60.0, **more
    )


def seconds(ledger):
    return {key[3]: value for key, value in ledger.samples().items() if key[0] == "processor_seconds_total"}


def test_processor_time_is_counted_when_it_is_promised_and_when_chunks_end():
    ledger, needs = Ledger(), PROMISED._replace(cost=Cost(3.0, theta_cp=2.0), completed=Ranges.of((0, 4)))
    ledger.known.term.job = SimpleNamespace(
        deadline=60.0, units=24, unit_pods=False, reduce_duration=5.0, reservation=None
    )
    ledger.records(JobRecord(), needs)
    assert seconds(ledger) == {"Promised": 20 * 3.0 + 2 * 2.0 + 5.0}
    ledger.records(needs._replace(chunks=(chunk(4), chunk(9), chunk(14, leftover=True))))
    ledger.now = 35.0
    ledger.records(needs._replace(chunks=(chunk(9), chunk(14, leftover=True))), needs._replace(chunks=(chunk(9),)))
    assert seconds(ledger) == {"Promised": 69.0, "Used": 25.0, "Leftover": 25.0}
    ledger.records(needs._replace(chunks=(chunk(9)._replace(end=12),)), needs._replace(finished=40.0))
    assert seconds(ledger)["Used"] == 50.0


def test_processor_time_without_a_promise_and_in_windows():
    ledger, no = Ledger(), JobRecord(admitted=Verdict("False", reasons.SHARE_USED_UP, ""), goes_on=True)
    ledger.records(no._replace(chunks=(chunk(0, leftover=True),)))
    ledger.now = 20.0
    ledger.records(no)
    ledger.counts.reserved("main", "ns", 7200.0)
    assert seconds(ledger) == {"Promised": 7200.0, "Leftover": 10.0}


def test_a_job_inside_a_window_is_promised_nothing_beyond_it():
    ledger = Ledger()
    ledger.known.term.job = SimpleNamespace(
        deadline=60.0, units=24, unit_pods=False, reduce_duration=None, reservation="r"
    )
    assert seconds(ledger.records(JobRecord(), PROMISED._replace(cost=Cost(3.0)))) == {}


def test_an_answer_takes_from_when_the_job_was_first_seen_until_it_is_written():
    ledger = Ledger()
    ledger.counts.seen("j")
    ledger.now = 10.5
    ledger.counts.seen("j")  # an edit
    ledger.records(PROMISED)
    ledger.now = 10.75
    ledger.counts.written("j")
    ledger.counts.written("j")
    assert ledger.samples()["admission_duration_seconds_sum",] == pytest.approx(0.75)
    assert ledger.samples()["admission_duration_seconds_count",] == 1
    # a later answer to a job that was edited long before is not its first
    ledger.counts.seen("j")
    ledger.now = 5000.0
    ledger.records(PROMISED._replace(admitted=Verdict("False", reasons.SUSPENDED, "")))
    ledger.counts.written("j")
    assert ledger.samples()["admission_duration_seconds_count",] == 1


def test_the_first_chunk_takes_from_the_promise_until_it_runs():
    ledger = Ledger().records(PROMISED)
    ledger.now = 40.0
    ledger.records(PROMISED._replace(started=25.0), PROMISED._replace(started=25.0, done=3))
    assert ledger.samples()["first_chunk_seconds_sum", "main"] == 15.0
    assert ledger.samples()["first_chunk_seconds_count", "main"] == 1


def test_an_offer_is_later_than_what_was_requested():
    no = JobRecord(admitted=Verdict("False", reasons.INFEASIBLE_CAPACITY, ""))
    offer = Offer(earliest_deadline=50.0, valid_until=30.0, largest_load=4)
    found = Ledger().records(no, no._replace(offer=offer), no._replace(offer=offer)).samples()
    assert found["offer_lateness_seconds_sum", "main"] == 20.0
    assert found["offer_lateness_seconds_count", "main"] == 1


def test_the_processors_that_refused_jobs_lacked_are_the_most_of_the_last_minutes():
    ledger, no = Ledger(), JobRecord(admitted=Verdict("False", reasons.INFEASIBLE_CAPACITY, ""))

    def refused(more):
        return no._replace(offer=Offer(50.0, 30.0, 4, more and FurtherProcessors(more, 0.0, 40.0)))

    told = []
    for at, more in (
        (0.0, 2),
        (100.0, 5),
        (200.0, 1),
        (300.0, 3),
        (400.0, None),
        (700.0, None),
        (701.0, None),
        (901.0, None),
    ):
        ledger.now = at
        ledger.records(no, refused(more), refused(more)) if more or at == 400.0 else None
        told.append(ledger.counts.wanted("main"))
    assert told == [2, 5, 5, 5, 5, 5, 3, 0]
    assert ledger.counts.wanted("other") == 0


def test_open_promises_that_are_forecast_late_are_counted():
    ledger = Ledger()
    jobs = [
        SimpleNamespace(
            owner=SimpleNamespace(units=10), term=JobInTerm(record=PROMISED._replace(eta=eta, on_track=track, done=5))
        )
        for eta, track in (
            (90.0, ON_TRACK),
            (101.0, off_track(reasons.LATE)),
            (130.0, off_track(reasons.OVERRUN)),
            (99.0, off_track(reasons.CAPACITY_LOST)),
            (None, ON_TRACK),
        )
    ]
    ledger.counts.promises("main", jobs)
    found = ledger.samples()
    assert (found["promises_open", "main"], found["promises_late", "main"]) == (5, 4)
    assert found["slack_seconds", "main"] == -30.0
    assert found["progress_ratio", "main"] == 0.5


def test_a_job_taken_over_at_its_end_is_not_counted_again():
    ledger = Ledger()
    ended = PROMISED._replace(completed_condition=DONE, finished=90.0)
    ledger.known.term.record = ended
    assert not ledger.records(ended).samples().keys() - BUILD


def test_the_bound_of_a_pool_is_shown():
    ledger = Ledger()
    ledger.counts.pool("main", PoolRecord(miss=MissCount(bound=0.75, ratio=0.1), processors=4))
    found = ledger.samples()
    assert (found["utilization_bound", "main"], found["miss_ratio", "main"], found["processors", "main"]) == (
        0.75,
        0.1,
        4,
    )
    ledger.counts.pool("main", PoolRecord())
    assert not ledger.samples().keys() - BUILD


def test_statistically_admitted_jobs_are_no_open_promises():
    ledger = Ledger()
    promised = PROMISED._replace(admitted=STATISTICAL, eta=7.0)
    job = SimpleNamespace(owner=SimpleNamespace(units=10), term=JobInTerm(record=promised))
    ledger.counts.promises("main", [job])
    found = ledger.samples()
    assert found["statistical_open", "main"] == 1
    assert ("promises_open", "main") not in found
