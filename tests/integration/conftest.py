"""Copies of the tiny runs that tests share, to be written to."""

import shutil
from pathlib import Path

import pytest

from lmkit.experiment.load import LoadedRun, load_run
from tests.tiny import run_of


@pytest.fixture(scope="module")
def mos(trained_runs) -> LoadedRun:
    """The run of MoS + PLIF of `trained_runs`, for all tests: its weights stay as they are."""
    return load_run(run_of(trained_runs, "mos").path, "best", None, None)


@pytest.fixture
def tiny_runs(trained_runs, tmp_path) -> Path:
    """A copy of `trained_runs`."""
    return Path(shutil.copytree(trained_runs, tmp_path / "runs"))


@pytest.fixture
def tiny_run(tiny_runs) -> Path:
    """The run of MoS + PLIF alone."""
    return run_of(tiny_runs, "mos").path
