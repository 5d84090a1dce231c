"""The dry run of an object, with a kubectl that answers what a case says."""

import json
import os

import pytest

from punctual.cli.cluster_state import ClusterState
from punctual.cli.kubectl import Kubectl
from punctual.errors import PunctualError

KUBECTL = """#!/bin/sh
case "$*" in
    config*) printf demo; exit ;;
    create*) echo "$*" >> "$FOLDER/calls"; cat > "$FOLDER/sent.json" ;;
    *) exit ;;
esac
if [ -s "$FOLDER/said" ] && ! grep -q generateName "$FOLDER/sent.json"; then cat "$FOLDER/said" >&2; exit 1; fi
sed 's/"units": 5/"units": 5, "margin": "default"/' "$FOLDER/sent.json"
"""

IN_CREATE = 'error when creating "STDIN": '
SPEC = {"units": 5}
STORED = {"units": 5, "margin": "default"}


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """Try an object where the API server says that, or stores it."""
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FOLDER", str(tmp_path))

    def run(said="", **metadata):
        (tmp_path / "said").write_text(said)
        body = {"apiVersion": "v1", "kind": "DivisibleJob", "metadata": {"name": "new", **metadata}, "spec": SPEC}
        with ClusterState(Kubectl(), None) as state:
            (found,) = state.tried([body])
        assert {**found, "spec": SPEC} == body
        return found["spec"]

    run.folder = tmp_path
    return run


def sent(tried):
    return json.loads((tried.folder / "sent.json").read_text())["metadata"]


def test_the_spec_is_the_one_that_the_api_server_would_store(tried):
    assert tried(uid="u", resourceVersion="5", labels={"a": "b"}) == STORED
    assert sent(tried) == {"name": "new", "labels": {"a": "b"}}, "metadata that a create may have"
    assert (tried.folder / "calls").read_text() == "create --dry-run=server -o json -f - -n demo\n"
    tried(namespace="other")
    assert "-n other" in (tried.folder / "calls").read_text()


def test_a_job_that_exists_is_tried_by_another_name(tried):
    said = f'Error from server (AlreadyExists): {IN_CREATE}divisiblejobs.punctual.dev "new" already exists'
    assert tried(said, namespace="other") == STORED
    assert sent(tried) == {"namespace": "other", "generateName": "plan-"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'The DivisibleJob "new" is invalid: spec.units: Invalid value: 0: it must be at least 1',
            'The DivisibleJob "new" is invalid: spec.units: Invalid value: 0: it must be at least 1',
        ),
        (
            f'Error from server (BadRequest): {IN_CREATE}strict decoding error: unknown field "spec.unit"',
            'strict decoding error: unknown field "spec.unit"',
        ),
        (
            f'Error from server (Forbidden): {IN_CREATE}"new" is forbidden: exceeded quota: q',
            '"new" is forbidden: exceeded quota: q',
        ),
        (
            f'Error from server: {IN_CREATE}admission webhook "a.b" denied the request: no',
            'admission webhook "a.b" denied the request: no',
        ),
        (
            'error: unable to decode "STDIN": json: cannot unmarshal number into Go struct field',
            'unable to decode "STDIN": json: cannot unmarshal number into Go struct field',
        ),
    ],
)
def test_an_object_that_is_refused_is_refused_with_the_words_of_kubectl(tried, said, told):
    with pytest.raises(PunctualError) as error:
        tried(said)
    assert str(error.value) == told


@pytest.mark.parametrize(
    "said",
    [
        f'Error from server (BadRequest): {IN_CREATE}admission webhook "a.b" does not support dry run',
        f'Error from server (Forbidden): {IN_CREATE}User "guest" cannot create resource "divisiblejobs"',
        f'Error from server (NotFound): {IN_CREATE}namespaces "demo" not found',
        f'Error from server (InternalError): {IN_CREATE}failed calling webhook "a.b"',
        'error: resource mapping not found for name: "new": no matches for kind "DivisibleJob"',
        'error: context "nowhere" does not exist',
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
    ],
)
def test_an_object_that_is_not_tried_stays_as_it_is(tried, said):
    assert tried(said) == SPEC
