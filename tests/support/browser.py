"""A headless browser that looks at the page. What its console says is an error."""

import contextlib

from lib import chromium
from playwright.async_api import async_playwright

SIZE = {"width": 1280, "height": 800}


@contextlib.asynccontextmanager
async def opened(address, *, scheme="light"):
    """Open a page; ``scheme``: light or dark. At the end, AssertionError if its console has told of anything."""
    said = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium.program(), args=["--no-sandbox"])
        try:
            page = await browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            await page.goto(address)
            yield page
        finally:
            await browser.close()
    assert not said, f"the console says {said}"


async def measured(page, name):
    """Return the milliseconds of script that each event of that name (page, update) took."""
    return await page.evaluate("name => performance.getEntriesByName(name).map(entry => entry.duration)", name)
