"""``punctual-uninstall``: releases what only the operator could release. The chart runs it before it is uninstalled.

    leave       mark the claim, so that no replica leads, and wait until the leader has stopped
    release     finalizers of pools, taints of nodes, placeholders
    suspend     Jobs with pods that wait at the gate, which nothing would open
    tell        which pods of jobs still run: they run on, and count when Punctual is installed again

It can be repeated at any time. It does nothing while another installation leads in the cluster.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Final

from punctual import errors, reasons
from punctual.kube.api.resources import BATCH_JOBS, LEASES, NODES, PODS, POOLS, Resource
from punctual.kube.cluster.batch_jobs import Parallelism, project_gated
from punctual.kube.cluster.client import METADATA_LIST, ApiClient, Json
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.cluster.pod_manifest import label
from punctual.kube.election.claim import SHARED, Claim, Installation
from punctual.kube.kinds.batch.contract import closing
from punctual.kube.kinds.pools.pools import FINALIZER
from punctual.kube.writes.operations import replace_list
from punctual.labels import GATE, GROUP, JOB_LABEL, JOB_UID_LABEL, PLACEHOLDER, POOL_LABEL
from punctual.scheduling.model.wording import some

LOOK: Final = 0.5
"""Seconds between two looks at a Lease."""
STOPPED: Final = 45.0
"""Maximum seconds to wait for the leader. It sees the mark within 10 s; a leader that hangs loses its Lease in 15 s."""
WHOLE: Final = 150.0
"""Maximum seconds of a run. The chart's Job has a little more."""
PASSES: Final = 5
"""Maximum number of passes over a collection: a patch may lose a race, and the next pass makes another."""
FLUSH: Final = 5.0
"""Seconds for the events to be written."""
NAMED: Final = 5
"""Maximum number of jobs that a message names."""
PENDING: Final = "status.phase=Pending"
ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"

Tell = Callable[[str], object]


async def uninstall(client: ApiClient, installation: Installation, *, lease: str, tell: Tell) -> None:
    """Release what an installation holds, and tell what was done, a sentence at a time.

    ``lease``: the name of the Lease of its replicas. Raises ClusterError if the API server does not let it.
    """
    claim = Claim(client, installation)
    while not await _patiently(claim.leave):
        if not await _abandoned(client, claim.path):
            tell(f"The installation {claim.other} leads in this cluster, so there is nothing to release.")
            return
    try:
        async with asyncio.timeout(STOPPED):
            while not await _abandoned(client, LEASES.path(namespace=installation.namespace, name=lease)):
                pass
    except TimeoutError:
        tell(f"The leader has not stopped in {STOPPED:.0f} s. Its pod may be hanging.")
    pools = await _pools(client)
    tell(f"{some(await _patch(client, POOLS, _without_finalizer), 'pool')} may be deleted at once.")
    tell(f"{some(await _patch(client, NODES, _without_taint), 'node')} lost the taint {POOL_LABEL}.")
    tell(f"{some(await _delete_placeholders(client, installation.namespace), 'placeholder')} deleted.")
    await suspend_jobs(client, tell)
    await _tell_pods(client, pools, tell)
    await _patiently(claim.leave)  # until the replicas are gone


async def _patiently(work: Callable[[], Awaitable[bool]]) -> bool:
    """Repeat a write that others overtake, or that gets no answer. `WHOLE` bounds it."""
    while True:
        try:
            return await work()
        except (errors.Conflict, errors.Unreachable, errors.Busy) as error:
            await asyncio.sleep(error.retry_after)


async def _abandoned(client: ApiClient, path: str) -> bool:
    """Return whether no process holds a Lease: it is released, or not renewed in its time. False: it was renewed."""
    first: Json | None = None
    until = 0.0
    while True:
        try:
            spec: Json = (await client.get(path)).get("spec") or {}
        except errors.NotFound:
            return True
        if first is None:
            first, until = spec, time.monotonic() + float(spec.get("leaseDurationSeconds") or 0)
        if spec != first:
            return False
        if not spec.get("holderIdentity") or time.monotonic() >= until:
            return True
        await asyncio.sleep(LOOK)


async def _bodies(client: ApiClient, resource: Resource) -> AsyncIterator[Json]:
    """Yield the objects of a kind. There are none if the kind is gone."""
    try:
        async for page in client.pages(resource.path()):
            for body in page.items:
                yield body
    except errors.NotFound:
        return


async def _pools(client: ApiClient) -> dict[str, Regarding]:
    """Return the pools by the label of their pods."""
    names = [(body["metadata"]["name"], body["metadata"]["uid"]) async for body in _bodies(client, POOLS)]
    return {label(name): Regarding.pool(name, uid) for name, uid in names}


async def _patch(client: ApiClient, resource: Resource, change: Callable[[Json], list[Json] | None]) -> int:
    """Patch each object that needs it, until none does. Returns how many were patched."""
    done: set[str] = set()
    for _ in range(PASSES):
        patches = [
            (body["metadata"]["name"], patch) async for body in _bodies(client, resource) if (patch := change(body))
        ]
        if not patches:
            return len(done)
        for name, patch in patches:
            try:
                await client.patch_json(resource.path(name=name), patch)
            except (errors.Invalid, errors.Conflict, errors.NotFound):
                continue
            done.add(name)
    raise errors.ClusterError(f"{resource.plural} were changed by other clients again and again: {patches[0][0]}")


