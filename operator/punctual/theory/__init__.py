"""Divisible load theory: cost model, partition of loads, and execution times; slices of CPU on shared nodes."""
