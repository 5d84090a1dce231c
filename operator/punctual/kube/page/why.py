"""Why a job or a TargetRate is as it is, for a viewer of the page: the answer of the view, from a leader's state."""

from collections.abc import Collection

from punctual.kube.known.translate import job_status
from punctual.kube.page.model import Reading, rate_view
from punctual.view.jobs import job_of
from punctual.view.rates import why_rate
from punctual.view.why import why


def explain(reading: Reading, uid: str, visible: Collection[str] | None) -> tuple[str, ...] | None:
    """Return sentences. None: there is no such job in the namespaces that are visible (None: in all).

    Jobs of other namespaces have no name in them.
    """
    known = reading.jobs.get(uid)
    if known is None or not (visible is None or known.owner.namespace in visible):
        return None
    if known.term.record is None or known.term.job is None:
        return ("It has no answer yet.",)
    status = job_status(
        known.term.record,
        known.term.job,
        owner=known.owner,
        transition_times=known.term.transition_times,
        now=reading.now,
    )
    manifest = known.manifest() if known.spec else {"metadata": {}, "spec": {}}
    meta = {**manifest["metadata"], "uid": uid, "namespace": known.owner.namespace, "name": known.owner.name}
    spec = {"pool": known.owner.pool, "units": known.owner.units} | manifest["spec"]
    names = {
        other: f"{job.owner.namespace}/{job.owner.name}"
        for other, job in reading.jobs.items()
        if visible is None or job.owner.namespace in visible
    }
    job = job_of({"metadata": meta, "spec": spec, "status": status})
    return why(job, reading.pools.get(known.owner.pool), reading.now, names)


def explain_rate(reading: Reading, uid: str, visible: Collection[str] | None) -> tuple[str, ...] | None:
    """Return sentences. None: there is no such TargetRate in the namespaces that are visible (None: in all)."""
    known = reading.rates.get(uid)
    if known is None or not (visible is None or known.namespace in visible):
        return None
    return why_rate(rate_view(known), reading.now)
