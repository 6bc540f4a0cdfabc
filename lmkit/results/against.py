"""Each head against its setting's baseline, both at their best learning rate on valid."""

from typing import Any

import numpy as np
import pandas as pd

from lmkit.results.frame import head_options, options_in, ranks_in
from lmkit.results.groups import BUDGET, RATES, best_rate, heads, most_contexts, variants
from lmkit.results.labels import differing, labels
from lmkit.results.stats import MeanDifference, difference, holm

LEVEL = 0.05  # of Holm's p, from which on nothing is said of a difference's sign


def against_baseline(runs: pd.DataFrame) -> pd.DataFrame:
    """A row a head of a setting, as `heads` chooses them, the baseline's first.

    Args:
        runs: as `grouped` returns them.

    Returns: by group `setting, setting_title, head, head_label, is_baseline, seeds`; the means
        `train_ppl, valid_ppl, test_ppl` (with `_sd`); `rank` and its `contexts`; `difference` of
        the test perplexities with `low, high, p_welch, p_student`, `p_holm` over all rows, and
        `verdict` ("better", "worse", "open"; "" without a test); `valid_difference`;
        `baseline`, the group that a head is compared with, its `baseline_ppl` on test, its
        `baseline_seeds`, and whether it stands `apart`, in none of the rows; `differs`: the options
        beside head and rate in which the two differ; and `training`, a number for all options
        beside head and rate. Heads of another budget, or finetuned, have no difference.
    """
    chosen, best = heads(runs), best_rate(runs)
    varied = _varied(chosen, head_options(runs))
    chosen = chosen.assign(head_label=labels(chosen.assign(setting=0), varied))
    contexts = {number: most_contexts(of) for number, of in chosen.groupby("setting")}
    rows = []
    for group, members in chosen.groupby("group", sort=False):
        base = _baseline(members, best, chosen)
        n = contexts[members["setting"].iloc[0]]
        rows.append({"group": group, **_means(members, n), **_difference(members, base)})
    table = pd.DataFrame(rows).set_index("group")
    table["apart"] = table["baseline"].notna() & ~table["baseline"].isin(table.index)
    table["p_holm"] = holm(table["p_welch"])
    sure = table["p_holm"] < LEVEL
    table["verdict"] = np.select(
        [table["p_holm"].isna(), ~sure, table["difference"] < 0], ["", "open", "better"], "worse"
    )
    return table


def points(runs: pd.DataFrame) -> pd.DataFrame:
    """A row a variant of a setting's one head: the means that `against_baseline` has of heads."""
    of_head, contexts = variants(runs), most_contexts(runs)
    of_head = of_head.assign(head_label=of_head["head"])
    rows = [_means(members, contexts) for _, members in of_head.groupby("group", sort=False)]
    return pd.DataFrame(rows)


def _varied(chosen: pd.DataFrame, of_head: list[str]) -> list[str]:
    """The options that tell apart heads of one name in some setting."""
    peers = [of for _, of in chosen.groupby(["setting", "head"])]
    return list(dict.fromkeys(option for of in peers for option in differing(of, of_head)))


def _means(members: pd.DataFrame, contexts: int | None) -> dict[str, object]:
    names = ["setting", "setting_title", "head", "head_label", "label", "place", "is_baseline"]
    row: dict[str, object] = dict(members.iloc[0][[*names, "training"]])
    row |= {"seeds": len(members), "contexts": contexts}
    for column in ("train_ppl", "valid_ppl", "test_ppl"):
        values = members[column].astype(float)
        row |= {column: values.mean(), f"{column}_sd": values.std()}
    if contexts is not None:
        ranks = members[ranks_in(members)[contexts]].astype("float64")
        row |= {"rank": ranks.mean(), "rank_sd": ranks.std()}
    return row


def _baseline(
    members: pd.DataFrame, best: pd.DataFrame, chosen: pd.DataFrame
) -> pd.DataFrame | None:
    """The baseline of the same training if there is one, else that of its setting's heads."""
    first = members.iloc[0]
    if first["is_baseline"]:
        return None
    variants = chosen[chosen["is_baseline"] & (chosen["setting"] == first["setting"])]
    if variants.empty:
        return None
    plain: pd.DataFrame = variants[
        variants["group"] == variants.groupby("group")["valid_ppl"].mean().idxmin()
    ]
    alike: pd.DataFrame = best[
        (best["variant"] == plain["variant"].iloc[0]) & (best["training"] == first["training"])
    ]
    return plain if len(alike) == 0 else alike


def _difference(members: pd.DataFrame, base: pd.DataFrame | None) -> dict[str, Any]:
    empty: dict[str, Any] = MeanDifference(np.nan)._asdict() | {"valid_difference": np.nan}
    empty |= {"baseline": None, "baseline_ppl": np.nan, "baseline_seeds": 0}
    if base is None:
        return {**empty, "differs": ()}
    both = pd.concat([members.iloc[:1], base.iloc[:1]])
    of_head = head_options(both)
    rest = [o for o in options_in(both) if o not in of_head and o not in RATES]
    differs = tuple(differing(both, [*rest, *BUDGET]))
    if set(differs) & set(BUDGET):
        return {**empty, "differs": differs}
    valid, test = (
        difference(members[column].to_list(), base[column].to_list())
        for column in ("valid_ppl", "test_ppl")
    )
    return {
        **test._asdict(),
        "valid_difference": valid.difference,
        "differs": differs,
        "baseline": base["group"].iloc[0],
        "baseline_ppl": base["test_ppl"].mean(),
        "baseline_seeds": len(base),
    }
