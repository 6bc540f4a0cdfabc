"""What tells corpora apart, as the runs' configurations say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmkit.errors.user_error import UserError
from lmkit.presentation.quantities import option_text
from lmkit.runs.finished import FinishedRun

Data = Mapping[str, object]  # the options of a configuration's section `data`, without `data.`

# What a corpus is called, and where it lies: neither changes a number.
_IGNORED = ("_target_", "name", "title", "short_title", "root", "folder", "field")
_COUNTS = {
    "train_tokens": "training tokens",
    "valid_tokens": "valid tokens",
    "test_tokens": "test tokens",
    "num_words": "words",
    "vocab_size": "subwords",
}


def data_of(runs: Sequence[FinishedRun]) -> dict[str, object]:
    """The data of runs that have the same, by the first configuration that can be read."""
    for run in runs:
        try:
            return dict(run.config()["data"])
        except (UserError, KeyError, TypeError, ValueError):
            continue
    return {}


def data_in_words(data: Data, among: Sequence[Data] = ()) -> str:
    """`200 words, rank 16, 20,000 training tokens`; "" where nothing is known.

    Args:
        among: where given, only the options whose values differ between these.
    """
    return ", ".join(
        _in_words(option, value)
        for option, value in data.items()
        if option not in _IGNORED
        and (value is not None or option == "train_tokens")
        and (not among or any(other.get(option) != value for other in among))
    )


def told_apart(titles: Sequence[str], data: Sequence[Data], keys: Sequence[str]) -> list[str]:
    """The titles; equal ones with what their data differ in, or else with their key.

    Args:
        data, keys: of the corpora with these titles, in the same order.
    """
    found = []
    for title, its_data in zip(titles, data, strict=True):
        same = [other for t, other in zip(titles, data, strict=True) if t == title]
        differences = data_in_words(its_data, same) if len(same) > 1 else ""
        found.append(f"{title}, {differences}" if differences else title)
    return [
        f"{title}, data {key}" if found.count(title) > 1 else title
        for title, key in zip(found, keys, strict=True)
    ]


def _in_words(option: str, value: object) -> str:
    if option in _COUNTS:
        return f"{'all' if value is None else option_text(value)} {_COUNTS[option]}"
    return f"{option.replace('_', ' ')} {option_text(value)}"
