"""A guarantee is a line of the page with a test that exists."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return functions | {target.id for target in targets if isinstance(target, ast.Name)}


def test_each_guarantee_names_a_test_that_is_there():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "guaranteed |" not in line]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, test in named:
            assert test in names_in(path), row
