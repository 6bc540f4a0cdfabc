"""Ranks of log P by several measures, and its rows' pairwise divergence.

Parthiban et al. 2021, table 6; Yang et al. 2018, table 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmkit.comparison.cells import listed, spread_cell
from lmkit.comparison.groups import Group, Spread, Study, spread_of
from lmkit.comparison.published_runs import corpus_prefix, published_of
from lmkit.comparison.ranks import ranks_at
from lmkit.comparison.run_files import Files, Measurement
from lmkit.presentation.published import PublishedRun, published_section
from lmkit.presentation.tables import Cell, Column, Table, number, whole, word

_EPSILONS = {"0.001": "1e−3", "0.0001": "1e−4", "1e-05": "1e−5"}


def rank_counts(study: Study, files: Files, contexts: int | None) -> list[int]:
    """The usual number of contexts, and the published one where a run has ranks there."""
    if contexts is None:
        return []
    prefix = corpus_prefix(study.corpus)
    published = published_section("corpora")[prefix]["rank_contexts"] if prefix else contexts
    if published == contexts or not any(ranks_at(g, files, published) for g in study.groups):
        return [contexts]
    return [contexts, published]


def rank_table(study: Study, files: Files, contexts: int) -> Table:
    """Parthiban et al. 2021, table 6."""
    rows, reasons = [], {}
    for group in study.groups:
        measured = [
            m
            for run in group.runs
            for m in files.measurements(run)
            if (m.split, m.num_contexts) == ("test", contexts)
        ]
        if not measured:
            continue
        published = published_of(group, study.corpus)
        facts = published.facts if published else None
        if facts is not None and facts.rank_contexts != contexts:
            facts = None
        rows.append(_rank_row(group, measured, facts))
        for m in measured:
            for name, why in (m.spectrum.get("unresolved") or {}).items():
                if name != "condition":
                    what = f"{name.replace('_', ' ')} is unresolved: {why}"
                    reasons.setdefault(what, {})[group.label] = None
    columns = [
        Column("head", is_text=True),
        Column("Press rank", ("mean", "sd")),
        Column("Press rank, published", is_optional=True),
    ]
    for name in _EPSILONS.values():
        columns += [
            Column(f"{name}-effective rank", ("mean", "sd")),
            Column(f"{name}, published", is_optional=True),
        ]
    columns += [Column("entropy rank", ("mean", "sd")), Column("stable rank", ("mean", "sd"))]
    caption = (
        f"Ranks of log P over {contexts:,} test contexts of {study.short}. The ε-effective rank is "
        "the number of singular values that hold all but a share ε of the sum of squares. "
        "Published ranks stand here when they are of as many contexts."
    )
    notes = [f"{listed(labels)}: {reason}" for reason, labels in reasons.items()]
    key, title = f"ranks_{contexts}", "Press rank and effective ranks"
    return Table(key, title, caption, columns, rows, notes)


def _rank_row(
    group: Group, measured: Sequence[Measurement], facts: PublishedRun | None
) -> list[Cell]:
    def mean(*path: str) -> Spread | None:
        values = []
        for m in measured:
            value: object = m.spectrum
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, int | float):
                values.append(value)
        return spread_of(values)

    press = facts.press_rank if facts else None
    cells = [
        word(group.label), spread_cell(mean("press_rank"), 0), whole(press.value if press else None)
    ]  # fmt: skip
    for epsilon in _EPSILONS:
        fact = facts.effective_rank.get(epsilon) if facts else None
        cells.append(spread_cell(mean("effective_rank", epsilon), 0))
        cells.append(whole(fact.value if fact else None))
    return [*cells, spread_cell(mean("entropy_rank"), 1), spread_cell(mean("stable_rank"), 3)]


def divergence_table(study: Study, files: Files) -> Table | None:
    """Yang et al. 2018, table 5."""
    rows = []
    for group in study.groups:
        found: dict[tuple[str, int], list[float]] = {}
        for run in group.runs:
            for m in files.measurements(run):
                if m.divergence is not None:
                    found.setdefault((m.split, m.num_contexts), []).append(m.divergence)
        published = published_of(group, study.corpus)
        for (split, contexts), values in sorted(found.items()):
            fact = published.facts.divergence.get(split) if published else None
            mine = spread_cell(spread_of(values), 3)
            fact_cell = number(fact.value if fact else None, 3)
            rows.append([word(group.label), word(split), whole(contexts), mine, fact_cell])
    if not rows:
        return None
    columns = [
        Column("head", is_text=True),
        Column("split", is_text=True),
        Column("contexts"),
        Column("pairwise KL, nats", ("mean", "sd")),
        Column("published, whole split", is_optional=True),
    ]
    caption = (
        f"Expected Kullback–Leibler divergence between the next-word distributions of two contexts "
        f"of {study.short}, exact over all ordered pairs. Published: Yang et al. 2018, table 5."
    )
    return Table("divergence", "Pairwise divergence", caption, columns, rows)
