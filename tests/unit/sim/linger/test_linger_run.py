"""The paper's cluster with guests: its bursts, its hosts, and what each policy gives."""

from dataclasses import astuple

import numpy as np
import pytest

from punctual.errors import PunctualError
from punctual.linger.parallel import phase_time
from punctual.sim.linger.bursts import WINDOW, Bursts, _draw, load
from punctual.sim.linger.hosts import Constant, Ryu, Trace
from punctual.sim.linger.options import Options
from punctual.sim.linger.run import simulate
from punctual.sim.linger.trace import parse

POLICIES = ("LingerLonger", "LingerForever", "ImmediateEviction", "PauseAndMigrate")


@pytest.mark.parametrize(("switch", "ratio"), [(0.0001, 1.4), (0.0003, 4.1), (0.0005, 6.8)])
def test_hosts_are_delayed_as_the_paper_says(switch, ratio):
    """LDR on hosts of constant use, 10 to 90 %, is 1.4, 4.1, 6.8 % (4.1); guests get more than 90 % of idle cycles."""
    uses = np.arange(0.10, 0.91, 0.05)
    bursts = Bursts(len(uses), np.random.default_rng(1))
    ran, gained, preempted = (
        sum(column) for column in zip(*(bursts.window(uses, switch) for _ in range(500)), strict=True)
    )
    seconds = 500 * WINDOW
    assert np.abs(ran / seconds - uses).max() < 0.025  # table 9 itself is up to 1.4 points off
    assert 100.0 * float(np.mean(preempted * switch / ran)) == pytest.approx(ratio, abs=0.5)
    assert (gained / (seconds - ran)).min() > 0.9


def test_a_burst_goes_on_in_the_next_window():
    """At full use, bursts are longer than half a second: cut at each window, there would be more of them."""
    bursts = Bursts(50, np.random.default_rng(2))
    begun = sum(float(bursts.window(np.ones(50), 0.0)[2].sum()) for _ in range(200))
    assert begun / (50 * 200 * WINDOW) == pytest.approx(1.5, rel=0.1)  # bursts per second, from the means


def test_the_papers_hosts_have_its_marginals():
    """3.1: use below 10 % in 82 % of the time and in 76 % of the busy time, 10 to 80 % in 13 %, above 80 % in 7 %."""
    series = Ryu().draw(300, 1800, np.random.default_rng(3))
    use, busy = series.use, series.busy
    assert float(1.0 - busy.mean()) == pytest.approx(Ryu().idle, abs=0.005)
    assert float((use < 0.1).mean()) == pytest.approx(0.82, abs=0.03)
    assert float((use < 0.1)[busy].mean()) == pytest.approx(0.76, abs=0.04)
    assert float((use >= 0.8).mean()) == pytest.approx(0.07, abs=0.02)


def test_the_policies_come_out_as_published():
    """Table 1, workload 1: throughput 34.6, 34.6, 52.2, 55.5; hosts delayed by less than 0.5 %."""
    found = {policy: simulate(Options(policy=policy), seed=4) for policy in POLICIES}
    gets = {policy: result.throughput for policy, result in found.items()}
    assert gets["ImmediateEviction"] == pytest.approx(34.6, rel=0.03)
    assert gets["PauseAndMigrate"] == pytest.approx(34.6, rel=0.03)
    assert gets["LingerLonger"] == pytest.approx(52.2, rel=0.05)
    assert gets["LingerForever"] == pytest.approx(55.5, rel=0.05)
    assert gets["LingerLonger"] >= 1.50 * gets["ImmediateEviction"]
    assert gets["LingerForever"] >= 1.58 * gets["ImmediateEviction"]
    for result in found.values():
        assert result.document()["host_slowdown"] <= 0.005


