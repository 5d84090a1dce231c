"""Plans written out: what once went wrong, or what a fault must not do, as short as it can be told.

Each is played like a seed. A story that a mend belongs to is played with the mend taken back, too: it must fail then.
"""

from dataclasses import replace

from chaos_lib.jobs import Wish

from edge.plan import OURS, POOL, SMALL, SPACE, Act, Plan, batch_job
from punctual.labels import START_ANYWAY

NODES = {"n1": "1", "n2": "1"}
SLOW = {"spec": {"containers": [{"name": "main", "image": "work:1.0"}]}}
"""Pods that need twice the time that the job names."""


def _plan(*acts, compared=False, **pool):
    """Return a plan. ``compared``: it must end as without faults. ``pool``: more of the pool's spec."""
    spec = {
        "nodeSelector": {"matchLabels": {"pool": POOL}},
        "processor": {"cpu": "1", "memory": "64Mi"},
        "margin": "3s",
        **pool,
    }
    body = {"apiVersion": OURS, "kind": "Pool", "metadata": {"name": POOL}, "spec": spec}
    return Plan(0, 2, NODES, body, sorted(acts, key=lambda act: act.at), compared)


def _job(at, name, *, units, most=1, deadline=200.0, reduce=False, refused="", refusable=(), goes=False, **spec):
    """Return the act that creates a job of units of half a second.

    ``refused``: the reason, where it must be; ``refusable``: reasons for which it may be for a while.
    ``goes``: it is deleted when it has ended.
    """
    whole = {
        "pool": POOL,
        "units": units,
        "cost": {"perUnit": "500ms", "startup": "2s"},
        "processors": {"max": most},
        "chunkRetries": 50,
        "stallTimeout": "15s",
        "template": {"spec": {"containers": [{"name": "main", "image": "work:0.5"}]}},
        **spec,
    }
    if whole.get("class") != "Guest":
        whole["deadline"] = f"{deadline:.0f}s"
    if reduce:
        template = {"spec": {"containers": [{"name": "main", "image": "runs:1-0"}]}}
        whole["reduce"] = {"duration": "2s", "template": template}
    body = {
        "apiVersion": OURS,
        "kind": "DivisibleJob",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }
    deadlines = [] if whole.get("class") == "Guest" else [deadline]
    expected, reasons = ("refused", (refused,)) if refused else ("done", refusable)
    wish = Wish(name, "plain", body, expected, reasons, deadlines=deadlines, deleted=goes)
    return Act(at, "create", name, value=wish)


def _made(at, kind, name, spec):
    body = {"apiVersion": OURS, "kind": kind, "metadata": {"name": name, "namespace": SPACE}, "spec": spec}
    return Act(at, "make", f"{kind.lower()}s/{name}", value=body)


def _batch(at, name, *, completions, parallelism, deadline=200.0, image="runs:2-0", cost="2s", **more):
    """Return the act that creates an ordinary Job with a deadline.

    ``expected`` and ``reasons``: as of its wish; ``answered`` is False: it gets no DivisibleJob.
    """
    anyway = {START_ANYWAY: "true"} if more.pop("anyway", False) else {}
    expected, reasons, answered = more.pop("expected", "done"), more.pop("reasons", ()), more.pop("answered", True)
    cpu = more.pop("cpu", "1")
    job = batch_job(name, completions, parallelism, f"{deadline:.0f}s", image=image, cost=cost, cpu=cpu)
    job["metadata"]["annotations"] |= anyway
    job["spec"].update(more)
    wish = Wish(name, "batch", {"spec": {"units": completions}}, expected, reasons, deadlines=[deadline])
    return Act(at, "make batch job", name, value=(job, wish if answered else None))


def _stranger(at, number):
    """Return the act that creates a pod which fits where a small pod of a Job leaves a part of its processor."""
    main = {"name": "main", "image": "forever", "resources": {"requests": {"cpu": "600m"}}}
    meta = {"name": f"stranger-{number}", "namespace": SPACE}
    pod = {"metadata": meta, "spec": {"nodeSelector": {"pool": POOL}, "containers": [main]}}
    return Act(at, "make pod", f"pods/stranger-{number}", value=pod)


