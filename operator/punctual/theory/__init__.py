"""Divisible load theory: what a load costs, how it is cut, how long it takes."""
