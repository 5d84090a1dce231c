"""The blocks of ends against a plain list."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from punctual.scheduling import busy
from punctual.scheduling.busy import Busy

times = st.integers(0, 40).map(float)


class BusyAgainstAList(RuleBasedStateMachine):
    @initialize(size=st.integers(1, 4), ends=st.lists(times, max_size=20))
    def begin(self, size, ends):
        busy.BLOCK, self.usual = size, busy.BLOCK
        self.busy, self.ends = Busy(ends), list(ends)

    def teardown(self):
        busy.BLOCK = getattr(self, "usual", busy.BLOCK)

    @rule(end=times)
    def add(self, end):
        self.busy.add(end)
        self.ends.append(end)

    @rule(data=st.data())
    def remove(self, data):
        if self.ends:
            end = data.draw(st.sampled_from(self.ends))
            self.busy.remove(end)
            self.ends.remove(end)

    @rule(now=times, until=times)
    def look(self, now, until):
        assert self.busy.taken(now, until) == sum(max(0.0, min(end, until) - now) for end in self.ends)

    @invariant()
    def they_are_the_same(self):
        if hasattr(self, "busy"):
            self.busy.check()
            assert len(self.busy) == len(self.ends)


TestBusyAgainstAList = BusyAgainstAList.TestCase


def test_what_is_not_busy_cannot_become_free():
    for ends in ([], [1.0, 3.0]):
        with pytest.raises(KeyError):
            Busy(ends).remove(2.0)
    with pytest.raises(KeyError):
        Busy([1.0]).remove(2.0)
