# Thin aliases. Each makes the environment it needs, with nothing but python3 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test check core catalogue catalogue-record proof soak mutation bench bench-update clean

help:
	@echo "make demo   watch a breaker at work against a server that fails"
	@echo "make test   run the tests"
	@echo "make check  format, lint, types, tests, documentation, and the tests without any extra"
	@echo "make catalogue  the rules for client libraries, on real exceptions of each (installs some sixty libraries)"
	@echo "make catalogue-record  write down what those exceptions look like, for the ordinary tests"
	@echo "make proof  the long searches: every state of the protocol, wrong breakers, interleavings (spin is used where it is installed)"
	@echo "make soak   everything at once for a minute: threads, loops, forks, faults, operators (SECONDS=1800 for longer)"
	@echo "make mutation  change the code in thousands of small ways: which changes do the tests not notice? (an hour)"
	@echo "make bench  compare what a call costs with other libraries, with the bars and with the stored baseline"
	@echo "make bench-update  the same, and store the result: baseline and documentation"
	@echo "make clean  remove environments and caches"

# The stamp tells that the environment has everything that pyproject.toml asks for.
$(VENV)/.complete: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[test,lint,docs]'
	@touch $@

# Apart: the peers bring what they like.
$(VENV)-bench/.complete: pyproject.toml
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/pip install --quiet --editable '.[bench]'
	@touch $@

# Apart: sixty libraries, each in the release that was looked at.
$(VENV)-catalogue/.complete: pyproject.toml
	$(PYTHON) -m venv $(VENV)-catalogue
	$(VENV)-catalogue/bin/pip install --quiet --editable '.[catalogue-test]'
	@touch $@

# What the tests need, without the package: the mutated copy must be the only one.
$(VENV)-mutation/.complete: pyproject.toml
	$(PYTHON) -m venv $(VENV)-mutation
	$(VENV)-mutation/bin/pip install --quiet 'mutmut==3.8.1' '.[test]'
	$(VENV)-mutation/bin/pip uninstall --quiet --yes resilience-py
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

catalogue: $(VENV)-catalogue/.complete
	$(VENV)-catalogue/bin/pytest -m catalogue tests/catalogue
	$(VENV)-catalogue/bin/pytest -k httpx tests/contract/test_retry_after.py

catalogue-record: $(VENV)-catalogue/.complete
	$(VENV)-catalogue/bin/python tests/catalogue/record.py

proof: $(VENV)/.complete
	$(BIN)/pytest -m proof -o faulthandler_timeout=600

soak: $(VENV)/.complete
	$(BIN)/python tests/soak/soak.py --seconds $(or $(SECONDS),60)

mutation: $(VENV)-mutation/.complete
	$(VENV)-mutation/bin/python tests/mutation/mutate.py

bench: $(VENV)-bench/.complete
	$(VENV)-bench/bin/python benchmarks/run.py

bench-update: $(VENV)-bench/.complete
	$(VENV)-bench/bin/python benchmarks/run.py --update

clean:
	rm -rf $(VENV) $(VENV)-core $(VENV)-bench $(VENV)-catalogue $(VENV)-mutation .mutation site .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
