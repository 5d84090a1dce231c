"""Converts the core's verdicts to Kubernetes conditions.

A verdict has no time, but a condition has the time of its last transition. That time changes only with the status: a
new reason or message for the same status is not a transition. The present conditions are therefore part of the input.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from punctual.notation.duration import format_time, parse_time
from punctual.verdict import Status, Verdict

MESSAGE: Final = 32768
"""The longest message that the schema accepts."""

TransitionTimes = Mapping[str, tuple[Status, float]]
"""The status of each type of condition, and the time since which it holds."""


def conditions(
    verdicts: Mapping[str, Verdict | None], transition_times: TransitionTimes, *, now: float, generation: int
) -> list[dict[str, Any]]:
    """Return the conditions of these verdicts (None: no condition), written at ``now`` about ``generation``."""
    made = []
    for kind, verdict in verdicts.items():
        if verdict is None:
            continue
        status, since = transition_times.get(kind, (None, now))
        made.append(
            {
                "type": kind,
                "status": verdict.status,
                "reason": verdict.reason,
                "message": verdict.message[:MESSAGE],
                "lastTransitionTime": format_time(since if status == verdict.status else now),
                "observedGeneration": generation,
            }
        )
    return made


def transition_times(made: Iterable[Mapping[str, Any]]) -> TransitionTimes:
    """Return the times of conditions that the next call needs."""
    return {c["type"]: (cast(Status, c["status"]), parse_time(c["lastTransitionTime"])) for c in made}
