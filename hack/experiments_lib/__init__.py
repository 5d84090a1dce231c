"""Parts of hack/experiments."""
