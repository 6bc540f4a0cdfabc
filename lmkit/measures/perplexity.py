"""Perplexity of a model on a split, and measures that compare across tokenizers.

Perplexities per token do not compare between tokenizers. What compares is the same text's negative
log-likelihood, with the state carried in one column, over the same units:

    perplexity per word = exp(nats / words)
    bits per byte       = nats / ln 2 / bytes

`nats` and `words` cover all words and ends of lines except the first word, which no word-level
model predicts: a text's first token is only read, and the other tokens of its word do not count. A
word-level model's perplexity per word is its perplexity in one column. `bytes` are all of the
split's text, including line ends and `<unk>` as written there.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric

from lmkit.data.corpus import Corpus
from lmkit.data.datamodule import DataModule, WindowsDataModule
from lmkit.data.windows import Batch, EvalBatches
from lmkit.heads.predictor import Predictor
from lmkit.measures.contexts import with_bar


class TokenMean(Metric):
    """Mean over tokens in float64, without waiting for the device. For training perplexity the
    authors' programs average over windows instead, whatever their length.
    """

    total: Tensor  # sum over tokens
    num_tokens: Tensor

    def __init__(self) -> None:
        super().__init__()
        for state in ("total", "num_tokens"):
            self.add_state(state, torch.zeros((), dtype=torch.float64))

    def update(self, mean: Tensor, num_tokens: int) -> None:
        """Adds `num_tokens` tokens with that mean."""
        self.total += num_tokens * mean.double()
        self.num_tokens += num_tokens

    def compute(self) -> Tensor:
        """The mean over all tokens added since the last reset."""
        return self.total / self.num_tokens


def mean_nll(model: Predictor, batches: Iterable[Batch]) -> float:
    """Mean negative log-likelihood over all targets, nats, as validation computes it."""
    mean = TokenMean().to(model.device)
    for nll_TB in model.token_nlls(batches):
        mean.update(nll_TB.double().mean(), nll_TB.numel())
    return float(mean.compute())


def safe_exp(nll: float) -> float:
    """exp(nll), infinity where that overflows and for NaN."""
    return math.exp(nll) if nll < 700 else math.inf


class Perplexity(NamedTuple):
    """How well a split is predicted, over all of its targets."""

    nll: float  # nats per token
    perplexity: float  # `safe_exp` of nll
    bits_per_token: float
    num_tokens: int


def as_perplexity(nll: float, num_tokens: int) -> Perplexity:
    """The perplexity of `num_tokens` tokens whose mean negative log-likelihood is `nll`."""
    return Perplexity(nll, safe_exp(nll), nll / math.log(2), num_tokens)


def perplexity(
    model: Predictor, batches: EvalBatches, name: str, tell: Callable[[str], object] | None = None
) -> Perplexity:
    """Predicts all batches, state carried, in float32 without autocast, with a progress bar.

    The sum is divided by the predicted tokens. The AWD-LSTM authors' program and its descendants
    divide by one more row: published valid perplexities are 0.03 (PTB) and 0.01 (WT2) too low.

    Args:
        tell: as in `with_bar`.
    """
    shown = with_bar(name, batches, batches.num_targets, "perplexity", tell)
    nll = mean_nll(model, shown)
    return as_perplexity(nll, batches.num_targets)


def text_content(
    model: Predictor,
    data: DataModule,
    source: Corpus,
    split: str,
    measured: Perplexity,
    prefix: str = "",
    *,
    in_one_column: bool = False,
) -> dict[str, object]:
    """How well the text of valid or test is predicted, as results and analyses store it; {} where
    these are not files of running text, and for train.

    Args:
        measured: per token. If not measured in one column, the split is predicted again here.
        prefix: of the names.
        in_one_column: whether it was, whatever the columns of `data`. Further tokens of the
            first word are taken as predicted by the model alone.
    """
    if split == "train" or not isinstance(data, WindowsDataModule):
        return {}
    size = source.text_size(split, data.corpus.vocabulary)
    if size is None:
        return {}
    if not in_one_column and data.num_columns(split) > 1:
        measured = perplexity(model, data.one_column(split), f"{split}, one column")
    uncounted = 0.0
    if size.first_word_tokens > 1:
        first_word = data.one_column(split, num_targets=size.first_word_tokens - 1)
        uncounted = sum(float(nll_TB.double().sum()) for nll_TB in model.token_nlls(first_word))
    nll, num_tokens = measured.nll, measured.num_tokens
    # the ratio is 1 for words, so that no bit of their perplexity changes
    word_nll = nll * (num_tokens / size.words) - uncounted / size.words
    bits = (nll * num_tokens - uncounted) / math.log(2)
    return {
        f"{prefix}word_ppl": safe_exp(word_nll),
        f"{prefix}bits_per_byte": bits / size.num_bytes,
        f"{prefix}text": {
            "sha256": size.sha256,
            "tokens": num_tokens - (size.first_word_tokens - 1),  # of all words but the first
            "words": size.words,
            "bytes": size.num_bytes,
        },
    }
