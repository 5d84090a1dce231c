import base64
import copy
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator
from typer.testing import CliRunner

from punctual import cli
from punctual.errors import UserError
from punctual.kube.api import (
    KINDS,
    DivisibleJob,
    DivisibleJobSpec,
    Expression,
    JobCost,
    KindModel,
    LabelSelector,
    PodTemplate,
    Pool,
    PoolSpec,
    Processor,
    ProcessorBounds,
    Profile,
    ProfileSpec,
    Reduce,
    crd,
    parse,
)
from punctual.kube.api.base import INT_OR_STRING, PRESERVE_UNKNOWN, VALIDATIONS

ROOT = Path(__file__).parents[4]

STRUCTURAL = {
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "properties",
    "items",
    "additionalProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    INT_OR_STRING,
    PRESERVE_UNKNOWN,
    VALIDATIONS,
}


def walk(schema, path=""):
    """Yield each schema of the tree with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from walk(part, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


SCHEMAS = [
    pytest.param(path, schema, id=f"{kind.NAMES.kind}:{path}")
    for kind in KINDS
    for path, schema in walk(crd.modelled(kind))
]
"""Of the fields that our models have."""
ALL = [(path, schema) for kind in KINDS for path, schema in walk(crd.schema_of(kind))]
"""Of every field, those of a pod too."""


def test_crds_are_those_of_the_models():
    held = {path.name: path.read_text() for path in (ROOT / "crds").iterdir()}
    assert held == crd.files(), "run: punctual crds --write crds"


def test_the_reference_is_that_of_the_models():
    assert (ROOT / "docs" / "api.md").read_text() == crd.documentation(), "run: punctual crds --docs > docs/api.md"


def test_schemas_are_structural():
    assert len(ALL) > 1500
    for path, schema in ALL:
        assert not schema.keys() - STRUCTURAL, path
        assert ("type" in schema) != (INT_OR_STRING in schema), path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
            assert "x-kubernetes-list-type" in schema, path
        if schema.get("type") == "integer":
            assert schema["format"] in {"int32", "int64"}, path
        if VALIDATIONS in schema and schema.get("type") == "string":
            assert "maxLength" in schema, path  # the API server weighs a rule by the longest string it may meet
        assert schema.get("default", 0) is not None, path
        assert not (path.startswith("status") and "default" in schema), path


def test_whatever_a_user_writes_is_bounded():
    """A field that keeps what it does not know, or a list without end, takes a megabyte of ``{}``."""
    for path, schema in ALL:
        if not path.startswith("spec"):
            continue
        assert PRESERVE_UNKNOWN not in schema, path
        if schema.get("type") == "string" or INT_OR_STRING in schema:
            assert "maxLength" in schema or "enum" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path
        if schema.get("type") == "object" and path != "metadata":
            assert "properties" in schema or "additionalProperties" in schema, path


def least(schema):
    """Return the bytes of the shortest JSON that a schema takes."""
    if "enum" in schema:
        return min(len(str(word)) for word in schema["enum"]) + 2
    if schema.get("type") == "object":
        fields = [(name, schema["properties"][name]) for name in schema.get("required", ())]
        return 2 + sum(len(name) + 4 + least(field) for name, field in fields) - bool(fields)
    return {"integer": 1, "boolean": 4}.get(schema.get("type"), 2)


def empty_objects(schema, times=1):
    """Return how many objects of next to nothing a schema takes: a byte of one becomes 27 when it is read."""
    below = 0
    if "items" in schema:
        times *= schema["maxItems"]
        below += times * (schema["items"].get("type") in {"object", "array"} and least(schema["items"]) < 8)
        below += empty_objects(schema["items"], times)
    for part in schema.get("properties", {}).values():
        below += empty_objects(part, times)
    return below


def test_no_list_takes_a_megabyte_of_empty_objects():
    template = crd.schema_of(DivisibleJob)["properties"]["spec"]["properties"]["template"]
    assert least({"type": "object"}) == 2
    assert least({"type": "object", "required": ["ab"], "properties": {"ab": {"type": "string"}}}) == len('{"ab":""}')
    lists = [
        (path, sum_of, schema)
        for path, schema in walk(template)
        if schema.get("type") == "array" and (sum_of := empty_objects(schema))
    ]
    assert lists
    for path, count, schema in lists:
        assert count <= 70_000, (path, count, schema)


def test_the_fields_of_a_pod_are_those_of_kubernetes():
    done = subprocess.run([sys.executable, "-c", POD_SCHEMA], cwd=ROOT / "hack", capture_output=True, check=True)
    assert (ROOT / "operator/punctual/kube/api/pod.json").read_bytes() == done.stdout, "run: make docs"


POD_SCHEMA = "import pod_schema, sys; sys.stdout.write(pod_schema.text())"


@pytest.mark.parametrize("version", ["1.30", "1.33", "1.37"])
@pytest.mark.parametrize("template", [("spec",), ("spec", "reduce")], ids=[".".join, ".".join])
def test_every_field_of_a_pod_may_stand_in_a_template(template, version):
    folder = Path(kubernetes_validate.__file__).parent / f"kubernetes-json-schema/v{version}.0-local"
    theirs = json.loads((folder / "_definitions.json").read_text())["$defs"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    ours = crd.schema_of(DivisibleJob)
    for name in (*template, "template", "spec"):
        ours = ours["properties"][name]
    assert theirs.keys() - ours["properties"].keys() == {"ephemeralContainers"}  # no new pod may have them


def test_the_kinds_fit_where_they_are_stored():
    """A client-side apply keeps a kind once more in an annotation, of 256 KiB at most; etcd takes 1.5 MiB."""
    sizes = {kind: len(json.dumps(crd.crd(kind), ensure_ascii=False).encode()) for kind in KINDS}
    assert max(sizes.values()) == sizes[DivisibleJob]
    assert sizes[DivisibleJob] < 200 * 1024, sizes
    charts = b"".join(path.read_bytes() for path in (ROOT / "charts").rglob("*") if path.is_file())
    # a release has the chart and what it made of it, and is a Secret of 1 MiB at most
    assert len(base64.b64encode(gzip.compress(charts + charts))) < 512 * 1024


def test_fields_of_a_pod_say_where_they_are_explained():
    spec = crd.schema_of(DivisibleJob)["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
    assert spec["properties"]["tolerations"]["description"].startswith("Taints")
    assert spec["properties"]["hostAliases"]["description"] == "See `kubectl explain pod.spec.hostAliases`."
    container = spec["properties"]["containers"]["items"]["properties"]
    assert container["command"]["description"] == "See `kubectl explain pod.spec.containers.command`."
    assert container["name"]["description"] == "The container's name."


@pytest.mark.parametrize(("path", "schema"), SCHEMAS)
def test_every_field_teaches(path, schema):
    if path in {"metadata", "apiVersion", "kind", ""} or path[-1] in "]}":
        return
    text = schema["description"]
    assert text.endswith((".", "`"))
    if path.startswith("spec"):
        if "default" in schema and not isinstance(schema["default"], dict):
            assert f"efault {str(schema['default']).lower()}" in text.lower()
        if path in {f"spec.{name}" for name in ("pool", "units", "template", "nodeSelector", "processor")}:
            assert "Required" in text


@pytest.mark.parametrize(("path", "schema"), SCHEMAS)
def test_no_bound_of_a_number_is_beyond_what_json_holds_exactly(path, schema):
    """A maximum of 2**63 - 1 was read as one below zero: the API server refused every status with a byte in it."""
    assert max(abs(schema.get("minimum", 0)), abs(schema.get("maximum", 0))) <= 2**53


def test_rules_have_messages_for_people():
    rules = [rule for param in SCHEMAS for rule in param.values[1].get(VALIDATIONS, [])]
    assert len(rules) > 30
    for rule in rules:
        assert rule["message"]
        assert "self" not in rule["message"]


@pytest.mark.parametrize("version", ["1.30", "1.33", "1.35", "1.37"])
@pytest.mark.parametrize("kind", KINDS)
def test_crds_pass_the_strict_schema_of_kubernetes(kind, version):
    kubernetes_validate.validate(crd.crd(kind), version, strict=True)


def test_names_and_columns():
    spec = crd.crd(DivisibleJob)["spec"]
    assert spec["names"] == {
        "kind": "DivisibleJob",
        "listKind": "DivisibleJobList",
        "plural": "divisiblejobs",
        "singular": "divisiblejob",
        "shortNames": ["dj"],
        "categories": ["punctual"],
    }
    first = [c["name"] for c in spec["versions"][0]["additionalPrinterColumns"] if not c.get("priority")]
    assert first == ["State", "Deadline", "Progress", "ETA", "Slack", "Age"]
    first = [c.name for c in Pool.COLUMNS if not c.priority]
    assert first == ["Processors", "Free", "Queue", "Bound", "Ready", "Age"]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_show_fields_that_are_there(kind):
    fields = {path.replace("[]", "") for path, _ in walk(crd.schema_of(kind))}
    for column in kind.COLUMNS:
        path = re.sub(r"\[\?.*?\]", "", column.path).removeprefix(".")
        assert path == "metadata.creationTimestamp" or path in fields
        assert column.type != "date" or column.name == "Age"  # times to come print as <invalid> there


def test_what_has_no_structural_form_stops_the_generator():
    with pytest.raises(ValueError, match="patternProperties"):
        crd.structural({"type": "object", "patternProperties": {}}, {})


# Model and schema agree, on what is good and on what is not.


def built(model, **fields):
    """Build it from these fields alone: st.builds would invent camelCase twins from the model's signature."""
    return st.fixed_dictionaries(fields).map(lambda values: model(**values))


