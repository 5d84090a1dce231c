"""The locks say what was tested, and have all that the project asks for."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def locked(name):
    """Names and versions in a lock: of some there are two, for older and newer Pythons."""
    text = (ROOT / "requirements" / name).read_text()
    return set(re.findall(r"^([a-z0-9-]+)==([^ \n]+)", text, re.MULTILINE))


def missing(lock, requirements):
    """What of the requirements a lock lacks, or has in a version that is not allowed."""

    def met(wanted):
        versions = [version for name, version in locked(lock) if name == canonicalize_name(wanted.name)]
        return versions and all(map(wanted.specifier.contains, versions))

    return [str(wanted) for wanted in map(Requirement, requirements) if not met(wanted)]


@pytest.mark.parametrize("lock", ["image.lock", "build.lock", "cli.lock"])
def test_the_image_has_the_versions_that_are_tested(lock):
    assert locked(lock) <= locked("dev.lock")


def test_the_locks_have_all_that_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    runs = extras["operator"] + extras["agent"] + extras["cli"]
    assert missing("image.lock", runs) == []
    assert missing("cli.lock", extras["cli"]) == []
    assert missing("build.lock", project["build-system"]["requires"]) == []
    others = [one for one in extras["dev"] if not one.startswith("punctual-operator[")]
    assert missing("dev.lock", runs + others) == []
    assert missing("build.lock", ["hatchling<1", "no-such"]) == ["hatchling<1", "no-such"]
