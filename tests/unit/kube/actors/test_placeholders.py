"""Which placeholders are made and let go; the test is API server, kubelet and scheduler."""

import pytest
from clocks import clock

from punctual.kube.actors.placeholders import PATIENCE, REST, Placeholders
from punctual.kube.cluster.placeholder_pod import PlaceholderSettings, placeholder
from punctual.kube.writes.keys import placeholders_key
from punctual.kube.writes.operations import CreatePod, DeletePod, Outcome
from punctual.scheduling.model.actions import HeldCapacity, HoldCapacity
from punctual.scheduling.model.resources import Resources


class Cluster:
    """Placeholders as the API server has them, and the decisions about them."""

    def __init__(self):
        self.now = 100.0
        self.there = {}
        self.asked = []
        self.refused = []
        self.serial = 0
        self.lead()

    def lead(self, *pools):
        """Begin a leader's term: it sees what is there."""
        self.asked.clear()
        settings = PlaceholderSettings(namespace="sys", priority=0, chunk_class="chunks")
        self.deciding = Placeholders(settings, clock(lambda: self.now), self, self)
        for pool in pools:
            self.deciding.know_pool(pool)
        for one in list(self.there.values()):
            self.deciding.observe(one)

    def emit(self, about, _type, _reason, note):
        self.refused.append((about.uid, note))

    def submit(self, key, operation):
        self.asked.append((key, operation))

    def carry_out(self):
        """Do what was asked, and what follows from it; return how many were made and let go."""
        made = gone = 0
        while self.asked:
            _, operation = self.asked.pop(0)
            if isinstance(operation, CreatePod):
                made += 1
                self.make(operation.body)
            else:
                gone += 1
                assert isinstance(operation, DeletePod)
                self.remove(next(n for n, p in self.there.items() if p.uid == operation.uid))
        return made, gone

    def make(self, body):
        self.serial += 1
        name = body["metadata"]["name"]
        assert name not in self.there
        meta = {**body["metadata"], "uid": f"u{self.serial}"}
        self.there[name] = placeholder({**body, "metadata": meta}, "sys")._replace(bound=True)
        self.deciding.observe(self.there[name])

    def change(self, name, **how):
        self.there[name] = self.there[name]._replace(**how)
        self.deciding.observe(self.there[name])

    def remove(self, name):
        self.deciding.forget(self.there.pop(name))

    def pass_time(self, seconds):
        self.now += seconds
        self.deciding.tick()

    def want(self, pool="p1", cpu=0.5, devices=(), rests=(), **nodes):
        """Let a pool want so many placeholders of processors, and on each of these nodes those of rests."""
        kept = {node: HeldCapacity(0.0, count, tuple(rests)) for node, count in nodes.items()}
        self.deciding.want(pool, "main", HoldCapacity(kept, Resources(cpu, 2**30, devices)))

    def on(self, node):
        return sorted(name for name, one in self.there.items() if one.node == node)


@pytest.fixture
def cluster():
    return Cluster()


