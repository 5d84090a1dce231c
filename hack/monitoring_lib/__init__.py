"""Parts of hack/monitoring."""
