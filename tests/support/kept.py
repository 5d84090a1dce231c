"""What a Pool keeps instead of computing it again, compared with what it would compute now."""

from punctual.scheduling.pool import Pool


def check_kept(pool: Pool, now: float) -> None:
    """Check all that a Pool keeps. It is read, so the next check finds it kept from this one."""
    state, planner, dispatcher = pool._state, pool._planner, pool._dispatcher
    for uid, st in state.live.items():
        if st.state == "Promised":
            assert planner.demand(st, now) == planner._demand_anew(st, now), uid
    unpromised = {uid for uid, st in state.live.items() if st.state != "Promised"}
    assert {st.job.uid for st in state.live.unpromised()} == unpromised
    if state.spec is None:
        return
    assert pool._statuses._unbegun() == sum(not state.jobs[uid].record.started for uid in state.schedule.uids())
    held_up = dispatcher._held_up(now)
    dispatcher.seen = None
    assert held_up == dispatcher._held_up(now)
    for booking in state.plan:
        reduce = booking.finish - booking.demand.reduce
        assert booking.start == min(booking.starts.tolist(), default=reduce), booking.demand.uid
