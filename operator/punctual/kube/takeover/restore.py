"""Restores records from stored objects: from a body that was read after its stamp, into the directory.

This module writes nothing and decides nothing. A job or reservation with an unreadable status is left alone. An
unreadable status of a pool is written anew, because the records of its jobs are in their own statuses. So is that of a
TargetRate, because it holds no promise.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from punctual.errors import NotFound, UserError
from punctual.kube import api
from punctual.kube.cluster.caches import Caches
from punctual.kube.cluster.client import ApiClient, Json
from punctual.kube.cluster.conditions import transition_times
from punctual.kube.cluster.resources import CONFIG_MAPS
from punctual.kube.learning.profiles import ProfileLearning
from punctual.kube.rates.records import to_record as to_rate_record
from punctual.kube.takeover.fencing import Fence
from punctual.kube.takeover.job_results import JobResults
from punctual.kube.takeover.statuses import Statuses
from punctual.kube.translate import to_pool_record, to_record
from punctual.kube.windows.records import restore as restore_windows
from punctual.kube.writes.keys import JobKey, Key, PoolKey
from punctual.scheduling.model.pool_spec import PoolRecord


class Restore:
    """Restores objects of each kind. Those that are gone are skipped.

    ``found`` receives the statuses as they are stored (JSON), by the writer's key.
    """

    def __init__(
        self,
        *,
        client: ApiClient,
        fence: Fence,
        caches: Caches,
        statuses: Statuses,
        learning: ProfileLearning,
        results: JobResults,
        found: dict[Key, bytes],
    ) -> None:
        self._client = client
        self._fence = fence
        self._caches = caches
        self._directory = caches.directory
        self._statuses = statuses
        self._learning = learning
        self._results = results
        self._found = found

    def profile(self, body: Json) -> None:
        """Restore a profile."""
        self._directory.observe_profile(body)
        self._learning.load(body)

    def pool(self, body: Json) -> None:
        """Restore a pool; also one that could not be stamped, because its nodes are its own."""
        uid, name = body["metadata"]["uid"], body["metadata"]["name"]
        if uid in self._statuses.gone:
            return
        self._statuses.pool_records[uid] = self._pool_record(body)
        if uid in self._statuses.left_alone:
            self._statuses.unstamped.add(name)

    def _pool_record(self, body: Json) -> PoolRecord | None:
        self._directory.observe_pool(body)
        name = body["metadata"]["name"]
        known = self._directory.pools.get(name)
        try:
            status = api.parse_status(api.PoolStatus, body)
        except UserError as error:
            # its jobs' records are in their own statuses: no promise is lost with it
            text = f"its status cannot be read and is written anew: {error.message}"
            self._statuses.report_unreadable(body, text)
            status = None
        if known is None:
            return None
        known.term.in_force = (status and status.applied) or known.pool.spec
        self._caches.claim(known)
        kept = {n.name: n.held_time for n in status.nodes if n.held_time is not None} if status else {}
        self._caches.inventory.keep(name, kept)
        if status is None:
            return None
        known.term.transition_times = transition_times(c.manifest() for c in status.conditions)
        self._found[PoolKey(known.uid)] = orjson.dumps(body["status"])
        return to_pool_record(name, status) if status.applied else None

    def reservation(self, body: Json) -> None:
        """Restore a reservation."""
        uid = body["metadata"]["uid"]
        if uid in self._statuses.gone:
            return
        self._directory.observe_reservation(body)
        self._statuses.read.add(uid)
        if uid in self._statuses.left_alone:
            return
        try:
            restore_windows(self._directory.reservations[uid], api.parse_status(api.ReservationStatus, body))
        except UserError as error:
            text = f"its status cannot be read, so the reservation is left alone: {error.message}"
            self._statuses.leave_alone(body, text)

    def rate(self, body: Json) -> None:
        """Restore a TargetRate. Its status holds no promise: one that cannot be read is written anew."""
        uid = body["metadata"]["uid"]
        if uid in self._statuses.gone:
            return
        self._directory.observe_rate(body)
        self._statuses.read.add(uid)
        known = self._directory.rates[uid]
        try:
            status = api.parse_status(api.TargetRateStatus, body)
        except UserError as error:
            text = f"its status cannot be read and is written anew: {error.message}"
            self._statuses.report_unreadable(body, text)
            return
        if status is not None:
            known.term.transition_times = transition_times(c.manifest() for c in status.conditions)
            known.term.record = to_rate_record(status)

    async def job(self, body: Json) -> None:
        """Restore a job, and read back its results."""
        await self._results.load(body, self._config_map)
        uid = body["metadata"]["uid"]
        if uid in self._statuses.gone:
            return
        self._directory.observe_job(body)
        self._statuses.read.add(uid)
        self._statuses.aside.pop(uid, None)
        self._directory.jobs[uid].version = body["metadata"]["resourceVersion"]  # a watch may have told an older one
        if uid not in self._statuses.left_alone:
            self._job_record(uid, body)

    def _job_record(self, uid: str, body: Json) -> None:
        known = self._directory.jobs[uid]
        try:
            status = api.parse_status(api.DivisibleJobStatus, body)
        except UserError as error:
            # other jobs go on; the pods of this one are left alone until it is edited
            text = f"its status cannot be read, so the job is left alone: {error.message}"
            self._statuses.leave_alone(body, text)
            return
        if status is not None:
            known.term.transition_times = transition_times(c.manifest() for c in status.conditions)
            known.term.record = to_record(status)
            self._results.report_missing(known)
            self._found[JobKey(uid)] = orjson.dumps(body["status"])

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        path = CONFIG_MAPS.path(namespace=namespace, name=name)
        try:
            found = await self._fence.patiently(lambda: self._client.get(path))
        except NotFound:
            return None
        return found.get("data") or {}
