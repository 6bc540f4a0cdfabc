"""What was published of a group's head, and in what the group is not as published."""

from __future__ import annotations

from dataclasses import dataclass

from lmkit.comparison.groups import Corpus, Group, Spread
from lmkit.presentation.published import (
    PublishedNumber,
    PublishedRun,
    published_run,
    published_section,
)

# experiments whose settings, not their head alone, were published
_NAMED = ("mos_dagger", "softmax_dagger", "softmax_ddagger", "awd_lstm_mos_hyperparameters")


@dataclass(frozen=True)
class Published:
    """Facts of the same head with the same kind of averaging on the same corpus."""

    experiment: str  # their name in published.yaml
    facts: PublishedRun
    differences: list[str]  # in which the group is not as published


def corpus_prefix(corpus: Corpus) -> str | None:
    """ "penn" or "wt2" by the sizes of vocabulary and test split, None for another corpus."""
    for prefix, sizes in published_section("corpora").items():
        if (corpus.num_words, corpus.test_contexts) == (sizes["num_words"], sizes["test_contexts"]):
            return str(prefix)
    return None


def published_of(group: Group, corpus: Corpus) -> Published | None:
    """None when nobody published this head with these settings of its own."""
    prefix = corpus_prefix(corpus)
    trigger = published_section("triggers").get(group.trigger.partition(" ")[0])
    if prefix is None or trigger is None or corpus.num_words is None:
        return None
    named = group.runs[0].result.experiment
    if named.removeprefix(f"{prefix}_") in _NAMED:
        experiment = named
    else:
        wanted = published_section("settings").get(group.head.family, {})
        wanted = wanted.get(prefix, wanted)
        if any(group.settings.get(option) != value for option, value in wanted.items()):
            return None
        experiment = f"{prefix}_{group.head.family}{trigger['suffix']}"
    facts = published_run(experiment, corpus.num_words)
    if facts is None:
        return None
    return Published(experiment, facts, _differences(group, corpus, facts, trigger["name"]))


def deviation(mine: Spread | None, fact: PublishedNumber | None) -> float | None:
    """By how many published standard deviations the mean lies above the published one."""
    if mine is None or fact is None or not fact.std:
        return None
    return (mine.mean - fact.value) / fact.std


def _differences(group: Group, corpus: Corpus, facts: PublishedRun, trigger: str) -> list[str]:
    """`22.50M parameters (28.60M)`: what is so here, and in brackets what was published."""
    differences = []
    parameters = group.cost("parameters")
    if parameters is not None and facts.params_m is not None:
        millions = int(parameters.mean / 1e4) / 100
        if millions != facts.params_m.value:
            differences.append(f"{millions:.2f}M parameters ({facts.params_m.value:.2f}M)")
    if corpus.train_tokens is not None:
        differences.append(f"first {corpus.train_tokens:,} tokens of the training text (all)")
    if group.trigger != trigger:
        differences.append(f"averaging by {group.trigger} ({trigger})")
    return differences
