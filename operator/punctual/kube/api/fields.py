"""Types of fields: what stands in JSON as a Kubernetes user writes it, and in the model as a number of one unit.

``Duration`` is float seconds and prints as ``45m``; ``Time`` is float seconds since 1970 and prints as RFC 3339;
``Cpu`` is float cores, ``Memory`` int bytes. A number is taken as such when a model is built in Python, but refused
when an object is parsed (:mod:`punctual.kube.api.parse`): ``deadline: 45`` does not say 45 what.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from punctual.kube.api.base import INT_OR_STRING, SchemaRule
from punctual.notation import duration, quantity

MAX_UNITS: Final = 10**15
"""Below 2**53: exact as an int, as a float of the planner and as a number of JSON tools."""
MAX_RANGES: Final = 4096
"""Entries in one list of ranges or chunks: an object stays below etcd's 1.5 MB."""
MAX_PROCESSORS: Final = 4096

AS_WRITTEN: Final = {"as_written": True}
"""Validation context of objects that come from the API server."""


def _from_text(parse: Callable[[str], float | str], wanted: str) -> BeforeValidator:
    """Parse strings; numbers pass only where the model is built by our own code."""

    def convert(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            try:
                return parse(value)
            except ValueError as error:
                raise PydanticCustomError("text", "{message}", {"message": str(error)}) from error
        if info.context is AS_WRITTEN:
            message = f"{value!r} is not {wanted}"
            raise PydanticCustomError("text", "{message}", {"message": message})
        return value

    return BeforeValidator(convert)


def _duration(cel: str, message: str, holds: Callable[[float], bool]) -> Any:
    # No pattern beside the rule: the API server would print that too, before the words that help. And duration() must
    # not fail, on what is malformed or on more hours than Go can count, as then CEL speaks first.
    good = f"self.matches(r'{duration.PATTERN}') && !self.matches(r'{duration.TOO_LONG}')"
    return (
        _from_text(duration.parse_duration, 'a duration: write a string with a unit, such as "45m" or "20ms"'),
        PlainSerializer(duration.format_duration, return_type=str),
        WithJsonSchema({"type": "string", "maxLength": 32, "x-type": "duration"}),
        SchemaRule(f"{good} && {cel}", message, holds),
    )


Duration = Annotated[
    float,
    *_duration(
        "duration(self) <= duration('87600h')",
        "write a duration such as 45m, 1h30m or 20ms, at most 87600h",
        lambda seconds: 0 <= seconds <= duration.MAX_SECONDS,
    ),
]
"""Seconds, 0 or more."""

PositiveDuration = Annotated[
    float,
    *_duration(
        "duration(self) > duration('0s') && duration(self) <= duration('87600h')",
        "write a duration such as 45m, 1h30m or 20ms, longer than 0s and at most 87600h",
        lambda seconds: 1e-9 <= seconds <= duration.MAX_SECONDS,
    ),
]
"""Seconds, above 0 (a nanosecond at least)."""

Days = Annotated[
    int,
    _from_text(duration.parse_days, 'a number of days or weeks: write a string such as "1d" or "2w"'),
    PlainSerializer(duration.format_days, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 8, "x-type": "days"}),
    SchemaRule(
        f"self.matches(r'{duration.DAYS}')",
        "write whole days or weeks such as 1d or 2w, at most 999w",
        lambda days: 1 <= days <= 999 * 7,
    ),
]
"""Days of a calendar."""

Period = Annotated[
    float,
    *_duration(
        "duration(self) >= duration('1ms') && duration(self) <= duration('1s')",
        "write a period between 1ms and 1s (the kernel's limits), such as 100ms",
        lambda seconds: 0.001 <= seconds <= 1.0,
    ),
]
"""Seconds between two refills of a CPU quota."""

SliceLength = Annotated[
    float,
    *_duration(
        "duration(self) >= duration('1ms') && duration(self) <= duration('1s')",
        "write a duration from 1ms to 1s, such as 20ms",
        lambda seconds: 0.001 <= seconds <= 1.0,
    ),
]
"""Seconds of CPU time that a pod gets at a stretch."""

SamplePeriod = Annotated[
    float,
    *_duration(
        "duration(self) >= duration('10s') && duration(self) <= duration('24h')",
        "write a duration from 10s to 24h, such as 5m",
        lambda seconds: 10.0 <= seconds <= 86400.0,
    ),
]
"""Seconds between two looks of a controller."""

