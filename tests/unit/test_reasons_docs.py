"""Who meets a reason finds it in the documentation, and nothing there is made up."""

import re
from pathlib import Path

import pytest

from punctual import reasons

PAGE = Path(__file__).parents[2] / "docs" / "reasons.md"


def words():
    return {value for name, value in vars(reasons).items() if name.isupper()}


def test_each_reason_has_one_section_and_each_section_is_a_reason():
    sections = re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(words())


def sections():
    """Return the text of each reason's section."""
    parts = re.split(r"^### (\w+)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {name: text.split("\n## ")[0].strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize(("name", "text"), sections().items(), ids=sections())
def test_a_section_says_what_it_means_how_to_look_and_what_to_do(name, text):
    heads = re.findall(r"^\*\*([^*]+):\*\*", text, re.MULTILINE)
    assert heads == ["How to look", "What to do"]
    means, look, do = re.split(r"^\*\*[^*]+:\*\*", text, flags=re.MULTILINE)
    assert len(means.split()) >= 5
    assert re.search(r"`kubectl [^`]+`", look), f"{name}: a command that shows it"
    assert do.strip().endswith(".")


def test_links_lead_somewhere():
    for path, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGE.read_text()):
        page = PAGE.parent / path if path else PAGE
        assert page.is_file(), path
        heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        assert not anchor or anchor in {re.sub(r"[^\w-]", "", h.lower().replace(" ", "-")) for h in heads}, (
            path,
            anchor,
        )


def test_the_index_of_runbooks_names_each_reason():
    index = (PAGE.parent / "runbooks/README.md").read_text()
    assert sorted(re.findall(r"\[(\w+)\]\(\.\./reasons\.md#\w+\)", index)) == sorted(words())


def test_a_reason_is_one_word_told_once():
    assert all(re.fullmatch("[A-Z][A-Za-z]+", word) for word in words())
    assert len(words()) == sum(name.isupper() for name in vars(reasons))
