PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 \
  --dist=worksteal --durations=5 --durations-min=10
CAMPAIGN := $(BIN)/python -W ignore -m tests.faults.campaign --counted

# Tests start Python hundreds of times: each would compile lmkit again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run test test-slow test-faults test-mutants test-slurm bench

setup: $(INSTALLED)

# Installed anew when the requirements change, and only then.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "error: lmkit needs Python 3.11 to 3.13; set PYTHON=python3.11, say"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

# Trains a small model on the toy language and prints its perplexity and rank.
run: setup
	$(BIN)/lmkit train

test: setup
	$(BIN)/ruff check lmkit tests docs
	$(BIN)/mypy & checked=$$!; $(PYTEST) -m "not slow"; status=$$?; wait $$checked && exit $$status

# The tests that take more than five seconds each. Many wait for processes of theirs.
test-slow: setup
	$(PYTEST) --numprocesses=3 -m slow

# Kills, starves and tears runs at calls that fixed seeds draw, and compares what they end with;
# python -m tests.faults.campaign --help says how to draw more.
test-faults: setup
	$(CAMPAIGN) --seed 1 --draws 13 --states 0 & other=$$!; \
	$(CAMPAIGN) --seed 14 --draws 12 --states 12; status=$$?; \
	wait $$other && exit $$status

# Breaks saving and resuming on purpose, place by place: tests or the campaign must find each.
test-mutants: setup
	$(BIN)/python -W ignore -m tests.faults.mutants

# Sweeps on a SLURM of one node, which it installs (root and apt-get), starts and ends; or it says
# why not.
test-slurm: setup
	tests/slurm/run.sh $(BIN)/python

# Seconds a step of published experiments beside plain PyTorch; BENCH=penn_mos for a piece.
bench: setup
	$(BIN)/python -W ignore -m tests.benchmarks.bench_step $(BENCH)
