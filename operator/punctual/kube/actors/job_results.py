"""The stored results of all jobs of a term, and the events about lost ones.

`punctual.kube.actors.results` stores the results of one job. This part reads them back at the takeover and reports
results that could not be stored, or that were deleted. It decides nothing: the reduce pod reads what exists.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from punctual import reasons
from punctual.kube.actors.results import Results, config_map_name
from punctual.kube.cluster.client import Json
from punctual.kube.cluster.events import EventRecorder, Regarding
from punctual.kube.known.directory import Directory
from punctual.kube.known.jobs import KnownJob, ended
from punctual.kube.writes.operations import AddToConfigMap, Outcome
from punctual.scheduling.model.wording import some

ConfigMap = Mapping[str, Any]


class JobResults:
    """Results by job (uid). The executors store into ``by_job``."""

    def __init__(self, directory: Directory, recorder: EventRecorder) -> None:
        self._directory = directory
        self._recorder = recorder
        self.by_job: dict[str, Results] = {}

    async def load(self, body: Json, read: Callable[[str, str], Awaitable[ConfigMap | None]]) -> None:
        """Read back the stored results of a job with a reduce pod that is still to come.

        ``read(namespace, name)`` returns the data of a ConfigMap. None: it does not exist.
        """
        if ended(body) or "reduce" not in body["spec"] or not (body.get("status") or {}).get("completed"):
            return
        meta = body["metadata"]
        maps: list[ConfigMap] = []
        while (data := await read(meta["namespace"], config_map_name(meta["uid"], len(maps)))) is not None:
            maps.append(data)
        known = self._directory.jobs.get(meta["uid"]) or self._directory.jobs.observe(body)
        if known and maps:
            self.by_job[meta["uid"]] = results = Results(known.owner)
            results.load(maps)

    def report_missing(self, known: KnownJob) -> None:
        """Report results that are gone and were stored while an earlier leader led."""
        record = known.term.record
        if record is None or record.ended or "reduce" not in known.template():
            return
        results = self.by_job.get(known.owner.uid) or Results(known.owner)
        if missing := results.missing(record.completed):
            first = missing.parts[0]
            text = f"the results of {some(missing.total, 'unit')} are gone, those from {first.begin} on the first"
            self._report_lost(known, text)

    def failed(self, uid: str, outcome: Outcome) -> None:
        """Record a write of a job's results that failed for good."""
        if (results := self.by_job.get(uid)) is None:
            return
        text = results.lost(outcome)
        if text and (known := self._directory.jobs.get(uid)):
            self._report_lost(known, text)

    def unreadable(self, uid: str, write: AddToConfigMap, why: str) -> None:
        """Report a result that could not be put into the ConfigMap to be read."""
        if known := self._directory.jobs.get(uid):
            name = write.path.rpartition("/")[2]
            self._report_lost(known, f"the result of units {write.key} is not in ConfigMap {name}: {why}")

    def forget(self, uid: str) -> None:
        """Remove a job that is gone."""
        self.by_job.pop(uid, None)

    def _report_lost(self, known: KnownJob, text: str) -> None:
        self._recorder.emit(Regarding.job(known.owner), "Warning", reasons.RESULT_LOST, text)
