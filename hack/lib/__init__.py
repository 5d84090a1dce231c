"""What `hack/cluster` and `hack/apiserver` are made of: standard library only, they run before any venv exists."""
