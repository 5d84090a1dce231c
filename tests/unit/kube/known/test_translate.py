import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual import reasons
from punctual.control.cost_estimation import Estimate
from punctual.control.miss_ratio import MissCount
from punctual.control.response import Response
from punctual.errors import UserError
from punctual.kube import api
from punctual.kube.api.conditions import transition_times
from punctual.kube.known.jobs import Owner, settled
from punctual.kube.known.translate import (
    cost_in_force,
    delayed,
    explanation,
    job_state,
    job_status,
    pool_missing,
    pool_status,
    to_by_hand,
    to_job,
    to_pool_record,
    to_pool_spec,
    to_record,
    to_unreadable_job,
    undecided,
    without_decision,
)
from punctual.notation.duration import parse_time
from punctual.profiles.samples import ByHand, Estimates
from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.job import (
    Chunk,
    FurtherProcessors,
    InputVersion,
    Job,
    JobRecord,
    Offer,
    PilotSample,
    Promise,
    Transfers,
)
from punctual.scheduling.model.pool_spec import NodeProcessors, PoolRecord, PoolSpec, Tenancy
from punctual.scheduling.model.ranges import Counts, RangeCount, Ranges
from punctual.scheduling.model.resources import Resources
from punctual.theory.cost import Cost
from punctual.verdict import Verdict

OWNER = Owner(uid="u1", namespace="ns", name="render", pool="main", units=10**9)
JOB = Job(uid="u1", namespace="ns", name="render", arrival=0.0, units=10**9, deadline=1e9, cost=None)


