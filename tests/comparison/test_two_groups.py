"""Two groups of runs compared."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from scipy import stats

from lmkit.comparison.groups import group_runs
from lmkit.comparison.run_files import Files
from lmkit.comparison.two_groups import compare_groups, comparison_table, unlike
from lmkit.errors.user_error import UserError
from lmkit.presentation.table_files import to_csv
from lmkit.runs.analysis_files import write_analysis
from lmkit.runs.checksums import checked_json, parse_json
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs

GSS, SOFTMAX = [56.1, 56.4, 56.2, 56.9], [57.0, 57.2, 56.8]


@pytest.fixture
def groups(tmp_path, make_run):
    """Runs of two heads, which all have a rank at 500 test contexts and at 300."""
    for transform, perplexities in (("gss", GSS), ("identity", SOFTMAX)):
        for seed, ppl in enumerate(perplexities):
            run = make_run(tmp_path, seed, ppl, 7, transform=transform, contexts=4000 + seed)
            measured(run, 500, 100 + 10 * seed)
            measured(run, 300, 50)
    return [select_runs("a", f"{tmp_path} head:{head}").runs for head in ("gss", "softmax")]


def measured(run: Path, contexts: int, rank: int) -> None:
    write_analysis(
        RunFolder(run),
        f"rank_test_log_probs_{contexts}",
        {"spectrum": {"num_contexts": contexts, "press_rank": rank}, "pairwise_divergence": None},
        kind="rank",
        schema_version=1,
        checkpoint="best",
        averaged=True,
    )


def test_tests_are_scipys_and_ranks_at_the_most_contexts_that_all_have(groups):
    comparisons, contexts = compare_groups(*groups, Files(), seed=0)
    assert comparisons["test_ppl"].unpaired.p_student == pytest.approx(
        stats.ttest_ind(GSS, SOFTMAX).pvalue
    )
    assert comparisons["valid_ppl"].unpaired.difference == pytest.approx(56.4 - 57.0)
    assert contexts == 500
    ranks = comparisons["press_rank"].unpaired
    assert (ranks.mean_a, ranks.mean_b) == (115, 110)
    paired = comparisons["test_ppl"].paired
    assert paired.n == 3
    assert paired.p == pytest.approx(stats.ttest_rel(GSS[:3], SOFTMAX).pvalue)


def test_without_common_contexts_no_ranks_are_compared(groups):
    for path in (groups[0][0].folder.analysis).glob("rank_*"):
        path.unlink()
    comparisons, contexts = compare_groups(*groups, Files(), seed=0)
    assert contexts is None
    assert list(comparisons) == ["valid_ppl", "test_ppl"]
    assert "no ranks" in comparison_table(comparisons, contexts).notes[-1]


def test_the_table_holds_what_was_found(groups):
    comparisons, contexts = compare_groups(*groups, Files(), seed=0)
    table = comparison_table(comparisons, contexts)
    names = ["", "valid perplexity", "test perplexity", "Press rank, 500 contexts"]
    assert [column.name for column in table.columns] == names
    shown = {name.text: test.text for name, _, test, _ in table.rows}
    assert (shown["mean of a"], shown["a − b"]) == ("56.40", "−0.600")
    rows = {row[""]: row for row in csv.DictReader(io.StringIO(to_csv(table)))}
    low = comparisons["test_ppl"].unpaired.low
    assert float(rows["95 % interval from"]["test perplexity"]) == low
    assert shown["method of the interval"] == "Welch's t"
    assert (shown["shared seeds"], shown["a − b, paired"]) == ("3", "−0.767")


def test_of_single_runs_the_table_has_no_rows_of_dashes(groups):
    a, b = ([runs[0]] for runs in groups)
    table = comparison_table(*compare_groups(a, b, Files(), seed=0))
    rows = ["runs in a", "runs in b", "mean of a", "mean of b", "a − b"]
    assert [row[0].text for row in table.rows] == rows
    assert any("need two runs" in note for note in table.notes)


def test_a_seed_that_repeats_in_a_group_has_no_pair(groups, tmp_path, make_run):
    """Runs of two heads in one group, of the same seeds."""
    make_run(tmp_path / "more", 0, 57.5, mixture="softmaxes")
    more = select_runs("b", str(tmp_path / "more")).runs
    comparisons, contexts = compare_groups(groups[0], [*groups[1], *more], Files(), seed=0)
    assert comparisons["test_ppl"].paired is None
    assert "no paired test" in comparison_table(comparisons, contexts).notes[1]


def test_runs_on_both_sides_and_other_corpora_are_refused(groups, tmp_path, make_run):
    with pytest.raises(UserError, match="both hold penn_small-"):
        compare_groups(groups[0], groups[0][:1], Files(), seed=0)
    make_run(tmp_path / "other", 1, sizes=(200, 300))
    other = select_runs("b", str(tmp_path / "other")).runs
    with pytest.raises(UserError, match="on one corpus only"):
        compare_groups(groups[0], other, Files(), seed=0)


def test_what_two_groups_differ_in_beside_the_head_is_told(tmp_path, make_run):
    make_run(tmp_path / "a", 1, 56.0, transform="gss", options={"optimizer.lr": 5})
    make_run(tmp_path / "b", 1, 57.0, options={"windows.test_batch_size": 10},
             sizes=(10000, 82420))  # fmt: skip
    run = next((tmp_path / "b").iterdir()) / "result.json"
    result = parse_json(run.read_bytes())
    result["provenance"]["git"] = {"commit": "def", "dirty": True}
    run.write_bytes(checked_json(result))
    a, b = (group_runs(select_runs("a", str(tmp_path / name)).runs, "")[0] for name in ("a", "b"))
    assert unlike(a, b) == [
        "a and b differ in more than the head: optimizer.lr: 5 and 20; "
        "windows.test_batch_size: 1 and 10",
        "code: a abc; b def and changes",
        "Warning: a counted 82,429 test contexts, b 82,420: their perplexities are not of the same "
        "test contexts",
    ]
    assert unlike(a, a) == []
