"""Simulation: the operator's own Pool on a modelled cluster under a virtual clock (``punctual simulate``)."""
