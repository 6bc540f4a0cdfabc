import numpy as np
import pytest

from lmkit.data.corpus import TextSplits
from lmkit.data.datamodule import WindowsDataModule
from lmkit.errors.user_error import UserError


def corpus(train: int = 4000, valid: int = 500, test: int = 300) -> TextSplits:
    words = tuple(f"w{index}" for index in range(50))
    streams = (np.arange(size, dtype=np.int64) % 50 for size in (train, valid, test))
    return TextSplits(words, *streams)


def data_module(seed: int = 3) -> WindowsDataModule:
    return WindowsDataModule(corpus=corpus(), batch_size=5, bptt=20, max_length_delta=10, seed=seed)


def test_splits_have_their_own_batch_sizes():
    module = data_module()
    assert module.train_dataloader().columns.targets_SB.shape == (799, 5)
    assert module.val_dataloader().columns.targets_SB.shape == (49, 10)
    assert module.test_dataloader().columns.targets_SB.shape == (299, 1)
    assert module.eval_batches("train").columns.targets_SB.shape == (399, 10)


def test_seed_decides_the_windows():
    first, again, other = (
        [window.sampled_length for window in data_module(seed).train_batches] for seed in (3, 3, 4)
    )
    assert first == again != other


@pytest.mark.parametrize(
    "option", ["batch_size", "valid_batch_size", "test_batch_size", "eval_length"]
)
def test_bad_options_are_named(option):
    with pytest.raises(UserError, match=rf"^windows\.{option} must be"):
        WindowsDataModule(**{"corpus": corpus(), "batch_size": 5, option: 0})


def test_an_unknown_split_is_refused():
    with pytest.raises(UserError, match=r"^split must be one of train, valid, test"):
        data_module().eval_batches("dev")
