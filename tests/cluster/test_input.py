"""A transfer-bound job on a pool whose inputs come over one port: a table on a slow server, fetched piece by piece."""

from itertools import pairwise

import pytest
from live import ROOT, eventually, lend

from punctual.kube.duration import parse_time

UNITS, LINES, RATE = 60, 60_000, 250_000


@pytest.fixture
async def own(cluster, client, space):
    """A pool of the test's own on one of the nodes, over one port."""
    async with lend(cluster, client, cluster.nodes[-1], network="OnePort") as name:
        yield name


async def test_inputs_come_one_after_the_other_in_time_and_what_they_took_is_told(cluster, client, space, own):
    source = (ROOT / "examples/readings/source.yaml").read_text().replace("punctual:dev", cluster.image)
    await space.kubectl("apply", "-f", "-", stdin=source.replace("--lines=100000", f"--lines={LINES}"))
    await eventually(lambda: ready(space.pods.get("readings")))
    cost = {"chi": "400ms", "tau": "60ms", "thetaCm": "3s", "thetaCp": "4s"}
    job = space.example("readings", pool=own, units=UNITS, deadline="4m", cost=cost, processors={"min": 3, "max": 3})
    job["spec"]["reduce"]["duration"] = "8s"
    await space.apply(job)
    assert (await space.answer("readings"))["reason"] == "Feasible", space.status("readings")
    status = await space.end("readings")
    # all three were there as the first was given its turn
    first = next(chunks for chunks in planned(space) if turns(chunks))
    assert len(first) == 3
    assert len(turns(first)) == 1

    assert space.is_so("readings", "Completed", "Completed"), status["conditions"]
    assert status["finishedAt"] <= status["promise"]["deadline"]
    assert status["input"]["transfers"] == 3
    assert status["input"]["units"] == UNITS

    # the server saw one transfer at a time, in the order of the units, and sent each byte once: but for the looks where
    # the last line of a share ends
    sent = await answers(space)
    assert all(after[0] >= before[1] for before, after in pairwise(sent)), sent
    shares = [first for *_, first, last in sent if last - first > 20_000]
    assert len(shares) == 3
    assert shares == sorted(shares)
    size = 1 + max(last for *_, last in sent)
    assert size <= sum(last + 1 - first for *_, first, last in sent) <= size + 3 * 17_000
    assert status["input"]["bytes"] == size
    # no less but for what waited in the sockets while a reader was slow
    assert 0.4 * size / UNITS / RATE <= status["input"]["tau"]
    assert status["input"]["tau"] <= (parse_time(status["finishedAt"]) - sent[0][0]) / UNITS

    # and each line was counted once
    lines = (await space.kubectl("logs", reduce_pod(space))).splitlines()
    assert len(lines) == 10
    assert sum(int(line.split()[1]) for line in lines) == LINES


def ready(pod):
    conditions = pod["status"].get("conditions", ()) if pod else ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def planned(space):
    return [status.get("chunks", ()) for _, status in space.written("readings")]


def turns(chunks):
    return [c for c in chunks if "turnAt" in c]


def reduce_pod(space):
    (pod,) = space.pods_of("readings", "Reduce")
    return pod["metadata"]["name"]


async def answers(space):
    """Return what the server says that it sent, in the order of their beginnings: (began, ended, first, last)."""
    lines = (await space.kubectl("logs", "readings")).splitlines()
    return sorted((float(a), float(b), int(first), int(last)) for a, b, first, last in map(str.split, lines))
