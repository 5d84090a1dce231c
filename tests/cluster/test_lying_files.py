"""Workers that write what is no count, all at once on real kubelets: nothing is followed, nothing waits, all is said.

Each job lies in its own way after an honest 2 of its 5 units; Redo counts exit statuses, so each completes.
"""

import asyncio
from collections import Counter
from typing import NamedTuple

from live import eventually

WORK = """
cd "$PUNCTUAL_DIR"
put() { echo "$1" >next; mv -T next progress; }
put 2
sleep 10
LIE
sleep 10
"""

LIES = {
    "missing": ("rm progress", "progress was there and is gone"),
    "empty": (": >next; mv next progress", "progress is empty"),
    "word": ("put twelve", "progress is not a number"),
    "negative": ("put -3", "progress is negative"),
    "beyond": ("put 6", "progress is beyond the chunk's end"),
    "backwards": ("put 1", "progress is lower than before"),
    # the second one leads to what would be believed, were it followed
    "link": (
        "ln -s /etc/shadow next; mv -T next progress; sleep 3; echo 4 >count; ln -s count next; mv -T next progress",
        "progress is not a regular file",
    ),
    "fifo": ("mkfifo next; mv next progress", "progress is not a regular file"),
    "gigabyte": ("echo 3 >next; truncate -s 1G next; mv next progress", "progress is longer than any valid number"),
    "locked": ("echo 3 >next; chmod 0 next; mv next progress", "progress cannot be read"),
}
COUNTED = Counter(
    missing=1, empty=1, notANumber=1, negative=1, beyondEnd=1, backwards=1, notRegular=2, tooLarge=1, unreadable=1
)


async def test_files_that_lie_cost_nobody_anything_and_are_counted_and_said(cluster, pool, space):
    agents = {p["metadata"]["name"]: p for p in cluster.pods("agent")}
    before = seen(cluster, agents)

    def job(name, script):
        first = {"name": "main", "image": cluster.image, "command": ["sh", "-ec", script]}
        template = {"spec": {"containers": [first]}}
        cost, most = {"perUnit": "4s", "startup": "4s"}, {"max": 1}
        return space.manifest(name, units=5, deadline="4m", cost=cost, processors=most, template=template)

    await space.apply(*(job(name, WORK.replace("LIE", lie)) for name, (lie, _) in LIES.items()))
    await asyncio.gather(*(space.running(name) for name in LIES))

    for name, (_, said) in LIES.items():
        status = await space.end(name)
        assert space.is_so(name, "Completed", "Completed"), status
        assert status["completed"] == [{"begin": 0, "end": 5}]
        (pod,) = space.pods_of(name)
        events = await eventually(lambda name=name: fault(space, name))
        assert events == f"pod {pod['metadata']['name']}: {said}; the last valid value is used"
        # what was honest stands: never what a lie says, until the exit status says that all is done
        assert {s["units"]["done"] for _, s in space.written(name) if "units" in s} <= {0, 2, 5}

    after = seen(cluster, agents)
    assert after.faults - before.faults == COUNTED
    looks = after.looks - before.looks
    assert looks > 10
    assert (after.seconds - before.seconds) / looks < 0.25  # milliseconds; a look that waits for a writer has no end
    assert [restarts(p) for p in cluster.pods("agent")] == [restarts(p) for p in agents.values()]
    assert {p["metadata"]["name"] for p in cluster.pods("agent")} == set(agents)


async def fault(space, name):
    return (await space.events(name)).get("FileFault")


class Seen(NamedTuple):
    """What the agents' metrics say, all of them together."""

    faults: Counter
    looks: float
    seconds: float


def seen(cluster, agents):
    lines = [line for agent in agents for line in cluster.metrics(agent, 9464).items()]
    faults = Counter()
    for series, value in lines:
        if series.startswith("punctual_file_faults_total{"):
            faults[series.split('"')[1]] += int(value)
    look = "punctual_agent_look_duration_seconds"
    count, total = (sum(v for series, v in lines if series == f"{look}_{part}") for part in ("count", "sum"))
    return Seen(faults, count, total)


def restarts(pod):
    return {c["name"]: c["restartCount"] for c in pod["status"]["containerStatuses"]}
