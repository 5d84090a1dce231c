"""Settings that all tests share."""

import asyncio
import os

from hypothesis import settings

# ci: the same examples in every run, few enough for a pull request. nightly: new ones, many (pytest --timeout=0).
settings.register_profile("ci", max_examples=50, derandomize=True, deadline=None, print_blob=True)
settings.register_profile("nightly", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# looptime asks for the current loop before tests that have none; untold, asyncio makes one that nobody closes
asyncio.set_event_loop(None)
