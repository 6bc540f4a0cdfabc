"""The corpora of runs, and what distinguishes them, by the runs' configurations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.presentation.quantities import option_text
from lmkit.runs.finished import FinishedRun

Data = Mapping[str, object]  # the options of a configuration's section `data`, without `data.`

# A corpus's name and location: neither changes a number.
_IGNORED = ("_target_", "name", "title", "short_title", "root", "folder", "field")
_COUNTS = {
    "train_tokens": "training tokens",
    "valid_tokens": "valid tokens",
    "test_tokens": "test tokens",
    "num_words": "words",
    "vocab_size": "subwords",
}


class CorpusFacts(NamedTuple):
    """The data of some runs."""

    sha256: str
    name: str  # in the configuration: "penn", "wikitext-2", ...
    title: str  # "Penn Treebank (first 200,000 training tokens)"
    short: str  # "PTB"
    train_tokens: int | None  # used, from the start of a longer text; None: all of it
    subwords: str  # the tokenizer, in file names: "bpe_4000", "hf_gpt2"; "" for words
    num_words: int | None  # of the vocabulary, as the spectra of most runs tell
    test_contexts: int | None  # of most runs: windows.test_batch_size changes it


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
    """The titles; equal ones with what their data differ in, otherwise with their key.

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


def counted_words(run: FinishedRun) -> int | None:
    """Words of the vocabulary, as the run's spectrum tells; None where it has none."""
    return _count(run.test_spectrum.get("num_columns"))


def counted_contexts(run: FinishedRun) -> int | None:
    """Contexts of the test split over which the run's perplexity was taken."""
    return _count(run.result.metrics.get("test_tokens"))


def corpora(runs_of_each: Iterable[Sequence[FinishedRun]]) -> list[CorpusFacts]:
    """The corpus of the runs that have the same data; no two have the same title."""
    every, data = [], []
    for runs in runs_of_each:
        of_runs = data_of(runs)
        corpus = _corpus(runs, of_runs)
        every.append(corpus)
        data.append({"num_words": corpus.num_words} | of_runs)
    keys = [corpus.sha256[:8] for corpus in every]
    titles = told_apart([corpus.title for corpus in every], data, keys)
    return [corpus._replace(title=title) for corpus, title in zip(every, titles, strict=True)]


def _corpus(runs: Sequence[FinishedRun], data: Data) -> CorpusFacts:
    """The data of runs that have the same."""
    first = runs[0]
    # A generated language is as long as its options say: nothing is cut.
    train_tokens = _count(data.get("train_tokens")) if "root" in data else None
    cut = f" (first {train_tokens:,} training tokens)" if train_tokens else ""
    return CorpusFacts(
        first.data_sha256,
        str(data.get("name", first.data_sha256[:8])),
        first.names.corpus + cut,
        first.names.corpus_short,
        train_tokens,
        _subwords(data),
        most_frequent(map(counted_words, runs)),
        most_frequent(map(counted_contexts, runs)),
    )


def _subwords(data: Data) -> str:
    tokenizer = data.get("tokenizer")
    if tokenizer == "bpe":
        return f"bpe_{data.get('vocab_size')}"
    return f"hf_{Path(str(data.get('tokenizer_of'))).name}" if tokenizer == "hf" else ""


def most_frequent(counts: Iterable[int | None]) -> int | None:
    """The most frequent count; of equals the larger; None if there is none."""
    times = Counter(count for count in counts if count is not None)
    return max(times, key=lambda count: (times[count], count), default=None)


def disagreements(corpus: CorpusFacts, runs: Sequence[FinishedRun]) -> Iterator[str]:
    """A sentence for each count in which some runs differ from most."""
    for what, usual, count in (
        ("words", corpus.num_words, counted_words),
        ("test contexts", corpus.test_contexts, counted_contexts),
    ):
        others: dict[int, list[str]] = {}
        for run in runs:
            counted = count(run)
            if counted is not None and counted != usual:
                others.setdefault(counted, []).append(run.name)
        for counted, names in sorted(others.items()):
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield (
                f"Warning: {names[0]}{more} counted {counted:,} {what}, most runs on the same data "
                f"{usual:,}: their figures are not of the same {what}."
            )


def larger_first(corpus: CorpusFacts) -> tuple[str, int, str, float, str]:
    """Within a name words before subwords, and the corpus with the larger training text."""
    size = -(corpus.train_tokens or math.inf)
    return corpus.name, len(corpus.subwords), corpus.subwords, size, corpus.sha256


def file_key(corpus: CorpusFacts, taken: set[str]) -> str:
    full = f"{corpus.name}_{corpus.subwords}" if corpus.subwords else corpus.name
    name = "".join(c if c.isalnum() else "_" for c in full)
    candidates = (name, f"{name}_{corpus.train_tokens or 'all'}", f"{name}_{corpus.sha256[:8]}")
    return next(key for key in candidates if key not in taken)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None
