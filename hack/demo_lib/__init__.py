"""Parts of hack/demo."""
