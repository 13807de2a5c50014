# `make demo` and `make test` are all that a fresh machine needs; both make .venv first.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet
SETUP := setup.cfg pyproject.toml constraints.txt
WHEEL := build/wheel

.PHONY: help demo test lint examples wheel api clean

help:
	@echo "make demo      train on the bundled data and compare with brain networks"
	@echo "make test      all that CI runs: lint, examples, wheel, then the tests"
	@echo "make lint      ruff and mypy"
	@echo "make examples  run the examples with short settings"
	@echo "make wheel     build the wheel and use it from an empty environment"
	@echo "make api       write docs/api.md anew from the docstrings"
	@echo "make clean     remove .venv and all that was made"

# Editable, since cli/ and atlases/ are parts of the package by setup.cfg only.
.venv/installed: $(SETUP)
	@echo "Installing into .venv (some minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

.venv/installed-test: .venv/installed
	@$(PIP) install --constraint constraints.txt --editable ".[test]"
	@touch $@

# One thread: a second one saves little, and where the machine is busy threads wait for each other
# (five times as long).
demo: .venv/installed
	@OMP_NUM_THREADS=1 $(BIN)/neuro-pe train --demo --output-dir demo_output
	@$(BIN)/neuro-pe compare-networks demo_output
	@echo "Open this in a browser: $(CURDIR)/demo_output/report.html"

# The tests come last, so that their closing line ends the output.
test: lint examples wheel
	OMP_NUM_THREADS=1 $(BIN)/pytest

lint: .venv/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

examples: .venv/installed-test
	@mkdir -p build/examples
	OMP_NUM_THREADS=1 $(BIN)/python examples/01_train_and_plot.py --epochs 1 --output build/examples/01.png

# From another folder, so that nothing of the checkout is imported by chance.
wheel: .venv/installed-test
	@rm -rf $(WHEEL) && mkdir -p $(WHEEL)
	$(BIN)/python -m build --outdir $(WHEEL) . > $(WHEEL)/build.log 2>&1 || { tail -n 40 $(WHEEL)/build.log; exit 1; }
	@$(BIN)/python -m zipfile --list $(WHEEL)/neuro_pe-*.whl > $(WHEEL)/content.txt
	@for file in licenses/LICENSE licenses/atlases/LICENSES/CBIG_MIT.txt licenses/neuro_pe/demo_data/LICENSE.txt \
	  neuro_pe/atlases/LICENSES/SOURCES.md neuro_pe/demo_data/LICENSE.txt neuro_pe/demo_data/sub-12/ \
	  neuro_pe/report_template.html neuro_pe/report_style.css neuro_pe/py.typed \
	  neuro_pe/synthetic/page.html neuro_pe/synthetic/data/LICENSE.txt \
	  neuro_pe/synthetic/data/puzzle_data_original.csv licenses/neuro_pe/synthetic/data/LICENSE.txt; do \
	  grep -q "$$file" $(WHEEL)/content.txt || { echo "The wheel lacks $$file."; exit 1; }; \
	done
	$(PYTHON) -m venv $(WHEEL)/venv
	$(WHEEL)/venv/bin/python -m pip --quiet install --constraint constraints.txt $(WHEEL)/neuro_pe-*.whl
	cd $(WHEEL) && venv/bin/neuro-pe --version
	cd $(WHEEL) && OMP_NUM_THREADS=1 venv/bin/neuro-pe train --demo --epochs 1 --output-dir out
	cd $(WHEEL) && OMP_NUM_THREADS=1 venv/bin/neuro-pe compare-networks out --permutations 20
	test -s $(WHEEL)/out/report.html
	@rm -rf $(WHEEL)/venv

api: .venv/installed-test
	$(BIN)/python docs/make_api.py

clean:
	rm -rf .venv build dist demo_output *.egg-info .mypy_cache .pytest_cache .ruff_cache
