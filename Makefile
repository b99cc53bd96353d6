# Two commands are enough: `make demo` and `make test`. Both set the environment up by themselves.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.ready
export PYTHONDONTWRITEBYTECODE :=
export UV_NO_PROGRESS := 1

.PHONY: help setup demo test soak e2e oracle check format bench docs lock clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make setup   the environment in .venv, from the hashed lock files
setup: $(STAMP)

$(STAMP): requirements-setup.lock requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rightslice needs Python 3.11 or newer, found " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; echo "venv is missing: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -c 'import uv' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-setup.lock
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements-dev.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

## make demo    plan the voice example and say where its report lies
demo: setup
	@$(BIN)/rightslice plan examples/voice-assistant.yaml -o build/demo
	@echo "report: $(CURDIR)/build/demo/report.html"

## make test    every test; what needs an absent Debian package is skipped by name with the install command
test: setup
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

## make soak    200 random workloads planned and checked (several minutes)
soak: setup
	@RIGHTSLICE_SOAK=200 $(BIN)/python -m pytest -q tests/integration/test_random_plans.py

## make oracle  vLLM itself (CPU build, 3 GB, several minutes): the KV cache of every shipped model, and its scheduler
oracle: setup .venv-oracle/.ready
	@RIGHTSLICE_ORACLE_PYTHON=.venv-oracle/bin/python $(BIN)/python -m pytest -q -s tests/oracle/engine_cache_oracle.py tests/oracle/engine_scheduler_oracle.py

## make e2e     a real engine on this machine's CPU, load-tested, calibrated, predicted (3 GB, some ten minutes)
e2e: setup .venv-oracle/.ready
	@.venv-oracle/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@RIGHTSLICE_ORACLE_PYTHON=.venv-oracle/bin/python $(BIN)/python -m pytest -q -s tests/oracle/engine_loop.py

.venv-oracle/.ready: tests/oracle/requirements.txt
	@test -x .venv-oracle/bin/python || $(PYTHON) -m venv .venv-oracle
	@.venv-oracle/bin/python -m pip install --quiet --disable-pip-version-check -r tests/oracle/requirements.txt
	@touch $@

## make check   format, lint, types, layers, house rules
check: setup
	@$(BIN)/ruff format --no-cache --check --quiet src tests tools
	@$(BIN)/ruff check --no-cache --quiet src tests tools
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/check_house.py

format: setup
	@$(BIN)/ruff format src tests tools
	@$(BIN)/ruff check --fix src tests tools

## make bench   CPU seconds and ratios into build/bench.json
bench: setup
	@$(BIN)/python tools/bench.py

## make docs    the documentation site into build/site
docs: setup
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-docs.lock
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/site
	@echo "docs: $(CURDIR)/build/site/index.html"

## make lock    rewrite the lock files from pyproject.toml
lock: setup
	@for kind in "" dev docs bench; do \
	  group=$${kind:+--group $$kind}; \
	  $(BIN)/uv pip compile --quiet pyproject.toml $$group --universal --generate-hashes --no-header --no-annotate \
	    --python-version 3.11 --output-file requirements$${kind:+-$$kind}.lock; \
	done
	@echo uv | $(BIN)/uv pip compile --quiet - --universal --generate-hashes --no-header --no-annotate \
	    --python-version 3.11 --output-file requirements-setup.lock

clean:
	@rm -rf build .venv .venv-oracle .mypy_cache .ruff_cache .pytest_cache .hypothesis
