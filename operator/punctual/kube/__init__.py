"""The edge to Kubernetes: I/O, no decisions."""
