"""Benchmarks of the core beside the papers' own algorithms (``punctual bench``)."""
