"""A run in flat fields, and where W&B keeps it."""

from __future__ import annotations

import re

import pytest

from lmkit.tracking.summary import (
    PlotAxis,
    axes_of,
    field_name,
    filed_as,
    project_of,
    result_fields,
    run_fields,
)
from tests.tracking.conftest import CONFIG, NAMES


def test_axes_are_the_options_that_the_points_vary(sweep):
    assert axes_of(sweep) == [
        PlotAxis("head.transform.c", "head_transform_c", True),
        PlotAxis("head.transform.k", "head_transform_k", True),
    ]


def test_the_groups_of_the_head_are_one_axis(sweep):
    for i, point in enumerate(sweep.manifest.points):
        point.overrides[:] = [f"head/mixture=m{i}", f"head/transform=t{i}", f"optimizer=o{i}"]
    assert axes_of(sweep) == [
        PlotAxis("head/mixture", "head", False),
        PlotAxis("optimizer", "optimizer", False),
    ]


def test_kinds_are_called_by_their_stored_names_and_options_have_fields_of_their_own():
    axes = ["head.transform.k", "head/transform", "trigger", "experiment", "head.mixture.lost"]
    config = CONFIG | {"trigger": {"_target_": "mine.Trigger"}, "optimizer": {"_target_": "o.Adam"}}
    assert run_fields(config, NAMES, [*axes, "optimizer"]) == {
        "experiment": "toy",
        "seed": 141,
        "head": "GSS",
        "trunk": "AWD-LSTM",
        "trigger": "ET 2",
        "data": "Toy",
        "head_transform_k": 2.5,
        "optimizer": "Adam",
    }


def test_results_are_perplexities_and_the_ranks_that_are_resolved():
    spectrum = {
        "num_contexts": 300,
        "press_rank": 12,
        "entropy_rank": None,
        "effective_rank": {"0.001": 3, "1e-05": None},
        "thresholds": [1.0],
    }
    metrics = {"test_ppl": 60.5, "test_nll": 4.1, "test_spectrum": spectrum}
    assert result_fields(metrics, {"parameters": 9, "seconds_per_epoch": None}) == {
        "parameters": 9,
        "test_ppl": 60.5,
        "press_rank": 12,
        "effective_rank_0_001": 3,
        "rank_contexts": 300,
    }


@pytest.mark.parametrize("option", ["head.transform.c", "head/mixture", "a/b.c@d", "e_1e-05"])
def test_field_names_are_such_as_wandb_takes(option):
    assert re.fullmatch(r"[A-Za-z_]\w*", field_name(option))


def test_a_run_trained_without_wandb_has_the_default_project(sweep):
    assert filed_as(CONFIG) == ("theirs", ["odd"])
    assert filed_as(CONFIG | {"logger": {}}) == ("lmkit", [])
    assert project_of(sweep) == "theirs"
