"""Input of a simulation as lines of JSON: jobs, reservations, faults.

The format is fixed: other programs write traces and check the results. An invalid line ends the run before it begins,
with the line's number, the field and the accepted values.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from punctual.errors import PunctualError

MOST = 1e12
"""Upper limit of any number: sums keep enough digits, and products of a few numbers do not overflow."""
LATEST = 1e10
"""Upper limit of moments: later, two sums of the same times may differ by more than ten milliseconds (`tolerance`)."""
LEAST = 1e-12
"""Lower limit of numbers that must be positive."""
LEAST_PART = 1e-9
"""Lower limit as a part of the largest load (or of 1): all loads are counted in one unit, so smaller ones would be
rounded."""


def _shown(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{text[:SHOWN]!r} has characters that cannot be shown")
    return text


SHOWN = 80
"""Maximum characters of a wrong value in a message."""
Seconds = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=0, le=LATEST, allow_inf_nan=False)]
More = Annotated[float, Field(ge=LEAST, le=MOST, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_shown)]


class TraceError(PunctualError):
    """An invalid line; the message begins with its number."""


class _Line(BaseModel):
    # Strict: "200" is not a number. Unknown fields are typing errors.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    id: Name
    arrival: Moment


class JobLine(_Line):
    """A job that arrives: ``load`` in units, ``deadline`` in seconds after ``arrival``; costs if they differ."""

    kind: Literal["job"] = "job"
    load: More
    deadline: More
    chi: More | None = None
    tau: Seconds | None = None
    theta_cm: Seconds | None = None
    theta_cp: Seconds | None = None


class ReservationLine(_Line):
    """A request for processors over [start, end): input is sent in the first ``io_ratio`` of it."""

    kind: Literal["reservation"]
    start: Moment
    end: Moment
    processors: Annotated[int, Field(ge=1)]
    io_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0

    @model_validator(mode="after")
    def _window(self) -> Self:
        if not self.arrival <= self.start < self.end:
            raise ValueError("arrival <= start < end is needed")
        return self


class FaultLine(_Line):
    """Processors that are away from ``arrival`` until ``until``, or permanently."""

    kind: Literal["fault"]
    processors: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, strict=False)]
    until: Moment | None = None

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


@dataclass(frozen=True, slots=True)
class Trace:
    """Lines in order of arrival; lines with the same arrival keep the order of the file."""

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> "Trace":
        """Sort lines."""
        return cls(tuple(sorted(lines, key=lambda line: line.arrival)))


def read(text: Iterable[str], *, processors: int) -> Trace:
    """Read a trace for a pool of ``processors`` processors; empty lines are skipped. Raises TraceError."""
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
    largest = max([1.0, *(line.load for line in lines if isinstance(line, JobLine))])
    for line in lines:
        if isinstance(line, JobLine) and line.load < LEAST_PART * largest:
            raise TraceError(
                f"line {names[line.id]}: load: {line.load} is too little to be counted beside {largest}, the largest: "
                f"write {LEAST_PART * largest:.3g} or more"
            )
    return Trace.of(lines)


def _parse(number: int, written: str) -> Line:
    try:
        return _understood(written)
    except TraceError as error:
        raise TraceError(f"line {number}: {error}") from error
    except ValidationError as error:
        raise TraceError(f"line {number}: {first_flaw(error)}") from error
    except json.JSONDecodeError as error:
        raise TraceError(f"line {number}: Invalid JSON: {error.msg}, in column {error.colno}") from error
    except UnicodeEncodeError as error:
        raise TraceError(f"line {number}: is not UTF-8, in column {error.start + 1}") from error
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits, a thousand brackets
        raise TraceError(f"line {number}: Invalid JSON: {error}") from error


def _understood(written: str) -> Line:
    written.encode()
    found = json.loads(written, object_pairs_hook=unique_names)
    if not isinstance(found, dict):
        raise TraceError("Input should be an object")
    kind = found.get("kind", "job")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise TraceError(f"kind: {_given(kind)} is none of {', '.join(_KINDS)}")
    return _KINDS[kind].validate_json(written)


def unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of JSON; raise TraceError if a name appears twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TraceError(f"{twice[:SHOWN]}: appears twice in one object")
    return found


def first_flaw(error: ValidationError) -> str:
    """Return the first error and its location."""
    said = error.errors(include_url=False)[0]
    at = ".".join(str(part) for part in said["loc"])
    match said["type"]:
        case "value_error":
            what = str(said["ctx"]["error"])
        case "missing":
            what = said["msg"]
        case "json_invalid":
            what = said["msg"].replace(" at line 1 column", ", in column")
        case _:
            what = f"{said['msg']}, not {_given(said['input'])}"
    return f"{at}: {what}" if at else what


def _given(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


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
