"""What a condition of an object says. A leaf: the core decides it, and the edge writes it."""

from typing import Literal, NamedTuple

Status = Literal["True", "False", "Unknown"]


class Verdict(NamedTuple):
    """Content of a condition: status, reason (a word of ``punctual.reasons``), message."""

    status: Status
    reason: str
    message: str
