"""Ports for servers that begin later, or again."""

import contextlib
import errno
import socket


@contextlib.contextmanager
def kept_port():
    """Yield a port that nobody else is given: no server that asks for any, no connection as the end it begins from.

    It is bound, for IPv4 and IPv6, and nobody listens, so whoever asks for just this port (with SO_REUSEADDR, as
    servers do) may.
    """
    with contextlib.ExitStack() as kept:
        while True:
            keeper = kept.enter_context(socket.socket())
            port = _bound(keeper, "127.0.0.1", 0)
            try:
                twin = kept.enter_context(socket.socket(socket.AF_INET6))
                twin.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                _bound(twin, "::1", port)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:  # another has it there: the next one
                    continue
            yield port  # also where there is no IPv6
            return


def _bound(keeper, host, port):
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind((host, port))
    return keeper.getsockname()[1]
