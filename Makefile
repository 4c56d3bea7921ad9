# Every target sets up what it needs in .venv by itself: once, and again when the requirements
# change. Nothing but make, Python 3.11 or newer and a package index is assumed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
REQUIREMENTS := pyproject.toml app/models/pyproject.toml constraints.txt
TO_RUN := $(VENV)/.ready-to-run
TO_DEVELOP := $(VENV)/.ready-to-develop
# What measures, proves and records for the documentation.
LAB := PYTHONPATH=docs:tests $(BIN)/python -m lab
export PROMPT ?= ROMEO:
export SEED ?= 2
BACKEND ?= triton
VLLM_VERSION := 0.33.0

.DEFAULT_GOAL := help
.PHONY: help vllm demo test test-gpu equivalence sanitize gpu prove check format docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(TO_RUN) ## Watch speculative decoding on the bundled models (PROMPT="…" SEED=… to choose)
	@$(BIN)/acceptor generate --compare-plain --temperature 0.7 --seed "$$SEED" --prompt "$$PROMPT"

test: $(TO_DEVELOP) ## Run the tests
	@OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal

equivalence: $(TO_DEVELOP) ## Hold a fused backend to the oracle on a CUDA device (BACKEND=cupy BESIDE=triton)
	@OMP_NUM_THREADS=1 $(BIN)/python -m acceptor.backends.conformance --backend $(BACKEND) \
	  $(BESIDE:%=--beside %) --batches 10000 --workers $$(nproc) \
	  --json docs/data/equivalence-$(BACKEND).json

test-gpu: $(TO_DEVELOP) ## Run the tests that need a CUDA device, and record it
	@$(LAB).gpu --part tests --seconds 3600

sanitize: $(TO_DEVELOP) ## Watch a fused backend with compute-sanitizer (BACKEND=cupy)
	@$(LAB).gpu.sanitize --backend $(BACKEND)

gpu: $(TO_DEVELOP) ## Run all that needs a CUDA device, and record it in docs/data (SESSION="--seconds 600")
	@$(LAB).gpu $(SESSION)

prove: $(TO_DEVELOP) ## Prove the law of every policy, and write docs/proof.md's numbers (25 minutes)
	@OMP_NUM_THREADS=1 $(LAB).proof $(PROVE)

check: $(TO_DEVELOP) ## Format, lint, types, rooms, spelling and docs: everything but the tests
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/codespell
	@$(BIN)/sphinx-build --quiet --fail-on-warning docs docs/_build/html
	@echo "All checks passed."

format: $(TO_DEVELOP) ## Format the code and repair what lint can repair
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

docs: $(TO_DEVELOP) ## Build the documentation
	@$(BIN)/sphinx-build --quiet --fail-on-warning docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

clean: ## Remove what was generated; .venv stays
	rm -rf build dist docs/_build .*_cache .hypothesis *.egg-info app/models/build app/models/*.egg-info
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

vllm: $(TO_DEVELOP) ## Bring the Python files of the vLLM that its plug-in is tested in
	@$(BIN)/python -m pip download -qq --no-deps --dest $(VENV)/wheels vllm==$(VLLM_VERSION)
	@cd $(VENV)/wheels && ../bin/python -c 'import sys, zipfile; \
	  wheel = zipfile.ZipFile(sys.argv[1]); \
	  wheel.extractall("../vllm", [n for n in wheel.namelist() if n.endswith((".py", "METADATA"))])' vllm-*.whl
	@$(PIP_INSTALL) --no-deps --target $(VENV)/vllm msgspec
	@rm -r $(VENV)/wheels

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "acceptor needs Python 3.11 or newer, and $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1 | head -n 1)." \
	    "Name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(TO_RUN): $(REQUIREMENTS) | $(BIN)/python
	@echo "Installing acceptor and PyTorch into $(VENV), once; this can take a few minutes ..."
	@$(PIP_INSTALL) --editable app/models --editable ".[app]"
	@touch $@

# The links are for mypy, see pyproject.toml.
$(TO_DEVELOP): $(REQUIREMENTS) | $(BIN)/python
	@echo "Installing acceptor and its development tools into $(VENV), once; this can take a few minutes ..."
	@$(PIP_INSTALL) --editable app/models --editable ".[dev]"
	@mkdir -p $(VENV)/typing
	@ln -sfn ../.. $(VENV)/typing/acceptor
	@ln -sfn ../../tests/kit $(VENV)/typing/kit
	@touch $@ $(TO_RUN)
