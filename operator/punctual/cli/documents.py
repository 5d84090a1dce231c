"""Objects of a file as kubectl reads them: JSON documents, or YAML 1.1 with the scalars of Go's ``yaml.v2``.

kubectl makes JSON of YAML. ``1e+06`` is the integer 1000000, ``017`` and ``0o17`` are 15, ``1_000`` is 1000, ``on`` is
true, and a number or ``on`` as a key is a string. ``12:30`` and a date are strings, unlike in YAML 1.1.

This module refuses two things that kubectl takes: a duplicate field, of which kubectl uses the last value, and a key
with a decimal point, which kubectl rounds. It takes YAML that begins with a brace, as newer versions of kubectl do.
"""

import base64
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError

from punctual.errors import PunctualError
from punctual.kube.snapshot import objects

Json = dict[str, Any]
Scalar = str | int | float | bool | None

TAG: Final = "tag:yaml.org,2002:"
WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
INTEGER: Final = re.compile(
    r"([+-]?)(?:0x(?P<x>[\da-f]+)|0b(?P<b>[01]+)|0o?(?P<o>[0-7]+)|(?P<d>0|[1-9]\d*))", re.ASCII | re.IGNORECASE
)
BASES: Final = {"x": 16, "b": 2, "o": 8, "d": 10}
DECIMAL: Final = re.compile(r"[+-]?(\.\d+|\d+(\.\d*)?)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
NOT_FINITE: Final = re.compile(r"[+-]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
TYPES: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}
"""The types of a scalar that a tag allows."""
EXACT: Final = 1e21
"""Go writes all digits of a smaller float, so an integer is read again as an integer."""


class _Loader(yaml.SafeLoader):
    """Composes nodes. The tag of a plain scalar without a tag is ""."""

    yaml_implicit_resolvers = {None: [("", re.compile(""))]}  # noqa: RUF012  as in the base class


def documents(text: str, source: str) -> Iterator[Json]:
    """Read objects written as JSON (quick) or as YAML. Raises PunctualError with the line if they cannot be read."""
    try:
        try:
            found = list(_json(text))
        except ValueError:  # read again as YAML: that error names the line
            found = [_Values().value_of(node) for node in yaml.compose_all(text, Loader=_Loader)]
    except yaml.YAMLError as error:
        raise PunctualError(f"{source}: cannot be read: {error}") from error
    except RecursionError as error:
        raise PunctualError(f"{source}: cannot be read: it is nested too deeply") from error
    for body in found:
        if body is None:
            continue
        try:
            yield from list(objects(body))
        except PunctualError as error:
            raise PunctualError(f"{source}: {error}") from error


def _json(text: str) -> Iterator[Any]:
    """Yield JSON documents, one after the other. Raises ValueError if the text is no JSON or has a duplicate field."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_object,
        parse_int=lambda digits: _number(int(digits)),
        parse_float=lambda digits: _number(float(digits)),
        parse_constant=lambda word: _number(float(word)),
    )
    rest = text.strip()
    if not rest.startswith("{"):
        raise ValueError
    while rest:
        body, end = decoder.raw_decode(rest)
        yield body
        rest = rest[end:].lstrip()


def _object(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


class _Values:
    """What the nodes of one document mean."""

    def __init__(self) -> None:
        self._made: dict[yaml.Node, Any] = {}

    def value_of(self, node: yaml.Node) -> Any:
        """Return the value of a node. Raises ConstructorError if there is none."""
        if isinstance(node, yaml.ScalarNode):
            value = _scalar(node)
            return value if isinstance(value, str | bool | None) else _number(value)
        if node in self._made:  # an alias
            if self._made[node] is self:
                raise _refused(node, "contains itself")
            return self._made[node]
        self._made[node] = self
        if isinstance(node, yaml.SequenceNode):
            self._made[node] = [self.value_of(item) for item in node.value]
        else:
            self._made[node] = self._mapping(node)
        return self._made[node]

    def _mapping(self, node: yaml.Node) -> Json:
        found: Json = {}
        own: set[str] = set()
        for key, value in node.value:
            if key.tag == f"{TAG}merge" or (key.tag == "" and key.value == "<<"):
                for one in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
                    if not isinstance(one, yaml.MappingNode):
                        raise _refused(one, "<<: is not an object")
                    found |= self.value_of(one)
                continue
            name = _name(key)
            if name in own:
                raise _refused(key, f"{name}: appears twice in one object")
            own.add(name)
            found[name] = self.value_of(value)
        return found


def _name(node: yaml.Node) -> str:
    """Return the name of a field."""
    value = _scalar(node) if isinstance(node, yaml.ScalarNode) else None
    if value is None or isinstance(value, float):
        raise _refused(node, "the name of this field is not a string: write it in quotes")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _scalar(node: yaml.ScalarNode) -> Scalar:
    text: str = node.value
    tag = node.tag.removeprefix(TAG)
    if tag == "binary":
        try:
            return base64.b64decode(text, validate=True).decode(errors="replace")
        except ValueError as error:
            raise _refused(node, "is not base64") from error
    if tag and tag not in TYPES:
        return text
    value = _plain(text)
    if tag and type(value) not in TYPES[tag]:
        raise _refused(node, f"is not of type {tag}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(node, f"{text} is not a number in JSON")
    return float(value) if tag == "float" and isinstance(value, int) else value


def _plain(text: str) -> Scalar:
    """Return the value of a scalar without quotes."""
    if text in WORDS:
        return WORDS[text]
    if NOT_FINITE.fullmatch(text):
        return math.nan
    if text[0] not in "+-.0123456789":
        return text
    digits = re.sub(r"(?<=\d)_(?=\d)" if text[0] == "." else "_", "", text)
    found = INTEGER.fullmatch(digits)
    if found and found.lastgroup and len(digits) < 100:
        value = int(found[1] + found[found.lastgroup], BASES[found.lastgroup])
        if -(2**63) <= value < 2**64:
            return value
    if DECIMAL.fullmatch(digits) and math.isfinite(number := float(digits)):
        return number
    return text


def _number(value: float) -> int | float:
    """Return a number as the API server reads it: an integer of 64 bits, or else a float that JSON can write."""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    value = float(value)
    if not math.isfinite(value):
        raise ValueError
    return int(value) if abs(value) < EXACT and value.is_integer() else value


def _refused(node: yaml.Node, why: str) -> ConstructorError:
    return ConstructorError(None, None, why, node.start_mark)
