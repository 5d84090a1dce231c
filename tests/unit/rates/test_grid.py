"""Where the cluster's grid begins: tables."""

import pytest

from punctual.rates.grid import CANDIDATES, LIMIT, GridOrigin, Kept, Mark

NOW = 1000.0


def origin(*kept, seconds=0.0):
    """Return the origin that is decided within so many seconds, as a part of 800 ms; None: none is."""
    grid = GridOrigin()
    grid.settle(NOW, kept)
    grid.settle(NOW + seconds, kept)
    return None if grid.begins is None else round(grid.begins % 0.8, 6)


def marks(*begins, node=None):
    """Return what pods say, each of a node of its own, or all of one."""
    return tuple(Mark(node or f"n{n}", at) for n, at in enumerate(begins))


OLD = Kept(0.1, 0.03, marks(5.08, 7.18))
"""Its grid begins at 50 ms of each 100 ms."""
LONG = Kept(0.4, 0.0, marks(0.25))
"""Its grid begins at 250 ms of each 400 ms, which is the same one."""

TABLE = {
    "nothing is kept": ((), 0.0, NOW % 0.8),
    "all tell": ((OLD,), 0.0, 5.05 % 0.8),
    "one does not tell": ((OLD._replace(marks=marks(5.08, None)),), 20.0, None),
    "one does not tell for long": ((OLD._replace(marks=marks(None, 7.18)),), LIMIT, 7.15 % 0.8),
    "one does not tell exactly": ((OLD._replace(half=0.003),), 20.0, None),
    "one does not tell exactly for long": ((OLD._replace(half=0.003),), LIMIT, 5.05 % 0.8),
    "none tells for long": ((OLD._replace(marks=marks(None, None)),), LIMIT, (NOW + LIMIT) % 0.8),
    "one has no pods": ((OLD._replace(marks=marks()),), 0.0, NOW % 0.8),
    "the longest period counts": ((OLD, LONG), 0.0, 0.25),
    "the longest one does not tell": ((OLD, LONG._replace(marks=marks(None))), LIMIT, 5.05 % 0.8),
    "one is wrong": ((OLD._replace(marks=marks(1e9, 5.08, 7.18)),), 0.0, 5.05 % 0.8),
    "the longest one is wrong, another application says so": (
        (OLD, LONG._replace(marks=marks(0.31, 0.25))),
        0.0,
        0.25,
    ),
    "two are wrong, each by itself": ((OLD._replace(marks=marks(1e9, -1e9 + 0.01, 5.08, 7.18)),), 0.0, 5.05 % 0.8),
    "two tell two origins": ((OLD._replace(marks=marks(5.08, 5.10)),), 0.0, 5.05 % 0.8),
    "one node has most pods and is wrong": (
        (OLD._replace(marks=marks(*[5.04] * 100, node="wrong") + marks(5.08, 7.18)),),
        0.0,
        5.05 % 0.8,
    ),
    "one node has many pods at many moments": (
        (OLD._replace(marks=marks(*[n / 7e3 for n in range(CANDIDATES)], node="wrong") + marks(5.08, 7.18)),),
        0.0,
        5.05 % 0.8,
    ),
    "of two nodes the older application's counts": (
        (OLD._replace(marks=marks(5.08, node="a")), OLD._replace(marks=marks(*[5.04] * 9, node="b"))),
        0.0,
        5.05 % 0.8,
    ),
    "they agree but for what clocks err": ((OLD._replace(marks=marks(5.0805, 5.08, 5.0795)),), 0.0, 5.0505 % 0.8),
}


@pytest.mark.parametrize(("kept", "seconds", "expected"), TABLE.values(), ids=TABLE)
def test_the_origin(kept, seconds, expected):
    assert origin(*kept, seconds=seconds) == (expected if expected is None else pytest.approx(expected, abs=1e-6))


def test_it_is_decided_once():
    grid = GridOrigin()
    assert grid.settle(NOW, ())
    assert not grid.settle(NOW + 1, (OLD,))
    assert grid.begins == NOW


def test_it_is_of_the_present_clock():
    grid = GridOrigin()
    grid.settle(NOW, (OLD._replace(marks=marks(1e9)),))
    assert NOW - 0.8 < grid.begins <= NOW
