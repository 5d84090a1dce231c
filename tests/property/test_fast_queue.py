"""What the fast line admits is done in time by a dispatcher that only fills processors, and it refuses little in vain.

The dispatcher is the paper's (6.2.2), in `tests/support/machine.py`; it knows nothing of the test.
"""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import Machine

from punctual.scheduling.admission.fast_queue import FastQueue
from punctual.theory.cost import Cost


class Cluster:
    """A machine and the line that admits to it. With ``beta`` inputs go over one port."""

    def __init__(self, processors, *, beta=None, grain=0.0):
        self.line = FastQueue(processors, beta=beta, grain=grain)
        self.machine = Machine(processors, one_port=beta is not None, grain=grain, gave=self.gave)
        self.counted = set()

    def gave(self, chunk, waiting, before):
        if before in self.counted:
            self.counted.remove(before)
            self.line.stop(before)
        share = self.line.share(chunk.start, waiting.turn, waiting.left + chunk.load, waiting.cost)
        assert share == pytest.approx(chunk.load, abs=1e-5)
        end = self.line.start(chunk.start, waiting.turn, chunk.load, waiting.cost, left=waiting.left)
        while end in self.counted:  # `before` names a processor
            self.line.stop(end)
            end += 1e-9
            self.line.busy.add(end)
        self.counted.add(end)
        assert end == pytest.approx(chunk.end, abs=1e-6)

    def ask(self, uid, load, deadline, cost):
        machine = self.machine
        turn = (machine.now + deadline, machine.now, uid)
        room = self.line.room(machine.now, turn, load, cost)
        if room.fits:
            self.line.join(turn, room)
            machine.submit(uid, load, turn[0], cost)
        return room.fits

    def could(self, load, deadline, cost):
        """Whether processors have the time for all up to each deadline: concurrent, without set-ups, all it takes."""
        m = self.machine
        work = [(w.turn[0], w.left * w.cost.per_unit) for w in m.waiting] + [(m.now + deadline, load * cost.per_unit)]
        spare = [
            sum(max(0.0, d - max(end, m.now)) for end in m.free) - sum(x for due, x in work if due <= d)
            for d, _ in work
        ]
        return min(spare)

    def slacks_hold(self):
        """Whether what was found for those that wait is no more than what would be found now."""
        line, now = self.line, self.machine.now
        jobs = {w.turn: (w.load, w.cost) for w in self.machine.waiting}
        for w in line.waiting:
            begin = max(now, line.port)
            left = line.busy.left(line.processors, begin, w.order[0]) / line.busy.weight(line.processors)
            lost = line.lost(*jobs[w.order])
            assert w.slack <= left - lost - line.waiting.around(w.order)[0] - w.length + 1e-5


