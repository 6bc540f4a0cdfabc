"""Tiny runs that the analyses of finished runs share."""

import shutil
from pathlib import Path

import pytest

from tests.tiny import SMALL, trained

TINY = [*SMALL, "callbacks.spectrum=null", "max_epochs=2"]


@pytest.fixture(scope="session")
def trained_runs(tmp_path_factory) -> Path:
    """A folder with a Softmax run and one of MoS + PLIF, for all tests: not to be written to."""
    path = tmp_path_factory.mktemp("runs")
    mos = ["name=mos", "head/mixture=softmaxes", "head.mixture.num_experts=3"]
    for overrides in ([], [*mos, "head/transform=plif", "head.transform.knots=100"]):
        trained(path, *TINY, *overrides)
    return path


@pytest.fixture
def tiny_runs(trained_runs, tmp_path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(trained_runs, tmp_path / "runs"))


@pytest.fixture
def tiny_run(tiny_runs) -> Path:
    """The run of MoS + PLIF alone."""
    (path,) = (path for path in tiny_runs.glob("mos-*") if path.is_dir())
    return path
