"""The array of ends against a plain list."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from punctual.scheduling.admission import busy_index
from punctual.scheduling.admission.busy_index import BusyIndex

times = st.integers(0, 40).map(float)


class BusyAgainstAList(RuleBasedStateMachine):
    @initialize(
        size=st.integers(1, 4),
        ends=st.lists(times, max_size=20),
        beta=st.sampled_from([1.0, 0.999, 0.9, 0.3, 1e-3]),
    )
    def begin(self, size, ends, beta):
        busy_index.BLOCK, self.usual = (
            size,
            busy_index.BLOCK,
        )  # blocks so small that they are cut and go away all the time
        self.busy, self.ends, self.beta = BusyIndex(ends, beta=beta), list(ends), beta

    def teardown(self):
        busy_index.BLOCK = getattr(self, "usual", busy_index.BLOCK)

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

    @rule(now=times)
    def forget(self, now):
        self.busy.forget(now)
        self.ends = [end for end in self.ends if end > now]

    @rule(now=times, until=times, idle=st.integers(0, 5))
    def look(self, now, until, idle):
        processors = len(self.ends) + idle
        free = sorted([max(end, now) for end in self.ends] + [now] * idle)
        expected = sum(self.beta**j * max(0.0, until - at) for j, at in enumerate(free))
        assert self.busy.left(processors, now, until) == pytest.approx(expected, abs=1e-9)
        assert self.busy.weight(processors) == pytest.approx(sum(self.beta**j for j in range(processors)))

    @invariant()
    def they_are_the_same(self):
        if hasattr(self, "busy"):
            self.busy.check()
            assert len(self.busy) == len(self.ends)


TestBusyAgainstAList = BusyAgainstAList.TestCase


def test_tens_of_thousands_are_summed_as_a_few_are():
    ends = [n % 97 / 97 for n in range(30_000)]
    expected = sum(0.9999**j * (1.0 - end) for j, end in enumerate(sorted(ends)))
    assert BusyIndex(ends, beta=0.9999).left(len(ends), -1.0, 1.0) == pytest.approx(expected, rel=1e-9)


def test_what_is_not_busy_cannot_become_free():
    for ends in ([], [1.0, 3.0], [1.0]):
        with pytest.raises(KeyError):
            BusyIndex(ends).remove(2.0)


@pytest.mark.parametrize("beta", [0.0, -0.1, 1.1])
def test_a_weight_is_between_none_and_whole(beta):
    with pytest.raises(ValueError, match="beta"):
        BusyIndex(beta=beta)
