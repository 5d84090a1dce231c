"""Plays many seeds, each in a process of its own, and says what was wrong."""

import os
import pickle
import select
import sys
import traceback
from dataclasses import dataclass, field

BROKE_OFF = "the play broke off"
"""The finding of a seed that could not be played to its end: the net itself failed, and no rule was broken."""


@dataclass
class Result:
    """What came of a seed. ``lines``: the story, if it was asked for."""

    seed: int
    wrong: list
    seconds: float = 0.0
    faults: int = 0
    digest: str = ""
    lines: list = field(default_factory=list)


def results(plans, *, at_once, story=False):
    """Yield the result of each plan, as they come. Each is played in a fork, which ends without clearing up."""
    plans, running = iter(plans), {}
    while True:
        while len(running) < at_once and (plan := next(plans, None)) is not None:
            reader, child = _fork(plan, story=story)
            running[reader] = child, b"", plan
        if not running:
            return
        for reader in select.select(list(running), [], [])[0]:
            child, data, plan = running[reader]
            if part := os.read(reader, 1 << 20):
                running[reader] = child, data + part, plan
                continue
            del running[reader]
            os.close(reader)
            _, status = os.waitpid(child, 0)
            ended = [f"{BROKE_OFF}: its process ended with status {status}"]
            yield pickle.loads(data) if data else Result(plan.seed, ended)


def one(plan, *, story=False):
    """Return the result of one plan."""
    return next(results([plan], at_once=1, story=story))


def _fork(plan, *, story):
    reader, writer = os.pipe()
    sys.stdout.flush()
    if child := os.fork():
        os.close(writer)
        return reader, child
    os.close(reader)
    try:
        result = _played(plan, story=story)
    except BaseException:  # noqa: BLE001  it is told as what is wrong
        result = Result(plan.seed, [f"{BROKE_OFF}: {traceback.format_exc()}"])
    with os.fdopen(writer, "wb") as file:
        pickle.dump(result, file)
    os._exit(0)


def _played(plan, *, story):
    from edge.ends import differences, end_of, surplus
    from edge.play import play
    from edge.rules import broken

    world, writes = play(plan)
    wrong = broken(world, writes)
    if plan.compared:
        plain, _ = play(plan.plain())
        wrong += differences(end_of(world), end_of(plain))
        wrong += surplus(world, plain)
    lines = world.lines if story or wrong else []
    return Result(plan.seed, wrong, world.loop.now, len(world.struck), world.network.digest.hexdigest()[:16], lines)


def shrunk(plan, say):
    """Return the smallest part of a failing plan that was found to fail: acts are taken away, halves first."""
    size = max(1, len(plan.acts) // 2)
    while size:
        at = 0
        while at < len(plan.acts):
            smaller = plan.without(plan.acts[at : at + size])
            if one(smaller).wrong:
                plan = smaller
                say(f"{len(plan.acts)} acts left")
            else:
                at += size
        size //= 2
    return plan
