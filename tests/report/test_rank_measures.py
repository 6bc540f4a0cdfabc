"""The correlation of test perplexity with every measure of the rank of log P."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats

from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import Study, studies
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import Table
from lmkit.report.rank import rank_and_perplexity
from lmkit.runs.checksums import checked_json, parse_json
from lmkit.runs.selection import select_runs

HEADS = {"identity": (58.0, 402, 40), "gss": (57.0, 9000, 60), "outside": (56.0, 500, 90)}


def study_of(root: Path) -> Study:
    (study,), _ = studies(
        select_runs("runs", str(root)).runs, "softmax", experiment_config, Files()
    )
    return study


def measures_of(root: Path) -> list[Table]:
    blocks = rank_and_perplexity(study_of(root), None).blocks
    return [block for block in blocks if block.key == "rank_measures"]


@pytest.fixture
def three_heads(tmp_path, make_run) -> Path:
    """Press's rank does not order them by perplexity, the effective one does."""
    for transform, (ppl, rank, effective) in HEADS.items():
        for seed, above in ((1, -1), (2, 1)):
            run = make_run(tmp_path, seed, ppl + above, rank + 10 * above, transform=transform)
            result = parse_json((run / "result.json").read_bytes())
            result["metrics"]["test_spectrum"]["effective_rank"]["0.001"] = effective + above
            (run / "result.json").write_bytes(checked_json(result))
    return tmp_path


def test_each_measure_is_correlated_over_the_means_of_the_heads(three_heads):
    (table,) = measures_of(three_heads)
    assert {row[0].text for row in table.rows} == {"between heads"}
    rows = {row[1].text: [cell.values[0] for cell in row[2:]] for row in table.rows}
    assert rows.keys() == {"Press rank", "1e−3-effective rank"}  # all others are the same here
    perplexities, ranks, effective = zip(*HEADS.values(), strict=True)
    for name, values in (("Press rank", ranks), ("1e−3-effective rank", effective)):
        heads, r, _, rho, _ = rows[name]
        assert heads == 3
        assert r == pytest.approx(stats.pearsonr(values, perplexities).statistic)
        assert rho == pytest.approx(stats.spearmanr(values, perplexities).statistic)
    assert "10,000 test contexts of PTB" in table.caption


def test_a_training_that_failed_is_no_point_of_any_measure(three_heads, make_run):
    (without,) = measures_of(three_heads)
    make_run(three_heads, 1, 690.0, 1, mixture="softmaxes")
    (table,) = measures_of(three_heads)
    assert [[cell.values for cell in row] for row in table.rows] == [
        [cell.values for cell in row] for row in without.rows
    ]


def test_of_a_head_with_several_configurations_that_of_most_seeds_counts(three_heads, make_run):
    make_run(three_heads, 1, 61.0, 1000, transform="gss", changes={"transform.k": 1.25})
    (table,) = measures_of(three_heads)
    press = {row[1].text: row for row in table.rows}["Press rank"]
    r = stats.pearsonr([402, 9000, 500], [58.0, 57.0, 56.0]).statistic
    assert (press[2].values[0], press[3].values[0]) == (3, pytest.approx(r))


def test_the_configurations_of_gss_are_points_of_their_own(three_heads, make_run):
    for k, ppl, rank in ((1.25, 61.0, 1000), (2.0, 60.0, 700)):
        make_run(three_heads, 1, ppl, rank, transform="gss", changes={"transform.k": k})
    (table,) = measures_of(three_heads)
    press = {row[0].text: row for row in table.rows if row[1].text == "Press rank"}
    assert press.keys() == {"GSS over (c, k)", "between heads"}
    assert len(table.notes) == 2
    r = stats.pearsonr([9000, 1000, 700], [57.0, 61.0, 60.0]).statistic
    cells = press["GSS over (c, k)"]
    assert (cells[2].values[0], cells[3].values[0]) == (3, pytest.approx(r))


def test_two_heads_on_each_of_two_trunks_have_none(tmp_path, make_run):
    for transform in ("identity", "gss"):
        make_run(tmp_path, 1, 57.0, 402, transform=transform)
        make_run(tmp_path, 1, 50.0, 900, transform=transform, trunk="Transformer",
                 options={"trunk.hidden_dim": 100})  # fmt: skip
    assert measures_of(tmp_path) == []