def manifest(kind="DivisibleJob", *, name="render", **spec):
    created = "2030-01-01T00:00:00Z"
    meta = {"name": name, "namespace": "ns", "uid": "u1", "generation": 4, "creationTimestamp": created}
    return {"apiVersion": "punctual.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def job(**spec):
    least = {
        "pool": "main",
        "units": 100,
        "deadline": "45m",
        "template": {"spec": {"containers": [{"name": "main"}]}},
    }
    return api.parse(api.DivisibleJob, manifest(**{**least, **spec}))


CREATED = 1893456000.0  # 2030-01-01


def test_defaults_of_the_schema_are_those_of_the_core():
    assert to_job(job()) == Job(
        uid="u1",
        namespace="ns",
        name="render",
        generation=4,
        arrival=CREATED,
        units=100,
        deadline=CREATED + 2700,
        cost=None,
    )


def test_everything_asked_for_reaches_the_core():
    asked = to_job(
        job(
            deadline=None,
            deadlineTime="2030-01-01T01:00:00.5+01:00",
            cost={"perUnit": "20ms", "transferPerUnit": "1ms", "transferSetup": "500ms", "startup": "3s"},
            processors={"min": 2, "max": 8},
            restart="Resume",
            chunkRetries=1,
            stallTimeout="5m",
            onMiss="Stop",
            onRefusal="Continue",
            dryRun=True,
            suspend=True,
            ttlSecondsAfterFinished=60,
            reduce={"duration": "30s", "template": {"spec": {"containers": [{"name": "main"}]}}},
        )
    )
    assert asked == Job(
        uid="u1",
        namespace="ns",
        name="render",
        generation=4,
        arrival=CREATED,
        units=100,
        deadline=CREATED + 0.5,
        cost=Cost(0.02, 0.001, 0.5, 3.0),
        min_processors=2,
        max_processors=8,
        restart="Resume",
        chunk_retries=1,
        stall_timeout=300.0,
        on_miss="Stop",
        on_refusal="Continue",
        dry_run=True,
        suspend=True,
        ttl=60.0,
        reduce_duration=30.0,
    )


def test_a_profile_gives_the_cost():
    profile = api.parse(api.Profile, manifest("Profile", name="thumbs", perUnit="5ms"))
    assert to_job(job(profile="thumbs"), profile=profile.spec).cost == Cost(0.005, 0.0, 0.0, 2.0)


def test_what_a_profile_sets_by_hand_is_the_papers_four_numbers():
    spec = {"perUnit": "5ms", "transferPerUnit": "1ms", "transferSetup": "500ms", "startup": "3s"}
    profile = api.parse(api.Profile, manifest("Profile", name="thumbs", **spec))
    assert to_by_hand(profile.spec) == ByHand(chi=0.005, tau=0.001, theta_cm=0.5, theta_cp=3.0)
    assert to_by_hand(api.ProfileSpec()) == ByHand()


def test_a_profile_that_knows_nothing_leaves_it_to_the_pilots():
    profile = api.parse(api.Profile, manifest("Profile", name="thumbs"))
    asked = to_job(job(profile="thumbs"), profile=profile.spec)
    assert (asked.cost, asked.refusal) == (None, None)


def test_a_missing_profile_is_a_refusal_that_names_it():
    reason, message = to_job(job(profile="thumbs")).refusal
    assert reason == reasons.PROFILE_NOT_FOUND
    assert "thumbs" in message
    assert "ns" in message


def test_a_job_has_the_response_of_its_profile_also_once_its_cost_is_in_force():
    response = Response(0.1, 3.0, 0.0, 0.05)
    known = Estimates(Estimate(theta=2.0, chi=0.1, samples=5, outliers=0, r2=None), response=response)
    profile = api.parse(api.Profile, manifest("Profile", name="thumbs"))
    for in_force in (None, Cost(0.3, 0.0, 0.0, 1.0)):
        made = to_job(job(profile="thumbs"), profile=profile.spec, learned=lambda _: known, in_force=in_force)
        assert made.response == response
        assert made.cost.chi == (0.1 if in_force is None else 0.3)
    assert to_job(job(profile="thumbs"), profile=profile.spec).response is None
    assert to_job(job()).response is None


def test_what_the_edge_knew_before_is_the_refusal():
    assert to_job(job(profile="thumbs"), refusal=("NotAllowed", "no")).refusal == ("NotAllowed", "no")


def test_a_spec_that_cannot_be_read_is_a_refusal_that_names_the_field():
    bad = manifest(pool="main", units=0, deadline="45", template={"spec": {"containers": [{"name": "m"}]}})
    with pytest.raises(UserError) as caught:
        api.parse(api.DivisibleJob, bad)
    asked = to_unreadable_job(api.parse_metadata(bad), 0, caught.value)
    reason, message = asked.refusal
    assert reason == reasons.INVALID_SPEC
    assert "spec.units" in message
    assert "spec.deadline" in message
    assert (asked.uid, asked.generation, asked.arrival) == ("u1", 4, CREATED)


def test_a_pool_is_taken_in_cores_bytes_and_seconds():
    pool = api.parse(
        api.Pool,
        manifest(
            "Pool",
            name="main",
            nodeSelector={},
            processor={"cpu": "100m", "memory": "64Mi", "period": "20ms", "resources": {"b.io/y": 2, "a.io/x": "1k"}},
            hold="Taint",
            headroom="25%",
            margin="5s",
        ),
    )
    assert to_pool_spec(pool) == PoolSpec(
        name="main",
        generation=4,
        cpu=0.1,
        memory=2**26,
        others=(("a.io/x", 1000), ("b.io/y", 2)),
        period=0.02,
        hold="Taint",
        headroom=0.25,
        margin=5.0,
        feedback=True,
        tenancy=Tenancy(horizon=28 * 86400.0),
        selectors='{"nodeSelector":{}}',
    )


times = st.integers(10**15, 4 * 10**15).map(lambda us: us / 1e6)
spans = st.integers(0, 10**12).map(lambda us: us / 1e6)
small = st.integers(0, 10**6)
percents = st.integers(1, 100).map(lambda p: p / 100)
further = st.builds(FurtherProcessors, st.integers(1, 10**6), times, times)
words = st.text(st.characters(min_codepoint=32, max_codepoint=1000), max_size=40)
verdicts = st.builds(
    Verdict, st.sampled_from(["True", "False", "Unknown"]), st.sampled_from(["Feasible", "Late"]), words
)
maybe = st.none


def ranges(cuts):
    ordered = sorted(set(cuts))
    return Ranges.of(*zip(ordered[::2], ordered[1::2], strict=False))


def counts(cuts):
    ordered = sorted(set(cuts))
    # every other gap, so that equal neighbours need no merging
    pairs = zip(ordered[::2], ordered[1::2], strict=False)
    return Counts(tuple(RangeCount(a, b, 1 + i % 3) for i, (a, b) in enumerate(pairs)))


@st.composite
def chunks(draw):
    begin, size, more = draw(small), draw(st.integers(1, 1000)), draw(st.integers(0, 10))
    return Chunk(
        begin=begin,
        end=begin + size,
        origin=begin + size + more,
        node=draw(st.sampled_from(["n1", "n2"])),
        attempt=draw(st.integers(0, 9)),
        kind=draw(st.sampled_from(["Chunk", "Pilot", "Reduce"])),
        created=draw(times),
        promised_end=draw(times),
        offered=draw(maybe() | small),
        leftover=draw(st.booleans()),
        done=draw(st.integers(0, size)),
        sent=draw(maybe() | times),
        turn=draw(maybe() | times),
        received=draw(small),
    )


millis = st.integers(0, 10**9).map(lambda n: round(n / 1000, 3))
costs = st.builds(Cost, st.floats(1e-9, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))


def as_leaders_write_them(record):
    """Return the record with a finish that agrees with its answer: only a job that is done or failed has ended.

    A job that goes on without a promise was refused for lack of time or processors.
    """
    if record.completed_condition or record.failed_condition:
        return record._replace(goes_on=False)
    if record.goes_on:
        return record._replace(admitted=Verdict("False", "InfeasibleCapacity", "too few"), finished=None)
    refused = record.finished if job_state(record) == "Refused" else None
    return record._replace(finished=None, refused=refused)


records = st.builds(
    JobRecord,
    epoch=small,
    observed_generation=small,
    admitted=maybe() | verdicts,
    on_track=maybe() | verdicts,
    completed_condition=maybe() | verdicts,
    failed_condition=maybe() | verdicts,
    spec_applied=maybe() | verdicts,
    promise=maybe() | st.builds(Promise, times, times, spans, st.integers(1, 4096), times),
    offer=maybe() | st.builds(Offer, maybe() | spans, times, small, maybe() | further),
    cost=maybe() | costs,
    completed=st.lists(small, max_size=8).map(ranges),
    failed=st.lists(small, max_size=8).map(counts),
    tried=st.lists(small, max_size=8).map(counts),
    chunks=st.lists(chunks(), max_size=4).map(tuple),
    pilots=st.lists(st.builds(PilotSample, small, spans), max_size=3).map(tuple),
    transfers=maybe() | st.builds(Transfers, small.filter(bool), small, small, millis, millis),
    input=maybe() | st.builds(InputVersion, small, st.sampled_from(["", '"a"', "Mon, 23 Nov 2026 10:00:00 GMT"])),
    results=st.booleans(),
    started=maybe() | times,
    finished=maybe() | times,
    refused=maybe(),
    done=small,
    running=small,
    eta=maybe() | times.map(math.ceil).map(float),
    goes_on=st.booleans(),
).map(as_leaders_write_them)


def through_the_server(kind, status):
    """Return the status as it comes back: through JSON and the model."""
    return api.parse_status(kind, {"status": json.loads(json.dumps(status))})


@given(records, times)
def test_a_record_that_is_written_and_read_again_is_the_same(record, now):
    status = job_status(record, JOB, owner=OWNER, transition_times={}, now=now)
    assert to_record(through_the_server(api.DivisibleJobStatus, status)) == record


@given(records, times)
def test_a_record_makes_one_status(record, now):
    first = job_status(record, JOB, owner=OWNER, transition_times={}, now=now)
    again = job_status(record, JOB, owner=OWNER, transition_times=transition_times(first["conditions"]), now=now + 60)
    assert again == first


SELECTORS = '{"nodeSelector":{"matchLabels":{"a":"b"}}}'
specs = st.builds(
    PoolSpec,
    name=st.just("main"),
    generation=st.integers(0, 9),
    cpu=st.integers(10, 4096).map(lambda m: m / 1000),
    memory=st.integers(2**20, 2**40),
    period=st.integers(100, 1000).map(lambda ms: ms / 1000),
    hold=st.sampled_from(["None", "Taint", "Placeholder"]),
    headroom=st.integers(0, 90 * 10**6).map(lambda millionths: millionths / 1e6 / 100),
    margin=spans,
    admission=st.sampled_from(["Exact", "Fast", "Hybrid"]),
    others=st.dictionaries(st.sampled_from(["a.io/x", "b.io/y"]), st.integers(1, 2**50)).map(
        lambda amounts: Resources.of(amounts).others
    ),
    miss_set_point=maybe() | st.integers(1, 50).map(lambda p: p / 100),
    tenancy=st.builds(
        Tenancy,
        max_share=percents,
        own=st.lists(st.tuples(st.sampled_from("abc"), percents), max_size=3, unique_by=lambda one: one[0]).map(tuple),
        horizon=st.sampled_from([1, 7, 999, 999 * 7]).map(lambda days: days * 86400.0),
    ),
    discipline=st.builds(
        Discipline,
        order=st.just("EDF"),
        partition=st.sampled_from(["OPR", "EPR"]),
        assign=st.sampled_from(["MN", "AN"]),
    ),
    selectors=st.sampled_from(
        [
            SELECTORS,
            '{"nodeSelector":{},"namespaceSelector":{"matchLabels":{"team":"vision"}}}',
            '{"nodeSelector":{},"reservations":{"namespaceSelector":{"matchLabels":{"a":"b"}},"horizon":"3d"}}',
        ]
    ),
)
lines = st.builds(
    NodeProcessors,
    name=st.sampled_from(["n1", "n2"]),
    processors=small,
    pods=maybe() | small,
    speed=st.sampled_from([1.0, 1.75]),
    reason=maybe() | st.just("StaticCPUManager"),
    held_since=maybe() | times,
)
miss_counts = st.builds(
    MissCount,
    bound=st.integers(200, 20000).map(lambda b: b / 10000),
    ratio=maybe() | st.floats(0, 1),
    due=small,
    missed=small,
    until=st.just(0.0) | times,
)
pool_records = st.builds(
    PoolRecord,
    epoch=small,
    observed_generation=st.just(7),
    ready=maybe() | verdicts,
    spec_applied=st.just(Verdict("True", "Applied", "")),
    applied=maybe() | specs,
    processors=small,
    free=small,
    scarcest=st.sampled_from(["", "cpu", "a.io/x"]),
    queue=small,
    nodes=st.lists(lines, max_size=3).map(tuple),
    miss=maybe() | miss_counts,
    startups=st.lists(spans, max_size=5).map(tuple),
)


shared = st.builds(
    PoolSpec,
    name=st.just("main"),
    cpu=st.just(1.0),
    memory=st.just(2**30),
    admission=st.just("Utilization"),
    pods_per_processor=st.integers(1, 16),
    tenancy=st.just(Tenancy(horizon=86400.0)),
    selectors=st.just(SELECTORS),
)


@given(pool_records | st.builds(PoolRecord, applied=shared), times)
def test_a_pools_record_that_is_written_and_read_again_is_the_same(record, now):
    status = pool_status(record, transition_times={}, now=now)
    assert to_pool_record("main", through_the_server(api.PoolStatus, status)) == record


def test_the_spec_in_force_of_a_refused_edit_is_not_the_newest_generation():
    tenancy = Tenancy(horizon=28 * 86400.0)
    spec = PoolSpec(name="main", generation=3, cpu=1.0, memory=2**30, tenancy=tenancy, selectors=SELECTORS)
    record = PoolRecord(observed_generation=4, spec_applied=Verdict("False", "EditRefused", ""), applied=spec)
    status = pool_status(record, transition_times={}, now=0.0)
    back = to_pool_record("main", through_the_server(api.PoolStatus, status))
    assert (status["observedGeneration"], status["appliedGeneration"]) == (4, 3)
    assert status["applied"]["nodeSelector"] == {"matchLabels": {"a": "b"}}
    assert back == record


@pytest.mark.parametrize(
    ("record", "column", "shown"),
    [
        (JobRecord(done=0), "progress", "0%"),
        (JobRecord(done=999_999_999), "progress", "99%"),
        (JobRecord(done=10**9), "progress", "100%"),
        (JobRecord(eta=1e9 - 90), "slack", "1m30s"),
        (JobRecord(eta=1e9 - 2.5), "slack", "2s"),
        (JobRecord(eta=1e9 - 0.5), "slack", "0s"),
        (JobRecord(eta=1e9 + 0.5), "slack", "-1s"),
        (JobRecord(eta=5.0), "eta", "1970-01-01T00:00:05Z"),
        (JobRecord(eta=5.000001), "eta", "1970-01-01T00:00:06Z"),
        (JobRecord(eta=None), "eta", None),
        (JobRecord(promise=Promise(10.0, 9.0, 2.0, 1, 0.0), eta=8.0), "slack", "2s"),
    ],
)
def test_what_the_columns_show(record, column, shown):
    assert job_status(record, JOB, owner=OWNER, transition_times={}, now=0.0).get(column) == shown


YES, ON_TRACK = Verdict("True", "Feasible", ""), Verdict("True", "OnTrack", "")
LATE = Verdict("False", "Overrun", "")


def refused(reason):
    return JobRecord(admitted=Verdict("False", reason, ""))


@pytest.mark.parametrize(
    ("record", "state"),
    [
        pytest.param(JobRecord(), "Waiting", id="no answer yet"),
        pytest.param(pool_missing(None, JOB, "main", epoch=1, now=8.0), "Waiting", id="no pool yet"),
        pytest.param(delayed(JobRecord(), JOB, "a webhook fails", epoch=1), "Waiting", id="an answer that is delayed"),
        pytest.param(JobRecord(admitted=Verdict("True", "DryRun", "")), "Waiting", id="only asked"),
        pytest.param(JobRecord(admitted=YES, on_track=ON_TRACK), "Waiting", id="promised"),
        pytest.param(JobRecord(admitted=Verdict("Unknown", "Measuring", "")), "Measuring", id="measured"),
        pytest.param(
            JobRecord(admitted=Verdict("Unknown", "Measuring", ""), started=1.0), "Measuring", id="pilots run"
        ),
        pytest.param(refused("InfeasibleCapacity"), "Refused", id="no capacity"),
        pytest.param(refused("NotAllowed"), "Refused", id="not allowed"),
        pytest.param(refused("Suspended"), "Suspended", id="suspended"),
        pytest.param(refused("Suspended")._replace(started=1.0), "Suspended", id="suspended while it ran"),
        pytest.param(JobRecord(admitted=YES, on_track=ON_TRACK, started=1.0), "Running", id="chunks run"),
        pytest.param(JobRecord(admitted=YES, on_track=LATE, started=1.0), "Late", id="given up"),
        pytest.param(JobRecord(admitted=YES, on_track=LATE), "Late", id="given up before it began"),
        pytest.param(
            JobRecord(
                admitted=YES, on_track=ON_TRACK, completed_condition=Verdict("True", "Completed", ""), finished=1.0
            ),
            "Completed",
            id="done in time",
        ),
        pytest.param(
            JobRecord(
                admitted=YES, on_track=LATE, completed_condition=Verdict("True", "DeadlineMissed", ""), finished=1.0
            ),
            "Missed",
            id="done late",
        ),
        pytest.param(
            JobRecord(admitted=YES, on_track=LATE, failed_condition=Verdict("True", "ChunkFailed", ""), finished=1.0),
            "Failed",
            id="failed",
        ),
    ],
)
def test_each_state_of_a_job_is_one_word(record, state):
    assert job_state(record) == state
    status = job_status(record, JOB, owner=OWNER, transition_times={}, now=0.0)
    assert through_the_server(api.DivisibleJobStatus, status).state == state


def test_a_deadline_offered_as_a_moment_leaves_the_time_that_was_tested_until_the_offer_ends():
    record = JobRecord(offer=Offer(earliest_deadline=82.0, valid_until=160.25, largest_load=7))
    offer = job_status(record, JOB, owner=OWNER, transition_times={}, now=100.0)["offer"]
    assert offer["earliestDeadline"] == "1m22s"
    assert parse_time(offer["earliestDeadlineTime"]) == 243.0
    assert to_record(through_the_server(api.DivisibleJobStatus, {"offer": offer})).offer == record.offer
    none = job_status(JobRecord(offer=Offer(None, 160.0, 0)), JOB, owner=OWNER, transition_times={}, now=100.0)["offer"]
    assert none.keys() == {"validUntilTime", "largestLoad"}


def test_an_offer_names_processors_and_one_of_the_release_before_names_none():
    record = JobRecord(offer=Offer(None, 160.0, 7, FurtherProcessors(3, 120.0, 2520.0)))
    offer = job_status(record, JOB, owner=OWNER, transition_times={}, now=100.0)["offer"]
    assert offer["processors"] == {"more": 3, "from": "1970-01-01T00:02:00Z", "until": "1970-01-01T00:42:00Z"}
    assert to_record(through_the_server(api.DivisibleJobStatus, {"offer": offer})).offer == record.offer
    del offer["processors"]
    assert to_record(through_the_server(api.DivisibleJobStatus, {"offer": offer})).offer == Offer(None, 160.0, 7)


def test_bytes_that_no_file_has_are_written_as_the_most_a_status_takes():
    """They are what a file in the pod says, and a status that is refused is that of the whole job."""
    more = {"begin": 0, "end": 9, "origin": 9, "node": "n", "attempt": 1, "created": 0.0, "promised_end": 1.0}
    record = JobRecord(chunks=(Chunk(received=2**63 - 1, **more),), transfers=Transfers(2, 9, 2**54, 1.0, 1.0))
    status = job_status(record, JOB, owner=OWNER, transition_times={}, now=0.0)
    assert status["chunks"][0]["received"] == status["input"]["bytes"] == 2**53
    assert to_record(through_the_server(api.DivisibleJobStatus, status))


def test_a_forecast_that_no_calendar_knows_can_be_written_and_read_again():
    """A billion units of a microsecond, each of which takes an hour: no leader may fail over it."""
    chunk = Chunk(begin=0, end=9, origin=9, node="n", attempt=1, created=0.0, promised_end=1e15)
    record = JobRecord(eta=1e15, chunks=(chunk,), promise=Promise(10.0, 1e15, 2.0, 1, 0.0))
    status = job_status(record, JOB, owner=OWNER, transition_times={}, now=0.0)
    assert status["chunks"][0]["promisedEnd"] == status["promise"]["finish"] == status["eta"] == "9999-12-31T23:59:59Z"
    back = to_record(through_the_server(api.DivisibleJobStatus, status))
    assert back.chunks[0].promised_end == 253_402_300_799.0


def test_the_deadline_shown_is_the_promised_one_and_before_a_promise_the_one_asked_for():
    promised = JobRecord(promise=Promise(10.0, 9.0, 2.0, 1, 0.0))
    for record, deadline in ((JobRecord(), "2001-09-09T01:46:40Z"), (promised, "1970-01-01T00:00:10Z")):
        status = job_status(record, JOB, owner=OWNER, transition_times={}, now=0.0)
        assert status["applied"]["deadlineTime"] == deadline


def test_startup_times_are_shown_as_quantiles():
    record = PoolRecord(startups=tuple(float(n) for n in range(101)))
    startup = pool_status(record, transition_times={}, now=0.0)["startup"]
    assert (startup["p50"], startup["p95"]) == (50.0, 95.0)


def test_nodes_of_an_older_pool_are_a_condition():
    def overlap(*reasons_):
        nodes = tuple(NodeProcessors(name=f"n{i}", processors=0, reason=r) for i, r in enumerate(reasons_))
        status = pool_status(PoolRecord(nodes=nodes), transition_times={}, now=0.0)
        return next(c for c in status["conditions"] if c["type"] == "NodesOverlap")

    assert overlap(None, "StaticCPUManager")["status"] == "False"
    both = overlap(None, reasons.NODES_OVERLAP)
    assert both["status"] == "True"
    assert "n1" in both["message"]
    assert "and 2 more" in overlap(*5 * [reasons.NODES_OVERLAP])["message"]


def test_a_job_without_a_pool_is_told_so_and_keeps_what_it_has_done():
    done = JobRecord(completed=Ranges.of((0, 5)), promise=Promise(10.0, 9.0, 2.0, 1, 0.0))
    record = pool_missing(done, JOB, "main", epoch=3, now=8.0)
    assert record.epoch == 3
    assert record.admitted.status == "False"
    assert "main" in record.admitted.message
    assert record.promise is None
    assert record.completed == done.completed


def test_a_refused_job_is_finished_until_it_is_asked_again():
    refused = JobRecord(admitted=Verdict("False", "InfeasibleCapacity", ""), refused=7.0, observed_generation=3)
    status = job_status(refused, JOB, owner=OWNER, transition_times={}, now=9.0)
    assert status["finishTime"] == "1970-01-01T00:00:07Z"
    assert to_record(through_the_server(api.DivisibleJobStatus, status)) == refused
    assert without_decision(refused) == JobRecord(refused=7.0, observed_generation=3), "the same answer keeps its time"
    missing = pool_missing(refused, JOB, "main", epoch=3, now=8.0)
    for other in (missing, delayed(refused, JOB, "a webhook fails", epoch=3)):
        assert other.refused is None
        assert "finishTime" not in job_status(other, JOB, owner=OWNER, transition_times={}, now=9.0)


@pytest.mark.parametrize(("started", "state"), [(None, "Waiting"), (5.0, "Running")])
def test_a_refused_job_that_goes_on_is_not_finished(started, state):
    refused = JobRecord(admitted=Verdict("False", "InfeasibleCapacity", "too few"), goes_on=True, started=started)
    status = job_status(refused, JOB, owner=OWNER, transition_times={}, now=9.0)
    assert (status["state"], status["reason"]) == (state, "InfeasibleCapacity")
    assert "finishTime" not in status
    assert to_record(through_the_server(api.DivisibleJobStatus, status)) == refused
    assert explanation(refused) == refused.admitted
    meta = {"name": "x", "namespace": "ns", "uid": "u", "generation": 1}
    assert settled({"metadata": meta, "status": {**status, "observedGeneration": 1}}) == "", "a new leader reads it"
    done = refused._replace(completed_condition=Verdict("True", "DeadlineMissed", ""), finished=20.0)
    assert job_state(done) == "Missed"
    assert cost_in_force(refused._replace(cost=Cost(chi=2.0))) == Cost(chi=2.0)
    assert cost_in_force(refused._replace(cost=Cost(chi=2.0), goes_on=False)) is None
    missing = pool_missing(refused, JOB, "main", epoch=3, now=JOB.deadline + 5.0)
    assert job_state(missing) == "Refused"


def test_a_job_without_a_pool_waits_until_its_deadline_and_is_refused_then():
    waits = pool_missing(None, JOB, "main", epoch=3, now=JOB.deadline - 1.0)
    refused = pool_missing(waits, JOB, "main", epoch=3, now=JOB.deadline + 5.0)
    assert (job_state(waits), job_state(refused)) == ("Waiting", "Refused")
    assert refused.admitted[:2] == ("False", "PoolNotFound")
    assert "no Pool main by the deadline" in refused.admitted.message
    assert pool_missing(refused, JOB, "main", epoch=4, now=JOB.deadline + 9.0).refused == JOB.deadline + 5.0
    status = job_status(refused, JOB, owner=OWNER, transition_times={}, now=JOB.deadline + 5.0)
    assert to_record(through_the_server(api.DivisibleJobStatus, status)) == refused
    assert undecided(refused), "it is asked as soon as there is such a pool"


def test_what_an_undecided_job_brings_along_is_its_ledger():
    done = JobRecord(completed=Ranges.of((0, 5)))
    missing = pool_missing(done, JOB, "main", epoch=3, now=8.0)
    assert undecided(None)
    assert undecided(missing)
    assert not undecided(missing._replace(admitted=Verdict("False", "InfeasibleCapacity", "")))
    assert without_decision(pool_missing(None, JOB, "main", epoch=3, now=8.0)) is None
    assert without_decision(missing) == done._replace(epoch=3, observed_generation=JOB.generation)
