"""A finished run, and heads alone on its contexts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lmkit.experiment.run import run
from lmkit.fixed_trunk.composition import implied
from lmkit.runs.folder import RunFolder
from tests.tiny import composed, trained

COMMON = ["threads=1", "logger=csv", "callbacks.progress_bar=null", "callbacks.spectrum=null"]
TINY = [
    *COMMON,
    "data.num_words=50",
    "data.train_tokens=6000",
    "data.valid_tokens=600",
    "data.test_tokens=500",
    "trunk.emb_dim=8",
    "trunk.out_dim=8",
    "trunk.hidden_dim=12",
    "switch_epoch=1",
    "max_epochs=2",
]


@pytest.fixture(scope="session")
def trunk_runs(tmp_path_factory) -> Path:
    """The folder of a Softmax run and a MoS run: not to be written to."""
    folder = tmp_path_factory.mktemp("trunks")
    mos = ["name=mos", "head/mixture=softmaxes", "head.mixture.num_experts=3"]
    for overrides in ([], mos):
        trained(folder, *TINY, *overrides)
    return folder


@pytest.fixture(scope="session")
def trunk_run(trunk_runs) -> RunFolder:
    """The Softmax run, averaged from epoch 2 on."""
    (path,) = (path for path in trunk_runs.glob("toy-*") if path.is_dir())
    return RunFolder(path)


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
