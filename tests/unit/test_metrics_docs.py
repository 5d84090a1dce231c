"""docs/metrics.md is made from metric_names."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_not_stale(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "hack"))
    import metrics_page

    assert (ROOT / "docs" / "metrics.md").read_text() == metrics_page.page(), "run: make docs"
