"""Bookings of shares: brings the accounts of namespaces up to date with what is promised.

Recorded promises count, whatever the share is: those of an earlier leader, and those that were made before an edit of
the pool. Only what asks anew is tested. A new leader knows what is left of each promise, and not what was done before
the time at which its share would have done it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from punctual.scheduling.admission.limited import LimitedTest
from punctual.scheduling.admission.offers import Test
from punctual.scheduling.admission.shares import Limit
from punctual.scheduling.model.job import Job
from punctual.scheduling.model.processors import Processors
from punctual.scheduling.placement.calendar import BookedSpan
from punctual.scheduling.placement.demand import Demand
from punctual.scheduling.state.job_state import JobState
from punctual.scheduling.state.pool_state import PoolState


@dataclass(slots=True)
class ShareBookings:
    """Keeps the accounts of a pool's namespaces."""

    state: PoolState
    demand: Callable[[JobState, float], Demand | None]
    """Returns what is still to be placed of a job."""
    due: Callable[[JobState], float]
    """Returns when a job's chunks must end."""

    def follow(self, now: float) -> None:
        """Bring all accounts up to date with the spec, the processors, the windows and the jobs' records."""
        state, shares = self.state, self.state.shares
        tenancy = state.spec.tenancy
        limits = tenancy.limits_shares
        if shares.put_in_force(now, tenancy, capacity(state.processors) if limits else 0.0):
            shares.touched.update(dict.fromkeys(state.live))
        if not limits:
            shares.touched.clear()
            return
        self._follow_windows(now)
        for uid in shares.touched:
            self._follow_job(now, uid)
        shares.touched.clear()

    def _follow_windows(self, now: float) -> None:
        found: dict[str, list[BookedSpan]] = {name: [] for name, a in self.state.shares.accounts.items() if a.windows}
        for asked, places in self.state.ahead.held.values():
            if places:
                found.setdefault(asked.namespace, []).append(BookedSpan(asked.start, asked.end, len(places)))
        for namespace, windows in found.items():
            self.state.shares.reserve(namespace, now, windows)

    def _follow_job(self, now: float, uid: str) -> None:
        shares, st = self.state.shares, self.state.jobs.get(uid)
        if st is None or st.state != "Promised" or st.cost is None or st.job.reservation is not None:
            if st is not None:
                shares.end(uid, undone(st))
        elif (booking := shares.bookings.get(uid)) is not None:
            if booking.deadline != st.job.deadline:
                shares.move(uid, now, deadline=st.job.deadline, due=self.due(st))
        elif (limit := self.limit(st.job, now)).account is not None:
            demand = self.demand(st, now)
            work = sum(max(0.0, chunk.promised_end - now) for chunk in st.record.chunks)
            work += limit.work(demand) if demand else 0.0
            shares.book(uid, limit, deadline=st.job.deadline, due=self.due(st), work=work, units=undone(st))

    def promise(self, st: JobState, limit: Limit | None, demand: Demand) -> None:
        """Put a new promise on the account of its namespace."""
        if limit is None or limit.account is None:
            return
        uid, shares = st.job.uid, self.state.shares
        if uid in shares.bookings:
            shares.end(uid, undone(st))
        units = demand.ranges.total or undone(st)
        shares.book(uid, limit, deadline=st.job.deadline, due=demand.due, work=limit.work(demand), units=units)
        shares.touched.pop(uid, None)  # it is up to date

    def take_back(self, uid: str) -> None:
        """Take a promise that was not made after all off the account."""
        if (booking := self.state.shares.bookings.get(uid)) is not None:
            self.state.shares.end(uid, booking.units)

    def limit(self, job: Job, now: float) -> Limit:
        """Return what may be promised to a job now."""
        return self.state.shares.limit(job.namespace, now, inside=job.reservation is not None)

    def within(self, test: Test, job: Job, now: float) -> Test:
        """Return the admission test for a job, within its limit."""
        limit = self.limit(job, now)
        return test if limit.is_void else LimitedTest(test, limit)

    def objection(self, now: float, st: JobState, old: Job) -> str | None:
        """Return what a promised job with a changed deadline would do beyond its limit; None: nothing."""
        limit = self.limit(st.job, now)
        if st.job.deadline > old.deadline and not limit.in_time(st.job.deadline):
            return "be beyond spec.promiseHorizon of the pool"
        if st.job.deadline < old.deadline and not self.state.shares.may_move(st.job.uid, limit, self.due(st)):
            return f"take more than the share of namespace {limit.namespace} (maxShare of the pool)"
        return None


def undone(st: JobState) -> int:
    """Return the units of a job that are not done, by the last reports."""
    record = st.record
    done = sum(min(st.watch(chunk).done, chunk.size) for chunk in record.chunks if chunk.kind != "Reduce")
    return max(0, st.job.units - record.completed.total - done)


def capacity(processors: Processors) -> float:
    """Return the processors that are open to all pods, each counted by its speed; if none is open, all of them."""
    found = {node: count / processors.nodes[node].speed for node, count in processors.whole.items() if count}
    return sum(n for node, n in found.items() if node not in processors.closed) or sum(found.values())
