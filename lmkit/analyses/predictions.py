"""Which next words models expect at contexts of a text, and where one run beats another.

Parthiban et al. 2021, figure 3, and supplement, table 2; Yang et al. 2018, section 3.4. A position
is the index in a split of the word to be predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import Field

from lmkit.analyses.base import Analysis, Record, Recorded, Subject
from lmkit.errors.user_error import (
    UserError,
    require_choice,
    require_count,
    require_flag,
    require_list,
)
from lmkit.results.published import CORPORA, published
from lmkit.runs.selection import select_run

if TYPE_CHECKING:  # they bring torch
    from lmkit.data.tokenizer import Tokenizer
    from lmkit.evaluation.split_reader import SplitReader
    from lmkit.measures.next_words import NextWords, TextReader

TOP = 5  # likeliest words that are kept
SHOWN = 40  # contexts that the terminal shows, at most
_LAST_WORDS = 12  # shown of a context


class Prediction(Record):
    """A context, the word that follows, and the likeliest ones."""

    name: str
    source: str  # published, position, text, random or margin
    position: int | None
    context: str  # its last words
    target: str | None
    target_prob: float | None
    target_rank: int | None
    top: list[str]
    top_probs: list[float]
    other_prob: float | None = None  # of the target by the run that is compared with
    margin_nats: float | None = None  # over that run


class PredictionsRecord(Record):
    """Contexts, and how often the next word is among the likeliest at random positions."""

    split: str = Field(title="split")
    top1: float | None = Field(title="first, share")
    top5: float | None = Field(title="among five")
    hit_positions: list[int]
    hit_ranks: list[int]
    contexts: list[Prediction] = Field(repr=False)
    compared_with: str | None = None  # a run
    # where this one gives the next word a much higher, or lower, probability
    better: list[Prediction] = Field(default_factory=list, repr=False)
    worse: list[Prediction] = Field(default_factory=list, repr=False)


@dataclass(kw_only=True, eq=False)
class Predictions(Analysis):
    """The likeliest next words at contexts, hits at random, and the largest margins to a run."""

    name, record, title = "predictions", PredictionsRecord, "Predictions"

    split: str  # train, valid or test
    published: bool  # whether the papers' contexts are among them, where the split is theirs
    positions: Sequence[int]  # of the user's own contexts
    texts: Sequence[str]  # the user's own contexts, by their words
    random: int  # number of contexts at random positions
    hits: int  # number of random positions for the hit rate
    compared_with: str | None  # the one run that the others are compared with; None: none
    margins: int  # contexts, each way, with the largest margins between a run and that one
    seed: int  # of all that is random

    def __post_init__(self) -> None:
        require_choice("split", self.split, ("train", "valid", "test"))
        require_flag("published", self.published)
        for option in ("random", "hits", "margins", "seed"):
            require_count(option, getattr(self, option), 0)
        require_list("positions", self.positions, "[70,300]", may_be_empty=True)
        require_list("texts", self.texts, "[the company said]", may_be_empty=True)
        if any(not isinstance(text, str) for text in self.texts):
            raise UserError(f"texts must be a list such as [the company said], not {self.texts!r}")
        self._other_run = None
        if self.compared_with is not None:
            self._other_run = select_run("compared_with", self.compared_with)
        self._other: SplitReader | None = None  # of that run

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.evaluation.split_reader import SplitReader
        from lmkit.pretrained.loading import PretrainedReader

        if subject.run is None:
            model = PretrainedReader(subject.loaded_pretrained, subject.text.name, TOP)
            return Recorded(self._measured(model, None, np.empty(0)))
        of_run = SplitReader(subject.run, self.split, TOP)
        other = self._compared(of_run)
        margins = np.empty(0) if other is None else of_run.log_probs - other.log_probs
        return Recorded(self._measured(of_run, other, margins))

    def lines(self, record: PredictionsRecord) -> list[str]:
        lines = [_line(each) for each in record.contexts[:SHOWN]]
        if (more := len(record.contexts) - SHOWN) > 0:
            lines.append(f"and {more:,} more, in the file")
        for title, margins in (("better", record.better), ("worse", record.worse)):
            if margins:
                lines.append(f"where it is {title} than {record.compared_with}:")
                lines += [_line(each) for each in margins]
        if record.top1 is not None and record.top5 is not None:
            shares = f"{record.top1:.1%} are first, {record.top5:.1%} among five"
            lines.append(f"of {len(record.hit_positions):,} words at random {shares}")
        return lines

    def _measured(
        self, reader: TextReader, other: SplitReader | None, margins: np.ndarray
    ) -> PredictionsRecord:
        contexts = self._contexts(reader)
        better, worse = largest_margins(margins, self.margins)
        hits = random_positions(reader.tokens, self.hits, self.seed)
        positions = [c.position for c in contexts if c.position is not None]
        expected = reader.next_words([*positions, *hits, *better, *worse])
        ranks = [rank for at in hits if (rank := expected[at].target_rank) is not None]
        theirs = np.empty(0) if other is None else other.log_probs

        def compared(at: int) -> Prediction:
            found = _prediction(Context(f"margin {at}", "margin", at), expected[at], reader)
            margin = float(margins[at - 1]) if math.isfinite(margins[at - 1]) else None
            known = {"other_prob": math.exp(theirs[at - 1]), "margin_nats": margin}
            return found.model_copy(update=known)

        return PredictionsRecord(
            split=reader.split,
            top1=sum(rank == 1 for rank in ranks) / len(ranks) if ranks else None,
            top5=sum(rank <= TOP for rank in ranks) / len(ranks) if ranks else None,
            hit_positions=hits,
            hit_ranks=ranks,
            contexts=[
                _prediction(
                    context,
                    reader.next_words_after(context.text)
                    if context.position is None
                    else expected[context.position],
                    reader,
                )
                for context in contexts
            ],
            compared_with=None if other is None else other.name,
            better=list(map(compared, better)),
            worse=list(map(compared, worse)),
        )

    def _contexts(self, reader: TextReader) -> list[Context]:
        tokens, vocabulary = reader.tokens, reader.vocabulary
        contexts = published_contexts(tokens, vocabulary, reader.split) if self.published else []
        contexts += at_positions(tokens, self.positions)
        for text in self.texts:
            # within a line, or where one begins: whichever comes first
            tokenizer, within = reader.tokenizer, reader.tokenizer.within_line(text)
            found = [by_text(tokens, tokenizer.ids("texts", within), text)]
            if within != text:
                found.append(by_text(tokens, tokenizer.ids("texts", text), text, tokenizer.text))
            contexts.append(min(found, key=lambda each: each.position or len(tokens)))
        drawn = random_positions(tokens, self.random, self.seed)
        contexts += [Context(f"random {position}", "random", position) for position in drawn]
        return list({context.name: context for context in contexts}.values())

    def _compared(self, reader: SplitReader) -> SplitReader | None:
        """The run that this one is compared with; None: none, or it is that run."""
        if self._other_run is None or not self.margins:
            return None
        path = self._other_run.folder.path
        if path.resolve() == reader.run.folder.path.resolve():
            return None
        if self._other is None:
            try:
                self._other = reader.reader_of(self._other_run)
            except UserError as error:
                raise UserError(f"compared_with={path}: {error}") from None
        if not reader.reads_as(self._other):
            raise UserError(f"compared_with={path} is a run on another corpus")
        return self._other


def _prediction(context: Context, expected: NextWords, reader: TextReader) -> Prediction:
    tokens, vocabulary = reader.tokens, reader.vocabulary
    return Prediction(
        name=context.name,
        source=context.source,
        position=context.position,
        context=last_words(context, tokens, reader.tokenizer),
        target=None if context.position is None else vocabulary[tokens[context.position]],
        target_prob=expected.target_prob,
        target_rank=expected.target_rank,
        top=[vocabulary[index] for index, _ in expected.top],
        top_probs=[prob for _, prob in expected.top],
    )


def _line(found: Prediction) -> str:
    """`... shares of [stock: 12.3 %, rank 2]  the 20.1 %, stock 12.3 %`."""
    target = ""
    if found.target is not None and found.target_prob is not None:
        target = f" [{found.target}: {found.target_prob:.1%}, rank {found.target_rank}]"
    pairs = zip(found.top, found.top_probs, strict=True)
    likeliest = ", ".join(f"{word} {prob:.1%}" for word, prob in pairs)
    margin = "" if found.margin_nats is None else f" ({found.margin_nats:+.2f} nats)"
    return f"{found.context}{target}{margin}  {likeliest}"


class Context(NamedTuple):
    """A place at which the next word is predicted."""

    name: str
    source: str  # "published", "position", "text", "random" or "margin"
    position: int | None  # None of a text that is not in the split
    text: tuple[int, ...] = ()  # the words of such a text


def published_contexts(tokens: np.ndarray, vocabulary: Sequence[str], split: str) -> list[Context]:
    """The contexts that the papers show, if this is their split: the true words must match."""
    contexts = []
    if (len(vocabulary), split) != (CORPORA["penn"].words, "test"):
        return []
    values = published()
    for _, row in values[values["quantity"] == "predictions.context"].iterrows():
        position, name = int(row["value"]), f"{row['paper']}, {row['remark']}"
        if position >= len(tokens) or vocabulary[tokens[position]] != row["row"]:
            return []
        contexts.append(Context(f"{name}: {position}", "published", position))
    return contexts


def at_positions(tokens: np.ndarray, positions: Sequence[int]) -> list[Context]:
    """Raises: UserError when there is nothing before the position, or nothing at it."""
    for position in positions:
        if isinstance(position, bool) or not isinstance(position, int):
            raise UserError(f"positions must be whole numbers, but one is {position!r}")
        if not 1 <= position < len(tokens):
            raise UserError(
                f"positions: {position} is none of 1 to {len(tokens) - 1:,}, the words of the "
                f"split that have one before them"
            )
    return [Context(f"position {position}", "position", position) for position in positions]


def by_text(
    tokens: np.ndarray,
    words: Sequence[int],
    text: str,
    decode: Callable[[list[int]], str] | None = None,
) -> Context:
    """The context after a text's first occurrence in the split, or after the text alone if there is
    none.

    Args:
        decode: the text of tokens, for an occurrence that begins a line; None: any occurrence.
    """
    if len(words) < len(tokens):
        windows = np.lib.stride_tricks.sliding_window_view(tokens, len(words))
        (starts,) = np.nonzero((windows == np.asarray(words)).all(axis=1))
        starts = starts[starts + len(words) < len(tokens)]  # a word must follow
        for start in starts.tolist():
            if not decode or not start or decode([int(tokens[start - 1])]).endswith("\n"):
                return Context(f"text: {text}", "text", start + len(words))
    return Context(f"text: {text}", "text", None, tuple(words))


def random_positions(tokens: np.ndarray, count: int, seed: int) -> list[int]:
    """Different positions, in order; all of them where there are no more than `count`."""
    available = len(tokens) - 1
    drawn = np.random.default_rng(seed).choice(available, min(count, available), replace=False)
    positions: list[int] = (drawn + 1).tolist()
    return sorted(positions)


def largest_margins(margins: np.ndarray, count: int) -> tuple[list[int], list[int]]:
    """Positions with the largest margins in nats over another model on the true word, above 0 and
    below; the largest first (as Yang et al. 2018 looked for where MoS beats softmax).

    Args:
        margins: of the words at positions 1, 2, ... (num_tokens - 1,).
    """
    order = np.argsort(-margins, kind="stable")
    better, worse = order[margins[order] > 0], order[margins[order] < 0][::-1]
    return (better[:count] + 1).tolist(), (worse[:count] + 1).tolist()


def last_words(context: Context, tokens: np.ndarray, tokenizer: Tokenizer) -> str:
    """The words just before the one to be predicted."""
    words: Sequence[int] = context.text
    if context.position is not None:
        words = tokens[max(0, context.position - _LAST_WORDS) : context.position].tolist()
    return tokenizer.quotation(words[-_LAST_WORDS:])
