"""Which next words runs expect at contexts of a split, and where one run beats another.

Parthiban et al. 2021, figure 3, and supplement, table 2; Yang et al. 2018, section 3.4. A position
is the index in a split of the word to be predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from lmkit import evaluation, experiment, measures, pretrained
from lmkit.analyses.analysis import Analysis, Content
from lmkit.analyses.one_per_head import SHOWN, one_per_head
from lmkit.analyses.prediction_contexts import (
    Context,
    at_positions,
    at_random,
    by_text,
    largest_margins,
    last_words,
    published,
    random_positions,
)
from lmkit.analyses.prediction_tables import (
    TOP,
    hit_matrix,
    hit_shares,
    margins_table,
    tables_of_run,
    told_apart_by_split,
    top_table,
)
from lmkit.comparison.cells import listed
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError, require_choice, require_count, require_flag
from lmkit.presentation.section import Block, Section
from lmkit.presentation.tables import Table
from lmkit.runs.finished import FinishedRun
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs

_COMMAND = "lmkit predictions run=FOLDER"


class _Word(NamedTuple):
    word: str
    prob: float


class _Context(NamedTuple):
    name: str
    top: list[_Word]
    source: str | None = None
    context: str | None = None
    target: str | None = None
    target_rank: int | None = None
    target_prob: float | None = None


class _Margin(NamedTuple):
    context: str | None = None
    target: str | None = None
    target_prob: float | None = None
    other_prob: float | None = None
    margin_nats: float | None = None


class _Compared(NamedTuple):
    run: str
    better: list[_Margin]
    worse: list[_Margin]


@dataclass(frozen=True)
class _Hits:
    positions: list[int] = field(default_factory=list)
    top1: list[int] = field(default_factory=list)
    top5: list[int] = field(default_factory=list)


class _Stored(NamedTuple):
    split: str
    contexts: list[_Context]
    hits: _Hits
    compared_with: _Compared | None = None


class Predictions(Analysis):
    """The likeliest next words at contexts, hits at random, and the largest margins to a run.

    Args:
        split: train, valid or test.
        published: whether the papers' contexts are among them, where the split is theirs.
        positions: of the user's own contexts.
        texts: the user's own contexts by their words.
        random: number of contexts at random positions.
        hits: number of random positions for the hit rate.
        compared_with: the one run that the others are compared with; None: none.
        margins: contexts, each way, with the largest margins between a run and that one.
        seed: of all that is random.
    """

    name, form = "predictions", _Stored
    order = 70

    def __init__(
        self,
        *,
        split: str,
        published: bool,
        positions: Sequence[int],
        texts: Sequence[str],
        random: int,
        hits: int,
        compared_with: str | None,
        margins: int,
        seed: int,
    ) -> None:
        require_choice("split", split, ("train", "valid", "test"))
        require_flag("published", published)
        counts = {"random": random, "hits": hits, "margins": margins, "seed": seed}
        for option, count in counts.items():
            require_count(option, count, 0)
        if any(not isinstance(text, str) for text in texts):
            raise UserError(f"texts must be a list such as [the company said], not {texts!r}")
        self.split, self.published = split, published
        self.positions, self.texts = positions, texts
        self.random, self.hits, self.margins, self.seed = random, hits, margins, seed
        self.compared_with = None if compared_with is None else _one_run(compared_with)
        self._other: evaluation.split_reader.SplitReader | None = None  # of that run

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        reader = evaluation.split_reader.SplitReader(run, self.split, TOP)
        better, worse = self._margins(reader)
        content, expected = self._measured(reader, [*better, *worse])
        other = self._other
        if better and other is not None:
            theirs = other.next_words([*better, *worse])
            content["compared_with"] = {
                "run": other.run.folder.path.name,
                "better": [_margin_entry(p, expected[p], theirs[p], reader) for p in better],
                "worse": [_margin_entry(p, expected[p], theirs[p], reader) for p in worse],
            }
        return content

    def measure_pretrained(
        self, loaded: pretrained.loading.LoadedPretrained, text: str, folder: RunFolder
    ) -> Content:
        reader = pretrained.reader.PretrainedReader(loaded, text, TOP)
        return self._measured(reader, [])[0]

    def _measured(
        self, reader: measures.next_words.TextReader, margins: Sequence[int]
    ) -> tuple[Content, Mapping[int, measures.next_words.NextWords]]:
        """What is stored except margins, and what is expected at all positions."""
        contexts = self._contexts(reader)
        hits = random_positions(reader.tokens, self.hits, self.seed)
        positions = [c.position for c in contexts if c.position is not None]
        expected = reader.next_words([*positions, *hits, *margins])
        entries = []
        for context in contexts:
            if context.position is None:
                words = reader.next_words_after(context.text)
            else:
                words = expected[context.position]
            entries.append(_entry(context, words, reader))
        ranks = [rank for at in hits if (rank := expected[at].target_rank) is not None]
        content: Content = {
            "split": reader.split,
            "contexts": entries,
            "hits": {
                "positions": hits,
                "top1": [int(rank == 1) for rank in ranks],
                "top5": [int(rank <= TOP) for rank in ranks],
            },
        }
        return content, expected

    def _contexts(self, reader: measures.next_words.TextReader) -> list[Context]:
        tokens, vocabulary = reader.tokens, reader.vocabulary
        contexts = published(tokens, vocabulary, reader.split) if self.published else []
        contexts += at_positions(tokens, self.positions)
        for text in self.texts:
            words = reader.tokenizer.ids("texts", reader.tokenizer.within_line(text))
            contexts.append(by_text(tokens, words, text))
        contexts += at_random(tokens, self.random, self.seed)
        return list({context.name: context for context in contexts}.values())

    def _margins(self, reader: evaluation.split_reader.SplitReader) -> tuple[list[int], list[int]]:
        """Positions at which the run is much better, and much worse, than the other one."""
        if self.compared_with is None:
            return [], []
        path = self.compared_with.folder.path
        if path.resolve() == reader.run.folder.path.resolve():
            return [], []
        if self._other is None:
            try:
                self._other = reader.reader_of(self.compared_with)
            except UserError as error:
                raise UserError(f"compared_with={path}: {error}") from None
        if not reader.reads_as(self._other):
            raise UserError(f"compared_with={path} is a run on another corpus")
        return largest_margins(reader.log_probs, self._other.log_probs, self.margins)

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        """Tables of a single measured run; those of many would be too long."""
        if len(contents) > 1:
            return []
        ((name, content),) = contents.items()
        return tables_of_run(name, content)

    def notes(self, contents: Mapping[str, Content]) -> list[str]:
        notes = []
        for name, content in contents.items():
            hits = content["hits"]
            count = len(hits["positions"])
            if count:
                first, five = (f"{100 * sum(hits[top]) / count:.1f} %" for top in ("top1", "top5"))
                of = f"{name}: of {count:,} words at random"
                notes.append(f"{of} {first} are first, {five} among five")
        return notes

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        """Top-5 predictions, hits and largest margins of one run per head."""
        contents, note, without = one_per_head(
            study, files, cls, lambda having: _shown(study, having)
        )
        missing = [f"no predictions.json: {listed(without)}: {_COMMAND}"] if without else []
        blocks: list[Block] = []
        if contents:
            contents = told_apart_by_split(contents)
            blocks = [top_table(study, contents), *hit_matrix(study, contents)]
            blocks += [*hit_shares(study, contents), *margins_table(study, contents)]
            if not any("compared_with" in content for content in contents.values()):
                how = f"{_COMMAND} compared_with=FOLDER"
                missing.append(f"no contexts where one run beats another by far: {how}")
        intro = (
            "Which next words a head expects, in one run per head (of median test perplexity)."
            f"{note}"
        )
        return [Section("predictions", "Predictions", intro, blocks, missing)]


def _shown(study: Study, having: Sequence[Facts]) -> tuple[list[Facts], str]:
    """One group per head, and a second, with a star, if it was trained with NT-ASGD too.

    Parthiban et al. 2021, figure 3, has MoS* and MoC* beside MoS and MoC.
    """
    by_loss = [group for group in having if group.trigger.startswith("NT")]
    twice = {group.head for group in by_loss}
    twice &= {group.head for group in having if group not in by_loss}
    starred = [group for group in by_loss if group.head in twice]
    groups, note = study.shown(SHOWN, [group for group in having if group not in starred])
    if not starred:
        return groups, note
    by_head = {group.head: group for group in reversed(study.shown(len(starred), starred)[0])}
    named = [replace(group, label=f"{head.name}*") for head, group in by_head.items()]
    named.sort(key=lambda group: group.head.place)
    return [*groups, *named], f"{note} A star: trained with NT-ASGD."


def _one_run(selection: str) -> FinishedRun:
    runs = select_runs("compared_with", selection).runs
    if len(runs) > 1:
        raise UserError(
            f"compared_with={selection} selects {len(runs)} runs; give one run's folder"
        )
    return runs[0]


def _entry(
    context: Context,
    expected: measures.next_words.NextWords,
    reader: measures.next_words.TextReader,
) -> Content:
    tokens, vocabulary = reader.tokens, reader.vocabulary
    return {
        "name": context.name,
        "source": context.source,
        "position": context.position,
        "context": last_words(context, tokens, reader.tokenizer),
        "target": None if context.position is None else vocabulary[tokens[context.position]],
        "target_prob": expected.target_prob,
        "target_rank": expected.target_rank,
        "top": _top(expected, vocabulary),
    }


def _margin_entry(
    position: int,
    ours: measures.next_words.NextWords,
    theirs: measures.next_words.NextWords,
    reader: measures.next_words.TextReader,
) -> Content:
    """A context with the predictions of both models, the other's as `other_...`."""
    context = Context(f"margin {position}", "margin", position)
    prob, other_prob = ours.target_prob, theirs.target_prob
    ratio = prob / other_prob if prob and other_prob else 0.0
    return {
        **_entry(context, ours, reader),
        "other_prob": other_prob,
        "other_rank": theirs.target_rank,
        "other_top": _top(theirs, reader.vocabulary),
        "margin_nats": float(np.log(ratio)) if 0 < ratio < np.inf else None,
    }


def _top(expected: measures.next_words.NextWords, vocabulary: Sequence[str]) -> list[Content]:
    return [{"word": vocabulary[index], "prob": prob} for index, prob in expected.top]
