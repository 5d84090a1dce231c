"""A promise kept on real kubelets: from kubectl apply to the result, with what a user sees on the way."""

import asyncio
import re
import subprocess
import sys
from datetime import datetime

from live import POOL, ROOT, container, covers, eventually, note, pool_status, said

from punctual.metric_names import OTHERS

EXAMPLES = ROOT / "examples"
ALONE = {"primes": [sys.executable, EXAMPLES / "primes/primes.py"], "mertens": [EXAMPLES / "mertens/mertens.sh"]}


def alone(name, units, folder):
    """What one process finds that does all units by itself."""
    folder = folder / name
    folder.mkdir()
    environment = {
        "PATH": "/usr/bin:/bin",
        "PUNCTUAL_BEGIN": "0",
        "PUNCTUAL_END": str(units),
        "PUNCTUAL_TOTAL": str(units),
        "PUNCTUAL_DIR": str(folder),
        "PUNCTUAL_OFFER": str(folder / "offer"),
        "PUNCTUAL_TERMINATION_LOG": str(folder / "message"),
    }
    subprocess.run(ALONE[name], env=environment, check=True, capture_output=True)
    return (folder / "message").read_text().strip()


def columns(table):
    """The rows of what kubectl prints, by name."""
    head, *rows = table.splitlines()
    names = re.findall(r"\S+", head)
    starts = [head.index(name) for name in names]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    cells = [[row[a:b].strip() for a, b in spans] for row in rows]
    return {row[0]: dict(zip(names, row, strict=True)) for row in cells}


def moment(text):
    return datetime.fromisoformat(text).timestamp()


async def test_two_jobs_are_promised_capped_and_end_on_time_with_the_result_of_one_process(cluster, space, tmp_path):
    units = {"primes": 120, "mertens": 120}
    leader = (await eventually(cluster.in_order))["metadata"]["name"]
    before = cluster.metrics(leader, 8080)
    spec = {"deadline": "3m", "processors": {"min": 2}}
    await space.apply(
        space.example("primes", units=120, cost={"perUnit": "600ms", "startup": "2s"}, **spec),
        space.example("mertens", units=120, cost={"perUnit": "300ms", "startup": "1s"}, **spec),
    )
    for name in units:
        assert (await space.answer(name))["reason"] == "Feasible"

    # the processor of 100m stands in the kernel, at the pod and at its container, and is what the agent reports
    for name, count in units.items():
        processors = space.status(name)["promise"]["processors"]
        assert processors >= 2
        await eventually(lambda name=name, processors=processors: len(space.pods_of(name)) == processors)
        pods = space.pods_of(name)
        assert covers([(note(p, "begin"), note(p, "end")) for p in pods], count)
        recorded = next(status["chunks"] for _, status in space.written(name) if "chunks" in status)
        assert {(c["begin"], c["pod"]) for c in recorded} == {(note(p, "begin"), p["metadata"]["name"]) for p in pods}
        await asyncio.gather(*(capped(cluster, space, p["metadata"]["name"]) for p in pods))

    # what kubectl shows while it runs
    await eventually(lambda: 12 <= space.status("primes")["units"]["done"] < 120)
    row = columns(await space.kubectl("get", "dj"))["primes"]
    assert list(row) == ["NAME", "STATE", "DEADLINE", "PROGRESS", "ETA", "SLACK", "AGE"]
    assert row["STATE"] == "Running"
    assert 0 < int(row["PROGRESS"].removesuffix("%")) < 100
    assert moment(row["DEADLINE"]) == moment(space.status("primes")["promise"]["deadline"])
    assert moment(row["ETA"]) < moment(row["DEADLINE"])

    alone_found = {name: alone(name, count, tmp_path) for name, count in units.items()}
    for name, count in units.items():
        status = await space.end(name)
        assert space.condition(name, "Completed")["reason"] == "Completed"
        assert space.condition(name, "OnTrack")["status"] == "True"
        assert moment(status["finishTime"]) <= moment(status["promise"]["deadline"])
        assert status["completed"] == [{"begin": 0, "end": count}]
        assert status["units"] == {"done": count, "running": 0, "total": count}
        assert "chunks" not in status
        assert space.result(name) == alone_found[name]
        await eventually(lambda name=name: said(space, name, {"Feasible", "Completed"}))
    row = columns(await space.kubectl("get", "dj"))["primes"]
    assert (row["STATE"], row["PROGRESS"]) == ("Completed", "100%")
    # pods of chunks go once they are accounted, the reduce stays to be read
    await eventually(lambda: not any(space.pods_of(name, gone=False) for name in units))
    assert len(space.pods_of("primes", "Reduce", gone=False)) == 1

    after = cluster.metrics(leader, 8080)
    grown = {series: value - before.get(series, 0.0) for series, value in after.items()}
    assert grown[f'punctual_admission_decisions_total{{pool="{POOL}",reason="Feasible",result="True"}}'] >= 2
    # a leader that has seen many namespaces counts a new one with others
    ours = (f'{{namespace="{one}",pool="{POOL}"}}' for one in (space.namespace, OTHERS))
    assert sum(grown.get(f"punctual_promises_kept_total{one}", 0.0) for one in ours) == 2
    assert grown["punctual_admission_duration_seconds_count"] >= 2
    assert grown['punctual_chunks_created_total{kind="Reduce"}'] >= 2
    await eventually(lambda: cluster.metrics(leader, 8080)["punctual_agents_silent"] == 0)
    assert {s for s in after if s.startswith("punctual_deadline_misses_total{") and grown[s]} == set()


async def test_a_standby_says_that_it_does_not_lead_and_is_ready(cluster):
    leader = (await eventually(cluster.in_order))["metadata"]["name"]
    names = {p["metadata"]["name"] for p in cluster.pods("operator")}
    assert {name: cluster.metrics(name, 8080)["punctual_leader"] for name in names} == {
        name: float(name == leader) for name in names
    }


async def capped(cluster, space, name):
    """Wait until a pod runs, and see its processor in the kernel."""
    await eventually(lambda: space.pods[name]["status"]["phase"] == "Running")
    pod = space.pods[name]
    caps = await asyncio.to_thread(cluster.caps, pod)
    outer = min(caps, key=len)
    inner = next(folder for folder in caps if container(pod) in folder)
    assert caps[outer] == caps[inner]
    quota, period = caps[inner]
    assert period == 100000
    # a processor, or more where chunks beside it are ahead of their lines
    assert 500 <= quota <= 10000 * max(node["processors"] for node in (await pool_status(space.client))["nodes"])
