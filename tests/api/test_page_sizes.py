"""The page on screens of many widths, in headless Chromium: nothing is cut off or lies upon something else."""

import contextlib
from itertools import pairwise

import pytest
from browser import opened
from shown import crowd

from punctual.kube.page.server import PageServer


@contextlib.asynccontextmanager
async def served():
    """Open the page of a crowd of jobs."""
    server = PageServer(crowd(jobs=40, nodes=8).read, viewers=None)
    port = await server.listen_on_loopback(0)
    try:
        async with opened(f"http://127.0.0.1:{port}") as page:
            await page.wait_for_function("() => performance.getEntriesByName('page').length")
            yield page
    finally:
        await server.stop()


async def boxes(page, *selectors):
    return [await page.locator(selector).first.bounding_box() for selector in selectors]


@pytest.mark.parametrize("width", [320, 375, 599, 601, 900, 1280])
async def test_the_page_is_as_wide_as_the_screen_and_its_times_do_not_overlap(width):
    async with served() as page:
        await page.set_viewport_size({"width": width, "height": 800})
        for ahead in ("0", "300", "3600", "21600", "86400"):
            await page.select_option("#ahead", ahead)
            await page.evaluate("() => new Promise(requestAnimationFrame)")
            labels = await page.evaluate("labels")
            assert "now" in [text for *_, text in labels]
            assert len(labels) >= 2
            assert all(right < left for (_, right, _), (left, *_) in pairwise(labels)), labels
            assert labels[-1][1] <= width
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_a_narrow_page_stacks_and_shows_state_deadline_and_slack_of_each_job():
    async with served() as page:
        await page.set_viewport_size({"width": 375, "height": 800})
        row = page.locator("#rows tr").first
        for column in (0, 1, 4, 5):
            cell = row.locator("td").nth(column)
            assert await cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth && cell.clientWidth > 0")
        await row.click()
        await page.wait_for_selector("#sentences p")
        jobs, why = await boxes(page, "#jobs", "#why")
        assert why["y"] >= jobs["y"] + jobs["height"]
        assert why["width"] == jobs["width"]
