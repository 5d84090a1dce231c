"""Rules about nodes: what they object to, and what becomes of jobs and promises where they exclude nodes."""

from dataclasses import replace

import pytest
from world import Worker, World, job

from punctual.scheduling.model.discipline import Discipline
from punctual.scheduling.model.events import JobApplied, NodeObserved
from punctual.scheduling.model.node_rules import (
    ANY_NODE,
    HostPort,
    NodeRules,
    Requirement,
    Rule,
    Taint,
    Toleration,
)

DISK = "spec.template.spec.nodeSelector: example.com/disk=ssd"
SSD = {"example.com/disk": "ssd"}
GPU = Taint("gpu", "yes", "NoSchedule")


def selector(key="example.com/disk", value="ssd", **more):
    return NodeRules(
        rules=(Rule(f"spec.template.spec.nodeSelector: {key}={value}", ((requirement(key, "In", value),),)),), **more
    )


def requirement(key, operator, *values, field=False):
    return Requirement(key, operator, values, field)


def node(name="n", **more):
    return NodeObserved(name=name, ready=True, cpu=4.0, memory=2**30, **more)


# what rules object to: Kubernetes' own semantics

LABELS = {"zone": "a", "cores": "16", "odd": "1_6", "huge": str(2**63), "name": "n"}


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        (requirement("zone", "In", "a", "b"), True),
        (requirement("zone", "In", "b"), False),
        (requirement("other", "In", ""), False),
        (requirement("zone", "NotIn", "b"), True),
        (requirement("zone", "NotIn", "a"), False),
        (requirement("other", "NotIn", "a"), True),
        (requirement("zone", "Exists"), True),
        (requirement("other", "Exists"), False),
        (requirement("other", "DoesNotExist"), True),
        (requirement("zone", "DoesNotExist"), False),
        (requirement("cores", "Gt", "15"), True),
        (requirement("cores", "Gt", "16"), False),
        (requirement("cores", "Lt", "17"), True),
        (requirement("cores", "Lt", "16"), False),
        (requirement("cores", "Gt", "-1"), True),
        (requirement("cores", "Gt", "1", "2"), False),
        (requirement("cores", "Gt", "many"), False),
        (requirement("zone", "Gt", "0"), False),
        (requirement("other", "Lt", "1"), False),
        (requirement("odd", "Gt", "0"), False),
        (requirement("huge", "Gt", "0"), False),
        (requirement("metadata.name", "In", "n", field=True), True),
        (requirement("metadata.name", "NotIn", "n", field=True), False),
        (requirement("name", "In", "m", field=True), False),
    ],
)
def test_a_requirement_holds_as_kubernetes_reads_it(wanted, holds):
    rules = NodeRules(rules=(Rule("it", ((wanted,),)),))
    assert rules.objection(node(labels=LABELS)) == (None if holds else "it")


def test_all_rules_must_hold_and_of_a_rule_one_term_with_all_its_requirements():
    zone, cores = requirement("zone", "In", "a"), requirement("cores", "Gt", "99")
    both, either = Rule("both", ((zone, cores),)), Rule("either", ((zone,), (cores,)))
    there = node(labels=LABELS)
    assert NodeRules(rules=(either,)).objection(there) is None
    assert NodeRules(rules=(either, both)).objection(there) == "both"
    assert NodeRules(rules=(Rule("no term", ()),)).objection(there) == "no term"
    assert NodeRules(rules=(Rule("empty term", ((),)),)).objection(there) == "empty term"
    assert ANY_NODE.objection(there) is None


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), GPU, True),
        (Toleration("gpu", "", "yes", ""), GPU, True),
        (Toleration("gpu", "Equal", "no", "NoSchedule"), GPU, False),
        (Toleration("gpu", "Exists", "", "NoSchedule"), GPU, True),
        (Toleration("gpu", "Exists", "", "NoExecute"), GPU, False),
        (Toleration("gpu", "Exists", "", "NoExecute"), GPU._replace(effect="NoExecute"), True),
        (Toleration("", "Exists", "", ""), GPU, True),
        (Toleration("cpu", "Exists", "", ""), GPU, False),
    ],
)
def test_taints_keep_pods_off_that_do_not_tolerate_them(toleration, taint, tolerated):
    there = node(taints=(taint,))
    assert ANY_NODE.objection(there) == f"taint gpu=yes:{taint.effect}"
    assert (NodeRules(tolerations=(toleration,)).objection(there) is None) == tolerated


