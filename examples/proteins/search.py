"""Searches each protein of one organism among those of another: a real program (blastp), run once for each record.

A unit is a share of the file's bytes. `worker.records` finds the proteins that begin in it, whole, so each protein is
searched exactly once wherever the ranges are cut. The hits of a range are its result; `search.py reduce` prints all.
"""

import subprocess
import sys

from punctual import worker

BLASTP = ("blastp", "-db", "C", "-evalue", "1e-5", "-max_target_seqs", "5", "-outfmt", "6 qseqid sseqid bitscore")


def main(queries: str) -> None:
    """Search the proteins of this range."""
    hits = b""
    for protein in worker.records(queries, separator=b"\n>"):
        hits += subprocess.run(BLASTP, input=protein, stdout=subprocess.PIPE, check=True).stdout  # noqa: S603  a constant
    worker.result(hits)


def reduce() -> None:
    """Print the hits of all ranges in the order of the file."""
    for result in worker.results():
        sys.stdout.write(result.data.decode())


if __name__ == "__main__":
    reduce() if sys.argv[1:] == ["reduce"] else main(*sys.argv[1:])
