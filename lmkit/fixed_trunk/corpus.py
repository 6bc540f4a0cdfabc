"""A text as the contexts of a fixed trunk, and the words that follow them.

The contexts are those of evaluation: no dropout, averaged weights if there are any, state carried
across windows; for a pretrained model those of overlapping windows, without a state. They are the
input of the trunk's own head, before its mixture.

Shapes: S steps of a column, C columns, N contexts, T window length, D size of a context.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmkit.data.corpus import Corpus, TextCorpus, TextSize, TextSplits
from lmkit.data.tokenizer import Tokenizer
from lmkit.errors.user_error import UserError, require_choice
from lmkit.experiment.make import make
from lmkit.runs.checksums import sha256_of_values
from lmkit.runs.folder import RunFolder

if TYPE_CHECKING:  # they import torch, which reporting a finished run does without
    from torch import Tensor

    from lmkit.data.windows import Columns
    from lmkit.fixed_trunk.store import Compute
    from lmkit.heads.head import Head
    from lmkit.pretrained.loading import LoadedPretrained
    from lmkit.training.language_model import LanguageModel

VERSION = 1  # raised whenever the same trunk and text would give other contexts


class ContextSplits(TextSplits):
    """A text whose windows hold contexts instead of words."""

    source: TrunkContexts  # that computes them
    _contexts: Callable[[str, int], Columns]

    @classmethod
    def of(cls, text: TextSplits, source: TrunkContexts) -> ContextSplits:
        splits = cls(*text)
        splits.source = source
        splits._contexts = lru_cache(lambda *of: source._columns(text, *of))
        return splits

    def columns(self, split: str, num_columns: int) -> Columns:
        return self._contexts(split, num_columns)


@dataclass(kw_only=True, eq=False, repr=False)
class TrunkContexts(Corpus):
    """The contexts of a trunk on its text."""

    splits = ContextSplits
    goes_with = "windows=bptt or windows=contexts, module=language_model and trunk=fixed"

    weights_sha256: str  # of the trunk's weights, and of its decoder's
    out_dim: int  # D
    dtype: str  # of the contexts on the disk, float32 or bfloat16
    text: Mapping[str, Any]  # the section of a configuration that makes the text's corpus
    root: str | None = None  # the folder of the corpora, where that corpus has one

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("trunk.dtype", self.dtype, ("float32", "bfloat16"))
        section = dict(self.text) | ({"root": self.root} if "root" in self.text else {})
        self.corpus = make(section, "data", Corpus)
        self.unit = self.corpus.unit

    def fingerprint(self) -> str:
        """Fingerprint of the text and of all that decides its contexts: the data of the run."""
        decides = self._decides() | {"text": self.corpus.fingerprint(), "dtype": self.dtype}
        return sha256_of_values(decides)

    def load(self, vocabulary: Sequence[str] | None = None) -> ContextSplits:
        return ContextSplits.of(self._text_splits(vocabulary), self)

    def text_size(self, split: str, vocabulary: Sequence[str]) -> TextSize | None:
        return self.corpus.text_size(split, vocabulary)

    def tokenizer_by(self, vocabulary: Sequence[str]) -> Tokenizer:
        return self.corpus.tokenizer_by(vocabulary)

    def tokenizer_json(self) -> str | None:
        return self.corpus.tokenizer_json()

    def restore_tokenizer(self, json: str | None) -> None:
        self.corpus.restore_tokenizer(json)

    def _decides(self) -> dict[str, object]:
        """What decides the contexts beside the text."""
        return {"version": VERSION, "weights_sha256": self.weights_sha256}

    def _text_splits(self, vocabulary: Sequence[str] | None) -> TextSplits:
        text = self.corpus.load(vocabulary)
        assert isinstance(text, TextSplits)
        return text

    @abstractmethod
    def head(self) -> Head:
        """The trunk's own head. Raises: UserError if the trunk has changed."""

    @abstractmethod
    def _columns(self, text: TextSplits, split: str, num_columns: int) -> Columns:
        """The contexts of a split, computed if not stored yet."""

    def _stored(
        self, tokens: np.ndarray, split: str, steps: int, columns: int, compute: Compute
    ) -> Tensor:
        """The contexts (S, C, D) of a split's tokens; computed if they are not stored yet."""
        from lmkit.fixed_trunk.store import Contents, stored_contexts

        decides = self._decides() | {"tokens": hashlib.sha256(tokens.tobytes()).hexdigest()}
        label, shape = f"{self.name}-{split}-{columns}", (steps, columns, self.out_dim)
        return stored_contexts(Contents(decides, label, shape, self.dtype), compute)


