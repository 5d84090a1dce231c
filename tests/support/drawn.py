"""Manifests at random, drawn from the models that the API server's schemas are made of: inside them, or just outside.

``manifests(DivisibleJob)`` draws what the schema takes but for its rules over several fields; with ``odds=12`` one in
some twelve values is spoiled: another type, a bound overstepped, a field left out or made up.
"""

from hypothesis import strategies as st

from punctual.kube.api import DivisibleJob, crd
from punctual.kube.api.base import API_VERSION, PRESERVE_UNKNOWN
from punctual.kube.api.fields import MAX_UNITS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)  # a lone surrogate is no JSON to Go
ODD_NUMBERS = st.sampled_from(
    [0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**25, -(2**63) - 1, 0.5, -0.0, 1e-300, 1e300]
)
SCALARS = st.none() | st.booleans() | ODD_NUMBERS | st.integers(-5, 5) | TEXT
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)

DURATIONS = st.sampled_from(
    [
        *3 * ["20ms", "1s", "2.5s", "45s", "10m", "1h30m", "24h", "1us", "0.001us", "87600h", "1h1h1h"],
        "0s",
        "87600h0.9us",
    ]
)
TIMES = st.sampled_from(
    [
        "2030-01-02T15:04:05Z",
        "1970-01-01T00:00:00Z",
        "2199-12-31T23:59:59Z",
        "2030-01-02T17:04:05.123456789+02:00",
        "2031-02-29T00:00:00Z",
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00+14:00",
    ]
)
QUANTITIES = st.sampled_from([1, "1Mi", "64Mi", "2Gi", "3e2", "1E", "a lot"])
EXPRESSIONS = st.sampled_from(
    [
        {"key": "a", "operator": "In", "values": ["b", ""]},
        {"key": "größe", "operator": "NotIn", "values": ["5"]},
        {"key": "a", "operator": "Exists"},
        {"key": "a", "operator": "DoesNotExist", "values": []},
    ]
)
INPUTS = st.sampled_from(
    [
        {"http": {"url": "http://a/b"}},
        {"http": {"url": "https://a.b:8/c?d=%20#e"}, "cut": "Lines", "image": "work:1"},
        {"http": {"url": "https://a/b", "headers": [{"name": "X-Key", "secretKeyRef": {"name": "a", "key": "b_c"}}]}},
        {"http": {"url": "http://a/b", "headers": [{"name": "X-Key", "secretKeyRef": {"name": "a", "key": "b_c"}}]}},
        {"volume": {"claimName": "a", "path": "b/größe c..d"}, "cut": "Records", "recordBytes": 1},
        {"http": {"url": "http://a/b"}, "cut": "Records"},
        {},
    ]
)
SPOIL = 7
"""The draw that spoils a value: not 0 or 1, of which there are more than of others."""
RARE = ("volumes", "volumeMounts", "tolerations", "affinity", "initContainers", "env", "resources", "metadata")
"""Fields of a template of which a pod seldom bears a random value: one of them at a time is enough."""
KNOWN = {
    "cpu": st.sampled_from([1, 4096, "1", "500m", "10m", "0.25", "3e2"]),
    "memory": st.sampled_from([1048576, "1Mi", "64Mi", "2Gi", "1Pi", "1e9"]),
    "period": st.sampled_from(["100ms", "1s", "0.1s"]),
    "matchExpressions": st.lists(EXPRESSIONS, max_size=2),
    "input": INPUTS,
}
"""What fields want that a schema cannot say."""
ELSEWHERE = st.sampled_from(
    ["env", "volumeMounts", "args", "image", "volumes", "tolerations", "affinity", "securityContext", "größe", "x"]
)
"""Fields of a pod that are the user's own, and some that no pod has."""


def manifests(kind, *, odds=0):
    """Draw manifests of a kind; they have a name, and a namespace where they need one."""
    made = kind.model_json_schema(schema_generator=crd._Generator)
    spec = _values("spec", made["properties"]["spec"], made["$defs"], odds)
    if kind is DivisibleJob:
        spec = st.tuples(spec, st.integers(0, 29)).map(_with_one_deadline)
    meta = {"name": "any"} | ({"namespace": "default"} if kind.NAMES.scope == "Namespaced" else {})
    body = {"apiVersion": API_VERSION, "kind": kind.NAMES.kind, "metadata": meta}
    return spec.map(lambda spec: {**body, "spec": spec})


