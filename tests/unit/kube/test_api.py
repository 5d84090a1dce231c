import copy
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import ValidationError

from punctual import reasons
from punctual.errors import UserError
from punctual.kube.api import (
    KINDS,
    AppliedSpec,
    ChunkRecord,
    Condition,
    DivisibleJob,
    DivisibleJobSpec,
    DivisibleJobStatus,
    Expression,
    HttpInput,
    LabelSelector,
    Pool,
    PoolSpec,
    PoolStatus,
    Processor,
    Profile,
    PromiseStatus,
    UnitRange,
    parse,
    parse_metadata,
    parse_status,
)
from punctual.kube.api.template import is_image

BAD = [
    case
    for case in yaml.safe_load((Path(__file__).parents[2] / "manifests" / "bad.yaml").read_text())
    if not case.get("typed")
]
BY_NAME = {kind.NAMES.kind: kind for kind in KINDS}


def example(kind):
    return yaml.safe_load(kind.EXAMPLE)


def spoil(case):
    """Return the example of the kind with the case's one change."""
    manifest = at = example(BY_NAME[case["kind"]])
    *path, last = (int(step) if step.isdigit() else step for step in case["at"].split("."))
    for step in path:
        at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
    if "to" in case:
        at[last] = case["to"]
    else:
        del at[last]
    return manifest


def refusal(kind, manifest):
    with pytest.raises(UserError) as refused:
        parse(kind, manifest)
    assert refused.value.reason == reasons.INVALID_SPEC
    return refused.value.message


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_a_bad_manifest_is_refused_by_field_with_what_would_be_right(case):
    message = refusal(BY_NAME[case["kind"]], spoil(case))
    assert message.startswith(case.get("field", case["at"]))
    assert case["says"] in message


def test_the_table_is_long_and_its_names_are_unique():
    assert len(BAD) >= 60
    assert len({case["name"] for case in BAD}) == len(BAD)


def test_a_cpu_limit_is_named_down_to_the_field():
    manifest = example(DivisibleJob)
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1"
    assert refusal(DivisibleJob, manifest).startswith("spec.template.spec.containers[0].resources.limits.cpu: leave")


def test_several_errors_are_told_together_but_not_without_end():
    manifest = example(DivisibleJob)
    manifest["spec"] |= {"units": 0, "pool": "", "class": "x", "restart": "x", "onMiss": "x", "dryRun": 1, "suspend": 1}
    message = refusal(DivisibleJob, manifest)
    assert message.count("spec.") == 5
    assert message.endswith("(and 2 more)")


def test_braces_of_the_user_do_not_break_the_message():
    manifest = example(DivisibleJob)
    manifest["spec"] |= {"deadline": "{0}{ge}", "restart": "{expected}", "units": "{"}
    message = refusal(DivisibleJob, manifest)
    assert "{0}{ge}" in message
    assert "'{expected}' is not known: write 'Redo' or 'Resume'" in message


def test_a_megabyte_of_nonsense_makes_no_megabyte_of_message():
    manifest = example(DivisibleJob)
    manifest["spec"]["restart"] = "x" * 10**6
    assert len(refusal(DivisibleJob, manifest)) < 300


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_good(kind):
    model = parse(kind, example(kind))
    assert parse(kind, model.manifest() | {"metadata": example(kind)["metadata"]}).spec == model.spec


def test_a_job_is_seconds_and_numbers_inside():
    spec = parse(DivisibleJob, example(DivisibleJob)).spec
    assert (spec.deadline, spec.units, spec.class_) == (2700.0, 120000, "Guaranteed")
    assert spec.cost is not None
    assert (spec.cost.per_unit, spec.cost.transfer_per_unit, spec.cost.transfer_setup, spec.cost.startup) == (
        0.02,
        0,
        0,
        2,
    )
    assert (spec.processors.min, spec.processors.max, spec.stall_timeout) == (1, None, 60)


def test_a_deadline_time_is_seconds_since_1970():
    manifest = example(DivisibleJob)
    del manifest["spec"]["deadline"]
    manifest["spec"]["deadlineTime"] = "2030-01-02T17:04:05+02:00"
    assert parse(DivisibleJob, manifest).spec.deadline_time == 1893596645


def test_a_pool_is_cores_bytes_and_seconds_inside():
    spec = parse(Pool, example(Pool)).spec
    assert spec.processor == Processor(cpu=0.5, memory=512 * 2**20, period=0.1)
    assert (spec.margin, spec.headroom, spec.hold) == (6, 0.125, "None")


def test_whole_cores_need_no_quotes():
    manifest = example(Pool)
    manifest["spec"]["processor"] = {"cpu": 2, "memory": 2**30}
    assert parse(Pool, manifest).spec.processor == Processor(cpu=2.0, memory=2**30)