seconds = st.floats(1e-6, 3e8)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
labels = st.dictionaries(names, names, max_size=3)
selectors = built(
    LabelSelector,
    match_labels=st.none() | labels,
    match_expressions=st.none()
    | st.lists(
        built(
            Expression,
            key=names,
            operator=st.sampled_from(["In", "NotIn"]),
            values=st.lists(names, min_size=1, max_size=3),
        )
        | built(Expression, key=names, operator=st.sampled_from(["Exists", "DoesNotExist"])),
        max_size=3,
    ),
)
templates = st.builds(
    lambda containers, labels: PodTemplate.model_validate(
        {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    ),
    st.lists(
        st.fixed_dictionaries({"name": names, "image": names, "args": st.lists(names, max_size=2)}),
        min_size=1,
        max_size=3,
    ),
    labels,
)
processors = st.tuples(st.integers(1, 4096), st.none() | st.integers(1, 4096)).map(
    lambda pair: ProcessorBounds(min=min(pair[0], pair[1] or pair[0]), max=pair[1])
)
jobs = built(
    DivisibleJobSpec,
    pool=names,
    units=st.integers(1, 10**15),
    deadline=seconds,
    cost=st.none()
    | built(JobCost, per_unit=seconds, transfer_per_unit=seconds, transfer_setup=seconds, startup=seconds),
    processors=processors,
    restart=st.sampled_from(["Redo", "Resume"]),
    chunk_retries=st.integers(0, 1000),
    stall_timeout=seconds,
    on_miss=st.sampled_from(["Continue", "Stop"]),
    ttl_seconds_after_finished=st.none() | st.integers(0, 2**31 - 1),
    dry_run=st.booleans(),
    suspend=st.booleans(),
    template=templates,
    reduce=st.none() | built(Reduce, duration=seconds, template=templates),
)
pools = built(
    PoolSpec,
    node_selector=selectors,
    namespace_selector=st.none() | selectors,
    processor=built(
        Processor,
        cpu=st.integers(1000, 4_096_000).map(lambda m: m / 1000),
        memory=st.integers(2**20, 2**50),
        resources=st.none() | st.dictionaries(names.map("a.example.com/{}".format), st.integers(1, 2**50), max_size=3),
        period=st.floats(0.001, 1),
    ),
    hold=st.sampled_from(["None", "Taint"]),
    headroom=st.integers(0, 90 * 10**6).map(lambda millionths: millionths / 1e6 / 100),
    margin=seconds,
)
profiles = built(
    ProfileSpec, per_unit=st.none() | seconds, transfer_per_unit=seconds, transfer_setup=seconds, startup=seconds
)
objects = (
    st.tuples(st.just(DivisibleJob), jobs) | st.tuples(st.just(Pool), pools) | st.tuples(st.just(Profile), profiles)
)


def manifest_of(kind: type[KindModel], spec):
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": kind.NAMES.kind,
        "metadata": {"name": "x"},
        "spec": spec.manifest(),
    }


