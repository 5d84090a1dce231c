"""How warm was it at each of ten stations? A large table is fetched piece by piece, one chunk after the other.

The table lies on a server (``source.py``), one line per reading: station, degrees. The job's ``spec.input`` says where;
what a chunk sees are the lines that begin in its units' share of the bytes (worker.pieces).

    python readings.py          the chunk's lines
    python readings.py reduce   joins the chunks' results
"""

from __future__ import annotations

import json
import sys

from punctual import worker

Sums = dict[str, list[float]]
"""By station: readings, their sum in tenths of a degree, the lowest and the highest of them."""


def add(sums: Sums, station: str, other: list[float]) -> None:
    """Add other sums of a station to what is there."""
    count, total, low, high = sums.get(station, [0, 0, other[2], other[3]])
    sums[station] = [count + other[0], total + other[1], min(low, other[2]), max(high, other[3])]


def main() -> None:
    """Work on the chunk, or reduce."""
    sums: Sums = {}
    if sys.argv[1:] == ["reduce"]:
        for _, _, data in worker.results():
            for station, other in json.loads(data).items():
                add(sums, station, other)
        for station, (count, total, low, high) in sorted(sums.items()):
            print(f"{station}  {count:7.0f} readings, {total / count / 10:5.1f} ({low / 10:.1f} to {high / 10:.1f})")
    else:
        for line in worker.pieces():
            station, _, degrees = line.decode().partition(",")
            tenths = round(10 * float(degrees))
            add(sums, station, [1, tenths, tenths, tenths])
    worker.result(json.dumps(sums, sort_keys=True))


if __name__ == "__main__":
    main()
