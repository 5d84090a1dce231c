"""How many pods of a Job may be there at a time: those of its chunks, and some at the gate for the next starts.

Its controller counts in steps of a second, so a chunk that begins finds a pod only if one waits already. All is pure.
"""

from typing import Any, Final

from punctual.kube.cluster.batch_jobs import Parallelism
from punctual.labels import PARALLELISM, PARALLELISM_WRITTEN

LAST: Final = 4
"""Numbers of the operator that are noted."""

Json = dict[str, Any]


def followed(parallelism: Parallelism, chunks: int, *, kept: int | None = None) -> Parallelism:
    """Return what a Job's parallelism is to be while it has so many chunks.

    It stays as long as it is near twice that number, because each write makes the Job's controller create or delete
    pods. ``kept``: so many pods stay while one that finds no node is withdrawn. Pods at the gate go with it, because
    the Job's controller chooses among those that have no node; it counts none of them as failed.
    """
    there, asked = parallelism.there, parallelism.asked
    if parallelism.put_back:
        return parallelism
    if kept is not None:
        wanted = min(there, kept)
    elif chunks + chunks // 2 < there <= 4 * chunks + 8:
        wanted = there
    else:
        wanted = 2 * chunks + 2
    if wanted >= asked:
        return Parallelism(asked)
    written = parallelism.written if wanted == there else (wanted, *parallelism.written)[:LAST]
    return Parallelism(wanted, asked, written or (wanted,))


def restored(parallelism: Parallelism) -> Parallelism:
    """Return it as its user wants it."""
    return Parallelism(parallelism.asked)


def patch(uid: str, there: Parallelism, wanted: Parallelism) -> Json:
    """Return the patch of a Job (uid) that makes its parallelism what is wanted."""
    if wanted == there:
        return {"metadata": {"uid": uid, "annotations": {}}, "spec": {}}
    notes = {
        PARALLELISM: None if wanted.noted is None else str(wanted.noted),
        PARALLELISM_WRITTEN: ",".join(map(str, wanted.written)) or None,
    }
    return {"metadata": {"uid": uid, "annotations": notes}, "spec": {"parallelism": wanted.there}}
