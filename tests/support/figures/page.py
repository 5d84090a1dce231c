"""Where points, pictures and words of figures are kept."""

import json
import subprocess
from pathlib import Path
from typing import Any

from figures.figure import Figure, Found, Size, dump
from figures.index import FIGURES

ROOT = Path(__file__).resolve().parents[3]
POINTS, PICTURES, PAGE = ROOT / "docs/papers", ROOT / "docs/img/papers", ROOT / "docs/papers.md"
MARKS = "<!-- figures: made by hack/papers -->", "<!-- end of figures -->"


def keep(figure: Figure, found: Found, size: Size, *, seconds: float) -> None:
    """Write a figure's points."""
    POINTS.mkdir(parents=True, exist_ok=True)
    document = {
        "figure": figure.name,
        "seeds": size.seeds,
        "time_units": figure.time_units * size.stretch,
        "commit": commit(),
        "cpu_seconds": round(seconds),
        "points": found.document(),
    }
    (POINTS / f"{figure.name}.json").write_text(dump(document))


def read(name: str) -> dict[str, Any] | None:
    """Return what is kept of a figure."""
    path = POINTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def picture(figure: Figure, found: Found) -> None:
    """Draw a figure."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.draw(found).savefig(PICTURES / f"{figure.name}.svg", metadata={"Date": None, "Creator": None})


def write() -> None:
    """Draw all that is kept, and put the words into the page."""
    for name, figure in FIGURES.items():
        if document := read(name):
            picture(figure, Found.of(document["points"]))
    head, first, rest = PAGE.read_text().partition(MARKS[0])
    _, last, tail = rest.partition(MARKS[1])
    if not last:
        raise SystemExit(f"hack/papers: {PAGE} lacks the marks {MARKS[0]} and {MARKS[1]}")
    PAGE.write_text(f"{head}{first}\n\n{words()}\n{last}{tail}")


def words() -> str:
    """Return what the page says of all figures."""
    return "\n".join(
        part for name, figure in FIGURES.items() if (document := read(name)) for part in _part(figure, document)
    )


def _part(figure: Figure, document: dict[str, Any]) -> list[str]:
    found = Found.of(document["points"])
    size = f"{document['seeds']} seeds"
    if figure.name != "6.12" and figure.name[0].isdigit():  # the others' lengths are no time, or differ
        size += f", {document['time_units'] / 1e6:g}·10⁶ time units a point"
    spent = f"{document['cpu_seconds']} s of CPU at {document['commit']}"
    how = "computed" if figure.name == "4.5" else f"{size}, {spent}"
    return [
        f"### {figure.name}: {figure.title}",
        "",
        f"![{figure.alt}](img/papers/{figure.name}.svg)",
        "",
        f"- **Parameters:** {figure.parameters}. [Points](papers/{figure.name}.json): {how}.",
        f"- **Published:** {figure.published}.",
        f"- **Ours:** {figure.words(found)}".replace(":** \n", ":**\n"),
        "",
    ]


def commit() -> str:
    """Return the checkout's commit, with a plus where files of the operator differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno", "--", "operator") else "")