@pytest.mark.parametrize(
    ("other", "conflicts"),
    [
        (HostPort("TCP", "0.0.0.0", 80), True),
        (HostPort("TCP", "10.0.0.1", 80), True),
        (HostPort("TCP", "", 80), True),
        (HostPort("UDP", "0.0.0.0", 80), False),
        (HostPort("TCP", "0.0.0.0", 81), False),
    ],
)
def test_a_host_port_in_use_keeps_pods_off(other, conflicts):
    every, one = HostPort("TCP", "0.0.0.0", 80), HostPort("TCP", "10.0.0.1", 80)
    there = node(ports=frozenset((other,)))
    said = "host port 80/TCP" if conflicts else None
    assert NodeRules(ports=frozenset((every,))).objection(there) == said
    assert NodeRules(ports=frozenset((one,))).objection(there) == said
    two = NodeRules(ports=frozenset((HostPort("TCP", "10.0.0.2", 80),)))
    assert (two.objection(there) is None) == (not conflicts or other.ip == "10.0.0.1")


# stories

ADMISSIONS = [{}, {"admission": "Fast"}, {"admission": "Hybrid", "threshold": 2}]


def two_nodes(**spec):
    w = World()
    w.edit_pool(replace(w.spec, generation=2, **spec))
    w.node("n1", 6, labels=SSD)
    w.node("n2", 6)
    w.workers = lambda _u, _c: Worker()
    w.tick()
    return w


def ran_on(w, uid):
    return {line.split()[-1] for line in w.log if f"create {uid} " in line}


@pytest.mark.parametrize("spec", [*ADMISSIONS, {"admission": "Utilization"}, {"bound": 0.9}])
def test_a_job_that_fits_no_node_is_refused_by_name_and_disturbs_no_other(spec):
    w = two_nodes(**spec)
    w.apply(job("misfit", units=100, deadline=300.0, rules=selector(value="hdd")))
    w.apply(job("other", units=20, deadline=100.0, namespace="b"))
    w.run(120)
    assert w.state("misfit") == ("False", "PodFitsNoNode")
    assert w.records["misfit"].admitted.message == (
        "no node of the pool may run its pods: "
        "spec.template.spec.nodeSelector: example.com/disk=hdd excludes 2 of 2 nodes"
    )
    assert w.records["misfit"].offer is None
    assert ran_on(w, "misfit") == set()
    assert w.state("other")[0] == "True"
    assert w.met("other")


def test_a_job_without_a_cost_that_fits_no_node_starts_no_pilot():
    w = two_nodes()
    w.apply(job("misfit", chi=None, rules=selector(value="hdd")))
    w.run(5)
    assert w.state("misfit") == ("False", "PodFitsNoNode")


def test_a_node_that_would_fit_but_is_not_ready_is_told():
    w = two_nodes()
    w.node("n1", 6, labels=SSD, ready=False)
    w.apply(job("j", rules=selector()))
    w.run(1)
    assert w.state("j") == ("False", "PodFitsNoNode")
    assert w.records["j"].admitted.message == (
        f"no node of the pool may run its pods: {DISK} excludes 1 of 2 nodes, and 1 node that may run them can take "
        "none now: see status.nodes"
    )


@pytest.mark.parametrize("spec", ADMISSIONS)
@pytest.mark.parametrize("network", ["Concurrent", "OnePort"])
def test_only_the_processors_of_nodes_that_fit_count(spec, network):
    """12 processors do 10 units each in 12 s; 6 of them can do 60 units until then."""
    w = two_nodes(discipline=Discipline(network=network), **spec)
    w.apply(job("more", units=61, deadline=14.5, rules=selector()))
    w.run(0.25)
    w.apply(job("fits", units=60, deadline=14.7, rules=selector()))
    w.run(40)
    assert w.state("more") == ("False", "InfeasibleCapacity")
    said = w.records["more"].admitted.message
    assert f"6 of the pool's 12 processors may run its pods ({DISK} excludes 1 of 2 nodes)" in said
    assert w.state("fits") == ("True", "Feasible")
    assert w.records["fits"].promise.processors <= 6
    assert w.met("fits")
    assert ran_on(w, "fits") == {"n1"}
    offer = w.records["more"].offer
    assert offer.largest_load == 60
    assert offer.earliest_deadline == 19.0  # 2 s to start, 11 units, 2 s margin, and 3 s to submit


