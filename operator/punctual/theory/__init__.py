"""Divisible load theory: cost model, partition of loads, and execution times."""
