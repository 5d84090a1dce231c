"""Where nothing happens nothing is written: a watch of half a minute over all that is ours."""

import asyncio
import re
import time

from live import OWN_SPACE, SYSTEM, eventually

SECONDS = 30
OURS = "/apis/punctual.dev/v1alpha1"
WATCHED = {
    f"{OURS}/pools": "",
    f"{OURS}/divisiblejobs": "",
    f"{OURS}/profiles": "",
    f"{OURS}/reservations": "",
    "/apis/events.k8s.io/v1/events": "reportingController=punctual.dev/operator",
    f"/api/v1/namespaces/{SYSTEM}/pods": "",
    f"/api/v1/namespaces/{SYSTEM}/configmaps": "",
    f"/api/v1/namespaces/{SYSTEM}/secrets": f"metadata.name={SYSTEM}-ca",
}
"""Collections, and which of their objects."""


async def test_a_quiet_cluster_sees_the_lease_and_a_token_review_per_agent_and_minute_no_more(cluster, client, pool):
    await eventually(lambda: _no_tests_left(client), within=240)
    leader = (await eventually(cluster.in_order))["metadata"]["name"]
    last = []

    def calm():
        last.append(_writes(cluster, leader))
        return last[-2:-1] == last[-1:]

    await eventually(calm, every=3.0)

    async def changes(path, selector=""):
        """Return what is told of a collection within the time: (how, name)."""
        start = (await client.list(path, field_selector=selector)).resource_version
        silence = SECONDS + 10
        watch = client.watch(path, resource_version=start, field_selector=selector, seconds=SECONDS, silence=silence)
        seen = [(event["type"], event["object"]["metadata"].get("name")) async for event in watch]
        # events go by themselves when they are old
        return [one for one in seen if one[0] not in {"BOOKMARK"} | ({"DELETED"} if "events" in path else set())]

    began = time.monotonic()
    before, written = _requests(cluster), _writes(cluster, leader)
    *seen, leases = await asyncio.gather(
        *(changes(path, selector) for path, selector in WATCHED.items()),
        changes(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"),
    )
    minutes = 1 + int((time.monotonic() - began) / 60)
    grown = {what: count - before.get(what, 0) for what, count in _requests(cluster).items()}
    assert dict(zip(WATCHED, seen, strict=True)) == {path: [] for path in WATCHED}
    # an apply that changes nothing is not seen by a watch, but it is a request
    kinds = {path.rpartition("/")[2] for path in WATCHED if path.startswith(OURS)}
    assert {what: n for what, n in grown.items() if what[1] in kinds and n} == {}
    assert _writes(cluster, leader) == written
    assert grown.get(("POST", "tokenreviews"), 0) <= len(cluster.nodes) * minutes
    # every two seconds, and a little more often while the machine is slow
    assert SECONDS / 5 <= len(leases) <= SECONDS / 2 + 3


async def _no_tests_left(client):
    names = [n["metadata"]["name"] for n in (await client.list("/api/v1/namespaces")).items]
    going = [p for p in (await client.list(f"{OURS}/pools")).items if "deletionTimestamp" in p["metadata"]]
    return not going and not any(re.fullmatch(OWN_SPACE, name) for name in names)


def _requests(cluster):
    """Return {(verb, resource): count} of the API server's writes."""
    counts = {}
    for line in cluster.kubectl("get", "--raw", "/metrics").splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if labels["verb"] in {"POST", "PUT", "PATCH", "DELETE", "APPLY"}:
                key = labels["verb"], labels["resource"]
                counts[key] = counts.get(key, 0) + float(line.rpartition(" ")[2])
    return counts


def _writes(cluster, leader):
    """Return the leader's own count of what it has written."""
    series = cluster.metrics(leader, 8080)
    return {name: value for name, value in series.items() if name.startswith("punctual_writes_total{")}
