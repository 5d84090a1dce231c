"""``pip install punctual-operator[cli]`` in a fresh virtual environment: each command works, without cluster libraries.

The wheels of the locked packages are fetched once, into build/cli-wheels, and installed from there.
"""

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
import yaml

import punctual

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements/cli.lock"
WHEELS = ROOT / "build/cli-wheels"
CLUSTER_LIBRARIES = ("kopf", "aiohttp", "kubernetes", "structlog", "prometheus_client", "cryptography")

POOL = {
    "apiVersion": "punctual.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "main"},
    "spec": {"nodeSelector": {"matchLabels": {"a": "b"}}, "processor": {"cpu": "500m", "memory": "512Mi"}},
    "status": {"nodes": [{"name": "n1", "processors": 3}]},
}  # fmt: skip
SPEC = {
    "pool": "main", "units": 60, "deadline": "5m", "cost": {"perUnit": "1s", "startup": "1s"},
    "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}},
}  # fmt: skip
JOB = {"apiVersion": "punctual.dev/v1alpha1", "kind": "DivisibleJob", "metadata": {"name": "first"}, "spec": SPEC}
META = {"name": "first", "namespace": "demo", "uid": "u", "creationTimestamp": "2030-01-02T00:00:00Z"}
DONE = {"type": "Completed", "status": "True", "reason": "Completed", "message": "all units are done"}
END = {"state": "Completed", "finishTime": "2030-01-02T00:01:00Z", "units": {"done": 60}, "conditions": [DONE]}

pytestmark = pytest.mark.timeout(600)  # the first run fetches wheels, and compiles what it imports

KUBECTL = """#!/bin/sh
case "$*" in
    config*) printf demo ;;
    create*) cat ;;
    *divisiblejobs?watch=1) cat "$FOLDER/jobs" ;;
    *watch=1*) ;;
    *) cat "$FOLDER/state.json" ;;
esac
"""


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wheels():
    """Return the folder with the locked packages' wheels; fetch them if another lock, or none, was fetched before."""
    folder = WHEELS / hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    WHEELS.parent.mkdir(exist_ok=True)
    with WHEELS.with_suffix(".lock").open("w") as held:  # several processes run tests
        fcntl.flock(held, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(WHEELS, ignore_errors=True)
            WHEELS.mkdir(parents=True)
            with tempfile.TemporaryDirectory(dir=WHEELS) as new:
                into = f"{new}/wheels"
                pip("download", "--require-hashes", "--no-deps", "--only-binary=:all:", "-r", LOCK, "-d", into)
                Path(into).rename(folder)
    return folder


def pip(*words):
    return run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with the command line alone."""
    folder = tmp_path_factory.mktemp("installed")
    pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder / "dist", ROOT)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    found = "--no-index", "--find-links", folder / "dist", "--find-links", wheels()
    pip("--python", folder / "venv/bin/python", "install", "--no-compile", *found, "punctual-operator[cli]")
    return folder / "venv"


@pytest.fixture
def punctual_(environment, tmp_path):
    """The installed command as a function, in a folder with a job and beside a kubectl that knows the same state."""
    (tmp_path / "bin").mkdir()
    kubectl = tmp_path / "bin/kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))
    (tmp_path / "state.json").write_text(json.dumps({"kind": "List", "items": [POOL]}))
    ended = {"type": "ADDED", "object": {**JOB, "metadata": META, "status": END}}
    (tmp_path / "jobs").write_text(json.dumps(ended) + "\n")
    env = {"PATH": f"{tmp_path}/bin:{os.defpath}", "HOME": str(tmp_path), "FOLDER": str(tmp_path), "COLUMNS": "100"}

    def call(*words, stdin=""):
        return run(environment / "bin/punctual", *words, cwd=tmp_path, env=env, input=stdin)

    return call


def test_no_cluster_library_is_installed_beside_it(environment):
    script = f"import importlib.util as u; print([m for m in {CLUSTER_LIBRARIES} if u.find_spec(m)])"
    assert run(environment / "bin/python", "-c", script).strip() == "[]"
    names = run(
        environment / "bin/python", "-c", "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    )
    locked = set(re.findall(r"^([a-z0-9-]+)==", LOCK.read_text(), re.MULTILINE))
    assert {re.sub("[_.]", "-", name).lower() for name in names.split()} <= {"punctual-operator"} | locked


def test_version_and_help(punctual_, environment):
    assert punctual_("--version") == punctual_("version") == f"{punctual.__version__}\n"
    assert "plan" in punctual_("--help")
    plugin = run(environment / "bin/kubectl-punctual", "--help")
    assert plugin.startswith("Usage: kubectl punctual")
    assert run(environment / "bin/kubectl_complete-punctual", "wh") == "why\n:4\n"


def test_crds(punctual_):
    kinds = [body["spec"]["names"]["kind"] for body in yaml.safe_load_all(punctual_("crds"))]
    assert "DivisibleJob" in kinds


@pytest.mark.parametrize("words", [(), ("--pool-state", "state.json")], ids=["kubectl", "saved"])
def test_plan(punctual_, words):
    assert "demo/first would be promised by pool main" in punctual_("plan", "job.yaml", "-n", "demo", *words)
    assert json.loads(punctual_("plan", "job.yaml", "-o", "json", *words))["admitted"] == "True"


def test_watch_and_timeline(punctual_, tmp_path):
    assert "first: Completed" in punctual_("watch", "first", "--record", "run.jsonl")
    punctual_("timeline", "run.jsonl", "--svg", "run.svg")
    assert (tmp_path / "run.svg").read_text().startswith("<svg")


def test_simulate(punctual_, tmp_path):
    line = json.dumps({"id": "a", "arrival": 0, "load": 10, "deadline": 1000})
    assert json.loads(punctual_("simulate", "jobs", "-", "--json", "--svg", "sim.svg", stdin=line))["jobs"]
    assert "promised" in punctual_("simulate", "jobs", "-", stdin=line)
    assert (tmp_path / "sim.svg").exists()


def test_krews_archive_installs_itself_at_its_first_start(tmp_path):
    from krew_lib.archive import build

    with tarfile.open(fileobj=io.BytesIO(build())) as archive:
        archive.extractall(tmp_path / "store", filter="data")
    (tmp_path / "bin").mkdir()
    for name in ("kubectl-punctual", "kubectl_complete-punctual"):  # as krew links it, and as its caveats say
        (tmp_path / "bin" / name).symlink_to(tmp_path / "store/kubectl-punctual")
    python = f"{sys.base_prefix}/bin"
    env = {"PATH": f"{tmp_path}/bin:{python}:{os.defpath}", "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    env["PIP_FIND_LINKS"] = str(wheels())
    assert run(tmp_path / "bin/kubectl_complete-punctual", "wh", env=env) == ":4\n"
    assert run(tmp_path / "bin/kubectl-punctual", "--version", env=env) == f"{punctual.__version__}\n"
    assert run(tmp_path / "bin/kubectl_complete-punctual", "wh", env=env) == "why\n:4\n"
    assert "Usage: kubectl punctual" in run(tmp_path / "bin/kubectl-punctual", "-h", env={**env, "PIP_FIND_LINKS": ""})
    assert len(list((tmp_path / ".cache/kubectl-punctual").iterdir())) == 1


def test_bench(punctual_):
    assert json.loads(punctual_("bench", "admission", "--quick", "--json"))["fast_us"]["decisions"]
