# Everything a fresh machine needs: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
export PYTHONDONTWRITEBYTECODE =  # what Python compiles stays on disk: tests start hundreds of interpreters

.PHONY: demo test pytest noise attack lint format docs site bench clean

demo: $(VENV)/core.stamp  ## stress-test two models that ship on 16 simulated rollouts, and write a report
	$(BIN)/rewardlab stress pocket pocket-plain sample-sim --limit 16 --severities 4 --out runs/demo \
	  --perturbations low_light,motion_blur,task_swap,paraphrase,truncate_end,distractor_objects

test: $(VENV)/dev.stamp  ## everything that must hold before a change lands
	@$(MAKE) --no-print-directory -j2 lint pytest

# Another apt-get may be at work: `install` waits for its lock by itself, `update` does not.
define apt_install
for n in $$(seq 40); do found=$$(apt-get update -qq 2>&1) && break; case "$$found" in *lock*) sleep 15;; *) break;; esac; done; \
apt-get -o DPkg::Lock::Timeout=600 install -y -qq $(1) >/dev/null
endef

# Tests wait for processes and servers they started, so that one more of them than there are cores keeps all cores busy.
TEST_PROCESSES ?= 3
# Threads that spin while they wait would take the cores from other tests.
pytest: export OPENBLAS_NUM_THREADS = 1
pytest: export OMP_WAIT_POLICY = passive
pytest: $(VENV)/dev.stamp  ## the tests alone
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  (echo "browser tests need Chromium: trying apt-get install chromium" && $(call apt_install,chromium)) || \
	  echo "no Chromium here: the browser tests will be skipped"
	@ldconfig -p | grep -q libOSMesa || \
	  (echo "world tests need OSMesa: trying apt-get install libosmesa6" && $(call apt_install,libosmesa6)) || \
	  echo "no OSMesa here: the rendering tests will be skipped"
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(TESTS)

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

bench: $(VENV)/core.stamp  ## measure the runner's own overhead
	$(BIN)/python benchmarks/overhead.py

clean:  ## forget the environment and the runs
	rm -rf $(VENV) runs

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core.stamp: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable .
	touch $@

# Of 24,000 modules tests import a quarter: each is compiled when it is first imported, not while it is installed.
INSTALL = $(BIN)/pip install --quiet --no-compile --editable

# Ray is among them (18 s, 240 MB); without it `pytest tests/evaluation/test_engines.py` skips the tests on a cluster.
$(VENV)/dev.stamp: pyproject.toml | $(BIN)/pip
	$(INSTALL) ".[api,assemble,dev,docs,figures,hf,ray,rl,serve,sim,train,vlm-train]"
	touch $@
