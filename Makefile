# Two commands: `make run` measures this machine, `make test` checks the code. Each does its own set-up. Before a
# release and weekly, `make coverage` replaces `make test`: it runs long tests too, and 90% of all lines must run.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The GPU extra is installed where an NVIDIA driver is loaded; drivers from 580 on support CUDA 13.
NVIDIA := /proc/driver/nvidia/version
DRIVER := $(shell grep -om1 '[0-9]\{3,\}\.[0-9][0-9.]*' $(NVIDIA) 2>/dev/null)
MAJOR  := $(or $(firstword $(subst ., ,$(DRIVER))),580)
EXTRA  := $(if $(wildcard $(NVIDIA)),$(if $(shell test $(MAJOR) -lt 580 && echo old),cuda12,cuda))
# Tests compile kernels without a driver too: with CUDA 13, and in CI also with CUDA 12, in another environment.
CUDA   := $(or $(EXTRA),cuda)
VENV12 := $(VENV)/cuda12
# An editable install compiles the C sources.
NATIVE := hatch_build.py $(wildcard src/wirespeed/native/*.[ch]) src/wirespeed/native/compile.py
# Counting the lines that run costs a third more, so that it has its own command, which also runs long tests.
PYTEST  = $(BIN)/python $(if $(COUNTED),-m slipcover --json --out .coverage.$@.json) -m pytest $(if $(COUNTED),--long) \
          -p no:cacheprovider
# Parts of the tests that take about as long. Each is a process of its own: one that hands out tests costs 5 %.
PARTS  := unit features simulated others
OTHERS := $(filter-out $(PARTS:%=tests/%/) tests/processes/,$(wildcard tests/*/))
# What runs is compiled when it first runs; packages contain much that never does.
PIP    := -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

# Tests start hundreds of processes, each of which would compile every module where bytecode is not kept.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX = $(CURDIR)/$(VENV)/bytecode

.PHONY: run test coverage $(PARTS) processes lint test12 sanitize wheel clean

run: $(VENV)/run-$(EXTRA).stamp
	$(BIN)/wirespeed

test coverage: $(VENV)/dev-$(CUDA).stamp
	$(MAKE) -j6 $(if $(filter coverage,$@),COUNTED=yes) processes $(PARTS) lint
	$(if $(filter coverage,$@),$(BIN)/python -m slipcover --merge $(patsubst %,.coverage.%.json,processes $(PARTS)) --out .coverage.json --fail-under 90)

# Jobs of several processes wait most of the time. They come first wherever they compute: the rates of their ranks vary
# where others do, and what varies is not judged.
unit features simulated:
	nice -n 10 $(PYTEST) tests/$@

others:
	nice -n 10 $(PYTEST) $(OTHERS)

processes:
	$(PYTEST) -n 2 --dist loadfile tests/processes

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror src/wirespeed/native/*.[ch]

test12: $(VENV12)/dev.stamp
	$(VENV12)/bin/pytest -p no:cacheprovider tests/unit/test_cuda_*.py

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "wirespeed needs Python 3.11 or later; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run-$(EXTRA).stamp: pyproject.toml $(wildcard constraints*.txt) $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python $(PIP) -c constraints-$(CUDA).txt -e '.$(if $(EXTRA),[$(EXTRA)])'
	touch $@

$(VENV)/dev-$(CUDA).stamp: pyproject.toml $(wildcard constraints*.txt) $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python $(PIP) -c constraints-$(CUDA).txt -e '.[dev,$(CUDA)]'
	touch $@

$(VENV12)/dev.stamp: pyproject.toml $(wildcard constraints*.txt) $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV12)
	$(VENV12)/bin/python $(PIP) -c constraints-cuda12.txt -e '.[cuda12]' hypothesis pytest
	touch $@

# The C functions with sanitizers, driven by their tests: memory and undefined behaviour, and races of the threads.
SANITIZED := $(VENV)/sanitized
sanitize: $(VENV)/dev-$(CUDA).stamp
	mkdir -p $(SANITIZED)
	$(BIN)/python src/wirespeed/native/compile.py -o $(SANITIZED)/asan.so -g -Werror -fsanitize=address,undefined \
	    -fno-sanitize-recover=all
	$(BIN)/python src/wirespeed/native/compile.py -o $(SANITIZED)/tsan.so -g -Werror -fsanitize=thread
	SANITIZED=$(SANITIZED)/asan.so ASAN_OPTIONS=detect_leaks=0 \
	    LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" \
	    $(BIN)/python -m pytest -p tests.sanitized -p no:cacheprovider tests/host/test_native*.py tests/host/test_cycles.py
	SANITIZED=$(SANITIZED)/tsan.so LD_PRELOAD="$$(cc -print-file-name=libtsan.so)" \
	    $(BIN)/python -m pytest -p tests.sanitized -p no:cacheprovider tests/host/test_running.py

# Wheels for every Linux with glibc, compiled by zig, which is installed only while they are built.
wheel: $(VENV)/bin/python
	$(foreach machine,x86_64 aarch64,WIRESPEED_WHEEL=$(machine) $(BIN)/python -m pip wheel --quiet --no-deps -w dist . &&) ls dist

clean:
	rm -rf $(VENV) dist src/wirespeed/native/libwirespeed.so.1 .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*.json
