"""What the papers found, from published.yaml beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

FILE = Path(__file__).with_name("published.yaml")


class Fact(NamedTuple):
    """A published number."""

    value: float
    std: float | None  # over runs, None of a single one
    source: str

    def __str__(self) -> str:
        return f"{self.value:g}" if self.std is None else f"{self.value:g} ± {self.std:g}"


class PublishedRun(NamedTuple):
    """What was published of an experiment; on the test split where nothing else is said."""

    rank_contexts: int  # the first ones, over which ranks were taken
    params_m: Fact | None  # millions, cut off after two decimals
    seconds_per_epoch: Fact | None  # on a V100
    train_ppl: Fact | None
    valid_ppl: Fact | None
    test_ppl: Fact | None
    p_value: Fact | None  # of its test perplexities and those of softmax, unpaired t-test, n = 10
    press_rank: Fact | None
    effective_rank: dict[str, Fact]  # by epsilon: "0.001", "0.0001", "1e-05"
    divergence: dict[str, Fact]  # pairwise, by split: "valid", "test"


class PublishedRobustness(NamedTuple):
    """Ranks of a matrix of rank 10 after rounding and with noise."""

    source: str
    num_contexts: int
    num_words: int
    round_trips_rank: int
    press_rank: dict[float, int]  # by the noise's c
    effective_rank: dict[str, int]  # by epsilon


class PublishedDialogue(NamedTuple):
    """What was published of dialogue models on Switchboard."""

    heads: dict[str, dict[str, float]]  # by head: measures, named as in analysis/dialogue.json
    note: str


def published_run(experiment: str, num_words: int) -> PublishedRun | None:
    """What was published of an experiment of that name on a corpus of as many words, if any was."""
    content = _content()
    facts = content["runs"].get(experiment)
    corpus = content["corpora"].get(experiment.partition("_")[0])
    if facts is None or corpus["num_words"] != num_words:
        return None
    return PublishedRun(
        corpus["rank_contexts"],
        *(
            _one(facts.get(name))
            for name in (
                "params_m",
                "seconds_per_epoch",
                "train_ppl",
                "valid_ppl",
                "test_ppl",
                "p_value",
                "press_rank",
            )
        ),
        _several(facts.get("effective_rank")),
        _several(facts.get("divergence")),
    )


def published_section(name: str) -> dict:
    """A section of published.yaml other than `runs`; its source, if it has one, written out."""
    section = dict(_content()[name])
    if "source" in section:
        section["source"] = source(section["source"])
    return section


def source(short: str) -> str:
    """A source in words."""
    return _content()["sources"][short]


def published_robustness() -> PublishedRobustness:
    """The study of Press's rank."""
    content = _content()
    section = dict(content["press_robustness"])
    source = content["sources"][section.pop("source")]
    ranks = {float(c): rank for c, rank in section.pop("press_rank").items()}
    return PublishedRobustness(source=source, press_rank=ranks, **section)


def published_dialogue() -> PublishedDialogue:
    """The scores of the three heads."""
    section = dict(_content()["dialogue"])
    source = _content()["sources"][section.pop("source")]
    heads = {}
    for head, facts in section.items():
        heads[head] = {"perplexity": facts["perplexity"]}
        for n, (precision, recall) in enumerate(facts["bleu"], 1):
            heads[head] |= {f"bleu{n}_precision": precision, f"bleu{n}_recall": recall}
    note = (
        f"Published: {source}, on the split, words and references of Zhao et al. 2017. This split "
        f"of Switchboard is another one, so that the figures do not compare."
    )
    return PublishedDialogue(heads, note)


def published_contexts(num_words: int, split: str) -> dict[str, dict[int, str]]:
    """Contexts at which a paper shows predictions, by paper: from the index of the word to be
    predicted in the split to that word. Of a corpus of as many words; {} of others."""
    groups = dict(_content()["contexts"])
    if (groups.pop("num_words"), groups.pop("split")) != (num_words, split):
        return {}
    return groups


@cache
def _content() -> dict:
    return yaml.safe_load(FILE.read_text("utf-8"))


def _one(fact: dict | None) -> Fact | None:
    if fact is None:
        return None
    value, *std = fact["value"]
    return Fact(value, std[0] if std else None, _content()["sources"][fact["source"]])


def _several(fact: dict | None) -> dict[str, Fact]:
    if fact is None:
        return {}
    source = _content()["sources"][fact["source"]]
    return {key: Fact(value, None, source) for key, value in fact["value"].items()}