def test_a_profile_knows_the_cost():
    spec = parse(Profile, example(Profile)).spec
    assert (spec.per_unit, spec.transfer_per_unit, spec.transfer_setup, spec.startup) == (0.02, 0.001, None, 2)


def test_fields_of_a_newer_version_are_passed_over():
    manifest = example(DivisibleJob)
    manifest["spec"]["reservation"] = "night"
    manifest["status"] = {"novelty": 1, "epoch": 3}
    assert parse(DivisibleJob, manifest).status == DivisibleJobStatus(epoch=3)


def test_a_template_comes_back_as_it_was_written():
    manifest = example(DivisibleJob)
    written = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "main", "image": "i", "env": [{"name": "x_y", "value": None}], "stdin": False}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "restartPolicy": "Never",
            "securityContext": {"runAsUser": 0},
        },
    }
    manifest["spec"]["template"] = copy.deepcopy(written)
    model = parse(DivisibleJob, manifest).spec.template
    assert model.spec.manifest() == written["spec"]
    assert model.manifest()["metadata"] == written["metadata"]


def test_a_status_is_read_though_the_spec_is_not():
    manifest = example(DivisibleJob)
    manifest["spec"]["units"] = -1
    manifest["status"] = {
        "epoch": 2,
        "promise": {
            "deadline": "2030-01-02T15:04:05Z",
            "finish": "2030-01-02T15:00:00.5Z",
            "margin": "2.5s",
            "processors": 3,
            "start": "2030-01-02T14:00:00Z",
        },
    }
    manifest["metadata"] |= {
        "uid": "u",
        "creationTimestamp": "2030-01-01T00:00:00Z",
        "generation": 4,
        "managedFields": [],
    }
    status = parse_status(DivisibleJobStatus, manifest)
    assert status is not None
    assert status.promise == PromiseStatus(
        deadline=1893596645, finish=1893596400.5, margin=2.5, processors=3, start=1893592800
    )
    assert parse_metadata(manifest).uid == "u"
    assert parse_metadata(manifest).creation_timestamp == 1893456000


def test_no_status_is_none():
    assert parse_status(PoolStatus, example(Pool)) is None


def test_a_broken_status_is_named():
    with pytest.raises(UserError, match=r"^status\.chunks\[0\]\.node: is required"):
        parse_status(
            DivisibleJobStatus,
            {
                "status": {
                    "chunks": [
                        {
                            "begin": 0,
                            "end": 5,
                            "attempt": 0,
                            "createdTime": "2030-01-02T14:00:00Z",
                            "promisedEnd": "2030-01-02T14:00:00Z",
                        }
                    ]
                }
            },
        )


def test_a_status_says_only_what_it_knows():
    status = DivisibleJobStatus(
        conditions=[Condition(type="Admitted", status="True", reason="Feasible", last_transition_time=0)],
        epoch=1,
        eta=1.5,
        slack=-2,
        completed=[UnitRange(begin=0, end=5)],
        chunks=[ChunkRecord(begin=5, end=9, node="n", attempt=0, created_time=1, promised_end=2.25)],
        applied=AppliedSpec(deadline_time=60),
    )
    assert status.manifest() == {
        "conditions": [
            {
                "type": "Admitted",
                "status": "True",
                "reason": "Feasible",
                "message": "",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
                "observedGeneration": 0,
            }
        ],
        "epoch": 1,
        "eta": "1970-01-01T00:00:01.500000Z",
        "slack": "-2s",
        "completed": [{"begin": 0, "end": 5}],
        "failed": [],
        "tried": [],
        "chunks": [
            {
                "begin": 5,
                "end": 9,
                "node": "n",
                "attempt": 0,
                "kind": "Chunk",
                "createdTime": "1970-01-01T00:00:01Z",
                "promisedEnd": "1970-01-01T00:00:02.250000Z",
            }
        ],
        "pilots": [],
        "applied": {"deadlineTime": "1970-01-01T00:01:00Z", "suspend": False},
    }
    assert parse_status(DivisibleJobStatus, {"status": status.manifest()}) == status


def test_the_spec_in_force_survives_in_the_status():
    spec = PoolSpec(node_selector=LabelSelector(match_labels={"a": "b"}), processor=Processor(cpu=0.1), margin=3.0)
    status = PoolStatus(applied=spec)
    assert status.manifest()["applied"]["processor"] == {"cpu": "100m", "memory": "2Gi", "period": "100ms"}
    assert parse_status(PoolStatus, {"status": status.manifest()}) == status


