"""Which next words runs expect at contexts of a split, and where one run beats another.

Parthiban et al. 2021, figure 3, and supplement, table 2; Yang et al. 2018, section 3.4. A position
is the index in a split of the word that is to be predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from lmkit import evaluation
from lmkit.analyses.analysis import Analysis, Content
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
from lmkit.comparison.cells import listed
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError, require_choice, require_count, require_flag
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import INK, PAPER, figure, two_colours
from lmkit.presentation.tables import Cell, Column, Table, absent, number, whole, word
from lmkit.runs.finished import FinishedRun
from lmkit.runs.selection import select_runs

_TOP = 5  # likeliest words that are shown
_SHOWN = 8  # heads in the report
_MOST_CONTEXTS = 40  # of a hit matrix, that its columns can be told apart
_COMMAND = "lmkit predictions run=FOLDER"


class Predictions(Analysis):
    """The likeliest next words at contexts, hits at random, and the largest margins to a run.

    Args:
        split: train, valid or test.
        published: whether the papers' contexts are among them, where the split is theirs.
        positions: of the user's own contexts.
        texts: the user's own contexts by their words.
        random: number of contexts at random positions.
        hits: number of random positions for the share of hits.
        compared_with: the one run that the others are compared with; None: none.
        margins: contexts, each way, with the largest margins between a run and that one.
        seed: of all that is random.
    """

    name = "predictions"
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
        self._other: evaluation.next_words.SplitReader | None = None  # of that run

    def measure(self, run: evaluation.load.LoadedRun) -> Content:
        reader = evaluation.next_words.SplitReader(run, self.split, _TOP)
        contexts = self._contexts(reader)
        hits = random_positions(reader.tokens, self.hits, self.seed, "hits")
        better, worse = self._margins(reader)
        positions = [c.position for c in contexts if c.position is not None]
        expected = reader.next_words([*positions, *hits, *better, *worse])
        entries = []
        for context in contexts:
            if context.position is None:
                words = reader.next_words_after(context.text)
            else:
                words = expected[context.position]
            entries.append(_entry(context, words, reader))
        ranks = [rank for at in hits if (rank := expected[at].target_rank) is not None]
        content = {
            "split": self.split,
            "contexts": entries,
            "hits": {
                "positions": hits,
                "top1": [int(rank == 1) for rank in ranks],
                "top5": [int(rank <= _TOP) for rank in ranks],
            },
        }
        other = self._other
        if better and other is not None:
            theirs = other.next_words([*better, *worse])
            content["compared_with"] = {
                "run": other.run.folder.path.name,
                "better": [_margin_entry(p, expected[p], theirs[p], reader) for p in better],
                "worse": [_margin_entry(p, expected[p], theirs[p], reader) for p in worse],
            }
        return content

    def _contexts(self, reader: evaluation.next_words.SplitReader) -> list[Context]:
        tokens, vocabulary = reader.tokens, reader.vocabulary
        contexts = published(tokens, vocabulary, self.split) if self.published else []
        contexts += at_positions(tokens, self.positions)
        for text in self.texts:
            contexts.append(by_text(tokens, reader.known_words("texts", text), text))
        contexts += at_random(tokens, self.random, self.seed)
        return list({context.name: context for context in contexts}.values())

    def _margins(self, reader: evaluation.next_words.SplitReader) -> tuple[list[int], list[int]]:
        """Positions at which the run is much better, and much worse, than the one beside it."""
        if self.compared_with is None:
            return [], []
        path = self.compared_with.folder.path
        if path.resolve() == reader.run.folder.path.resolve():
            return [], []
        if self._other is None:
            try:
                self._other = reader.of_another(self.compared_with)
            except UserError as error:
                raise UserError(f"compared_with={path}: {error}") from None
        if not reader.reads_as(self._other):
            raise UserError(f"compared_with={path} is a run on another corpus")
        return largest_margins(reader.log_probs, self._other.log_probs, self.margins)

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        """Those of a run that was measured alone; of many they would be too long."""
        if len(contents) > 1:
            return []
        ((name, content),) = contents.items()
        tables = []
        if content["contexts"]:
            rows = [_top_row(absent(), context) for context in content["contexts"]]
            title = f"{name}: likeliest next words"
            tables.append(Table("predictions", title, "", _TOP_COLUMNS, rows))
        other = content.get("compared_with")
        if other is not None:
            for how in ("better", "worse"):
                title = f"{name}: where it is {how} than {other['run']}"
                rows = [_two_runs_row(context) for context in other[how]]
                tables.append(Table(how, title, "", _TWO_RUNS_COLUMNS, rows))
        return tables

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
        """Top-5 predictions, hits and largest margins of one run a head."""
        having, without = files.having(study, cls)
        groups, note = _shown(study, having)
        contents: dict[str, Content] = {}
        for group in groups:
            content = files.representative(group.runs, cls, check=_check)
            if content is not None:
                contents[group.label] = content
        missing = [f"no predictions.json: {listed(without)}: {_COMMAND}"] if without else []
        blocks: list[Block] = []
        if contents:
            blocks = [_top_table(study, contents), *_hit_matrix(study, contents)]
            blocks += [*_hit_shares(study, contents), *_margins_table(study, contents)]
            if not any("compared_with" in content for content in contents.values()):
                how = f"{_COMMAND} compared_with=FOLDER"
                missing.append(f"no contexts where one run beats another by far: {how}")
        intro = (
            "Which next words a head expects, of one run a head (that of median test perplexity)."
            f"{note}"
        )
        return [Section("predictions", "Predictions", intro, blocks, missing)]


def _shown(study: Study, having: Sequence[Group]) -> tuple[list[Group], str]:
    """One group a head, and a second, with a star, of a head that was trained with NT-ASGD too.

    Parthiban et al. 2021, figure 3, has MoS* and MoC* beside MoS and MoC.
    """
    by_loss = [group for group in having if group.trigger.startswith("NT")]
    twice = {group.head for group in by_loss}
    twice &= {group.head for group in having if group not in by_loss}
    starred = [group for group in by_loss if group.head in twice]
    groups, note = study.shown(_SHOWN, [group for group in having if group not in starred])
    if not starred:
        return groups, note
    by_head = {group.head: group for group in reversed(study.shown(len(starred), starred)[0])}
    named = [replace(group, label=f"{head.name}*") for head, group in by_head.items()]
    named.sort(key=lambda group: group.head.place)
    return [*groups, *named], f"{note} A star: trained with NT-ASGD."


def _one_run(selection: str) -> FinishedRun:
    runs = select_runs("compared_with", selection).runs
    if len(runs) > 1:
        raise UserError(f"compared_with={selection} means {len(runs)} runs; give one run's folder")
    return runs[0]


def _entry(
    context: Context,
    expected: evaluation.next_words.NextWords,
    reader: evaluation.next_words.SplitReader,
) -> Content:
    tokens, vocabulary = reader.tokens, reader.vocabulary
    return {
        "name": context.name,
        "source": context.source,
        "position": context.position,
        "context": last_words(context, tokens, vocabulary),
        "target": None if context.position is None else vocabulary[tokens[context.position]],
        "target_prob": expected.target_prob,
        "target_rank": expected.target_rank,
        "top": _top(expected, vocabulary),
    }


def _margin_entry(
    position: int,
    ours: evaluation.next_words.NextWords,
    theirs: evaluation.next_words.NextWords,
    reader: evaluation.next_words.SplitReader,
) -> Content:
    """A context with the predictions of both models, those of the other as `other_...`."""
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


def _top(expected: evaluation.next_words.NextWords, vocabulary: Sequence[str]) -> list[Content]:
    return [{"word": vocabulary[index], "prob": prob} for index, prob in expected.top]


_CONTEXT_COLUMNS = (Column("last words", is_text=True), Column("next word", is_text=True))
_TOP_COLUMNS = (
    Column("context", is_text=True),
    *_CONTEXT_COLUMNS,
    Column("head", is_text=True, is_optional=True),
    Column("its rank"),
    Column("its probability, %"),
    Column("top 5 (probability, %)", tuple(str(i) for i in range(1, _TOP + 1)), is_text=True),
)
_TWO_RUNS_COLUMNS = (
    *_CONTEXT_COLUMNS,
    Column("its probability, %"),
    Column("by the other, %"),
    Column("likeliest", is_text=True),
    Column("by the other", is_text=True),
)
_MARGIN_COLUMNS = (
    Column("head", is_text=True),
    Column("compared with the run", is_text=True),
    *_CONTEXT_COLUMNS,
    Column("its probability, %"),
    Column("by the other, %"),
    Column("margin, nats"),
)


def _top_table(study: Study, contents: Mapping[str, Content]) -> Table:
    by_name = {label: _by_name(content) for label, content in contents.items()}
    rows = [
        _top_row(word(label), contexts[name])
        for name in _names(contents)
        for label, contexts in by_name.items()
        if name in contexts
    ]
    caption = f"The five likeliest next words at contexts of {study.short}."
    return Table("predictions", "Top-5 predictions", caption, _TOP_COLUMNS, rows)


def _check(content: Content) -> None:
    """Raises an error of Python's where something is missing that the report reads."""
    for context in content["contexts"]:
        _top_row(absent(), context)
    content["hits"].get("positions")
    other = content.get("compared_with")
    if other is not None:
        word(other["run"])
        for context in [*other["better"], *other["worse"]]:
            _words(context)


