import numpy as np
import pytest

from punctual.theory.cut_points import cut_points


@pytest.mark.parametrize(
    ("why", "shares", "units", "cuts"),
    [
        ("whole shares stay", [3, 4, 5], 12, [0, 3, 7, 12]),
        ("one processor gets all", [0.1], 9, [0, 9]),
        ("errors do not add up", [1 / 3] * 3, 10, [0, 3, 7, 10]),
        ("halves go up, all of them", [0.5, 1, 0.5], 2, [0, 1, 2, 2]),
        ("a skipped processor gets nothing", [0, 2, 0, 2, 0], 7, [0, 0, 4, 4, 7, 7]),
        ("a share below half a unit may vanish", [0.4, 3.6], 4, [0, 0, 4]),
        ("nothing left", [1, 1], 0, [0, 0, 0]),
        (
            "rounding goes not beyond the end",
            [1656371978335783, 1299115277126104, 0],
            2955487255461888,
            [0, 1656371978335784, 2955487255461888, 2955487255461888],
        ),
        ("many units", [1, 1, 1], 3 * 10**15 + 1, [0, 10**15, 2 * 10**15 + 1, 3 * 10**15 + 1]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_cuts(why, shares, units, cuts):
    got = cut_points(np.array(shares, dtype=float), units)
    assert got.tolist() == cuts
    assert got.dtype == np.int64


def test_the_shares_stay_as_they_are():
    shares = np.array([1.0, 2.0])
    cut_points(shares, 30)
    assert shares.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("shares", "units"), [([], 1), ([0.0, 0.0], 1), ([1.0], -1)])
def test_what_cannot_be_cut(shares, units):
    with pytest.raises(ValueError, match="cannot cut"):
        cut_points(np.array(shares), units)