def validator(kind):
    schema = copy.deepcopy(crd.schema_of(kind))
    for _, part in walk(schema):
        if part.pop(INT_OR_STRING, False):
            part["type"] = ["integer", "string"]
    # draft 4 is where Kubernetes took its exclusiveMinimum from
    return Draft4Validator(schema)


VALIDATORS = {kind: validator(kind) for kind in KINDS}
SPECS = {kind: crd.modelled(kind)["properties"]["spec"] for kind in KINDS}
"""What the parser checks too; the rest of a pod is checked by the API server alone."""


@given(objects)
def test_what_a_model_writes_its_schema_takes_and_the_parser_reads(made):
    kind, spec = made
    manifest = manifest_of(kind, spec)
    assert not list(VALIDATORS[kind].iter_errors(manifest))
    assert parse(kind, manifest).spec.manifest() == manifest["spec"]


WRONG = {
    "object": ["x", 7],
    "array": ["x", {}, 7],
    "string": [7, ["x"], {}, True],
    "integer": ["7", 0.5, True],
    "number": ["0.5", [0.5], {}],
    "boolean": ["true", 1],
    "quantity": [0.5, [], {}],
}


def mutants(schema, value, path):
    """Yield (path, something wrong to put there) for all fields that the schema knows and the value has."""
    wrong = list(WRONG[schema.get("type", "quantity")])
    wrong += [limit for key, limit in (("pattern", "%"), ("enum", "Nonsense")) if key in schema]
    wrong += [schema[key] + step for key, step in (("minimum", -1), ("maximum", 1)) if key in schema]
    for bad in wrong:
        yield path, bad
    if isinstance(value, dict):
        for name in value.keys() & schema.get("properties", {}).keys():
            yield from mutants(schema["properties"][name], value[name], [*path, name])
    if isinstance(value, list) and value:
        yield from mutants(schema["items"], value[0], [*path, 0])


