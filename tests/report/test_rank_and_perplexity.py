"""Ranks beside perplexities of hand-made runs, whose correlations are known."""

from __future__ import annotations

import pytest

from lmkit.analyses.divergence import Divergence
from lmkit.analyses.embeddings import Embeddings
from lmkit.analyses.gradient_bottleneck import GradientBottleneck
from lmkit.analyses.rank import Rank
from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import studies
from lmkit.comparison.run_files import Files
from lmkit.report.answer import answer
from lmkit.report.rank import rank_and_perplexity
from lmkit.report.rank_figures import heads_on_trunks
from lmkit.report.rank_gradient import rank_gradient_perplexity
from lmkit.runs.checksums import checked_json, parse_json
from lmkit.runs.selection import select_runs

# On either trunk a higher rank comes with a lower perplexity; over both together it does not.
_LSTM = ((402, 60.0), (6000, 59.0), (9000, 58.0))
_TRANSFORMER = ((5000, 70.0), (8000, 68.0), (9900, 66.0))


@pytest.fixture
def two_trunks(tmp_path, make_run):
    heads = ({}, {"transform": "gss"}, {"mixture": "softmaxes"})
    for head, (rank, ppl), (other_rank, other_ppl) in zip(heads, _LSTM, _TRANSFORMER, strict=True):
        make_run(tmp_path, 1, ppl, rank, **head)
        make_run(tmp_path, 1, other_ppl, other_rank, **head, trunk="Transformer",
                 options={"trunk.hidden_dim": 100})  # fmt: skip
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    return study


def test_where_there_are_several_trunks_each_is_correlated_alone(two_trunks):
    section = rank_and_perplexity(two_trunks, None)
    table = section.blocks[0]
    assert [column.name for column in table.columns[2:5:2]] == ["points", "Pearson's r"]
    rows = {row[0].text: (row[2].values[0], row[4].values[0]) for row in table.rows}
    assert rows["all heads, AWD-LSTM"] == (3, pytest.approx(-0.985, abs=0.001))
    assert rows["all heads, Transformer"] == (3, pytest.approx(-0.99, abs=0.01))
    assert rows["all heads, pooled"][1] > 0.1
    assert not any("within" in name for name in rows)  # no head has two points on one trunk


def test_heads_are_told_to_be_of_a_trunk_each_however_few_points_a_trunk_has(tmp_path, make_run):
    for trunk, dim in (("AWD-LSTM", 1150), ("Transformer", 100)):
        for c, rank in ((-1, 5000), (0, 6000)):
            make_run(tmp_path, 1, 57.0 + c, rank, transform="gss", changes={"transform.c": c},
                     trunk=trunk, options={"trunk.hidden_dim": dim})  # fmt: skip
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "gss", experiment_config, Files()
    )
    table = rank_and_perplexity(study, None).blocks[0]
    assert not any(row[0].text == "all heads, AWD-LSTM" for row in table.rows)
    assert table.rows[-1][0].text == "within heads (2)"


def test_a_head_whose_gradient_is_unknown_is_in_the_legend_too(tmp_path, make_run, add_analyses):
    for i, transform in enumerate(("identity", "gss", "outside")):
        run = make_run(tmp_path, 1, 57.0 + i, 5000 + i, transform=transform)
        if transform != "gss":
            add_analyses(run)
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    table, drawing = rank_gradient_perplexity(study).blocks
    (note,) = table.notes
    assert note.startswith("Perplexity with the rank of log P, over 3 groups (not runs): Pearson's")
    assert note.endswith("Spearman's ρ = 1.00 (p 0.333).")
    (legend,) = drawing.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Softmax", "GSS", "Cube"]


def test_a_gradient_of_one_seed_does_not_pass_as_that_of_three(tmp_path, make_run, add_analyses):
    for seed in (1, 2, 3):
        run = make_run(tmp_path, seed, 57.0 + seed, 5000 + seed)
    add_analyses(run)
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    side_by_side = rank_gradient_perplexity(study)
    head, seeds, ppl, rank, lost, *_ = [cell.text for cell in side_by_side.blocks[0].rows[0]]
    assert (seeds, ppl, rank) == ("3", "59.00 ± 1.00", "410 (1 seed)")
    assert lost == "95.00 (1 seed)"
    (alone,) = GradientBottleneck.sections(study, Files())
    assert [cell.text for cell in alone.blocks[0].rows[0][:4]] == [head, "test", "100", "1"]
    for section in (side_by_side, alone):
        assert section.missing == [
            "gradient_bottleneck.json of only some runs: Softmax (1 of 3 runs): "
            "lmkit gradient_bottleneck run=RUNS"
        ]


def test_beside_gradients_perplexity_goes_with_no_training_that_failed(
    tmp_path, make_run, add_analyses
):
    heads = ((57.0, "identity"), (56.0, "gss"), (58.0, "outside"))
    for shift, (ppl, transform) in enumerate(heads):
        add_analyses(make_run(tmp_path, 1, ppl, 5000, transform=transform), 0.1 * shift)
    add_analyses(make_run(tmp_path, 1, 690.0, 9, "softmaxes"), 0.9)
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    notes = rank_gradient_perplexity(study).blocks[0].notes
    (lost,) = [note for note in notes if "the norm that is lost" in note]
    assert "over 3 groups" in lost
    assert lost.endswith("; 1 group of failed training left out.")


