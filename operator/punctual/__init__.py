"""Punctual: a Kubernetes operator that keeps deadlines."""

__version__ = "0.1.0"
