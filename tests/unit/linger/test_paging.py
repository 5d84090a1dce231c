"""When memory is short: tables of what the kernel counts second by second, and what no counters can break."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.linger.memory_mark import MARGIN, PATIENCE, TIGHT, MemoryMark
from punctual.linger.paging import FAULTS, LASTING, PRESSURE, SPAN, Counters, NodeShortage, PodPaging, Pressure

SECOND = 1.0


def waits(*parts, recent=0.5):
    """Readings each second of a pod that waited for these parts of the seconds before them."""
    total, found = 7.0, [Counters(Pressure(recent, 7.0))]
    for part in parts:
        total += part
        found.append(Counters(Pressure(recent, total)))
    return found


def faults(*seconds):
    """Readings each second: (major faults, times at the limit) of the seconds before them."""
    found = [Counters(faults=1000, at_limit=50)]
    for more, reached in seconds:
        last = found[-1]
        found.append(Counters(faults=last.faults + more, at_limit=last.at_limit + reached))
    return found


def seen(readings, every=SECOND):
    one = PodPaging()
    return [one.see(100.0 + n * every, reading) for n, reading in enumerate(readings)]


N, Y = False, True
TABLE = {
    "one reading tells nothing": (waits(), [N]),
    "it waits": (waits(0.5, 0.5), [N, Y, Y]),
    "it waits just enough": (waits(PRESSURE * 1.001, recent=PRESSURE), [N, Y]),
    "it waits a little": (waits(0.04, 0.04), [N, N, N]),
    "the kernel's mean is low": (waits(0.5, 0.5, recent=0.049), [N, N, N]),
    "the kernel counts each two seconds": (waits(0, 0.2, 0, 0.2, 0, 0.2), [N, N, Y, Y, Y, Y, Y]),
    "the mean still remembers": (waits(0.9, 0.0, 0.0, 0.0, 0.0, 0.0, recent=0.3), [N, Y, Y, Y, Y, N, N]),
    "faults beside waits do not count": (
        [Counters(Pressure(0.0, 7.0), faults=10**6 * n, at_limit=n) for n in range(5)],
        [N] * 5,
    ),
    "another program began": ([*waits(0.9), *waits(0.9)], [N, Y, N, Y]),
    "it faults at its limit": (faults((60, 3), (60, 3), (60, 3)), [N, N, Y, Y]),
    "just enough faults": (faults((50, 1), (50, 1)), [N, N, Y]),
    "few faults": (faults((49, 3), (49, 3), (49, 3)), [N, N, N, N]),
    "it maps its input file": (faults((5000, 0), (5000, 0), (5000, 0)), [N, N, N, N]),
    "files fill its memory": (faults((0, 900), (0, 900), (0, 900)), [N, N, N, N]),
    "for moments": (faults((60, 3), (0, 3), (60, 3), (60, 0), (60, 3)), [N] * 6),
    "it ends": (faults((60, 3), (60, 3), (0, 0), (60, 3)), [N, N, Y, N, N]),
    "its container was restarted": ([*faults((60, 3), (60, 3)), *faults((60, 3), (60, 3))], [N, N, Y, N, N, Y]),
    "the kernel does not count faults": ([Counters(at_limit=n) for n in range(4)], [N] * 4),
    "the kernel does not count limits": ([Counters(faults=100 * n) for n in range(4)], [N] * 4),
    "no file is there": ([Counters()] * 4, [N] * 4),
    "files vanish and come back": (
        [*faults((60, 3), (60, 3)), Counters(), *faults((60, 3), (60, 3))],
        [N, N, Y, N, N, N, Y],
    ),
    "pressure is turned off and on": (
        [*waits(0.5), *faults((60, 3), (60, 3)), *waits(0.5)],
        [N, Y, N, N, Y, N, Y],
    ),
}


@pytest.mark.parametrize(("readings", "short"), TABLE.values(), ids=TABLE)
def test_a_pod_is_short_of_memory_if_it_stands_still_for_it(readings, short):
    assert seen(readings) == short


def test_faults_are_counted_by_the_second_however_long_a_look_takes():
    slow = faults((190, 3), (190, 3))
    assert seen(slow, every=4.0) == [N, N, N], "47 a second"
    assert seen(faults((210, 3)), every=4.0) == [N, Y], "52 a second, for longer than asked"


def test_waits_are_parts_of_the_time_however_long_a_look_takes():
    assert seen(waits(0.9, 0.9), every=20.0) == [N, N, N]
    assert seen(waits(1.1, 1.1), every=20.0) == [N, Y, Y]


numbers = st.none() | st.integers(0, 2**63)
counters = st.builds(
    Counters,
    pressure=st.none() | st.builds(Pressure, recent=st.floats(0, 1), total=st.floats(0, 1e12)),
    faults=numbers,
    at_limit=numbers,
)


@given(st.lists(st.tuples(st.floats(-5, 1e6), counters), max_size=40))
def test_whatever_is_read_ends_nothing_and_is_not_kept_for_long(readings):
    one, now = PodPaging(), 0.0
    for passed, reading in readings:
        now += passed
        assert one.see(now, reading) in {True, False}
        assert len(one._waits) <= 2 or one._waits[-1][0] - one._waits[0][0] <= SPAN


@given(st.lists(st.integers(0, round(FAULTS) - 1), min_size=2, max_size=40))
def test_fewer_faults_are_never_a_shortage(seconds):
    assert not any(seen(faults(*((more, 1) for more in seconds))))


@given(st.lists(st.integers(0, 400), min_size=2, max_size=40))
def test_a_shortage_by_faults_has_lasted(seconds):
    last = round(LASTING)
    for n, short in enumerate(seen(faults(*((more, 1) for more in seconds)))):
        assert short == (n >= last and all(more >= FAULTS for more in seconds[n - last : n]))


TOTAL = 1000


def test_a_node_is_short_once_little_has_been_available_for_seconds():
    one, limit = NodeShortage(), round(TIGHT * TOTAL)
    said = [one.see(float(n), TOTAL, available) for n, available in enumerate([*[limit] * 9, *[limit - 1] * 5, limit])]
    assert said == [*[N] * 11, *[Y] * 3, N]
    assert round(PATIENCE) == 3


def test_guests_are_asked_to_leave_a_node_no_later_than_it_counts_as_short():
    node, guests = NodeShortage(), MemoryMark()
    for n in range(10):
        available = TOTAL * (TIGHT - 0.01)
        short = node.see(float(n), TOTAL, available)
        guests.see(1.0 if n else 0.0, TOTAL, available, held=500)
        assert not short or guests.excess == round(TOTAL * (MARGIN - TIGHT + 0.01))
    assert short
