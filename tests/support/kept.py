"""What a Pool keeps instead of computing it again is compared with what it would compute now, whenever it reads it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from punctual.scheduling.engine.dispatcher import Dispatcher
from punctual.scheduling.engine.planner import Planner
from punctual.scheduling.state.live_jobs import LiveJobs
from punctual.scheduling.state.statuses import Statuses

demand, demand_anew = Planner.demand, Planner._demand_anew
unpromised, unbegun, held_up = LiveJobs.unpromised, Statuses._unbegun, Dispatcher._held_up


@contextmanager
def checked_demands() -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Check each demand that a planner returns; count by uid how often it returned one, and how often it made one."""
    returned, made = Counter[str](), Counter[str]()

    def made_anew(planner, st, now):
        made[st.job.uid] += 1
        return demand_anew(planner, st, now)

    def checked(planner, st, now):
        found = demand(planner, st, now)
        returned[st.job.uid] += 1
        assert found == demand_anew(planner, st, now), st.job.uid
        return found

    with patch.object(Planner, "_demand_anew", made_anew), patch.object(Planner, "demand", checked):
        yield returned, made


@contextmanager
def checked_indices() -> Iterator[None]:
    """Check the jobs without a promise, the number of those that have not begun, and whether work is held up."""

    def checked_unpromised(live):
        found = unpromised(live)
        assert {st.job.uid for st in found} == {uid for uid, st in live.items() if st.state != "Promised"}
        return found

    def checked_unbegun(statuses):
        found, state = unbegun(statuses), statuses.state
        assert found == sum(not state.jobs[uid].record.started for uid in state.schedule.uids())
        return found

    def checked_held_up(dispatcher, now):
        found = held_up(dispatcher, now)
        dispatcher.seen = None
        assert found == held_up(dispatcher, now)
        return found

    with (
        patch.object(LiveJobs, "unpromised", checked_unpromised),
        patch.object(Statuses, "_unbegun", checked_unbegun),
        patch.object(Dispatcher, "_held_up", checked_held_up),
    ):
        yield


@contextmanager
def checked_pools() -> Iterator[None]:
    """Check all that Pools keep."""
    with checked_demands(), checked_indices():
        yield
