"""Jobs of 1 MB: the API server drops or refuses what no job needs; where it stored one before, others are served.

``make test`` has a fraction of them, ``make nightly`` forty. 1 MB of ``{}`` takes 27 MiB once it is read.
"""

import copy
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lib.testbed import condition
from process import OperatorProcess
from server import GROUP, Server, job

from punctual import reasons
from punctual.kube.api import KINDS, crd
from punctual.kube.api.base import PART_OF_POD

APISERVER = Path(__file__).parents[2] / "hack/apiserver"
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
COUNT = 40 if NIGHTLY else 8
EMPTY = 349_000
"""Objects of a megabyte."""
PATIENCE = 30.0
"""Seconds in which others are answered: for a machine that does other things too; usual are a few."""
GROWN = 300
"""MiB that the operator may grow by, however many there are: its container has 512, and it begins with 120."""

pytestmark = pytest.mark.timeout(1800 if NIGHTLY else 900, func_only=True)


def big(name, namespace, of):
    body = job(name, namespace, of)
    body["spec"]["template"]["spec"]["x"] = [{}] * EMPTY
    return body


def permissive():
    """Return the kinds as they were: a pod may have any field, with anything in it."""
    made = []
    for kind in KINDS:
        schema = crd.modelled(kind)
        _forget_part(schema)
        one = crd.crd(kind)
        one["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
        made.append(one)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": made})


def _forget_part(schema):
    schema.pop(PART_OF_POD, None)
    for part in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else ())):
        _forget_part(part)


def test_a_megabyte_of_nothing_is_refused_or_not_even_stored(kubeconfig):
    server = Server(kubeconfig)
    namespace = f"big-{os.getpid()}"
    server.add_namespace(namespace)
    path = f"{GROUP}/namespaces/{namespace}/divisiblejobs"
    body = big("big", namespace, "main")
    for n in range(COUNT):
        body["metadata"]["name"] = f"big-{n}"
        code, answer = server.call("POST", f"{path}?fieldValidation=Strict", body)  # as kubectl asks
        assert code == 400
        assert 'unknown field "spec.template.spec.x"' in answer["message"]
    code, stored = server.create(body)
    assert code == 201
    assert len(json.dumps(stored)) < 4096
    wide = copy.deepcopy(job("wide", namespace, "main"))
    wide["spec"]["template"]["spec"]["tolerations"] = [{}] * 1000
    code, answer = server.create(wide)
    assert code == 422
    assert "spec.template.spec.tolerations: Too many: 1000: must have at most 64 items" in answer["message"]
    server.delete(path)
    server.close()


@pytest.fixture
def old(tmp_path):
    """An API server of its own with the permissive schema."""
    name = f"tests-old-{os.getpid()}"
    try:
        done = subprocess.run([APISERVER, "up", "--name", name], check=True, stdout=-1, text=True)
        path = tmp_path / "kubeconfig"
        path.write_text(Path(done.stdout.strip()).read_text())
        folder = subprocess.run([APISERVER, "bin"], check=True, stdout=-1, text=True).stdout.strip()
        command = [f"{folder}/kubectl", f"--kubeconfig={path}"]
        subprocess.run([*command, "apply", "--server-side", "-f", "-"], input=permissive(), check=True, text=True)
        yield path
    finally:
        subprocess.run([APISERVER, "down", "--name", name], check=True)


def test_what_an_older_schema_stored_is_refused_with_its_size_and_keeps_nobody_waiting(old, tmp_path):
    server = Server(old)
    server.until(lambda: server.call("GET", f"{GROUP}/divisiblejobs")[0] == 200)
    server.add_namespace("big")
    for pool in ("main", "quiet"):
        server.add_node(pool, pool=pool)
        server.add_pool(pool)
    body = big("big", "big", "main")
    path = f"{GROUP}/namespaces/big/divisiblejobs"
    for n in range(COUNT):
        body["metadata"]["name"] = f"big-{n}"
        # that server needs seconds for each, and gives up on one now and then
        server.until(lambda: server.call("POST", path, body)[0] in {201, 409}, within=300)
    operator = OperatorProcess(old, "big", tmp_path / "log")
    try:
        server.until(lambda: operator.leads, within=600)
        names, first, slowest = [f"big-{n}" for n in range(COUNT)], None, 0.0
        began, beside = time.monotonic(), 0
        answers = {}
        while len(answers) < COUNT or beside < 5:
            asked, name = time.monotonic(), f"beside-{beside}"
            server.add_job(name, "big", "quiet", dryRun=True)
            answer = server.until(
                lambda name=name: condition(server.status("big", name), "Admitted"), within=PATIENCE, every=0.05
            )
            assert answer["reason"] == reasons.DRY_RUN
            took, beside = time.monotonic() - asked, beside + 1
            first, slowest = first if first is not None else took, max(slowest, took)
            for name in [name for name in names if name not in answers][:2]:
                if answer := condition(server.status("big", name), "Admitted"):
                    answers[name] = answer
            assert time.monotonic() - began < 1200
        assert {a["reason"] for a in answers.values()} == {reasons.INVALID_SPEC}
        assert all("spec: is 1022 KiB of JSON, more than 128: put large data" in a["message"] for a in answers.values())
        peak = operator.peak  # also of the time before it led
        report = {"count": COUNT, "first": first, "slowest": slowest, "beside": beside, "peak_mib": peak}
        sys.stdout.write(json.dumps(report | {"all_after": time.monotonic() - began}) + "\n")
        assert peak < 120 + GROWN
        assert operator.alive
    finally:
        status = operator.end()
        sys.stderr.write(operator.log.read_text()[-20_000:])
        server.close()
    assert status == 0
