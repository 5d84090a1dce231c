"""Punctual: a Kubernetes operator that keeps deadlines."""
