"""The chart, rendered by Helm itself and parsed."""

from pathlib import Path

import helm_python
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def chart():
    with helm_python.Chart.load(ROOT / "charts" / "punctual") as loaded:
        yield loaded


@pytest.fixture(scope="session")
def render(chart):
    """Render with values; give the objects."""

    def rendered(values=None, *, name="punctual", namespace="lab"):
        texts = chart.render(values or {}, name=name, namespace=namespace)
        documents = (d for path, text in texts.items() if path.endswith(".yaml") for d in yaml.safe_load_all(text))
        return [d for d in documents if d]

    return rendered
