"""How the project speaks: jobs, promises and processors are things, so no word for a person stands for one."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PERSONS = re.compile(r"\b(who|whose|whom|whoever|nobody|somebody|anybody|everybody)\b", re.IGNORECASE)
OF_PEOPLE: dict[str, str] = {}
"""Lines that are about people, with the reason."""
ELSEWHERE = ("tests/", "requirements/", "docs/papers/", "docs/img/", "LICENSE")


def test_no_thing_is_called_as_people_are():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = []
    for name in listed:
        path = ROOT / name
        if name.startswith(ELSEWHERE) or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [
            f"{name}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if PERSONS.search(line) and line.strip() not in OF_PEOPLE
        ]
    assert not found, "\n".join(found)
