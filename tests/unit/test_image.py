"""The image's locks say what was tested, and all that the project needs at run time."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def locked(name):
    """Name and version of everything in a lock."""
    text = (ROOT / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^ \n]+)", text, re.MULTILINE))


def names(requirements):
    return {re.match(r"[A-Za-z0-9-]+", one)[0].lower() for one in requirements}


@pytest.mark.parametrize("lock", ["image.lock", "build.lock"])
def test_the_image_has_the_versions_that_are_tested(lock):
    assert locked(lock).items() <= locked("dev.lock").items()


def test_the_locks_have_all_that_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    assert names(extras["operator"] + extras["agent"] + extras["cli"]) <= locked("image.lock").keys()
    assert names(project["build-system"]["requires"]) <= locked("build.lock").keys()
