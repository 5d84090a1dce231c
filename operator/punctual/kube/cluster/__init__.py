"""The operator's view of the cluster: API client, informers, kopf, directory, nodes and pods."""
