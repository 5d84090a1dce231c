"""Who meets a reason finds it in the documentation, and nothing there is made up."""

import re
from pathlib import Path

from punctual import reasons

PAGE = Path(__file__).parents[2] / "docs" / "reasons.md"


def words():
    return {value for name, value in vars(reasons).items() if name.isupper()}


def test_each_reason_has_one_section_and_each_section_is_a_reason():
    sections = re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(words())


def test_no_section_is_empty():
    parts = re.split(r"^### (\w+)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        assert len(text.split("\n## ")[0].split()) >= 5, name


def test_a_reason_is_one_word_told_once():
    assert all(re.fullmatch("[A-Z][A-Za-z]+", word) for word in words())
    assert len(words()) == sum(name.isupper() for name in vars(reasons))
