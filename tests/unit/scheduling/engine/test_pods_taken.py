"""What pods take of their nodes in a Pool: a place, and what they request beyond it."""

import pytest

from punctual.scheduling.model.events import NodeGone, NodeObserved, PodGone, PodObserved, PoolApplied
from punctual.scheduling.model.pool_spec import PoolSpec
from punctual.scheduling.model.resources import NOTHING, Resources
from punctual.scheduling.pool import Pool

SPEC = PoolSpec(name="main", cpu=1.0, memory=100)
NODE = NodeObserved(name="n1", ready=True, cpu=4.0, memory=1000)
POD = PodObserved("a", "a", "ns", "j1", "Chunk", 0, 9, 0, "n1", "Running", 0.0, requests=Resources(1.0, 100))


class Story:
    def __init__(self, *nodes):
        self.pool, self.now = Pool(1), 0.0
        self.pool.restore(0.0, [PoolApplied(SPEC), *(nodes or (NODE,))])

    def after(self, *events):
        """Return processors and free ones after these events."""
        self.now += 1.0
        self.pool.step(self.now, events)
        self.pool.check()
        return self.pool.view().processors, self.pool.view().free


@pytest.mark.parametrize(
    ("requests", "found"),
    [
        (None, (4, 3)),
        (Resources(1.0, 100), (4, 3)),
        (Resources(1.0, 10), (4, 3)),
        (Resources(1.5, 100), (3, 2)),
        (Resources(3.0, 100), (2, 1)),
        (Resources(1.0, 750), (3, 2)),
        (Resources(9.0, 100), (0, 0)),
        (Resources(0.5, 0), (3, 3)),
        (Resources(0.0, 750), (2, 2)),
        (NOTHING, (4, 4)),
    ],
)
def test_a_pod_without_a_chunk_takes_what_it_requests_until_it_has_ended_or_is_gone(requests, found):
    story, pod = Story(), POD._replace(requests=requests)
    assert story.after(pod) == found
    assert story.after(pod._replace(phase="Failed")) == (4, 4)
    assert story.after(pod) == found
    assert story.after(PodGone("ns", "a", "a")) == (4, 4)


def test_what_it_requests_may_change():
    story = Story()
    found = [story.after(POD._replace(requests=Resources(cpu, 100))) for cpu in (1.0, 2.5, 1.0)]
    assert found == [(4, 3), (2, 1), (4, 3)]


@pytest.mark.parametrize("goes", [NodeObserved(name="n1", ready=False, cpu=4.0, memory=1000), NodeGone("n1")])
def test_a_pod_on_a_node_that_was_lost_keeps_its_processor_when_that_returns(goes):
    story = Story()
    story.after(POD._replace(requests=Resources(2.0, 100)))
    assert story.after(goes) == (0, 0)
    assert story.after(NODE) == (3, 2)
    assert story.after(PodGone("ns", "a", "a")) == (4, 4)


def test_a_pod_that_was_bound_to_another_node_than_it_was_meant_for_is_counted_there():
    other = NodeObserved(name="n2", ready=True, cpu=4.0, memory=1000)
    story = Story(NODE, other)
    story.after(POD._replace(requests=None))
    assert story.pool.view().nodes[0].processors == 4
    story.after(POD._replace(node="n2", requests=Resources(2.0, 100)))
    assert [node.processors for node in story.pool.view().nodes] == [4, 3]
    assert story.after() == (7, 6)


def test_a_pool_with_larger_processors_takes_less_of_what_pods_request_as_excess():
    story = Story()
    assert story.after(POD._replace(requests=Resources(2.0, 200))) == (3, 2)
    larger = PoolSpec(name="main", cpu=2.0, memory=200, generation=2)
    assert story.after(PoolApplied(larger)) == (2, 1)
