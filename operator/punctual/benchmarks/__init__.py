"""Benchmarks of the core against the papers' own algorithms (``punctual bench``)."""
