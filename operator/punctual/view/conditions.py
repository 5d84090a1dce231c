"""Conditions of objects, as explanations quote them."""

from typing import Final, NamedTuple


class ConditionView(NamedTuple):
    """A condition of an object: ``status`` is True, False or Unknown."""

    status: str
    reason: str
    message: str
    since: float | None = None
    """When its status changed last."""


NOTHING: Final = ConditionView("Unknown", "", "")


def said(what: str, reason: str, message: str) -> str:
    """Quote a condition."""
    text = f"{what} ({reason}): {message}" if message else f"{what} ({reason})"
    return text if text.endswith(".") else f"{text}."
