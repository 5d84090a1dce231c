"""Ports for servers that begin later, or again."""

import contextlib
import socket


@contextlib.contextmanager
def kept_port():
    """Yield a port that nobody else is given: no server that asks for any, no connection as the end it begins from.

    It is bound and nobody listens, so whoever asks for just this port (with SO_REUSEADDR, as servers do) may.
    """
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield keeper.getsockname()[1]