STRANGERS = tuple(_stranger(8 + 0.7 * number, number) for number in range(12))
"""Pods that come while those of a Job run."""
HELD = (
    Act(0.5, "make pod", "pods/solver", value={
        "metadata": {"name": "solver", "namespace": SPACE, "labels": {"app": "solver"}},
        "spec": {
            "nodeSelector": {"pool": POOL},
            "containers": [{
                "name": "main", "image": "forever", "resources": {"requests": {"cpu": "0.5"}},
            }],
        },
    }),
    _made(2, "TargetRate", "solver", {
        "pool": POOL, "selector": {"matchLabels": {"app": "solver"}}, "rate": "40%", "maxRate": "2/s",
    }),
)  # fmt: skip
"""A pod of an application, and the target rate that holds it."""
ALIGNED = (
    *(replace(HELD[0], target=f"pods/{name}", value={
        **HELD[0].value, "metadata": {**HELD[0].value["metadata"], "name": name},
    }) for name in ("solver", "solver-b")),
    replace(HELD[1], value={
        **HELD[1].value, "spec": {**HELD[1].value["spec"], "coscheduling": "Aligned"},
    }),
)  # fmt: skip
"""Two pods of an application with aligned slices."""


STORIES = {
    "a leader is away, another one finishes its job, and it leads again": _plan(
        _job(5, "short", units=20, reduce=True),
        _job(40, "long", units=60, most=2, reduce=True),
        Act(10, "freeze", "leader", 25),
        Act(45, "freeze", "leader", 25),
    ),
    "a comparison took long, then kopf's watches end, and a job comes": _plan(
        Act(4, "cut", "punctual-0", 46),
        Act(4, "cut", "punctual-1", 46),
        Act(55, "kopf ends", "punctual-0", value="divisiblejobs"),
        Act(55, "kopf ends", "punctual-1", value="divisiblejobs"),
        _job(60, "unheard", units=20, deadline=120),
    ),
    "the Lease is deleted under its holder": _plan(
        _job(5, "one", units=60, most=2, reduce=True),
        Act(12, "delete lease"),
        Act(30, "delete lease"),
        Act(32, "freeze", "leader", 20),
    ),
    "a pod is deleted while nothing leads, and made again by the next leader": _plan(
        _job(3, "one", units=40, chunkRetries=0),
        Act(12, "kill", "leader", 40),
        Act(14, "evict"),
    ),
    "a job is created again under its name, and kopf sees neither": _plan(
        _job(5, "again", units=40, reduce=True),
        Act(12, "recreate", "again", value=True),
        Act(70, "recreate", "again", value=True),
    ),
    "a job is created again while its watches are silent and the history is forgotten": _plan(
        _job(5, "again", units=40, most=2, reduce=True),
        Act(10, "deaf watches", "leader", 8),
        Act(12, "recreate", "again", value=True),
        Act(14, "compact"),
    ),
    "the pool is created again under its name": _plan(
        _job(5, "before", units=30),
        Act(10, "recreate pool", POOL, value=False),
        _job(40, "after", units=30),
        Act(80, "recreate pool", POOL, value=True),
        _job(90, "last", units=30),
    ),
    "a job is asked for while its pool goes, and the pool comes again": _plan(
        _job(5, "before", units=30),
        Act(10, "recreate pool", POOL, value=False),
        _job(14, "during", units=20),
        compared=True,
    ),
    "the namespace goes with all that runs in it, and comes again": _plan(
        _job(5, "gone", units=60, most=2, reduce=True),
        _job(6, "guest", units=60, **{"class": "Guest"}),
        Act(15, "namespace goes", SPACE, 8),
        _job(30, "new", units=30, reduce=True),
    ),
    "a leader's lists are old, and a job that is gone comes back in them": _plan(
        _job(5, "gone", units=60),
        Act(8, "stale lists", "leader", 25),
        Act(9, "delete", "gone"),
        _job(10, "new", units=30),
    ),
    "a window has begun when another replica leads": _plan(
        _made(3, "Reservation", "window", {
            "pool": POOL, "processors": 1, "start": "2030-01-01T00:00:30Z", "end": "2030-01-01T00:01:30Z",
        }),
        _job(5, "beside", units=60),
        _job(6, "booked", units=20, reservation="window"),
        Act(40, "kill", "leader", 5),
        Act(60, "freeze", "leader", 20),
        compared=True,
    ),
    "a window is left empty by the leader after the one that booked it": _plan(
        _made(2, "Reservation", "window", {
            "pool": POOL, "processors": 1, "start": "2030-01-01T00:01:15Z", "end": "2030-01-01T00:02:15Z",
        }),
        Act(10, "kill", "leader", 1),
        _job(60, "beside", units=150, most=2),
    ),
    "a profile goes, kopf does not see it, and a job names it": _plan(
        _made(1, "Profile", "costs", {"perUnit": "500ms"}),
        Act(10, "kopf loses", "punctual-0", 2, 1.0),
        Act(10, "kopf loses", "punctual-1", 2, 1.0),
        Act(11, "unmake", "profiles/costs"),
        _job(45, "second", units=20, deadline=60, cost=None, profile="costs", refused="ProfileNotFound"),
    ),
    "a profile is created again while it learns": _plan(
        _made(1, "Profile", "costs", {}),
        _job(5, "first", units=40, cost=None, profile="costs"),
        Act(30, "remake", "profiles/costs"),
        _job(60, "second", units=40, cost=None, profile="costs"),
        Act(65, "kill", "leader", 5),
    ),
    "a worker is slow, and stops early where it is asked to": _plan(
        _job(5, "slow", units=40, most=2, deadline=60, template=SLOW, reduce=True),
        _job(6, "short", units=8),
    ),
    "a leader goes just when a guest has ended": _plan(
        _job(5, "guest", units=20, **{"class": "Guest"}),
        *(Act(at, "kill", "leader", 1) for at in (16.5, 34.0)),
    ),
    "a deadline is edited, and kopf does not see it": _plan(
        _job(5, "later", units=200, deadline=40, refusable=("InfeasibleCapacity",)),
        Act(14, "kopf loses", "punctual-0", 2, 1.0),
        Act(14, "kopf loses", "punctual-1", 2, 1.0),
        Act(15, "edit deadline", "later", value=155),
        compared=True,
    ),
    "a pod goes while the leader's watches are silent and the history is forgotten": _plan(
        _job(5, "one", units=40, chunkRetries=0, stallTimeout="60s"),
        Act(12, "deaf watches", "leader", 30),
        Act(13, "evict"),
        Act(15, "compact"),
    ),
    "a quota refuses pods while a job is asked for": _plan(
        Act(3, "quota", "", 40),
        _job(5, "refused", units=20, deadline=120, refusable=("PodRefused",)),
    ),
    "a finished job has to go after the next takeover": _plan(
        _job(3, "done", units=6, goes=True, ttlSecondsAfterFinished=60),
        Act(30, "kill", "leader", 5),
        compared=True,
    ),
    "an application is held while a takeover takes long": _plan(
        *HELD,
        Act(41, "kill", "leader", 30),
        Act(53, "busy server", "", 40, 0.6),
    ),
    "a held pod keeps its limit under the next leader, and loses it with its target rate": _plan(
        *HELD,
        Act(20, "kill", "leader", 5),
        Act(40, "kill agent", "n1", 3),
        Act(41, "kill agent", "n2", 3),
        Act(60, "edit rate", "solver", 20, "60%"),
        Act(110, "unmake", "targetrates/solver"),
    ),
    "strangers come for what small pods of an ordinary Job leave": _plan(
        *STRANGERS,
        _batch(3, "small", completions=20, parallelism=2, deadline=55, cpu=SMALL),
    ),
    "strangers come for what small pods of an ordinary Job leave, where placeholders keep the pool": _plan(
        *STRANGERS,
        _batch(3, "small", completions=20, parallelism=2, deadline=75, cpu=SMALL),
        hold="Placeholder",
    ),
    "strangers find no way to the nodes of small pods of an ordinary Job": _plan(
        *STRANGERS,
        _batch(3, "small", completions=20, parallelism=2, deadline=55, cpu=SMALL),
        hold="Taint",
    ),
    "the next leaders go on to keep what small pods of an ordinary Job leave": _plan(
        *STRANGERS,
        _batch(3, "small", completions=40, parallelism=2, deadline=180, cpu=SMALL),
        Act(10, "kill", "leader", 4),
        Act(24, "freeze", "leader", 20),
        *(_stranger(25 + 2 * number, 12 + number) for number in range(10)),
    ),
    "an ordinary Job with a deadline": _plan(_batch(5, "nightly", completions=8, parallelism=4)),
    "ordinary Jobs go on under the next leaders, and when their pods are lost": _plan(
        _batch(3, "nightly", completions=12, parallelism=4),
        _batch(4, "hourly", completions=6, parallelism=6, deadline=300),
        _job(5, "divisible", units=40, deadline=300),
        Act(9, "kill", "leader", 4),
        Act(20, "evict"),
        Act(25, "freeze", "leader", 20),
        Act(50, "kill agent", "n1", 3),
        Act(60, "evict"),
    ),
    "an ordinary Job that cannot be promised stays suspended": _plan(
        _batch(3, "hopeless", completions=60, parallelism=2, deadline=20, expected="refused",
               reasons=("InfeasibleCapacity",)),
    ),
    "the pods of an ordinary Job fail until its controller gives up": _plan(
        _batch(3, "broken", completions=3, parallelism=3, image="runs:2-1", backoffLimit=4,
               expected="failed", reasons=("JobFailed",)),
        _batch(60, "next", completions=4, parallelism=2),
    ),
    "each index of an ordinary Job fails twice": _plan(
        _batch(3, "flaky", completions=3, parallelism=3, image="fails:2-2"),
    ),
    "indexes of an ordinary Job fail while pods of other ones wait at the gate": _plan(
        _batch(3, "flaky", completions=11, parallelism=5, image="fails:1-4", backoffLimit=50),
    ),
    "an ordinary Job is resumed while nothing leads": _plan(
        _batch(3, "nightly", completions=12, parallelism=2, deadline=300),
        Act(12, "suspend batch job", "nightly", 28),
        *(Act(30, "kill", f"punctual-{i}", 15) for i in range(2)),
    ),
    "a pilot of an ordinary Job keeps its processor beside promises": _plan(
        _job(3, "busy", units=60),
        _batch(4, "measured", completions=6, parallelism=2, cost=None, deadline=300),
        *(_job(6 + 3 * i, f"short-{i}", units=4, deadline=40, refusable=("InfeasibleCapacity",)) for i in range(5)),
    ),
    "an ordinary Job is suspended, and goes on": _plan(
        _batch(3, "nightly", completions=12, parallelism=2),
        Act(12, "suspend batch job", "nightly", 20),
        compared=True,
    ),
    "an ordinary Job is suspended and goes on while nothing leads": _plan(
        _batch(3, "nightly", completions=12, parallelism=2),
        Act(11, "kill", "leader", 20),
        Act(12, "suspend batch job", "nightly", 12),
    ),
    "the deadline of an ordinary Job is edited": _plan(
        _batch(3, "nightly", completions=16, parallelism=2, deadline=100),
        Act(10, "edit batch deadline", "nightly", value=120),
        Act(15, "edit batch deadline", "nightly", value=16),
    ),
    "an ordinary Job is refused, and its deadline is edited": _plan(
        _batch(3, "nightly", completions=16, parallelism=2, deadline=20, reasons=("InfeasibleCapacity",)),
        Act(10, "edit batch deadline", "nightly", value=120),
    ),
    "an ordinary Job is measured and refused, and its deadline is edited": _plan(
        _batch(3, "nightly", completions=16, parallelism=2, deadline=20, cost=None,
               reasons=("InfeasibleCapacity", "InfeasibleStartup")),
        Act(40, "edit batch deadline", "nightly", value=200),
    ),
    "an ordinary Job that is refused starts anyway, beside promises": _plan(
        _batch(3, "hopeless", completions=10, parallelism=2, deadline=4, anyway=True),
        *(_job(6 + 12 * i, f"promised-{i}", units=10, deadline=90) for i in range(4)),
    ),
    "one that started anyway goes on under the next leaders, and when its pods are lost": _plan(
        _batch(3, "hopeless", completions=12, parallelism=2, deadline=4, image="runs:4-0", cost="4s", anyway=True),
        Act(10, "kill", "leader", 4),
        Act(20, "evict"),
        Act(30, "freeze", "leader", 20),
        Act(60, "kill agent", "n1", 3),
    ),
    "a refused Job is told to start anyway, and then not to": _plan(
        _batch(3, "nightly", completions=60, parallelism=2, deadline=20, reasons=("InfeasibleCapacity",)),
        Act(10, "start anyway", "nightly", value="true"),
        Act(30, "start anyway", "nightly", value="false"),
        _job(40, "next", units=20, deadline=60),
    ),
    "a Job that started anyway is promised by an edit": _plan(
        _batch(3, "nightly", completions=16, parallelism=2, deadline=4, image="runs:4-0", cost="4s", anyway=True),
        Act(14, "edit batch deadline", "nightly", value=150),
    ),
    "a Job without a cost starts anyway, is suspended, and goes on": _plan(
        _batch(3, "nightly", completions=12, parallelism=2, deadline=6, cost=None, anyway=True),
        Act(25, "suspend batch job", "nightly", 10),
    ),
    "an ordinary Job is measured": _plan(_batch(3, "nightly", completions=10, parallelism=2, cost=None)),
    "an ordinary Job is deleted under way": _plan(
        _batch(3, "nightly", completions=12, parallelism=2),
        Act(14, "delete batch job", "nightly"),
        _batch(15, "next", completions=8, parallelism=2, deadline=60),
    ),
    "an ordinary Job is deleted as it is asked for": _plan(
        _batch(3, "nightly", completions=12, parallelism=2),
        Act(3.05, "delete batch job", "nightly"),
    ),
    "the promise of an ordinary Job is deleted, and asked for again": _plan(
        _batch(3, "nightly", completions=12, parallelism=2),
        Act(14, "delete promise", "nightly"),
    ),
    "the promise of a suspended Job is deleted, and asked for again": _plan(
        _batch(3, "hopeless", completions=60, parallelism=2, deadline=20, expected="refused",
               reasons=("InfeasibleCapacity",)),
        Act(9, "delete promise", "hopeless"),
    ),
    "the promise of a Job without indexes is deleted, and asked for again": _plan(
        _batch(3, "nightly", completions=12, parallelism=2, completionMode="NonIndexed"),
        Act(14, "delete promise", "nightly"),
    ),
    "an ordinary Job without indexes": _plan(
        _batch(3, "any", completions=9, parallelism=3, completionMode="NonIndexed"),
        Act(12, "evict"),
        Act(14, "kill", "leader", 4),
    ),
    "a DivisibleJob of an ordinary Job's name is there already": _plan(
        _job(3, "nightly", units=20),
        _batch(5, "nightly", completions=4, parallelism=2, answered=False),
    ),
    "a leader goes as it opens an ordinary Job": _plan(
        *(_batch(at - 0.5, f"job-{at:.0f}", completions=4, parallelism=2, deadline=300) for at in (10, 30, 50, 70)),
        *(Act(at + late, "kill", "leader", 2) for at, late in ((10, 0.1), (30, 0.25), (50, 0.4), (70, 0.8))),
    ),
    "the leader's watches are silent while pods of an ordinary Job come to the gate": _plan(
        _batch(5, "nightly", completions=10, parallelism=3),
        Act(5.5, "deaf watches", "leader", 30),
    ),
    "a node goes under the pods of an ordinary Job": _plan(
        _batch(3, "nightly", completions=16, parallelism=4),
        Act(12, "node down", "n1", 30),
    ),
    "aligned slices stay where they are under the next leaders, and under other agents": _plan(
        *ALIGNED,
        Act(40, "kill", "leader", 5),
        Act(80, "kill agent", "n1", 3),
        Act(110, "freeze", "leader", 40),
        Act(170, "kill", "leader", 3),
        Act(171, "kill agent", "n2", 8),
        Act(172, "kill agent", "n1", 3),
    ),
    "the store is brought back under a leader that lives on": _plan(
        _job(3, "one", units=40),
        Act(8, "restore", seconds=20, value=0),
    ),
    "the store is brought back, and versions go on far above": _plan(
        _job(3, "one", units=40),
        Act(8, "restore", seconds=20, value=1_000_000),
    ),
    "the store is brought back behind two leaders that agents have heard": _plan(
        _job(3, "slow", units=40, most=2, template=SLOW),
        Act(8, "restore", seconds=60, value=0),
        Act(12, "kill", "leader", 3),
        Act(32, "kill", "leader", 3),
    ),
    "a leader has the epoch of another one that agents have heard": _plan(
        _job(3, "slow", units=40, most=2, template=SLOW),
        Act(8, "restore", seconds=30, value=0),
        Act(12, "kill", "leader", 3),
    ),
}  # fmt: skip