gaps = st.floats(0, 20)
deadlines = st.floats(0.2, 60)
jobs = st.lists(
    st.tuples(gaps, st.integers(1, 60), deadlines, st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=25
)
sent = st.sampled_from([0.0, 0.01, 0.1, 1.0, 4.0])
set_ups = st.sampled_from([0.0, 0.05, 1.0])


def play(cluster, trace, cost):
    """Ask for each (gap, load, deadline, χ) in its turn, run to the end; return (admitted, spare before) of each."""
    answers = []
    for i, (gap, load, deadline, chi) in enumerate(trace):
        cluster.machine.run(cluster.machine.now + gap)
        of = cost(chi)
        could = cluster.could(load, deadline, of)
        cluster.slacks_hold()
        answers.append((cluster.ask(f"j{i}", float(load), deadline, of), could))
        cluster.line.waiting.check()
        cluster.line.busy.check()
    cluster.machine.run(inf)
    assert not cluster.machine.missed
    assert not cluster.machine.waiting
    cluster.machine.check()
    done = {}
    for chunk in cluster.machine.chunks:
        done[chunk.uid] = done.get(chunk.uid, 0.0) + chunk.load
    assert done == pytest.approx({f"j{i}": float(trace[i][1]) for i, (yes, _) in enumerate(answers) if yes})
    return answers


@given(st.integers(1, 6), jobs)
def test_without_set_ups_it_admits_what_can_be_done_and_nothing_else(processors, trace):
    for admitted, spare in play(Cluster(processors), trace, Cost):
        assert admitted == (spare >= 0) or abs(spare) < 1e-4


@given(st.integers(1, 6), jobs, st.sampled_from([0.1, 1.0, 4.0]))
def test_with_set_ups_what_it_admits_is_done_in_time(processors, trace, setup):
    play(Cluster(processors), trace, lambda chi: Cost(chi, 0.0, 0.0, setup))


@given(st.integers(1, 6), jobs, st.sampled_from([0.0, 1.0]))
def test_with_whole_units_what_it_admits_is_done_in_time(processors, trace, setup):
    play(Cluster(processors, grain=1.0), trace, lambda chi: Cost(chi, 0.0, 0.0, setup))


@given(st.integers(1, 8), jobs, sent)
def test_over_one_port_what_it_admits_is_done_in_time(processors, trace, tau):
    play(Cluster(processors, beta=Cost(0.5, tau).beta), trace, lambda chi: Cost(chi, tau))


@given(st.integers(1, 8), jobs, sent)
def test_over_one_port_with_jobs_alike_what_it_admits_is_done_in_time(processors, trace, tau):
    play(Cluster(processors, beta=Cost(2.0, tau).beta), trace, lambda _: Cost(2.0, tau))


@given(st.integers(1, 8), jobs, sent, st.tuples(set_ups, set_ups))
def test_over_one_port_with_set_ups_what_it_admits_is_done_in_time(processors, trace, tau, set_up):
    play(Cluster(processors, beta=Cost(0.5, tau).beta), trace, lambda chi: Cost(chi, tau, *set_up))


@given(st.integers(1, 8), jobs, sent, st.tuples(set_ups, set_ups))
def test_over_one_port_with_whole_units_what_it_admits_is_done_in_time(processors, trace, tau, set_up):
    play(Cluster(processors, beta=Cost(0.5, tau).beta, grain=1.0), trace, lambda chi: Cost(chi, tau, *set_up))


def test_a_job_pays_for_no_more_set_ups_than_it_has_grains():
    """A hundred processors and a load of 40: each chunk is set up for 2 s."""
    cost = Cost(1.0, 0.0, 0.0, 2.0)
    paid = [FastQueue(100, grain=grain).length(40.0, cost) * 100 - 40.0 for grain in (0.0, 1.0, 10.0)]
    assert paid == pytest.approx([200.0, 80.0, 8.0])


def test_a_set_up_that_no_processor_has_time_for_is_lost_on_all_of_them():
    """Until 10.9 hundred processors have 1090 s, and none has the 11 s for a unit of 1 s and its set-up."""
    line = FastQueue(100, grain=1.0)
    cost = Cost(1.0, 0.0, 0.0, 10.0)
    assert not line.room(0.0, (10.9, 0.0, "j"), 5.0, cost).fits
    assert line.room(0.0, (12.0, 0.0, "j"), 5.0, cost).fits


@pytest.mark.parametrize(
    ("due", "left", "grain", "share"),
    [
        (12.0, 50.0, 0.0, 5.0),
        (12.0, 4.5, 0.0, 4.5),
        (12.9, 50.0, 1.0, 5.0),
        (12.0, 5.0, 1.0, 5.0),
        (2.0, 50.0, 0.0, 0.0),
        (1.0, 50.0, 0.0, 0.0),
        (3.9, 50.0, 1.0, 0.0),
    ],
)
def test_a_processor_works_for_the_head_of_the_line_until_its_due_time(due, left, grain, share):
    """Set up in 2 s, a unit in 2 s."""
    line = FastQueue(4, grain=grain)
    assert line.share(0.0, (due, 0.0, "j"), left, Cost(2.0, 0.0, 0.0, 2.0)) == pytest.approx(share)


def test_the_papers_example_is_refused():
    """Four processors, a loose job at 0 that takes one of them until 20, one at 6 that needs all four until 14."""
    cost = Cost(1.0)
    line = FastQueue(4)
    first = (20.0, 0.0, "first")
    line.join(first, line.room(0.0, first, 20.0, cost))
    line.start(0.0, first, 20.0, cost, left=0.0)
    assert not line.room(6.0, (14.0, 6.0, "second"), 28.0, cost).fits
    assert line.room(6.0, (14.0, 6.0, "second"), 24.0, cost).fits


def test_what_holds_processors_beyond_the_deadline_does_not_count_as_ending_first():
    """A job due at 100 holds three of four; taken to end first (225 s of work in 56 s) there would be room till 60."""
    cost = Cost(1.0)
    line = FastQueue(4, ends=[75.0, 75.0, 75.0])
    assert line.delay(0.0, 200.0) == pytest.approx(56.25)
    turn = (60.0, 0.0, "urgent")
    assert line.room(0.0, turn, 60.0, cost).fits
    assert not line.room(0.0, turn, 61.0, cost).fits


def test_a_job_that_leaves_gives_its_length_to_those_behind():
    line = FastQueue(2)
    cost = Cost(1.0)
    a, b = (10.0, 0.0, "a"), (11.0, 0.0, "b")
    line.join(a, line.room(0.0, a, 10.0, cost))
    assert not line.room(0.0, b, 14.0, cost).fits
    line.leave(a)
    assert line.room(0.0, b, 14.0, cost).fits


def test_what_whole_units_leave_of_processors_is_not_promised_to_a_job_of_smaller_units():
    """Two processors end at 9 with 2.9 s to the deadline, too little for a unit of 3 s: the third is needed."""
    cluster = Cluster(3, grain=1.0)
    cluster.line.busy.add(5.7)
    cluster.machine.processors = [(0.0, 0), (0.0, 1), (5.7, 2)]
    assert cluster.ask("m", 7.0, 11.9, Cost(3.0))
    cluster.machine.run(0.0)
    cluster.ask("k", 590.0, 11.89, Cost(0.01))
    cluster.machine.run(inf)
    assert not cluster.machine.missed


def test_an_idle_cluster_is_taken_as_idle():
    """Alg. 8 read to the letter would put off a job on an idle cluster by more than the cluster has been idle."""
    cost = Cost(100.0, 1.0)
    line = FastQueue(16, beta=cost.beta)
    alone = line.length(100.0, cost)
    assert alone == pytest.approx(100.0 * 1.0 / (1 - cost.beta**16))  # E(σ, N) = στ/(1 − β^N)
    for now in (0.0, 1e4):
        assert line.room(now, (now + alone * 1.000001, now, "j"), 100.0, cost).fits
        assert not line.room(now, (now + alone * 0.999999, now, "j"), 100.0, cost).fits


def test_a_job_of_a_lower_beta_is_not_for_the_line():
    line = FastQueue(4, beta=0.9)
    with pytest.raises(ValueError, match="beta"):
        line.length(10.0, Cost(1.0, 1.0))
    assert FastQueue(4).length(10.0, Cost(1.0, 1.0)) == 5.0


def test_a_deadline_that_has_passed_is_no_deadline_however_small_the_load():
    line = FastQueue(4, origin=1.8e9)
    assert not line.room(1.8e9, (1.8e9, 0.0, "j"), 1e-9, Cost(1.0)).fits
    assert line.room(1.8e9, (1.8e9 + 1.0, 0.0, "j"), 1e-9, Cost(1.0)).fits


def test_what_is_just_done_by_its_due_time_is_given_whole_whatever_the_clock_counts_from():
    """Times since 1970 are known to a quarter of a microsecond: hundreds of units where these are small."""
    cost, left, line = Cost(1e-9), 1e8, FastQueue(1, grain=1.0, origin=1.8e9)
    due = 1.8e9 + left * cost.per_unit
    assert due - 1.8e9 < left * cost.per_unit, "rounded down"
    assert line.share(1.8e9, (due, 0.0, "j"), left, cost) == left
    assert line.room(1.8e9, (due, 0.0, "j"), left, cost).fits
