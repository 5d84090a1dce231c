"""Kubernetes' notations of durations, times and quantities: leaves, for the edge, the command line and the views."""