def _top_row(head: Cell, context: Content) -> list[Cell]:
    top = [f"{each['word']} {100 * each['prob']:.1f}" for each in context["top"][:_TOP]]
    return [
        word(context["name"]),
        *_words(context),
        head,
        whole(context.get("target_rank")),
        _percent(context.get("target_prob"), 1),
        Cell(", ".join(top), (*top, *[None] * (_TOP - len(top)))),
    ]


def _two_runs_row(context: Content) -> list[Cell]:
    probs = (_percent(context[name], 3) for name in ("target_prob", "other_prob"))
    likeliest = (
        word(", ".join(each["word"] for each in context[name])) for name in ("top", "other_top")
    )
    return [*_words(context), *probs, *likeliest]


def _words(context: Content) -> list[Cell]:
    return [word(context.get("context") or ""), word(context.get("target") or "")]


def _percent(probability: float | None, digits: int) -> Cell:
    return number(None if probability is None else 100 * probability, digits)


def _hit_matrix(study: Study, contents: Mapping[str, Content]) -> list[Drawing]:
    """Which head has the true next word among its first five, at contexts that have one.

    The contexts of one origin stand together, in a block.
    """
    by_name = [_by_name(content) for content in contents.values()]
    ranks = {
        name: [contexts.get(name, {}).get("target_rank") for contexts in by_name]
        for name in _names(contents)
    }
    names = [name for name, found in ranks.items() if all(found)][:_MOST_CONTEXTS]
    if not names:
        return []
    hits = np.array([ranks[name] for name in names]).T <= _TOP
    width = min(7.4, max(4.4, 1.6 + 0.28 * len(names)))
    drawn, axes = figure((width, 1.5 + 0.3 * len(contents)))
    colours = two_colours()
    axes.pcolormesh(hits, cmap=colours, vmin=0, vmax=1, edgecolors=PAPER, linewidth=1)
    _mark_blocks(axes, [_origin(by_name[0][name]) for name in names])
    axes.set_yticks(np.arange(len(contents)) + 0.5, list(contents))
    targets = [by_name[0][name]["target"] or "" for name in names]
    axes.set_xticks(np.arange(len(names)) + 0.5, targets)
    axes.set_xticklabels(
        axes.get_xticklabels(), rotation=60, ha="right", rotation_mode="anchor", size=7
    )
    axes.invert_yaxis()
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set(xlabel="context, by its true next word", ylabel="head")
    in_words = ("not among the five likeliest", "among the five likeliest")
    patches = [Patch(color=colours(i), label=text) for i, text in enumerate(in_words)]
    drawn.legend(handles=patches, loc="outside lower center", ncols=2)
    caption = (
        f"Whether a head has the true next word among its five likeliest. Contexts of "
        f"{study.short}, in the order of the table, in a block for each origin."
    )
    return [Drawing("hits", "Hits among the first five", caption, drawn, width > 5)]


