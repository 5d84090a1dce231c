"""What guests take of a contended CPU by the weights of folders: read back from the kernel, published, warned of."""

import pytest

from punctual_agent.guest_share import EVERY, GuestShare, share
from punctual_agent.metrics import AgentMetrics
from punctual_agent.state import State

LEAST = {"v1": 2, "v2": 1}
"""What the kubelet gives the folder of BestEffort pods."""


@pytest.mark.parametrize(
    ("guests", "others", "part"),
    [
        (2, [1024], 2 / 1026),
        (2, [1024, 102], 2 / 104),  # the one of least weight may contend alone
        (1, [4], 0.2),  # as measured beside a pod that requests 100m
        (2, [2], 0.5),
        (2, [], 0.0),
    ],
)
def test_guests_take_from_the_sibling_of_least_weight(guests, others, part):
    assert share(guests, others) == pytest.approx(part)


class Weights:
    """A node's folders of pods with weights."""

    def __init__(self, tree):
        self.tree, self.version = tree, tree.version
        self.file = "cpu.weight" if tree.version == "v2" else "cpu.shares"
        self.guests = self.make("g" * 8, "besteffort").parent
        self.burstable = self.make("b" * 8, "burstable").parent
        self.weigh(self.guests, LEAST[self.version])
        self.weigh(self.burstable, 1000)

    def make(self, uid, qos):
        return self.tree.pod(uid, qos=qos, containers=1)

    def weigh(self, folder, weight):
        (folder / self.file).write_text(f"{weight}\n")

    def part(self, least):
        return pytest.approx(LEAST[self.version] / (LEAST[self.version] + least))


@pytest.fixture
def weights(tree):
    return Weights(tree)


@pytest.fixture
def looked(weights):
    return GuestShare(weights.tree.hierarchy())


def test_the_weights_of_the_class_and_of_its_siblings_count(weights, looked, caplog):
    looked.look(0.0, guests=False)
    assert looked.part == weights.part(1000)
    assert not caplog.records
    weights.weigh(weights.make("c" * 8, ""), 50)  # a Guaranteed pod
    looked.look(EVERY - 1.0, guests=True)
    assert looked.part == weights.part(1000), "it looks once a minute"
    looked.look(EVERY, guests=True)
    assert looked.part == weights.part(50)
    [warning] = caplog.records
    assert (warning.getMessage(), warning.beside) == ("guest_share_high", f"pod{'c' * 8}")
    assert warning.part == pytest.approx(looked.part, abs=1e-4)
    looked.look(2 * EVERY, guests=True)
    assert len(caplog.records) == 1, "said once"
    weights.tree.remove(weights.tree.pod_folder("c" * 8, ""))
    looked.look(3 * EVERY, guests=True)
    assert looked.part == weights.part(1000)


def test_without_guests_weights_are_read_once(weights, looked):
    looked.look(0.0, guests=False)
    weights.weigh(weights.burstable, 20)
    looked.look(10 * EVERY, guests=False)
    assert looked.part == weights.part(1000)
    looked.look(10 * EVERY, guests=True)
    assert looked.part == weights.part(20)


def test_a_folder_without_pods_does_not_contend(weights, looked):
    weights.weigh(weights.burstable, 2)
    weights.tree.remove(weights.tree.pod_folder("b" * 8))
    looked.look(0.0, guests=True)
    assert looked.part == 0.0


def test_pods_within_the_class_are_on_another_level(weights, looked):
    weights.weigh(weights.make("h" * 8, "besteffort"), 2)
    looked.look(0.0, guests=True)
    assert looked.part == weights.part(1000)


def test_a_foreign_folder_in_the_idle_class_is_no_host(weights, looked):
    weights.weigh(weights.make("c" * 8, ""), 0)  # so v2 shows it
    looked.look(0.0, guests=True)
    assert looked.part == weights.part(1000)


def test_a_pod_that_ends_meanwhile_does_not_count(weights, looked):
    (weights.make("c" * 8, "") / weights.file).unlink()
    looked.look(0.0, guests=True)
    assert looked.part == weights.part(1000)


def test_before_the_kubelet_has_made_its_folders_it_is_not_known_and_asked_again(make_tree):
    tree = make_tree("v2", "cgroupfs")
    looked = GuestShare(tree.hierarchy())
    looked.look(0.0, guests=False)
    assert looked.part is None
    weights = Weights(tree)
    looked.look(EVERY, guests=False)
    assert looked.part == weights.part(1000)


def test_no_file_stays_open(weights, looked):
    looked.look(0.0, guests=True)
    assert looked._hierarchy._kept._pods == {}


def test_the_agent_publishes_it_at_its_first_tick(weights, tmp_path):
    weights.weigh(weights.burstable, 4)
    metrics = AgentMetrics()
    agent = weights.tree.agent(State(tmp_path), metrics=metrics)
    agent.tick(1.0)
    agent._lock.release()
    assert metrics.registry.get_sample_value("punctual_guest_cpu_share_ratio") == weights.part(4)
