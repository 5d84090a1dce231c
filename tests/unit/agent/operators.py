"""An operator's end of the wire: a real TLS server whose answers the test scripts."""

import contextlib
import datetime as dt
import ipaddress
import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from punctual.wire import REPORT_PATH, Report, SetPoints

NOW = dt.datetime.now(dt.UTC)


def _certificate(name, key, *, issuer, issuer_key, ca):
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - dt.timedelta(hours=1))
        .not_valid_after(NOW + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if not ca:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


class Authority:
    """A CA and the server's certificate by it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"punctual {folder.name}")])
        own = _certificate(f"punctual {folder.name}", key, issuer=name, issuer_key=key, ca=True)
        server = _certificate("operator", server_key, issuer=name, issuer_key=key, ca=False)
        self.ca = own.public_bytes(serialization.Encoding.PEM)
        self.chain = folder / "server.pem"
        self.chain.write_bytes(
            server_key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + server.public_bytes(serialization.Encoding.PEM)
        )


class Operator:
    """Answers what ``answer`` holds and remembers what it was told. ``port`` 0 takes a free one."""

    def __init__(self, authority: Authority, port: int = 0) -> None:
        self.reports: list[Report] = []
        self.tokens: list[str] = []
        self.connections = 0
        self.status = 200
        self.answer: bytes = SetPoints(epoch=1).model_dump_json().encode()
        self.respond = None
        self.silent = False
        self._closing = threading.Event()
        self.heard = threading.Condition()
        operator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def setup(self):
                super().setup()
                operator.connections += 1

            def do_POST(self):
                assert self.path == REPORT_PATH
                report = Report.model_validate(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                with operator.heard:
                    operator.reports.append(report)
                    operator.tokens.append(self.headers["Authorization"])
                    operator.heard.notify_all()
                if operator.silent:
                    operator._closing.wait(20)
                    return
                body = operator.respond(report).model_dump_json().encode() if operator.respond else operator.answer
                self.send_response(operator.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_):
                """A client that goes away is what the tests are about."""

            def get_request(self):
                raw, address = self.socket.accept()
                raw.settimeout(60)
                try:
                    one = operator.context.wrap_socket(raw, server_side=True)
                except OSError:
                    raw.close()
                    raise
                operator.open.append(one)
                return one, address

        self.open: list[ssl.SSLSocket] = []
        self.present(authority)
        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.url = f"https://localhost:{self.port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def present(self, authority: Authority) -> None:
        """Show this authority's certificate from the next connection on."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(authority.chain)

    def hang_up(self) -> None:
        """End the connections there are."""
        for one in self.open:
            with contextlib.suppress(OSError):  # close() alone leaves it open to the thread that reads
                one.shutdown(socket.SHUT_RDWR)
        self.open.clear()

    def close(self) -> None:
        self._closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.hang_up()
        self._thread.join()