StatusDuration = Annotated[
    float,
    _from_text(
        lambda text: -duration.parse_duration(text[1:]) if text[:1] == "-" else duration.parse_duration(text),
        'a duration: write a string with a unit, such as "45m"',
    ),
    PlainSerializer(duration.format_duration, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 40, "x-type": "duration"}),
]
"""Seconds that the operator wrote; below 0 means late."""

Time = Annotated[
    float,
    _from_text(duration.parse_time, 'a time: write a string such as "2030-01-02T15:04:05Z"'),
    PlainSerializer(duration.format_time, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 40, "x-type": "time"}),
]
"""Seconds since 1970 that the operator wrote."""

AskedTime = Annotated[
    float,
    _from_text(duration.parse_time, 'a time: write a string such as "2030-01-02T15:04:05Z"'),
    PlainSerializer(duration.format_time, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 40, "x-type": "time"}),
    SchemaRule(
        # the days of a month are left to the operator: a timestamp() that fails would say so in CEL's words
        f"self.matches(r'{duration.ASKED_PATTERN}')",
        "write a moment with date, time and offset from UTC, such as 2030-01-02T15:04:05Z or "
        "2030-01-02T17:04:05+02:00, before the year 2200",
        lambda seconds: -86400 <= seconds < duration.YEAR_2200 + 86400,
    ),
]
"""Seconds since 1970 that a user wrote."""


def _from_quantity(parse: Callable[[str | float], float]) -> BeforeValidator:
    """Parse strings, and whole numbers as the API server takes them; others pass only where our own code says them."""

    def convert(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) or (info.context is AS_WRITTEN and type(value) is int):
            try:
                return parse(value)
            except ValueError as error:
                raise PydanticCustomError("text", "{message}", {"message": str(error)}) from error
        if info.context is AS_WRITTEN:
            message = f"{value!r} is not a quantity: write a string such as 500m or 2Gi"
            raise PydanticCustomError("text", "{message}", {"message": message})
        return value

    return BeforeValidator(convert)


_QUANTITY_SCHEMA: Final = {INT_OR_STRING: True, "maxLength": 32, "x-type": "quantity"}
_QUANTITY: Final = f"(type(self) == int || self.matches(r'{quantity.PATTERN}'))"
_NUMBER: Final = "(type(self) == int ? double(self) : quantity(self).asApproximateFloat())"
_MILLI: Final = f"({_NUMBER} * 1000.0 - double(int({_NUMBER} * 1000.0 + 0.5)))"

Cpu = Annotated[
    float,
    _from_quantity(quantity.parse_cores),
    PlainSerializer(quantity.format_cores, return_type=str),
    WithJsonSchema(_QUANTITY_SCHEMA),
    SchemaRule(
        f"{_QUANTITY} && {_NUMBER} >= 0.01 && {_NUMBER} <= 4096.0",
        "write CPU as a quantity such as 500m or 2, from 10m to 4096",
        lambda cores: 0.01 <= cores <= 4096,
    ),
    SchemaRule(
        # where the rule above speaks this one is silent
        f"!{_QUANTITY} || {_NUMBER} < 0.01 || {_NUMBER} > 4096.0 || {_MILLI} < 0.0000005 && {_MILLI} > -0.0000005",
        "write no finer than 1m: Kubernetes takes no pod that asks for less than whole thousandths of a core",
        lambda cores: abs(cores * 1000 - round(cores * 1000)) < 5e-7,
    ),
]
"""Cores."""

Memory = Annotated[
    int,
    _from_quantity(quantity.parse_bytes),
    PlainSerializer(quantity.format_bytes, return_type=str),
    WithJsonSchema(_QUANTITY_SCHEMA),
    SchemaRule(
        f"{_QUANTITY} && (type(self) == int ? self >= 1048576 && self <= 1125899906842624 : "
        "quantity(self).compareTo(quantity('1Mi')) >= 0 && quantity(self).compareTo(quantity('1Pi')) <= 0)",
        "write memory as a quantity such as 512Mi or 2Gi, from 1Mi to 1Pi",
        lambda count: 2**20 <= count <= 2**50,
    ),
]
"""Bytes."""

_DEVICES: Final = "write a whole number from 1 to 1Pi, such as 1"


def _parse_devices(value: str | float) -> int:
    count = quantity.parse_quantity(value)
    if count != int(count):
        raise ValueError(_DEVICES)
    return int(count)


