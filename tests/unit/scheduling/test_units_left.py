"""What is left of a running chunk where pods share processors: tables."""

import pytest

from punctual.scheduling.model.job import Chunk
from punctual.scheduling.state.job_state import ChunkObservation
from punctual.scheduling.state.terms import units_left

CHUNK = Chunk(begin=0, end=100, origin=100, node="n1", attempt=0, created=0.0, promised_end=202.0)
SETUP = 2.0  # its line: half a unit each second from then on


def reported(*steps: tuple[float, int], now: float) -> ChunkObservation:
    watch = ChunkObservation(reported=now)
    for at, done in steps:
        watch.report_done(at, done)
    return watch


@pytest.mark.parametrize(
    ("steps", "now", "left", "kept"),
    [
        pytest.param([], 1.0, 100.0, 100.0, id="starts"),
        pytest.param([(52.0, 25)], 52.0, 75.0, 75.0, id="on its line"),
        pytest.param([(52.0, 25)], 53.0, 74.5, 74.5, id="on its line, between two reports"),
        pytest.param([(52.0, 10)], 52.0, 89.0, 75.0, id="behind"),
        pytest.param([(52.0, 40)], 52.0, 60.0, 60.0, id="ahead"),
        pytest.param([(52.0, 40)], 53.0, 59.6, 59.6, id="ahead, on the line from its report"),
        pytest.param([(52.0, 40)], 102.0, 59.0, 40.0, id="ahead of its first line, behind the one from its report"),
        pytest.param([(52.0, 40), (53.0, 41)], 53.0, 59.0, 59.0, id="still ahead"),
        pytest.param([(52.0, 100)], 53.0, 0.0, 0.0, id="done"),
    ],
)
def test_what_counts_for_new_promises_and_for_those_that_are_made(steps, now, left, kept):
    watch = reported(*steps, now=now)
    assert units_left(CHUNK, watch, SETUP, now) == pytest.approx(left)
    assert units_left(CHUNK, watch, SETUP, now, behind=False) == pytest.approx(kept)


@pytest.mark.parametrize("done", [26, 40, 74, 99])
def test_a_chunk_that_is_ahead_needs_the_same_until_its_next_report(done):
    watch = reported((52.0, done), now=52.0)
    needs = [
        units_left(CHUNK, watch, SETUP, now, behind=False) / (CHUNK.promised_end - now)
        for now in (52.0, 60.0, 150.0, 201.0)
    ]
    assert needs == pytest.approx([(100 - done) / 150.0] * 4)
