"""Two bulk-synchronous programs of two ranks: all they wait for is each other's data, over TCP.

They run in Punctual's image. Rank 0 listens, rank 1 connects to PEER. Each reports its iterations a few times a second.
"""

from __future__ import annotations

EXCHANGE = """
import os, socket, time
import numpy

rank = int(os.environ["RANK"])
if rank == 0:
    link = socket.create_server(("", 7000)).accept()[0]
else:
    end = time.monotonic() + 60
    while True:
        try:
            link = socket.create_connection((os.environ["PEER"], 7000))
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def exchange(mine):
    \"\"\"Send an array to the other rank, and return one of the same shape from there.\"\"\"
    theirs = numpy.empty_like(mine)
    if rank == 0:
        link.sendall(mine)
    left = memoryview(theirs).cast("B")
    while left:
        count = link.recv_into(left)
        if not count:
            raise SystemExit("the other rank is gone")
        left = left[count:]
    if rank == 1:
        link.sendall(mine)
    return theirs


told = 0.0


def report(done):
    global told
    if time.monotonic() - told < 0.25:
        return
    told = time.monotonic()
    with open("/punctual/progress.tmp", "w") as file:
        file.write(str(done))
    os.replace("/punctual/progress.tmp", "/punctual/progress")


done = 0
"""
HEAT = (
    EXCHANGE
    + """
grid = numpy.zeros((258, 1024))
grid[0] = 100.0 * (1 - rank)
while True:
    for sweep in range(10):
        edge = exchange(numpy.ascontiguousarray(grid[1 if rank else -2]))
        grid[0 if rank else -1] = edge
        grid[1:-1, 1:-1] = 0.25 * (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:])
    done += 1
    report(done)
"""
)
"""The heat in a plate by Jacobi's method. Each rank has half of the plate, and gets the other's edge for each sweep."""
SORT = (
    EXCHANGE
    + """
random = numpy.random.default_rng(rank)
while True:
    keys = random.random(1 << 17)
    low = keys < 0.5
    given = numpy.zeros(1 << 17)
    part = keys[low] if rank else keys[~low]
    given[: part.size] = part
    taken = exchange(given)
    mine = numpy.sort(numpy.concatenate([keys[~low] if rank else keys[low], taken[taken > 0]]))
    done += 1
    report(done)
"""
)
"""A sort of random keys: each rank keeps one half of the range and sends the rest, a megabyte, to the other."""
SOLVERS = {"heat": HEAT, "sort": SORT}
