"""What a cluster makes of pods: admission plugins, a scheduler and kubelets, on bodies and on time that a test moves.

Written from Kubernetes' documentation, not from the product: it imports nothing of it, so that a test can compare both.
What it has not: preemption, volumes, topology spread, several schedulers, swap.
"""
