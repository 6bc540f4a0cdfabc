"""The contents of the page, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from lmkit.analyses.base import Analysis, StoredRecord, measured
from lmkit.errors.user_error import UserError, did_you_mean, first_reason
from lmkit.presentation.figures import house_style, legend_below
from lmkit.presentation.styled import told_apart
from lmkit.presentation.tables import counted, decimal, joined
from lmkit.report import curves, first_screen, over_option, tables
from lmkit.report.page import PANEL, PageFigure, PageSection, PageTable, write_page
from lmkit.results.against import against_baseline, points
from lmkit.results.groups import grouped, left_out_in_part
from lmkit.results.published import Compose, nearest, published
from lmkit.runs.analysis_files import analysis_stems
from lmkit.runs.folder import RunFolder

_MAY_DIFFER = {  # beside the seed, within a group
    "device_kind": "device",
    "threads": "threads",
    "code.torch": "PyTorch",
    "code.sha256": "code",
}
_CODE = {
    "code.dirty": "a working tree with changes that no commit has",
    "code.has_changed": "code that has changed since",
}


class Report(NamedTuple):
    page: Path
    num_runs: int  # on it
    left_out: dict[str, str]  # runs and files that do not count, with the reason


def make_report(
    table: pd.DataFrame,
    *,
    analyses: Sequence[type[Analysis]],
    compose: Compose,
    baseline: str,
    out: Path,
    models: Sequence[RunFolder] = (),
    left_out: Mapping[str, str] = MappingProxyType({}),
    title: str,
    about: str = "",
    paper: str = "",
) -> Report:
    """Writes the page of the runs into `out`, with the files of its tables and figures.

    Args:
        table: the runs, as `lmkit.results.frame` reads them.
        analyses: the kinds that are shown of what is stored in the runs.
        compose: a published experiment.
        baseline: family of the head that others are compared with.
        models: folders of what was measured of pretrained models.
        left_out: what does not count already, with the reason.
        title: its heading.
        about: its introduction.
        paper: "Yang et al. 2018, table 4": whose published values are taken where several have one.

    Raises: UserError when nothing counts, no run or publication has the baseline's head, or `out`
        cannot be written.
    """
    runs, uncounted = grouped(table, baseline)
    left_out = {**uncounted, **left_out}
    if runs.empty and not models:
        why = first_reason(left_out) if left_out else "there is none"
        raise UserError(f"no run can be reported on: {why}")
    _require_baseline(runs, baseline)
    with house_style():
        sentences, sections, last_lines = _of_runs(runs, analyses, compose, paper, left_out)
        if models:
            sections.append(_models(models, analyses, left_out))
        every = table.drop(columns="place")
        page = write_page(out, title, about, sentences, sections, last_lines, left_out, every)
    return Report(page, len(runs), left_out)


def _of_runs(
    runs: pd.DataFrame,
    analyses: Sequence[type[Analysis]],
    compose: Compose,
    paper: str,
    left_out: dict[str, str],
) -> tuple[list[tuple[str, str]], list[PageSection], list[str]]:
    """The page's sentences, sections and last lines."""
    if runs.empty:
        return [], [], []
    left_out |= left_out_in_part(runs)
    against, beside = against_baseline(runs), nearest(runs, compose, paper)
    is_compared = against.groupby("setting")["head_label"].transform("size") > 1
    compared = against[is_compared]
    alone = list(against.loc[~is_compared, "setting_title"].unique())
    sentences = first_screen.sentences(compared)
    sections = [_answer(compared)] if sentences else []
    for title in [*(title for title, _ in sentences), *alone]:
        of = runs[runs["setting_title"] == title]
        rows = against[against["setting_title"] == title]
        section = _setting(of, rows, beside, analyses, paper, left_out)
        if section.key in {each.key for each in sections}:  # titles may differ in signs alone
            section = replace(section, key=f"{section.key}_{len(sections)}")
        sections.append(section)
    return sentences, sections, _last_lines(runs)


