"""A checkpoint is there whole or not at all, and only from who holds the lock."""

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.runs.lock import LockLost
from lmkit.training.callbacks.epoch_end import EpochEnd
from lmkit.training.callbacks.stopping import Patience
from lmkit.training.checkpoint_files import AtomicCheckpointIO, read_tensors, write_tensors


def lost() -> None:
    raise LockLost("lost")


def test_a_write_that_breaks_off_leaves_the_checkpoint_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "last.ckpt"
    write_tensors(path, {"step": 1})

    def half(content, file):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(UserError, match="No space left"):
        write_tensors(path, {"step": 2})
    assert read_tensors(path) == {"step": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["last.ckpt"]


def test_who_has_lost_the_lock_writes_no_checkpoint(tmp_path):
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO(lambda: None).save_checkpoint({"step": 1}, path)
    with pytest.raises(LockLost):
        AtomicCheckpointIO(lost).save_checkpoint({"step": 2}, path)
    assert read_tensors(path) == {"step": 1}
    removed = tmp_path / "checkpoints"
    with pytest.raises(LockLost):
        AtomicCheckpointIO(lost).save_checkpoint({"step": 2}, removed / "last.ckpt")
    assert not removed.exists()


def epoch_end() -> EpochEnd:
    return EpochEnd(every_minutes=1, stopping=Patience(2))


def test_what_was_seen_makes_the_round_trip():
    original, resumed = epoch_end(), epoch_end()
    original.best_ppl, original.best_epoch, original.train_ppl_at_best = 5.0, 7, 4.0
    original.batches, original.called_off = {"epoch": 8, "windows_done": 3}, True
    original.stopping.history = [6.0, 5.0]
    resumed.load_state_dict(original.state_dict())
    assert vars(resumed) == vars(original) | {"stopping": resumed.stopping}
    assert resumed.stopping.history == [6.0, 5.0]
