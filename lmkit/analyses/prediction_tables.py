"""What `lmkit predictions` and its section of the report show: tables and a matrix of hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from lmkit.analyses.analysis import Content
from lmkit.comparison.facts import Study
from lmkit.presentation.section import Drawing
from lmkit.presentation.style import INK, PAPER, figure, two_colours
from lmkit.presentation.tables import Cell, Column, Table, absent, counted, number, whole, word

TOP = 5  # likeliest words that are shown
_MOST_CONTEXTS = 40  # of a hit matrix, so that its columns can be told apart

_CONTEXT_COLUMNS = (Column("last words", is_text=True), Column("next word", is_text=True))
_TOP_COLUMNS = (
    Column("context", is_text=True),
    *_CONTEXT_COLUMNS,
    Column("head", is_text=True, is_optional=True),
    Column("its rank"),
    Column("its probability, %"),
    Column("top 5 (probability, %)", tuple(str(i) for i in range(1, TOP + 1)), is_text=True),
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


def tables_of_run(name: str, content: Content) -> list[Table]:
    """The likeliest next words, and where the run beats the other one and is beaten by it."""
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


def top_table(study: Study, contents: Mapping[str, Content]) -> Table:
    by_name = {label: _by_name(content) for label, content in contents.items()}
    rows = [
        _top_row(word(label), contexts[name])
        for name in _names(contents)
        for label, contexts in by_name.items()
        if name in contexts
    ]
    caption = f"The five likeliest next words at contexts of {study.origin}."
    return Table("predictions", "Top-5 predictions", caption, _TOP_COLUMNS, rows)


def told_apart_by_split(contents: dict[str, Content]) -> dict[str, Content]:
    """The same; with several splits, each position names its own: `position 100, test`."""
    if len({content["split"] for content in contents.values()}) == 1:
        return contents

    def renamed(context: Content, split: str) -> Content:
        is_typed = context.get("position") is None  # and no part of any split
        return context if is_typed else context | {"name": f"{context['name']}, {split}"}

    return {
        label: content
        | {"contexts": [renamed(context, content["split"]) for context in content["contexts"]]}
        for label, content in contents.items()
    }


def _top_row(head: Cell, context: Content) -> list[Cell]:
    top = [f"{each['word']} {100 * each['prob']:.1f}" for each in context["top"][:TOP]]
    return [
        word(context["name"]),
        *_words(context),
        head,
        whole(context.get("target_rank")),
        _percent(context.get("target_prob"), 1),
        Cell(", ".join(top), (*top, *[None] * (TOP - len(top)))),
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


def hit_matrix(study: Study, contents: Mapping[str, Content]) -> list[Drawing]:
    """Which heads have the true next word among their five likeliest, at contexts that have one.

    The contexts of one origin form a block.
    """
    by_name = [_by_name(content) for content in contents.values()]
    ranks = {
        name: [contexts.get(name, {}).get("target_rank") for contexts in by_name]
        for name in _names(contents)
    }
    of_all = [name for name, of_heads in ranks.items() if all(of_heads)]
    of_some = [name for name, of_heads in ranks.items() if any(of_heads) and name not in of_all]
    names = of_all[:_MOST_CONTEXTS]
    if not names:
        return []
    hits = np.array([ranks[name] for name in names]).T <= TOP
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
    if len(of_all) > len(names):
        caption += f" Of {len(of_all):,} contexts, the first {len(names):,}."
    if of_some:
        caption += f" Left out: {counted(len(of_some), 'context')} that some heads lack."
    return [Drawing("hits", "Hits among the first five", caption, drawn, width > 5)]


def _origin(context: Content) -> str:
    """The origin of a context: the paper that shows it, or `position`, `text` or `random`."""
    source = context.get("source") or "position"
    paper, _, position = context["name"].partition(": ")
    return paper if source == "published" and position else str(source)


def _mark_blocks(axes: Axes, sources: Sequence[str]) -> None:
    """Draws lines between blocks of columns, and each block's source above it."""
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


def hit_shares(study: Study, contents: Mapping[str, Content]) -> list[Table]:
    """Hits at the random positions."""
    rows = []
    for label, content in contents.items():
        hits = content["hits"]
        positions, top1, top5 = (hits.get(name) or [] for name in ("positions", "top1", "top5"))
        if positions:
            shares = [100 * sum(hit) / len(positions) for hit in (top1, top5)]
            sizes = word(content["split"]), whole(len(positions))
            rows.append([word(label), *sizes, *(number(share, 1) for share in shares)])
    if not rows:
        return []
    columns = [
        Column("head", is_text=True),
        Column("split", is_text=True),
        Column("random positions"),
        Column("first is true, %"),
        Column("among first five, %"),
    ]
    caption = f"How often the true next word is predicted, at random positions of {study.short}."
    return [Table("hit_shares", "Hits at random positions", caption, columns, rows)]


def margins_table(study: Study, contents: Mapping[str, Content]) -> list[Table]:
    """Contexts where one run beats another by far."""
    rows = []
    for label, content in contents.items():
        other = content.get("compared_with") or {"better": [], "worse": []}
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
