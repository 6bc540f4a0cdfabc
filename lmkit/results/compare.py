"""Two sets of runs against each other, as in Parthiban et al. 2021, tables 4 and 5."""

import math
from typing import Any, NamedTuple

import pandas as pd

from lmkit.errors.user_error import UserError
from lmkit.results.frame import options_in, ranks_in, with_options
from lmkit.results.groups import BUDGET
from lmkit.results.labels import class_names, value_text
from lmkit.results.stats import difference, paired

_MEASURES = {"valid_ppl": "valid perplexity", "test_ppl": "test perplexity"}


class TwoSets(NamedTuple):
    """A row a measure, and what else tells the two sets apart."""

    table: pd.DataFrame
    differs: list[str]


def compare(a: pd.DataFrame, b: pd.DataFrame) -> TwoSets:
    """Compares runs, as `grouped` returns them, each set as one sample.

    Ranks compare at the largest number of test contexts at which all runs have one.

    Raises: UserError when the two share a run, or are not of one corpus.
    """
    _require_comparable(a, b)
    at_a, at_b = ranks_in(a.dropna(axis="columns")), ranks_in(b.dropna(axis="columns"))
    measures = dict(_MEASURES)
    if shared := at_a.keys() & at_b.keys():
        measures[at_a[max(shared)]] = f"Press rank, {max(shared):,} contexts"
    rows = {name: _compared(a, b, column) for column, name in measures.items()}
    return TwoSets(pd.DataFrame.from_dict(rows, orient="index"), _differs(a, b))


def _compared(a: pd.DataFrame, b: pd.DataFrame, column: str) -> dict[str, Any]:
    values = [each[column].astype("float64") for each in (a, b)]
    row: dict[str, Any] = {}
    for name, each in zip("ab", values, strict=True):
        row |= {f"runs of {name}": len(each), f"mean of {name}": each.mean()}
        row[f"sd of {name}"] = each.std()
    row |= difference(*(each.to_list() for each in values))._asdict()
    seeds = [each["seed"] for each in (a, b)]
    if all(each.is_unique for each in seeds):
        by_seed = [dict(zip(s, v, strict=True)) for s, v in zip(seeds, values, strict=True)]
        if (pairs := paired(*by_seed)) is not None:
            row |= {f"paired {name}": value for name, value in pairs._asdict().items()}
    return row


def _differs(a: pd.DataFrame, b: pd.DataFrame) -> list[str]:
    """What the two differ in beside the head; warnings where their numbers do not compare."""
    options = [o for o in options_in(pd.concat([a, b])) if not o.startswith("head.")]
    a, b = with_options(a, options), with_options(b, options)
    both = pd.concat([a, b])
    # a run whose configuration is damaged lacks values that are not known to differ
    read = [each[each["unread"].isna()] if "unread" in each else each for each in (a, b)]
    found = []
    of_machine = ("device_kind", "threads", "code.torch")
    for option in (*options, *BUDGET, "trunk", "data.train_tokens", *of_machine):
        if option not in a or option not in b:  # of another class, which is told
            continue
        of_all = class_names(both[option]) if option.endswith("_target_") else both[option]
        texts = [set(of_all.loc[each.index].map(value_text)) for each in read]
        values = [", ".join(sorted(each, key=_size)) for each in texts]
        if all(texts) and values[0] != values[1]:
            found.append(f"{option.removesuffix('._target_')}: a {values[0]}; b {values[1]}")
    for column, what in (("test_tokens", "test contexts"), ("words", "words")):
        if column in both and both[column].nunique() > 1:
            found.append(f"Warning: not all runs counted the same {what}: do not compare them")
    if both.get("code.sha256", pd.Series(dtype=str)).nunique(dropna=False) > 1:
        found.append("their code differs")
    return found


def _size(text: str) -> tuple[float, str]:
    """Sorts numbers by their size, and other texts after them."""
    try:
        return float(text.replace("−", "-")), text
    except ValueError:
        return math.inf, text


def _require_comparable(a: pd.DataFrame, b: pd.DataFrame) -> None:
    shared = sorted(set(a.index) & set(b.index))
    if shared:
        more = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
        names = ", ".join(shared[:3])
        raise UserError(f"a and b must be different runs, but both hold {names}{more}")
    corpora = pd.concat([a, b]).drop_duplicates("data_sha256")
    if len(corpora) > 1:
        names = " and ".join(map(str, corpora.index))
        sizes = corpora.get("data.train_tokens", pd.Series(dtype=float)).map(value_text)
        more = f" (train_tokens {' and '.join(sizes)})" if sizes.nunique() > 1 else ""
        raise UserError(
            f"runs compare on the same data only, but {names} have different ones{more}"
        )