def test_waiting_work_that_may_run_elsewhere_makes_way_for_a_job_with_few_nodes():
    """The promise of the first is for any six processors; the second needs the six of one node."""
    w = two_nodes()
    w.apply(job("now", units=12, deadline=5.6))
    w.run(0.5)
    w.apply(job("plain", units=60, deadline=18.0))
    w.run(1)
    w.apply(job("ssd", units=60, deadline=18.5, rules=selector()))
    w.run(40)
    assert [w.met(uid) for uid in ("now", "plain", "ssd")] == [True] * 3
    assert ran_on(w, "ssd") == {"n1"}


@pytest.mark.parametrize("spec", ADMISSIONS)
def test_a_selective_job_leaves_the_other_nodes_to_others(spec):
    w = two_nodes(**spec)
    w.apply(job("all", units=60, deadline=14.5, rules=selector()))
    w.apply(job("plain", units=60, deadline=14.5))
    w.run(40)
    assert (w.state("all")[0], w.state("plain")[0]) == ("True", "True")
    assert w.met("all")
    assert w.met("plain")
    assert (ran_on(w, "all"), ran_on(w, "plain")) == ({"n1"}, {"n2"})


def test_a_tainted_node_is_for_those_that_tolerate_it():
    w = two_nodes()
    w.node("n3", 4, taints=(GPU,), labels={"gpu": "a100"})
    w.run(1)
    assert (w.pool_record.processors, w.pool_record.free) == (12, 12)
    assert [(n.processors, n.reason) for n in w.pool_record.nodes] == [(6, None), (6, None), (0, "NodeTainted")]
    tolerant = NodeRules(tolerations=(Toleration("gpu", "Exists", "", ""),))
    w.apply(job("plain", units=121, deadline=15.0))
    w.apply(job("gpu", units=160, deadline=16.0, rules=tolerant))
    w.run(40)
    assert w.state("plain") == ("False", "InfeasibleCapacity")
    assert w.met("gpu")
    assert ran_on(w, "gpu") == {"n1", "n2", "n3"}
    only = selector("gpu", "a100", tolerations=tolerant.tolerations)
    w.apply(job("only", units=40, arrival=40.0, deadline=55.0, rules=only))
    w.apply(job("beside", units=120, arrival=40.0, deadline=55.0))
    w.run(80)
    assert w.met("only")
    assert w.met("beside")
    assert (ran_on(w, "only"), ran_on(w, "beside")) == ({"n3"}, {"n1", "n2"})


def test_a_taint_needs_its_toleration():
    w = World()
    w.node("n1", 4, taints=(GPU,))
    w.apply(job("j", rules=selector(tolerations=(Toleration("cpu", "Exists", "", ""),))))
    w.apply(job("plain"))
    w.run(1)
    assert w.state("j") == ("False", "PodFitsNoNode")
    assert w.state("plain") == ("False", "InfeasibleCapacity")
    assert w.pool_record.ready.reason == "NoNodes"


def test_a_label_that_goes_takes_the_promise_of_its_job_alone():
    w = two_nodes()
    w.apply(job("ssd", units=60, deadline=100.0, rules=selector()))
    w.apply(job("first", units=120, deadline=15.0))
    w.apply(job("later", units=120, deadline=110.0))
    w.run(1)
    assert [w.state(uid)[0] for uid in ("ssd", "first", "later")] == ["True"] * 3
    w.node("n1", 6)
    w.run(150)
    assert w.records["ssd"].on_track.reason == "PodFitsNoNode"
    assert f"{DISK} excludes 2 of 2 nodes" in w.records["ssd"].on_track.message
    assert ran_on(w, "ssd") == set()
    assert w.met("first")
    assert w.met("later")
    w.node("n1", 6, labels=SSD)
    w.run_until(lambda w: w.done("ssd"))
    assert ran_on(w, "ssd") == {"n1"}


