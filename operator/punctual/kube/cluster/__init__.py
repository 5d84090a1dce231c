"""What the API server has, read and kept: client, informers, kopf, directory, nodes and pods."""
