"""The parts of `hack/cluster` and `hack/apiserver`. Standard library only, because they run before any venv exists."""
