"""The tables of one setting: its groups, and what was published of them."""

import re
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from lmkit.analyses.base import Analysis, StoredRecord
from lmkit.presentation.styled import p_text, plus_minus, signed, told_apart
from lmkit.presentation.tables import DASH, counted, decimal, joined, listed
from lmkit.report.page import PageTable
from lmkit.results.frame import head_options, ranks_in
from lmkit.results.groups import RATES, measured_alike, summary
from lmkit.results.labels import differing, in_words
from lmkit.results.published import method_differences, printed, published
from lmkit.results.stats import ten_seeds

_MEASURES = {
    "press": "Press rank",
    "effective_0.001": "1e−3-effective rank",
    "effective_0.0001": "1e−4-effective rank",
    "effective_1e-05": "1e−5-effective rank",
    "entropy": "entropy rank",
}
_COLUMNS = {  # of the frame: heading, digits, and what one is divided by
    "cost.parameters": ("parameters, k", 0, 1e3),
    "cost.seconds_per_epoch": ("s / epoch", 1, 1),
    "train_ppl": ("train", 2, 1),
    "valid_ppl": ("valid", 2, 1),
    "test_ppl": ("test", 2, 1),
}

APART = "‡"  # marks a difference from a baseline that is not shown
_MOST_NOTED = 12  # further groups, of which notes say in what they differ
# what `lmkit evaluate` measured by another method than training's
_METHOD = re.compile(r"evaluate_(?P<method>(?!static)\w+)_(?P<split>valid|test)\.ppl")


def groups(
    runs: pd.DataFrame, against: pd.DataFrame, beside: pd.DataFrame, paper: str
) -> list[PageTable]:
    """The heads of a setting, and, folded, all of its groups: those that searched for a rate, those
    trained otherwise, and those that failed.

    Args:
        runs: of the setting.
        against: its rows of `against_baseline`.
        beside: the experiments that its groups are nearest to, as `nearest` finds them.
        paper: of which published values are taken where several have them, with its table.
    """
    measured, runs = runs, measured_alike(runs)
    of_group = runs.groupby("group")["device_kind"]
    devices = of_group.agg(lambda kinds: ", ".join(map(str, kinds.dropna().unique())))
    every = summary(runs).assign(device_kind=devices)
    known = runs.groupby("group", sort=False).first()  # of each fact the first run's that has it
    labels = known["label"]
    contexts = next((int(n) for n in against["contexts"].dropna()), None)
    shown = every.loc[against.index]
    columns, notes = _beside(known.loc[shown.index], contexts, beside, against["head_label"], paper)
    text = _rates(runs, known.loc[shown.index]).join(_text(shown, runs, contexts))
    text = text.assign(**_tested(against)).join(columns)
    text.index = pd.Index(against["head_label"].where(~against["head_label"].duplicated(), labels))
    tested = against[
        ["baseline_ppl", "difference", "low", "high", "p_welch", "p_student", "p_holm"]
    ]
    values = shown.join(against[["head_label"]]).join(tested).join(columns)
    values = values.set_axis(labels[shown.index])
    notes += _devices(shown["device_kind"], text.index)
    notes += [*_measured_unlike(measured, runs), *baselines_apart(against)]
    notes += _ten_seeds(runs, against, beside)
    if text.columns.str.contains("rank").any():
        notes.append(f"Ranks are over {contexts:,} contexts of the test split.")
    found = [PageTable("groups", "Heads at their best rates", text, values, notes)]
    rest = every.loc[[group for group in labels.index if group not in against.index]]
    if len(rest):
        further = counted(len(rest), "further group")
        title = f"{further}: rates that were searched, other options and training"
        columns, notes = _beside(known.loc[rest.index], contexts, beside, labels, paper)
        notes = notes if len(rest) <= _MOST_NOTED else []
        folded = _text(rest, runs, contexts).join(columns)
        folded.index = told_apart(labels[rest.index])
        values = rest.join(columns).set_axis(labels[rest.index])
        found.append(PageTable("further", title, folded, values, notes, is_folded=True))
    return found


def _devices(kinds: pd.Series, names: pd.Index) -> list[str]:
    """A note where seconds an epoch do not compare."""
    by_kind = pd.Series(names, kinds.index).groupby(kinds).agg(lambda of: listed(of, 4))
    if len(by_kind) < 2:
        return []
    said = "; ".join(f"{kind}: {heads}" for kind, heads in by_kind.items())
    return [f"Seconds an epoch are of different devices: {said}."]


def _measured_unlike(measured: pd.DataFrame, alike: pd.DataFrame) -> list[str]:
    """A note on methods whose options are not those of all seeds, so that a group has no mean."""
    found = []
    for name, heading in _methods(measured).items():
        labels = alike.loc[(measured[name].notna() & alike[name].isna()).to_numpy(), "label"]
        if len(labels):
            found.append(f"{heading} of {listed(labels.unique(), 4)}")
    said = f"Seeds measured with different options have no mean: {'; '.join(found)}."
    return [said] if found else []


