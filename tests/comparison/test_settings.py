"""The options by which tables tell runs apart are those that configurations have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from omegaconf import OmegaConf

from lmkit.cli.entry import compose, plain_config
from lmkit.comparison.settings import _IGNORED, _SHORT, _leaves
from lmkit.runs.identity import identity

LINES = (
    "head/transform=plif",
    "head/mixture=softmaxes",
    "head/mixture=doc",
    "head=multi_facet",
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
