"""A trained model rebuilt from its run's checkpoint: with its data, or alone for Python.

Shapes: N words, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmkit.data.corpus import Corpus
from lmkit.data.datamodule import DataModule, WindowsDataModule
from lmkit.data.tokenizer import Tokenizer, Words
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.experiment.make import make
from lmkit.experiment.objects import make_data, make_model
from lmkit.heads.predictor import AnyBatch, exact_evaluation
from lmkit.measures.contexts import with_bar
from lmkit.presentation.quantities import perplexity_text
from lmkit.runs.analysis_files import Text
from lmkit.runs.finished import read_finished
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile, Row
from lmkit.runs.result import Result
from lmkit.training.callbacks.asgd_switch import load_evaluated_weights
from lmkit.training.checkpoint_files import load_checkpoint
from lmkit.training.head_module import HeadModule
from lmkit.training.language_model import LanguageModel

UNKNOWN = "<unk>"


class LoadedRun(NamedTuple):
    """A run as restored from its checkpoint."""

    folder: RunFolder
    config: dict[str, Any]  # data.root is where the corpus was found this time
    source: Corpus
    model: HeadModule  # with the weights that the checkpoint's valid perplexity belongs to
    data: DataModule
    averaged: bool  # whether these weights are averages

    def with_bar(self, batches: Iterable[AnyBatch], contexts: int, then: str) -> Iterator[AnyBatch]:
        """The batches, with a progress bar over their contexts; `then` names what follows the
        last."""
        return with_bar(self.folder.path.name, batches, contexts, then)

    def text(self) -> Text:
        """The text that was found this time, by its hash now: a file may have been edited.

        Raises: UserError when it, or the run's identity, cannot be read.
        """
        sha256 = self.source.fingerprint()
        own = self.folder.read_identity().settings.get("data_sha256")
        name = str(self.config["data"].get("root") or self.config["data"]["name"])
        return Text(name, sha256, sha256 == own)


def as_language_model(run: LoadedRun) -> tuple[LanguageModel, WindowsDataModule]:
    """The run's model and data. Raises: UserError when it is not a language model."""
    if not isinstance(run.model, LanguageModel) or not isinstance(run.data, WindowsDataModule):
        raise UserError("it is not a language model of running text")
    return run.model, run.data


def load_run(
    path: Path | str, checkpoint: str, data_root: str | None, threads: int | None
) -> LoadedRun:
    """Rebuilds model and data of the run in `path` from `checkpoint`, "best" or "last".

    Args:
        data_root: the folder of the corpora; None: where the run found its own.
        threads: CPU threads; None: as many as the run had.

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
        if "root" not in config["data"]:
            raise UserError(f"data={config['data']['name']} has no folder: leave out data_root")
        config = config | {"data": config["data"] | {"root": data_root}}
    source = make(config["data"], "data", Corpus)
    corpus = source.load(vocabulary)
    model = make_model(config, torch.zeros(len(vocabulary), dtype=torch.long))
    averaged = load_evaluated_weights(model, content)
    if torch.cuda.is_available():
        model.to("cuda")
    return LoadedRun(folder, config, source, model, make_data(config, corpus), averaged)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A finished run, without its corpus."""

    folder: RunFolder
    model: HeadModule  # in evaluation mode, with the weights of the best epoch that count
    vocabulary: tuple[str, ...]  # words by index
    config: dict[str, Any]
    metrics: list[Row]  # of metrics.csv; pandas.DataFrame(run.metrics) is a table
    result: Result

    def __repr__(self) -> str:
        parameters = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        size = f"{parameters:,} parameters, {len(self.vocabulary):,} words"
        ppl = perplexity_text(self.result.metrics["test_ppl"])
        return f"<TrainedRun {self.folder.path}: {size}, test perplexity {ppl}>"

    def log_probs(self, text: str) -> Tensor:
        """log P of every word where each word of `text` stands: (N, V), nats, on the CPU.

        The text is taken to follow an end of line, as in the corpora. Words are separated by white
        space; unknown words become <unk> if the model has that word. A subword model reads the text
        verbatim, with a leading space if its lines begin with one.

        Raises: UserError for a text without words, an unknown word, or a model of something else.
        """
        model = self.model
        if not isinstance(model, LanguageModel):
            raise UserError(f"{self.folder.path} is not a language model of running text")
        words = self.word_indices(text)
        inputs_T = torch.tensor([self.tokenizer.line_end(), *words[:-1]], device=model.device)
        inputs_T1 = inputs_T[:, None]
        with exact_evaluation(model, model.device.type):
            output = model.trunk(inputs_T1, model.trunk.initial_state(1))
            log_probs_NV: Tensor = model.head.log_probs(model.head_input(output))
        return log_probs_NV.cpu()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that encodes and decodes text with the run's vocabulary."""
        source: Corpus = make(self.config["data"], "data", Corpus)
        return source.tokenizer_by(self.vocabulary)

    def word_indices(self, text: str) -> list[int]:
        """The words or subwords of a text by their indices. Raises: UserError as `log_probs`."""
        if not isinstance(self.tokenizer, Words):
            return self.tokenizer.ids("the text", text)
        index = {word: position for position, word in enumerate(self.vocabulary)}
        words = text.split()
        if not words:
            raise UserError("the text has no words")
        unknown = next((w for w in words if w not in index and UNKNOWN not in index), None)
        if unknown is not None:
            near = did_you_mean(unknown, self.vocabulary)
            raise UserError(f"the model does not know the word {unknown!r}{near}")
        return [index.get(word, index.get(UNKNOWN, 0)) for word in words]


def load(run: Path | str, device: str = "cpu") -> TrainedRun:
    """The finished run in the folder `run`; its corpus need not be there.

    Args:
        device: where the model goes, as torch names it.

    Raises: UserError when there is no such run, it has not finished, or its checkpoint is gone.
    """
    if not isinstance(run, Path | str) or not Path(run).is_dir():
        raise UserError(f"{run} is no folder; give the folder of a run, such as runs/NAME-ID")
    folder = RunFolder(Path(run))
    if folder.state() != "finished":
        why = "there is no run in it" if folder.state() == "new" else "it has not finished"
        raise UserError(f"{run}: {why}; give the folder of a finished run, such as runs/NAME-ID")
    result = read_finished(folder).result
    content = load_checkpoint(folder.best)
    config, vocabulary = content["lmkit"]["config"], tuple(content["lmkit"]["vocabulary"])
    model = make_model(config, torch.zeros(len(vocabulary), dtype=torch.long))
    load_evaluated_weights(model, content)
    model.to(device).eval()
    rows = MetricsFile(folder.metrics).read_finished()
    return TrainedRun(folder, model, vocabulary, config, rows, result)
