"""Reservation: processors booked ahead over a window, once or again and again."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, WithJsonSchema

from punctual.kube.api.base import AGE, ApiModel, Column, Names, SchemaRule
from punctual.kube.api.fields import (
    MAX_PROCESSORS,
    AskedTime,
    Count,
    Days,
    ObjectName,
    Percent,
    Time,
    between_percent,
)
from punctual.kube.api.meta import EPOCH_NEVER_FALLS, Conditions, Epoch, KindModel, LabelSelector
from punctual.notation import duration

MOST_WINDOWS: Final = 64
"""Windows that a status may hold; those of each day of the horizon are fewer."""
MOST_NODES: Final = 1000


_REAL: Final = (
    # where a time is wrong by itself its own rule speaks; the 29th of February is left to the operator
    f"!self.start.matches(r'{duration.REAL}') || !self.end.matches(r'{duration.REAL}')"
)


class Recurrence(ApiModel):
    """How the window comes again."""

    every: Days
    """After how many days or weeks the window comes again: `1d`, `7d`, `2w`. They are days of the calendar: the window
    begins at the same time of day also after clocks were changed. Required in `recurrence`."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """Time zone of these times, as a name of the IANA database: `Europe/Berlin`. Start and end are
    what its clocks show: a window over a change of clocks is longer or shorter by it. A time that clocks skip comes as
    much later as they skip. Default UTC."""
    until: AskedTime | None = None
    """No window begins at this moment or later: `2030-06-30T00:00:00Z`. Default: they come for ever."""


class ReservationSpec(ApiModel):
    """Which processors shall be free, and when."""

    RULES: ClassVar = (
        SchemaRule(
            f"{_REAL} || timestamp(self.start) < timestamp(self.end)",
            "end must be after start",
            lambda self: self.start < self.end,
            field="end",
        ),
        SchemaRule(
            "has(self.processors) || has(self.nodes)",
            "set processors (how many), or nodes (all processors of these nodes), or both",
            lambda self: self.processors is not None or self.nodes is not None,
            field="processors",
        ),
    )

    pool: ObjectName
    """Name of the Pool that the processors belong to. Required. Example: `main`."""
    start: AskedTime
    """When the window begins, as a moment with its offset from UTC (RFC 3339): `2030-01-02T22:00:00Z`. It must be
    ahead; of a recurrence the first window that is ahead counts. Required."""
    end: AskedTime
    """When it ends: `2030-01-03T04:00:00Z`. Required; after `start`, and at least an hour before the window comes
    again. A window that ends further ahead than the pool's `reservations.horizon` is not booked yet."""
    processors: Annotated[int, Field(ge=1, le=MAX_PROCESSORS)] | None = None
    """How many processors are reserved. Default: all those of `nodes`, one of the two is required."""
    nodes: LabelSelector | None = None
    """On which nodes of the pool, by their labels; without `processors` all that these nodes have, such as for their
    maintenance: `{matchLabels: {kubernetes.io/hostname: node-1}}`. Default: on any."""
    transfer_share: Annotated[Percent, between_percent(0, 100, "10%")] = 0.0
    """The first part of the window in which the link for inputs is kept free, in per cent: `"10%"` keeps it for the
    first minute of ten. No chunk fetches input then, not even of jobs that name the reservation, so that the data of
    the window can be brought in at full speed. Only one reservation has the link at a time. Needs a pool with
    `network: OnePort`. From 0% to 100%, default 0%: the link is not kept free."""
    recurrence: Recurrence | None = None
    """How the window comes again: `{every: 7d, timeZone: Europe/Berlin}`. Each is answered by itself, when
    it ends within the pool's `reservations.horizon`. Default: it does not."""


class ReservedNode(ApiModel):
    """Processors of one node."""

    name: Annotated[str, Field(max_length=253)]
    """The node's name."""
    processors: Count
    """How many of its processors are reserved."""


class WindowStatus(ApiModel):
    """One window, and its answer."""

    start: Time
    """When it begins."""
    end: Time
    """When it ends."""
    state: Literal["Booked", "Active", "Completed", "Refused"]
    """Booked: its processors are reserved. Active: it has begun, they are empty but for jobs that name the reservation.
    Completed: it is over. Refused: see `reason`."""
    reason: Annotated[str, Field(max_length=128)] = ""
    """Why, as one word."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """Why, as a sentence."""
    nodes: Annotated[list[ReservedNode], Field(max_length=MOST_NODES)] = Field(default=[])
    """Where the reserved processors are."""
    offer: Time | None = None
    """Of a refused window: the earliest start, not before the one asked for, from which on one as long would be
    reserved. It stands while nothing else is promised."""


class ReservationStatus(ApiModel):
    """The answer, and how far it is. The operator plans from this after a restart; do not edit it."""

    conditions: Conditions = Field(default=[])
    """Admitted: the processors are reserved, for each window known. Active: a window has begun and is not over.
    Completed: the last window is over."""
    epoch: Epoch | None = None
    """Which leader of the operator wrote this; it rises with every change of leader and never falls."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the spec that was last looked at."""
    state: Annotated[str, Field(max_length=16)] | None = None
    """That of the first window in `windows`."""
    start: Time | None = None
    """When it begins."""
    end: Time | None = None
    """When it ends."""
    processors: Count | None = None
    """Processors reserved in it."""
    windows: Annotated[list[WindowStatus], Field(max_length=MOST_WINDOWS)] = Field(default=[])
    """The windows that are answered and not over, by their start; of those that are over only the last."""
    finish_time: Time | None = None
    """When the last window was over."""


class Reservation(KindModel):
    """Processors of a pool, booked ahead over a window.

    They are empty from its start to its end: no job is planned there, and what would run on is ended in time. Only jobs
    that name it (`spec.reservation`) run inside. Until it begins, jobs that end before use them.
    """

    RULES: ClassVar = (
        EPOCH_NEVER_FALLS,
        SchemaRule(
            "self.spec == oldSelf.spec",
            "a reservation cannot be changed: delete it and create another one",
            None,
            field="spec",
        ),
    )
    NAMES: ClassVar = Names("Reservation", "reservations", "reservation", (), "Namespaced")
    COLUMNS: ClassVar = (
        Column("Start", ".status.start", "string", 0, "when the next window begins"),
        Column("End", ".status.end", "string", 0, "when it ends"),
        Column("Processors", ".status.processors", "integer", 0, "processors reserved"),
        Column("State", ".status.state", "string", 0, "Booked, Active, Completed or Refused"),
        AGE,
        Column("Pool", ".spec.pool", "string", 1),
        Column("Reason", '.status.conditions[?(@.type=="Admitted")].reason', "string", 1),
    )
    EXAMPLE: ClassVar = """\
apiVersion: punctual.dev/v1alpha1
kind: Reservation
metadata:
  name: nightly
  namespace: default
spec:
  pool: main
  # The start may lie in the past: of a recurrence the first window that is ahead counts.
  start: "2026-01-02T22:00:00+01:00"
  end: "2026-01-03T04:00:00+01:00"
  processors: 8
  recurrence: {every: 1d, timeZone: Europe/Berlin}
"""

    kind: Annotated[Literal["Reservation"], WithJsonSchema({"type": "string"})] = "Reservation"
    """Reservation"""
    spec: ReservationSpec
    """Which processors shall be free, and when."""
    status: ReservationStatus | None = None
    """The answer, and how far it is."""
