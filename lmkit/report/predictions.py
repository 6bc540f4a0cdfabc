"""Next words at given contexts (Parthiban et al. 2021, figure 3, supplement, table 2)."""

from __future__ import annotations

import numpy as np

from lmkit.comparison.cells import listed
from lmkit.comparison.groups import Study
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import PAPER, figure, two_colours
from lmkit.presentation.tables import Cell, Column, Table, number, whole, word

_SHOWN = 8
_MOST_CONTEXTS = 40  # of a hit matrix, that its columns can be told apart
_TOP = 5

Content = dict[str, object]
Contents = dict[str, Content]  # predictions.json by the group's label


def predictions(study: Study, files: Files) -> Section:
    """Top-5 predictions and hit matrices of one run a head."""
    found, without = files.having(study, "predictions")
    groups, note = study.shown(_SHOWN, found)
    contents: Contents = {}
    for group in groups:
        run = files.representative(group.runs, "predictions", check=_check)
        if run is not None:
            contents[group.label] = files.analysis(run, "predictions", check=_check)
    how = "lmkit predictions run=FOLDER"
    missing = [f"no predictions.json: {listed(without)}: {how}"] if without else []
    blocks: list[Block] = []
    if contents:
        blocks = [_top_table(study, contents), *_matrix(study, contents)]
        blocks += [*_shares(study, contents), *_margins(study, contents)]
        if not any("against" in content for content in contents.values()):
            missing.append(f"no contexts where one run beats another by far: {how} against=FOLDER")
    return Section(
        "predictions",
        "Predictions",
        "Which next words a head expects, of one run a head (that of median test perplexity)."
        f"{note}",
        blocks,
        missing,
    )


def _check(content: Content) -> None:
    """Raises KeyError where a part is missing that is shown."""
    content["hits"]["top1"], [(context["name"], context["top"]) for context in content["contexts"]]


def _top_table(study: Study, contents: Contents) -> Table:
    rows = []
    for name in _names(contents):
        for label, content in contents.items():
            context = _contexts(content).get(name)
            if context is not None:
                rows.append(_top_row(label, name, context))
    columns = [
        Column("context", is_text=True),
        Column("last words", is_text=True),
        Column("next word", is_text=True),
        Column("head", is_text=True),
        Column("its rank"),
        Column("its probability, %"),
        Column("top 5 (probability, %)", tuple(str(i) for i in range(1, _TOP + 1)), is_text=True),
    ]
    caption = f"The five likeliest next words at contexts of {study.short}."
    return Table("predictions", "Top-5 predictions", caption, columns, rows)


def _top_row(label: str, name: str, context: dict) -> list[Cell]:
    top = context["top"][:_TOP]
    said = [f"{each['word']} {100 * each['prob']:.1f}" for each in top]
    probability = context.get("target_prob")
    return [
        word(name),
        word(context.get("context") or ""),
        word(context.get("target") or ""),
        word(label),
        whole(context.get("target_rank")),
        number(None if probability is None else 100 * probability, 1),
        Cell(", ".join(said), (*said, *[None] * (_TOP - len(said)))),
    ]


def _matrix(study: Study, contents: Contents) -> list[Drawing]:
    """Which head has the true next word among its first five, at contexts that have one."""
    names = [
        name
        for name in _names(contents)
        if all(
            (_contexts(content).get(name) or {}).get("target_rank") for content in contents.values()
        )
    ][:_MOST_CONTEXTS]
    if not names:
        return []
    hits = np.array(
        [
            [_contexts(content)[name]["target_rank"] <= _TOP for name in names]
            for content in contents.values()
        ]
    )
    width = min(7.4, max(4.4, 1.6 + 0.28 * len(names)))
    drawn, axes = figure((width, 1.5 + 0.3 * len(contents)))
    axes.pcolormesh(hits, cmap=two_colours(), vmin=0, vmax=1, edgecolors=PAPER, linewidth=1)
    axes.set_yticks(np.arange(len(contents)) + 0.5, list(contents))
    first = _contexts(next(iter(contents.values())))
    axes.set_xticks(np.arange(len(names)) + 0.5, [first[name]["target"] or "" for name in names])
    slanted = {"rotation": 60, "ha": "right", "rotation_mode": "anchor", "size": 7}
    axes.set_xticklabels(axes.get_xticklabels(), **slanted)
    axes.invert_yaxis()
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set(xlabel="context, by its true next word", ylabel="head")
    caption = (
        f"Blue: the head has the true next word among its five likeliest; grey: it has not. "
        f"Contexts of {study.short}, in the order of the table."
    )
    return [Drawing("hits", "Hits among the first five", caption, drawn, width > 5)]


def _shares(study: Study, contents: Contents) -> list[Table]:
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


def _margins(study: Study, contents: Contents) -> list[Table]:
    """Contexts where one run beats another by far (Yang et al. 2018, section 3.4)."""
    rows = []
    for label, content in contents.items():
        against = content.get("against") or {}
        for context in [*(against.get("better") or []), *(against.get("worse") or [])]:
            probabilities = (context.get("target_prob"), context.get("other_prob"))
            percents = (None if p is None else 100 * p for p in probabilities)
            rows.append(
                [
                    word(label),
                    word(str(against.get("run"))),
                    word(context.get("context") or ""),
                    word(context.get("target") or ""),
                    *(number(percent, 3) for percent in percents),
                    number(context.get("margin_nats"), 2),
                ]
            )
    if not rows:
        return []
    columns = [
        Column("head", is_text=True),
        Column("against the run", is_text=True),
        Column("last words", is_text=True),
        Column("next word", is_text=True),
        Column("its probability, %"),
        Column("by the other, %"),
        Column("margin, nats"),
    ]
    caption = f"Contexts of {study.short} with the largest margins between two runs, both ways."
    return [Table("margins", "Largest margins", caption, columns, rows)]


def _names(contents: Contents) -> list[str]:
    """Contexts of any head: published ones, then by position or text, then random ones."""
    order = {"published": 0, "position": 1, "text": 1, "random": 2}
    found = {
        context["name"]: order.get(context.get("source"), 1)
        for content in contents.values()
        for context in content["contexts"]
    }
    return sorted(found, key=found.get)


def _contexts(content: Content) -> dict[str, dict]:
    return {context["name"]: context for context in content["contexts"]}