def _models(
    models: Sequence[RunFolder], analyses: Sequence[type[Analysis]], left_out: dict[str, str]
) -> PageSection:
    names = told_apart(folder.path.name for folder in models)
    folders = dict(zip(names, (folder.path for folder in models), strict=True))
    of_models, drawn = measurements(folders, analyses, left_out, every_text=True)
    lead = "Bits per byte compare on one text; ranks at equal contexts and vocabularies alone."
    return PageSection("models", "Pretrained models", lead, of_models, drawn)


def measurements(
    folders: Mapping[str, Path],
    kinds: Sequence[type[Analysis]],
    left_out: dict[str, str],
    *,
    names: Mapping[str, list[str]] | None = None,
    paper: str = "",
    every_text: bool = False,
) -> tuple[list[PageTable], list[PageFigure]]:
    """A table and a figure of each kind of which something was measured, and what was published.

    Args:
        folders: of runs or pretrained models, by their labels.
        left_out: gets the files that are damaged.
        names: of the published experiment of each label.
        paper: whose values come first, with its table.
        every_text: whether what was measured on others than a run's own text counts, too.
    """
    tables_, figures = [], []
    for kind in kinds:
        files: list[tuple[str, StoredRecord]] = []
        for label, path in folders.items():
            folder = RunFolder(path)
            files += measured(folder, kind, label, left_out, every_text=every_text)
        if not files:
            continue
        is_named = every_text or len({variant for variant, _ in files}) > 1
        found = [
            each._replace(label=f"{each.label} ({variant})") if is_named and variant else each
            for variant, each in files
        ]
        tables_ += _table(kind, found)
        records = [record for variant, record in files if not variant.endswith("last")]
        tables_ += tables.beside_published(kind, records, names or {}, paper)
        if kind.caption:
            drawn = Figure(figsize=PANEL, layout="constrained")
            try:
                kind.draw(drawn.subplots(), found)
            except Exception as error:  # arrays may be missing, and a user's class raise anything
                left_out[f"{kind.name}, its figure"] = f"it cannot be drawn: {error!r}"
                continue
            legend_below(drawn)
            figures.append(PageFigure(kind.name, kind.title, kind.caption, drawn))
    return tables_, figures


def _table(kind: type[Analysis], found: Sequence[StoredRecord]) -> list[PageTable]:
    """None of records that have nothing but the split that they are of."""
    columns = kind.record.columns()
    rows = [{name: getattr(each.record, name) for name in columns} for each in found]
    values = pd.DataFrame(rows, index=pd.Index([each.label for each in found]))
    values = values.dropna(axis="columns", how="all")
    if set(values) <= {"split"}:
        return []
    text = values.map(tables.cell_text).rename(columns=columns)
    return [PageTable(kind.name, kind.title, text, values, is_folded=True)]


def _answer(rows: pd.DataFrame) -> PageSection:
    drawn = first_screen.rank_and_perplexity(rows)
    tables_ = [first_screen.heads_by_settings(rows)]
    if drawn is None:
        return PageSection("answer", "", first_screen.RULE, tables_, [])
    rule = f"{first_screen.RULE} {first_screen.RULE_OF_R}"
    return PageSection("answer", "", rule, tables_, [drawn])


