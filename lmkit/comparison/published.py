"""What the papers found, from published.yaml beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FILE = Path(__file__).with_name("published.yaml")


class PublishedNumber(NamedTuple):
    """A number from a paper."""

    value: float
    std: float | None  # over runs, None of a single one
    source: str

    def __str__(self) -> str:
        return f"{self.value:g}" if self.std is None else f"{self.value:g} ± {self.std:g}"


class PublishedRun(NamedTuple):
    """What was published of an experiment, on the test split where nothing else is said."""

    rank_contexts: int  # the first ones, over which ranks were taken
    params_m: PublishedNumber | None  # millions, cut off after two decimals
    seconds_per_epoch: PublishedNumber | None  # on a V100
    train_ppl: PublishedNumber | None
    valid_ppl: PublishedNumber | None
    test_ppl: PublishedNumber | None
    p_value: PublishedNumber | None  # unpaired t-test of test perplexities with softmax, n = 10
    ten_seeds_test_ppl: PublishedNumber | None  # over the seeds of that test
    press_rank: PublishedNumber | None
    effective_rank: dict[str, PublishedNumber]  # by epsilon: "0.001", "0.0001", "1e-05"
    divergence: dict[str, PublishedNumber]  # pairwise, by split: "valid", "test"
    remark: str | None  # what of the experiment's configuration is ours by guess


class PublishedRow(NamedTuple):
    """A row of a published table of perplexities, and the experiment that stands beside it."""

    name: str  # of the model, as the table has it
    experiment: str
    is_finetuned: bool
    method: str  # of `lmkit evaluate`: "static", "cache", "dynamic"
    options: dict[str, object]  # the method's published values
    params_m: float | None
    seconds_per_epoch: float | None
    valid_ppl: float
    test_ppl: float
    source: str
    remark: str | None  # what of the experiment's configuration is ours by guess


class PublishedTable(NamedTuple):
    """A published table of perplexities, its rows about one corpus."""

    key: str
    title: str
    rows: list[PublishedRow]


class PublishedRobustness(NamedTuple):
    """Ranks of a matrix of rank 10 after rounding and with noise."""

    source: str
    num_contexts: int
    num_words: int
    round_trips_rank: int
    press_rank: dict[float, int]  # by the noise's c
    effective_rank: dict[str, int]  # by epsilon
    widest_noise: tuple[float, float]  # first and last c of a table whose ranks are not known here


class PublishedDialogue(NamedTuple):
    """What was published of dialogue models on Switchboard."""

    heads: dict[str, dict[str, float]]  # by head: measures, named as in analysis/dialogue.json
    note: str


def published_run(experiment: str, num_words: int) -> PublishedRun | None:
    """What was published of an experiment of that name on a corpus of as many words, if any was."""
    content = _content()
    entry = content["runs"].get(experiment)
    corpus = content["corpora"].get(experiment.partition("_")[0])
    if entry is None or corpus["num_words"] != num_words:
        return None
    return PublishedRun(
        rank_contexts=corpus["rank_contexts"],
        params_m=_number(entry.get("params_m")),
        seconds_per_epoch=_number(entry.get("seconds_per_epoch")),
        train_ppl=_number(entry.get("train_ppl")),
        valid_ppl=_number(entry.get("valid_ppl")),
        test_ppl=_number(entry.get("test_ppl")),
        p_value=_number(entry.get("p_value")),
        ten_seeds_test_ppl=_ten_seeds(experiment),
        press_rank=_number(entry.get("press_rank")),
        effective_rank=_numbers(entry.get("effective_rank")),
        divergence=_numbers(entry.get("divergence")),
        remark=entry.get("remark"),
    )


def published_families() -> set[str]:
    """The heads of published runs, as options name them: "softmax", "gss", "mos", ..."""
    return {name.partition("_")[2] for name in _content()["runs"]}


def published_tables(corpus: str) -> list[PublishedTable]:
    """The published tables of perplexities about a corpus: "penn" or "wt2"."""
    content = _content()
    values = content["methods"]
    tables = []
    for table in content["perplexities"]:
        rows = []
        for row in table.get(corpus, []):
            method = row.get("method", "static")
            options = row.get("options", values[method][corpus] if method in values else {})
            rows.append(
                PublishedRow(
                    name=row["name"],
                    experiment=row["experiment"],
                    is_finetuned=row.get("stage") == "finetuned",
                    method=method,
                    options=options,
                    params_m=row.get("params_m"),
                    seconds_per_epoch=row.get("seconds_per_epoch"),
                    valid_ppl=row["valid_ppl"],
                    test_ppl=row["test_ppl"],
                    source=source(row["source"]),
                    remark=row.get("remark"),
                )
            )
        tables.append(PublishedTable(table["key"], table["title"], rows))
    return tables


def published_section(name: str) -> dict[str, Any]:
    """A section of published.yaml other than `runs`; its source, if it has one, written out."""
    section = dict(_content()[name])
    if "source" in section:
        section["source"] = source(section["source"])
    return section


def source(short: str) -> str:
    """A source in words."""
    return str(_content()["sources"][short])


def published_robustness() -> PublishedRobustness:
    """The study of Press's rank."""
    section = published_section("press_robustness")
    ranks = {float(c): rank for c, rank in section.pop("press_rank").items()}
    widest = tuple(section.pop("widest_noise"))
    return PublishedRobustness(press_rank=ranks, widest_noise=widest, **section)


def published_dialogue() -> PublishedDialogue:
    """The scores of the three heads."""
    section = published_section("dialogue")
    source = section.pop("source")
    heads = {}
    for head, scores in section.items():
        heads[head] = {"perplexity": scores["perplexity"]}
        for n, (precision, recall) in enumerate(scores["bleu"], 1):
            heads[head] |= {f"bleu{n}_precision": precision, f"bleu{n}_recall": recall}
    note = (
        f"Published: {source}, on the split, words and references of Zhao et al. 2017. This split "
        "of Switchboard is another one, so that the figures do not compare."
    )
    return PublishedDialogue(heads, note)


def published_contexts(num_words: int, split: str) -> dict[str, dict[int, str]]:
    """Contexts of a corpus of as many words at which papers show predictions; {} of others.

    By paper: from the index in the split of the word to be predicted to that word.
    """
    groups = dict(_content()["contexts"])
    if (groups.pop("num_words"), groups.pop("split")) != (num_words, split):
        return {}
    return groups


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
    return content


def _ten_seeds(experiment: str) -> PublishedNumber | None:
    corpus, _, head = experiment.partition("_")
    section = published_section("ten_seeds")
    mean_and_std = section.get(corpus, {}).get(head)
    if mean_and_std is None:
        return None
    mean, std = mean_and_std
    return PublishedNumber(mean, std, section["source"])


def _number(entry: Mapping[str, Any] | None) -> PublishedNumber | None:
    if entry is None:
        return None
    value, *std = entry["value"]
    return PublishedNumber(value, std[0] if std else None, source(entry["source"]))


def _numbers(entry: Mapping[str, Any] | None) -> dict[str, PublishedNumber]:
    if entry is None:
        return {}
    named = source(entry["source"])
    return {key: PublishedNumber(value, None, named) for key, value in entry["value"].items()}
