"""Copies of the tiny runs that tests share, to be written to."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def tiny_runs(trained_runs, tmp_path) -> Path:
    """A copy of `trained_runs`."""
    return Path(shutil.copytree(trained_runs, tmp_path / "runs"))


@pytest.fixture
def tiny_run(tiny_runs) -> Path:
    """The run of MoS + PLIF alone."""
    (path,) = (path for path in tiny_runs.glob("mos-*") if path.is_dir())
    return path