def _setting(
    runs: pd.DataFrame,
    against: pd.DataFrame,
    beside: pd.DataFrame,
    analyses: Sequence[type[Analysis]],
    paper: str,
    left_out: dict[str, str],
) -> PageSection:
    shown = curves.representatives(runs, against)
    alike = beside.loc[beside["is_alike"], "names"].reindex(against.index).dropna()
    experiments = {name for names in alike for name in names}
    figures = [*curves.spectra(shown, left_out), *curves.training(shown, experiments, left_out)]
    if (varied := over_option.over_options(runs)) is not None:
        figures.append(varied)
    if against["head"].nunique() == 1:  # else the first screen has its panel
        figures += _grid(points(runs), beside["experiment"].reindex(runs["group"]), paper)
    of_analyses: list[PageTable] = []
    groups = {label: run["group"] for label, run in shown.items()}
    names = {label: beside["names"].get(group, []) for label, group in groups.items()}
    for kind in analyses:
        folders = _measured_runs(kind, shown, runs)
        found, drawn = measurements(folders, [kind], left_out, names=names, paper=paper)
        of_analyses += found
        figures += drawn
    title = str(runs["setting_title"].iloc[0])
    count = f"{counted(len(runs), 'run')} of {counted(runs['group'].nunique(), 'group')}"
    failed = runs.loc[runs["is_failed"], "label"].unique()
    lead = f"{count}; a group's runs differ only in their seed"
    by_group = runs.groupby("group")
    mixed = [name for of, name in _MAY_DIFFER.items() if (by_group[of].nunique() > 1).any()]
    lead += f", some also in {joined(mixed)}." if mixed else "."
    first = runs.iloc[0]  # of a fixed trunk's contexts, the tokenizer is that of their text
    if {first.get("data.tokenizer"), first.get("data.text.tokenizer")} & {"bpe", "hf"}:
        lead += " Perplexities are per subword."
    if len(failed):
        lead += f" Failed, in groups of their own: {', '.join(failed)}."
    every = [*tables.groups(runs, against, beside, paper), *of_analyses]
    return PageSection(_key(title), title, lead, every, figures)


def _grid(rows: pd.DataFrame, experiments: pd.Series[str], paper: str) -> list[PageFigure]:
    """Does perplexity follow rank within one head? As in Parthiban et al. 2021, figure 2."""
    drawn = first_screen.rank_and_perplexity(rows)
    if drawn is None:
        return []
    found = published(paper).query("quantity == 'pearson'")
    found = found[found["experiment"].isin(experiments)]
    printed = "; ".join(f"{row['value']:g}, {row['remark']}" for _, row in found.iterrows())
    caption = (
        f"A point is a variant of the head. {drawn.caption} r is Pearson's, of log rank and test "
        f"perplexity."
    )
    known = rows[["rank", "test_ppl"]].dropna()
    if printed and len(known) > 1:
        of_rank = decimal(known["rank"].corr(known["test_ppl"]), 2)
        caption += f" That of the rank itself is {of_rank} (published: {printed})."
    return [replace(drawn, key="variants", caption=caption)]


def _measured_runs(
    kind: type[Analysis], shown: Mapping[str, pd.Series[Any]], runs: pd.DataFrame
) -> dict[str, Path]:
    """Of each head the run that is shown, or, where `kind` did not measure it, another seed's."""
    found = {}
    for label, run in shown.items():
        alike = runs.loc[runs["group"] == run["group"], "folder"]
        folders = [Path(folder) for folder in (run["folder"], *alike)]
        has = (folder for folder in folders if analysis_stems(RunFolder(folder), kind.name))
        found[label] = next(has, folders[0])
    return found


def _last_lines(runs: pd.DataFrame) -> list[str]:
    """What is not covered, one line each."""
    lines = []
    for column, what in _CODE.items():
        count = int(runs[column].fillna(False).sum()) if column in runs else 0
        if count:
            lines.append(f"{counted(count, 'run')} came from {what}.")
    return lines


def _require_baseline(runs: pd.DataFrame, baseline: str) -> None:
    families = set(runs["family"])
    known = families | set(published()["experiment"].dropna().str.partition("_")[2])
    if len(runs) and baseline not in known:
        raise UserError(
            f"baseline={baseline} is the head of no run{did_you_mean(baseline, sorted(families))}; "
            f"there are {', '.join(sorted(families))}"
        )


def _key(title: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in title.lower().replace(",", "")).split()
    # the names of a section's files begin with it
    return "_".join(words).encode()[:120].decode("utf-8", "ignore")
