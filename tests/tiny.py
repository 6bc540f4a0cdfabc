"""Runs that tests train on the toy language, and their options."""

from functools import cache
from pathlib import Path
from typing import Any

from lmkit.cli.entry import compose, plain_config
from lmkit.experiment.run import run
from lmkit.runs.folder import RunFolder

_QUIET = ("threads=1", "logger=csv", "callbacks.progress_bar=null")

# a run of a second
TINY = (
    *(*_QUIET, "callbacks.spectrum=null", "conclusion.contexts=60"),
    *("data.num_words=40", "data.train_tokens=3000", "data.valid_tokens=300"),
    *("data.test_tokens=300", "windows.batch_size=10", "windows.bptt=20"),
    *("trunk.emb_dim=6", "trunk.hidden_dim=8", "trunk.out_dim=6", "trunk.num_layers=2"),
    *("optimizer.lr=5", "max_epochs=2", "switch_epoch=1"),
)
# with as many windows as kills and measurements need
SMALL = (
    *(*_QUIET, "data.train_tokens=8000", "data.valid_tokens=600", "data.test_tokens=600"),
    *("trunk.emb_dim=8", "trunk.out_dim=8", "trunk.hidden_dim=12", "switch_epoch=1"),
)


def without(*starts: str) -> tuple[str, ...]:
    """The options of TINY but those that begin so."""
    return tuple(option for option in TINY if not option.startswith(starts))


def composed(*overrides: str) -> dict[str, Any]:
    """The configuration of `lmkit train` with these options."""
    return plain_config(_composed("train", overrides))  # which reads the environment anew


_composed = cache(compose)  # tenths of a second each


def run_of(runs_dir: Path, name: str) -> RunFolder:
    """The one run of that name in a folder of runs."""
    (path,) = (path for path in runs_dir.glob(f"{name}-*") if path.is_dir())
    return RunFolder(path)


def trained(runs_dir: Path, *overrides: str) -> RunFolder:
    """A finished run in a folder of runs."""
    return run(composed(*overrides) | {"runs_dir": str(runs_dir)})
