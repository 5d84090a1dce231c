"""A tenant's template that does not fit the cluster, at random, in a modelled cluster with promises of other tenants.

Three things are checked. No job of another namespace loses a promise. What a refusal says is true. What the modelled
scheduler can place in time beside the promises that stand is promised.
"""

import math
import os
from contextlib import closing

from cluster_model import amounts
from cluster_model.clock import BEGIN
from cluster_model.scheduler import objection
from hypothesis import given, note, settings
from hypothesis import strategies as st
from misfits import Template, misfits
from tenants import POOL, Tenants, node

from punctual import reasons
from punctual.labels import WORK

WORLDS = int(os.environ.get("PUNCTUAL_WORLDS", "300"))
STARTUP, TICK = 3.0, 1.0
PROCESSOR = {"cpu": 0.1, "memory": 64 * 2**20}
OWN = {"key": "own", "value": "us", "effect": "NoSchedule"}

nodes = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from([{}, {"disk": "ssd"}, {"disk": "hdd", "zone": "a"}]),
        st.sampled_from([(), (), (OWN,)]),
        st.sampled_from([{}, {}, {"nvidia.com/gpu": "2"}, {"ephemeral-storage": "4Gi"}]),
    ),
    min_size=1,
    max_size=3,
)
strangers = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["20m", "100m", "250m"])), max_size=2)
sizes = st.tuples(
    st.integers(1, 60),  # units
    st.sampled_from([0.5, 1.0, 2.0]),  # seconds for each
    st.integers(10, 90),  # seconds to the deadline
    st.sampled_from([0, 0, 1, 4, 15]),  # seconds to the next job
)


def ask(world, namespace, name, template, size):
    units, chi, deadline, _ = size
    cost = {"perUnit": f"{chi}s", "startup": f"{STARTUP:g}s"}
    return world.apply(namespace, name, template.body(), units=units, deadline=f"{deadline}s", cost=cost)


@st.composite
def stories(draw):
    """Draw plain jobs of one tenant, and where among them another tenant's misfit comes."""
    plain = draw(st.lists(sizes, min_size=1, max_size=4))
    size = draw(sizes)
    return plain, draw(st.integers(0, len(plain))), size, draw(misfits(size[1]))


@settings(max_examples=WORLDS)
@given(nodes, strangers, stories())
def test_a_template_that_does_not_fit_costs_no_other_tenant_a_promise(there, others, story):
    plain, place, size, misfit = story
    bodies = [
        node(f"n{i}", count, labels=labels, taints=taints, **more)
        for i, (count, labels, taints, more) in enumerate(there, start=1)
    ]
    note(misfit)
    with closing(Tenants(bodies, {"odd": misfit.plugins})) as world:
        for i, (where, cpu) in enumerate(others):
            if where < len(bodies):
                container = {"name": "c", "image": "forever", "resources": {"requests": {"cpu": cpu}}}
                world.stranger(f"s{i}", {"nodeName": f"n{where + 1}", "containers": [container]})
        world.run(1)
        asked = {}
        for i in range(len(plain) + 1):
            if i == place:
                judge(world, asked, ask(world, "odd", "misfit", misfit, size), misfit, size)
                world.run(world.now - BEGIN + size[3])
            if i < len(plain):
                usual = Template(plain[i][1])
                judge(world, asked, ask(world, "usual", f"job-{i}", usual, plain[i]), usual, plain[i])
                world.run(world.now - BEGIN + plain[i][3])
        world.run(max(r.promise.deadline if r.promise else 0 for r in world.records.values()) - BEGIN + 1)
        for uid, template in asked.items():
            record = world.records[uid]
            note(f"{uid}: {record.admitted} {record.promise} {record.finished} {record.on_track}")
            if record.promise and not template.late:
                assert record.finished is not None, uid
                assert record.finished <= record.promise.deadline, uid
                assert record.failed_condition is None, uid


