# Everything goes through the virtual environment in .venv, which `make` sets up and keeps
# in step with pyproject.toml and constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLIENT := src/outrider/sdk/synchronous/__init__.py

# Without bytecode, each program that a test starts would compile all of Outrider first.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up web client test checks-beside pytest vitest test-dashboard screenshots test-openapi test-faults \
	test-security test-agents test-ides fuzz lint bench docs dist clean

up: $(READY) $(CLIENT)  ## Start the service and this machine's agent.
	@scripts/system-packages tmux
	@PYTHON=$(PYTHON) scripts/build-dashboard || echo 'The dashboard is not built; the API works without it.'
	@exec $(BIN)/outrider up

web:  ## Build the dashboard if it is missing or stale.
	@PYTHON=$(PYTHON) scripts/build-dashboard

client: $(READY)  ## Generate the types of clients/typescript from the API's description.
	@scripts/system-packages npm
	@sh tests/openapi/install.sh .cache
	@$(BIN)/python -m tests.openapi.describe >.cache/openapi/openapi.json
	@.cache/openapi/node_modules/.bin/openapi-typescript .cache/openapi/openapi.json \
		--output clients/typescript/src/api.ts

test:  ## Pass the checks and the tests.
	@scripts/system-packages venv tmux npm
	-@scripts/system-packages postgresql redis-server faketime
	-@scripts/system-packages chromium curl
	@$(MAKE) --no-print-directory --jobs 2 $(READY) web
	@$(MAKE) --no-print-directory --jobs 2 checks-beside pytest

# mypy takes one core for half a minute, and tests often wait: it gets what they leave.
checks-beside:
	@nice $(MAKE) --no-print-directory lint vitest

vitest:  ## Unit tests of the dashboard; its build checks the types.
	@PYTHON=$(PYTHON) scripts/in-web npm run --silent test

# Every process collects every file: directories whose tests are all deselected are ignored.
pytest: $(READY)
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder \
		--ignore tests/security --ignore tests/system/faults --ignore tests/openapi

test-dashboard: $(READY) web  ## The whole dashboard in Chromium, and its packaging.
	@scripts/system-packages tmux npm chromium
	$(BIN)/python -m pytest -m dashboard --numprocesses 2 --dist loadfile tests/dashboard $(SLOW)

screenshots: $(READY) web  ## Make the pictures in docs/images/dashboard.
	@scripts/system-packages tmux npm chromium
	$(BIN)/python -m tests.dashboard.screenshots

test-openapi: $(READY)  ## Lint the API's description, and generate clients from it.
	@scripts/system-packages npm
	@sh tests/openapi/install.sh .cache
	$(BIN)/python -m pytest -m openapi tests/openapi

test-faults: $(READY)  ## Kill and freeze processes, PostgreSQL and Redis.
	@scripts/system-packages tmux postgresql redis-server faketime haproxy nginx caddy
	$(BIN)/python -m pytest -m faults --numprocesses 2 --dist loadfile $(SLOW)

# A fault test waits for other processes. One whose time limit a busy machine exceeds is repeated
# once, and the report shows why; any other failure counts at once.
SLOW := --reruns 1 --rerun-show-tracebacks --only-rerun TimeoutError \
	--only-rerun 'never became true' --only-rerun 'from pytest-timeout'

# Collecting these files alone saves collecting all tests in every process.
FUZZ = $(BIN)/python -m pytest -m fuzz --numprocesses 2 \
	$$(grep --recursive --files-with-matches --include 'test_*.py' 'mark\.fuzz' tests)

test-security: $(READY)  ## Attack a running service, and fuzz for a minute.
	-@scripts/system-packages tmux postgresql redis-server
	$(BIN)/python -m pytest -m security tests/security --numprocesses 2 $(SLOW)
	OUTRIDER_FUZZ_SECONDS=60 $(FUZZ)

fuzz: MINUTES = 10
fuzz: $(READY)  ## Run the fuzz tests for MINUTES minutes.
	@scripts/system-packages tmux
	OUTRIDER_FUZZ_SECONDS=$$(($(MINUTES) * 60)) $(FUZZ)

# Tests that run third-party programs are repeated once, and the report shows why: such a program
# may ask for an update or take a minute to start.
AGAIN := --reruns 1 --rerun-show-tracebacks

test-agents: $(READY)  ## Install every agent that is known, and put each through the same scenario.
	@scripts/system-packages tmux npm
	$(BIN)/python -m pytest -m real_agent \
		tests/machine/agents tests/cli/test_providers.py tests/system/test_descriptors.py tests/system/test_mcp_agents.py \
		--numprocesses 3 --dist loadgroup $(AGAIN)

test-ides: IDES = jupyterlab code-server
test-ides: $(READY)  ## Drive JupyterLab with jupyter-ai, code-server and pages of our own in Chromium.
	@scripts/system-packages chromium htop npm $(if $(filter code-server,$(IDES)),g++ krb5-config)
	@for ide in $(IDES); do sh tests/machine/agents/ide/install.sh .cache/agents $$ide || exit; done
	$(BIN)/python -m pytest -m ide tests/machine/agents/ide tests/system/test_event_source.py \
		tests/system/browser \
		--numprocesses 2 --dist worksteal $(AGAIN) \
		$(if $(filter code-server,$(IDES)),,-k 'not code-server')

lint: $(READY) $(CLIENT)  ## Formatting, rules, types, and which package may import which.
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@scripts/system-packages npm
	@PYTHON=$(PYTHON) scripts/in-web npm run --silent lint

bench: $(READY) $(CLIENT)  ## Measure, against a bare baseline in the same run.
	@scripts/system-packages tmux wrk postgresql redis-server
	-@scripts/system-packages chromium npm && $(MAKE) --no-print-directory web
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs  ## Build the documentation into site/, and check it.
	@scripts/build-docs

dist:  ## Build a release of the last commit into dist/.
	@scripts/system-packages venv npm
	@PYTHON=$(PYTHON) scripts/build-dist

clean:
	rm -rf $(VENV) .cache dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		src/outrider/sdk/synchronous

$(READY): pyproject.toml constraints.txt
	@scripts/system-packages venv
	@echo 'Installing what Outrider needs into $(VENV). Only the first time takes minutes.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@

# The installation generates it as well, and so do the tests.
$(CLIENT): scripts/generate_sync_client.py $(wildcard src/outrider/sdk/asynchronous/*.py)
	@$(PYTHON) scripts/generate_sync_client.py

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[docs]'
	@touch $@
