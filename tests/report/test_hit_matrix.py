"""Which heads and contexts the hit matrix has."""

from __future__ import annotations

import json

from lmkit.analyses.predictions import Predictions
from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import studies
from lmkit.comparison.run_files import Files
from lmkit.presentation.style import house_style
from lmkit.runs.checksums import KEY, checked_json
from lmkit.runs.selection import select_runs


def test_mixtures_trained_both_ways_stand_twice_in_the_hit_matrix(tmp_path, make_run, add_analyses):
    add_analyses(make_run(tmp_path, 1, 57.0))
    add_analyses(make_run(tmp_path, 1, 55.0, mixture="softmaxes"))
    add_analyses(make_run(tmp_path, 1, 56.0, mixture="softmaxes", trigger="nt"))
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    with house_style():
        (section,) = Predictions.sections(study, Files())
    hits = next(block for block in section.blocks if block.key == "hits")
    (axes,) = hits.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Softmax", "MoS", "MoS*"]
    assert "A star: trained with NT-ASGD." in section.intro


def test_contexts_that_a_head_lacks_are_counted(tmp_path, make_run, add_analyses):
    whole, partial = make_run(tmp_path, 1, 57.0), make_run(tmp_path, 1, 55.0, mixture="softmaxes")
    for run in (whole, partial):
        add_analyses(run)
    file = whole / "analysis" / "predictions.json"
    content = json.loads(file.read_text())
    del content[KEY]
    (first,) = content["contexts"]
    content["contexts"] += [{**first, "name": "p1"}, {**first, "name": "p2"}]
    file.write_bytes(checked_json(content))
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    with house_style():
        (section,) = Predictions.sections(study, Files())
    hits = next(block for block in section.blocks if block.key == "hits")
    (axes,) = hits.figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["w1"]
    assert "Left out: 2 contexts that some heads lack." in hits.caption


def test_positions_of_two_splits_are_not_one_context(tmp_path, make_run, add_analyses):
    runs = make_run(tmp_path, 1, 57.0), make_run(tmp_path, 1, 55.0, mixture="softmaxes")
    for run, split in zip(runs, ("valid", "test"), strict=True):
        add_analyses(run)
        file = run / "analysis" / "predictions.json"
        content = json.loads(file.read_text())
        del content[KEY]
        (there,) = content["contexts"]
        typed = {**there, "name": "the company", "source": "text", "position": None}
        content |= {"split": split, "contexts": [{**there, "name": "position 7"}, typed]}
        file.write_bytes(checked_json(content))
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    with house_style():
        (section,) = Predictions.sections(study, Files())
    blocks = {block.key: block for block in section.blocks}
    rows = [(row[0].text, row[3].text) for row in blocks["predictions"].rows]
    assert sorted(rows) == [
        ("position 7, test", "MoS"),
        ("position 7, valid", "Softmax"),
        ("the company", "MoS"),
        ("the company", "Softmax"),
    ]
    (axes,) = blocks["hits"].figure.axes
    assert len(axes.get_xticklabels()) == 1
    assert [row[1].text for row in blocks["hit_shares"].rows] == ["valid", "test"]
