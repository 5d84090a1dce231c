"""What a watch tells of objects, change by change."""

from typing import Any, NamedTuple

Json = dict[str, Any]


class Change(NamedTuple):
    """What the API server says of one object: ADDED, MODIFIED or DELETED."""

    kind: str
    what: str
    body: Json


class Reset(NamedTuple):
    """All that was told of this kind is told anew from here on."""

    kind: str


class Seen(NamedTuple):
    """A change, and when it was seen (seconds since 1970 on the clock of the machine that watched)."""

    time: float
    change: Change
