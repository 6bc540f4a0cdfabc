"""A finished run, and heads alone on its contexts."""

from collections.abc import Callable

import pytest

from lmkit.experiment.run import run
from lmkit.fixed_trunk.composition import implied
from lmkit.runs.folder import RunFolder
from tests.tiny import composed, run_of

COMMON = ["threads=1", "logger=csv", "callbacks.progress_bar=null", "callbacks.spectrum=null"]


@pytest.fixture(scope="session")
def trunk_run(trained_runs) -> RunFolder:
    """The Softmax run, averaged from epoch 2 on."""
    return run_of(trained_runs, "toy")


@pytest.fixture
def head_config(trunk_run, tmp_path) -> Callable[..., dict]:
    """The configuration of a head alone on that run's contexts."""

    def make(*overrides: str, of: object = trunk_run.path) -> dict:
        line = ["trunk=fixed", f"trunk.of={of}", f"runs_dir={tmp_path / 'runs'}", *COMMON]
        return composed(*implied([*line, "max_epochs=2", *overrides]))

    return make


@pytest.fixture
def train_head(head_config) -> Callable[..., RunFolder]:
    """Trains it."""
    return lambda *overrides, **of: run(head_config(*overrides, **of))
