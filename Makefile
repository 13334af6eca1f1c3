# Everything a fresh machine needs: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test pytest attack lint format docs bench clean

demo: $(VENV)/core.stamp  ## stress-test the model that ships on 45 simulated rollouts, and write a report
	$(BIN)/rewardlab stress pocket sample-sim --limit 45 --out runs/demo

test: $(VENV)/dev.stamp  ## everything that must hold before a change lands
	@$(MAKE) --no-print-directory -j2 lint pytest  # types are checked on one core while tests wait for one another

# Tests wait for processes and servers they started, so that one more of them than there are cores keeps all cores busy.
# They start hundreds of interpreters: without compiled modules on disk each of these compiles the package anew.
TEST_PROCESSES ?= 3
pytest: $(VENV)/dev.stamp  ## the tests alone
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  (echo "browser tests need Chromium: trying apt-get install chromium" && \
	  (apt-get update -qq && apt-get install -y -qq chromium >/dev/null) || echo "no Chromium here: the browser tests will be skipped")
	@ldconfig -p | grep -q libOSMesa || (echo "world tests need OSMesa: trying apt-get install libosmesa6" && \
	  (apt-get update -qq && apt-get install -y -qq libosmesa6 >/dev/null) || echo "no OSMesa here: the rendering tests will be skipped")
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

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

bench: $(VENV)/core.stamp  ## measure the runner's own overhead
	$(BIN)/python benchmarks/overhead.py

clean:  ## forget the environment and the runs
	rm -rf $(VENV) runs

$(VENV)/core.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

# Ray is among them (18 s, 240 MB); without it `pytest tests/runner/test_engines.py` skips the tests on a cluster.
$(VENV)/dev.stamp: $(VENV)/core.stamp
	$(BIN)/pip install --quiet --editable ".[api,assemble,dev,figures,hf,ray,rl,serve,sim,train,vlm-train]"
	touch $@
