"""Groups of runs that differ only in their seed, and each head at its best learning rate.

setting     a corpus and a trunk: within one, perplexities compare
variant     a head with its own options
training    all other options but the learning rates; how long a run could train
group       all of these and the learning rates: its runs are seeds
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from lmkit.results.frame import PERPLEXITIES, head_options, is_option, options_in, ranks_in
from lmkit.results.labels import labels, titles

RATES = ("optimizer.lr", "module.transform_lr")
DECODER_RANK = "head.decoder_rank"
MOST_VARIANTS = 4  # of a head that stand beside each other
_START = "finetuned_from.identity"
# what an analysis was told
_HOW = re.compile(
    r"(?P<analysis>[^.]+\.)(split|num_contexts|options\..+"
    r"|answered_pairs|smoothing|beam|n_best|max_words)"
)
BUDGET = ("max_epochs", "patience", "min_delta", "finetuned", "by_callback")


def grouped(table: pd.DataFrame, baseline: str = "softmax") -> tuple[pd.DataFrame, dict[str, str]]:
    """The runs that compare, in the order of tables, and why others do not.

    Failed runs stay, in groups of their own. A seed counts once in a group.

    Returns: the frame with `setting`, `variant`, `training` and `group` as numbers, and their words
        in `setting_title`, `variant_label` and `label`.
    """
    ended, left_out, diverged = _ended(table)
    if diverged.all():
        return ended[~diverged].copy(), left_out
    runs = ended.assign(
        by_callback=ended["stopped"] == "callback",
        is_baseline=ended["family"] == baseline,
        is_failed=(ended["state"] == "failed") | diverged,
    )
    options, of_head = options_in(runs), head_options(runs)
    rest = [o for o in options if o not in (*of_head, *RATES)] + list(BUDGET)
    rates = [option for option in RATES if option in runs]
    runs["setting"] = _number(runs, ["data_sha256", "trunk"])
    runs["variant"] = _number(runs, ["setting", "head", *of_head])
    runs["training"] = _number(runs, ["setting", *rest])
    at_rate = runs.groupby(["variant", "training", *rates], dropna=False)
    runs["is_unsure"] = at_rate["is_failed"].transform("any")
    runs = runs[~diverged].copy()
    runs["group"] = _with_starts(runs, ["variant", "training", "is_failed", *rates])
    runs, repeated = _one_per_seed(runs)
    runs["setting_title"] = titles(runs)
    runs["variant_label"] = labels(runs, of_head)
    runs["label"] = labels(runs, dict.fromkeys(["finetuned", *options, *BUDGET]))
    runs.loc[runs["is_failed"], "label"] += ", failed"
    order = ["setting", "is_failed", "is_baseline", "place", "head", *of_head, *options, "seed"]
    order = list(dict.fromkeys(order))
    ascending = [name != "is_baseline" for name in order]
    return runs.sort_values(order, ascending=ascending, key=_natural), left_out | repeated


def left_out_in_part(runs: pd.DataFrame) -> dict[str, str]:
    """Why some of the files of runs that count could not be read, by `name, in part`."""
    if "unread" not in runs:
        return {}
    return {f"{name}, in part": why for name, why in runs["unread"].dropna().items()}


def measured_alike(runs: pd.DataFrame) -> pd.DataFrame:
    """Without what an analysis measured with other options, or on another split, of one run than of
    others in its group. Options that each run's own search found are alike.
    """
    found, columns = runs.copy(), [str(column) for column in runs]
    for column in columns:
        how = _HOW.fullmatch(column)
        if how is None or is_option(column):
            continue
        values = runs[column].astype(object)
        if (searched := f"{how['analysis']}search_tokens") in runs and "options" in column:
            values = values.mask(runs[searched].notna(), "as the search on valid found")
        unlike = values.groupby(runs["group"]).transform("nunique") > 1
        if unlike.any():
            fields = [field for field in columns if field.startswith(how["analysis"])]
            found[fields] = found[fields].mask(unlike)
    return found


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """A row a group: `seeds`, its options, and mean and deviation of every other number; also the
    `count` of its runs that have it, where some groups have runs with and without.
    """
    options = options_in(runs)
    numbers = runs.select_dtypes("number").columns.difference(
        ["seed", "setting", "variant", "training", "group", *options]
    )
    by = runs.groupby("group", sort=False)
    values = runs[numbers].astype("float64").groupby(runs["group"], sort=False)
    table = values.agg(["mean", "std"])
    table.columns = table.columns.map(" ".join)
    counts = values.count()
    in_part = counts.gt(0) & counts.lt(by.size(), axis=0)
    table = table.join(counts.loc[:, in_part.any()].add_suffix(" count"))
    return table.assign(seeds=by.size()).join(by[options].first())


def best_rate(runs: pd.DataFrame) -> pd.DataFrame:
    """Of each variant and training, the runs at the learning rate of lowest valid perplexity.

    Means over seeds are compared. A rate of one seed counts only where no rate has several: such
    runs searched for the rate. Of several, one at which a seed failed comes last: its means would
    be of the lucky ones.
    """
    good = runs[~runs["is_failed"]]
    means = good.groupby(["variant", "training", "group", "is_unsure"], as_index=False).agg(
        seeds=("seed", "size"), valid_ppl=("valid_ppl", "mean")
    )
    means = means.assign(is_one=means["seeds"] == 1)
    ranked = means.sort_values(["is_one", "is_unsure", "valid_ppl"])
    best = ranked.drop_duplicates(["variant", "training"])
    return good[good["group"].isin(best["group"])]


def variants(runs: pd.DataFrame) -> pd.DataFrame:
    """Each variant of each setting: a whole decoder, trained as most there, at its best rate.

    A decoder of limited rank counts only where no head of the setting has a whole one.
    """
    best = best_rate(runs)
    if DECODER_RANK in best:
        is_whole = best[DECODER_RANK].isna()
        best = best[is_whole | ~is_whole.groupby(best["setting"]).transform("any")]
    return best[_usual(best)]


def heads(runs: pd.DataFrame) -> pd.DataFrame:
    """Each head of each setting: of its `variants` those of several seeds, if there are any. Where
    all are of a single seed, or variants are many, such as those of a grid, the one of lowest valid
    perplexity stands for the head.
    """
    best = variants(runs)
    of_head = [best["setting"], best["head"]]
    several = best.groupby("group")["seed"].transform("size") > 1
    counts = several | ~several.groupby(of_head).transform("any")
    valid = best.groupby("group")["valid_ppl"].transform("mean").where(counts)
    is_lowest = valid == valid.groupby(of_head).transform("min")
    counted = best["variant"].where(counts).groupby(of_head).transform("nunique")
    return best[is_lowest | (several & (counted <= MOST_VARIANTS))]


def most_contexts(runs: pd.DataFrame) -> int | None:
    """The number of contexts at which most runs have Press's rank; of equals the larger."""
    counts = {n: int(runs[name].notna().sum()) for n, name in ranks_in(runs).items()}
    return max((n for n in counts if counts[n]), key=lambda n: (counts[n], n), default=None)


