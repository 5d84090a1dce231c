"""A failed test that passes alone is told from one that fails again."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNSTEADY = """
from pathlib import Path
def test_steady(): pass
def test_unsteady():
    seen = Path(__file__).with_name("seen")
    assert seen.exists() or seen.touch()
"""
FAULTY = "def test_faulty(): assert False\n"


@pytest.fixture
def runs(tmp_path):
    """A function that runs tests of a source, then the failed ones again: the two exit codes and what is unsteady."""
    folder, output = tmp_path / "tests", tmp_path / "output"
    folder.mkdir()
    own = ["-p", "no:cacheprovider"]

    def run(source, *, cached=True):
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_it.py").write_text(source)
        cache = ["-o", f"cache_dir={output}/cache"] if cached else own
        first = subprocess.run([ROOT / ".venv/bin/pytest", "-q", *cache, folder], capture_output=True, check=False)
        output.mkdir(exist_ok=True)
        again = subprocess.run([ROOT / "hack/again", folder, output], capture_output=True, text=True, check=False)
        unsteady = output / "unsteady"
        return first.returncode, again.returncode, unsteady.read_text().split() if unsteady.exists() else []

    return run


def test_a_test_that_passes_alone_is_named_as_unsteady(runs):
    assert runs(UNSTEADY) == (1, 0, ["unsteady:", "test_it.py::test_unsteady"])


def test_a_test_that_fails_again_fails_the_run_beside_an_unsteady_one(runs):
    assert runs(UNSTEADY + FAULTY) == (1, 1, [])


def test_a_run_that_broke_off_is_no_run_to_repeat(runs):
    assert runs(FAULTY, cached=False) == (1, 1, [])
