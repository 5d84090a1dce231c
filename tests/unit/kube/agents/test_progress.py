"""What a Pool is told of a chunk's pod."""

import typing

from punctual import wire
from punctual.control.response import Response
from punctual.kube.agents import progress
from punctual.kube.agents.progress import to_progress
from punctual.scheduling.model.events import Progress


def test_faults_are_told_in_words():
    faults = {"progress": {"backwards": 2, "empty": 1}, "end": {"notRegular": 1}}
    pod = wire.PodReport(uid="p1", done=12, end=30, cpu_seconds=1.5, over=True, faults=faults)
    words = frozenset({"progress is lower than before", "progress is empty", "end is not a regular file"})
    assert to_progress(pod) == Progress(pod="p1", done=12, end=30, cpu_seconds=1.5, over=True, faults=words)


def test_there_are_words_for_each_fault():
    assert progress._FAULTY.keys() == set(typing.get_args(wire.Fault))


def test_what_a_pod_has_shown_of_its_answer_to_cpu_is_told():
    model = wire.ResponseModel(a=0.0, b=8.0, learned=True)
    followed = wire.Followed(sample=4.0, samples=40, model=model, noise=0.05, saturated_seconds=3.0)
    found = to_progress(wire.PodReport(uid="p1", followed=followed))
    assert found.response == Response(cpu_per_unit=0.5, lag=0.0, delay=0.0, noise=0.1)
    assert found.saturated == 3.0
