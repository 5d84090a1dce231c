"""What a pod asks of the cluster before it runs: the nodes that its rules and volumes allow, and what it requests."""
