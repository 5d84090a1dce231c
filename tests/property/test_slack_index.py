"""The line of slacks against a plain list that does the paper's walks (Mamat 2011, algs. 6 and 7)."""

from math import inf

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from punctual.scheduling.admission import slack_index
from punctual.scheduling.admission.slack_index import SlackIndex

places = st.tuples(st.integers(0, 40), st.integers(0, 3))
times = st.integers(-50, 50).map(float)
lengths = st.integers(0, 50).map(float)


class SlacksAgainstAList(RuleBasedStateMachine):
    """Whole numbers as floats: sums are exact in any order, so the two must agree to the last bit."""

    @initialize(size=st.integers(2, 5))
    def begin(self, size):
        slack_index.BLOCK, self.usual = (
            size,
            slack_index.BLOCK,
        )  # blocks so small that they are cut and go away all the time
        self.line, self.naive, self.serial = SlackIndex(), [], 0

    def teardown(self):
        slack_index.BLOCK = getattr(self, "usual", slack_index.BLOCK)

    def order(self, place):
        self.serial += 1
        return (float(place[0]), float(place[1]), f"u{self.serial}")

    @rule(place=places, length=lengths, slack=times)
    def insert(self, place, length, slack):
        order = self.order(place)
        self.line.insert(order, length, slack)
        self.naive = [
            *([o, e, s] for o, e, s in self.naive if o < order),
            [order, length, slack],
            *([o, e, s - length] for o, e, s in self.naive if o > order),
        ]

    def some(self, data):
        return data.draw(st.sampled_from(self.naive)) if self.naive else None

    @rule(data=st.data())
    def remove(self, data):
        if (one := self.some(data)) is None:
            return
        self.line.remove(one[0])
        self.naive = [[o, e, s + one[1] * (o > one[0])] for o, e, s in self.naive if o != one[0]]

    @rule(data=st.data(), length=lengths)
    def shorten(self, data, length):
        if (one := self.some(data)) is None:
            return
        self.line.shorten(one[0], length)
        gain = one[1] - length
        self.naive = [[o, length if o == one[0] else e, s + gain * (o >= one[0])] for o, e, s in self.naive]

    @rule(place=places)
    def look(self, place):
        order = self.order(place)
        behind = [s for o, _, s in self.naive if o > order]
        ahead = sum(e for o, e, _ in self.naive if o < order)
        assert self.line.around(order) == (ahead, min(behind, default=inf))

    @rule(data=st.data())
    def look_at_one_of_them(self, data):
        if (one := self.some(data)) is None:
            return
        behind = [s for o, _, s in self.naive if o > one[0]]
        ahead = sum(e for o, e, _ in self.naive if o < one[0])
        assert self.line.around(one[0]) == (ahead, min(behind, default=inf))
        assert self.line.length(one[0]) == one[1]

    @invariant()
    def they_are_the_same(self):
        if hasattr(self, "line"):
            assert [list(w) for w in self.line] == self.naive
            assert len(self.line) == len(self.naive)
            self.line.check()


TestSlacksAgainstAList = SlacksAgainstAList.TestCase


def test_a_job_that_is_not_in_the_line_cannot_be_taken_out():
    line = SlackIndex()
    stranger = (1.0, 0.0, "x")
    with pytest.raises(KeyError):
        line.remove(stranger)
    line.insert((2.0, 0.0, "a"), 1.0, 5.0)
    with pytest.raises(KeyError):
        line.shorten(stranger, 1.0)
    with pytest.raises(KeyError):
        line.remove((3.0, 0.0, "x"))
