"""Each decision about a guest's chunk in words, with numbers that a reader can check."""

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual import reasons
from punctual.guests.explain import explain, possible
from punctual.guests.model import Cause, Decided
from punctual.linger.cost import Move
from punctual.linger.policy import Policy, Step, decide
from punctual.notation.duration import parse_duration

BUSY = (
    "Node n1 has been busy for 12s with this chunk on it: its own work uses 35% of its CPU; that of node n2 uses 2%. "
)
ALONE = "Node n1 has been busy for 12s with this chunk on it: its own work uses 35% of its CPU. "
NO_ROOM = "No node that it could move to has room for it."
SPEEDS = "It works at 65% of full speed here and at 98% there; a move costs 5.0s. "
REST = "It ends the unit that it has begun; the others (3m20s of work) start on n2."
NEW = "It ends the unit that it has begun; the others (3m20s of work) go to a new chunk when a node has room."


def decided(policy: Policy = "LingerLonger", a_move: Move | None = None, *, age: float = 12.0, **more) -> Decided:
    """Return what the policy decides about a chunk on n1."""
    decision = more.pop("decision", None) or decide(policy, age, a_move)
    to = {"goal": "n2", "goal_use": 0.02} if a_move else {}
    usual = {"job": "j", "pod": "p", "node": "n1", "cause": "Policy", "host_use": 0.35, "left": 200.0, **to}
    return Decided(policy=policy, decision=decision, move=a_move, **{**usual, **more})


def move(stay: float = 0.65, go: float = 0.98, pause: float = 5.0, *, lost: float = 0.0, left: float = 200.0) -> Move:
    return Move(stay, go, pause, lost, left)


def leaves(cause: Cause, **more) -> Decided:
    return decided("LingerLonger", decision=decide("ImmediateEviction", 12.0, None), cause=cause, **more)


TOLD = {
    "lingers": (
        decided(a_move=move()),
        "GuestStays",
        (
            f"This chunk stays on node n1. {BUSY}{SPEEDS}"
            "A move pays once that has lasted 15s (5.0s × 98% / (98% - 65%))."
        ),
    ),
    "little left": (
        decided(a_move=move(left=8.0)),
        "GuestStays",
        (
            f"This chunk stays on node n1. {BUSY}{SPEEDS}"
            "A move pays with more than 9.7s (5.0s × 98% × 65% / (98% - 65%)) of work left; 8.0s are left."
        ),
    ),
    "not faster there": (
        decided(a_move=move(go=0.5)),
        "GuestStays",
        f"This chunk stays on node n1. {BUSY}It works at 65% of full speed here and at 50% there, so no move pays.",
    ),
    "no idle node": (
        decided(),
        "GuestStays",
        f"This chunk stays on node n1. {ALONE}{NO_ROOM}",
    ),
    "lingers for ever": (
        decided("LingerForever", move()),
        "GuestStays",
        f"This chunk stays on node n1. {BUSY}Its policy LingerForever never moves it.",
    ),
    "last unit": (
        decided("ImmediateEviction", decision=decide("LingerForever", 12.0, None), left=0.0),
        "GuestStays",
        f"This chunk stays on node n1. {ALONE}It has begun its last unit, so it has nothing to hand back.",
    ),
    "stays in preview too": (
        decided(acted=False),
        "GuestStays",
        f"This chunk stays on node n1. {ALONE}{NO_ROOM}",
    ),
    "moves": (
        decided(a_move=move(), age=16.0),
        "GuestMoves",
        (
            f"This chunk moves from node n1 to n2. {BUSY.replace('12s', '16s')}{SPEEDS}"
            f"A move pays once that has lasted 15s (5.0s × 98% / (98% - 65%)). {REST}"
        ),
    ),
    "moves although it loses work": (
        decided(a_move=move(lost=9.8), age=60.0, loss=9.8),
        "GuestMoves",
        (
            f"This chunk moves from node n1 to n2. {BUSY.replace('12s', '1m')}"
            "It works at 65% of full speed here and at 98% there; a move costs 15s: "
            "5.0s for a start, the rest to do lost work again. "
            "A move pays once that has lasted 45s (15s × 98% / (98% - 65%)). "
            "Chunks of its job did not answer when they were asked to stop, so its pod is ended unless it does: "
            "9.8 CPU seconds of work are lost."
        ),
    ),
    "moves at once": (
        decided("ImmediateEviction", move()),
        "GuestMoves",
        (
            f"This chunk moves from node n1 to n2. {BUSY}"
            f"Its policy ImmediateEviction lets no chunk run on a busy node. {REST}"
        ),
    ),
    "nowhere to go": (
        decided("ImmediateEviction"),
        "GuestLeaves",
        (
            f"This chunk leaves node n1. {ALONE}Its policy ImmediateEviction lets no chunk run on a busy node. "
            f"No node that it could move to has room for it. {NEW}"
        ),
    ),
    "pauses": (
        decided("PauseAndMigrate", move()),
        "GuestPaused",
        (
            f"This chunk pauses on node n1. {BUSY}It has its least CPU until n1 is idle. "
            "If that takes more than 10m, it moves."
        ),
    ),
    "pauses for long": (
        decided("PauseAndMigrate", age=700.0),
        "GuestPaused",
        (
            f"This chunk pauses on node n1. {ALONE.replace('12s', '11m40s')}It has its least CPU until n1 is idle. "
            "No node that it could move to has room for it."
        ),
    ),
    "moves after a pause": (
        decided("PauseAndMigrate", move(), age=600.0),
        "GuestMoves",
        (
            f"This chunk moves from node n1 to n2. {BUSY.replace('12s', '10m')}"
            f"Its policy PauseAndMigrate lets it wait no longer than 10m. {REST}"
        ),
    ),
    "would move": (
        decided(a_move=move(), age=16.0, acted=False),
        "GuestPreview",
        (
            f"Preview, nothing is done: this chunk would move from node n1 to n2. {BUSY.replace('12s', '16s')}{SPEEDS}"
            "A move pays once that has lasted 15s (5.0s × 98% / (98% - 65%))."
        ),
    ),
    "would pause": (
        decided("PauseAndMigrate", acted=False),
        "GuestPreview",
        (
            f"Preview, nothing is done: this chunk would pause on node n1. {ALONE}"
            "It would have its least CPU until n1 is idle. If that took more than 10m, it would move."
        ),
    ),
    "would leave": (
        decided("ImmediateEviction", acted=False),
        "GuestPreview",
        (
            f"Preview, nothing is done: this chunk would leave node n1. {ALONE}"
            f"Its policy ImmediateEviction lets no chunk run on a busy node. {NO_ROOM}"
        ),
    ),
    "frees memory": (
        leaves("NodeFreed", loss=12.0),
        "GuestLeaves",
        (
            "This chunk leaves node n1, where guests must give back memory. Of all chunks there, those leave that "
            f"together lose the least work. {NEW} If it has not ended after 5.0s, its pod is ended, and 12 CPU seconds "
            "of work are lost."
        ),
    ),
    "frees memory for nothing": (
        leaves("NodeFreed"),
        "GuestLeaves",
        (
            "This chunk leaves node n1, where guests must give back memory. Of all chunks there, those leave that "
            f"together lose the least work. {NEW} If it has not ended after 5.0s, its pod is ended, and no work is "
            "lost."
        ),
    ),
    "cordoned": (
        leaves("Unschedulable"),
        "GuestLeaves",
        f"This chunk leaves node n1, which takes none now: it is cordoned, tainted or not ready. {NEW}",
    ),
    "cordoned at its last unit": (
        leaves("Unschedulable", left=0.0),
        "GuestLeaves",
        (
            "This chunk leaves node n1, which takes none now: it is cordoned, tainted or not ready. It has begun its "
            "last unit, so it has nothing to hand back."
        ),
    ),
    "suspended": (
        leaves("Suspended", loss=3.0),
        "GuestLeaves",
        (
            "This chunk stops, because its job may not run now (condition Admitted). It ends the unit that it has "
            "begun; the others (3m20s of work) remain for when the job goes on. If it has not answered after 5.0s, its "
            "pod is ended, and 3 CPU seconds of work are lost."
        ),
    ),
    "much at risk": (
        leaves("AtRisk", loss=12345.6),
        "GuestLeaves",
        (
            "This chunk stops early: if its pod were killed now, 12346 CPU seconds of work would be lost, more than "
            f"may be lost with one pod. {NEW}"
        ),
    ),
    "at risk": (
        leaves("AtRisk", loss=75.25),
        "GuestLeaves",
        (
            "This chunk stops early: if its pod were killed now, 75.2 CPU seconds of work would be lost, more than may "
            f"be lost with one pod. {NEW}"
        ),
    ),
}


