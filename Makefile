# Two commands for a fresh machine: `make demo` and `make test`. Each makes its own virtual environment (.venv) and installs all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
TORCH := torch==2.13.0
C_FILES := $(wildcard src/tilesmith/runtime/csrc/*.[ch] src/tilesmith/runtime/csrc/tools/*.[ch] src/tilesmith/runtime/binding/*.[ch])
C_TESTS := $(wildcard tests/fuzz/*.c tests/torture/*.c tests/package/*.c tests/runtime/*.c tests/embed/*.c)
RUNTIME := CMakeLists.txt $(C_FILES)

# `make demo SYSTEM=1` and the like use the packages that PYTHON has: for machines without a network.
ifdef SYSTEM
RUN := PYTHONPATH=$(CURDIR)/src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON)
READY := system
else
RUN := $(BIN)/python
READY := $(VENV)/.setup $(VENV)/.torch
DRAWS := $(VENV)/.report
endif

.PHONY: report-bench help setup system demo test pytest test-levels sweep keys style quality docs bench bench-models packages dist gpu-test gpu-bench gpu-search gpu-all clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 13

setup: $(VENV)/.setup  ## .venv with the package and its command, .venv/bin/tilesmith

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tilesmith needs Python 3.11 or newer, found " + sys.version.split()[0] + "; run make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.setup: pyproject.toml $(RUNTIME) | $(BIN)/python
	$(PIP) install -e .
	@touch $@

$(VENV)/.report: pyproject.toml $(VENV)/.setup
	$(PIP) install -e '.[report]'
	@touch $@

$(VENV)/.torch: | $(BIN)/python
	$(PIP) install $(TORCH)
	@touch $@

# uv installs the hundred packages of tests in a sixth of pip's time. It does not read pip's configuration, so PyTorch, of
# which that may name a build for CPUs, comes by pip, and everything does where uv cannot be had or finds no packages.
# Without --no-compile, pip compiles 10,000 files of which tests import few.
# PyTorch, which nothing else of them needs, comes while the others do; its own needs are the last.
DEV := -e '.[test,quality,docs]'
UV := $(BIN)/uv pip install -q --python $(BIN)/python
$(VENV)/.dev: pyproject.toml $(RUNTIME) | $(BIN)/python
	$(PIP) install --no-compile --no-deps $(TORCH) & torch=$$!; \
	  { $(PIP) install uv && $(UV) --reinstall-package tilesmith $(DEV); }; others=$$?; \
	  wait $$torch && { { [ $$others = 0 ] && $(UV) $(TORCH); } || $(PIP) install --no-compile $(TORCH) $(DEV); }
	@touch $(VENV)/.torch $(VENV)/.setup $@

system:
	@$(PYTHON) benchmarks/gpu/build_runtime.py --check

demo: $(READY) $(DRAWS)  ## tune real convolutions on this machine, check them, compare with oneDNN or, on a GPU, with cuDNN; draw a report
	$(RUN) benchmarks/demo.py

test: $(VENV)/.dev  ## everything that CI runs: quality, docs, tests
	$(MAKE) --no-print-directory -j 3 quality docs pytest

# Tests wait at times, so that all three at once take less long. Those that build C libraries by make are no part of this make.
pytest: $(VENV)/.dev
	MAKEFLAGS= MFLAGS= $(BIN)/python -m pytest -n 2 --dist loadgroup --durations=20 --durations-min=5

LEVELS := x86_64-v2 x86_64-v3 x86_64-v4
# Folders whose tests run no kernel of a CPU, or bring their own target.
NO_LEVEL := cuda solvers_cuda db fuzz plan problems torture
test-levels: $(VENV)/.dev  ## the tests that run CPU kernels, as on processors of lower levels; LEVELS='x86_64-v3' runs one
	@set -e; for level in $(LEVELS); do echo "TILESMITH_CPU_LEVEL=$$level"; \
	  TILESMITH_CPU_LEVEL=$$level $(BIN)/python -m pytest -n 2 --dist loadgroup $(NO_LEVEL:%=--ignore=tests/%); done

sweep: $(VENV)/.dev  ## 2,000 random signatures against PyTorch float64
	$(BIN)/python tests/sweep.py 2000

keys: $(VENV)/.dev  ## 100,000 random problems: the keys of the C runtime against Python's
	$(BIN)/python tests/runtime/problem_keys.py 100000

torture: $(VENV)/.dev  ## the cache and the databases killed, damaged and refused: minutes, figures in benchmarks/results/torture.json
	$(BIN)/python tests/torture/run.py --json benchmarks/results/torture.json

$(VENV)/.fuzz: pyproject.toml $(VENV)/.setup
	$(PIP) install -e '.[fuzz]'
	@touch $@

FUZZ_SECONDS := 600
fuzz: $(VENV)/.fuzz  ## the readers of plans, packages and descriptions (C: libFuzzer, sanitizers) and every reader (atheris), FUZZ_SECONDS=600 each
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(FUZZ_SECONDS) --json benchmarks/results/fuzz.json

hit: $(VENV)/.setup  ## what a hit costs: in a fresh process, and once bound
	$(BIN)/python benchmarks/hit.py

style: $(VENV)/.dev  ## format and fix
	$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format -q .
	$(BIN)/clang-format -i $(C_FILES) $(C_TESTS)

quality: $(VENV)/.dev  ## ruff, mypy strict, clang-format
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(C_FILES) $(C_TESTS)

docs: $(VENV)/.dev  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q

$(VENV)/.dist: pyproject.toml $(VENV)/.setup
	$(PIP) install -e '.[dist]'
	@touch $@

dist: $(VENV)/.dist  ## the source distribution and the wheels in dist/, run by each Python that is here; ARGS='--debian' runs Debian's too
	$(BIN)/python release/wheels.py -o dist
	$(BIN)/python release/check.py dist $(ARGS)

bench: $(VENV)/.setup $(VENV)/.torch  ## the benchmark tables of the docs, written to benchmarks/results/
	$(BIN)/python benchmarks/cpu.py

report-bench: $(VENV)/.dev  ## a report of 250 problems and 40,000 configs: made, opened in Chromium, checked
	$(BIN)/python benchmarks/report.py

packages: $(VENV)/.dev  ## the default kernel packages of CPUs and an H200, in dist/packages/: a minute or two of each core for each; ARGS='--again'
	$(RUN) benchmarks/default_packages.py $(ARGS)

# Without its dependencies: torchvision's own PyTorch would replace the one that is there.
$(VENV)/.models: $(VENV)/.setup $(VENV)/.torch
	$(PIP) install --no-deps torchvision==0.28.0 pillow
	@touch $@

bench-models: $(VENV)/.setup $(VENV)/.models  ## whole models against PyTorch's modes, hours on a CPU; ARGS='--models unet --batches 1'
	$(RUN) benchmarks/models/run.py $(ARGS)

gpu-test: $(READY)  ## everything that needs a GPU: numbers, graphs, streams, the sanitizer; ARGS='--time-limit 500 resnet50'
	$(RUN) benchmarks/gpu/run.py test $(ARGS)

gpu-bench: $(READY)  ## tune and measure the lists on a GPU, write the tables of the docs; ARGS='--time-limit 500 resnet50'
	$(RUN) benchmarks/gpu/run.py bench $(ARGS)

gpu-search: $(READY)  ## untuned, tuned, and a search three times as long on a GPU; ARGS='--every 9 --time-limit 300'
	$(RUN) benchmarks/gpu/run.py search $(ARGS)

gpu-all: $(READY)  ## gpu-bench, gpu-test and gpu-search within one time limit; ARGS='--time-limit 560 bench test'
	$(RUN) benchmarks/gpu/run.py all $(ARGS)

clean:
	rm -rf $(VENV) build dist site
