import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.kube.api.decode import DEEPEST, decode

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


def nested(depth, inside="1"):
    return '{"a":' * depth + inside + "}" * depth


def depth_of(value):
    depth = 0
    while isinstance(value, dict | list):
        value = next(iter(value.values() if isinstance(value, dict) else value), None)
        depth += 1
    return depth


@given(VALUES)
def test_what_is_nested_as_usual_is_read_as_it_is(value):
    assert decode(orjson.dumps(value)) == value
    assert decode(json.dumps(value)) == value


@pytest.mark.parametrize("depth", [1025, 5000, 9999])
def test_what_is_nested_too_deep_is_cut_out_and_the_rest_stays(depth):
    text = f'{{"items":[{{"name":"one"}},{nested(depth)},{{"name":"two","quote":"}}}}{{\\"]"}}]}}'
    items = decode(text.encode())["items"]
    assert items[0] == {"name": "one"}
    assert items[2] == {"name": "two", "quote": '}}{"]'}
    assert depth_of(items[1]) == DEEPEST - 2
    assert "nested too deep" in json.dumps(items[1])
    orjson.dumps(items)


@given(VALUES, st.integers(1100, 3000))
def test_what_stands_beside_the_deep_is_read_as_it_is(value, depth):
    text = orjson.dumps({"before": value, "deep": orjson.Fragment(nested(depth)), "after": value})
    read = decode(text)
    assert read["before"] == read["after"] == value


@pytest.mark.parametrize("text", ["", "{", "nonsense", nested(3000)[:-1], '{"a":' * 3000])
def test_what_is_no_json_is_an_error(text):
    with pytest.raises(orjson.JSONDecodeError):
        decode(text)
