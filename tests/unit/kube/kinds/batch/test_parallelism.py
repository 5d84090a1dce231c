"""How many pods of a Job may be there at a time, and the number that its user has asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.kube.cluster.batch_jobs import Parallelism
from punctual.kube.kinds.batch.parallelism import followed, patch, restored

THEIRS, OURS = Parallelism(200), Parallelism(26, 200, (26,))


@pytest.mark.parametrize(
    ("there", "asked", "put_back"),
    [
        (THEIRS, 200, False),
        (OURS, 200, False),
        (Parallelism(10, 200, (26, 10)), 200, False),
        (Parallelism(100, 200, (26,)), 100, False),
        (Parallelism(200, 200, (26,)), 200, True),
        (Parallelism(0), 0, False),
    ],
    ids=["the user's", "ours", "what we wrote before", "an edit", "put back", "none"],
)
def test_the_number_that_the_user_has_asked_for(there, asked, put_back):
    assert (there.asked, there.put_back) == (asked, put_back)


@pytest.mark.parametrize(
    ("there", "chunks", "wanted"),
    [
        (THEIRS, 12, OURS),
        (OURS, 12, OURS),
        (OURS, 17, OURS),
        (OURS, 18, Parallelism(38, 200, (38, 26))),
        (Parallelism(26, 200, (38, 26)), 12, Parallelism(26, 200, (38, 26))),
        (Parallelism(26, 200, (9, 8, 7, 26)), 18, Parallelism(38, 200, (38, 9, 8, 7))),
        (OURS, 5, OURS),
        (OURS, 4, Parallelism(10, 200, (10, 26))),
        (THEIRS, 0, Parallelism(2, 200, (2,))),
        (OURS, 150, THEIRS),
        (Parallelism(4), 2, Parallelism(4)),
        (Parallelism(4), 4, Parallelism(4)),
        (Parallelism(100, 200, (26,)), 12, Parallelism(26, 100, (26, 26))),
        (Parallelism(5, 200, (26,)), 12, Parallelism(5)),
        (Parallelism(200, 200, (26,)), 12, Parallelism(200, 200, (26,))),
    ],
    ids=[
        "at first", "as it is", "near", "too few", "written back", "the last ones", "near below", "too many",
        "no chunk", "as many as the user's", "a small Job", "all run", "an edit", "an edit below it", "put back",
    ],
)  # fmt: skip
def test_it_follows_the_chunks_and_stays_while_it_is_near(there, chunks, wanted):
    assert followed(there, chunks) == wanted


@pytest.mark.parametrize(
    ("there", "kept", "wanted"),
    [
        (OURS, 3, Parallelism(3, 200, (3, 26))),
        (OURS, 0, Parallelism(0, 200, (0, 26))),
        (Parallelism(3, 200, (3,)), 3, Parallelism(3, 200, (3,))),
        (Parallelism(3, 200, (3,)), 5, Parallelism(3, 200, (3,))),
        (Parallelism(4), 3, Parallelism(3, 4, (3,))),
        (Parallelism(200, 200, (26,)), 3, Parallelism(200, 200, (26,))),
    ],
)
def test_a_pod_without_a_node_is_withdrawn_with_those_at_the_gate(there, kept, wanted):
    assert followed(there, 12, kept=kept) == wanted


NUMBERS = st.integers(0, 300)
STATES = st.builds(Parallelism, NUMBERS) | st.builds(
    Parallelism, NUMBERS, NUMBERS, st.lists(NUMBERS, max_size=4).map(tuple)
)


@given(STATES, NUMBERS, st.none() | NUMBERS)
def test_what_the_user_asked_for_is_never_lost_nor_exceeded(there, chunks, kept):
    wanted = followed(there, chunks, kept=kept)
    assert wanted.asked == there.asked
    assert wanted.there <= there.asked
    assert restored(wanted) == Parallelism(there.asked)


@given(STATES, NUMBERS)
def test_it_allows_all_chunks_and_comes_to_rest_at_once(there, chunks):
    wanted = followed(there, chunks)
    assert wanted.put_back or wanted.there >= min(chunks, there.asked)
    assert followed(wanted, chunks) == wanted


def test_a_patch_names_what_changes():
    assert patch("b1", OURS, OURS) == {"metadata": {"uid": "b1", "annotations": {}}, "spec": {}}
    assert patch("b1", OURS, THEIRS) == {
        "metadata": {
            "uid": "b1",
            "annotations": {"punctual.dev/parallelism": None, "punctual.dev/parallelism-written": None},
        },
        "spec": {"parallelism": 200},
    }
