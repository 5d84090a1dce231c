"""The shape of the program: who may import whom, and what the pure core may not even mention."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PURE = ("theory", "control", "linger", "scheduling", "rates", "guests", "reservations", "profiles")
FORBIDDEN = re.compile(r"\b(time|random)\.|\b(asyncio|logging|datetime|kopf|kubernetes)\b|\bfrom (time|random) ")


def pure_modules():
    return sorted(path for name in PURE for path in (ROOT / "operator/punctual" / name).rglob("*.py"))


def forbidden_words(source):
    """Return what the code, without its comments and strings, mentions and may not."""
    lines = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in {tokenize.NAME, tokenize.OP}:
            spaced = f" {token.string}" if token.type == tokenize.NAME else token.string
            lines[token.start[0]] = lines.get(token.start[0], "") + spaced
    return [f"{n}:{text}" for n, text in lines.items() if FORBIDDEN.search(text + " ")]


@pytest.mark.timeout(120)
def test_the_import_contracts_hold():
    lint = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_there_is_a_pure_core_to_look_at():
    assert {path.parent.name for path in pure_modules()} >= {"theory", "scheduling"}


@pytest.mark.parametrize("path", pure_modules(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_pure_core_mentions_no_clock_loop_log_dice_or_cluster(path):
    assert forbidden_words(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\nnow = time.time()",
        "from time import monotonic",
        "from random import random as dice",
        "x = np.random.default_rng()",
        "import asyncio",
        "from kubernetes import client",
        "logging.getLogger()",
        "from datetime import datetime",
    ],
)
def test_what_the_core_may_not_mention_is_found(source):
    assert forbidden_words(source + "\n")


@pytest.mark.parametrize(
    "source", ['"""It all ends at one time."""', "x = 1  # kubernetes does it", "start_time.x", "lifetime = 3"]
)
def test_words_and_names_are_free(source):
    assert not forbidden_words(source + "\n")


READERS = ("cli", "kube", "sim", "runtime", "benchmarks", "view")
INSIDE = re.compile(r"\bpool\._[a-z]")


def test_readers_of_a_pool_use_its_view():
    """A Pool's state and stages are its own: what reads them could not be told apart from what changes them."""
    found = []
    for folder in (*(ROOT / "operator/punctual" / name for name in READERS), ROOT / "tests", ROOT / "hack"):
        for path in sorted(folder.rglob("*.py")):
            if path != Path(__file__):
                found += [
                    f"{path.relative_to(ROOT)}: {line.strip()}"
                    for line in path.read_text().splitlines()
                    if INSIDE.search(line)
                ]
    assert not found


KINDS = re.compile(r"\b(FastSchedule|StatisticalQueue|UtilizationSchedule)\b|schedule\.kind\b")
PLAN = re.compile(r"\bExactSchedule\b")
CHOICE = "engine/admission_mode.py"


def test_one_module_alone_tells_the_kinds_of_schedules_apart():
    folder = ROOT / "operator/punctual/scheduling"
    known = {path for name in ("engine", "state") for path in (folder / name).glob("*.py") if path != folder / CHOICE}
    assert [path.name for path in sorted({*known, folder / "pool.py"}) if KINDS.search(path.read_text())] == []
    assert KINDS.search((folder / CHOICE).read_text())
    plans = {path.name for path in known if PLAN.search(path.read_text())}
    assert plans == {"planner.py", "pool_state.py"}, "a plan is put in force by Planner.follow, and is there at first"


def test_terms_of_promises_are_told_from_the_spec_in_one_place():
    told = re.compile(r"(?:spec|asked|old|applied)\.(?:fluid|loose)\b")
    folder = ROOT / "operator/punctual/scheduling"
    assert [path.name for path in sorted(folder.rglob("*.py")) if told.search(path.read_text())] == ["terms.py"]


METHODS, FIELDS, MODULES = 25, 20, 16


def classes_of(path):
    """Yield the classes of a module: name, number of methods, of fields if it is a dataclass that can change."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ClassDef):
            continue
        methods = sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
        decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        changes = "dataclass" in decorators and "frozen" not in decorators
        yield node.name, methods, sum(isinstance(part, ast.AnnAssign) for part in node.body) if changes else 0


def test_no_class_and_no_folder_of_the_core_is_too_large_to_be_one_thing():
    paths = [*pure_modules(), *sorted((ROOT / "operator/punctual/sim").glob("*.py"))]
    large = [
        f"{path.name}: {name} has {methods} methods, {fields} fields"
        for path in paths
        for name, methods, fields in classes_of(path)
        if methods > METHODS or fields > FIELDS
    ]
    assert not large
    modules = [path.parent for path in paths if path.name != "__init__.py"]
    assert {folder.name: n for folder in modules if (n := modules.count(folder)) > MODULES} == {}
