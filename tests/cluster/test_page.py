"""The page as its users meet it: `punctual page` forwards it from the operator on kind, and a browser shows it.

The pictures are in build/pictures/page afterwards.
"""

import contextlib
import os
import subprocess
import sys

import pytest
from browser import opened
from live import ROOT, eventually

PICTURES = ROOT / "build/pictures/page"
SLOW = {"deadline": "10m", "cost": {"perUnit": "300ms", "startup": "3s"}, "pause": 0.2}


@contextlib.contextmanager
def forwarded(cluster):
    """Run `punctual page`; yield the address that it prints."""
    words = [sys.executable, "-c", "from punctual.cli import main; main()", "page", "--port", "0", "--no-browser"]
    with subprocess.Popen(words, env={**os.environ, **cluster.env}, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert "http://127.0.0.1:" in line, line
            yield next(word for word in line.split() if word.startswith("http://"))
        finally:
            process.terminate()  # a shell may have its background jobs ignore SIGINT
            try:
                assert process.wait(30) == 0
            finally:
                process.kill()


@pytest.mark.timeout(420, func_only=True)
async def test_the_page_shows_jobs_as_they_run_and_explains_them(cluster, space):
    PICTURES.mkdir(parents=True, exist_ok=True)
    await eventually(cluster.in_order)
    with forwarded(cluster) as address:
        await space.apply(
            space.manifest("runs", units=400, processors={"max": 2}, **SLOW),
            space.manifest("refused", units=500_000, **SLOW),
        )
        await space.running("runs")
        async with opened(address) as page:
            row = page.locator("tbody tr", has_text=f"{space.namespace}/runs")
            await row.wait_for()
            await eventually(lambda: shows(row, "Running"))
            assert await shows(page.locator("tbody tr", has_text=f"{space.namespace}/refused"), "InfeasibleCapacity")
            await eventually(lambda: moved(row))
            chunks = len(space.status("runs")["chunks"])
            chart = page.locator("#chart")
            await eventually(lambda: labelled(chart, f"{chunks} chunks run"))

            await page.select_option("#namespace", space.namespace)
            assert await page.locator("tbody tr").count() == 2
            await page.locator("tbody tr").first.focus()
            await page.keyboard.press("ArrowDown")
            await page.keyboard.press("Enter")
            await page.locator("#sentences p").first.wait_for()
            assert await page.locator("#subject").text_content() == f"{space.namespace}/refused"
            told = space.condition("refused", "Admitted")["message"]
            assert told in " ".join(await page.locator("#sentences p").all_text_contents())
            await page.keyboard.press("Escape")
            assert not await page.locator("#why").is_visible()
            await page.keyboard.press("/")
            await page.keyboard.type("runs")
            assert await page.locator("tbody tr").count() == 1

            await row.click()
            await page.locator("#sentences p").first.wait_for()
            await page.screenshot(path=PICTURES / "light.png")
            await space.kubectl("delete", "dj", "runs")
            await eventually(lambda: gone(row))
        async with opened(address, scheme="dark") as page:
            await page.locator("tbody tr").first.wait_for()
            await page.screenshot(path=PICTURES / "dark.png")


async def shows(row, text):
    return text in (await row.text_content())


async def moved(row):
    """Whether the progress is above 0."""
    return await row.locator("progress").evaluate("bar => bar.value") > 0


async def labelled(chart, text):
    return text in await chart.get_attribute("aria-label")


async def gone(row):
    return await row.count() == 0
