import tracemalloc

import orjson
import pytest

from punctual.kube.known import oversize
from punctual.kube.known.directory import Directory
from punctual.kube.known.oversize import LARGEST, kept, lightened

CREATED = "2030-01-01T00:00:00Z"


def job(*junk, uid="j1"):
    meta = {"name": uid, "namespace": "ns", "uid": uid, "generation": 1, "creationTimestamp": CREATED}
    template = {"spec": {"containers": [{"name": "main", "image": "i", "ports": list(junk)}]}}
    spec = {"pool": "main", "units": 5, "deadline": "1h", "template": template, "reservation": "nightly"}
    return {"kind": "DivisibleJob", "metadata": meta, "spec": spec}


def test_a_spec_that_is_small_enough_is_kept_as_it_is():
    body = job({"containerPort": 1})
    assert lightened(body) is body
    assert orjson.loads(kept(body).spec) == body["spec"]
    assert kept(body).flaw == ""


def test_a_spec_that_is_too_large_is_named_by_size_and_digest_and_the_limit():
    body = job(*[{}] * 349_000)
    made = lightened(body)
    assert {name: made["spec"][name] for name in ("pool", "units", "reservation", "template")} == {
        "pool": "main",
        "units": 5,
        "reservation": "nightly",
        "template": None,
    }
    for one in (body, made, lightened(made)):
        spec, flaw = kept(one)
        assert spec == b"{}"
        assert flaw.startswith("spec: is 1022 KiB of JSON, more than 128: put large data into")
        assert f"SHA-256 {made[oversize.MARK]['digest'][:12]}" in flaw
    other = job(*[{}] * 348_999, [])
    assert kept(other).flaw != kept(body).flaw


def test_lists_are_made_light_and_other_kinds_stay():
    large = "x" * (LARGEST + 1)
    pod = {"kind": "Pod", "metadata": {}, "spec": {"x": large}}
    bare = {"metadata": {}, "spec": {"x": large}}  # pods of a list do not say what they are
    items = [job(), job(large, uid="j2"), pod, bare, None, 5]
    made = lightened({"kind": "List", "items": items})["items"]
    assert made[0] is items[0]
    assert oversize.MARK in made[1]
    assert made[2:] == items[2:]


def test_a_spec_that_cannot_be_written_is_left_to_who_keeps_it():
    deep: dict = {}
    body = job(deep)
    for _ in range(1000):
        deep["deep"] = deep = {}
    assert lightened(body) is body
    assert kept(body).flaw == "spec: is nested deeper than any pod is"


@pytest.mark.parametrize("make", [lightened, lambda body: body], ids=["made light on the way", "as it was read"])
def test_a_directory_holds_next_to_nothing_of_what_is_too_large(make):
    directory = Directory()
    tracemalloc.start()
    try:
        for n in range(40):
            known = directory.jobs.observe(make(job(*[{}] * 50_000, uid=f"j{n}")))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000
    assert "more than 128" in known.flaw
    assert (known.owner.pool, known.owner.units, known.reservation) == ("main", 5, "nightly")
