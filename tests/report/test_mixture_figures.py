"""Rank, capacity and perplexity of mixtures: which points count, and what r says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import Study, studies
from lmkit.comparison.run_files import Files
from lmkit.presentation.style import house_style
from lmkit.presentation.tables import Table
from lmkit.report.beside_published import published_hyperparameters
from lmkit.report.mixture_figures import mixture_figures
from lmkit.runs.selection import select_runs


def study_of(root: Path) -> Study:
    (study,), _ = studies(select_runs("runs", str(root)).runs, "mos", experiment_config, Files())
    return study


def section_of(root: Path):
    with house_style():
        return mixture_figures(study_of(root))


@pytest.fixture
def grow(tmp_path, make_run):
    """Runs of MoS over K, two seeds each, whose ranks are over so many contexts."""

    def grown(
        contexts: int,
        experts: tuple[int, ...] = (3, 5, 10),
        options: dict[str, object] | None = None,
    ) -> Path:
        for i, count in enumerate(experts):
            for seed in (1, 2):
                make_run(tmp_path, seed, 59.0 - i + 0.2 * seed, 5000 + 2000 * i, "softmaxes",
                         trigger="nt", contexts=contexts, name="penn_mos_nt",
                         changes={"mixture.num_experts": count}, options=options)  # fmt: skip
        return tmp_path

    return grown


def test_r_is_over_configurations_and_says_how_many_points_and_runs(grow):
    section = section_of(grow(82429))
    table = next(block for block in section.blocks if block.key == "mixture_correlation")
    ours, published = ([cell.text for cell in row] for row in table.rows)
    assert ours == ["number of components K", "ours", "3", "6", "−1.000"]
    assert published[1:4] == ["published", "6", "6"]
    ranks, ppls = [282, 5575, 8057, 9976, 9979, 9980], [64.5, 59.25, 58.38, 56.21, 56.07, 56.19]
    expected = np.corrcoef(ranks, ppls)[0, 1]  # of the supplement's table 4
    assert float(published[4].replace("−", "-")) == pytest.approx(expected, abs=5e-4)


def test_a_mixture_whose_training_failed_is_no_point_of_r(grow, make_run):
    root = grow(82429)
    make_run(root, 1, 690.0, 400, "softmaxes", trigger="nt", contexts=82429, name="penn_mos_nt",
             changes={"mixture.num_experts": 15})  # fmt: skip
    section = section_of(root)
    table = next(block for block in section.blocks if block.key == "mixture_correlation")
    assert [cell.text for cell in table.rows[0]][2:] == ["3", "6", "−1.000"]


def labels_of(axes: Axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


def bars_of(axes: Axes) -> list[float]:
    """Half the length of each error bar."""
    segments = axes.containers[0].lines[2][-1].get_segments()
    return [(high - low) / 2 for (_, low), (_, high) in segments]


def test_published_ranks_stand_beside_ours_at_equal_contexts_alone(grow):
    section = section_of(grow(10000))
    table = next(block for block in section.blocks if block.key == "mixture_correlation")
    assert [row[1].text for row in table.rows] == ["ours"]
    figure = next(block for block in section.blocks if block.key == "mixture_rank").figure
    (axes,) = figure.axes
    assert labels_of(axes) == ["ours"]


def test_mixtures_that_are_not_as_published_say_so_beside_the_published_points(grow):
    section = section_of(grow(82429, (3, 5), {"optimizer.lr": 5}))
    blocks = {block.key: block for block in section.blocks}
    (note,) = blocks["mixture_correlation"].notes
    assert note.startswith("MoS (K=3) and MoS (K=5) are not penn_mos_nt as published")
    assert note.endswith("optimizer.lr=5 (20)")
    for key in ("mixture_rank", "mixtures_experts"):
        assert "Not as published in more than the option" in blocks[key].caption
    section = section_of(grow(82429, (3, 5, 10)))  # more of them with the published lr
    assert [block.notes for block in section.blocks if isinstance(block, Table)] == [[]]


def test_runs_that_are_drawn_count_once(tmp_path, make_run):
    points = [(5, 0.29, 5000), (10, 0.29, 6000), (10, 0.0, 7000), (15, 0.29, None)]
    for count, dropout, rank in points:
        for seed in (1, 2):
            make_run(tmp_path, seed, 59.0 + count / 10 + dropout, rank, "softmaxes", trigger="nt",
                     changes={"mixture.num_experts": count,
                              "mixture.latent_dropout": dropout})  # fmt: skip
    drawing = next(block for block in section_of(tmp_path).blocks if block.key == "mixture_rank")
    assert len(drawing.figure.axes) == 2
    assert "(6 runs;" in drawing.caption


def test_lines_of_one_name_and_trigger_say_what_else_they_differ_in(tmp_path, make_run):
    for lr in (20, 5):
        for count in (5, 10):
            make_run(tmp_path, 1, 59.0, 5000, "softmaxes", trigger="nt",
                     changes={"mixture.num_experts": count},
                     options={"optimizer.lr": lr})  # fmt: skip
    capacity = next(b for b in section_of(tmp_path).blocks if b.key == "mixtures_experts").figure
    assert sorted(labels_of(capacity.axes[0])) == [
        "MoS (lr 20), NT 5", "MoS (lr 5), NT 5", "published",
    ]  # fmt: skip


def test_two_configurations_have_no_correlation_but_a_figure_of_capacity(grow):
    section = section_of(grow(82429, (3, 5)))
    table = next(block for block in section.blocks if block.key == "mixture_correlation")
    assert table.rows[0][-1].values == (None,)
    capacity = next(block for block in section.blocks if block.key == "mixtures_experts").figure
    assert labels_of(capacity.axes[1]) == [
        "test, MoS, NT 5", "train, MoS, NT 5", "test, published", "train, published",
    ]  # fmt: skip
    assert bars_of(capacity.axes[1]) == pytest.approx([0.02**0.5, 0.02**0.5])
    assert list(capacity.axes[0].get_xticks()) == [1, 3, 5, 10, 15, 20]
    assert any("latent dropout alone" in line for line in section.missing)


def test_a_configuration_that_failed_stands_at_the_edge_and_squeezes_no_other(tmp_path, make_run):
    for count, ppl in ((1, 700.0), (2, 132.0), (5, 118.0)):
        make_run(tmp_path, 1, ppl, 1000 * count, "softmaxes", name="penn_study",
                 changes={"mixture.num_experts": count})  # fmt: skip
    (drawing,) = section_of(tmp_path).blocks
    _, perplexity, _, _ = drawing.figure.axes
    assert [text.get_text() for text in perplexity.texts] == ["700"]
    assert perplexity.get_ylim()[1] < 150
    counts = [len(axes.containers[0].lines[0].get_xdata()) for axes in drawing.figure.axes]
    assert counts == [3, 2, 2, 2]
    told = "its perplexity: 1 configuration of more than twice the median perplexity."
    assert drawing.caption.endswith(f"At the upper edge, with {told}")


def test_where_all_mixtures_failed_their_figure_has_only_an_edge(tmp_path, make_run):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 130.0, 66)
    for count in (1, 2):
        make_run(tmp_path, 1, 700.0, 1, "softmaxes", changes={"mixture.num_experts": count})
    (drawing,) = section_of(tmp_path).blocks
    _, perplexity, _ = drawing.figure.axes
    assert [text.get_text() for text in perplexity.texts] == ["700", "700"]
    assert not perplexity.containers
    assert perplexity.get_legend() is None


def test_printed_hyperparameters_stand_beside_those_of_the_runs(grow):
    options = {"windows.batch_size": 20, "trunk.hidden_dropout": 0.2}
    section = published_hyperparameters(study_of(grow(82429, (15,), options)))
    (table,) = section.blocks
    (note,) = table.notes
    assert note.endswith("trunk.hidden_dropout=0.2 (0.225); windows.batch_size=20 (12)")
    rows = {row[1].text: [cell.text for cell in row[2:]] for row in table.rows}
    assert rows["head.mixture.num_experts"] == ["15", "15", ""]
    assert rows["optimizer.lr"] == ["20", "20", ""]
    assert rows["windows.batch_size"] == ["20", "12", "not 12"]
    # the print has the two dropouts exchanged
    assert rows["trunk.input_dropout"] == ["0.4", "0.55", ""]
    assert rows["trunk.hidden_dropout"] == ["0.2", "0.2", "not 0.225"]
    assert "no dynamic evaluation of penn_mos_nt" in section.missing[0]


def test_the_gap_is_told_to_be_with_dropout(grow):
    section = mixture_figures(study_of(grow(82429, (5, 15), {})))
    captions = [block.caption for block in section.blocks if block.key == "mixtures_experts"]
    assert "training perplexity, which is with dropout" in captions[0]
