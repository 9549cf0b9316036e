# Two commands: `make run` measures this machine, `make test` checks the code. Each does its own set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The GPU extra is installed where an NVIDIA driver is loaded.
EXTRA  := $(if $(wildcard /proc/driver/nvidia/version),cuda)
comma  := ,

.PHONY: run test clean

run: $(VENV)/run-$(EXTRA).stamp
	$(BIN)/wirespeed

test: $(VENV)/dev-$(EXTRA).stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest --cov -n 2 --dist loadfile

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "wirespeed needs Python 3.11 or later; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run-$(EXTRA).stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.$(if $(EXTRA),[$(EXTRA)])'
	touch $@

$(VENV)/dev-$(EXTRA).stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev$(if $(EXTRA),$(comma)$(EXTRA))]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
