"""Conditions as Kubernetes has them, from the core's verdicts.

A verdict says what is so; a condition also says since when. That time moves with the status alone: a new reason or
message for the same answer is no transition. So the conditions that stand are part of the input.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from punctual.kube.format.duration import format_time, parse_time
from punctual.scheduling.model.job import Status, Verdict

MESSAGE: Final = 32768
"""Longest message that the schema takes."""

Since = Mapping[str, tuple[Status, float]]
"""Per type of condition: its status, and since when that is so."""


def conditions(
    verdicts: Mapping[str, Verdict | None], standing: Since, *, now: float, generation: int
) -> list[dict[str, Any]]:
    """Return the conditions of these verdicts (None: nothing is said), made at ``now`` about ``generation``."""
    made = []
    for kind, verdict in verdicts.items():
        if verdict is None:
            continue
        status, since = standing.get(kind, (None, now))
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


def standing(made: Iterable[Mapping[str, Any]]) -> Since:
    """Return what is to be remembered of conditions for the next time."""
    return {c["type"]: (cast(Status, c["status"]), parse_time(c["lastTransitionTime"])) for c in made}
