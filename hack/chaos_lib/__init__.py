"""Parts of hack/chaos."""
