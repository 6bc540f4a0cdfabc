"""The answer: a sentence a setting, heads by settings, and perplexity against rank beside them."""

from textwrap import fill

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from lmkit.presentation.figures import legend_below, marks
from lmkit.presentation.styled import plus_minus, signed
from lmkit.presentation.tables import DASH, decimal, joined
from lmkit.report.curves import MOST_LINES
from lmkit.report.page import PageFigure, PageTable
from lmkit.report.tables import APART, baselines_apart
from lmkit.results.against import LEVEL
from lmkit.results.stats import correlation

RULE = (
    "Each head, trained as most heads of its setting, stands at its own best learning rate on "
    "valid, the baseline too; those trained otherwise are folded away below. Of a grid of one head "
    "the best on valid stands here; what has several seeds comes before what has one."
)
_CELLS = (
    "A cell has the difference of the means over seeds from the baseline's test perplexity, "
    "Welch's 95 % interval and the same difference on valid; ± is the standard deviation over "
    f"seeds. *: Holm's p (of Welch's, over this table) is below {LEVEL:g}. It does not know that "
    "the same seeds chose a rate, or the best of a grid: a test needs fresh seeds."
)
RULE_OF_R = (
    "r is Pearson's of log Press rank and test perplexity: a point is a head of that setting, as "
    "in the table but for those with ‡ or of other training, and seeds are no points."
)
_COLUMNS = 2  # of the small panels
_FEWEST = 3  # heads of a panel


