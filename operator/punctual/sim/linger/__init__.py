"""Simulation of guests on nodes with work of their own: `punctual simulate linger`."""