def test_each_free_processor_has_one_that_asks_for_its_room_on_its_node(cluster):
    cluster.want(n1=2)
    (_, create), _ = cluster.asked
    body = create.body
    assert body["metadata"]["namespace"] == "sys"
    assert body["metadata"]["ownerReferences"][0]["uid"] == "p1"
    assert body["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}}
    assert body["spec"]["tolerations"][0]["value"] == "main"  # where a taint is on its way out
    assert placeholder({**body, "metadata": {**body["metadata"], "uid": "u"}}, "sys").node == "n1"
    assert cluster.carry_out() == (2, 0)
    cluster.want(n1=2)
    assert cluster.asked == []


def test_one_of_a_processor_with_devices_holds_them_and_an_edit_of_these_replaces_it(cluster):
    cluster.want(n1=1)
    cluster.carry_out()
    cluster.want(n1=1, devices=(("example.com/gpu", 2),))
    body = next(operation.body for _, operation in cluster.asked if isinstance(operation, CreatePod))
    requests = {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "2"}
    resources = {"requests": requests, "limits": {"example.com/gpu": "2"}}  # Kubernetes takes no others
    assert body["spec"]["containers"][0]["resources"] == resources
    assert cluster.carry_out() == (1, 1)
    assert cluster.there[cluster.on("n1")[0]].size == "500m 1Gi example.com/gpu=2"
    cluster.want(n1=1, devices=(("example.com/gpu", 2),))
    assert cluster.asked == []


def test_one_that_somebody_deleted_comes_again_under_another_name_until_it_is_gone(cluster):
    cluster.want(n1=2)
    cluster.carry_out()
    first = cluster.on("n1")[0]
    cluster.change(first, going=True)
    assert cluster.carry_out() == (1, 0)
    assert len(cluster.on("n1")) == 3
    cluster.remove(first)
    assert cluster.asked == []


def test_the_scheduler_chooses_who_goes_for_a_chunk_and_none_comes_in_its_place(cluster):
    cluster.want(n1=3)
    cluster.carry_out()
    cluster.want(n1=2)  # a chunk is created
    assert cluster.asked == []
    cluster.change(cluster.on("n1")[1], going=True)
    cluster.pass_time(2 * PATIENCE)
    assert cluster.asked == []
    cluster.want(n1=3)  # it has ended
    assert cluster.carry_out() == (1, 0)


def test_where_the_scheduler_makes_no_room_one_that_has_none_itself_is_let_go_first(cluster):
    cluster.want(n1=3)
    cluster.carry_out()
    waiting = cluster.on("n1")[1]
    cluster.change(waiting, bound=False)
    cluster.want(n1=2)
    cluster.pass_time(PATIENCE - 0.1)
    assert cluster.asked == []
    cluster.pass_time(0.2)
    assert cluster.carry_out() == (0, 1)
    assert waiting not in cluster.there
    cluster.pass_time(10 * PATIENCE)
    assert cluster.asked == []


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(lambda c: c.want(n2=1), id="the node is the pool's no more"),
        pytest.param(lambda c: c.deciding.forget_pool("p1"), id="the pool is gone"),
    ],
)
def test_they_go_at_once_where_nothing_is_kept_any_more(cluster, leave):
    cluster.want(n1=2, n2=1)
    cluster.carry_out()
    leave(cluster)
    cluster.carry_out()
    assert cluster.on("n1") == []


def test_of_another_size_they_are_others(cluster):
    cluster.want(n1=4)
    cluster.carry_out()
    before = cluster.on("n1")
    cluster.want(cpu=1.0, n1=2)
    assert cluster.carry_out() == (2, 4)
    assert not set(before) & set(cluster.on("n1"))
    assert len(cluster.on("n1")) == 2


def test_one_that_was_evicted_is_taken_away_and_comes_again_when_the_node_has_had_a_rest(cluster):
    cluster.want(n1=1)
    cluster.carry_out()
    cluster.change(cluster.on("n1")[0], ended=True)
    assert cluster.carry_out() == (0, 1)
    cluster.pass_time(REST - 0.1)
    assert cluster.asked == []
    cluster.pass_time(0.2)
    assert cluster.carry_out() == (1, 0)


def test_a_refusal_is_told_and_tried_again_later(cluster):
    cluster.want(n1=1)
    _, create = cluster.asked.pop()
    cluster.deciding.settled(Outcome(placeholders_key(0), create, "refused", "exceeded quota"))
    assert cluster.refused == [("p1", "a placeholder was refused: exceeded quota")]
    cluster.want(n1=1)
    cluster.pass_time(REST / 2)
    assert cluster.asked == []
    cluster.pass_time(REST)
    assert len(cluster.asked) == 1


def test_one_that_was_made_and_never_seen_is_made_again(cluster):
    cluster.want(n1=1)
    _, create = cluster.asked.pop()
    cluster.deciding.settled(Outcome(placeholders_key(0), create, "done"))  # deleted while the informer listed anew
    cluster.pass_time(REST / 2)
    assert cluster.asked == []
    cluster.pass_time(REST)
    assert cluster.carry_out() == (1, 0)
    cluster.pass_time(2 * REST)
    assert cluster.asked == []


def test_a_new_leader_leaves_them_until_the_pool_speaks_and_then_makes_good_what_is_missing(cluster):
    cluster.want(n1=2, n2=1)
    cluster.carry_out()
    cluster.lead("p1")
    assert cluster.asked == []
    cluster.want(n1=3)  # n2 was taken from the pool meanwhile
    assert cluster.carry_out() == (1, 1)
    assert (len(cluster.on("n1")), cluster.on("n2")) == (3, [])


def test_what_belongs_to_a_pool_that_went_while_nobody_led_goes(cluster):
    cluster.want(n1=2)
    cluster.carry_out()
    cluster.lead()
    assert cluster.carry_out() == (0, 2)