@given(objects, st.data())
def test_a_mutant_is_refused_by_schema_and_parser_alike(made, data):
    kind, spec = made
    manifest = manifest_of(kind, spec)
    options = sorted(mutants(SPECS[kind], manifest["spec"], ["spec"]), key=repr)
    path, bad = data.draw(st.sampled_from(options))
    at = manifest
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = bad
    assert not VALIDATORS[kind].is_valid(manifest)
    with pytest.raises(UserError) as refused:
        parse(kind, manifest)
    assert refused.value.message.startswith("".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in path)[1:])


@given(objects, st.data())
def test_a_required_field_is_missed_by_schema_and_parser_alike(made, data):
    kind, spec = made
    manifest = manifest_of(kind, spec)
    field = data.draw(st.sampled_from(SPECS[kind].get("required", ["spec"])))
    (manifest if field == "spec" else manifest["spec"]).pop(field)
    assert not VALIDATORS[kind].is_valid(manifest)
    with pytest.raises(UserError, match="is required"):
        parse(kind, manifest)


# The command line


def test_crds_are_printed():
    done = CliRunner().invoke(cli.app, ["crds"])
    assert done.exit_code == 0
    assert list(yaml.safe_load_all(done.stdout)) == [crd.crd(kind) for kind in KINDS]


def test_crds_and_reference_are_written(tmp_path):
    assert CliRunner().invoke(cli.app, ["crds", "--write", str(tmp_path / "new")]).exit_code == 0
    assert {p.name for p in (tmp_path / "new").iterdir()} == set(crd.files())
    assert CliRunner().invoke(cli.app, ["crds", "--docs"]).stdout == crd.documentation()


def test_the_version_is_printed():
    done = CliRunner().invoke(cli.app, ["version"])
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", done.stdout)


def test_the_command_line_starts_without_what_is_heavy():
    code = (
        "import sys, punctual.cli; print(*{'kopf', 'kubernetes', 'numpy', 'aiohttp', 'pydantic'} & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
