"""A hand-over between the exact test and the fast one breaks no promise, whenever it comes."""

from bisect import insort
from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from machine import Machine, Waiting

from punctual.scheduling.admission.fast_test import Obstacle, to_fast, turn_of
from punctual.scheduling.model.discipline import Discipline, Order
from punctual.scheduling.model.processors import Place
from punctual.scheduling.model.ranges import Range, Ranges
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.placement.plan import Plan
from punctual.scheduling.placement.timeline import Timeline
from punctual.theory.cost import Cost

NOW = 1.8e9
demands = st.lists(st.tuples(st.integers(1, 40), st.floats(1, 60), st.sampled_from([0.5, 1.0, 3.0])), max_size=12)
networks = st.sampled_from(["Concurrent", "OnePort"])
costs = st.sampled_from([(0.0, 0.0, 0.0), (0.1, 0.0, 0.0), (0.1, 0.1, 0.5)])


def demand(n, units, due, cost):
    order = Order(due, 0.0, f"j{n}")
    return Demand(order=order, ranges=Ranges.of((0, units)), cost=cost, due=due)


@given(st.lists(st.floats(0, 30), min_size=1, max_size=6), demands, networks, costs)
def test_what_the_line_takes_over_it_keeps(ends, drawn, network, cost):
    """From any state: a plan's, of which some has begun, is one of these."""
    timeline = Timeline(NOW + np.array(ends), Discipline(network=network))
    asked = [demand(n, units, NOW + due, Cost(chi, *cost)) for n, (units, due, chi) in enumerate(drawn)]
    kept = []
    for one in asked:  # with each that the line could not keep the whole hand-over is off
        line = to_fast(NOW, timeline, [*kept, one])
        if not isinstance(line, Obstacle):
            line.waiting.check()
            kept.append(one)
    machine = Machine(len(ends), one_port=network == "OnePort", grain=1.0)
    machine.processors = sorted((end, p) for p, end in enumerate(ends))
    for one in kept:
        due, arrival, uid = turn_of(one)
        insort(machine.waiting, Waiting((due - NOW, arrival, uid), one.ranges.total, one.cost, one.ranges.total))
    machine.run(inf)
    assert not machine.missed
    assert set(machine.ended) == {one.uid for one in kept}
    machine.check()


@given(st.integers(1, 6), demands, st.floats(0, 20), networks)
def test_what_the_plan_takes_over_it_keeps_and_nothing_is_lost(processors, drawn, when, network):
    """From the line's own state at any time: all of it, or none."""
    discipline = Discipline(network=network)
    machine = Machine(processors, one_port=network == "OnePort", grain=1.0)
    asked = [demand(n, units, due, Cost(chi, 0.1)) for n, (units, due, chi) in enumerate(drawn)]
    kept = []
    for one in asked:
        if not isinstance(to_fast(0.0, Timeline(np.zeros(processors), discipline), [*kept, one]), Obstacle):
            kept.append(one)
            machine.submit(one.uid, one.ranges.total, one.due, one.cost, arrival=0.0)
    machine.run(when)
    of = {one.uid: one for one in kept}
    left = []
    for w in machine.waiting:
        one = of[w.turn[2]]
        done = one.ranges.total - round(w.left)
        left.append(one.begun(Ranges((Range(0, done),)) if done else Ranges(), w.given, 0.0))
    ready = np.maximum(np.array([at for at, _ in sorted(machine.processors, key=lambda x: x[1])]), machine.now)
    timeline = Timeline(ready, discipline, port=machine.port)
    plan, short = Plan.of([Place(f"n{p}", 0) for p in range(processors)], timeline, left, stop=True)
    if not short:
        plan.check()
        assert plan.keeps_all()
        assert {b.demand.uid for b in plan.placements} == {one.uid for one in left}
        machine_free = plan.timeline.ready
        assert (machine_free == ready).all()
    machine.run(inf)  # and who stays with the line
    assert not machine.missed
