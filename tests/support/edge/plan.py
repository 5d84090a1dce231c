"""What a seed plays: objects, what users do, and what goes wrong, each with its moment. A plan is data.

So a part of a plan can be played, too: ``--shrink`` takes acts away while it still fails.
"""

import random
from dataclasses import dataclass, field, replace

from chaos_lib.jobs import Wish
from cluster_model.clock import BEGIN, written

from edge.applications import ALONE, LABEL, PACE
from edge.machines import DEVICE
from punctual.labels import COST_PER_UNIT, DEADLINE, POOL_LABEL, START_ANYWAY
from punctual.notation.duration import parse_time

OURS = "punctual.dev/v1alpha1"
SPACE = "work"
POOL = "main"
LAST = 150.0
"""Seconds after which nothing new goes wrong."""


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happens at a moment, for some seconds."""

    at: float
    what: str
    target: str = ""
    seconds: float = 0.0
    value: object = None

    def __str__(self):
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        value = "" if self.value is None or isinstance(self.value, Wish | dict | tuple) else f" {self.value}"
        return f"{self.what} {self.target}{value}{lasts}"


@dataclass
class Plan:
    """``acts`` in the order of their moments. ``compared``: its end must be that of its `plain` part."""

    seed: int
    replicas: int
    nodes: dict
    pool: dict
    acts: list = field(default_factory=list)
    compared: bool = False

    def without(self, acts):
        """Return the plan without some acts."""
        return replace(self, acts=[act for act in self.acts if act not in acts])

    def window_ends(self):
        """Return the seconds at which windows of reservations are over."""
        return [parse_time(act.value["spec"]["end"]) - BEGIN for act in self.acts if _is_window(act)]

    def plain(self):
        """Return the plan without faults, and without what is changed and changed back."""
        return replace(self, acts=[act for act in self.acts if act.what in LASTING])


def draw(seed):
    """Return the plan of a seed."""
    rng = random.Random(f"plan {seed}")
    plan = Plan(seed, rng.choice((2, 2, 3)), {f"n{i + 1}": str(rng.choice((1, 2, 3))) for i in range(2)}, _pool(rng))
    for number in range(rng.randint(3, 7)):
        plan.acts += _life(rng, number)
    if rng.random() < 0.3:
        plan.acts.append(Act(rng.uniform(5, 60), "edit pool", POOL, rng.uniform(3, 40), {"margin": "4s"}))
    processes = [f"punctual-{i}" for i in range(plan.replicas)]
    faults = rng.choices(list(FAULTS), list(FAULTS.values()), k=rng.randint(5, 10))
    if rng.random() < RETURNS:
        plan.acts += _leaders(rng)
        faults = faults[:3]
    plan.acts += [_fault(rng, what, processes, list(plan.nodes)) for what in faults]
    plan.acts += _reserved(random.Random(f"reserved {seed}"))
    plan.acts += _profiled(random.Random(f"profiled {seed}"))
    plan.acts += _held(random.Random(f"held {seed}"), plan.nodes)
    plan.acts += _some_anyway(random.Random(f"anyway {seed}"), _batches(random.Random(f"batch {seed}")))
    plan.acts += _equipped(random.Random(f"equipped {seed}"), plan)
    plan.acts += _gone_and_back(random.Random(f"gone and back {seed}"), plan)
    plan.acts += _restored(random.Random(f"restored {seed}"), seed)
    plan.acts.sort(key=lambda act: act.at)
    return _gentle(plan) if seed % COMPARED == COMPARED // 2 else plan


def _gentle(plan):
    """Return a plan in which nothing takes capacity for good, and each deadline leaves time for all that happens."""
    acts = [_with_time(act) for act in plan.acts if act.what not in TAKING]
    return replace(plan, acts=sorted(acts, key=lambda act: act.at), compared=True)


def _with_time(act):
    if act.what == "make batch job":
        return _batch_with_time(act)
    if act.what in {"edit deadline", "edit batch deadline"}:
        return replace(act, value=act.value + TIME)
    if act.what == "unmake" and act.target.startswith("reservations/"):
        return replace(act, at=act.at + TIME)  # a job that names it must have had its answer: a fault may delay that
    if _is_window(act):
        spec = act.value["spec"]
        times = {name: written(parse_time(spec[name]) + TIME) for name in ("start", "end")}
        return replace(act, value={**act.value, "spec": {**spec, **times}})
    if not (isinstance(act.value, Wish) and act.value.expected == "done" and act.value.deadlines):
        return act
    wish = act.value
    deadline = wish.deadlines[0] + TIME
    body = {**wish.body, "spec": {**wish.body["spec"], "deadline": f"{deadline:.0f}s"}}
    return replace(act, value=replace(wish, body=body, deadlines=[deadline]))


def _batch_with_time(act):
    job, wish = act.value
    if wish.expected == "refused":
        return act
    later = [deadline + TIME for deadline in wish.deadlines]
    job["metadata"]["annotations"][DEADLINE] = f"{later[0]:.0f}s"
    return replace(act, value=(job, replace(wish, deadlines=later)))


def _is_window(act):
    return act.what == "make" and act.value["kind"] == "Reservation"


def _gone_and_back(rng, plan):
    """Return what goes and comes again: jobs, the pool, the namespace, and versions."""

    def unseen():
        return rng.random() < UNSEEN

    created = [act for act in plan.acts if act.what == "create" and rng.random() < RECREATED]
    acts = [Act(act.at + rng.uniform(0.1, 50), "recreate", act.target, value=unseen()) for act in created]
    if rng.random() < 1.5 * RECREATED:
        acts.append(Act(rng.uniform(5, 110), "recreate pool", POOL, value=unseen()))
    if rng.random() < GOING:
        acts.append(Act(rng.uniform(10, 60), "namespace goes", SPACE, rng.uniform(1, 20)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        replica = rng.choice(("leader", f"punctual-{rng.randrange(plan.replicas)}"))
        acts.append(
            Act(rng.uniform(5, 110), "stale lists", replica, rng.choice((2.0, 8.0, 25.0)) * rng.uniform(0.7, 1.3))
        )
    return acts


def _restored(rng, seed):
    """Bring the store back to an earlier state in each second plan: versions fall, or go on far above.

    None of these is among the plans that are compared with their `plain` part: a user's word may be taken back.
    """
    if seed % 2:
        return []
    return [Act(rng.uniform(5, 100), "restore", seconds=rng.uniform(1, 30), value=rng.choice((0, BUMP)))]


def _pool(rng):
    spec = {
        "nodeSelector": {"matchLabels": {"pool": POOL}},
        "processor": {"cpu": "1", "memory": "64Mi"},
        "margin": rng.choice(("1s", "3s")),
        "headroom": rng.choice(("0%", "12.5%")),
        "admission": rng.choice(("Exact", "Hybrid", "Fast")),
        "hold": rng.choice(("None", "None", "Taint", "Placeholder")),
    }
    return {"apiVersion": OURS, "kind": "Pool", "metadata": {"name": POOL}, "spec": spec}


REDUCES = 0.4
"""Part of the promised jobs that have a reduce step."""


JOBS = {"plain": 8, "resume": 3, "failing": 1, "huge": 1, "lost": 1, "measured": 1, "guest": 2}
"""How often each kind of job comes."""


def _job(rng, kind):
    """Return the spec of a job, what must become of it, and reasons that it may end with otherwise."""
    chi = rng.choice((0.2, 0.5, 1.0))
    most = rng.randint(1, 3)
    units = round(most * rng.uniform(5, 25) / chi)
    spec = {
        "pool": POOL,
        "units": units,
        "deadline": f"{round(5 + units * chi * 1.2 / most + rng.uniform(20, 90))}s",
        "cost": {"perUnit": f"{chi * 1000:.0f}ms", "startup": "2s"},
        "processors": {"max": most},
        "chunkRetries": 50,
        "stallTimeout": "15s",
        "template": {"spec": {"containers": [{"name": "main", "image": f"work:{chi}"}]}},
    }
    if kind in {"plain", "resume"} and rng.random() < REDUCES:
        template = {"spec": {"containers": [{"name": "main", "image": "runs:1-0"}]}}
        spec["reduce"] = {"duration": "2s", "template": template}
    expected, reasons = "done", ()
    match kind:
        case "resume":
            spec["restart"] = "Resume"
        case "failing":
            spec["template"]["spec"]["containers"][0]["image"] = "runs:2-1"
            spec["chunkRetries"] = rng.randint(0, 1)
            expected, reasons = "failed", ("ChunkFailed", "Stalled")
        case "huge":
            spec |= {"units": 10**6, "deadline": "40s"}
            expected, reasons = "refused", ("InfeasibleCapacity", "InfeasibleStartup")
        case "lost":
            spec["pool"] = "nowhere"
            expected, reasons = "refused", ("PoolNotFound",)
        case "measured":
            del spec["cost"]
            reasons = ("InfeasibleStartup",)
        case "guest":
            spec |= {"class": "Guest"}
            del spec["deadline"]
    return spec, expected, reasons


def _asked(at, name, kind, job):
    """Return the act that creates a job. ``job``: as of `_job`."""
    spec, expected, reasons = job
    body = {"apiVersion": OURS, "kind": "DivisibleJob", "metadata": {"name": name, "namespace": SPACE}, "spec": spec}
    deadlines = [float(spec["deadline"].removesuffix("s"))] if "deadline" in spec else []
    wish = Wish(name, kind, body, expected, reasons, deadlines=deadlines)
    return Act(at, "create", name, value=wish)


def _life(rng, number):
    """Return what users do with a job."""
    kind = rng.choices(list(JOBS), list(JOBS.values()))[0]
    name = f"{kind}-{number}"
    job = _job(rng, kind)
    acts = [_asked(at := rng.uniform(2, 70), name, kind, job)]
    deadlines = acts[0].value.deadlines
    what = rng.random()
    later = at + rng.uniform(0.1, 40)
    if what < 0.1:
        acts.append(Act(later, "delete", name))
    elif what < 0.2:
        acts.append(Act(later, "suspend", name, rng.uniform(0.2, 20)))
    elif what < 0.3 and deadlines:
        acts.append(Act(later, "edit deadline", name, value=round(deadlines[0] + rng.uniform(5, 60))))
    return acts


RESERVED, PROFILED = 0.25, 0.2
"""Part of the plans with reservations, and with a profile."""
OFTEN, SELDOM = 0.5, 0.2
"""Part of these with something more."""


def _reserved(rng):
    """Return a reservation or two, and jobs that run in the window of the first."""
    if rng.random() >= RESERVED:
        return []
    at, length = rng.uniform(2, 40), rng.uniform(20, 40)
    start = at + rng.uniform(10, 50)
    acts = [_window("window", at, start, length, rng.randint(1, 2))]
    if rng.random() < OFTEN:
        later = rng.uniform(5, 60)
        acts.append(_window("second", later, later + rng.uniform(5, 60), rng.uniform(5, 30), 1))
    if rng.random() < OFTEN:
        spec, expected, reasons = _job(rng, "plain")
        spec |= {"units": 10, "reservation": "window", "deadline": f"{start + length - at + 60:.0f}s"}
        spec["cost"]["perUnit"], spec["template"]["spec"]["containers"][0]["image"] = "500ms", "work:0.5"
        reasons += ("InfeasibleReservation", "ReservationRefused", "ReservationNotFound")
        acts.append(_asked(at + rng.uniform(0.1, 5), "booked", "booked", (spec, expected, reasons)))
    if rng.random() < SELDOM:
        acts.append(Act(at + rng.uniform(1, 60), "unmake", "reservations/window"))
    return acts


def _window(name, at, start, length, processors):
    times = {"start": written(BEGIN + start), "end": written(BEGIN + start + length)}
    return _made("Reservation", at, name, {"pool": POOL, "processors": processors, **times})


def _made(kind, at, name, spec):
    """Return the act that makes an object in the namespace."""
    body = {"apiVersion": OURS, "kind": kind, "metadata": {"name": name, "namespace": SPACE}, "spec": spec}
    return Act(at, "make", f"{kind.lower()}s/{name}", value=body)


def _profiled(rng):
    """Return a profile that learns, or is set by hand, and jobs that have their cost from it."""
    if rng.random() >= PROFILED:
        return []
    by_hand = {"perUnit": "500ms"} if rng.random() < OFTEN else {}
    acts = [_made("Profile", rng.uniform(1, 5), "costs", by_hand)]
    for number in range(rng.randint(1, 2)):
        spec, expected, reasons = _job(rng, "plain")
        del spec["cost"]
        units = 40
        spec |= {"units": units, "profile": "costs", "deadline": f"{units + rng.uniform(40, 120):.0f}s"}
        spec["template"]["spec"]["containers"][0]["image"] = "work:0.5"
        reasons += ("InfeasibleStartup", "ProfileNotFound")
        acts.append(_asked(rng.uniform(6, 90), f"profiled-{number}", "profiled", (spec, expected, reasons)))
    if rng.random() < SELDOM:
        acts.append(Act(rng.uniform(20, 100), "remake", "profiles/costs"))
    return acts


HELD, CORES = 0.2, 4
"""Part of the plans with pods at a target rate, and the cores that the nodes must have in all for that."""


def _held(rng, nodes):
    """Return the pods of an application, and a target rate that holds them. Two are aligned."""
    if rng.random() >= HELD or sum(map(int, nodes.values())) < CORES:
        return []
    spec = {"containers": [{"name": "main", "image": "forever", "resources": {"requests": {"cpu": f"{ALONE}"}}}]}
    rate = {"pool": POOL, "selector": {"matchLabels": {LABEL: "solver"}}, "rate": rng.choice(("40%", "60%"))}
    if rng.random() < OFTEN:
        rate["maxRate"] = f"{PACE:.0f}/s"
    names = ["solver"]
    if rng.random() < OFTEN:
        rate["coscheduling"] = "Aligned"
        names.append("solver-b")
    acts = []
    for name in names:
        meta = {"name": name, "namespace": SPACE, "labels": {LABEL: "solver"}}
        pod = {"metadata": meta, "spec": {**spec, "nodeSelector": {"pool": POOL}}}
        acts.append(Act(0.5, "make pod", f"pods/{name}", value=pod))
    acts.append(_made("TargetRate", rng.uniform(1, 60), "solver", rate))
    if rng.random() < OFTEN:
        acts.append(Act(rng.uniform(20, 100), "edit rate", "solver", rng.uniform(5, 40), "50%"))
    if rng.random() < SELDOM:
        acts.append(Act(rng.uniform(60, 120), "unmake", "targetrates/solver"))
    return acts


BATCHES = 0.25
"""Part of the plans with ordinary Jobs."""
SMALL = "400m"
"""What pods of some of them request: less than a processor."""


def batch_job(name, completions, parallelism, deadline, *, image, cost, cpu="1"):
    """Return an ordinary Job with a deadline. ``cost`` is None: it is measured."""
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    notes = {DEADLINE: deadline} | ({COST_PER_UNIT: cost} if cost else {})
    meta = {"name": name, "namespace": SPACE, "labels": {POOL_LABEL: POOL}, "annotations": notes}
    spec = {
        "suspend": True,
        "completions": completions,
        "parallelism": parallelism,
        "completionMode": "Indexed",
        "backoffLimit": 50,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def _batches(rng):
    """Return ordinary Jobs with deadlines, and what users do to them."""
    if rng.random() >= BATCHES:
        return []
    acts = []
    for number in range(rng.randint(1, 2)):
        acts += _batch(rng, f"batch-{number}")
    return acts


def _batch(rng, name):
    completions, parallelism, seconds = rng.randint(1, 12), rng.randint(1, 6), rng.choice((1, 2, 4))
    hopeless = rng.random() < SELDOM
    deadline = 4 if hopeless else round(completions * (seconds + 4) + rng.uniform(60, 160))
    cost = None if rng.random() < SELDOM and not hopeless else f"{seconds}s"
    image = f"fails:1-{seconds}" if rng.random() < SELDOM else f"runs:{seconds}-0"
    cpu = random.Random(f"size of {name} {deadline}").choice(("1", "1", SMALL))
    job = batch_job(name, completions, parallelism, f"{deadline}s", image=image, cost=cost, cpu=cpu)
    reasons = ("InfeasibleCapacity", "InfeasibleStartup")
    if rng.random() < OFTEN:
        job["spec"]["completionMode"] = "NonIndexed"
    expected = "done"
    if rng.random() < SELDOM and not hopeless:
        job["spec"]["backoffLimit"] = rng.randint(0, 2)
        expected, reasons = "either", (*reasons, "JobFailed")
    if hopeless:
        expected = "refused"
    wish = Wish(name, "batch", {"spec": {"units": completions}}, expected, reasons, deadlines=[float(deadline)])
    at = rng.uniform(2, 60)
    acts = [Act(at, "make batch job", name, value=(job, wish))]
    if rng.random() < SELDOM:
        acts.append(Act(at + rng.uniform(0.1, 30), "suspend batch job", name, rng.uniform(1, 30)))
    if rng.random() < SELDOM and not hopeless:
        asked = round(deadline * rng.choice((0.1, 1.5)))
        acts.append(Act(at + rng.uniform(0.1, 30), "edit batch deadline", name, value=asked))
    if rng.random() < SELDOM:
        acts.append(Act(at + rng.uniform(0.1, 30), "delete promise", name))
    if rng.random() < SELDOM:
        acts.append(Act(at + rng.uniform(0.1, 60), "delete batch job", name))
    return acts


def _some_anyway(rng, acts):
    """Let some Jobs start although they are refused, from their beginning or by a later word."""
    for act in [act for act in acts if act.what == "make batch job" and rng.random() < OFTEN]:
        job, wish = act.value
        wish = replace(wish, expected="done" if wish.expected == "refused" else wish.expected)
        acts[acts.index(act)] = replace(act, value=(job, wish))
        if rng.random() < OFTEN:
            acts.append(Act(act.at + rng.uniform(0.1, 30), "start anyway", act.target, value="true"))
        else:
            job["metadata"]["annotations"][START_ANYWAY] = "true"
        if rng.random() < SELDOM:
            acts.append(Act(act.at + rng.uniform(30, 60), "start anyway", act.target, value="false"))
    return acts


EQUIPPED = 0.25
"""Part of the plans in which each processor has a device."""


def _equipped(rng, plan):
    """Give each processor a device, and let a device plugin restart."""
    if rng.random() >= EQUIPPED:
        return []
    plan.pool["spec"]["processor"]["resources"] = {DEVICE: 1}
    hidden = [rng.choice(list(plan.nodes)) for _ in range(rng.choice((0, 1, 2)))]
    return [Act(rng.uniform(5, 100), "hide devices", node, rng.uniform(1, 15)) for node in hidden]


FAULTS = {
    "freeze": 4,
    "kill": 4,
    "stop": 1,
    "slow": 1,
    "cut": 3,
    "cut answers": 2,
    "deaf watches": 2,
    "late watches": 2,
    "kopf loses": 2,
    "kopf ends": 1,
    "busy server": 1,
    "lost answers": 2,
    "compact": 2,
    "clock step": 1,
    "delete lease": 1,
    "kill agent": 1,
    "cut agent": 1,
    "cut kubelet": 1,
    "evict": 3,
    "node down": 1,
    "foreign pod": 1,
    "quota": 1,
}
"""How often each comes."""
HARMLESS = {"compact", "kopf loses", "kopf ends", "late watches", "stale lists", "recreate"}
"""Faults that take no capacity and no time: no promise may suffer from them alone."""


COMPARED = 10
"""Of so many seeds one is compared with a run without faults."""
TIME = 240
"""Seconds by which deadlines and windows are later there."""
LASTING = {
    "create", "delete", "edit deadline", "make", "make pod", "unmake", "make batch job", "delete batch job",
    "edit batch deadline", "start anyway",
}  # fmt: skip
"""What users do for good."""
TAKING = {"node down", "foreign pod", "quota", "cut kubelet", "namespace goes", "recreate pool", "hide devices"}
"""What takes capacity, or what jobs need."""


BUMP = 1_000_000
"""By how much a restore raises versions, if it does."""
RECREATED, UNSEEN, GOING = 0.1, 0.5, 0.08
"""How often an object is deleted and created again, part of these that kopf does not see, and how often the namespace
goes."""


RETURNS = 0.3
"""Part of the plans in which leaders are away for longer than their lease, in turn, so that one leads again."""


def _leaders(rng):
    at, acts = rng.uniform(5, 30), []
    for _ in range(rng.randint(2, 4)):
        seconds = rng.uniform(12, 24)
        acts.append(Act(at, rng.choice(("freeze", "freeze", "cut", "cut answers")), "leader", seconds))
        at += seconds + rng.uniform(-4, 8)
    return acts


def _fault(rng, what, processes, nodes):
    at = rng.uniform(3, 110)
    seconds = min(rng.choice((0.5, 3.0, 8.0, 17.0, 30.0)) * rng.uniform(0.7, 1.3), LAST - at)
    target = rng.choice(processes)
    match what:
        case "freeze" if rng.random() < 0.5:
            target = "leader"
        case "kill" | "cut" | "cut answers" | "stop" if rng.random() < 0.7:
            target = "leader"
        case "kill agent" | "cut agent" | "cut kubelet" | "node down" | "foreign pod":
            target = rng.choice(nodes)
        case "busy server" | "lost answers" | "compact" | "clock step" | "delete lease" | "evict" | "quota":
            target = ""
    value = {
        "slow": rng.choice((0.001, 0.01)),
        "late watches": rng.uniform(0.5, 6),
        "kopf loses": rng.uniform(0.1, 0.9),
        "kopf ends": rng.choice(("divisiblejobs", "pools")),
        "busy server": rng.uniform(0.2, 0.9),
        "lost answers": rng.uniform(0.05, 0.4),
        "clock step": rng.choice((-30.0, -3.0, 3.0, 30.0)),
    }.get(what)
    return Act(at, what, target, seconds, value)
