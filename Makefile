# Everything a fresh machine needs: `make demo` and `make test`. uv installs where it is, pip where it is not.
VENV ?= .venv
BIN = $(VENV)/bin
export PYTHONDONTWRITEBYTECODE =  # what Python compiles stays on disk: tests start hundreds of interpreters

.PHONY: demo test test-slow pytest coverage noise attack lint format constraints docs site dist bench clean

demo: $(VENV)/core.stamp  ## stress-test two models that ship on 20 simulated rollouts, and write a report
	$(BIN)/rewardlab stress pocket pocket-plain sample-sim --limit 20 --severities 4 --out runs/demo \
	  --perturbations low_light,negation,paraphrase,truncate_end,distractor_objects

test: $(VENV)/dev.stamp  ## what must hold before a change lands: style, types, layers, and every test that is not slow
	@$(MAKE) --no-print-directory -j2 lint pytest TESTS='-m "not slow"'

test-slow: $(VENV)/dev.stamp  ## the slow tests: kills, fuzzing, Ray, training, whole browser flows, tutorials, studies
	@$(MAKE) --no-print-directory pytest TESTS='-m slow'

# Another apt-get may be at work: `install` waits for its lock by itself, `update` does not.
define apt_install
for n in $$(seq 40); do found=$$(apt-get update -qq 2>&1) && break; case "$$found" in *lock*) sleep 15;; *) break;; esac; done; \
apt-get -o DPkg::Lock::Timeout=600 install -y -qq $(1) >/dev/null
endef

# Tests wait for processes and servers they started, so that one more of them than there are cores keeps all cores busy.
TEST_PROCESSES ?= 3
PYTEST = $(BIN)/pytest
# Threads that spin while they wait would take the cores from other tests.
pytest: export OPENBLAS_NUM_THREADS = 1
pytest: export OMP_WAIT_POLICY = passive
pytest: $(VENV)/dev.stamp  ## all tests, or those that TESTS selects: make pytest TESTS=tests/data
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  (echo "browser tests need Chromium: trying apt-get install chromium" && $(call apt_install,chromium)) || \
	  echo "no Chromium here: the browser tests will be skipped"
	@ldconfig -p | grep -q libOSMesa || \
	  (echo "world tests need OSMesa: trying apt-get install libosmesa6" && $(call apt_install,libosmesa6)) || \
	  echo "no OSMesa here: the rendering tests will be skipped"
	$(PYTEST) -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(TESTS)

coverage: $(VENV)/dev.stamp  ## which lines and branches the tests reach, those in processes that they start too
	$(BIN)/coverage erase
	@$(MAKE) --no-print-directory pytest PYTEST="$(BIN)/coverage run -m pytest"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

# Tests of these folders neither render nor decode.
noise:  ## the tests that render or decode, with pixels a level off and sums an ulp off, as on another processor
	@$(MAKE) --no-print-directory pytest TESTS="--pixel-noise --ignore tests/core --ignore tests/metrics"

SEED ?= 0
attack: $(VENV)/dev.stamp  ## the long attack: 200 kills, 2,000 flipped bits, 500 mutated videos, 2,000 mutated rows
	$(BIN)/python -m tests.attack.campaign --seed $(SEED)

lint: $(VENV)/dev.stamp  ## style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp  ## put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/dev.stamp  ## write the reference pages and their pictures from the code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_api_page.py
	$(BIN)/python docs/make_architecture.py
	$(BIN)/python docs/make_site.py contents

site: $(VENV)/dev.stamp  ## build the documentation into build/site; a broken link or a warning stops it
	$(BIN)/python docs/make_site.py

constraints:  ## choose the newest versions that fit together, for `make` and for CI (needs uv)
	$(or $(shell command -v python3),python) constraints/update.py

dist: | $(BIN)/python  ## build the package and check what is in it
	$(INSTALL) $(HELD) --group release
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

bench: $(VENV)/core.stamp  ## measure the runner's own overhead
	$(BIN)/python benchmarks/overhead.py

clean:  ## forget the environment and the runs
	rm -rf $(VENV) runs

ifneq ($(shell command -v uv),)
PYTHON ?= >=3.11,<3.14
INSTALL = uv pip install --quiet --python $(BIN)/python
COMPILED = --compile-bytecode
$(BIN)/python:
	uv venv --quiet --python "$(PYTHON)" $(VENV)
else
PYTHON ?= python3
# Dependency groups came with pip 25.1.
INSTALL = $(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" && $(BIN)/python -m pip install --quiet
NOT_COMPILED = --no-compile
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
endif

# The versions that CI has; `CONSTRAINTS=` takes the newest ones.
CONSTRAINTS = $(wildcard constraints/py$(shell $(BIN)/python -c "import sys; print(*sys.version_info[:2], sep='')").txt)
HELD = $(addprefix --constraint ,$(CONSTRAINTS))

$(VENV)/core.stamp: pyproject.toml $(wildcard constraints/*.txt) | $(BIN)/python
	$(INSTALL) $(COMPILED) $(HELD) --editable .
	touch $@

# Of 24,000 modules tests import a quarter: each is compiled when it is first imported, not while it is installed.
$(VENV)/dev.stamp: pyproject.toml $(wildcard constraints/*.txt) | $(BIN)/python
	$(INSTALL) $(NOT_COMPILED) $(HELD) --group dev --editable ".[all]"
	touch $@
