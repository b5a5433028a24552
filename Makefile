# Thin aliases. Each makes the environment it needs, with nothing but python3 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test check core bench clean

help:
	@echo "make demo   watch a breaker at work against a server that fails"
	@echo "make test   run the tests"
	@echo "make check  format, lint, types, tests, documentation, and the tests without any extra"
	@echo "make bench  compare what a call costs with other libraries"
	@echo "make clean  remove environments and caches"

# The stamp tells that the environment has everything that pyproject.toml asks for.
$(VENV)/.complete: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[test,lint,docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.complete
	$(BIN)/pip install --quiet --editable '.[bench]'
	@touch $@

# Installed, not editable: this one shows what a user gets.
$(VENV)-core/.complete: pyproject.toml
	$(PYTHON) -m venv $(VENV)-core
	$(VENV)-core/bin/pip install --quiet 'pytest>=9.0' hypothesis freezegun
	@touch $@

demo: $(VENV)/.complete
	$(BIN)/resilience demo

test: $(VENV)/.complete
	$(BIN)/pytest

check: $(VENV)/.complete core
	.ci/checks $(VENV)
	$(BIN)/pytest

core: $(VENV)-core/.complete
	$(VENV)-core/bin/pip install --quiet --force-reinstall .
	$(VENV)-core/bin/pytest

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) $(VENV)-core site .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
