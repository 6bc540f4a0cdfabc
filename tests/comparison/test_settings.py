"""The options by which tables tell runs apart are those that configurations have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from omegaconf import OmegaConf

from lmkit.cli.entry import compose, plain_config
from lmkit.comparison.settings import _IGNORED, _SHORT, _leaves, labels
from lmkit.runs.identity import identity
from lmkit.runs.names import RunNames

LINES = (
    "head/transform=plif",
    "head/mixture=softmaxes",
    "head/mixture=doc",
    "head=mixtape",
    "experiment=dialogue_small_softmax",
)


@pytest.fixture(scope="module")
def sections() -> list[tuple[set[str], dict[str, object]]]:
    """Of each line the options in an identity, and its head with `${...}` as written."""

    def each() -> Iterator[tuple[set[str], dict[str, object]]]:
        for line in LINES:
            config = compose("train", [line])
            settings = identity(plain_config(config), "data", "cpu").settings
            head = OmegaConf.to_container(config.head)
            yield {option for option, _ in _leaves(settings, "")}, dict(_leaves(head, "head"))

    return list(each())


def test_options_that_are_named_exist(sections):
    existing = set.union(*(options for options, _ in sections))
    assert {*_IGNORED, *_SHORT} <= existing


def test_what_a_head_takes_from_the_trunk_tells_no_runs_apart(sections):
    derived = {
        option
        for _, head in sections
        for option, value in head.items()
        if str(value).startswith("${trunk.")
    }
    assert len(derived) > 5
    assert derived <= set(_IGNORED)


def labelled(*trunks: str, **of_first: object) -> list[str]:
    """The labels of one head on trunks, each with five options of its own."""
    settings = [
        {"trunk._target_": trunk, **{f"trunk.o{i}": (trunk, i) for i in range(5)}}
        for trunk in trunks
    ]
    settings[0] |= of_first
    names = [RunNames("GSS", "gss", (0,), trunk, "SGD", "PTB", "PTB") for trunk in trunks]
    return labels(names, settings)


def test_many_differences_of_trunks_are_their_names():
    assert labelled("LSTM", "Transformer") == ["GSS (LSTM)", "GSS (Transformer)"]


def test_many_differences_within_a_trunk_have_a_number():
    two = labelled("LSTM", "LSTM", **{f"optimizer.o{i}": i for i in range(5)})
    assert two == [
        "GSS (o0 0, o1 1, o2 2, … #1)",
        "GSS (o0 none, o1 none, o2 none, … #2)",
    ]
    three = labelled("LSTM", "Transformer", "LSTM", **{"optimizer.lr": 5})
    assert [each.rpartition(", ")[2] for each in three] == ["… #1)", "… #2)", "… #3)"]
