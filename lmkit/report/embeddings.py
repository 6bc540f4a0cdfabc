"""Embeddings against human judgement of similarity, and their principal components.

Parthiban et al. 2021, figure 4, supplement, tables 3 and 13.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from lmkit.comparison.cells import listed, spread_cell
from lmkit.comparison.groups import Group, Study, spread_of
from lmkit.comparison.published_runs import corpus_prefix, published_of
from lmkit.comparison.run_files import Files
from lmkit.presentation.published import published_section
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import figure, heat_map
from lmkit.presentation.tables import Column, Table, number, whole, word

_SHOWN = 8
_SHARES = ("0.75", "0.95")

Rho = dict[str, dict[str, list[float]]]  # by group's label and benchmark: a value for each run


def embeddings(study: Study, files: Files) -> Section:
    """Everything that `embeddings.json` tells."""
    found, without = files.having(study, "embeddings")
    groups, note = study.shown(_SHOWN, found)
    contents = {
        group.label: [c for run in group.runs if (c := files.analysis(run, "embeddings"))]
        for group in groups
    }
    having = [group for group in groups if contents[group.label]]
    how = "lmkit embeddings run=FOLDER"
    missing = [f"no embeddings.json: {listed(without)}: {how}"] if without else []
    if not having:
        return Section("embeddings", "Embeddings", _INTRO + note, [], missing)
    rho = {group.label: _rho(contents[group.label]) for group in having}
    blocks: list[Block] = []
    if all(rho.values()):
        blocks += [_rho_table(study, having, rho, contents), *_published_table(study, having)]
        if len(having) > 1:
            blocks.append(_wins(study, rho))
    else:
        missing.append(f"no benchmarks of word similarity were there: {how} benchmarks=FOLDER")
    blocks.append(_components(study, having, contents))
    return Section("embeddings", "Embeddings", _INTRO + note, blocks, missing)


_INTRO = "Are the word vectors of a head of higher rank better by any measure of their own?"


def _rho(contents: Sequence[dict]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for content in contents:
        for name, values in content["word_similarity"].items():
            if values.get("spearman") is not None:
                found.setdefault(name, []).append(values["spearman"])
    return found


def _rho_table(
    study: Study, groups: Sequence[Group], rho: Rho, contents: Mapping[str, Sequence[dict]]
) -> Table:
    first = contents[groups[0].label][0]["word_similarity"]
    prefix = corpus_prefix(study.corpus)
    counts = published_section("word_pairs")
    rows = []
    for name, values in first.items():
        published = counts.get(name, {}) if prefix else {}
        rows.append(
            [
                word(name),
                whole(values.get("pairs")),
                whole(values.get("skipped")),
                whole(published.get(f"{prefix}_skipped")),
                *(spread_cell(spread_of(rho[group.label].get(name, [])), 3) for group in groups),
            ]
        )
    columns = [
        Column("benchmark", is_text=True),
        Column("pairs"),
        Column("skipped"),
        Column("skipped, published", is_optional=True),
        *(Column(group.label, ("mean", "sd")) for group in groups),
    ]
    caption = (
        "Spearman's ρ between human judgement and the cosine of embeddings trained on "
        f"{study.short}: mean ± one standard deviation over seeds. Pairs with a word outside the "
        "vocabulary are skipped."
    )
    return Table("word_similarity", "Word similarity", caption, columns, rows)


def _published_table(study: Study, groups: Sequence[Group]) -> list[Table]:
    section = published_section("word_similarity")
    facts = section.get(corpus_prefix(study.corpus) or "", {})
    shown = [
        group
        for group in groups
        if published_of(group, study.corpus) is not None and group.head.family in section["heads"]
    ]
    if not facts or not shown:
        return []
    at = [section["heads"].index(group.head.family) for group in shown]
    rows = [
        [word(name), *(number(values[i], 3) for i in at)] for name, values in facts.items()
    ]
    columns = [Column("benchmark", is_text=True), *(Column(group.label) for group in shown)]
    caption = f"Spearman's ρ as published: {section['source']}."
    title = "Word similarity, published"
    return [Table("word_similarity_published", title, caption, columns, rows)]


def _wins(study: Study, rho: Rho) -> Drawing:
    """On how many benchmarks the row's mean rho is above the column's."""
    names = list(rho)
    means = {
        name: {benchmark: float(np.mean(values)) for benchmark, values in found.items()}
        for name, found in rho.items()
    }
    wins = np.full((len(names), len(names)), np.nan)
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            shared = means[a].keys() & means[b].keys()
            if i != j:
                wins[i, j] = sum(means[a][name] > means[b][name] for name in shared)
    drawn, axes = figure((4.4, 3.6))
    heat_map(axes, wins, names, names, "{:.0f}")
    axes.invert_yaxis()
    axes.set_xticklabels(names, rotation=35, ha="right", rotation_mode="anchor")
    axes.set(xlabel="than this head", ylabel="better: this head")
    caption = (
        f"On how many of the {len(means[names[0]])} benchmarks the embeddings of the row's head "
        f"have a higher Spearman's ρ (mean over seeds) than those of the column's, {study.short}."
    )
    return Drawing("wins", "Pairwise wins", caption, drawn)


def _components(
    study: Study, groups: Sequence[Group], contents: Mapping[str, Sequence[dict]]
) -> Table:
    rows = []
    for group in groups:
        found = contents[group.label]
        counts = [
            spread_of([c["principal_components"].get(share, math.nan) for c in found])
            for share in _SHARES
        ]
        cells = [spread_cell(count, 1) for count in counts]
        rows.append([word(group.label), whole(found[0].get("emb_dim")), *cells])
    columns = [
        Column("head", is_text=True),
        Column("embedding size"),
        *(Column(f"components for {float(s):.0%}", ("mean", "sd")) for s in _SHARES),
    ]
    caption = (
        f"Number of principal components that hold a share of the variance of the embeddings, "
        f"{study.short}: mean ± one standard deviation over seeds."
    )
    return Table("components", "Principal components", caption, columns, rows)
