"""Which next words models expect at contexts of a text, and where one run beats another.

Parthiban et al. 2021, figure 3, and supplement, table 2; Yang et al. 2018, section 3.4. A position
is the index in a split of the word to be predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from lmkit.analyses.base import Analysis, Record, Recorded, Subject
from lmkit.analyses.prediction_contexts import (
    Context,
    at_positions,
    by_text,
    largest_margins,
    last_words,
    published,
    random_positions,
)
from lmkit.errors.user_error import (
    UserError,
    require_choice,
    require_count,
    require_flag,
    require_list,
)
from lmkit.runs.selection import select_run

if TYPE_CHECKING:  # they bring torch
    from lmkit.evaluation.split_reader import SplitReader
    from lmkit.measures.next_words import NextWords, TextReader

TOP = 5  # likeliest words that are kept
SHOWN = 40  # contexts that the terminal shows, at most


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

    split: str
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
        from lmkit.pretrained.reader import PretrainedReader

        if subject.run is None:
            model = PretrainedReader(subject.loaded_pretrained, subject.text.name, TOP)
            return Recorded(self._measured(model, []))
        of_run = SplitReader(subject.run, self.split, TOP)
        better, worse = self._margins(of_run)
        return Recorded(self._measured(of_run, better, worse))

    def lines(self, record: PredictionsRecord) -> list[str]:
        lines = [_line(each) for each in record.contexts[:SHOWN]]
        for title, margins in (("better", record.better), ("worse", record.worse)):
            if margins:
                lines.append(f"where it is {title} than {record.compared_with}:")
                lines += [_line(each) for each in margins]
        if record.top1 is not None and record.top5 is not None:
            shares = f"{record.top1:.1%} are first, {record.top5:.1%} among five"
            lines.append(f"of {len(record.hit_positions):,} words at random {shares}")
        return lines

    def _measured(
        self, reader: TextReader, better: Sequence[int], worse: Sequence[int] = ()
    ) -> PredictionsRecord:
        contexts = self._contexts(reader)
        hits = random_positions(reader.tokens, self.hits, self.seed)
        positions = [c.position for c in contexts if c.position is not None]
        expected = reader.next_words([*positions, *hits, *better, *worse])
        ranks = [rank for at in hits if (rank := expected[at].target_rank) is not None]
        other = self._other if better else None
        theirs = {} if other is None else other.next_words([*better, *worse])

        def margins(chosen: Sequence[int]) -> list[Prediction]:
            return [_margin(at, expected, theirs, reader) for at in chosen]

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
            compared_with=None if other is None else other.run.folder.path.name,
            better=margins(better),
            worse=margins(worse),
        )

    def _contexts(self, reader: TextReader) -> list[Context]:
        tokens, vocabulary = reader.tokens, reader.vocabulary
        contexts = published(tokens, vocabulary, reader.split) if self.published else []
        contexts += at_positions(tokens, self.positions)
        for text in self.texts:
            words = reader.tokenizer.ids("texts", reader.tokenizer.within_line(text))
            contexts.append(by_text(tokens, words, text))
        drawn = random_positions(tokens, self.random, self.seed)
        contexts += [Context(f"random {position}", "random", position) for position in drawn]
        return list({context.name: context for context in contexts}.values())

    def _margins(self, reader: SplitReader) -> tuple[list[int], list[int]]:
        """Positions at which the run is much better, and much worse, than the other one."""
        if self._other_run is None:
            return [], []
        path = self._other_run.folder.path
        if path.resolve() == reader.run.folder.path.resolve():
            return [], []
        if self._other is None:
            try:
                self._other = reader.reader_of(self._other_run)
            except UserError as error:
                raise UserError(f"compared_with={path}: {error}") from None
        if not reader.reads_as(self._other):
            raise UserError(f"compared_with={path} is a run on another corpus")
        return largest_margins(reader.log_probs, self._other.log_probs, self.margins)


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


def _margin(
    position: int,
    ours: Mapping[int, NextWords],
    theirs: Mapping[int, NextWords],
    reader: TextReader,
) -> Prediction:
    """A context with the margin of the model over the other one."""
    found = _prediction(Context(f"margin {position}", "margin", position), ours[position], reader)
    prob, other_prob = found.target_prob, theirs[position].target_prob
    ratio = prob / other_prob if prob and other_prob else 0.0
    margin = math.log(ratio) if 0 < ratio < math.inf else None
    return found.model_copy(update={"other_prob": other_prob, "margin_nats": margin})


def _line(found: Prediction) -> str:
    """`... shares of [stock: 12.3 %, rank 2]  the 20.1 %, stock 12.3 %`."""
    target = ""
    if found.target is not None and found.target_prob is not None:
        target = f" [{found.target}: {found.target_prob:.1%}, rank {found.target_rank}]"
    pairs = zip(found.top, found.top_probs, strict=True)
    likeliest = ", ".join(f"{word} {prob:.1%}" for word, prob in pairs)
    margin = "" if found.margin_nats is None else f" ({found.margin_nats:+.2f} nats)"
    return f"{found.context}{target}{margin}  {likeliest}"
