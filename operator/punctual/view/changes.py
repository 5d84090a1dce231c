"""Changes of objects, as a watch reports them."""

from typing import Any, NamedTuple

Json = dict[str, Any]


class Change(NamedTuple):
    """A change of one object: ADDED, MODIFIED or DELETED."""

    kind: str
    what: str
    body: Json


class Reset(NamedTuple):
    """The changes after this one describe all objects of the kind anew."""

    kind: str


class SeenChange(NamedTuple):
    """A change, and the time at which it was seen (seconds since 1970 on the clock of the machine that watched)."""

    time: float
    change: Change
