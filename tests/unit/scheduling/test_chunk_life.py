"""The states of a chunk, told from its record and from what is seen of its pod; and events before a pool's spec."""

import pytest
from world import job

from punctual.scheduling.chunks import life
from punctual.scheduling.chunks.life import LAST_WORD, Observation
from punctual.scheduling.model.actions import WriteStatus
from punctual.scheduling.model.events import JobApplied, NodeGone, NodeObserved, PodObserved, PoolApplied
from punctual.scheduling.model.job import Chunk
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.pool import Pool

NOW = 100.0
WHOLE = Chunk(begin=0, end=10, origin=10, node="n", attempt=1, created=0.0, promised_end=10.0)
OFFERED = WHOLE._replace(offered=5)
CUT = WHOLE._replace(end=5)
POD = PodObserved("p", "u", "ns", "j", "Chunk", 0, 10, 1, "n", "Running", 0.0)
DONE = POD._replace(phase="Succeeded")
TOLD = DONE._replace(offered=True)  # by an earlier leader, perhaps


@pytest.mark.parametrize(
    ("found", "chunk", "seen"),
    [
        ("Created", WHOLE, Observation()),
        ("Created", OFFERED, Observation()),
        ("Starting", WHOLE, Observation(POD._replace(phase="Pending"))),
        ("Starting", OFFERED, Observation(POD._replace(phase="Pending"))),  # what does not run answers no offer
        ("Running", WHOLE, Observation(POD)),
        ("Running", CUT, Observation(POD, offered_at=90.0)),
        ("Asked", OFFERED, Observation(POD, offered_at=90.0)),
        ("Unsent", OFFERED, Observation(POD)),
        ("Leaving", OFFERED, Observation(POD._replace(deleting=True))),
        ("Failed", OFFERED, Observation(POD._replace(phase="Failed", deleting=True))),
        ("Done", WHOLE, Observation(DONE)),
        ("Done", WHOLE, Observation(DONE._replace(deleting=True))),
        ("Done", CUT, Observation(TOLD)),
        ("Ended", WHOLE, Observation(TOLD)),
        ("Ended", OFFERED, Observation(DONE, offered_at=90.0)),
        ("Owing", OFFERED, Observation(DONE, ended_at=NOW - LAST_WORD + 0.1)),
        ("Silent", OFFERED, Observation(DONE, ended_at=NOW - LAST_WORD)),
        ("Silent", OFFERED, Observation(DONE, ended_at=NOW + LAST_WORD)),  # the clock was set back
        ("Done", OFFERED, Observation(DONE, ended_at=NOW - 1.0, over=True)),
    ],
)
def test_a_chunk_has_one_state(found, chunk, seen):
    assert life.state(NOW, chunk, seen) == found


@pytest.mark.parametrize(
    ("stays", "pod", "retention", "becomes"),
    [
        ("of success, with All only", DONE, "All", None),
        ("", DONE, "Failed", "End"),
        ("of failure, but with None", POD._replace(phase="Failed"), "Failed", None),
        ("", POD._replace(phase="Failed"), "None", "End"),
        ("as the log is the result", DONE._replace(kind="Reduce"), "None", None),
        ("", POD._replace(ended="Succeeded"), "Failed", None),  # only the kubelet has yet to end it
    ],
)
def test_which_pod_stays_after_its_work(stays, pod, retention, becomes):
    assert life.left_behind(pod, retention) == becomes, stays


def test_what_ends_a_pod_later_does_not_change_how_its_work_ended():
    before = POD._replace(ended="Succeeded")
    assert life.continued(before, POD._replace(phase="Failed")).outcome == "Succeeded"
    assert life.continued(before, POD._replace(phase="Failed", uid="another")).outcome == "Failed"
    assert life.continued(None, POD).outcome is None


def test_events_wait_until_the_spec_of_the_pool_is_known():
    pool, node = Pool(1), NodeObserved(name="n1", ready=True, cpu=4.0, memory=0)
    assert pool.step(0.0, [node, JobApplied(job(deadline=100.0))]) == []
    assert pool.step(1.0, [NodeObserved(name="n2", ready=True, cpu=4.0, memory=0)]) == []
    assert (pool.backlog, pool.view().processors, len(pool.view().jobs)) == (0, 0, 0)
    done = pool.step(2.0, [NodeGone("n2"), PoolApplied(PoolSpec(name="main", cpu=1.0))])
    assert pool.view().processors == 4
    assert [a.record.admitted.status for a in done if isinstance(a, WriteStatus)] == ["True"]