def test_divisible_guests_get_more_than_processes_that_move():
    whole, divisible = (simulate(Options(divisible=divisible), seed=5) for divisible in (False, True))
    assert divisible.throughput > whole.throughput
    assert divisible.lost < whole.lost / 5


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_processes_that_linger_leave_nothing_for_divisible_guests_while_others_wait(seed):
    """LingerForever uses each node all the time, but for the rests of windows in which a guest ends.

    Divisible guests get nearly as much, and more than processes that move.
    """
    options = {"nodes": 24, "guests": 48, "horizon": 1800.0}
    forever = simulate(Options(policy="LingerForever", **options), seed=seed)
    divisible = simulate(Options(divisible=True, **options), seed=seed)
    assert forever.efficiency > 0.995
    assert divisible.efficiency > 0.99 * forever.efficiency
    assert divisible.throughput > 1.01 * simulate(Options(**options), seed=seed).throughput


@pytest.mark.parametrize("seed", [1, 2])
def test_few_divisible_guests_take_all_free_nodes(seed):
    """Table 1, workload 2: 16 processes use 16 nodes of 64, here 8 of 32. Parts of divisible guests use all."""
    options = {"nodes": 32, "guests": 8, "work": 1800.0, "horizon": 1200.0, "policy": "LingerForever"}
    whole, divisible = (simulate(Options(divisible=divisible, **options), seed=seed) for divisible in (False, True))
    assert divisible.throughput > 3.0 * whole.throughput
    assert divisible.efficiency > 0.95


@pytest.mark.parametrize("policy", POLICIES)
def test_no_work_of_a_divisible_batch_is_lost_or_done_twice(policy):
    options = {"policy": policy, "nodes": 8, "guests": 3, "work": 300.0, "batch": True}
    result = simulate(Options(divisible=True, **options), seed=6)
    assert result.parts >= 3
    assert result.work == pytest.approx(3 * 300.0)
    assert len(result.completions) == 3
    assert max(result.completions) <= result.seconds < 3600.0
    assert max(result.completions) < max(simulate(Options(**options), seed=6).completions)


def test_a_range_is_divided_by_speed_and_small_parts_are_not_worth_a_start():
    """400 s on an idle node: half of it goes to a second node, which starts 2 s later; then 20 s are too little."""
    options = {"nodes": 2, "guests": 1, "batch": True, "divisible": True, "hosts": Constant(0.0)}
    result = simulate(Options(work=400.0, **options))
    assert (result.parts, result.migrations) == (1, 0)
    assert result.completions == [pytest.approx(200.0 + 2.0, abs=1.0)]
    assert simulate(Options(work=39.0, **options)).parts == 0


def test_a_batch_ends_with_its_last_guest_or_at_the_horizon():
    options = {"nodes": 2, "guests": 4, "work": 100.0, "batch": True, "hosts": Constant(0.0)}
    result = simulate(Options(**options))
    assert [round(end / 10.0) for end in sorted(result.completions)] == [10, 10, 20, 20]
    assert result.seconds == pytest.approx(max(result.completions), abs=4.0)
    assert result.work == pytest.approx(400.0)
    assert len(simulate(Options(horizon=150.0, **options)).completions) == 2


@pytest.mark.parametrize(("hold", "migrations"), [(60.0, 1), (600.0, 0)])
def test_a_guest_that_pauses_moves_after_its_hold(hold, migrations):
    trace = Trace([((0.0, 0.0), (100.0, 1.0)), ((0.0, 0.0),)])
    options = Options(nodes=2, guests=1, work=1e6, hosts=trace, horizon=400.0, policy="PauseAndMigrate", hold=hold)
    assert simulate(options).migrations == migrations


@pytest.mark.parametrize("policy", POLICIES)
def test_no_work_and_no_guest_is_lost(policy):
    """Guests' time adds up, and so does their work: what was done is what the cluster gave."""
    options = Options(policy=policy, nodes=8, guests=12, work=50.0, horizon=1000.0)
    result = simulate(options, seed=6)
    assert sum(result.states.values()) == pytest.approx(12 * 1000.0, rel=0.01)
    assert len(result.completions) * 50.0 <= result.work <= (len(result.completions) + 12) * 50.0
    assert result.work + result.used <= 8 * 1000.0
    assert result.lost == pytest.approx(result.migrations * 21.3, abs=21.3)


