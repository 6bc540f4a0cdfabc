"""Killed at a chosen step, a run goes on to the bits of one never killed: each piece of its state.

The test dies within the process, at the call that it names: nothing is written after it.
"""

import random
from functools import wraps
from pathlib import Path

import numpy as np
import pytest

from lmkit.errors.user_error import UserError
from lmkit.experiment.definition import define
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.training.callbacks.epoch_end import EpochEnd
from lmkit.training.objective import RegularizedNLL
from tests.faults.comparison import assert_same_run, contents
from tests.tiny import TINY, composed, run_of, trained

OPTIONS = (
    *(*TINY, "callbacks.checkpoints.every_minutes=1e-6", "trainer.log_every_n_steps=1"),
    *("data.train_tokens=2000", "trunk.input_dropout=0.3", "max_epochs=3"),
)


class Killed(BaseException):
    """As SIGKILL would: nothing handles it."""


class Drawing(RegularizedNLL):
    """Draws from the generators that Lightning seeds beside PyTorch's."""

    def __call__(self, nll, *outputs):
        return super().__call__(nll, *outputs) * (random.random() + np.random.random_sample())


def killed_at(runs_dir: Path, method: str, call: int, *further: str) -> None:
    """Trains until `EpochEnd.method` is called for the `call`-th time."""
    original, calls = getattr(EpochEnd, method), 0

    @wraps(original)
    def fatal(*arguments):
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed
        return original(*arguments)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(EpochEnd, method, fatal)
        with pytest.raises(Killed):
            trained(runs_dir, *OPTIONS, *further)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> RunFolder:
    folder = trained(tmp_path_factory.mktemp("undisturbed"), *OPTIONS)
    # what is kept of the best epoch outlives the third
    assert folder.read_result().metrics["best_epoch"] == 2
    return folder


def ends(undisturbed: RunFolder) -> list[int]:
    """The step after which each epoch ends."""
    rows = MetricsFile(undisturbed.metrics).read()
    return [int(row["step"]) for row in rows if "valid/ppl" in row]


@pytest.mark.parametrize(
    ("epoch", "steps", "is_robbed"),
    # of the steps of the first epoch, and of those that are averaged
    [*((*step, False) for step in [(1, -4), (1, 1), (2, 0), (2, 1), (3, -4)]), (2, 3, True)],
)
def test_killed_before_a_step_is_saved(epoch, steps, is_robbed, undisturbed, tmp_path):
    """Its row is written, its checkpoint is not; 0 is the last step, saved after validation.

    One run is robbed of all its rows, too.
    """
    killed_at(tmp_path, "save", ends(undisturbed)[epoch - 1] + steps)
    if is_robbed:
        next(tmp_path.glob("*/metrics.csv")).unlink()
    assert_same_run(undisturbed, trained(tmp_path, *OPTIONS))


def test_killed_before_the_best_checkpoint_is_linked(undisturbed, tmp_path):
    killed_at(tmp_path, "_link_best", 2)
    assert_same_run(undisturbed, trained(tmp_path, *OPTIONS))


def test_a_best_checkpoint_of_another_epoch_is_refused_before_it_trains_on(undisturbed, tmp_path):
    killed_at(tmp_path, "save", ends(undisturbed)[2] - 2)
    folder = run_of(tmp_path, "toy")
    folder.best.unlink()
    folder.best.write_bytes(folder.last.read_bytes())  # as a copy made while it trained has it
    before = contents(folder.path)
    with pytest.raises(UserError, match=r"best\.ckpt is of epoch 3, and the best epoch is 2"):
        trained(tmp_path, *OPTIONS)
    assert contents(folder.path) == before


def test_a_class_may_draw_from_the_generators_of_python_and_numpy(tmp_path):
    drawing = f"objective._target_={__name__}.Drawing"
    killed_at(tmp_path / "killed", "save", 20, drawing)
    whole = trained(tmp_path / "whole", *OPTIONS, drawing)
    assert_same_run(whole, trained(tmp_path / "killed", *OPTIONS, drawing))


def test_a_checkpoint_of_another_configuration_is_refused(trained_runs, tmp_path):
    options = (*TINY, "optimizer.lr=4")
    other = define(composed(*options) | {"runs_dir": str(tmp_path)}).folder
    other.checkpoints.mkdir(parents=True)
    other.last.write_bytes(run_of(trained_runs, "toy").last.read_bytes())
    with pytest.raises(UserError, match="another configuration"):
        trained(tmp_path, *options)