def judge(world, asked, uid, template, size):
    """Check the answer to a job: what it says, and that it is no needless no."""
    answer = world.records[uid].admitted
    note(f"{world.now - BEGIN:g} {uid} {size}: {answer.status} {answer.reason}: {answer.message}")
    asked[uid] = template
    if answer.status == "True":
        return
    pod = as_large_as_it_must_be(world, uid)
    match answer.reason:
        case reasons.POD_FITS_NO_NODE:
            open_to_it = [body for body in world.cluster.nodes if not rules_out(pod, body)]
            strangers = [p for p in world.cluster.there() if p["metadata"]["namespace"] == "strangers"]
            left = world.cluster.places(pod, among=open_to_it, beside=strangers)
            assert not left, f"{left} of its pods fit on {[body['metadata']['name'] for body in open_to_it]}"
        case reasons.POD_TOO_LARGE:
            check_size(world, pod, answer.message)
        case reasons.INVALID_SPEC if "activeDeadlineSeconds" in answer.message:
            assert template.spec["activeDeadlineSeconds"] < size[0] * size[1] + STARTUP
        case reasons.INVALID_SPEC:
            (field,) = (name for name in ("nodeName", "namespaceSelector") if name in answer.message)
            assert field in str(template.spec)
        case reasons.INFEASIBLE_STARTUP:
            assert size[2] < STARTUP + size[1] + world.spec.margin
        case reasons.INFEASIBLE_CAPACITY:
            assert not could_be_promised(world, asked, uid, pod, size), "it could be promised"
        case other:
            raise AssertionError(f"an unknown reason: {other}")


def as_large_as_it_must_be(world, uid):
    """Return a pod of a job as it would be stored, with work that gives way to what is beside it."""
    pod = world.trial(uid)
    (work,) = (c for c in pod["spec"]["containers"] if c["name"] == pod["metadata"]["annotations"][WORK])
    named = (world.caches.directory.jobs[uid].template()["template"]["spec"]["containers"][0].get("resources")) or {}
    beside = amounts.beside(pod["spec"], work["name"])
    asked = work["resources"]["requests"]
    asked["cpu"] = max(0.001, PROCESSOR["cpu"] - beside.get("cpu", 0))
    if not any("memory" in (named.get(field) or {}) for field in ("requests", "limits")):
        asked["memory"] = max(2**20, PROCESSOR["memory"] - beside.get("memory", 0))
    return pod


def rules_out(pod, body):
    """Return why a node with nothing on it refuses a pod for another cause than its size."""
    found = objection(pod, body, [])
    return None if found and found.startswith("Insufficient") else found


def check_size(world, pod, message):
    """A pod that is said to be too large is larger than a processor, or than what any node has for each."""
    wanted = amounts.requests(pod["spec"])
    if any(wanted.get(name, 0) > there + 1e-9 for name, there in PROCESSOR.items()):
        return
    others = {name: needed for name, needed in wanted.items() if name not in PROCESSOR and needed}
    assert others, message
    assert any(name in message for name in others)
    bodies = {body["metadata"]["name"]: body for body in world.cluster.nodes}
    for seen in world.caches.inventory.events_of(POOL):
        if rules_out(pod, bodies[seen.name]):
            continue
        count = int(min(seen.cpu / 0.1 + 1e-9, seen.memory // PROCESSOR["memory"]))
        share = {name: amount // count for name, amount in seen.others} if count else {}
        assert not count or not amounts.fits(others, share), message


def could_be_promised(world, asked, uid, pod, size):
    """Whether work that waits for nothing could end in time on the processors that are free now."""
    units, chi, deadline, _ = size
    for other in asked.keys() - {uid}:
        record = world.records[other]
        if record.promise is None or record.finished is not None:
            continue
        there = sum(chunk.end - chunk.begin for chunk in record.chunks)
        if record.completed.total + there < world.caches.directory.jobs[other].owner.units:
            return False  # it has the next free processor
    unbound = sum(not p["spec"].get("nodeName") for p in world.cluster.pods.values())
    free = min(units, world.cluster.places(pod) - unbound)
    if free < 1:
        return False
    return math.ceil(units / free) * chi + STARTUP + world.spec.margin + TICK <= deadline