@dataclass(kw_only=True, eq=False, repr=False)
class ContextsOfRun(TrunkContexts):
    """The contexts of a finished run's trunk on the text that it was trained on."""

    folder: str  # of the run
    eval_length: int  # of its evaluation windows: it decides the order of sums

    def __post_init__(self) -> None:
        super().__post_init__()
        self._run = RunFolder(Path(self.folder))
        self._has_tokenizer = self.unit != "subwords"

    def fingerprint(self) -> str:
        self._take_tokenizer()
        return super().fingerprint()

    def restore_tokenizer(self, json: str | None) -> None:
        super().restore_tokenizer(json)
        self._has_tokenizer = True

    def head(self) -> Head:
        return self._model().head

    def _decides(self) -> dict[str, object]:
        return super()._decides() | {"eval_length": self.eval_length}

    def _text_splits(self, vocabulary: Sequence[str] | None) -> TextSplits:
        self._take_tokenizer()
        if vocabulary is None:  # of a head that is to be trained
            trained_on = self._run.read_identity().settings.get("data_sha256")
            if self.corpus.fingerprint() != trained_on:
                raise UserError(
                    f"the text of {self._run.path} is another now, or data.root= names another: a "
                    f"head needs what its trunk was trained on"
                )
        return super()._text_splits(vocabulary or self._known["vocabulary"])

    def _take_tokenizer(self) -> None:
        """Takes the subwords that the trunk was trained with, unless a checkpoint gave them."""
        if not self._has_tokenizer:
            self.restore_tokenizer(self._known.get("tokenizer"))

    @cached_property
    def _known(self) -> dict[str, Any]:
        """Vocabulary and tokenizer of the trunk, whatever its text has become."""
        known: dict[str, Any] = self._checkpoint()["lmkit"]
        return known

    def _checkpoint(self) -> dict[str, Any]:
        from lmkit.training.callbacks.asgd_switch import evaluated_sha256
        from lmkit.training.checkpoint_files import load_checkpoint

        if not self._run.path.is_dir():
            raise UserError(
                f"{self._run.path}, whose contexts these are, is needed here: contexts that the "
                f"cache does not have are computed by that run"
            )
        content = load_checkpoint(self._run.best)
        if evaluated_sha256(content) != self.weights_sha256:
            raise UserError(
                f"{self._run.best} has other weights than those of these contexts: "
                f"run the command with trunk.of={self._run.path} again, which is another run"
            )
        return content

    def _model(self) -> LanguageModel:
        """Read anew for each split that is not stored, so that training has the memory."""
        import torch

        from lmkit.experiment.load import changed_classes, restored_model
        from lmkit.training.language_model import LanguageModel

        content = self._checkpoint()
        changed_classes(self._run, allowed=False, or_else="")
        model, _ = restored_model(content)
        assert isinstance(model, LanguageModel)
        return model.to("cuda" if torch.cuda.is_available() else "cpu")

    def _columns(self, text: TextSplits, split: str, num_columns: int) -> Columns:
        words, tokens = text.columns(split, num_columns), text.tokens(split)
        steps = len(words.targets_SB)
        contexts_SCD = self._stored(
            tokens, split, steps, num_columns, lambda: self._computed(words)
        )
        return words._replace(inputs_SB=contexts_SCD)

    def _computed(self, words: Columns) -> Iterator[Tensor]:
        """The contexts (T, C, D), window by window, with a progress bar."""
        from lmkit.data.windows import EvalWindows
        from lmkit.heads.predictor import exact_evaluation
        from lmkit.measures.contexts import with_bar

        model, windows = self._model(), EvalWindows(words, self.eval_length)
        state = model.trunk.initial_state(words.targets_SB.shape[1])
        for window in with_bar(self.name, windows, windows.num_targets, "writing"):
            with exact_evaluation(model):
                output = model.trunk(window.inputs_TB.to(model.device), state)
            state = output.state
            yield output.dropped_TBD


