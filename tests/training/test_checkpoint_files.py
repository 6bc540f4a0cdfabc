"""A checkpoint is there whole or not at all, and only from who holds the lock."""

import re
from collections import deque

import numpy as np
import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.runs.lock import LockLost
from lmkit.training.callbacks.epoch_end import EpochEnd
from lmkit.training.callbacks.stopping import Patience
from lmkit.training.checkpoint_files import AtomicCheckpointIO, read_tensors, write_tensors
from tests.runs.test_atomic import files_of_at_most


def lost() -> None:
    raise LockLost("lost")


def test_a_checkpoint_that_does_not_fit_leaves_the_one_that_was_there(tmp_path):
    """torch.save turns the failed write into a RuntimeError of its own."""
    path = tmp_path / "last.ckpt"
    write_tensors(path, {"weight": torch.ones(10)})
    with files_of_at_most(100_000), pytest.raises(UserError) as refused:
        write_tensors(path, {"weight": torch.ones(10**6)})
    assert str(refused.value).startswith(f"cannot write {path}: File too large")
    assert read_tensors(path)["weight"].shape == (10,)
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


def test_what_is_more_than_plain_data_is_not_loaded(tmp_path):
    path = tmp_path / "last.ckpt"
    write_tensors(path, {"folder": tmp_path})
    with pytest.raises(ValueError, match="Weights only load failed"):
        read_tensors(path)


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


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"norms": [np.float64(2.0)]}, "holds numpy._core.multiarray.scalar, numpy.dtype; it may"),
        ({"seen": deque([1])}, "holds collections.deque; it may"),
        ({"rule": lambda: None}, "cannot be saved: Can"),
    ],
)
def test_a_state_that_could_not_be_loaded_is_refused_before_it_is_saved(tmp_path, state, reason):
    path, good = tmp_path / "last.ckpt", {"weight": torch.ones(2), "seen": [1, 2.0, "a", None]}
    io = AtomicCheckpointIO(lambda: None)
    io.save_checkpoint({"callbacks": {"Norms": good}}, path)
    for take in (None, lambda checkpoint: None):
        with pytest.raises(UserError, match=rf"^Norms\.state_dict\(\) {re.escape(reason)}"):
            io.save_checkpoint({"callbacks": {"Norms": good | state}}, path, take)
    assert read_tensors(path)["callbacks"]["Norms"]["seen"] == good["seen"]