def sentences(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """The title of each setting, and what its runs say."""
    return [(of["setting_title"].iloc[0], _said(of)) for of in _settings(rows)]


def heads_by_settings(rows: pd.DataFrame) -> PageTable:
    """The table of the first screen; its CSV has a row a head of a setting, with all digits."""
    has_baseline = set(rows.loc[rows["is_baseline"], "setting"])
    otherwise = _trained_otherwise(rows)
    cells = [
        _cell(row, row["setting"] in has_baseline, is_otherwise)
        for (_, row), is_otherwise in zip(rows.iterrows(), otherwise, strict=True)
    ]
    shown = rows.assign(cell=cells)
    titles = list(dict.fromkeys(of["setting_title"].iloc[0] for of in _settings(rows)))
    text = shown.pivot(index="head_label", columns="setting_title", values="cell")
    classes = rows.pivot(index="head_label", columns="setting_title", values="verdict")
    rows = rows.sort_values(["is_baseline", "place", "head_label"], ascending=[False, True, True])
    order = list(dict.fromkeys(rows["head_label"]))
    text = text.reindex(index=order, columns=titles).fillna(DASH)
    notes = [_CELLS] if rows["difference"].notna().any() else []
    if differs := _differing(rows):
        notes.append(f"† The baseline differs in more than head and rate: {differs}.")
    notes += baselines_apart(rows)
    return PageTable("heads", "Heads against the baseline", text, rows, notes, classes)


def rank_and_perplexity(rows: pd.DataFrame) -> PageFigure | None:
    """Test perplexity over Press rank, a panel a setting; None where no head has a rank."""
    if "rank" not in rows:
        return None
    known = rows[rows["rank"].notna() & ~_trained_otherwise(rows)]
    known = known.sort_values(["place", "head_label"])
    settings = [of for of in _settings(known) if len(of) >= _FEWEST]
    if not settings:
        return None
    titles = [str(of["setting_title"].iloc[0]).split(", ") for of in settings]
    parts = enumerate(zip(*titles, strict=False))
    shared = next((i for i, each in parts if len(set(each)) > 1), 0)  # which no panel repeats
    columns = min(_COLUMNS, len(settings))
    lines = -(-len(settings) // columns)
    drawn = Figure(figsize=(4.6, 1.6 * lines + 0.9), layout="constrained")
    panels = list(drawn.subplots(lines, columns, squeeze=False).flat)
    name = "head_label" if rows["head_label"].nunique() <= MOST_LINES else "head"
    labels = list(dict.fromkeys(rows.sort_values(["place", "head_label"])[name]))
    looks = dict(zip(labels, marks(), strict=False))
    for axes, of, parts_of in zip(panels, settings, titles, strict=False):
        for _, row in of.iterrows():
            axes.errorbar(
                row["rank"], row["test_ppl"], row["test_ppl_sd"], row["rank_sd"],
                linestyle="none", markersize=4.5, elinewidth=0.8, label=row[name],
                **looks[row[name]],
            )  # fmt: skip
        found = correlation(of["rank"].to_list(), of["test_ppl"].to_list())
        r = "" if found is None else f"\nr = {found.r:.2f} ({found.low:.2f} … {found.high:.2f})"
        title = fill(", ".join(parts_of[shared:]), 30)
        axes.set_title(title + r.replace("-", "−"), fontsize=7)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(labelsize=7)
    for axes in panels[len(settings) :]:
        axes.remove()
    for axes in panels[max(0, len(settings) - columns) : len(settings)]:
        axes.set_xlabel("Press rank of log P", fontsize=8)
    drawn.supylabel("test perplexity", fontsize=8)
    legend_below(drawn, fontsize=7)
    contexts = sorted({int(n) for n in known["contexts"].dropna()})
    over = " or ".join(f"{n:,}" for n in contexts)
    caption = f"Ranks are over {over} contexts of the test split; bars are standard deviations."
    return PageFigure("rank", "Perplexity against rank", caption, drawn)


def _trained_otherwise(rows: pd.DataFrame) -> pd.Series:
    """Whether a head is not compared with the baseline that stands in its setting; without one, or
    of variants of one head, whether it was not trained as most are.
    """
    of_setting = rows.groupby("setting")
    alike = rows.groupby(["setting", "training"])["training"].transform("size")
    share = alike / of_setting["training"].transform("size")
    most = share.groupby(rows["setting"]).transform("max")
    is_rare = (most > 0.5) & (share < most)
    if "difference" not in rows:  # variants of one head
        return is_rare
    has_baseline = of_setting["is_baseline"].transform("any")
    apart = ~rows["is_baseline"] & (rows["difference"].isna() | rows["apart"])
    return apart.where(has_baseline, is_rare)


def _settings(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Those with the most heads of several seeds first."""
    found = [of for _, of in rows.groupby("setting", sort=False)]
    return sorted(found, key=lambda of: -int((of["seeds"] > 1).sum()))


def _mark(row: pd.Series) -> str:
    return "†" * bool(row["differs"]) + APART * bool(row["apart"])


def _cell(row: pd.Series, has_baseline: bool, is_trained_otherwise: bool) -> str:
    seeds = f"{row['seeds']} seeds" if row["seeds"] > 1 else "one seed"
    if row["is_baseline"] or not (has_baseline or is_trained_otherwise):
        own = plus_minus(row["test_ppl"], row["test_ppl_sd"])
        return f"{own}\n{seeds}\nvalid {decimal(row['valid_ppl'], 2)}"
    if pd.isna(row["difference"]):
        mark = "†" * bool(row["differs"])
        return f"({decimal(row['test_ppl'], 2)}){mark}\nother training, {seeds}"
    interval = _untested(row)
    if not pd.isna(row["low"]):
        interval = f"({signed(row['low'])} … {signed(row['high'])})"
    valid = f"valid {signed(row['valid_difference'])}"
    sure = "*" * (row["verdict"] in ("better", "worse"))
    return f"{signed(row['difference'])}{sure}{_mark(row)}\n{interval}\n{valid}"


def _said(of: pd.DataFrame) -> str:
    """`MoS (−0.81) does better than Softmax (21.33), and SS cannot be told from it.`"""
    base = of[of["is_baseline"]]
    if base.empty:
        best = of[~_trained_otherwise(of)].sort_values("test_ppl").iloc[0]
        at = decimal(best["test_ppl"], 2)
        return f"No run of the baseline's head counts; {best['head_label']} is lowest, at {at}."
    lowest = base.sort_values("valid_ppl").iloc[0]  # with which the others are compared
    name = f"{lowest['head_label']} ({decimal(lowest['test_ppl'], 2)})"
    clauses = []
    for verdict in ("better", "worse"):
        found = of[of["verdict"] == verdict].sort_values(
            "difference", ascending=verdict == "better"
        )
        if len(found):
            heads = [f"{r['head_label']} ({signed(r['difference'])}{_mark(r)})"
                     for _, r in found.iterrows()]  # fmt: skip
            clauses.append(f"{joined(heads)} {'does' if len(heads) == 1 else 'do'} {verdict}")
    if clauses:
        clauses[0] += f" than {name}"
    undecided = [
        row["head_label"] + _mark(row) for _, row in of[of["verdict"] == "open"].iterrows()
    ]
    if undecided:
        than = "it" if clauses else name
        clauses.append(f"{joined(undecided)} cannot be told from {than}")
    reasons: dict[str, list[str]] = {}
    for _, row in of[(of["verdict"] == "") & ~of["is_baseline"]].iterrows():
        reasons.setdefault(_untested(row), []).append(row["head_label"])
    for why, heads in reasons.items():
        clauses.append(f"{joined(heads)} {'has' if len(heads) == 1 else 'have'} no test ({why})")
    if not clauses:
        return f"All heads are the baseline's; {name} is lowest on valid."
    return f"{'; '.join(clauses)}."


def _untested(row: pd.Series) -> str:
    """Why a head has no test."""
    if pd.isna(row["difference"]):
        return "another training"
    if row["seeds"] == 1:
        return "one seed"
    return "the baseline has one seed" if row["baseline_seeds"] == 1 else "no seed differs"


def _differing(rows: pd.DataFrame) -> str:
    marked: dict[tuple[str, ...], list[str]] = {}
    for _, row in rows[rows["differs"].map(len) > 0].iterrows():
        marked.setdefault(tuple(row["differs"]), []).append(row["head_label"])
    return "; ".join(
        f"{joined(dict.fromkeys(heads))} in {', '.join(options)}"
        for options, heads in marked.items()
    )
