"""The programs of hack/ are held to the same standard as the product: ruff and mypy see all of them."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_ruff_and_mypy_see_each_program():
    """Neither tool finds a program without a suffix by itself."""
    files = [path for path in (ROOT / "hack").iterdir() if path.is_file() and not path.suffix]
    programs = {f"hack/{path.name}" for path in files if "python" in path.read_text().partition("\n")[0]}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert programs == {path for path in settings["mypy"]["files"] if path.startswith("hack/")}
    show = [sys.executable, "-m", "ruff", "check", "--show-files", "hack"]
    shown = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=True)
    assert {f"{ROOT}/{path}" for path in programs} <= set(shown.stdout.splitlines())
