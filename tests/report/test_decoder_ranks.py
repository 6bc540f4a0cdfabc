"""Perplexity over the rank of the decoder: which runs stand there, and as what."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import studies
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Section
from lmkit.presentation.style import house_style
from lmkit.report.decoder_ranks import decoder_ranks
from lmkit.runs.selection import select_runs


def sections_of(root: Path) -> list[Section]:
    files = Files()
    (study,), _ = studies(select_runs("runs", str(root)).runs, "softmax", experiment_config, files)
    with house_style():
        return decoder_ranks(study, files)


@pytest.fixture
def make_limited(tmp_path, make_run):
    """A head at ranks of its decoder, two seeds each; one more of full rank."""

    def make(ranks: tuple[int, ...], mixture: str = "none") -> Path:
        for rank in (*ranks, None):
            for seed in (1, 2):
                ppl = 60.0 + 40 / (rank or 400) + 0.2 * seed
                make_run(tmp_path, seed, ppl, rank or 402, mixture,
                         changes={"tie_weights": False, "decoder_rank": rank})  # fmt: skip
        return tmp_path

    return make


def test_a_line_for_each_head_over_its_ranks(make_limited):
    make_limited((8, 4, 16))
    (section,) = sections_of(make_limited((4, 8), "softmaxes"))
    drawing, spectra, table = section.blocks
    of_ppl, of_rank = drawing.figure.axes
    lines = {of.get_label(): of.lines[0].get_xydata().tolist() for of in of_ppl.containers}
    softmax, mos = sorted(lines, reverse=True)
    assert (softmax, mos[:3]) == ("Softmax", "MoS")
    assert lines["Softmax"] == [pytest.approx(at) for at in ([4, 70.3], [8, 65.3], [16, 62.8])]
    assert [rank for rank, _ in lines[mos]] == [4, 8]
    assert [y for _, y in of_rank.containers[0].lines[0].get_xydata()] == [4, 8, 16]
    shown = {axes.get_title(): len(axes.get_lines()) for axes in spectra.figure.axes}
    assert shown == {"Softmax": 3 + 1, mos: 2 + 1}  # and the tolerance of Press's rank
    cells = [[cell.text for cell in row[:4]] for row in table.rows]
    assert cells[0] == ["Softmax", "4", "2", cells[0][3]]
    assert [row[1] for row in cells] == ["4", "8", "16", "4", "8"]


def test_one_rank_is_no_comparison(make_limited):
    assert sections_of(make_limited((4,))) == []


def test_a_low_rank_is_no_failure_and_a_failure_at_a_rank_stands_apart(tmp_path, make_run):
    ppl_of = {1: 400.0, 4: 70.0, 8: 65.0, 16: 63.0}
    for rank, ppl in ppl_of.items():
        for seed in (1, 2, 3):
            diverged = (rank, seed) == (4, 3)
            make_run(tmp_path, seed, 900.0 if diverged else ppl, rank,
                     changes={"tie_weights": False, "decoder_rank": rank})  # fmt: skip
    (section,) = sections_of(tmp_path)
    (line,) = section.blocks[0].figure.axes[0].containers
    assert line.lines[0].get_xydata().tolist() == [pytest.approx(at) for at in ppl_of.items()]