def _replaced(path: str, there: list[Json], kept: list[Json]) -> list[Json] | None:
    """Return the patch of a list. None: it stays."""
    return replace_list(path, there, kept) if kept != there else None


def _without_finalizer(pool: Json) -> list[Json] | None:
    there = pool["metadata"].get("finalizers") or []
    return _replaced("/metadata/finalizers", there, [one for one in there if one != FINALIZER])


def _without_taint(node: Json) -> list[Json] | None:
    there = node["spec"].get("taints") or []
    return _replaced("/spec/taints", there, [one for one in there if one["key"] != POOL_LABEL])


async def _delete_placeholders(client: ApiClient, namespace: str) -> int:
    path = PODS.path(namespace=namespace)
    found = (await client.list(path, label_selector=PLACEHOLDER)).items
    for body in found:
        meta = body["metadata"]
        try:
            await client.delete(PODS.path(namespace=namespace, name=meta["name"]), uid=meta["uid"], grace=1.0)
        except (errors.NotFound, errors.Replaced):
            continue
    return len(found)


async def suspend_jobs(client: ApiClient, tell: Tell) -> None:
    """Suspend the Jobs with pods that wait at the gate, and tell which. A Job of which all pods run is left alone."""
    pods = client.pages(PODS.path(), field_selector=PENDING)
    waiting = {pod.job async for page in pods for body in page.items if (pod := project_gated(body))}
    found = [body async for body in _bodies(client, BATCH_JOBS) if body["metadata"]["uid"] in waiting]
    done = []
    for body in found:
        meta = body["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        try:
            path = BATCH_JOBS.path(namespace=meta["namespace"], name=meta["name"])
            await client.patch_merge(path, closing(meta["uid"], Parallelism.of(body)))
        except (errors.NotFound, errors.Replaced):
            continue
        except (errors.Invalid, errors.Forbidden) as error:
            tell(f"The Job {key} was not suspended, so its pods wait at the gate {GATE}: {error}")
        else:
            done.append(key)
    if done:
        tell(
            f"{some(len(done), 'Job')} suspended, because pods waited at the gate {GATE}: {_named(done)}. Kubernetes "
            "ends those of their pods that run. To run a Job without Punctual, create it anew without the label "
            f"{POOL_LABEL}."
        )


async def _tell_pods(client: ApiClient, pools: Mapping[str, Regarding], tell: Tell) -> None:
    """Tell which pods of jobs still run: on standard output, and as an event of their pool."""
    running: dict[str, Counter[str]] = {}
    pages = client.pages(PODS.path(), label_selector=JOB_UID_LABEL, field_selector=ENDED, accept=METADATA_LIST)
    async for page in pages:
        for meta in (body["metadata"] for body in page.items):
            if "deletionTimestamp" not in meta:
                job = f"{meta['namespace']}/{meta['labels'].get(JOB_LABEL, '?')}"
                running.setdefault(meta["labels"].get(POOL_LABEL, ""), Counter())[job] += 1
    recorder = EventRecorder(client, controller=f"{GROUP}/uninstall", instance=os.environ.get("POD_NAME", "uninstall"))
    writing = asyncio.ensure_future(recorder.run())
    for pool, jobs in sorted(running.items()):
        text = (
            f"{some(jobs.total(), 'pod')} of {some(len(jobs), 'job')} still run: {_named(jobs)}. They run on, and what "
            "they complete counts when Punctual is installed again. Delete a job to end its pods."
        )
        tell(f"Pool {pools[pool].name}: {text}" if pool in pools else text)
        if pool in pools:
            recorder.emit(pools[pool], "Warning", reasons.UNINSTALLED, f"Punctual is uninstalled while {text}")
    await recorder.flush(FLUSH)
    writing.cancel()


def _named(jobs: Iterable[str]) -> str:
    names = sorted(jobs)
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join([*names[:NAMED], *more])


async def _run(env: Mapping[str, str]) -> None:
    namespace = env.get("POD_NAMESPACE", "default")
    lease = env.get("PUNCTUAL_LEASE", "punctual")
    shared = env.get("PUNCTUAL_CLAIM_NAMESPACE", SHARED)
    installation = Installation(namespace, env.get("PUNCTUAL_RELEASE", lease), shared)
    async with asyncio.timeout(WHOLE), ApiClient() as client:
        await uninstall(client, installation, lease=lease, tell=lambda text: sys.stdout.write(f"{text}\n"))


def main() -> int:
    """Uninstall the installation that the environment names, as the operator's does. Returns 1 if that fails."""
    try:
        asyncio.run(_run(os.environ))
    except (errors.PunctualError, TimeoutError) as error:
        sys.stderr.write(f"punctual-uninstall: {error or f'not done in {WHOLE:.0f} s'}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