def _origin(context: Content) -> str:
    """Whence a context is: the paper that shows it, else `position`, `text` or `random`."""
    source = context.get("source") or "position"
    paper, _, position = context["name"].partition(": ")
    return paper if source == "published" and position else str(source)


def _mark_blocks(axes: Axes, sources: Sequence[str]) -> None:
    """A line between blocks of columns of one source, and each source above its own."""
    start = 0
    for source, same in groupby(sources):
        end = start + len(list(same))
        if start:
            axes.axvline(start, color=INK, linewidth=1.6)
        axes.annotate(
            source,
            ((start + end) / 2, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            size=8,
        )
        start = end


def _hit_shares(study: Study, contents: Mapping[str, Content]) -> list[Table]:
    """Hits at the random positions."""
    rows = []
    for label, content in contents.items():
        hits = content["hits"]
        positions, top1, top5 = (hits.get(name) or [] for name in ("positions", "top1", "top5"))
        if positions:
            shares = [100 * sum(found) / len(positions) for found in (top1, top5)]
            rows.append([word(label), whole(len(positions)), *(number(s, 1) for s in shares)])
    if not rows:
        return []
    columns = [
        Column("head", is_text=True),
        Column("random positions"),
        Column("first is true, %"),
        Column("among first five, %"),
    ]
    caption = f"How often the true next word is predicted, at random positions of {study.short}."
    return [Table("hit_shares", "Hits at random positions", caption, columns, rows)]


def _margins_table(study: Study, contents: Mapping[str, Content]) -> list[Table]:
    """Contexts where one run beats another by far."""
    rows = []
    for label, content in contents.items():
        other = content.get("compared_with", {"better": [], "worse": []})
        for context in [*other["better"], *other["worse"]]:
            probs = (_percent(context.get(name), 3) for name in ("target_prob", "other_prob"))
            margin = number(context.get("margin_nats"), 2)
            rows.append([word(label), word(other["run"]), *_words(context), *probs, margin])
    if not rows:
        return []
    caption = f"Contexts of {study.short} with the largest margins between two runs, both ways."
    return [Table("margins", "Largest margins", caption, _MARGIN_COLUMNS, rows)]


def _names(contents: Mapping[str, Content]) -> list[str]:
    """Contexts of any head: published ones, then by position or text, then random ones."""
    order = {"published": 0, "position": 1, "text": 1, "random": 2}
    places = {
        context["name"]: order.get(context.get("source"), 1)
        for content in contents.values()
        for context in content["contexts"]
    }
    return sorted(places, key=places.__getitem__)


def _by_name(content: Content) -> dict[str, Content]:
    return {context["name"]: context for context in content["contexts"]}