def test_a_pod_with_our_label_elsewhere_is_none_of_ours(cluster):
    cluster.want(n1=1)
    _, create = cluster.asked.pop()
    meta = {**create.body["metadata"], "uid": "u", "namespace": "theirs"}
    assert placeholder({**create.body, "metadata": meta}, "sys") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"spce": {}}'])
def test_what_the_chart_says_must_be_what_is_known(text):
    with pytest.raises(ValueError, match=r"JSON|an object with|unexpected end"):
        PlaceholderSettings.read(text, "sys")


def test_what_the_chart_says_is_taken():
    settings = PlaceholderSettings.read('{"priority": 5, "chunkClass": "c", "spec": {"containers": []}}', "sys")
    assert settings == PlaceholderSettings(namespace="sys", priority=5, chunk_class="c", spec={"containers": []})
    assert PlaceholderSettings.read("", "sys").priority == 0


SMALL, GPU = Resources(0.2), Resources(0.0, 2**20, (("example.com/gpu", 1),))


def sizes(cluster, node="n1"):
    return sorted(one.size for one in cluster.there.values() if one.node == node)


def test_what_a_pod_leaves_of_its_processor_has_a_placeholder_of_its_size_beside_those_of_processors(cluster):
    cluster.want(n1=1, rests=[SMALL, SMALL, GPU])
    bodies = {op.body["metadata"]["name"]: op.body["spec"]["containers"][0]["resources"] for _, op in cluster.asked}
    assert len(bodies) == 4
    assert {"requests": {"cpu": "200m", "memory": "0"}} in bodies.values()
    limits = {"example.com/gpu": "1"}
    assert {"requests": {"cpu": "0", "memory": "1Mi", **limits}, "limits": limits} in bodies.values()
    assert cluster.carry_out() == (4, 0)
    assert sizes(cluster) == ["0 1Mi example.com/gpu=1", "200m 0", "200m 0", "500m 1Gi"]
    cluster.want(n1=1, rests=[SMALL, SMALL, GPU])
    assert cluster.asked == []


def test_one_of_a_rest_goes_at_once_when_its_pod_has_ended_and_one_of_a_processor_waits_for_the_scheduler(cluster):
    cluster.want(n1=2, rests=[SMALL, SMALL])
    cluster.carry_out()
    cluster.want(n1=1, rests=[SMALL])
    assert cluster.carry_out() == (0, 1)
    assert sizes(cluster) == ["200m 0", "500m 1Gi", "500m 1Gi"]
    cluster.want(n1=1)
    assert cluster.carry_out() == (0, 1)
    cluster.pass_time(PATIENCE)
    assert cluster.carry_out() == (0, 1)
    assert sizes(cluster) == ["500m 1Gi"]


def test_one_of_a_rest_stays_while_pods_of_a_size_follow_each_other(cluster):
    cluster.want(n1=0, rests=[SMALL])
    cluster.carry_out()
    for _ in range(3):
        cluster.want(n1=0, rests=[SMALL])
        cluster.pass_time(2 * PATIENCE)
        assert cluster.asked == []
    cluster.want(n1=0, rests=[GPU])
    assert cluster.carry_out() == (1, 1)


def test_one_of_a_rest_that_somebody_deleted_or_evicted_comes_again(cluster):
    cluster.want(n1=0, rests=[SMALL])
    cluster.carry_out()
    cluster.change(cluster.on("n1")[0], going=True)
    assert cluster.carry_out() == (1, 0)
    cluster.change(next(n for n in cluster.on("n1") if not cluster.there[n].going), ended=True)
    assert cluster.carry_out() == (0, 1)
    cluster.pass_time(REST)
    assert cluster.carry_out() == (1, 0)


def test_a_new_leader_goes_on_with_those_of_rests_and_deletes_what_is_left_of_pods_that_ended_meanwhile(cluster):
    cluster.want(n1=1, n2=0, rests=[SMALL])
    cluster.carry_out()
    cluster.lead("p1")
    assert cluster.asked == []
    cluster.want(n1=1, rests=[SMALL])
    assert cluster.carry_out() == (0, 1)
    assert (sizes(cluster), sizes(cluster, "n2")) == (["200m 0", "500m 1Gi"], [])
    cluster.lead("p1")
    cluster.want()
    assert cluster.carry_out() == (0, 2)
