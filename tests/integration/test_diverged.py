"""Runs that diverge: what is kept of them, and what they end with."""

import json
import math
from pathlib import Path

import pytest
import pytorch_lightning as pl

from lmkit.errors.user_error import UserError
from lmkit.training.checkpoint_files import load_checkpoint
from tests.tiny import SMALL, trained

TINY = (*SMALL, "callbacks.spectrum=null", "max_epochs=2")
REFUSED = (
    r"a weight is not finite after step [\d,]+: training stopped, and what was saved before stays; "
    r".*optimizer\.lr"
)


class Spoils(pl.Callback):
    """Puts what is no finite number into the gradient of a window of epoch 2."""

    def __init__(self, by: str, in_last_window: bool) -> None:
        self.factor = {"infinity": math.inf, "no_number": math.nan}[by]
        self.in_last_window = in_last_window

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        is_window = batch.is_last if self.in_last_window else batch.index == 2
        self.is_due = trainer.current_epoch == 1 and is_window

    def on_after_backward(self, trainer, pl_module):
        if self.is_due:
            next(pl_module.parameters()).grad[0] *= self.factor


def finite_checkpoint(runs_dir: Path) -> dict:
    """The last checkpoint, whose weights must be finite."""
    (path,) = runs_dir.glob("*/checkpoints/last.ckpt")
    last = load_checkpoint(path)
    assert all(weight.isfinite().all() for weight in last["state_dict"].values())
    return last


def test_a_run_of_infinite_perplexity_finishes_with_its_first_epoch(tmp_path, lmkit, refused):
    folder = trained(tmp_path, *TINY, "optimizer.lr=1e5")
    metrics = folder.read_result().metrics
    assert metrics["best_epoch"] == 1
    assert metrics["valid_ppl"] == metrics["test_ppl"] == math.inf
    assert 710 < metrics["test_nll"] < math.inf
    assert "test perplexity infinite, of epoch 1" in folder.log.read_text()
    lmkit("rank", f"run={folder.path}", "contexts=100")
    (file,) = folder.analysis.glob("rank_*.json")
    assert json.loads(file.read_text())["perplexity"] is None
    error = refused("truncation", f"run={folder.path}", "contexts=50")
    assert "is not written: a number in it is not finite" in error


@pytest.mark.parametrize(
    ("by", "in_last_window", "clip"), [("infinity", "false", "0.25"), ("no_number", "true", "null")]
)
def test_a_gradient_that_is_not_finite_leaves_the_last_good_checkpoint(
    tmp_path, by, in_last_window, clip
):
    spoils = "callbacks.spoils"
    options = [f"trainer.gradient_clip_val={clip}", f"+{spoils}._target_={__name__}.Spoils"]
    options += [f"+{spoils}.by={by}", f"+{spoils}.in_last_window={in_last_window}"]
    options += ["callbacks.checkpoints.every_minutes=1e-9", "optimizer.lr=1"]
    for _ in range(2):  # and where it goes on from that checkpoint
        with pytest.raises(UserError, match=REFUSED):
            trained(tmp_path, *TINY, *options)
    assert finite_checkpoint(tmp_path)["epoch"] == 1  # of the windows before that one


def test_weights_that_overflow_leave_the_last_good_checkpoint(tmp_path):
    """By their decay, while every loss and gradient is finite."""
    options = ["optimizer.lr=1e15", "callbacks.checkpoints.every_minutes=1e-9"]
    with pytest.raises(UserError, match=REFUSED):
        trained(tmp_path, *TINY, *options)
    finite_checkpoint(tmp_path)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    options = ["optimizer.lr=1e38", "trainer.gradient_clip_val=1e38"]
    with pytest.raises(UserError, match=r"window \d+ of epoch \d+ is not finite.*optimizer\.lr"):
        trained(tmp_path, *TINY, *options)
    assert not list(tmp_path.glob("*/result.json"))
    assert not list(tmp_path.glob("*/checkpoints/*.ckpt"))