@pytest.mark.parametrize(("told", "reason", "message"), TOLD.values(), ids=TOLD)
def test_a_decision_in_words(told, reason, message):
    assert explain(told) == (reason, message)


def test_the_table_has_each_pair_of_cause_and_reason():
    assert {(told.cause, reason) for told, reason, _ in TOLD.values()} == possible()
    assert {cause for cause, _ in possible()} == set(get_args(Cause))


speeds, seconds = st.floats(0.05, 1.0), st.floats(0.0, 60.0)
moves = st.builds(Move, speeds, speeds, seconds, seconds, st.floats(0.0, 600.0))


@given(
    policy=st.sampled_from(get_args(Policy)), move=st.none() | moves, age=st.floats(0.1, 2000.0), acted=st.booleans()
)
def test_every_decision_is_one_line_that_an_event_can_hold_and_never_says_more_than_was_done(policy, move, age, acted):
    told = decided(policy, move, age=age, acted=acted)
    reason, message = explain(told)
    assert reason in vars(reasons).values()
    assert message.endswith(".")
    assert len(message) < 1024
    assert not re.search(r"inf|nan|e[+-]\d", message)
    assert "\n" not in message
    step: Step = told.decision.step
    assert ("would" in message or step == "Run") or acted
    assert ("It ends the unit" in message) <= (acted and step in {"Move", "Queue"})


@given(stay=st.floats(0.05, 0.7), gain=st.floats(0.1, 0.3), pause=st.floats(0.5, 5.0), age=st.floats(0.1, 20.0))
def test_the_arithmetic_adds_up(stay, gain, pause, age):
    """With the numbers of the message alone a reader gets the age from which on the move pays."""
    _, message = explain(decided("LingerLonger", Move(stay, stay + gain, pause), age=age))
    found = re.search(r" ([\dms.]+) \(([\d.]+)s × ([\d.]+)% / \(([\d.]+)% - ([\d.]+)%\)\)", message)
    assert found
    cost, go, same, less = map(float, found.groups()[1:])
    assert go == same
    assert parse_duration(found[1]) == pytest.approx(cost * go / (go - less), rel=0.12, abs=0.6)
