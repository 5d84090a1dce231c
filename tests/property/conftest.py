"""Properties take their time: many examples each, on a machine that may be starting a cluster beside them."""

import os
from pathlib import Path

import pytest

LIMIT = 3600 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 600


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))