@dataclass(kw_only=True, eq=False, repr=False)
class ContextsOfPretrained(TrunkContexts):
    """The contexts of a pretrained model of transformers."""

    folder: str  # of the model
    num_words: int  # V, of its output layer
    window: int  # with the stride: as of `lmkit rank hf=`
    stride: int
    prefix: Sequence[int] = ()  # the tokens that its tokenizer puts before every text
    beginning: int | None = None  # the same, one or none, in configurations of earlier runs

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prefix = tuple(self.prefix) if self.beginning is None else (self.beginning,)

    def head(self) -> Head:
        return self._loaded().model.head

    def text_size(self, split: str, vocabulary: Sequence[str]) -> TextSize | None:
        size = super().text_size(split, vocabulary)
        if size is None or not self.prefix:
            return size
        # then all tokens of the first word are predicted, and none of them counts
        return size._replace(first_word_tokens=size.first_word_tokens + 1)

    def _decides(self) -> dict[str, object]:
        # one or none as earlier versions wrote it, whose contexts stay valid
        beginning = self.prefix if len(self.prefix) > 1 else next(iter(self.prefix), None)
        windows = {"window": self.window, "stride": self.stride, "beginning": beginning}
        return super()._decides() | windows

    def _text_splits(self, vocabulary: Sequence[str] | None) -> TextSplits:
        from lmkit.data.subwords import padded

        text = super()._text_splits(None)
        begins = np.array(self.prefix[-1:], dtype=np.int64)  # before what is predicted first
        splits = (np.concatenate([begins, tokens]) for tokens in text[1:])
        return TextSplits(padded(text.vocabulary, self.num_words), *splits)

    def _loaded(self) -> LoadedPretrained:
        """Read anew for each split that is not stored, so that training has the memory."""
        from lmkit.pretrained.loading import load_pretrained
        from lmkit.pretrained.source import Checkpoint, files_sha256

        if files_sha256(self.folder) != self.weights_sha256:
            raise UserError(
                f"the model in {self.folder} is not the one of these contexts: run the "
                f"command with trunk.of=hf:{self.folder} again, which is another run"
            )
        checkpoint = Checkpoint(self.folder, None, self.name, None)
        assert isinstance(self.corpus, TextCorpus)
        text = self.corpus.files.text("valid")  # on whose beginning its head is checked
        return load_pretrained(
            checkpoint, text[:2000], window=self.window, stride=self.stride, option="trunk.of=hf:"
        )

    def _columns(self, text: TextSplits, split: str, num_columns: int) -> Columns:
        import torch

        from lmkit.data.windows import FEWER_COLUMNS, Columns

        tokens = text.tokens(split)
        contexts_N1D = self._stored(
            tokens, split, len(tokens) - 1, 1, lambda: self._computed(tokens)
        )
        steps = len(contexts_N1D) // num_columns
        if not steps:
            raise UserError(
                f"{split} has {len(tokens)} tokens, too few for {num_columns} columns; "
                f"{FEWER_COLUMNS}"
            )
        kept = steps * num_columns
        contexts_CSD = contexts_N1D[:kept].view(num_columns, steps, self.out_dim)
        targets_CS = torch.from_numpy(tokens[1 : kept + 1]).view(num_columns, steps)
        return Columns(contexts_CSD.transpose(0, 1), targets_CS.T)

    def _computed(self, tokens: np.ndarray) -> Iterator[Tensor]:
        """The contexts (n, 1, D) that each window adds, with a progress bar."""
        from lmkit.measures.contexts import with_bar

        loaded = self._loaded()
        windows = loaded.windows_of(tokens)
        shown = with_bar(self.name, windows, windows.num_targets, "writing")
        for hidden_n1D, _ in loaded.model.head_inputs(shown):
            yield loaded.model.head.contexts(hidden_n1D).context_NKE
