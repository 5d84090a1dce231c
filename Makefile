# Everything a developer does, and everything it needs: each target installs what it lacks.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: help venv lint test test-quick test-api test-cluster demo chaos edge bench experiments papers mutants nightly nightly-experiments docs clean

help: ## what there is to do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: $(READY) ## .venv with all that developing needs, and .venv/bin/punctual

$(READY): pyproject.toml requirements/dev.lock hack/venv
	hack/venv $(VENV)

lint: $(READY) ## style, types, layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

test: lint ## all tests: core, a real API server, a real kind cluster, cgroup v2
	hack/test

test-quick: $(READY) ## tests that need no server
	$(VENV)/bin/pytest -q -n auto --dist worksteal tests/unit tests/property tests/papers

test-api: $(READY) ## tests against a real API server
	$(VENV)/bin/pytest -q tests/api

test-cluster: $(READY) ## tests on a real kind cluster
	$(VENV)/bin/pytest -q tests/cluster

demo: $(READY) ## a cluster, Punctual on it, jobs with deadlines (DEMO="--prometheus": and a Prometheus)
	hack/demo $(DEMO)

chaos: $(READY) ## ten minutes in which everything goes wrong at random on kind, then the ledger (CHAOS="--minutes 60 --seed 7")
	hack/chaos $(CHAOS)

edge: $(READY) ## the whole edge on virtual time, with every fault by seed (EDGE="--seeds 1000", EDGE="--replay 7")
	hack/edge $(EDGE)

bench: $(READY) ## numbers, as JSON, with the machine they come from
	hack/bench

experiments: $(READY) ## real programs under control on kind: steps, responses, many jobs, guests, over an hour (EXPERIMENTS="disturbed --jobs 60")
	hack/experiments $(EXPERIMENTS)

papers: $(READY) ## the papers' figures again, reduced: points, pictures, words (PAPERS="--full 4.6" takes hours)
	hack/papers $(PAPERS)

nightly: $(READY) ## 10,000 seeds of the edge, the properties with many more examples, two chapters in full; crowds, and a kill at every write, on a real API server
	hack/edge --seeds 10000
	HYPOTHESIS_PROFILE=nightly $(VENV)/bin/pytest -q tests/api/test_edge_model.py --timeout 3600
	HYPOTHESIS_PROFILE=nightly $(VENV)/bin/pytest -q tests/property --timeout 3600
	HYPOTHESIS_PROFILE=nightly PUNCTUAL_WORLDS=100000 $(VENV)/bin/pytest -q tests/property/test_misfits.py --timeout 36000
	HYPOTHESIS_PROFILE=nightly $(VENV)/bin/pytest -q tests/papers/test_chapter6_fast.py tests/papers/test_chapter7_miss_ratio.py --timeout 3600
	HYPOTHESIS_PROFILE=nightly $(VENV)/bin/pytest -q tests/api/test_bad_manifests.py tests/api/test_big_specs.py tests/api/test_crowds.py tests/api/test_interrupted.py

nightly-experiments: $(READY) ## 100 jobs of a CPU minute on disturbed nodes on kind, five hours
	hack/experiments disturbed --jobs 100 --cpu-seconds 60

mutants: $(READY) ## changes the core in 100 places, one at a time: does a test fail? hours (MUTANTS="--sample 20 --seed 7")
	nice hack/mutants $(MUTANTS)

docs: $(READY) ## generated pages and manifests: crds/, the chart's copies, docs/api.md, docs/metrics.md
	hack/generate

clean: ## the cluster, the virtual environment and everything built
	-hack/cluster down
	rm -rf $(VENV) build dist