@pytest.mark.parametrize(
    ("operator", "values", "labels", "meant"),
    [
        ("In", ["x", "y"], {"a": "y"}, True),
        ("In", ["x"], {"a": "y"}, False),
        ("In", ["x"], {}, False),
        ("NotIn", ["x"], {"a": "y"}, True),
        ("NotIn", ["x"], {}, True),  # as Kubernetes has it: no label is no such value
        ("NotIn", ["x"], {"a": "x"}, False),
        ("Exists", None, {"a": ""}, True),
        ("Exists", None, {}, False),
        ("DoesNotExist", None, {"b": ""}, True),
        ("DoesNotExist", None, {"a": ""}, False),
    ],
)
def test_selectors_mean_what_they_mean_elsewhere(operator, values, labels, meant):
    selector = LabelSelector(match_expressions=[Expression(key="a", operator=operator, values=values)])
    assert selector.matches(labels) is meant


def test_all_requirements_of_a_selector_must_hold():
    selector = LabelSelector(match_labels={"pool": "main"}, match_expressions=[Expression(key="a", operator="Exists")])
    assert selector.matches({"pool": "main", "a": ""})
    assert not selector.matches({"pool": "main"})
    assert not selector.matches({"a": ""})
    assert LabelSelector().matches({})


def test_only_what_works_can_be_chosen():
    fields = PoolSpec.model_fields
    chosen = {
        name: get_args(fields[name].annotation)
        for name in ("hold", "order", "partition", "assign", "admission", "network")
    }
    assert chosen == {
        "hold": ("None", "Taint", "Placeholder"),
        "order": ("EDF", "FIFO", "MWF"),
        "partition": ("Optimal", "Equal"),
        "assign": ("Fewest", "All"),
        "admission": ("Exact", "Fast", "Hybrid", "Utilization"),
        "network": ("Concurrent", "OnePort"),
    }
    assert get_args(DivisibleJobSpec.model_fields["class_"].annotation) == ("Guaranteed", "Guest")


@pytest.mark.parametrize(
    "image",
    [
        "a", "punctual:dev", "registry.k8s.io/pause:3.10", "localhost:5000/a/b:c", "Foo/bar", "[::1]:5000/x",
        f"ghcr.io/a/b@sha256:{'a' * 64}", f"a/b:v1.0_x-y@sha256:{'0' * 64}", "foo_bar/baz", "a__b/c--d",
        "10.0.0.1:80/x", "registry.invalid/nothere:1",
    ],
)  # fmt: skip
def test_a_reference_to_an_image_that_a_runtime_can_read_is_taken(image):
    assert is_image(image)


@pytest.mark.parametrize(
    "image",
    [
        "Punctual:dev", "a/B", "UPPER/Lower", "a//b", "a:", "/a", "a/", ":tag", "a:b:c", "a b", " a", "a\n", "a..b",
        "-a", "a@sha256:zz", "a" * 256, "0" * 64, f"a:{'x' * 129}", "http://a/b", "${X}", "a-" * 600,
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_an_image_that_can_never_be_pulled_is_refused_and_the_field_is_named(image, kind):
    manifest = example(DivisibleJob)
    manifest["spec"]["template"]["spec"][kind] = [{"name": "main", "image": image}]
    said = refusal(DivisibleJob, manifest)
    assert said.startswith(f"spec.template.spec.{kind}[0].image: ")
    assert "never be pulled" in said


FETCHED = [
    "https://example.com/data.csv", "http://a", "http://a:8080", "http://a:/b", "http://a:65535/b", "http://a:080/b",
    "http://a?x=1", "http://a.b.c./d", "http://a_b.c/d", "http://10.0.0.1/b", "http://[::1]/b", "http://[::1]:80/b",
    "http://[::ffff:10.0.0.1]/b", "http://[2001:db8::1:2]/b", "http://xn--bcher-kva.example/b", "http://a/%20b?c=d&e='f'",
    "http://a/$(X)$$", "http://a/{b}|c\\d",
]  # fmt: skip
UNFETCHED = [
    "http://a:0/b", "http://a:65536/b", "http://a:99999/b", "http://a:x/b", "http://a:-1/b",
    "http://[::zz]/b", "http://[1:2:3]/b", "http://[::1/b", "http://::1/b", "http://[1::2::3]/b", "http://[]/b",
    "http:///b", "http://a/b c", "http://a b/c", "http://a/\tb", "http://a/b\n", "http://a/\x7f", "http://a/\x00",
    "http://a/b#c", "http://a#b", "http://ü/b", "http://a/ü", "http://a..b/c", "http://.a/b", "http://-a/b",
    f"http://{'a' * 64}/b", f"http://{'a.' * 128}b/c", "http://a%41/b", "ftp://a/b", "//a/b", "",
]  # fmt: skip


@pytest.mark.parametrize("url", FETCHED)
def test_an_address_that_can_be_fetched_is_taken(url):
    assert HttpInput(url=url).url == url


@pytest.mark.parametrize("url", UNFETCHED)
def test_an_address_that_can_never_be_fetched_is_refused_by_name(url):
    with pytest.raises(ValidationError, match="such as https://example") as refused:
        HttpInput(url=url)
    assert {error["loc"] for error in refused.value.errors()} == {("url",)}