def baselines_apart(against: pd.DataFrame) -> list[str]:
    """A note on heads whose baseline, trained as they were, is none of the rows."""
    apart = against[against["apart"]]
    is_one = against["setting"].nunique() == 1
    said = [f"{row['head_label']} with {decimal(row['baseline_ppl'], 2)}"
            + ("" if is_one else f" ({row['setting_title']})")
            for _, row in apart.iterrows()]  # fmt: skip
    return [f"{APART} Compared with a baseline trained alike: {'; '.join(said)}."] if said else []


def _ten_seeds(runs: pd.DataFrame, against: pd.DataFrame, beside: pd.DataFrame) -> list[str]:
    """The papers' test, a line where heads have as many seeds as theirs."""
    reported = set(beside["reported_seed"].reindex(against.index).dropna())
    by_seed: dict[object, dict[int, float]] = {
        group: dict(zip(of["seed"], of["test_ppl"], strict=True))
        for group, of in runs.groupby("group")
    }
    of_papers = published().query("quantity == 'p_student'")
    pairs = zip(of_papers["experiment"], of_papers["remark"], of_papers["value"], strict=True)
    in_papers = {frozenset((one, other.removeprefix("against "))): p for one, other, p in pairs}
    experiments = beside["experiment"]
    said = []
    for group, row in against[against["baseline"].isin(against.index)].iterrows():
        found = ten_seeds(by_seed[group], by_seed[row["baseline"]], reported)
        if found is not None:
            pair = frozenset((experiments.get(group), experiments.get(row["baseline"])))
            theirs = in_papers.get(pair)
            in_print = "" if theirs is None else f" (published: {p_text(theirs)})"
            said.append(f"{row['head_label']} {p_text(found.p_student)}{in_print}")
            base = against.loc[row["baseline"], "head_label"]  # of all the same
    if not said:
        return []
    return [f"Student's p against {base} over the seeds drawn at random: {'; '.join(said)}."]


def _rates(runs: pd.DataFrame, shown: pd.DataFrame) -> pd.DataFrame:
    """A column of the rates and the head's own options that were tried with several values."""
    options = [o for o in (*head_options(runs), *RATES) if o in runs]
    cells = {}
    for group, row in shown.iterrows():
        tried = differing(runs[runs["head"] == row["head"]], options)
        cells[group] = ", ".join(in_words(o, row) for o in tried if not pd.isna(row[o]))
    if not any(cells.values()):
        return pd.DataFrame(index=shown.index)
    return pd.DataFrame({"at": pd.Series(cells).replace("", DASH)})


def _text(table: pd.DataFrame, runs: pd.DataFrame, contexts: int | None) -> pd.DataFrame:
    shown = {"seeds": table["seeds"].astype(str)}
    columns = {name: how for name, how in _COLUMNS.items() if f"{name} mean" in table}
    columns |= {name: (heading, 2, 1) for name, heading in _methods(runs).items()}
    for measure, heading in _MEASURES.items():
        name = ranks_in(runs, measure).get(contexts or 0)
        if name is not None:
            columns[name] = (heading, 1 if measure == "entropy" else 0, 1)
    for name, (heading, digits, unit) in columns.items():
        pairs = table[[f"{name} mean", f"{name} std"]] / unit
        if name.startswith(("cost.", "rank.e")):  # the CSV has them
            pairs = pairs.assign(**{f"{name} std": float("nan")})
        if pairs.iloc[:, 0].notna().any():
            cells = [plus_minus(mean, sd, digits) for mean, sd in pairs.to_numpy()]
            counts = table.get(f"{name} count", table["seeds"])
            of_part = counts.between(1, table["seeds"] - 1)
            part = "(" + counts.astype(str) + " of " + shown["seeds"] + ")"
            shown[heading] = pd.Series(cells, index=table.index) + (" " + part).where(of_part, "")
    return pd.DataFrame(shown)


def _tested(against: pd.DataFrame) -> dict[str, pd.Series]:
    """The difference's columns; none where no head has one."""
    if against["difference"].isna().all():
        return {}
    cells = [
        DASH
        if pd.isna(d)
        else signed(d, 3)
        + APART * bool(apart)
        + ("" if pd.isna(low) else f" ({signed(low, 3)} … {signed(high, 3)})")
        for d, low, high, apart in against[["difference", "low", "high", "apart"]].to_numpy(float)
    ]
    return {
        "test − baseline's": pd.Series(cells, index=against.index),
        "p, Holm": against["p_holm"].map(p_text),
    }


