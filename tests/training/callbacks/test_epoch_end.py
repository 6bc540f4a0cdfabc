"""What follows an epoch: the best one is kept, and its row is told."""

import pytest

import lmkit
from lmkit.errors.user_error import UserError
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


def test_a_checkpoint_of_an_earlier_version_is_refused_by_name(fit, tmp_path):
    content = load_checkpoint(fit(Never(), 1).checkpoint)
    content["callbacks"]["Checkpoints"] = content["callbacks"].pop("EpochEnd")
    old = tmp_path / "last.ckpt"
    write_tensors(old, content)
    with pytest.raises(UserError, match=r"last\.ckpt is of an earlier version; remove it"):
        fit(Never(), 2, resume=old)


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
