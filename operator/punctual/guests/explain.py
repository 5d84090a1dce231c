"""Decisions about running chunks in words: the reason and the message of an event on the chunk's pod.

A message says what the chunk does, then the numbers that this follows from. Uses of CPU are in per cent of a node,
speeds in per cent of a processor of speed 1 that nothing else uses.
"""

from math import isinf
from typing import Final, NamedTuple, get_args

from punctual import reasons
from punctual.guests.guest import ANSWER
from punctual.guests.model import Cause, Decided
from punctual.linger.cost import Move
from punctual.linger.policy import PAUSE, Step
from punctual.scheduling.model.wording import span

_REASONS: Final[dict[Step, str]] = {
    "Run": reasons.GUEST_STAYS,
    "Pause": reasons.GUEST_PAUSED,
    "Move": reasons.GUEST_MOVES,
    "Queue": reasons.GUEST_LEAVES,
}
_VERBS: Final[dict[Step, tuple[str, str]]] = {
    "Run": ("stays on", "would stay on"),
    "Pause": ("pauses on", "would pause on"),
    "Move": ("moves", "would move"),
    "Queue": ("leaves", "would leave"),
}
NO_ROOM: Final = "No node that it could move to has room for it."
NO_ANSWERS: Final = "Chunks of its job did not answer when they were asked to stop"


class Explained(NamedTuple):
    """A decision in words."""

    reason: str
    """One of :mod:`punctual.reasons`."""
    message: str


def explain(told: Decided) -> Explained:
    """Return a decision's reason, and its numbers in sentences."""
    return Explained(reason_of(told), " ".join(_sentences(told)))


def reason_of(told: Decided) -> str:
    """Return the reason alone. What stays in preview stays: nothing would be done."""
    step = told.decision.step
    return _REASONS[step] if told.acted or step == "Run" else reasons.GUEST_PREVIEW


def possible() -> frozenset[tuple[Cause, str]]:
    """Return all pairs of cause and reason: what decisions are counted by."""
    by_policy = (*_REASONS.values(), reasons.GUEST_PREVIEW)
    found = {cause: by_policy if cause == "Policy" else (reasons.GUEST_LEAVES,) for cause in get_args(Cause)}
    return frozenset((cause, reason) for cause, some in found.items() for reason in some)


def _sentences(told: Decided) -> list[str]:
    match told.cause:
        case "Policy":
            return _by_policy(told)
        case "NodeFreed":
            why = (
                f"This chunk leaves node {told.node}, where guests must give back memory. Of all chunks there, those "
                "leave that together lose the least work."
            )
            if told.deaf:
                return [why, f"{NO_ANSWERS}, so its pod is ended within {span(ANSWER)}, when that loses least."]
            return [why, _rest(told), _killed(told, "has not ended")]
        case "Unschedulable":
            why = f"This chunk leaves node {told.node}, which takes none now: it is cordoned, tainted or not ready."
            return [why, _rest(told)]
        case "Suspended":
            why = "This chunk stops, because its job may not run now (condition Admitted)."
            return [why, _rest(told), _killed(told, "has not answered")]
        case "AtRisk":
            why = (
                f"This chunk stops early: if its pod were killed now, {_cpu(told.loss)} of work would be lost, more "
                "than may be lost with one pod."
            )
            return [why, _rest(told)]


def _by_policy(told: Decided) -> list[str]:
    step, real = told.decision.step, reason_of(told) != reasons.GUEST_PREVIEW
    place = f"from node {told.node} to {told.goal}" if step == "Move" else f"node {told.node}"
    lead = "This chunk" if real else "Preview, nothing is done: this chunk"
    there = f"; that of node {told.goal} uses {_part(told.goal_use)}" if told.goal_use is not None else ""
    return [
        f"{lead} {_VERBS[step][0 if real else 1]} {place}.",
        (
            f"Node {told.node} has been busy for {span(told.decision.age)} with this chunk on it: its own work uses "
            f"{_part(told.host_use)} of its CPU{there}."
        ),
        *(_stays(told) if step == "Run" else _pauses(told) if step == "Pause" else _goes(told)),
    ]