def _usual(best: pd.DataFrame) -> pd.Series[bool]:
    """Which runs were trained as most heads of their setting: of each variant one training."""
    ranked = best.assign(
        shared=best.groupby("training")["variant"].transform("nunique"),
        seeds=best.groupby("group")["seed"].transform("size"),
    )
    order = ["shared", "seeds", "valid_ppl"]
    first = ranked.sort_values(order, ascending=[False, False, True]).drop_duplicates("variant")
    return best["training"] == best["variant"].map(first.set_index("variant")["training"])


def _ended(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str], pd.Series[bool]]:
    """The runs that have ended, why others are left out, and which of the former have no finite
    perplexity.
    """
    has_ended = table["state"].isin(["finished", "failed"])
    reasons = table.loc[~has_ended, "reason"].fillna("it has not finished")
    left_out = {str(name): str(reason) for name, reason in reasons.items()}
    ended = table[has_ended]
    values = ended[list(PERPLEXITIES)].astype("float64")
    diverged = values.replace(np.inf, np.nan).isna().any(axis=1)
    left_out |= {
        str(name): f"{run['head']}, seed {run['seed']}: {run['reason']}"
        for name, run in ended[diverged].iterrows()
    }
    return ended, left_out, diverged


def _one_per_seed(runs: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """The first by name counts, of which all files can be read if there is one; copies of a run
    have its name.
    """
    by_name = runs.sort_index(kind="stable").reset_index()
    if "unread" in by_name:
        by_name = by_name.sort_values("unread", key=pd.notna, kind="stable", ignore_index=True)
    first = by_name.groupby(["group", "seed"])["name"].transform("first")
    again = by_name.duplicated(["group", "seed"])
    is_copy = first == by_name["name"]
    named = by_name["name"].where(~is_copy, by_name["folder"])
    reasons = "the head and seed of " + first
    left_out = dict(zip(named[again], reasons[again], strict=True))
    return by_name[~again].set_index("name"), left_out


def _number(runs: pd.DataFrame, columns: list[str]) -> pd.Series[int]:
    return runs.groupby(columns, sort=False, dropna=False).ngroup()


def _with_starts(runs: pd.DataFrame, columns: list[str]) -> pd.Series[int]:
    """The groups by these columns, and by the group of the run that a finetuned one goes on from. A
    start that is not among the runs is of the one group of starts that is known; where several
    are, it is its own.
    """
    group = _number(runs, columns)
    if _START not in runs:
        return group
    digests = runs.index.str.rpartition("-").get_level_values(2)
    while True:  # a start may be finetuned too
        start = runs[_START].map(dict(zip(digests, group, strict=True)))
        known = start.groupby(group)
        of_one, is_unknown = known.transform("nunique") <= 1, start.isna()
        start = start.astype(object).mask(is_unknown & of_one, known.transform("min"))
        start = start.mask(is_unknown & ~of_one, runs[_START])
        found = _number(runs.assign(group=group, start=start), ["group", "start"])
        if found.nunique() == group.nunique():
            return group
        group = found


def _natural(column: pd.Series[Any]) -> pd.Series[Any]:
    """Texts beside numbers, and lists, have an order too."""
    if column.dtype != object:
        return column
    texts = column.map(lambda v: v if isinstance(v, int | float | tuple) else str(v))
    kinds = {type(value) for value in texts}
    return texts if len(kinds) < 2 else texts.map(str)
