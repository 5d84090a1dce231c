"""An HTTP server on the loopback that has one file, knows byte ranges, and can be told to misbehave."""

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EMPTY = {
    "nginx, Apache, Go": (200, {}),
    "chunked": (200, {"Transfer-Encoding": "chunked"}),
    "S3, Cloud Storage, Azure": (416, {"Content-Range": "bytes */0"}),
    "older Go": (416, {}),
    "MinIO, Azurite": (206, {"Content-Range": "bytes 0--1/0"}),
    "tower-http": (206, {"Content-Range": "bytes 0-0/0", "Content-Length": "1"}),
}
"""What servers answer, by name, to a request for the first byte of an empty file."""


class Files(ThreadingHTTPServer):
    """Serves ``data`` under any path; ``manner`` says how, ``spans`` when it was sent."""

    daemon_threads = True

    def __init__(self, data=b"", *, manner="good", host="127.0.0.1", port=0, pace=None):
        super().__init__((host, port), _Handler)
        self.data = data
        self.manner = manner
        self.pace = pace
        """Bytes per second; None: at once."""
        self.wants = None
        """The header Authorization without which nobody gets anything; None: anybody does."""
        self.sends_to = None
        """Where it redirects who asks for /elsewhere."""
        self.says = {"ETag": '"one"'}
        """Headers that tell one version of ``data`` from another."""
        self.asked = []
        """Ranges asked for, as their headers said."""
        self.credentials = []
        """The header Authorization of each request, None: there was none."""
        self.spans = []
        """Begin and end of each answer with more than a byte."""
        self.busy_with, self.busy_for, self.busy_says = 503, 2, {}
        """What a server that is busy answers, how often, and with which headers."""
        self.left = threading.Event()
        """Set: who hangs goes on."""
        self.troubles = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/data"

    @property
    def elsewhere(self):
        return f"http://127.0.0.1:{self.server_port}/elsewhere"


@contextlib.contextmanager
def serving(data=b"", **more):
    """Run a server."""
    server = Files(data, **more)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.left.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, data = self.server, self.server.data
        asked = self.headers.get("Range", "")
        server.asked.append(asked)
        server.credentials.append(self.headers.get("Authorization"))
        if server.sends_to and self.path == "/elsewhere":
            self._answer(302, b"", {"Location": server.sends_to})
            return
        if server.wants is not None and server.wants != server.credentials[-1]:
            self._answer(401, b"", {"WWW-Authenticate": "Bearer"})
            return
        manner = server.manner
        if manner == "missing":
            self.send_error(404)
            return
        if manner == "busy" and server.troubles < server.busy_for:
            server.troubles += 1
            self._answer(server.busy_with, b"", server.busy_says)
            return
        if manner == "ranges unknown" or not asked:
            self._answer(200, data)
            return
        if manner == "shrinks" and len(server.asked) > 1:
            data = data[:10]
        first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
        if first >= len(data):
            code, headers = EMPTY.get(manner, (416, {"Content-Range": f"bytes */{len(data)}"}))
            self._answer(code, b"", headers)
            return
        last = min(last, len(data) - 1)
        if manner == "other range" and last > 0:
            first, last = 0, last - first
        size = "*" if manner == "size unknown" else len(data)
        says = {"ETag": f'"{len(server.asked)}"'} if manner == "changes" else server.says
        self._answer(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{size}", **says})

    def _answer(self, code, body, headers=()):
        server = self.server
        self.send_response(code)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if "Transfer-Encoding" in headers:
            body = b"0\r\n\r\n"
        elif "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            if len(body) > 1 and server.manner == "short":
                self.wfile.write(body[: max(1, len(body) // 2)])
                self.close_connection = True
            elif len(body) > 1 and server.manner == "hangs":
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                server.left.wait()
                self.close_connection = True
            else:
                self._send(body)
        if len(body) > 1:
            server.spans.append((began, time.monotonic()))

    def _send(self, body):
        pace = self.server.pace
        step = len(body) if pace is None else max(1, pace // 20)
        for at in range(0, len(body), max(1, step)):
            self.wfile.write(body[at : at + step])
            if pace is not None:
                self.server.left.wait(step / pace)

    def log_message(self, *_):
        pass
