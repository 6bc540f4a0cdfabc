"""What follows an epoch: the best one is kept, and its row is told."""

import re
from types import SimpleNamespace

import pytest
from pytorch_lightning.callbacks import Callback

import lmkit
from lmkit.errors.user_error import UserError
from lmkit.experiment.finetuning import finetuning_config
from lmkit.experiment.load import load_run
from lmkit.runs.folder import RunFolder
from lmkit.training.callbacks import epoch_end
from lmkit.training.checkpoint_files import load_checkpoint, write_tensors
from lmkit.training.triggers import Never
from tests.tiny import TINY
from tests.training.callbacks.test_stopping import Script


def test_the_best_epoch_is_the_first_with_the_lowest_perplexity(fit):
    run = fit(Never(), 4, Script([9.0, 7.0, 7.0, 8.0]))
    kept = load_checkpoint(run.checkpoint)["callbacks"]["EpochEnd"]
    assert (kept["best_ppl"], kept["best_epoch"]) == (7.0, 2)
    best = load_checkpoint(run.checkpoint.with_name("best.ckpt"))
    assert best["epoch"] + 1 == kept["best_epoch"]


def test_within_an_epoch_the_minutes_count_from_the_checkpoint_before(fit, monkeypatch):
    now = 0.0

    class Slow(Callback):
        def on_train_batch_start(self, *_: object) -> None:
            nonlocal now
            now += 60 * 400  # of the 1000 minutes between two checkpoints

    monkeypatch.setattr(epoch_end, "time", SimpleNamespace(monotonic=lambda: now))
    run = fit(Never(), 1, Slow())
    log = RunFolder(run.checkpoint.parents[1]).log.read_text()
    steps = [int(step) for step in re.findall(r"saved at step (\d+)", log)]
    assert steps[:2] == [3, 6]


def test_a_checkpoint_of_an_earlier_version_is_refused_by_name(fit, tmp_path):
    content = load_checkpoint(fit(Never(), 1).checkpoint)
    content["callbacks"]["Checkpoints"] = content["callbacks"].pop("EpochEnd")
    old = tmp_path / "last.ckpt"
    write_tensors(old, content)
    with pytest.raises(UserError, match=r"last\.ckpt is of an earlier version; remove it"):
        fit(Never(), 2, resume=old)


def test_a_best_checkpoint_of_another_moment_than_the_last_is_refused(tmp_path):
    def stop(epoch: int, row) -> None:
        if epoch == 2:
            raise ValueError("given up")

    line = [*TINY, f"runs_dir={tmp_path}"]
    with pytest.raises(ValueError, match="given up"):
        lmkit.train(line, stop)
    (last,) = tmp_path.glob("*/checkpoints/last.ckpt")
    best, content = last.with_name("best.ckpt"), load_checkpoint(last)
    state = content["callbacks"]["EpochEnd"]
    write_tensors(last, content | {"callbacks": {"EpochEnd": state | {"last_is_best": False}}})
    write_tensors(best, content | {"epoch": 0})  # of an epoch before
    with pytest.raises(UserError, match=r"best\.ckpt is of epoch 1, and the best epoch is 2: was"):
        lmkit.train(line)
    best.unlink()
    with pytest.raises(
        UserError, match=r"best\.ckpt is missing, and that of epoch 2 is needed: was"
    ):
        lmkit.train(line)
    write_tensors(last, content)  # as it was: the best itself
    run = lmkit.train(line)
    assert run.result.metrics["best_epoch"] == 2

    write_tensors(best, content | {"epoch": 0})  # from a backup, say
    for read in (
        lambda: lmkit.load(run.folder.path),
        lambda: load_run(run.folder.path, "best", None, None),
        lambda: finetuning_config(run.folder, {}, None, None),
    ):
        with pytest.raises(UserError, match=r"best\.ckpt is of epoch 1, and the best epoch is 2"):
            read()


def test_after_each_epoch_its_row_is_told_and_an_error_leaves_what_can_be_resumed(tmp_path):
    told: list[tuple[int, float]] = []

    def after(epoch: int, row) -> None:
        told.append((epoch, row["valid/ppl"]))
        if epoch == 2:
            raise ValueError("given up")

    line = [*TINY, f"runs_dir={tmp_path}", "max_epochs=3"]
    with pytest.raises(ValueError, match="given up"):
        lmkit.train(line, after)
    run = lmkit.train(line)
    assert "resuming after epoch 2 " in run.folder.log.read_text()
    rows = [row["valid/ppl"] for row in run.metrics if "valid/ppl" in row]
    assert told == list(enumerate(rows[:2], 1))
