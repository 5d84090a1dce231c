"""A pool that lets in statistically: whatever happens, each fate is counted once, and no leader fails over it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from world import Worker, World, job

from punctual import reasons

MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ["apply", "apply", "apply", "delete", "suspend", "resume", "deadline", "crash", "lose", "bring", "wait"]
        ),
        st.integers(0, 7),
        st.floats(1.0, 40.0),
    ),
    max_size=14,
)


def move(w, what, which, much):
    uid = f"j{which}"
    there = w.jobs.get(uid)
    match what:
        case "apply" if there is None and uid not in w.gone:
            w.apply(job(uid, units=1 + int(much), deadline=w.now + 5.0 + 2.0 * much, arrival=w.now, theta_cp=1.0))
        case "delete" if there is not None:
            w.gone.add(uid)
            w.delete(uid)
        case "suspend" | "resume" if there is not None:
            w.apply(replace(there, suspend=what == "suspend", generation=there.generation + 1))
        case "deadline" if there is not None:
            w.apply(replace(there, deadline=w.now + much, generation=there.generation + 1))
        case "crash":
            w.crash()
        case "lose" if len(w.nodes) > 1:
            w.lose(max(w.nodes))
        case "bring":
            w.node(f"n{which}", 2.0)
        case _:
            pass


@given(MOVES, st.floats(0.5, 3.0))
def test_each_fate_is_counted_once_and_no_leader_fails(moves, pace):
    w = World()
    w.gone = set()
    w.edit_pool(replace(w.spec, miss_set_point=0.1, sample_period=1e6, generation=2))
    w.node("n0", 2.0)
    w.workers = lambda _uid, _chunk: Worker(pace=pace)
    w.tick()
    for what, which, much in moves:
        move(w, what, which, much)
        w.tick()
        w.run(w.now + 2.0)
    let_in = [u for u in w.jobs if u in w.records and w.state(u) == ("True", reasons.ADMITTED_STATISTICALLY)]
    w.run_until(lambda w: all(w.done(u) for u in let_in))
    w.run(w.now + 1.0)
    late = {u for u in let_in if w.records[u].completed_condition.reason == reasons.DEADLINE_MISSED}
    miss = w.pool_record.miss
    extended = sum(what in {"deadline", "suspend", "resume", "delete"} for what, *_ in moves)
    assert miss.missed >= len(late)
    assert len(let_in) <= miss.due <= len(let_in) + extended
