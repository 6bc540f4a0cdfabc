"""How well a text is predicted, in figures that compare whatever its tokens are.

A perplexity a token says nothing beside that of another tokenizer. What compares is the same text's
negative log-likelihood, with the state carried in one column, over the same units:

    perplexity a word = exp(nats / words)
    bits a byte       = nats / ln 2 / bytes

`nats` are those of all words and ends of lines but the first word, which no word-level model
predicts: the first token of a text is read only, and what follows of that word does not count.
`words` are as many; a word-level model's perplexity a word is its perplexity. `bytes` are all of
the split's file, line ends and `<unk>` as they are written there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from lmkit.data.corpus import Corpus, TextSize
from lmkit.data.datamodule import DataModule, WindowsDataModule
from lmkit.data.windows import EvalWindows, columns
from lmkit.evaluation.perplexity import Perplexity, perplexity
from lmkit.training.head_module import HeadModule, safe_exp


class TextPerplexity(NamedTuple):
    """How well a split's text is predicted."""

    word_perplexity: float
    bits_per_byte: float
    num_tokens: int  # that count: of all words but the first
    size: TextSize


def text_perplexity(
    model: HeadModule,
    data: DataModule,
    source: Corpus,
    split: str,
    measured: Perplexity,
    *,
    in_one_column: bool = False,
) -> TextPerplexity | None:
    """Of valid or test; None where these are no files of running text, and for train.

    Args:
        measured: of the split's tokens. Where they were not predicted in one column, they are here.
        in_one_column: whether they were, whatever the columns of `data` are. The further tokens of
            the first word are taken to be predicted by the model alone.
    """
    if split == "train" or not isinstance(data, WindowsDataModule):
        return None
    size = source.text_size(split, data.corpus.vocabulary)
    if size is None:
        return None
    if not in_one_column and data.num_columns(split) > 1:
        measured = perplexity(model, data.one_column(split), f"{split}, one column")
    tokens, uncounted = data.corpus.tokens(split), 0.0
    if size.first_word_tokens > 1:
        first_word = EvalWindows(columns(tokens[: size.first_word_tokens], 1), data.eval_length)
        uncounted = sum(float(nll_TB.double().sum()) for nll_TB in model.token_nlls(first_word))
    nll, num_tokens = measured.nll, measured.num_tokens
    # the ratio is 1 for words, so that no bit of their perplexity changes
    word_nll = nll * (num_tokens / size.words) - uncounted / size.words
    bits = (nll * num_tokens - uncounted) / math.log(2)
    counted = num_tokens - (size.first_word_tokens - 1)
    return TextPerplexity(safe_exp(word_nll), bits / size.num_bytes, counted, size)


def content(measured: TextPerplexity | None, prefix: str = "") -> dict[str, object]:
    """As results and analyses store it; {} where there is none."""
    if measured is None:
        return {}
    size = measured.size
    return {
        f"{prefix}word_ppl": measured.word_perplexity,
        f"{prefix}bits_per_byte": measured.bits_per_byte,
        f"{prefix}text": {
            "sha256": size.sha256,
            "tokens": measured.num_tokens,
            "words": size.words,
            "bytes": size.num_bytes,
        },
    }
