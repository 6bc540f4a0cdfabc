"""The cost of SpectrumCallback beside that of an epoch, at the published PTB sizes.

    python tests/benchmarks/bench_spectrum_callback.py                        # as published
    python tests/benchmarks/bench_spectrum_callback.py --experiments penn_mos --windows 10

The callback runs as it does at the end of an epoch, with its default options, files and W&B
(offline) included. An epoch's time is that of its first windows, scaled to all of its tokens. Both
are seconds of CPU of this process, all threads together: other work on the machine hardly changes
them. Words are drawn by Zipf's law, as many as PTB has; it changes no time.

Found on one thread of an Intel Xeon (AVX-512) with 2,000 contexts, epochs from 3 windows:

    experiment      an epoch   callback   share
    penn_softmax      1591 s     1.61 s   0.10 %   log P from factors
    penn_gss          1507 s     6.30 s   0.42 %   log P and transformed logits
    penn_lms_plif     1622 s     6.28 s   0.39 %   log P and transformed logits
    penn_mos          4128 s     5.40 s   0.13 %   log P
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
import wandb
from pytorch_lightning.loggers import WandbLogger
from rich.console import Console

from lmkit.cli.entry import compose, plain_config
from lmkit.data.corpus import TextSplits
from lmkit.data.datamodule import WindowsDataModule
from lmkit.experiment.make import make
from lmkit.experiment.objects import make_data, make_model
from lmkit.presentation.tables import Column, Table, number, whole, word
from lmkit.presentation.terminal import to_terminal
from lmkit.runs.folder import RunFolder
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.language_model import LanguageModel

EXPERIMENTS = ("penn_softmax", "penn_gss", "penn_lms_plif", "penn_mos")
NUM_WORDS, TOKENS = 10_000, {"train": 929_589, "valid": 73_760, "test": 82_430}
TARGET = 0.10


class Cost(NamedTuple):
    """Seconds of CPU."""

    window: float  # a token's share of the windows, times a full window's tokens
    epoch: float
    callback: float
    files: int  # spectra that the callback wrote


def corpus() -> TextSplits:
    """As many words as PTB has, by Zipf's law."""
    random = np.random.default_rng(0)
    weights = 1 / np.arange(1, NUM_WORDS + 1)
    splits = {
        name: random.choice(NUM_WORDS, count, p=weights / weights.sum()).astype(np.int32)
        for name, count in TOKENS.items()
    }
    return TextSplits(tuple(map(str, range(NUM_WORDS))), **splits)


def epoch_seconds(
    model: LanguageModel, data: WindowsDataModule, config: dict, num_windows: int
) -> float:
    """Of the first windows but the very first, scaled to the tokens of an epoch."""
    options = config["trainer"]
    model.trainer = SimpleNamespace(log_every_n_steps=options["log_every_n_steps"])
    model.on_train_start()
    optimizer = model.configure_optimizers()
    tokens = 0
    for index, window in zip(range(num_windows + 1), data.train_batches, strict=False):
        if index == 1:
            started = time.process_time()
        model.on_train_batch_start(window, index)
        model.training_step(window, index).backward()
        model.configure_gradient_clipping(optimizer, options["gradient_clip_val"], None)
        optimizer.step()
        optimizer.zero_grad()
        tokens += window.targets_TB.numel() if index else 0
    return (time.process_time() - started) / tokens * TOKENS["train"]


def callback_seconds(
    model: LanguageModel, data: WindowsDataModule, config: dict, folder: Path
) -> float:
    """Of what the callback does at an epoch's end."""
    callback = make(config["callbacks"]["spectrum"] | {"every": 1}, "callbacks.spectrum")
    switch = AsgdSwitch(make(config["trigger"], "trigger"))
    run = RunFolder(folder)
    run.spectra.mkdir()
    callback.attach(SimpleNamespace(folder=run, switch=switch, check_lock=lambda: None))
    settings = wandb.Settings(silent=True)
    with wandb.init(mode="offline", dir=folder, settings=settings) as run:
        loggers = [WandbLogger(experiment=run)]
        model.trainer = None  # there is none to report to
        trainer = SimpleNamespace(current_epoch=0, datamodule=data, loggers=loggers)
        started = time.process_time()
        callback.on_train_epoch_end(trainer, model)
        return time.process_time() - started


def measure(experiment: str, words: TextSplits, num_windows: int, threads: int) -> Cost:
    """One experiment's cost."""
    config = plain_config(compose("train", [f"experiment={experiment}"]))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = make_model(config, torch.zeros(NUM_WORDS, dtype=torch.int64))
    data = make_data(config, words)
    epoch = epoch_seconds(model, data, config, num_windows)
    with tempfile.TemporaryDirectory() as folder:
        callback = callback_seconds(model, data, config, Path(folder))
        files = len(list(Path(folder).glob("spectra/*.npz")))
    full_window = config["windows"]["bptt"] * config["windows"]["batch_size"]
    return Cost(epoch / TOKENS["train"] * full_window, epoch, callback, files)


def main() -> int:
    """Prints a line for each experiment; 1 if the callback takes a tenth of an epoch or more."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", nargs="+", default=list(EXPERIMENTS))
    parser.add_argument("--windows", type=int, default=6, help="training windows that are timed")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*self.log.*")  # there is no trainer
    title = f"seconds of CPU, {args.threads} threads; an epoch from {args.windows} windows"
    columns = [Column("experiment", is_text=True)]
    columns += map(Column, ("a window", "an epoch", "callback", "spectra", "share, %"))
    words, shares, rows = corpus(), [], []
    for experiment in args.experiments:
        cost = measure(experiment, words, args.windows, args.threads)
        shares.append(cost.callback / cost.epoch)
        rows.append(
            [
                word(experiment),
                number(cost.window, 3),
                number(cost.epoch, 0),
                number(cost.callback),
                whole(cost.files),
                number(100 * shares[-1]),
            ]
        )
    Console().print(to_terminal(Table("callback", title, "", columns, rows)))
    return 0 if max(shares) < TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