def _with_one_deadline(drawn):
    """Keep one of deadline and deadlineTime, and one of cost and profile, nearly always: the rules ask for it."""
    spec, chance = drawn
    if not isinstance(spec, dict) or chance == SPOIL:
        return spec
    spec = dict(spec)
    if "deadline" not in spec and "deadlineTime" not in spec:
        spec["deadline"] = "10m"
    elif "deadline" in spec and chance < 22:
        spec.pop("deadlineTime", None)
    elif "deadlineTime" in spec:
        spec.pop("deadline", None)
    if "cost" in spec:
        spec.pop("profile", None)
    processors = spec.get("processors")
    if isinstance(processors, dict) and {"min", "max"} <= processors.keys() and chance < 28:
        spec["processors"] = {**processors, "max": processors["min"]}
    return spec


def _values(name, schema, definitions, odds):
    schema = crd._resolved(schema, definitions)
    good = KNOWN[name] if name in KNOWN else _good(schema, definitions, odds)
    if not odds:
        return good
    return st.integers(0, odds).flatmap(lambda chance: _outside(schema) if chance == SPOIL else good)


def _outside(schema):
    """What oversteps a bound by one, or is something else altogether."""
    odd = [ANYTHING]
    for bound, by in (("minimum", -1), ("exclusiveMinimum", 0), ("maximum", 1), ("exclusiveMaximum", 0)):
        if bound in schema:
            odd.append(st.just(schema[bound] + by))
    if "maxLength" in schema:
        odd.append(st.just("x" * (schema["maxLength"] + 1)))
    if "maxItems" in schema:
        odd.append(st.just([{"name": f"n{i}"} for i in range(schema["maxItems"] + 1)]))
    return st.one_of(odd)


def _good(schema, definitions, odds):  # noqa: C901, PLR0911  one line per type reads best
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    match schema.get("x-type") or schema.get("type"):
        case "duration":
            return DURATIONS
        case "time":
            return TIMES
        case "quantity":
            return QUANTITIES
        case "integer":
            low, high = int(schema.get("minimum", 0)), int(schema.get("maximum", MAX_UNITS))
            return st.sampled_from([low, high]) | st.integers(low, min(high, low + 200)) | st.integers(low, high)
        case "number":
            return st.floats(0, 0.9)
        case "boolean":
            return st.booleans()
        case "string":
            return _text(schema)
        case "array":
            items = _values("", schema["items"], definitions, odds)
            return st.lists(items, min_size=schema.get("minItems", 0), max_size=3)
        case "object" if "properties" in schema:
            return _object(schema, definitions, odds)
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return st.dictionaries(TEXT, _values("", schema["additionalProperties"], definitions, odds), max_size=3)
        case _:
            return st.dictionaries(ELSEWHERE, ANYTHING, max_size=2)


def _text(schema):
    if schema.get("maxLength") == 63 and schema.get("minLength") == 1:  # a container's name
        return st.sampled_from(["main", "main", "a-1", "Main", "κύριος"])
    if "pattern" in schema or schema.get("maxLength") == 253:  # a name
        return st.sampled_from(["main", "a", "9.z-9", "x" * schema.get("maxLength", 63)])
    least, most = schema.get("minLength", 0), schema.get("maxLength", 40)
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=least, max_size=min(most, least + 10))


def _object(schema, definitions, odds):
    required = set(schema.get("required", ()))
    fields = {
        name: _values(name, s, definitions, odds)
        for name, s in schema["properties"].items()
        if name != "nodeName"  # it must not be there
    }
    drawn = st.fixed_dictionaries(
        {name: some for name, some in fields.items() if name in required},
        optional={name: some for name, some in fields.items() if name not in required},
    )
    if schema.get(PRESERVE_UNKNOWN):
        mine = st.dictionaries(ELSEWHERE.filter(lambda name: name not in fields), ANYTHING, max_size=2)
        image = {"image": "work:1"} if "volumeMounts" in fields else {}
        drawn = st.tuples(drawn, st.just({}) | st.just({}) | mine, st.sampled_from(("", *RARE))).map(
            lambda three: {**image, **three[1], **{k: v for k, v in three[0].items() if k not in RARE or k == three[2]}}
        )
    if not odds:
        return drawn
    return st.tuples(drawn, st.integers(0, 2 * odds), TEXT).map(lambda three: _maimed(*three))


def _maimed(fields, chance, name):
    """Now and then take a field out, or put one in that nobody knows."""
    if chance == SPOIL and fields:
        return {key: value for key, value in fields.items() if key != min(fields)}
    return {**fields, name: 1} if chance == SPOIL + 1 else fields