@pytest.mark.parametrize(("horizon", "seconds"), [(2.0, 2.0), (3.0, 4.0), (5.0, 6.0), (6.0, 6.0)])
def test_what_is_given_in_a_second_counts_over_whole_windows(horizon, seconds):
    result = simulate(Options(nodes=2, guests=2, hosts=Constant(0.0), horizon=horizon))
    assert result.seconds == seconds
    assert result.throughput == pytest.approx(2.0 * 0.986, rel=0.05)


def test_on_idle_nodes_all_policies_are_the_same():
    found = {simulate(Options(policy=p, nodes=4, guests=4, hosts=Constant(0.0), horizon=400.0)).work for p in POLICIES}
    assert len(found) == 1


def test_guests_leave_a_node_that_its_trace_makes_busy():
    trace = parse(b"a 0 0\na,100,1.0\na 500 0\n# nothing\n\nb 0 0.0\n")
    moved = simulate(Options(nodes=2, guests=1, work=1000.0, hosts=trace, horizon=400.0))
    stayed = simulate(Options(nodes=2, guests=1, work=1000.0, hosts=trace, horizon=400.0, policy="LingerForever"))
    assert (moved.migrations, stayed.migrations) == (1, 0)
    # full use: it stays for as long as the move takes (3.4)
    assert moved.work == pytest.approx(400.0 - 2 * 21.3, abs=4.0)
    assert stayed.work == pytest.approx(100.0, abs=5.0)


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        (b"a 0", "line 1: must be a node"),
        (b"a 0 0.5\nb 0 1.5", "line 2: must be a node"),
        (b"a x 0.5", "line 1"),
        (b"a nan 0.5", "line 1"),
        (b"a 5 0.5\na 4 0.5", "times of node a must not fall"),
        (b"# only this", "the trace is empty"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(text, flaw):
    with pytest.raises(PunctualError, match=flaw):
        parse(text)


def test_a_trace_is_busy_until_a_quiet_minute_is_over():
    series = Trace((((10.0, 0.5), (20.0, 0.0)),)).draw(2, 60, np.random.default_rng(0))
    assert series.busy[0].nonzero()[0].tolist() == list(range(5, 39))
    assert not series.busy[1].any()


@pytest.mark.parametrize("offset", [0.0, 0.3, 1.0, 1.7])
def test_a_window_has_the_mean_of_its_trace(offset):
    """Bursts of a second in two are a use of a half, wherever they begin."""
    bursts = [(offset + at, 1.0 - at % 2) for at in range(40)]
    use = Trace([bursts]).draw(1, 20, np.random.default_rng(0)).use[0]
    assert use[1:-1] == pytest.approx(0.5)
    assert use[0] == pytest.approx(min(1.0, 2.0 - offset) / 2.0)
    assert Trace([[(5.0, 1.0), (5.0, 0.2)]]).draw(1, 4, np.random.default_rng(0)).use[0].tolist() == [0, 0, 0.1, 0.2]


def test_a_trace_of_the_least_busy_use_is_busy_in_all_its_windows():
    series = Trace([[(0.7, 0.1)]]).draw(1, 5000, np.random.default_rng(0))
    assert series.busy[0, 1:].all()


@pytest.mark.parametrize("parallel", [1, 2])
def test_hosts_that_use_nothing_lose_nothing(parallel):
    """Also after a burst that crossed the time from which on they do not run."""
    options = {"nodes": 2, "guests": 2 // parallel, "work": 1e6, "horizon": 100.0, "parallel": parallel}
    result = simulate(Options(hosts=Constant(0.0), **options))
    assert (result.delay, result.used) == (0.0, 0.0)
    assert result.work == pytest.approx(200.0)
    early, late = (
        simulate(Options(hosts=Trace([[(0.0, 1.0), (20.0, 0.0)]] * 2), **{**options, "horizon": horizon}), seed=1)
        for horizon in (20.0, 100.0)
    )
    assert (late.delay, late.used) == (early.delay, early.used)
    assert early.used > 0.0


def mixed(nodes: int, idle: int, use: float) -> Trace:
    """Nodes of which some are idle and the others busy, all the time."""
    return Trace([((0.0, 0.0),)] * idle + [((0.0, use),)] * (nodes - idle))


def parallel(idle: int, use: float, **options) -> float:
    """Return the work of one parallel guest in a second, on nodes as in figure 16."""
    many = {"nodes": 32, "guests": 1, "work": 1e9, "migration": 0.0, "horizon": 60.0, "parallel": 32, **options}
    return simulate(Options(hosts=mixed(32, idle, use), **many), seed=1).throughput


@pytest.mark.parametrize("idle", [30, 27, 12, 6])
def test_lingering_against_reconfiguration_as_published(idle):
    """Figure 16, hosts at 20 %: LL-8 and LL-16 are no slower; LL-32 is faster with five or fewer busy nodes."""
    reconfigured = parallel(idle, 0.2, policy="ImmediateEviction")
    assert parallel(idle, 0.2, policy="LingerForever", parallel=8 if idle < 16 else 16) >= 0.99 * reconfigured
    if idle >= 27:
        assert parallel(idle, 0.2, policy="LingerForever") > reconfigured


def test_busy_hosts_make_fewer_processes_better():
    """Figure 16, hosts at 40 %: 32 processes of which a half lingers are slower than 16 on idle nodes."""
    assert parallel(16, 0.4, policy="LingerForever") < parallel(16, 0.4, policy="ImmediateEviction")


def burst_by_burst(uses: list[float], phase: float, seconds: float) -> float:
    """Return the work of a parallel guest in a second, without steps: each process ends its phase within a burst."""
    rng = np.random.default_rng(1)
    many = int(200.0 * seconds)
    nodes = []
    for use in uses:
        run, run_variance, idle, idle_variance = (np.array([moment]) for moment in astuple(load(use)))
        lengths = np.zeros(2 * many + 1)
        lengths[1::2], lengths[2::2] = _draw(rng, idle, idle_variance, many)[0], _draw(rng, run, run_variance, many)[0]
        gets = lengths.copy()
        gets[2::2] = 0.0
        nodes.append((np.cumsum(lengths), np.cumsum(gets)))
    now, work = 0.0, 0.0
    while now < seconds:
        ends = []
        for times, gets in nodes:
            goal = float(np.interp(now, times, gets)) + phase
            at = int(np.searchsorted(gets, goal))  # the end of the idle burst in which it is reached
            ends.append(times[at] - (gets[at] - goal))
        now, work = float(max(ends)), work + phase * len(uses)
    return work / now


@pytest.mark.parametrize(("busy", "nodes", "use", "phase"), [(8, 8, 0.2, 0.1), (4, 8, 0.2, 0.1), (24, 32, 0.4, 0.5)])
def test_barriers_take_as_long_as_burst_by_burst(busy, nodes, use, phase):
    """Within a step of 0.1 s idle time counts as spread evenly: that is off by less than 7 %."""
    idle = nodes - busy
    exact = burst_by_burst([0.0] * idle + [use] * busy, phase, 60.0)
    hosts = mixed(nodes, idle, use)
    options = {"nodes": nodes, "guests": 1, "work": 1e9, "horizon": 60.0, "parallel": nodes, "phase": phase}
    found = simulate(Options(policy="LingerForever", hosts=hosts, **options), seed=1).throughput
    assert found == pytest.approx(exact, rel=0.07)


@pytest.mark.parametrize(("idle", "use"), [(30, 0.2), (16, 0.4), (4, 0.2)])
def test_a_guest_that_chooses_is_hardly_behind_the_best(idle, use):
    choices = [parallel(idle, use, policy="ImmediateEviction")]
    choices += [parallel(idle, use, policy="LingerForever", parallel=many) for many in (8, 16, 32)]
    assert parallel(idle, use, policy="LingerLonger", adapt=True) >= 0.95 * max(choices)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("adapt", [False, True])
def test_no_work_of_parallel_guests_is_lost(policy, adapt):
    options = Options(policy=policy, nodes=16, guests=6, work=100.0, horizon=600.0, parallel=4, adapt=adapt)
    result = simulate(options, seed=7)
    done = len(result.completions)
    assert sum(result.states.values()) == pytest.approx(6 * 600.0, rel=1e-6)
    assert done * 100.0 <= result.work <= (done + 6) * 100.0
    assert done > 10
    assert result.work + result.used <= 16 * 600.0


def test_a_process_that_moves_holds_up_its_guest():
    """One of two nodes becomes busy at 60 s. The guest stops for 20 s as soon as that pays by its phases (3.4)."""
    hosts = Trace([((0.0, 0.0), (60.0, 0.5)), ((0.0, 0.0),), ((0.0, 0.05),)])
    options = Options(nodes=3, guests=1, work=1e9, migration=20.0, hosts=hosts, horizon=300.0, parallel=2)
    result = simulate(options, seed=1)
    assert result.migrations == 1
    assert result.states["moving"] == pytest.approx(20.0)
    before, after = (phase_time(options.phase, [load(0.0), load(use)]) for use in (0.5, 0.05))
    pays = 20.0 / (1.0 - after / before)
    assert result.states["lingering"] == pytest.approx(pays, abs=WINDOW)


@pytest.mark.parametrize(
    ("free", "moved"),
    [(1, 0), (2, 0), (3, 3), (5, 3)],
    ids=["one of three busy processes", "two of three", "all three", "no more than are busy"],
)
def test_busy_processes_move_together_where_the_guest_gains_by_it(free, moved):
    """Three of four nodes become busy at once. All processes wait for the slowest: only a move of all three pays."""
    hosts = Trace([[(0.0, 0.0), (60.0, 0.5)]] * 3 + [[(0.0, 0.0)]] * (1 + free))
    options = Options(nodes=4 + free, guests=1, work=1e9, migration=20.0, hosts=hosts, horizon=200.0, parallel=4)
    result = simulate(options, seed=1)
    assert result.migrations == moved
    assert result.states["moving"] == pytest.approx(20.0 if moved else 0.0)


def test_the_slowest_process_moves_alone():
    hosts = Trace([[(0.0, 0.0), (60.0, use)] for use in (0.15, 0.9, 0.0)])
    options = Options(nodes=3, guests=1, work=1e9, migration=20.0, hosts=hosts, horizon=200.0, parallel=2)
    assert simulate(options, seed=1).migrations == 1


def test_nodes_that_become_free_are_for_guests_that_wait():
    """Nodes of the first guest become busy. Those of the second one, which ends at 100 s, go to the third."""
    hosts = Trace([[(0.0, 0.0), (60.0, 0.5)]] * 2 + [[(0.0, 0.0)]] * 2)
    options = Options(nodes=4, guests=3, work=200.0, migration=5.0, hosts=hosts, horizon=150.0, parallel=2)
    result = simulate(options, seed=1)
    assert (len(result.completions), result.migrations) == (1, 0)


def test_parallel_guests_lose_nothing_by_moves():
    options = {"nodes": 12, "guests": 1, "parallel": 8, "horizon": 900.0}
    gets = {
        policy: sum(simulate(Options(policy=policy, **options), seed=seed).work for seed in (1, 2, 3))
        for policy in ("LingerLonger", "LingerForever")
    }
    assert gets["LingerLonger"] > 0.98 * gets["LingerForever"]