def test_gradients_over_other_contexts_are_not_averaged(tmp_path, make_run, add_analyses):
    for seed in (1, 2, 3):
        add_analyses(make_run(tmp_path, seed, 57.0 + seed, 5000))
        add_analyses(make_run(tmp_path, seed, 56.0 + seed, 5000, transform="gss"))
    one = next(tmp_path.glob("*/analysis/gradient_bottleneck.json"))
    content = parse_json(one.read_bytes()) | {"split": "valid", "num_contexts": 50, "share": 0.9}
    one.write_bytes(checked_json(content))
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    (alone,) = GradientBottleneck.sections(study, Files())
    rows = [[cell.text for cell in row] for row in alone.blocks[0].rows]
    assert sorted(row[1:4] for row in rows) == [
        ["test", "100", "2"], ["test", "100", "3"], ["valid", "50", "1"],
    ]  # fmt: skip
    side_by_side = rank_gradient_perplexity(study)
    table = side_by_side.blocks[0]
    assert {row[4].text for row in table.rows} == {"95.00 ± 0.00 (2 seeds)", "95.00 ± 0.00"}
    assert table.caption.endswith("The gradients are those of 100 contexts of test.")
    (other,) = (row[0] for row in rows if row[1] == "valid")
    assert side_by_side.missing == [
        f"gradients not over 100 contexts of test, left out here: {other}"
    ]


@pytest.mark.parametrize(
    ("analysis", "key", "missing"),
    [
        (Embeddings, "components", "embeddings.json of only some runs: Softmax (1 of 2 runs): "),
        (Divergence, "divergence", None),
        (Rank, "ranks_82429", "ranks over 82,429 test contexts of only some runs: Softmax (1 of"),
    ],
)
def test_tables_of_analyses_count_the_runs_that_were_measured(
    tmp_path, make_run, add_analyses, analysis, key, missing
):
    make_run(tmp_path, 2)
    add_analyses(make_run(tmp_path, 1))
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    (section,) = analysis.sections(study, Files())
    (table,) = [block for block in section.blocks if block.key == key]
    at = [column.name for column in table.columns].index("seeds")
    assert table.rows[0][at].text == "1"
    assert missing is None or any(line.startswith(missing) for line in section.missing)
    for block in section.blocks:
        if block.key == "word_similarity":
            assert block.rows[0][-1].text == "0.400 (1 seed)"


def test_a_trunk_has_a_marker_and_a_head_a_colour(two_trunks):
    looks = {each.name: (each.color, each.marker) for each in heads_on_trunks(two_trunks.groups)}
    assert len(looks) == len(set(looks.values())) == 6
    colour, marker = looks["GSS (Transformer)"]
    assert looks["GSS (AWD-LSTM)"][0] == colour
    assert looks["Softmax (Transformer)"][1] == marker
    drawing, *_ = answer(two_trunks).drawings
    (axes,) = drawing.figure.axes
    assert set(axes.get_legend_handles_labels()[1]) == set(looks)


def test_of_one_trunk_each_head_has_a_marker(two_trunks):
    one = [group for group in two_trunks.groups if group.names.trunk == "AWD-LSTM"]
    looks = {each.name: each.marker for each in heads_on_trunks(one)}
    assert set(looks) == {"Softmax", "GSS", "MoS"}
    assert len(set(looks.values())) == 3


def test_a_run_that_failed_stands_at_the_edge_and_hides_no_other(tmp_path, make_run):
    make_run(tmp_path, 1, 59.0)
    for k, ppl, rank in ((1.5, 58.0, 700), (2.0, 57.0, 900), (2.5, 56.0, 800), (3.0, 690.0, 1)):
        make_run(tmp_path, 1, ppl, rank, transform="gss", changes={"transform.k": k})
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    blocks = {block.key: block for block in rank_and_perplexity(study, None).blocks}
    blocks |= {drawing.key: drawing for drawing in answer(study).drawings}
    for key in ("rank_heads", "rank_gss"):
        (axes,) = blocks[key].figure.axes
        assert 55 < axes.get_ylim()[0] < axes.get_ylim()[1] < 60
        assert "690" in [text.get_text() for text in axes.texts]
        assert axes.get_xlim()[0] < 1
        told = "with its perplexity: 1 run of more than twice the median perplexity."
        assert blocks[key].caption.endswith(f"At the upper edge, {told}")


def test_where_all_of_gss_failed_its_figure_has_only_an_edge(tmp_path, make_run):
    for seed in (1, 2, 3, 4):
        make_run(tmp_path, seed, 57.0)
    for k in (1.5, 2.0, 2.5):
        make_run(tmp_path, 1, 690.0, 1, transform="gss", changes={"transform.k": k})
    (study,), _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    blocks = {block.key: block for block in rank_and_perplexity(study, None).blocks}
    (axes,) = blocks["rank_gss"].figure.axes
    assert [text.get_text() for text in axes.texts] == ["690"] * 3
