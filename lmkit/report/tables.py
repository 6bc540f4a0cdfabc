"""The tables of one setting: its groups, and what was published of them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lmkit.presentation.styled import p_text, plus_minus, signed
from lmkit.presentation.tables import DASH, counted, joined
from lmkit.report.blocks import PageTable
from lmkit.results.frame import ranks_in
from lmkit.results.groups import most_contexts, summary
from lmkit.results.published import published

_MEASURES = {
    "press": "Press rank",
    "effective_0.0001": "1e−4-effective rank",
    "entropy": "entropy rank",
}
_COLUMNS = {  # of the frame: heading, digits, and what one is divided by
    "cost.parameters": ("parameters, k", 1, 1e3),
    "cost.seconds_per_epoch": ("s / epoch", 1, 1),
    "train_ppl": ("train", 2, 1),
    "valid_ppl": ("valid", 2, 1),
    "test_ppl": ("test", 2, 1),
}


def groups(runs: pd.DataFrame, against: pd.DataFrame, beside: pd.DataFrame) -> list[PageTable]:
    """The heads of a setting, and, folded, all of its groups: those that searched for a rate, those
    trained otherwise, and those that failed.

    Args:
        runs: of the setting.
        against: its rows of `against_baseline`.
        beside: the experiments that its groups are nearest to, as `nearest` finds them.
    """
    every = summary(runs)
    labels = runs.drop_duplicates("group").set_index("group")["label"]
    shown = every.loc[against.index]
    text = _text(shown, runs).assign(**_tested(against))
    values = shown.join(against[["difference", "low", "high", "p_welch", "p_student", "p_holm"]])
    columns, notes = _beside(shown, against, beside)
    text = text.join(columns)
    text.index = pd.Index(against["head_label"].where(~against["head_label"].duplicated(), labels))
    found = [PageTable("groups", "Heads at their best rates", text, values, notes)]
    rest = every.loc[[group for group in labels.index if group not in against.index]]
    if len(rest):
        title = f"{len(rest)} further groups: rates that were searched, and other training"
        folded = _text(rest, runs)
        folded.index = pd.Index(_unique(labels[rest.index].to_list()))
        found.append(PageTable("further", title, folded, rest, is_folded=True))
    return found


def _text(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    shown = {"seeds": table["seeds"].astype(str)}
    columns = {name: how for name, how in _COLUMNS.items() if f"{name} mean" in table}
    contexts = most_contexts(runs)
    for measure, heading in _MEASURES.items():
        name = ranks_in(runs, measure).get(contexts or 0)
        if name is not None:
            columns[name] = (heading, 1 if measure == "entropy" else 0, 1)
    for name, (heading, digits, unit) in columns.items():
        pairs = table[[f"{name} mean", f"{name} std"]] / unit
        if name.startswith("cost."):
            pairs = pairs.assign(**{f"{name} std": float("nan")})
        if pairs.iloc[:, 0].notna().any():
            cells = [plus_minus(mean, sd, digits) for mean, sd in pairs.to_numpy()]
            shown[heading] = pd.Series(cells, index=table.index)
    return pd.DataFrame(shown)


def _tested(against: pd.DataFrame) -> dict[str, pd.Series]:
    """The difference's columns; none where no head has one."""
    if against["difference"].isna().all():
        return {}
    cells = [
        DASH
        if pd.isna(d)
        else signed(d, 3) + ("" if pd.isna(low) else f" ({signed(low, 3)} … {signed(high, 3)})")
        for d, low, high in against[["difference", "low", "high"]].to_numpy(float)
    ]
    return {
        "test − baseline's": pd.Series(cells, index=against.index),
        "p, Holm": against["p_holm"].map(p_text),
    }


def _beside(
    table: pd.DataFrame, against: pd.DataFrame, nearest: pd.DataFrame
) -> tuple[pd.DataFrame, list[str]]:
    """Published columns, and notes on what differs from the published experiments."""
    near = nearest[nearest["group"].isin(table.index)].set_index("group").reindex(table.index)
    near = near.dropna(subset=["experiment"])
    if near.empty:
        return pd.DataFrame(index=table.index), []
    plain = published().dropna(subset=["experiment"]).drop_duplicates(["experiment", "quantity"])
    values = plain.set_index(["quantity", "experiment"])[["value", "spread"]]
    columns: dict[str, dict[object, str]] = {}
    for quantity, heading in _quantities(plain, near["experiment"]).items():
        digits = 0 if quantity.startswith("rank.") else 2
        for group, experiment in near["experiment"].items():
            if (quantity, experiment) in values.index:
                value, spread = values.loc[(quantity, experiment)]
                cells = columns.setdefault(f"published {heading}", {})
                cells[group] = plus_minus(value, spread, digits)
    named = {group: "the same" if row["is_same"] else counted(len(row["differs"]), "option")
             for group, row in near.iterrows()}  # fmt: skip
    columns["differs in"] = named
    shown = pd.DataFrame(columns).reindex(table.index).fillna(DASH)
    heads = against["head_label"].reindex(near.index)
    return shown, _notes(heads.to_list(), near["experiment"].to_list(), near["differs"].to_list())


def _quantities(plain: pd.DataFrame, experiments: pd.Series) -> dict[str, str]:
    there = plain.loc[plain["experiment"].isin(experiments), "quantity"].unique()
    wanted = {"valid_ppl": "valid", "test_ppl": "test"}
    wanted |= {name: "Press rank" for name in there if name.startswith("rank.press@")}
    return {quantity: heading for quantity, heading in wanted.items() if quantity in there}


def _notes(
    heads: Sequence[str], experiments: Sequence[str], differs: Sequence[list[str]]
) -> list[str]:
    """What all differ in, once; then what only some do."""
    if not any(differs):
        return [f"As published: {joined(dict.fromkeys(experiments))}."]
    common = [line for line in differs[0] if all(line in each for each in differs)]
    rest: dict[tuple[str, ...], list[str]] = {}
    for head, each in zip(heads, differs, strict=True):
        rest.setdefault(tuple(line for line in each if line not in common), []).append(head)
    notes = []
    if common:
        named = joined(dict.fromkeys(experiments))
        notes.append(
            f"Not {named} as published, so the figures do not compare: {'; '.join(common)}."
        )
    also = " also" if common else " not as published"
    return notes + [f"{joined(of)}{also}: {'; '.join(each)}." for each, of in rest.items() if each]


def _unique(labels: list[str]) -> list[str]:
    counts: dict[str, int] = {}
    found = []
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
        found.append(label if counts[label] == 1 else f"{label} #{counts[label]}")
    return found
