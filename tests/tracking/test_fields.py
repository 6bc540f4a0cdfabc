"""A run in flat fields."""

from __future__ import annotations

import re

import pytest

from lmkit.cli.entry import compose, plain_config
from lmkit.tracking.fields import Axis, field_name, head_tag, result_fields, run_fields, varied


@pytest.mark.parametrize(
    ("overrides", "tag"),
    [
        ([], "softmax"),
        (["head/transform=sigsoftmax"], "ss"),
        (["head/mixture=softmaxes", "head/transform=plif"], "mos_plif"),
        (["head/mixture=contexts"], "moc"),
        (["head.transform._target_=heads.Cube"], "Cube"),
        (["head=mixtape"], "mixtape"),
        (["head=multi_facet", "head/transform=gss"], "multi_facet_gss"),
        (["head=adversarial", "head/mixture=softmaxes"], "adversarial_mos"),
        (["experiment=penn_doc"], "doc"),
    ],
)
def test_a_head_has_a_short_name(overrides, tag):
    assert head_tag(plain_config(compose("train", overrides))["head"]) == tag


def test_axes_are_what_not_all_points_have_alike():
    lines = [
        ["seed=1", "head/transform=gss", "+head.transform.c=-1.0", "logger.group=x"],
        ["seed=1", "head/transform=plif", "logger.group=y"],
        ["seed=1", "head/transform=gss", "+head.transform.c=5e-1"],
    ]
    assert varied(lines) == [
        Axis("head/transform", "transform", False),
        Axis("head.transform.c", "head_transform_c", True),
    ]
    assert varied(lines[:1]) == []


def test_values_on_the_axes_are_fields_and_what_is_no_option_is_none():
    config = plain_config(
        compose("train", ["head/transform=gss", "head.transform.k=3.5", "trigger=never", "seed=2"])
    )
    axes = ["head.transform.k", "head/transform", "trigger", "experiment", "head.mixture.lost"]
    assert run_fields(config, axes) == {
        "experiment": "toy",
        "seed": 2,
        "head": "gss",
        "mixture": "none",
        "transform": "gss",
        "head_transform_k": 3.5,
        "trigger": "Never",
    }


def test_results_are_perplexities_and_the_ranks_that_are_resolved():
    spectrum = {
        "num_contexts": 300,
        "press_rank": 12,
        "entropy_rank": None,
        "effective_rank": {"0.001": 3, "1e-05": None},
        "thresholds": [1.0],
    }
    found = result_fields({"test_ppl": 60.5, "test_nll": 4.1, "test_spectrum": spectrum})
    assert found == {
        "test_ppl": 60.5,
        "press_rank": 12,
        "effective_rank_0_001": 3,
        "rank_contexts": 300,
    }


def test_field_names_are_such_as_wandb_takes():
    for option in ("head.transform.c", "head/mixture", "effective_rank_1e-05", "a/b.c@d"):
        assert re.fullmatch(r"[A-Za-z_]\w*", field_name(option))