Devices = Annotated[
    int,
    _from_quantity(_parse_devices),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(_QUANTITY_SCHEMA),
    SchemaRule(
        f"{_QUANTITY} && {_NUMBER} >= 1.0 && {_NUMBER} <= 1125899906842624.0 && {_NUMBER} == double(int({_NUMBER}))",
        _DEVICES,
        lambda count: 1 <= count <= 2**50,
    ),
]
"""An amount of an extended resource, which Kubernetes has in whole numbers."""

_EXTENDED: Final = (
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
"""Name of an extended resource, without the exceptions. Source: ``IsExtendedResourceName`` of Kubernetes."""
_LONGEST: Final = 244  # a quota counts it behind the prefix "requests.", of which the domain may have 253 characters


def _is_extended(name: str) -> bool:
    fits = len(name) <= _LONGEST and re.fullmatch(_EXTENDED, name) is not None
    return fits and "kubernetes.io/" not in name and not name.startswith("requests.")


ExtendedResources = Annotated[
    dict[str, Devices],
    Field(max_length=16),
    SchemaRule(
        f"self.all(name, size(name) <= {_LONGEST} && name.matches(r'{_EXTENDED}') && "
        "!name.contains('kubernetes.io/') && !name.startsWith('requests.'))",
        "name extended resources only, with their domain, such as nvidia.com/gpu: what Kubernetes defines "
        "(ephemeral-storage, hugepages-…, kubernetes.io/…) is none",
        lambda resources: all(map(_is_extended, resources)),
    ),
]
"""Amounts of extended resources, by name."""

_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def spelled(pattern: str, message: str, *, most: int) -> SchemaRule:
    """Return the rule that all of a text matches; ``most``: its characters, which the schema says itself."""
    return SchemaRule(
        f"self.matches(r'{pattern}')",
        message,
        lambda text: len(text) <= most and re.fullmatch(pattern, text) is not None,
    )


ObjectName = Annotated[
    str,
    WithJsonSchema({"type": "string", "maxLength": 253}),
    spelled(_NAME, "write a name of lower-case letters, digits, '-' and '.', such as main", most=253),
]
"""Name of an object."""

NamespaceName = Annotated[
    str,
    WithJsonSchema({"type": "string", "maxLength": 63}),
    spelled(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "write the name of a namespace: lower-case letters, digits and '-', such as vision",
        most=63,
    ),
]
"""Name of a namespace."""

PERCENT: Final = r"^(?:[0-9]|[1-9][0-9]|100)(?:\.[0-9]{1,6})?%$"


def _parse_percent(text: str) -> float:
    if not re.fullmatch(PERCENT, text):
        raise ValueError(f'{text!r} is not a part in per cent: write a string such as "12.5%"')
    return float(text[:-1]) / 100


def _format_percent(part: float) -> str:
    return f"{100 * part:.6f}".rstrip("0").rstrip(".") + "%"


Percent = Annotated[
    float,
    _from_text(_parse_percent, 'a part in per cent: write a string such as "12.5%"'),
    PlainSerializer(_format_percent, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 16, "x-type": "percentage"}),
]
"""A part from 0 to 1, which prints as ``12.5%``: Kubernetes' conventions have no floats in a spec."""


_MEASURED: Final = r"^[0-9]{1,9}(?:\.[0-9]{1,6})?%$"


def _parse_measured(text: str) -> float:
    if not re.fullmatch(_MEASURED, text):
        raise ValueError(f'{text!r} is not a number of per cent: write a string such as "102.5%"')
    return float(text[:-1]) / 100


StatusPercent = Annotated[
    float,
    _from_text(_parse_measured, 'a number of per cent: write a string such as "102.5%"'),
    PlainSerializer(_format_percent, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 17, "x-type": "percentage"}),
]
"""A part that may be above 1, such as one that the operator measured."""


def between_percent(least: int, most: int, example: str) -> SchemaRule:
    """Return the rule of a :data:`Percent` from ``least`` to ``most`` (per cent)."""
    return part_in_percent(str(least), str(most), example)


def measured_percent(least: int, most: int, example: str) -> SchemaRule:
    """Return the rule of a :data:`StatusPercent` that a user sets, from ``least`` to ``most`` (per cent)."""
    return _between(_MEASURED, "number of per cent", str(least), str(most), example)


