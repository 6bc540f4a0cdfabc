"""What runs predict at contexts of a split, and where one beats another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lmkit.analyses.contexts import (
    Context,
    at_positions,
    at_random,
    by_text,
    largest_margins,
    published,
    random_positions,
)
from lmkit.analyses.prediction_report import entry, margin_entries
from lmkit.errors.user_error import UserError
from lmkit.evaluation.each_run import CHECKPOINT, write_analysis
from lmkit.evaluation.load import LoadedRun, load_run
from lmkit.evaluation.next_words import (
    TOP,
    NextWords,
    known_words,
    next_words,
    next_words_after,
    target_log_probs,
)
from lmkit.evaluation.rank import progress_bar


class PredictionOptions(NamedTuple):
    """At which contexts predictions are looked at."""

    split: str
    published: bool
    positions: Sequence[int]
    texts: Sequence[str]
    random: int  # number of contexts at random
    hits: int  # number of random positions for the share of hits
    margins: int  # contexts each way, of the search against another run
    seed: int
    data_root: str | None
    threads: int | None


class Predictor:
    """Predicts with one run after the other, and writes analysis/predictions.json of each.

    Args:
        against: folder of a run with which the others are compared, None for none.

    Raises: UserError when `against` is no run.
    """

    def __init__(self, options: PredictionOptions, against: str | None) -> None:
        self.options = options
        self.other = None
        if against is not None:
            try:
                self.other = load_run(against, CHECKPOINT, options.data_root, options.threads)
            except UserError as error:
                raise UserError(f"against={against}: {error}") from None
        self.other_log_probs: np.ndarray | None = None

    def predict(self, run: LoadedRun) -> dict[str, object]:
        """The content of analysis/predictions.json. Raises: UserError naming a wrong option."""
        options = self.options
        corpus = run.data.corpus
        tokens, vocabulary = getattr(corpus, options.split), corpus.vocabulary
        contexts = self._contexts(tokens, vocabulary)
        hits = random_positions(tokens, options.hits, options.seed, "hits")
        better, worse = self._margins(run, tokens)
        positions = [c.position for c in contexts if c.position is not None]
        found = _next_words(run, tokens, [*positions, *hits, *better, *worse])
        length = run.data.eval_length
        entries = []
        for context in contexts:
            if context.position is None:
                expected = next_words_after(run.model, context.text, length)
            else:
                expected = found[context.position]
            entries.append(entry(context, expected, tokens, vocabulary))
        content = {
            "split": options.split,
            "contexts": entries,
            "hits": {
                "positions": hits,
                "top1": [int(found[position].target_rank == 1) for position in hits],
                "top5": [int(found[position].target_rank <= TOP) for position in hits],
            },
        }
        if better:
            other = _next_words(self.other, tokens, [*better, *worse])
            content["against"] = {
                "run": self.other.folder.path.name,
                "better": margin_entries(better, found, other, tokens, vocabulary),
                "worse": margin_entries(worse, found, other, tokens, vocabulary),
            }
        write_analysis(run, "predictions", content)
        return content

    def _contexts(self, tokens: np.ndarray, vocabulary: Sequence[str]) -> list[Context]:
        options = self.options
        found = published(tokens, vocabulary, options.split) if options.published else []
        found += at_positions(tokens, options.positions)
        for text in options.texts:
            found.append(by_text(tokens, known_words("texts", text, vocabulary), text))
        found += at_random(tokens, options.random, options.seed)
        return list({context.name: context for context in found}.values())

    def _margins(self, run: LoadedRun, tokens: np.ndarray) -> tuple[list[int], list[int]]:
        """Positions at which the run is much better, and much worse, than the other."""
        other = self.other
        if other is None or other.folder.path.resolve() == run.folder.path.resolve():
            return [], []
        theirs = getattr(other.data.corpus, self.options.split)
        if other.data.corpus.vocabulary != run.data.corpus.vocabulary or not np.array_equal(
            theirs, tokens
        ):
            raise UserError(f"against={other.folder.path} is a run on another corpus")
        if self.other_log_probs is None:
            self.other_log_probs = _log_probs(other, tokens)
        ours = _log_probs(run, tokens)
        return largest_margins(ours, self.other_log_probs, self.options.margins)


def _next_words(
    run: LoadedRun, tokens: np.ndarray, positions: Sequence[int]
) -> dict[int, NextWords]:
    with progress_bar() as progress:
        name, total = f"{run.folder.path.name}: predictions", max(positions, default=0)
        task = progress.add_task(name, total=total)
        return next_words(
            run.model,
            tokens,
            positions,
            run.data.eval_length,
            lambda count: progress.advance(task, count),
        )


def _log_probs(run: LoadedRun, tokens: np.ndarray) -> np.ndarray:
    with progress_bar() as progress:
        name = f"{run.folder.path.name}: words"
        task = progress.add_task(name, total=len(tokens) - 1)
        return target_log_probs(
            run.model, tokens, run.data.eval_length, lambda count: progress.advance(task, count)
        )
