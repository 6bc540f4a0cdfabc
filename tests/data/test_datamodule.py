from __future__ import annotations

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from lmkit.data.corpus import TextSplits
from lmkit.data.datamodule import WindowsDataModule
from lmkit.data.windows import Window
from lmkit.errors.user_error import UserError


def corpus(train: int = 4000, valid: int = 500, test: int = 300) -> TextSplits:
    words = tuple(f"w{index}" for index in range(50))
    streams = (np.arange(size, dtype=np.int64) % 50 for size in (train, valid, test))
    return TextSplits(words, *streams)


def data_module(seed: int = 3) -> WindowsDataModule:
    return WindowsDataModule(corpus=corpus(), batch_size=5, bptt=20, max_length_delta=10, seed=seed)


class Recorder(pl.LightningModule):
    """Trains nothing, but notes which windows it was given, and commits them."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.stop_after = stop_after
        self.seen: list[tuple[int, int, int, int]] = []
        self.valid_targets = 0

    def training_step(self, window: Window, batch_idx: int) -> torch.Tensor:
        assert isinstance(window, Window)
        assert type(window.index) is int
        checksum = int(window.targets_TB.sum())
        self.seen.append((window.epoch, window.index, window.sampled_length, checksum))
        return self.weight * 0

    def on_train_batch_end(self, outputs, batch: Window, batch_idx: int) -> None:
        self.trainer.train_dataloader.commit(batch)
        if len(self.seen) == self.stop_after:
            self.trainer.save_checkpoint(self.trainer.default_root_dir + "/stopped.ckpt")
            raise KeyboardInterrupt

    def validation_step(self, window: Window, batch_idx: int) -> None:
        self.valid_targets += window.targets_TB.numel()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def fit(module: Recorder, folder, checkpoint: str | None = None) -> None:
    trainer = pl.Trainer(
        default_root_dir=str(folder),
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, data_module(), ckpt_path=checkpoint)


@pytest.mark.filterwarnings("ignore")
def test_lightning_resumes_at_the_window_after_the_last_trained_one(tmp_path):
    whole = Recorder()
    fit(whole, tmp_path)
    windows = data_module().train_batches
    epochs = [windows.num_batches(epoch) for epoch in (1, 2, 3)]
    assert [epoch for epoch, *_ in whole.seen] == np.repeat([1, 2, 3], epochs).tolist()
    assert len(set(epochs)) > 1, "the epochs must differ, or a cached length would not show"
    assert whole.valid_targets == 3 * 490
    # In the midst of an epoch, and before and after the last window of one.
    for stop_after in (7, epochs[0] - 1, epochs[0], epochs[0] + 1, epochs[0] + epochs[1] // 2):
        stopped, resumed = Recorder(stop_after), Recorder()
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            fit(stopped, tmp_path)
        fit(resumed, tmp_path, str(tmp_path / "stopped.ckpt"))
        assert stopped.seen + resumed.seen == whole.seen


def test_splits_have_their_own_batch_sizes():
    module = data_module()
    assert module.train_dataloader().columns_SB.shape == (800, 5)
    assert module.val_dataloader().columns_SB.shape == (50, 10)
    assert module.test_dataloader().columns_SB.shape == (300, 1)
    assert module.eval_batches("train").columns_SB.shape == (400, 10)


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
