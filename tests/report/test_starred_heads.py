"""The hit matrix has a head twice where it was trained with NT-ASGD too."""

from __future__ import annotations

from lmkit.analyses.predictions import Predictions
from lmkit.cli.entry import experiment_config
from lmkit.comparison.groups import studies
from lmkit.comparison.run_files import Files
from lmkit.presentation.style import house_style
from lmkit.runs.selection import select_runs


def test_mixtures_trained_both_ways_stand_twice_in_the_hit_matrix(tmp_path, make_run, add_analyses):
    add_analyses(make_run(tmp_path, 1, 57.0))
    add_analyses(make_run(tmp_path, 1, 55.0, mixture="softmaxes"))
    add_analyses(make_run(tmp_path, 1, 56.0, mixture="softmaxes", trigger="nt"))
    (study,), _ = studies(select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config)
    with house_style():
        (section,) = Predictions.sections(study, Files())
    hits = next(block for block in section.blocks if block.key == "hits")
    (axes,) = hits.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Softmax", "MoS", "MoS*"]
    assert "A star: trained with NT-ASGD." in section.intro
