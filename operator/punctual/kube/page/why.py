"""Why a job is as it is, for a viewer of the page: the answer of :mod:`punctual.view.why`, from a leader's state."""

from collections.abc import Collection

from punctual.kube.page.model import Reading


def explain(reading: Reading, uid: str, visible: Collection[str] | None) -> tuple[str, ...] | None:
    """Return sentences. None: there is no such job in the namespaces that are visible (None: in all)."""
    known = reading.jobs.get(uid)
    if known is None or not (visible is None or known.owner.namespace in visible):
        return None
    record = known.record
    said = record and [record.failed_condition, record.completed_condition, record.on_track, record.admitted]
    return tuple(verdict.message for verdict in said or () if verdict)
