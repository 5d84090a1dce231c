#!/usr/bin/env python3
"""Lets mpirun start its processes in other pods, without a remote shell and without keys.

    launch.py serve HOST      in all pods but the first: asks the first pod, HOST, what to run, and runs it
    launch.py HOST COMMAND    in the first pod, called by mpirun in place of ssh: has HOST run the command

A pod runs only what the pod that it asks tells it. Each asks at a port of its own: 7201 for the pod NAME-1, and so on.
"""

import signal
import socket
import subprocess
import sys
import time

PORT = 7200


def port(host: str) -> int:
    """Return the port at which a pod asks, from its name: solver-1.solver asks at 7201."""
    return PORT + int(host.partition(".")[0].rpartition("-")[2])


def serve(first: str) -> None:
    """Run what the first pod has to run here, until this pod ends."""
    mine = port(socket.gethostname())
    while True:
        try:
            with socket.create_connection((first, mine), timeout=5) as line:
                line.settimeout(None)
                command = line.makefile().readline()
                done = subprocess.run(["sh", "-c", command or "exit 1"], check=False)  # noqa: S603, S607  its purpose
                line.sendall(b"%d\n" % done.returncode)
        except OSError:  # it is not there yet, or has nothing to run
            time.sleep(0.2)


def run(host: str, command: list[str]) -> int:
    """Have a pod run a command; return its exit status."""
    with socket.create_server(("", port(host))) as listener:
        line, _ = listener.accept()
    with line:
        line.sendall(" ".join(command).encode() + b"\n")
        return int(line.makefile().readline() or 1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    match sys.argv[1:]:
        case ["serve", first]:
            serve(first)
        case [host, *command]:
            sys.exit(run(host, command))
