"""docs/security.md names each right of the operator, and where its abuse is tried."""

import re
import runpy
from pathlib import Path

import helm_python
import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/security.md").read_text()
ABUSES = runpy.run_path(str(ROOT / "tests/api/test_policy.py"))["ABUSES"]


def section(title):
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows():
    """Return the rights of the operator's table as (resources, verbs, what it is tried as)."""
    for line in section("The operator").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            resources, _, verbs = cells[0].partition(": ")
            yield re.findall("`(.*?)`", resources), re.findall(r"\b[a-z]+\b", verbs.partition(" `")[0]), cells[-1]


def granted():
    """Return what the chart's roles let the operator's account do, as (resource, verb)."""
    with helm_python.Chart.load(ROOT / "charts" / "punctual") as chart:
        texts = chart.render({"page": {"enabled": True}}, name="punctual", namespace="lab")
    objects = [o for path, text in texts.items() if "operator/rbac" in path for o in yaml.safe_load_all(text) if o]
    return {
        (resource, verb)
        for o in objects
        for rule in o.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_each_right_of_the_operator_has_a_row_and_each_row_a_right():
    assert {(resource, verb) for resources, verbs, _ in rows() for resource in resources for verb in verbs} == granted()


def test_each_abuse_that_is_tried_is_of_a_row_and_the_other_way_round():
    named = {one for _, _, tried in rows() for one in re.findall("`([a-z]+ [a-z]+)`", tried)}
    assert named == {right for right, _, _ in ABUSES.values()}
    for resources, verbs, tried in rows():
        for right in re.findall("`([a-z]+ [a-z]+)`", tried):
            assert right.split() in [[resource, verb] for resource in resources for verb in verbs]


def test_tests_that_are_named_exist():
    names = set(re.findall(r"`(?:tests/api/)?(test_\w+\.py)`", TEXT))
    assert names >= {"test_policy.py", "test_agent_reads.py"}
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert names <= there
