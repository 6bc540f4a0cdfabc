"""A trained model and its data, rebuilt from the checkpoint of a run alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lmkit.data.corpus import Corpus
from lmkit.data.datamodule import DataModule, WindowsDataModule
from lmkit.errors.user_error import UserError
from lmkit.experiment.make import make
from lmkit.experiment.objects import make_data, make_model
from lmkit.heads.predictor import AnyBatch
from lmkit.measures.contexts import with_bar
from lmkit.runs.folder import RunFolder
from lmkit.training.callbacks.asgd_switch import load_evaluated_weights
from lmkit.training.checkpoint_files import load_checkpoint
from lmkit.training.head_module import HeadModule
from lmkit.training.language_model import LanguageModel


class LoadedRun(NamedTuple):
    """A run as its checkpoint holds it."""

    folder: RunFolder
    config: dict[str, Any]  # data.root is where the corpus was found this time
    source: Corpus
    model: HeadModule  # with the weights that the checkpoint's valid perplexity belongs to
    data: DataModule
    averaged: bool  # whether these weights are averages

    def with_bar(self, batches: Iterable[AnyBatch], contexts: int, then: str) -> Iterator[AnyBatch]:
        """The batches, with a bar over their contexts; `then` is what follows the last of them."""
        return with_bar(self.folder.path.name, batches, contexts, then)


def of_running_text(run: LoadedRun) -> tuple[LanguageModel, WindowsDataModule]:
    """The run's model and data. Raises: UserError when they are of something else."""
    if not isinstance(run.model, LanguageModel) or not isinstance(run.data, WindowsDataModule):
        raise UserError("it is no language model of running text")
    return run.model, run.data


def load_run(
    path: Path | str, checkpoint: str, data_root: str | None, threads: int | None
) -> LoadedRun:
    """Rebuilds model and data of the run in `path` from `checkpoint`, "best" or "last".

    Args:
        data_root: the folder of the corpora; None: where the run found its own.
        threads: of the CPU; None: as many as the run had.

    Raises: UserError when there is no such run, its checkpoint is damaged, or the text holds words
        that the model does not know.
    """
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise UserError(f"run={path} is no folder; give the folder of a run, such as runs/NAME-ID")
    file = folder.checkpoints / f"{checkpoint}.ckpt"
    content = load_checkpoint(file)
    if "lmkit" not in content:
        raise UserError(f"{file} is no checkpoint of lmkit")
    config, vocabulary = content["lmkit"]["config"], content["lmkit"]["vocabulary"]
    torch.set_num_threads(threads or config["threads"])
    if data_root is not None:
        config = config | {"data": config["data"] | {"root": data_root}}
    source = make(config["data"], "data", Corpus)
    corpus = source.load(vocabulary)
    model = make_model(config, torch.zeros(len(vocabulary), dtype=torch.long))
    averaged = load_evaluated_weights(model, content)
    if torch.cuda.is_available():
        model.to("cuda")
    return LoadedRun(folder, config, source, model, make_data(config, corpus), averaged)