def _beside(
    groups: pd.DataFrame, contexts: int | None, nearest: pd.DataFrame, heads: pd.Series, paper: str
) -> tuple[pd.DataFrame, list[str]]:
    """Published columns, and notes on what differs from the published experiments.

    Args:
        groups: what is known of each.
        contexts: of our ranks, which compare at equal numbers only.
        heads: what notes call them.
        paper: whose values come first.
    """
    near = nearest.reindex(groups.index).dropna(subset=["experiment"])
    if near.empty:
        return pd.DataFrame(index=groups.index), []
    columns: dict[str, dict[object, str]] = {}
    sources: dict[str, dict[str, None]] = {}
    remarks: dict[str, dict[str, None]] = {}
    differs = near["differs"].to_dict()
    labels = heads.reindex(near.index).to_dict()
    runs = {group: row.dropna().to_dict() for group, row in groups.iterrows()}
    wanted = dict(_COLUMNS)
    wanted |= {f"rank.{measure}@{contexts}": (text, 0, 1) for measure, text in _MEASURES.items()}
    wanted |= {name: (heading, 2, 1) for name, heading in _methods(groups).items()}
    theirs = {group: printed(paper, names) for group, names in near["names"].to_dict().items()}
    for quantity, (heading, digits, unit) in wanted.items():
        for group, of in theirs.items():
            if quantity not in of:
                continue
            value, spread, remark, source = of[quantity]
            cell = plus_minus(value / unit, spread / unit, digits)
            if quantity == "cost.parameters":
                heading, cell = "parameters", f"{value / 1e6:g}M"  # papers print few digits
            if quantity == "cost.seconds_per_epoch":
                heading += " (V100)"
            sources.setdefault(source, {})[heading] = None
            columns.setdefault(f"published {heading}", {})[group] = cell
            if quantity.startswith("evaluate_"):
                if quantity in runs[group]:
                    of_method = method_differences(runs[group], quantity, str(remark))
                    differs[group] = differs[group] + [f"{heading}: {o}" for o in of_method]
            elif isinstance(remark, str):
                remarks.setdefault(remark, {})[str(labels[group])] = None
    named = {g: counted(len(lines), "option") if lines else "the same"
             for g, lines in differs.items()}  # fmt: skip
    columns["differs in"] = named
    shown = pd.DataFrame(columns).reindex(groups.index).fillna(DASH)
    notes = _notes(list(labels.values()), near["experiment"].to_list(), list(differs.values()))
    notes += [f"{joined(of)}, as published: {remark}." for remark, of in remarks.items()]
    said = [f"{source} ({', '.join(headings)})" for source, headings in sources.items()]
    return shown, [*notes, *([f"Published: {'; '.join(said)}."] if said else [])]


def beside_published(
    kind: type[Analysis],
    found: Sequence[StoredRecord],
    names: Mapping[str, Iterable[str]],
    paper: str,
) -> list[PageTable]:
    """What papers print of what an analysis measured: a row a head, our value and theirs.

    Args:
        names: of each label's experiment, as `nearest` finds them.
        paper: whose values come first.
    """
    values: dict[str, dict[str, float]] = {}
    text: dict[str, dict[str, str]] = {}
    sources: dict[str, None] = {}
    remarks: dict[str, None] = {}
    for label, record, _ in found:
        theirs = printed(paper, names.get(label, ()))
        for quantity, ours in kind.in_print(record).items():
            if quantity in theirs and ours is not None:
                name, each = quantity.removeprefix(f"{kind.name}."), theirs[quantity]
                values.setdefault(label, {}).update({name: ours, f"{name}, published": each.value})
                cell = f"{cell_text(ours)} ({cell_text(each.value)})"
                text.setdefault(label, {})[name] = cell
                sources[each.source] = None
                if isinstance(each.remark, str):
                    remarks[each.remark] = None
    if not values:
        return []
    notes = [
        f"In brackets what was published: {'; '.join(sources)}. In what runs differ from theirs, "
        f"the table of groups says.",
        *(f"As published: {remark}." for remark in remarks),
    ]
    title = f"{kind.title}, and what was published"
    shown, numbers = (pd.DataFrame.from_dict(of, orient="index") for of in (text, values))
    return [PageTable(f"{kind.name}_published", title, shown.fillna(DASH), numbers, notes)]


def _methods(runs: pd.DataFrame) -> dict[str, str]:
    """The columns of perplexities by a method, `evaluate_cache_test.ppl`, and their headings."""
    found = {
        c: f"{of['split']}, {of['method']}"
        for c in runs.columns
        if (of := _METHOD.fullmatch(c)) is not None and runs[c].notna().any()
    }
    return dict(sorted(found.items(), key=lambda each: each[1], reverse=True))


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


def cell_text(value: object) -> str:
    """A value of a record."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(cell_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell_text(each)}" for name, each in value.items())
    if not isinstance(value, int | float) or pd.isna(value):
        return DASH
    is_whole = float(value).is_integer() or abs(value) >= 9999.5
    text = f"{value:,.0f}" if is_whole and abs(value) < 1e12 else f"{value:,.4g}"
    return text.replace("-", "−")
