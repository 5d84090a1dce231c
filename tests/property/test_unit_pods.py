"""Promises of jobs of which each pod does one unit, beside ordinary ones: kept where pods take what was declared."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from pool_machine import admissions
from world import Worker, World, job

from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.job import PodSize
from punctual.scheduling.model.ranges import Ranges
from punctual.scheduling.model.resources import Resources

disciplines = st.builds(
    Discipline,
    order=st.sampled_from(["EDF", "FIFO", "MWF"]),
    partition=st.sampled_from(["OPR", "EPR"]),
    assign=st.sampled_from(["MN", "AN"]),
    network=st.sampled_from(["Concurrent", "OnePort"]),
    start=st.sampled_from(["Ready", "Together"]),
)
fast = admissions.flatmap(lambda more: st.just({"discipline": Discipline(), **more}))
specs = st.one_of(disciplines.map(lambda discipline: {"discipline": discipline}), fast)
requests = st.tuples(
    st.booleans(),  # one unit in each pod
    st.integers(1, 80),  # units
    st.sampled_from([0.5, 1.0, 3.0]),  # chi
    st.integers(5, 200),  # relative deadline
    st.floats(0, 40),  # gap to the next arrival
    st.sampled_from([None, None, 1, 3]),  # processors.max
    st.sampled_from([1, 1, 2]),  # processors.min
)


def _come(w, wanted, crash, *, slower=1.0):
    """Let jobs come, and give them time to end. ``slower``: pods of one unit take so many times as long as declared."""
    paces = {}
    w.workers = lambda uid, _c: Worker(pace=paces[uid])
    for k, (unit_pods, units, chi, deadline, gap, most, least) in enumerate(wanted):
        uid = f"j{k}"
        paces[uid] = chi * (slower if unit_pods else 1.0)
        w.apply(
            job(
                uid,
                unit_pods=unit_pods,
                units=units,
                chi=chi,
                theta_cp=2.5,
                arrival=w.now,
                deadline=w.now + deadline,
                max_processors=most,
                min_processors=min(least, units, most or least),
            )
        )
        w.run(w.now + gap)
        if crash and k % 2:
            w.crash()
    w.run(w.now + 250)


@given(st.lists(requests, min_size=1, max_size=10), st.integers(1, 4), st.integers(1, 3), specs, st.booleans())
def test_promises_are_kept_when_costs_are_as_declared(wanted, cpu, nodes, more, crash):
    w = World(startup=2.0)
    w.edit_pool(replace(w.spec, generation=2, **more))
    for n in range(nodes):
        w.node(f"n{n}", cpu)
    _come(w, wanted, crash)
    for uid, asked in w.jobs.items():
        record = w.records[uid]
        w.check_promise(uid)
        if record.promise is not None:
            assert record.completed == Ranges.of((0, asked.units))
            if asked.unit_pods:
                assert all(end == begin + 1 for begin, end in w.processed[uid]), uid


@given(
    units=st.integers(1, 300),
    chi=st.sampled_from([0.5, 2.0, 5.0]),
    slack=st.floats(1.0, 4.0),
    processors=st.integers(1, 12),
    most=st.sampled_from([None, 2, 5]),
    more=specs,
)
def test_a_job_alone_meets_its_first_forecast(*, units, chi, slack, processors, most, more):
    w = World(startup=2.0)
    w.edit_pool(replace(w.spec, generation=2, **more))
    w.node("n0", processors)
    w.workers = lambda _u, _c: Worker(pace=chi)
    usable = min(processors, most or processors)
    deadline = 10.0 + (1 + -(-units // usable)) * (2.5 + chi) * slack
    w.apply(job("j", unit_pods=True, units=units, chi=chi, theta_cp=2.5, deadline=deadline, max_processors=most))
    w.tick()
    promise = w.records["j"].promise
    assert promise is not None
    seen = []
    while not w.done("j"):
        w.run(w.now + 0.25)
        record = w.records["j"]
        seen.append(len(record.chunks))
        assert len(record.completed.parts) <= 1 + usable, "what is done has more holes than units run"
    assert w.records["j"].finished <= 1.05 * promise.finish
    assert max(seen) <= usable
    assert w.met("j")
    begins = sorted(begin for begin, _ in w.processed["j"])
    assert all(after == before + 1 for before, after in pairwise(begins))


@given(
    st.lists(requests, min_size=2, max_size=8),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([1.5, 3.0]),
    st.booleans(),
)
def test_slow_units_break_no_promise_of_another_job(wanted, cpu, nodes, slower, crash):
    w = World(startup=2.0)
    for n in range(nodes):
        w.node(f"n{n}", cpu)
    _come(w, [(*one[:-1], 1) for one in wanted], crash, slower=slower)
    for uid, asked in w.jobs.items():
        if not asked.unit_pods:
            w.check_promise(uid)


small_jobs = st.tuples(
    st.sampled_from([None, 0.1, 0.4, 1.0]),  # CPU of its pods; None: the Pool makes them
    st.integers(1, 20),  # units
    st.integers(20, 200),  # relative deadline
    st.floats(0, 20),  # gap to the next arrival
)


@given(
    wanted=st.lists(small_jobs, min_size=1, max_size=6),
    cpus=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    spare=st.integers(0, 3),
    hold=st.sampled_from(["None", "Placeholder"]),
    crash=st.booleans(),
)
def test_pods_and_what_is_kept_beside_them_fit_their_nodes(*, wanted, cpus, spare, hold, crash):
    w = World(startup=2.0)
    w.edit_pool(replace(w.spec, generation=2, hold=hold))
    for n, cpu in enumerate(cpus):
        w.node(f"n{n}", cpu, pods=cpu + spare)
    for k, (cpu, units, deadline, gap) in enumerate(wanted):
        pod = None if cpu is None else PodSize(Resources(cpu))
        asked = {"units": units, "theta_cp": 2.5, "arrival": w.now, "deadline": w.now + deadline}
        w.apply(job(f"j{k}", unit_pods=cpu is not None, pod=pod, **asked))
        until = w.now + (gap if k < len(wanted) - 1 else 120.0)
        while w.now < until:
            w.run(w.now + 0.5)
            _fits(w)
        if crash:
            w.crash()
    for uid in w.jobs:
        record = w.records[uid]
        assert record.promise is None or record.finished is None or record.finished <= record.promise.deadline
    busy = any(record.chunks for record in w.records.values())
    assert busy or not any(kept.rests for kept in w.kept.values())


def _fits(w):
    for name, kept in w.kept.items():
        chunks = [(uid, chunk) for uid, record in w.records.items() for chunk in record.chunks if chunk.node == name]
        sizes = [w.jobs[uid].pod.requests.cpu if w.jobs[uid].pod else w.spec.cpu for uid, _ in chunks]
        taken = sum(sizes) + sum(rest.cpu for rest in kept.rests) + kept.placeholders * w.spec.cpu
        assert taken <= w.nodes[name].cpu + 1e-6, (w.now, sizes, kept)
        assert len(sizes) + len(kept.rests) + kept.placeholders <= w.nodes[name].pods, (w.now, sizes, kept)
