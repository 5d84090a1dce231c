"""Programs and tests run on a cluster of our own or on the one that is named, and leave it as they found it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE

import pytest
from lib import testbed

from punctual.errors import PunctualError
from punctual.labels import POOL_LABEL

HACK = Path(__file__).parents[2] / "hack"


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"PUNCTUAL_CLUSTER": "kidn"}, "PUNCTUAL_CLUSTER=kidn: kind (default) or kubeconfig"),
        ({"PUNCTUAL_CLUSTER": "kubeconfig"}, "PUNCTUAL_IMAGE is not set"),
    ],
)
def test_a_place_that_is_none_is_said_before_any_test_begins(chosen, says, tmp_path, monkeypatch):
    (tmp_path / "hack").mkdir()
    command = shutil.copy(HACK / "test", tmp_path / "hack")  # without a .venv: no test could begin
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PUNCTUAL_")}
    ran = subprocess.run([command], env=clean | chosen, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert says in ran.stderr
    assert "1/5" not in ran.stderr
    monkeypatch.delenv("PUNCTUAL_IMAGE", raising=False)
    monkeypatch.setenv("PUNCTUAL_CLUSTER", chosen["PUNCTUAL_CLUSTER"])
    with pytest.raises(PunctualError, match=re.escape(says)):
        testbed.own_cluster() or testbed.given_image()


def test_the_place_is_kind_unless_told(monkeypatch):
    monkeypatch.delenv("PUNCTUAL_CLUSTER", raising=False)
    assert testbed.own_cluster()
    monkeypatch.setenv("PUNCTUAL_CLUSTER", "kubeconfig")
    monkeypatch.setenv("PUNCTUAL_IMAGE", "registry.example.com/punctual:1")
    assert not testbed.own_cluster()
    assert testbed.given_image() == "registry.example.com/punctual:1"


class Kubectl:
    """A cluster of namespaces, pools and labelled nodes, as far as `testbed` asks for it."""

    def __init__(self, *, namespaces=(), pools=(), kinds="pools", **nodes):
        self.there = {"namespace": [*namespaces], "pool": [*pools], "nodes": [*nodes]}
        self.labels = dict(nodes)
        self.kinds = kinds
        self.status = []
        self.stuck = False

    def get(self, kind, *words):
        if kind == "pool" and words:
            status = self.status.pop(0)
            return {"metadata": {"generation": 1}, "status": status}
        labels = {name: {POOL_LABEL: label} if label else {} for name, label in self.labels.items()}
        return {"items": [{"metadata": {"name": name, "labels": labels.get(name)}} for name in self.there[kind]]}

    def run(self, verb, *words):
        match verb, *words:
            case "api-resources", *_:
                return self.kinds
            case "delete", *_ if self.stuck:
                raise PunctualError("it does not go")
            case "delete", kind, *names, "--ignore-not-found", _:
                self.there[kind] = [name for name in self.there[kind] if name not in names]
            case "label", "node", node, word, "--overwrite":
                self.labels[node] = None if word.endswith("-") else word.partition("=")[2]
        return ""


class Mine(testbed.Borrowed):
    """With something in it."""

    def __init__(self, kubectl):
        super().__init__(kubectl, namespaces="mine", pools="my-.*")

    def __enter__(self):
        super().__enter__()
        assert self._kubectl.there == {"namespace": ["theirs"], "pool": ["main"], "nodes": ["one", "two"]}
        assert self.labels == {"one": "main", "two": None}
        self._kubectl.there["namespace"].append("mine")
        self._kubectl.there["pool"].append("my-2")
        self._kubectl.labels.update(one="my-2", two="my-2")


@pytest.mark.parametrize("how", [KeyboardInterrupt, SystemExit, PunctualError])
def test_what_was_borrowed_is_given_back_however_it_ends(how):
    kubectl = Kubectl(namespaces=["mine", "theirs"], pools=["my-1", "main"], one="main", two=None)
    with pytest.raises(how), Mine(kubectl):
        raise how
    assert kubectl.there == {"namespace": ["theirs"], "pool": ["main"], "nodes": ["one", "two"]}
    assert kubectl.labels == {"one": "main", "two": None}


def test_labels_are_given_back_even_where_a_pool_does_not_go():
    kubectl = Kubectl(namespaces=["theirs"], pools=["main"], one="main", two=None)
    with pytest.raises(PunctualError), Mine(kubectl):
        kubectl.stuck = True
    assert kubectl.labels == {"one": "main", "two": None}


def test_before_the_first_installation_there_are_no_pools_to_remove():
    kubectl = Kubectl(namespaces=["mine"], kinds="")
    del kubectl.there["pool"]
    testbed.remove(kubectl, namespaces="mine", pools="my-.*")
    assert kubectl.there["namespace"] == []


def test_a_pool_is_ready_when_it_has_all_its_nodes_and_nothing_runs(monkeypatch):
    monkeypatch.setattr(testbed.time, "sleep", lambda _: None)
    line = {"name": "one", "processors": 3}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "observedGeneration": 1}
    busy = {**ready, "processors": 3, "free": 2, "nodes": [line]}
    half = {**busy, "free": 3}
    whole = {**half, "nodes": [line, {**line, "name": "two"}]}
    kubectl = Kubectl()
    kubectl.status = [None, {**whole, "observedGeneration": 0}, {**whole, "conditions": []}, busy, half, whole]
    assert testbed.ready_pool(kubectl, "main", nodes=["one", "two"]) == whole
    kubectl.status = [busy]
    with pytest.raises(PunctualError, match="1 processors are in use"):
        testbed.ready_pool(kubectl, "main", within=-1)


@pytest.mark.parametrize("statuses", [[], [{"name": "main"}], [{"name": "main", "containerID": ""}]])
def test_a_pod_without_a_container_gets_no_signal(statuses):
    """An empty identity would stand for every process of its node."""
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}, "status": {}}
    pod["status"]["containerStatuses"] = statuses
    with pytest.raises(PunctualError, match="p has no container"):
        testbed.container(pod)
    statuses[:] = [{"name": "other", "containerID": "x://1"}, {"name": "main", "containerID": "x://2"}]
    assert testbed.container(pod) == "2"


WAITS = """
import sys
sys.path.insert(0, {hack!r})
from lib import testbed
with testbed.alone():
    print("has it", flush=True)
"""


def test_the_cluster_is_one_programs_and_its_childrens(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv(testbed.ALONE, raising=False)
    command = [sys.executable, "-c", WAITS.format(hack=str(testbed.ROOT / "hack"))]
    with testbed.alone():
        child = subprocess.run(command, capture_output=True, text=True, check=True)
        assert child.stdout == "has it\n"
        environment = {name: value for name, value in os.environ.items() if name != testbed.ALONE}
        other = subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True)
        assert other.stderr.readline() == "Waiting for another program that is at work on the cluster\n"
        assert other.poll() is None
    assert other.communicate() == ("has it\n", "")
    assert testbed.ALONE not in os.environ
