"""Every number in a refusal is true of the pool as it is: also of pools without nodes, with odd or closed ones."""

import re
from dataclasses import replace

from hypothesis import given, note
from hypothesis import strategies as st
from world import Worker, World, job

from punctual import reasons
from punctual.scheduling.model.events import NodeObserved
from punctual.scheduling.view import PoolView

GI = 2**30
good = st.builds(
    NodeObserved,
    name=st.sampled_from(["n1", "n2"]),
    ready=st.just(True),
    cpu=st.integers(1, 6).map(float),
    memory=st.just(8 * GI),
)
odd = st.builds(
    NodeObserved,
    name=st.sampled_from(["n3", "n4"]),
    ready=st.booleans(),
    cpu=st.sampled_from([0.0, 0.5, 4.0]),
    memory=st.sampled_from([0, GI, 8 * GI]),
    pods=st.sampled_from([0, 1, 110]),
    left_out=st.sampled_from([None, None, reasons.NODE_TAINTED]),
)
nodes = st.tuples(
    st.lists(good, max_size=2, unique_by=lambda node: node.name),
    st.just([]) | st.lists(odd, max_size=2, unique_by=lambda node: node.name),
).map(lambda both: both[0] + both[1])
sizes = st.tuples(st.integers(1, 400), st.integers(3, 120), st.sampled_from([1, 1, 1, 1, 4, 9]))
"""Units, seconds to the deadline, and the least number of processors."""


def wanted(uid: str, now: float, size: tuple[int, int, int], most: int | None = None):
    units, deadline, least = size
    most = None if most is None else max(most, least)
    return job(uid, units=units, deadline=now + deadline, min_processors=least, max_processors=most, arrival=now)


@given(
    there=nodes,
    admission=st.sampled_from(["Exact", "Fast", "Auto"]),
    before=st.lists(sizes, max_size=3),
    shut=st.sets(st.sampled_from(["n1", "n2", "n3"])),
    reserved=st.integers(0, 4),
    asked=st.lists(st.tuples(sizes, st.none() | st.integers(1, 6)), min_size=1, max_size=3),
)
def test_the_numbers_of_a_refusal_are_those_of_the_pool(there, admission, before, shut, reserved, asked):  # noqa: PLR0917
    w = World()
    w.edit_pool(replace(w.spec, memory=GI, admission=admission, generation=2))
    for node in there:
        w.nodes[node.name] = node
        w.inbox.append(node)
    w.workers = lambda _j, chunk: Worker(never_starts="Unschedulable") if chunk.node in shut else Worker()
    w.tick()
    if reserved:
        w.reserve("r", 40.0, 400.0, reserved)
    for i, size in enumerate(before):
        w.apply(wanted(f"before-{i}", w.now, size))
    w.run(7.0)
    for i, (size, most) in enumerate(asked):
        w.apply(wanted(f"new-{i}", w.now, size, most))
        w.tick()
        w.tick()
        admitted = w.records[f"new-{i}"].admitted
        if admitted.reason == reasons.INFEASIBLE_CAPACITY:
            note(admitted.message)
            check(admitted.message, w.pool.view(), size)
            assert w.records[f"new-{i}"].offer or not w.run(w.now + 3.0) or w.records[f"new-{i}"].offer, "no offer"


def check(message: str, view: PoolView, size: tuple[int, int, int]) -> None:
    """Check each number of processors and units in a message."""
    total, (units, _, least) = view.processors, size
    usable = total - left_out(message, view)
    for count, of in re.findall(r"(\d+) of (?:the pool's )?(\d+)", message):
        assert int(count) <= int(of) <= max(total, units)
    for words in NUMBERS:
        if found := re.search(words, message):
            assert int(found[1]) == usable, words
    if found := re.search(r"the pool has no processor, because (.*)", message):
        assert total == 0
        assert is_true(found[1], view)
    if found := re.search(
        r"spec\.processors\.min is (\d+), but the pool has (\d+) processors?(?:.* on (\d+) of)?", message
    ):
        assert (int(found[1]), int(found[2])) == (least, total)
        assert least > total or (found[3] is not None and int(found[3]) == usable < least)
    if found := re.search(r"(\d+) units? due in", message):
        assert int(found[1]) == units
    if found := re.search(r"and finish (\d+) units?", message):
        assert int(found[1]) <= units
    if message.startswith("no deadline can be promised now"):
        assert usable == 0


NUMBERS = (
    r"\d+ of (\d+) are free early enough",
    r"none of (\d+) processors? is free early enough",
    r"(\d+) processors? of \S+ CPU ha(?:s|ve) ",
    r"take \S+ of (\d+) processors? together",
)
"""Where a message says on how many processors work can be planned."""


def left_out(message: str, view: PoolView) -> int:
    """Return how many processors the message says that its numbers leave out."""
    found = re.search(
        r"(\d+) of the pool's (\d+) processors? (?:is|are) free on nodes? ([^,]+(?:, n\d)*), where", message
    )
    if not found:
        return 0
    assert int(found[2]) == view.processors
    named = set(re.findall(r"n\d", found[3]))
    taken = [piece.place.node for _, piece in view.all_running()]
    free = {node.name: max(0, node.processors - taken.count(node.name)) for node in view.nodes}
    assert sum(free[name] for name in named) == int(found[1])
    return int(found[1])


def is_true(why: str, view: PoolView) -> bool:
    """Whether an explanation of a pool without processors is true of it."""
    if why.startswith("no node has the labels"):
        return not view.nodes
    if found := re.match(r"(\d+) nodes? selected, none of them ready", why):
        return len(view.nodes) == int(found[1]) and all(node.reason for node in view.nodes)
    assert why.startswith("no node has capacity"), why
    open_nodes = {node.name for node in view.nodes if not node.reason}
    named = re.findall(r"(n\d) has (\S+) CPU, (\S+) and (\d+) pods? left", why)
    return {name for name, *_ in named} == open_nodes and all(
        float(cpu) < 1.0 or memory == "0" or pods == "0" for _, cpu, memory, pods in named
    )
