"""The files that ``punctual plan`` reads: as kubectl reads them (tests/api compares the table with kubectl itself)."""

import json

import pytest
from kubectl_yaml import BAD_FIELDS, FIELDS, REFUSED, SCALARS, same

from punctual.cli.documents import documents
from punctual.errors import PunctualError


def read(text):
    (found,) = documents(text, "job.yaml")
    return found["v"]


@pytest.mark.parametrize(("text", "value"), (SCALARS | FIELDS).items())
def test_a_value_is_what_kubectl_reads(text, value):
    assert same(read(f"v:\n  {text}"), value)


@pytest.mark.parametrize("text", ["1e+06", "1.0", "9223372036854775808", "1e22", "1.5", "-0", "true", '"1e6"'])
def test_json_has_the_numbers_of_yaml(text):
    assert same(read(f'{{"v": {text}}}'), read(f"v: {text}"))


@pytest.mark.parametrize("text", [*REFUSED, *BAD_FIELDS])
def test_what_kubectl_refuses_is_refused_with_its_line(text):
    with pytest.raises(PunctualError, match=r"^job\.yaml: cannot be read: (?s:.*)line 2"):
        read(f"v:\n  {text}\n")


@pytest.mark.parametrize("text", ["{a: 1, a: 2}", "{1: a, '1': b}", "{yes: 1, true: 2}", '{"a": {"b": 1, "b": 2}}'])
def test_a_duplicate_field_is_an_error(text):
    with pytest.raises(PunctualError, match="appears twice in one object"):
        read(f"v: {text}")
    with pytest.raises(PunctualError, match="appears twice"):
        read(text)


def test_a_field_with_a_decimal_point_needs_quotes():
    with pytest.raises(PunctualError, match="not a string: write it in quotes"):
        read("v: {1.10: a}")
    assert read("v: {'1.10': a}") == {"1.10": "a"}


@pytest.mark.parametrize("text", ['{"v": 1} x', '{"v": 1', '{"v": 1}]'])
def test_text_that_is_neither_json_nor_yaml_is_an_error(text):
    with pytest.raises(PunctualError, match="cannot be read"):
        list(documents(text, "job.yaml"))


A, B = {"kind": "A"}, {"kind": "B"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("null", []),
        ("# nothing", []),
        ("---\nkind: A\n---\n---\n# nothing\n--- # more\nkind: B\n", [A, B]),
        ("kind: A\n...\n---\nkind: B\n", [A, B]),
        ("\ufeffkind: A\r\n", [A]),
        (json.dumps(A), [A]),
        (f"\n {json.dumps(A)}{json.dumps(B)}\n", [A, B]),
        ("{kind: A}", [A]),
        ('{"kind": NaN, "units": 1e400}', [{"kind": "NaN", "units": "1e400"}]),
        ("kind: List\nitems:\n- kind: A\n- {kind: List, items: [{kind: B}]}\n", [A, B]),
        ("kind: PodList\nitems: []\n", []),
    ],
)
def test_a_file_has_any_number_of_objects(text, found):
    assert list(documents(text, "job.yaml")) == found


def test_aliases_that_double_at_each_line_are_read_once_each():
    """Without that, 60 lines would make 2^60 values."""
    lines = ["v:", "  a0: &a0 {x: 1}", *(f"  a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    found = read("\n".join(lines))
    assert found["a59"][0] is found["a59"][1]