def part_in_percent(least: str, most: str, example: str) -> SchemaRule:
    """Return the rule of a :data:`Percent` from ``least`` to ``most``, per cent with decimals."""
    return _between(PERCENT, "part in per cent", least, most, example)


def _between(pattern: str, what: str, least: str, most: str, example: str) -> SchemaRule:
    number = "double(self.substring(0, self.size() - 1))"
    return SchemaRule(
        f"self.matches(r'{pattern}') && {number} >= {float(least)} && {number} <= {float(most)}",
        f"write a {what} from {least}% to {most}%, such as {example}",
        lambda part: float(least) <= round(100 * part, 6) <= float(most),
    )


BALANCED: Final = "Balanced"
"""Stands in the place of a rate: the slices follow the load of the nodes' own work."""
_ASKED: Final = f"write a part in per cent from 0.1% to 100%, such as 40%, or {BALANCED}"


def _parse_asked(text: str) -> float | str:
    if text == BALANCED:
        return text
    try:
        return _parse_percent(text)
    except ValueError:
        raise ValueError(f"{text!r} is no rate: {_ASKED}") from None


AskedRate = Annotated[
    float | Literal["Balanced"],
    _from_text(_parse_asked, f"a rate: {_ASKED}"),
    PlainSerializer(lambda rate: rate if rate == BALANCED else _format_percent(rate), return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 16, "x-type": "percentage or `Balanced`"}),
    SchemaRule(
        f"self == '{BALANCED}' || self.matches(r'{PERCENT}') && double(self.substring(0, self.size() - 1)) >= 0.1 && "
        "double(self.substring(0, self.size() - 1)) <= 100.0",
        _ASKED,
        lambda rate: rate == BALANCED or 0.1 <= round(100 * rate, 6) <= 100.0,
    ),
]
"""A part from 0.001 to 1 of the rate alone, or ``Balanced``."""


_SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0}
_ITERATION_RATE: Final = r"^[0-9]{1,19}(?:\.[0-9]{1,6})?/(?:s|min|h)$"


def _parse_rate(text: str) -> float:
    if not re.fullmatch(_ITERATION_RATE, text):
        raise ValueError(f'{text!r} is not a number of iterations in a time: write a string such as "120/s" or "8/min"')
    number, _, unit = text.partition("/")
    return float(number) / _SECONDS[unit]


def _format_rate(rate: float) -> str:
    """Return a rate in the shortest time in which there is a whole iteration."""
    unit = next((unit for unit, seconds in _SECONDS.items() if rate * seconds >= 1.0), "h")
    return f"{rate * _SECONDS[unit]:.6f}".rstrip("0").rstrip(".") + f"/{unit}"


IterationRate = Annotated[
    float,
    _from_text(_parse_rate, 'a number of iterations in a time: write a string such as "120/s" or "8/min"'),
    PlainSerializer(_format_rate, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 32, "x-type": "iterations"}),
    SchemaRule(
        f"self.matches(r'{_ITERATION_RATE}') && double(self.substring(0, self.indexOf('/'))) > 0.0",
        "write iterations a second, minute or hour, above 0, such as 120/s or 8/min",
        lambda rate: rate > 0.0,
    ),
]
"""Iterations a second."""

_TEXT: Final = r'"(?:[^"\\\n]|\\.)*"'
_SERIES: Final = rf"^[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{{(?:[a-zA-Z0-9_=!~, ]|{_TEXT})*\}})?$"

Series = Annotated[
    str,
    WithJsonSchema({"type": "string", "maxLength": 512, "x-type": "selector"}),
    spelled(
        _SERIES,
        "write the name of a metric, and labels in braces, values in double quotes, such as "
        'solver_iterations_total{namespace="default"}: functions, sums and ranges are not possible',
        most=512,
    ),
]
"""A selector of series in Prometheus. It is no more than that, so that it gives no namespace's series another name."""

Units = Annotated[int, Field(ge=0, le=MAX_UNITS)]
"""Units of work."""
Position = Annotated[int, Field(ge=0, le=MAX_UNITS + 1)]
"""A unit, or one past the last; the reduce pod stands behind the last unit, as one unit more."""
MAX_BYTES: Final = 2**53
"""Nothing above it is exact in JSON: the API server reads a maximum of 2**63 - 1 as a number below zero."""
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES)]
"""An amount of data."""
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Seconds = Annotated[float, Field(ge=0)]
"""Seconds as a bare number: for records that machines compare."""
