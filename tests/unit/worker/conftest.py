"""Programs as a chunk's pod would run them: a process of its own, its range in the environment."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


class Pod:
    """A chunk's surroundings in a temporary folder: PUNCTUAL_DIR, the offer, the termination message, the results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dir = folder / "punctual"
        self.offer = folder / "offer"
        self.message = folder / "termination-log"
        self.dir.mkdir(parents=True)
        self.process: subprocess.Popen[str] | None = None

    def environment(self, **more: object) -> dict[str, str]:
        own = {
            "PUNCTUAL_DIR": self.dir,
            "PUNCTUAL_OFFER": self.offer,
            "PUNCTUAL_TERMINATION_LOG": self.message,
        }
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PUNCTUAL_")}
        return clean | {name: str(value) for name, value in (own | more).items() if value is not None}

    def start(self, *program: object, **more: object) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *map(str, program)],
            env=self.environment(**more),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return self.process

    def run(self, *program: object, **more: object) -> tuple[int, str, str]:
        process = self.start(*program, **more)
        out, err = process.communicate(timeout=200)
        return process.returncode, out, err

    def read(self, name: str) -> int | None:
        try:
            text = (self.dir / name).read_text()
        except FileNotFoundError:
            return None
        assert text.endswith("\n"), f"{name} was seen half written: {text!r}"
        return int(text)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    one = Pod(tmp_path / "pod")
    yield one
    if one.process is not None:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def eventually() -> Callable[..., None]:
    def wait(condition: Callable[[], object], *, within: float = 100.0) -> None:
        limit = time.monotonic() + within
        while not condition():
            assert time.monotonic() < limit, "it did not happen in time"
            time.sleep(0.01)

    return wait
