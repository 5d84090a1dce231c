"""Which nodes a pod may run on: the rules of its spec and of its volumes, for the core to compare with nodes."""