def test_a_job_moves_with_its_label_and_keeps_its_promise():
    w = two_nodes()
    w.apply(job("first", units=120, deadline=15.0))
    w.apply(job("ssd", units=60, deadline=60.0, rules=selector()))
    w.run(2)
    w.node("n1", 6)
    w.node("n2", 6, labels=SSD)
    w.run(80)
    assert w.met("first")
    assert w.met("ssd")
    assert ran_on(w, "ssd") == {"n2"}


def test_rules_that_change_are_in_force_at_once_and_are_no_edit():
    """A claim was bound: from now on its volume says where the pods may run."""
    w = two_nodes()
    w.apply(job("first", units=120, deadline=15.0))
    w.apply(job("j", units=30, deadline=60.0))
    w.run(2)
    w.jobs["j"] = replace(w.jobs["j"], rules=selector())
    w.inbox.append(JobApplied(w.jobs["j"]))
    w.run(80)
    assert w.records["j"].spec_applied is None
    assert w.met("j")
    assert ran_on(w, "j") == {"n1"}


@pytest.mark.parametrize("spec", [{}, {"admission": "Fast"}])
def test_pods_with_a_host_port_are_one_to_a_node(spec):
    w = two_nodes(**spec)
    port = NodeRules(ports=frozenset((HostPort("TCP", "0.0.0.0", 8080),)))
    w.apply(job("more", units=21, deadline=14.0, rules=port))
    w.apply(job("web", units=20, deadline=14.5, rules=port))
    w.apply(job("again", units=20, deadline=29.5, rules=port))
    w.apply(job("plain", units=100, deadline=14.5))
    w.run(50)
    assert w.state("more") == ("False", "InfeasibleCapacity")
    assert "a node can have one of its pods at a time (host port 8080/TCP)" in w.records["more"].admitted.message
    assert [w.met(uid) for uid in ("web", "again", "plain")] == [True] * 3
    assert w.left_pending == []


def test_a_port_that_others_hold_excludes_their_node():
    w = two_nodes()
    port = HostPort("TCP", "0.0.0.0", 8080)
    w.node("n1", 6, labels=SSD, ports=frozenset((port,)))
    w.apply(job("web", units=10, deadline=14.5, rules=NodeRules(ports=frozenset((port,)))))
    w.run(20)
    assert w.met("web")
    assert ran_on(w, "web") == {"n2"}


@pytest.mark.parametrize("spec", [{}, {"admission": "Fast"}])
def test_a_claim_keeps_all_pods_on_one_node(spec):
    w = two_nodes(**spec)
    claim = NodeRules(one_node="claim data")
    w.apply(job("more", units=61, deadline=14.0, rules=claim))
    w.apply(job("one", units=60, deadline=14.5, rules=claim))
    w.apply(job("two", units=60, deadline=14.5, rules=claim))
    w.run(40)
    assert w.state("more") == ("False", "InfeasibleCapacity")
    assert "all its pods must be on one node (claim data)" in w.records["more"].admitted.message
    assert w.met("one")
    assert w.met("two")
    assert len(ran_on(w, "one")) == len(ran_on(w, "two")) == 1
    assert ran_on(w, "one") != ran_on(w, "two")
    assert w.left_pending == []


def test_a_claim_holds_what_follows_where_the_first_pods_run():
    """A job with an earlier deadline is planned before the rest, which must not move to the free node for it."""
    w = two_nodes()
    claim = NodeRules(one_node="claim data")
    w.apply(job("busy", units=50, deadline=14.0, rules=selector()))
    w.apply(job("one", units=120, deadline=60.0, rules=claim, max_processors=3))
    w.run(3)
    w.apply(job("new", units=30, arrival=3.0, deadline=30.0))
    w.run(90)
    assert [w.met(uid) for uid in ("busy", "one", "new")] == [True] * 3
    assert len(ran_on(w, "one")) == 1
    assert w.left_pending == []


def test_a_reduce_step_runs_where_the_rules_allow_it():
    w = two_nodes()
    w.apply(job("j", units=60, deadline=30.0, reduce_duration=3.0, rules=selector()))
    w.run(40)
    assert w.met("j")
    assert ran_on(w, "j") == {"n1"}
    assert any("create j Reduce" in line for line in w.log)


