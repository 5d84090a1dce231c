"""What happens in a simulation, as lines of JSON: jobs, reservations, faults.

The format is fixed: other programs write traces and check what comes of them. A line that is not
understood ends the run before it begins, with its number, the field and what would be right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from punctual.errors import PunctualError

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
More = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]


class TraceError(PunctualError):
    """A line that is not understood; the message begins with its number."""


class _Line(BaseModel):
    # strict: "200" is no number. Unknown fields are typing errors.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    id: Name
    arrival: Seconds


class JobLine(_Line):
    """A job that arrives: ``load`` in units, ``deadline`` in seconds after ``arrival``; costs where they differ."""

    kind: Literal["job"] = "job"
    load: More
    deadline: More
    chi: More | None = None
    tau: Seconds | None = None
    theta_cm: Seconds | None = None
    theta_cp: Seconds | None = None


class ReservationLine(_Line):
    """Processors asked for over [start, end): input is sent in the first ``io_ratio`` of it."""

    kind: Literal["reservation"]
    start: Seconds
    end: Seconds
    processors: Annotated[int, Field(ge=1)]
    io_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0

    @model_validator(mode="after")
    def _window(self) -> Self:
        if not self.arrival <= self.start < self.end:
            raise ValueError("arrival <= start < end is needed")
        return self


class FaultLine(_Line):
    """Processors that are away from ``arrival`` until ``until``, or for good."""

    kind: Literal["fault"]
    processors: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, strict=False)]
    until: Seconds | None = None

    @model_validator(mode="after")
    def _span(self) -> Self:
        if self.until is not None and self.until <= self.arrival:
            raise ValueError("until must be later than arrival")
        if len(set(self.processors)) < len(self.processors):
            raise ValueError("processors: one is named twice")
        return self


Line = JobLine | ReservationLine | FaultLine
_KINDS: dict[str, TypeAdapter[Line]] = {
    "job": TypeAdapter(JobLine),
    "reservation": TypeAdapter(ReservationLine),
    "fault": TypeAdapter(FaultLine),
}
_KIND = TypeAdapter(dict[str, object])


@dataclass(frozen=True, slots=True)
class Trace:
    """Lines in order of arrival; lines that arrive at one time keep the order of the file."""

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> "Trace":
        """Bring lines into order."""
        return cls(tuple(sorted(lines, key=lambda line: line.arrival)))


def read(text: Iterable[str], *, processors: int) -> Trace:
    """Read a trace for a pool of so many processors; empty lines are skipped. Raises TraceError."""
    lines: list[Line] = []
    names: dict[str, int] = {}
    away: dict[int, list[tuple[float, float, int]]] = {}
    for number, written in enumerate(text, start=1):
        if not written.strip():
            continue
        line = _parse(number, written)
        if (earlier := names.setdefault(line.id, number)) != number:
            raise TraceError(f"line {number}: id: {line.id!r} stands in line {earlier} already")
        if isinstance(line, FaultLine):
            _check_fault(number, line, away, processors)
        lines.append(line)
    return Trace.of(lines)


def _parse(number: int, written: str) -> Line:
    try:
        kind = _KIND.validate_json(written).get("kind", "job")
        if kind not in _KINDS:
            known = ", ".join(_KINDS)
            raise TraceError(f"line {number}: kind: {kind!r} is none of {known}")
        return _KINDS[str(kind)].validate_json(written)
    except ValidationError as error:
        raise TraceError(f"line {number}: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    said = error.errors(include_url=False)[0]
    at = ".".join(str(part) for part in said["loc"])
    given = f", not {said['input']!r}" if said["type"] not in {"missing", "json_invalid", "value_error"} else ""
    return f"{at}: {said['msg']}{given}" if at else said["msg"]


def _check_fault(
    number: int, fault: FaultLine, away: dict[int, list[tuple[float, float, int]]], processors: int
) -> None:
    begin, end = fault.arrival, float("inf") if fault.until is None else fault.until
    for p in fault.processors:
        if p >= processors:
            raise TraceError(f"line {number}: processors: there is no {p}, the pool has 0 to {processors - 1}")
        for other_begin, other_end, other in away.setdefault(p, []):
            if begin < other_end and other_begin < end:
                raise TraceError(f"line {number}: processors: {p} is away already by line {other}")
        away[p].append((begin, end, number))


def jobs(trace: Trace) -> Sequence[JobLine]:
    """Return the jobs of a trace."""
    return [line for line in trace.lines if isinstance(line, JobLine)]
