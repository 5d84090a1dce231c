"""The demo's arithmetic is that of admission: its jobs need just the processors that it says."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from demo_lib import objects, programs, sizes
from hypothesis import given
from hypothesis import strategies as st
from lib import testbed

from punctual.kube.api import DivisibleJob, parse
from punctual.scheduling.model.discipline import Order
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.startup_times import StartupTimes
from punctual.scheduling.placement.demand import Demand, Shortfall
from punctual.scheduling.placement.place import place
from punctual.scheduling.placement.timeline import Placement, Timeline
from punctual.theory.cost import Cost

ROOT = Path(__file__).parents[2]


def demand(size, cost, startups):
    core = Cost(cost.chi, 0.0, 0.0, cost.theta)
    margin = sizes.MARGIN + StartupTimes(startups).beyond(core.setup)
    kept_back = margin + sizes.REDUCE + cost.theta
    return Demand(
        order=Order(float(size.deadline), 0.0, "j"),
        ranges=Ranges.of((0, size.units)),
        cost=core.with_headroom(sizes.HEADROOM),
        due=size.deadline - kept_back,
        reduce=sizes.REDUCE + cost.theta,
    )


@given(
    chi=st.floats(0.05, 0.5),
    theta=st.floats(4, 7),
    processors=st.integers(1, int(sizes.TAKEN * sizes.MOST)),
    startups=st.lists(st.floats(0.5, 9), max_size=20),
    now=st.floats(0, sizes.DELAY),
)
def test_a_job_fits_on_its_processors_and_not_on_one_less(chi, theta, processors, startups, now):
    cost = programs.Cost(chi, theta)
    size = sizes.filling(cost, processors, 75, startups)
    asked, ready = demand(size, cost, startups), np.full(size.processors, now)
    assert isinstance(place(asked, Timeline(ready)), Placement)
    if processors > 1:
        assert isinstance(place(asked, Timeline(ready[1:])), Shortfall)


def test_costs_are_read_from_what_was_measured():
    told = '{"primes": [0.15, 0.63], "mertens": [0.03, 0.39], "clocks": [0.13, 0.64]}'
    found = programs.costs(told, 0.1)
    assert found["primes"].chi == pytest.approx(sizes_chi(0.15, 0.63, 2, 26))
    assert found["primes"].theta == pytest.approx(programs.START + (0.15 - 2 * 0.02) / 0.1)


def sizes_chi(few, many, small, large):
    return programs.SAFETY * (many - few) / (large - small) / 0.1


def test_the_nodes_have_the_image_by_the_name_of_the_examples(monkeypatch):
    """Where no registry can be reached, a job that names an image which is not on its node never starts."""
    ran = []
    monkeypatch.setattr(testbed, "command", lambda *words, **_: ran.append(words) or "punctual:dev")
    monkeypatch.setattr(testbed, "docker", lambda *_: "sha256:0123456789abcdef")
    assert testbed.own_image() == "punctual:0123456789ab"
    assert ("hack/cluster", "load-image", "punctual:0123456789ab", "punctual:dev") in ran
    for file in (ROOT / "examples").glob("*/job.yaml"):
        text = file.read_text()
        assert "image: punctual:dev\n" in text or (file.parent / "Dockerfile").exists(), file


@pytest.mark.parametrize("own", [True, False])
def test_the_demo_ends_with_a_command_that_runs_a_job_of_the_readers_own(own, tmp_path):
    """The command is run with a command line that only writes down what it is asked."""
    said = tmp_path / ".venv/bin/punctual"
    said.parent.mkdir(parents=True)
    said.write_text('#!/bin/sh\necho "$*" >>said\n[ "$2" != - ] || cat >manifest\n')
    said.chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "hack").mkdir()
    (tmp_path / "hack/cluster").write_text("#!/bin/sh\necho KUBECONFIG=mine\n")
    (tmp_path / "hack/cluster").chmod(0o755)
    subprocess.run(["sh", "-c", objects.own_job("reg/punctual:7", own=own)], cwd=tmp_path, check=True)
    file = objects.OWN if own else "-"
    assert (tmp_path / "said").read_text().splitlines() == [
        f"submit {file} -n {objects.NAMESPACE}",
        f"watch first -n {objects.NAMESPACE}",
    ]
    job = parse(DivisibleJob, example())
    assert job.metadata.name == "first"
    assert own or "image: reg/punctual:7" in (tmp_path / "manifest").read_text()


def example():
    meta = {"namespace": "demo", "uid": "u", "creationTimestamp": "2030-01-01T00:00:00Z"}
    body = yaml.safe_load((ROOT / objects.OWN).read_text())
    return {**body, "metadata": {**body["metadata"], **meta}}