def test_pilots_and_leftover_chunks_run_where_the_rules_allow_them():
    w = two_nodes()
    w.workers = lambda uid, _c: Worker(pace=9.0 if uid == "slow" else 1.0)
    w.apply(job("new", units=30, chi=None, deadline=200.0, rules=selector()))
    w.apply(job("slow", units=60, deadline=40.0, rules=selector()))
    w.run(300)
    assert w.done("new")
    assert w.done("slow")
    assert w.records["slow"].on_track.reason == "Overrun" or not w.met("slow")
    assert ran_on(w, "new") == ran_on(w, "slow") == {"n1"}


def test_a_new_leader_plans_by_the_same_rules():
    w = two_nodes()
    w.apply(job("first", units=60, deadline=14.5, rules=selector()))
    w.apply(job("ssd", units=60, deadline=60.0, rules=selector()))
    w.apply(job("one", units=60, deadline=60.0, rules=NodeRules(one_node="claim data")))
    w.run(3)
    w.crash()
    w.run(80)
    assert [w.met(uid) for uid in ("first", "ssd", "one")] == [True] * 3
    assert ran_on(w, "first") == ran_on(w, "ssd") == {"n1"}
    assert len(ran_on(w, "one")) == 1
    assert w.left_pending == []


def test_where_pods_share_processors_a_job_is_put_on_a_node_that_fits():
    w = two_nodes(admission="Utilization")
    for k in range(6):
        w.apply(job(f"ssd{k}", units=30, deadline=35.0, rules=selector()))
    w.run(1)
    w.apply(job("more", units=29, deadline=36.0, rules=selector()))
    w.apply(job("plain", units=29, deadline=36.0))
    w.run(50)
    assert w.state("more") == ("False", "InfeasibleCapacity")
    assert "6 of the pool's 12 processors may run its pods" in w.records["more"].admitted.message
    assert all(ran_on(w, f"ssd{k}") == {"n1"} for k in range(6))
    assert ran_on(w, "plain") == {"n2"}


def test_a_pool_with_a_miss_ratio_judges_a_job_by_its_own_nodes():
    w = two_nodes(bound=0.9)
    w.apply(job("more", units=60, deadline=14.0, rules=selector()))
    w.apply(job("fits", units=50, deadline=14.0, rules=selector()))
    w.apply(job("claim", units=10, deadline=14.0, rules=NodeRules(one_node="claim data")))
    w.run(30)
    assert w.state("more") == ("False", "InfeasibleCapacity")
    assert w.state("fits") == ("True", "AdmittedStatistically")
    assert ran_on(w, "fits") == {"n1"}
    assert w.state("claim") == ("False", "InfeasibleCapacity")
    assert "one node (claim data), which a pool with missRatio cannot promise" in w.records["claim"].admitted.message


def test_a_reservation_takes_what_no_promise_needs_and_no_tainted_node():
    w = two_nodes()
    w.node("n3", 6, taints=(GPU,))
    w.apply(job("ssd", units=60, deadline=30.0, rules=selector()))
    w.run(1)
    w.reserve("r", 12.0, 40.0, 6)
    w.reserve("too much", 100.0, 140.0, 13)
    w.run(60)
    assert w.answers["r"].answer.status == "True"
    assert w.answers["too much"].answer.status == "False"
    assert w.met("ssd")


def test_inside_a_reservation_the_rules_hold_too():
    w = two_nodes()
    w.reserve("r", 10.0, 60.0, 12, group="r")
    w.apply(job("in", units=60, deadline=100.0, reservation="r", rules=selector()))
    w.apply(job("misfit", units=60, deadline=100.0, reservation="r", rules=selector(value="hdd")))
    w.run(100)
    assert w.met("in")
    assert ran_on(w, "in") == {"n1"}
    assert w.state("misfit") == ("False", "PodFitsNoNode")


def test_a_pod_that_its_rules_keep_pending_closes_its_node_to_no_other():
    """The label goes after the pod was made and before the scheduler has seen it."""
    w = two_nodes()
    w.apply(job("ssd", units=6, deadline=100.0, rules=selector()))
    w.tick()
    assert ran_on(w, "ssd") == {"n1"}
    w.node("n1", 6)
    w.node("n2", 6, labels=SSD)
    w.run(7)
    w.apply(job("plain", units=110, arrival=7.0, deadline=22.0))
    w.run(60)
    assert [(uid, at) for uid, at, _ in w.left_pending] == [("ssd", "n1")]
    assert w.state("plain")[0] == "True"
    assert w.met("plain")
    assert w.met("ssd")