def _stays(told: Decided) -> list[str]:
    move = told.move
    if told.policy == "LingerForever":
        return ["Its policy LingerForever never moves it."]
    if told.left == 0.0:
        return [_rest(told)]
    if move is None:
        return [NO_ROOM]
    here = f"It works at {_part(move.stay)} of full speed here and at {_part(move.go)} there"
    if isinf(move.linger):
        return [f"{here}, so no move pays."]
    if move.left <= move.least:
        return [_speeds(move), f"A move pays with more than {_least(move)} of work left; {span(move.left)} are left."]
    return [_speeds(move), _pays(move)]


def _pauses(told: Decided) -> list[str]:
    has, takes, moves = ("has", "takes", "moves") if told.acted else ("would have", "took", "would move")
    idle = f"It {has} its least CPU until {told.node} is idle."
    long = told.decision.age >= PAUSE
    return [idle, NO_ROOM if long else f"If that {takes} more than {span(PAUSE)}, it {moves}."]


def _goes(told: Decided) -> list[str]:
    step, move = told.decision.step, told.move
    why = []
    match told.policy:
        case "ImmediateEviction":
            why.append("Its policy ImmediateEviction lets no chunk run on a busy node.")
        case "PauseAndMigrate":
            why.append(f"Its policy PauseAndMigrate lets it wait no longer than {span(PAUSE)}.")
        case _ if move is not None:
            why += [_speeds(move), _pays(move)]
    if step == "Queue":
        why.append(NO_ROOM)
    if not told.acted:
        return why
    if move is not None and move.lost > 0.0:
        lost = f"{_cpu(told.loss)} of work are lost"
        return [*why, f"{NO_ANSWERS}, so its pod is ended unless it does: {lost}."]
    return [*why, _rest(told)]


def _speeds(move: Move) -> str:
    """Tell what a move gains and costs."""
    again = "" if move.lost == 0.0 else f": {span(move.pause)} for a start, the rest to do lost work again"
    return (
        f"It works at {_part(move.stay)} of full speed here and at {_part(move.go)} there; a move costs "
        f"{span(move.cost)}{again}."
    )


def _pays(move: Move) -> str:
    """Tell the age from which on a move pays (Ryu 2001, 3.4)."""
    go, stay = _part(move.go), _part(move.stay)
    sum_ = f"{span(move.cost)} × {go} / ({go} - {stay})"
    return f"A move pays once that has lasted {span(move.linger)} ({sum_})."


def _least(move: Move) -> str:
    go, stay = _part(move.go), _part(move.stay)
    return f"{span(move.least)} ({span(move.cost)} × {go} × {stay} / ({go} - {stay}))"


def _rest(told: Decided) -> str:
    """Tell what becomes of its units."""
    if told.left == 0.0:
        return "It has begun its last unit, so it has nothing to hand back."
    where = "go to a new chunk when a node has room" if told.goal is None else f"start on {told.goal}"
    if told.cause == "Suspended":
        where = "remain for when the job goes on"
    return f"It ends the unit that it has begun; the others ({span(told.left)} of work) {where}."


def _killed(told: Decided, when: str) -> str:
    lost = "no work is" if told.loss == 0.0 else f"{_cpu(told.loss)} of work are"
    return f"If it {when} after {span(ANSWER)}, its pod is ended, and {lost} lost."


def _cpu(seconds: float) -> str:
    return f"{_short(seconds)} CPU seconds"


def _part(part: float) -> str:
    return f"{_short(100.0 * part)}%"


def _short(number: float) -> str:
    """Write three digits, but never a power of ten."""
    return f"{number:.3g}" if number < 999.0 else f"{number:.0f}"
