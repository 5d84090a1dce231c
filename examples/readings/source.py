"""A file server for the example: a table of readings, in byte ranges, no quicker than ``--rate``.

Any server that answers range requests will do in its place; this one makes its own data and needs nothing but Python.
Where AUTHORIZATION is set, it answers only requests with that value in their header Authorization.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def table(lines: int) -> bytes:
    """Return so many readings; they look random and are always the same."""
    made, state = [], 1
    for _ in range(lines):
        state = state * 69069 % 2**32 + 1
        made.append(f"station-{state // 2**16 % 10},{(state // 2**12 % 500 - 150) / 10}\n")
    return "".join(made).encode()


class Source(ThreadingHTTPServer):
    """Serves ``data`` under any path.

    ``rate``: bytes per second and connection, None: as quick as it can; ``opening``: seconds before each answer;
    ``secret``: the header Authorization that it wants, empty: none.
    """

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], data: bytes, rate: int | None, *, opening: float = 0.0, secret: str = ""
    ) -> None:
        super().__init__(address, Answer)
        self.data, self.rate, self.opening, self.secret = data, rate, opening, secret


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server: Source

    def do_GET(self) -> None:
        """Send the range that is asked for.

        Print when it was asked for, when its first part was ready and when its last, and its first and last byte.
        """
        data, asked_at = self.server.data, time.monotonic()
        if self.server.secret and self.headers.get("Authorization") != self.server.secret:
            self.send_error(401)
            return
        time.sleep(self.server.opening)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2]), len(data) - 1)) if asked else (0, len(data) - 1)
        if first > last:
            self.send_error(416)
            return
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        step = max(1, (self.server.rate or 2**22) // 20)
        sent, opened, ended = first, 0.0, 0.0
        with contextlib.suppress(ConnectionError):  # a client that looks for a line's end hangs up there
            while sent <= last:
                part = data[sent : min(sent + step, last + 1)]
                if self.server.rate:
                    time.sleep(len(part) / self.server.rate)
                ended = time.monotonic()
                opened = opened or ended
                self.wfile.write(part)
                sent += len(part)
        print(f"{asked_at:.3f} {opened:.3f} {ended:.3f} {first} {sent - 1}", flush=True)

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


def main() -> None:
    """Serve for ever."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rate", type=int, help="bytes per second")
    parser.add_argument("--opening", type=float, default=0.0, help="seconds before each answer")
    asked = parser.parse_args()
    secret = os.environ.get("AUTHORIZATION", "")
    Source(("", asked.port), table(asked.lines), asked.rate, opening=asked.opening, secret=secret).serve_forever()


if __name__ == "__main__":
    main()
