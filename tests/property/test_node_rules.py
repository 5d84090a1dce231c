"""Rules about nodes at random: chunks are on allowed nodes, promises are kept, and no answer is needlessly no."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st
from world import Worker, World, job

from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.node_rules import ANY_NODE, HostPort, NodeRules, Requirement, Rule, Taint, Toleration
from punctual.scheduling.model.ranges import Ranges

TAINT = Taint("gpu", "yes", "NoSchedule")
TOLERATION = Toleration("gpu", "Exists", "", "NoSchedule")
PORTS = HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "10.0.0.1", 80), HostPort("UDP", "0.0.0.0", 80)


def rule(*terms):
    return Rule("it", tuple((Requirement(key, operator, values),) for key, operator, values in terms))


RULES = [
    rule(("disk", "In", ("ssd",))),
    rule(("disk", "NotIn", ("ssd",))),
    rule(("zone", "In", ("a",)), ("disk", "Exists", ())),
    rule(("disk", "Exists", ()), ("disk", "DoesNotExist", ())),
]
nodes = st.tuples(
    st.integers(1, 4),  # processors
    st.fixed_dictionaries({}, optional={"disk": st.sampled_from(["ssd", "hdd"]), "zone": st.sampled_from(["a", "b"])}),
    st.sampled_from([(), (), (), (TAINT,)]),
)
some_rules = st.builds(
    NodeRules,
    rules=st.lists(st.sampled_from(RULES), max_size=1).map(tuple),
    tolerations=st.sampled_from([(), (), (TOLERATION,)]),
    ports=st.sampled_from([frozenset(), frozenset(), *(frozenset((port,)) for port in PORTS)]),
    one_node=st.sampled_from(["", "", "", "claim data"]),
)
requests = st.tuples(
    st.integers(1, 150),  # units
    st.sampled_from([0.1, 0.5, 1.0, 3.0]),  # chi
    st.integers(5, 120),  # relative deadline
    st.sampled_from([0.0, 0.0, 3.0, 20.0]),  # gap to the next arrival
    st.booleans(),  # reduce
    st.one_of(st.just(ANY_NODE), some_rules),
)
specs = st.sampled_from(
    [
        {},
        {},
        {"admission": "Fast"},
        {"admission": "Hybrid", "threshold": 3},
        {"discipline": Discipline(network="OnePort")},
        {"discipline": Discipline(assign="AN")},
        {"discipline": Discipline(order="MWF")},
        {"admission": "Utilization"},
    ]
)


def world(there, spec):
    w = World(startup=2.0)
    w.edit_pool(replace(w.spec, generation=2, **spec))
    for k, (cpu, labels, taints) in enumerate(there):
        w.node(f"n{k}", cpu, labels=labels, taints=taints)
    w.tick()
    return w


def one(uid, request, now, **more):
    units, chi, deadline, _, reduce, rules = request
    wanted = {"rules": rules, "reduce_duration": 3.0 if reduce else None, **more}
    # ticks see an end up to 0.25 s late, and a pod starts at a tick: theta_cp holds both
    return job(uid, units=units, chi=chi, theta_cp=2.5, arrival=now, deadline=now + deadline, **wanted)


def paced(w):
    w.workers = lambda uid, c: Worker(pace=2.0 if c.kind == "Reduce" else w.jobs[uid].cost.chi)
    return w


def kept(w, uids):
    for uid in uids:
        record = w.records[uid]
        if record.promise is not None:
            assert record.finished is not None, (uid, record)
            assert record.finished <= record.promise.deadline, (uid, record)
            assert record.completed == Ranges.of((0, w.jobs[uid].units))


@given(st.lists(nodes, min_size=1, max_size=4), st.lists(requests, min_size=1, max_size=8), specs)
def test_chunks_run_where_rules_allow_them_and_promises_are_kept(there, wanted, spec):
    w = paced(world(there, spec))
    for k, request in enumerate(wanted):
        w.apply(one(f"j{k}", request, w.now))
        w.run(w.now + request[3] + 0.25)
    w.run(w.now + 300)
    assert w.left_pending == []
    kept(w, w.jobs)


@given(st.lists(nodes, min_size=1, max_size=4), st.lists(requests, min_size=1, max_size=8), specs, st.integers(1, 40))
def test_a_new_leader_keeps_them_too(there, wanted, spec, after):
    w = paced(world(there, spec))
    for k, request in enumerate(wanted):
        w.apply(one(f"j{k}", request, w.now))
        w.run(w.now + 0.25)
    w.run(w.now + after)
    w.crash()
    w.run(w.now + 300)
    assert w.left_pending == []
    kept(w, w.jobs)


@given(st.lists(nodes, min_size=1, max_size=4), st.lists(requests, min_size=1, max_size=5), requests, specs)
def test_an_offer_is_accepted(there, wanted, last, spec):
    w = paced(world(there, spec))
    for k, request in enumerate(wanted):
        w.apply(one(f"j{k}", request, w.now))
        w.run(w.now + 0.25)
    w.apply(one("last", last, w.now))
    w.run(w.now + 1.0)
    offer = w.records["last"].offer
    assume(offer is not None)
    assume(offer.earliest_deadline is not None)
    w.apply(replace(one("again", last, w.now), deadline=w.now + offer.earliest_deadline))
    w.run(w.now + 0.25)
    assert w.state("again")[0] == "True", (w.records["last"], w.records["again"])


@given(st.lists(nodes, min_size=1, max_size=4), st.lists(requests, min_size=1, max_size=8), specs)
def test_rules_that_exclude_no_node_change_nothing(there, wanted, spec):
    logs = []
    everywhere = NodeRules(rules=(RULES[3],))
    for rules in (ANY_NODE, everywhere):
        w = paced(world([(cpu, labels, ()) for cpu, labels, _ in there], spec))
        for k, request in enumerate(wanted):
            w.apply(one(f"j{k}", request, w.now, rules=rules if k % 2 else ANY_NODE))
            w.run(w.now + request[3] + 0.25)
        w.run(w.now + 100)
        logs.append(w.log)
    assert logs[0] == logs[1]


def alone(there, request, spec):
    """Return the answer to a job without rules in a pool of these nodes."""
    w = world(there, spec)
    w.apply(one("j", request, w.now, rules=ANY_NODE))
    w.run(w.now + 0.25)
    return w.state("j")[0] == "True"


@given(st.lists(nodes, min_size=1, max_size=4), requests, specs)
def test_a_job_is_promised_what_a_pool_of_its_own_nodes_would_promise(there, request, spec):
    w = world(there, spec)
    rules = request[5]
    own = [(cpu, labels, ()) for k, (cpu, labels, _) in enumerate(there) if rules.objection(w.nodes[f"n{k}"]) is None]
    pools = [own]
    if rules.ports:
        pools = [[(1, labels, taints) for _, labels, taints in own]]
    if rules.one_node:
        pools = [[node] for pool in pools for node in pool]
    w.apply(one("j", request, w.now))
    w.run(w.now + 0.25)
    assert (w.state("j")[0] == "True") == any(alone(pool, request, spec) for pool in pools if pool)
    if not own and rules != ANY_NODE:
        assert w.state("j")[1] == "PodFitsNoNode"


@given(st.lists(nodes, min_size=1, max_size=4), st.lists(requests, min_size=1, max_size=6), specs, st.integers(0, 40))
def test_labels_that_change_break_the_promises_of_their_jobs_alone(there, wanted, spec, after):
    w = paced(world(there, spec))
    for k, request in enumerate(wanted):
        w.apply(one(f"j{k}", request, w.now))
        w.run(w.now + 0.25)
    w.run(w.now + after)
    for k, (cpu, labels, taints) in enumerate(there):
        changed = {"disk": "hdd" if labels.get("disk") == "ssd" else "ssd"}
        w.node(f"n{k}", cpu, labels=changed, taints=taints)
    w.run(w.now + 300)
    plain = [uid for uid, wanted in w.jobs.items() if not wanted.rules.rules]
    kept(w, plain)
    for uid in w.jobs.keys() - set(plain):
        record = w.records[uid]
        if record.promise is not None and record.finished is None:
            assert record.on_track.reason in {"PodFitsNoNode", "CapacityLost", "Late"}, record
