"""What stands beside published figures, and when it does not compare; what correlations claim."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lmkit.analyses.divergence import Divergence
from lmkit.analyses.press_robustness import PressRobustness
from lmkit.analyses.rank import Rank
from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import Study, studies
from lmkit.comparison.published import published_section
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import Table
from lmkit.report.answer import answer
from lmkit.report.mixtures import mixtures
from lmkit.report.performance import pairwise_tests, performance
from lmkit.report.rank import rank_and_perplexity
from lmkit.report.runs_section import runs_section
from lmkit.report.training import averaging
from lmkit.runs.analysis_files import write_analysis
from lmkit.runs.folder import RunFolder
from lmkit.runs.result import publish_result
from lmkit.runs.selection import select_runs

PUBLISHED_CONTEXTS = 82429
RANDOM_SEEDS = range(1, 11)


def study_of(root: Path, baseline: str = "softmax") -> Study:
    """The one study of the runs in a folder."""
    (study,), _ = studies(select_runs("runs", str(root)).runs, baseline, experiment_config, Files())
    return study


def tables(section) -> dict[str, Table]:
    return {block.key: block for block in section.blocks if isinstance(block, Table)}


def performance_tables(study: Study) -> dict[str, Table]:
    return tables(performance(study))


def cells(table: Table) -> list[dict[str, str]]:
    """The rows' texts by their columns' names."""
    names = [column.name for column in table.columns]
    return [dict(zip(names, [cell.text for cell in row], strict=True)) for row in table.rows]


def test_another_learning_rate_is_told_and_has_no_deviation(tmp_path, make_run):
    make_run(tmp_path, 1, 736.0, options={"optimizer.lr": 5, "trunk.input_dropout": 0},
             contexts=PUBLISHED_CONTEXTS)  # fmt: skip
    make_run(tmp_path, 1, 60.0, transform="gss", contexts=PUBLISHED_CONTEXTS)
    published = performance_tables(study_of(tmp_path))["published"]
    deviations = {(row["head"], row["measure"]): row["deviation, published sd"]
                  for row in cells(published)}  # fmt: skip
    assert deviations["Softmax", "test perplexity"] == "–"
    assert deviations["GSS", "test perplexity"] == "21.4"
    (note,) = published.notes
    assert note.startswith("Softmax is not penn_softmax as published")
    assert "trunk.input_dropout=0 (0.4); optimizer.lr=5 (20)" in note


@pytest.mark.parametrize("contexts", [10000, PUBLISHED_CONTEXTS])
def test_table_1_shows_published_ranks_at_equal_contexts_and_says_what_differs(
    tmp_path, make_run, contexts
):
    make_run(tmp_path, 1, contexts=contexts)
    make_run(tmp_path, 1, 55.0, 9981, mixture="softmaxes", contexts=contexts,
             options={"optimizer.lr": 5})  # fmt: skip
    table = performance_tables(study_of(tmp_path))["rank_and_difference"]
    baseline, row = cells(table)
    assert (baseline["head"], baseline["rank, ours"]) == ("Softmax", "402")
    assert baseline["baseline − head, ours"] == "–"
    assert row["baseline − head, ours"] == "2.00"
    assert "the opposite of that in the table Against the baseline" in table.caption
    assert ("rank, reproduced" in row) == (contexts == PUBLISHED_CONTEXTS)
    assert row["baseline − head, reproduced"] == "1.28"
    assert "MoS is not penn_mos as published" in table.notes[0]
    assert ("82,429 contexts" in table.notes[-1]) == (contexts != PUBLISHED_CONTEXTS)


def test_the_first_table_says_that_its_p_is_not_corrected(tmp_path, make_run):
    make_run(tmp_path, 1)
    assert "not corrected" in performance_tables(study_of(tmp_path))["performance"].caption


def test_numbers_of_components_compare_with_the_published_experiment(tmp_path, make_run):
    for experts in (5, 15):
        make_run(tmp_path, 1, 57.0, 9000, "softmaxes", trigger="nt", contexts=PUBLISHED_CONTEXTS,
                 changes={"mixture.num_experts": experts})  # fmt: skip
    make_run(tmp_path, 1)
    table = tables(mixtures(study_of(tmp_path)))["experts"]
    assert " Published: " in table.caption
    assert [row["rank, published"] for row in cells(table)] == ["8,057", "9,979"]
    assert table.notes == []
    assert "one seed each" in table.caption
    for experts in (5, 15):
        make_run(tmp_path / "b", 1, 57.0, 9000, "softmaxes", trigger="nt",
                 changes={"mixture.num_experts": experts},
                 options={"trunk.hidden_dropout": 0.5})  # fmt: skip
    make_run(tmp_path / "b", 1)
    table = tables(mixtures(study_of(tmp_path / "b")))["experts"]
    assert not any("rank, published" in row for row in cells(table))  # of 10,000 contexts here
    unlike, _ = table.notes
    assert unlike.startswith("MoS (K=5) and MoS (K=15) are not penn_mos_nt as published")
    assert unlike.endswith(": trunk.hidden_dropout=0.5 (0.225)")


def test_mixtures_beside_none_that_was_published_name_no_source(tmp_path, make_run):
    for experts in (5, 15):
        make_run(tmp_path, 1, 57.0, 9000, "softmaxes", trigger="et",
                 changes={"mixture.num_experts": experts})  # fmt: skip
    make_run(tmp_path, 1)
    table = tables(mixtures(study_of(tmp_path)))["experts"]
    assert "Published" not in table.caption
    assert table.notes == []


@pytest.mark.parametrize("rates", [(20,), (20, 5)])
def test_mixtures_of_one_name_and_trigger_have_their_labels(tmp_path, make_run, rates):
    for lr in rates:
        for experts in (5, 15):
            make_run(tmp_path, 1, 57.0, 9000, "softmaxes", trigger="nt",
                     changes={"mixture.num_experts": experts},
                     options={"optimizer.lr": lr})  # fmt: skip
    make_run(tmp_path, 1)
    table = tables(mixtures(study_of(tmp_path)))["experts"]
    names = [row["head"] for row in cells(table)]
    if len(rates) == 1:
        assert names == ["MoS", "MoS"]
    else:
        assert len(set(names)) == 4
        of_lr_5 = [name for name in names if "lr 5" in name]
        assert table.notes[0].startswith(f"{' and '.join(of_lr_5)} are not penn_mos_nt as pub")


@pytest.mark.parametrize("rates", [(20,), (20, 5)])
def test_heads_of_one_name_and_trigger_have_their_labels(tmp_path, make_run, rates):
    for lr in rates:
        for trigger in ("et", "nt"):
            make_run(tmp_path, 1, trigger=trigger, options={"optimizer.lr": lr})
    (table,) = averaging(study_of(tmp_path)).blocks
    names = [row["head"] for row in cells(table)]
    if len(rates) == 1:
        assert names == ["Softmax", "Softmax"]
    else:
        assert len(set(names)) == 4
        (note,) = table.notes
        et, nt = (name for name in names if "lr 5" in name)
        assert note.startswith(f"{et} and {nt} are not penn_softmax and penn_softmax_nt as pub")


def test_the_averaging_table_says_what_differs(tmp_path, make_run):
    for trigger in ("et", "nt"):
        make_run(tmp_path, 1, trigger=trigger, options={"windows.batch_size": 40})
    study = study_of(tmp_path)
    (table,) = averaging(study).blocks
    (note,) = table.notes
    assert note.startswith("Softmax (ET 200) and Softmax (NT 5) are not penn_softmax and penn_soft")
    assert note.endswith("compare: what all runs here differ in (said at the top)")
    assert "windows.batch_size=40 (20)" in study.said
    assert not any("rank, published" in row for row in cells(table))  # of 10,000 contexts here


@pytest.fixture(scope="module")
def eleven_seeds(tmp_path_factory, make_run) -> tuple[Path, dict[tuple[str, int], float]]:
    """Two heads of eleven seeds, whose perplexities share what the seed gives; and these."""
    root, rng, perplexities = tmp_path_factory.mktemp("runs"), np.random.default_rng(2), {}
    for seed in (141, *RANDOM_SEEDS):
        of_seed = rng.normal(57, 0.3)
        for head, offset in (("identity", 0.1), ("gss", 0.0)):
            ppl = of_seed + offset + rng.normal(0, 0.02)
            make_run(root, seed, ppl, transform=head)
            perplexities[head, seed] = ppl
    return root, perplexities


def test_published_tests_stand_beside_ours_of_ten_seeds(eleven_seeds):
    root, _ = eleven_seeds
    study = study_of(root)
    published = performance_tables(study)["published"]
    shown = {row["measure"]: row for row in cells(published) if row["head"] == "GSS"}
    p = shown["p, Student, 10 random seeds"]
    assert (p["seeds"], p["published"]) == ("10", "0.262")
    over_ten = study.groups[1].against.ten_seeds.p_student
    assert p["ours"] == f"{over_ten:.3f}"
    assert shown["test perplexity"]["seeds"] == "11"
    assert shown["test perplexity, 10 random seeds"]["published"] == "57.02 ± 0.13"


def test_the_published_p_with_softmax_stands_beside_no_other_baseline(eleven_seeds, make_run):
    root, _ = eleven_seeds
    for baseline in ("softmax", "gss"):
        rows = cells(performance_tables(study_of(root, baseline))["published"])
        heads = [row["head"] for row in rows if row["measure"].startswith("p, Student")]
        assert heads == (["GSS"] if baseline == "softmax" else [])


def test_paired_tests_stand_beside_the_unpaired(eleven_seeds):
    root, _ = eleven_seeds
    study = study_of(root)
    for table in (performance_tables(study)["significance"],
                  tables(pairwise_tests(study))["pairs"]):  # fmt: skip
        (row,) = cells(table)
        assert (row["shared seeds"], row["seeds"]) == ("11", "11 / 11")
        assert float(row["p, Student"]) > 0.05
        assert float(row["p, paired t"].replace("−", "-")) < 1e-4
        assert row["95 % interval, method"].endswith("(BCa bootstrap)")


def grid_runs(make_run, root: Path, points, seeds=(1,), contexts=PUBLISHED_CONTEXTS, **options):
    rng = np.random.default_rng(0)
    for c, k in points:
        for seed in seeds:
            make_run(root, seed, 57 + 0.1 * rng.normal(), int(rng.integers(400, 9000)),
                     transform="gss", changes={"transform.c": c, "transform.k": k},
                     contexts=contexts, **options)  # fmt: skip
    make_run(root, 1, contexts=contexts)


def whole_grid() -> list[tuple[float, float]]:
    grid = published_section("rank_and_perplexity")["penn"]
    return [(c, k) for c in grid["c"] for k in grid["k"]]


def correlations(root: Path) -> Table | None:
    section = rank_and_perplexity(study_of(root), None)
    return tables(section).get("correlation")


def test_seeds_of_one_point_are_no_correlation(tmp_path, make_run):
    grid_runs(make_run, tmp_path, [(-1.5, 2.5)], seeds=(1, 2, 3))
    section = rank_and_perplexity(study_of(tmp_path), None)
    assert section.blocks == []
    assert any(line.startswith("fewer than three points (c, k)") for line in section.missing)


def test_correlations_count_points_and_runs_and_stand_within_heads(tmp_path, make_run):
    grid_runs(make_run, tmp_path, whole_grid()[:4], seeds=(1, 2, 3))
    table = correlations(tmp_path)
    counts = {(row["groups"], row["test perplexities"]): (row["points"], row["runs"])
              for row in cells(table)}  # fmt: skip
    assert counts["GSS over (c, k)", "all"] == ("4", "12")
    assert counts["all heads, pooled", "all"] == ("5", "13")
    assert counts["within heads (1)", "all"] == ("4", "12")
    said = answer(study_of(tmp_path))
    assert said.headline == "These 5 groups cannot tell whether a higher rank does better."
    over, within = said.sentences
    assert over.startswith("Over 5 groups (13 runs), Press rank and test perplexity have Pearson's")
    assert re.search(r"r = 0\.\d\d \(95 % interval −\S+ … \S+\) and .* ρ = 0\.\d\d \(p 0", over)
    assert within.startswith("Among the settings of one head, 4 points of 1 head, r = ")
    assert "95 % interval of ρ, bootstrap" not in cells(table)[0]
    assert cells(table)[0]["p of ρ"] != "–"
    assert any("below 10 points exact" in note for note in table.notes)


def test_heads_are_correlated_by_their_means_where_one_has_several_points(tmp_path, make_run):
    make_run(tmp_path, 1, 58.0, 402)
    make_run(tmp_path, 1, 56.0, 9981, mixture="softmaxes")
    make_run(tmp_path, 1, 57.5, 300, transform="outside")
    assert "between heads" not in [row["groups"] for row in cells(correlations(tmp_path))]
    for c, ppl, rank in ((-1, 56.5, 5000), (0, 57.5, 6000)):
        make_run(tmp_path, 1, ppl, rank, transform="gss", changes={"transform.c": c})
    make_run(tmp_path, 2, 57.5, 6000, transform="gss", changes={"transform.c": 0})
    r = stats.pearsonr([402, 9981, 300, 6000], [58.0, 56.0, 57.5, 57.5]).statistic
    (row,) = [row for row in cells(correlations(tmp_path)) if row["groups"] == "between heads"]
    assert (row["points"], row["runs"]) == ("4", "5")
    assert row["Pearson's r"] == f"{r:.3f}".replace("-", "−")
    over, *_ = answer(study_of(tmp_path)).sentences
    assert over.startswith("Over 4 heads (5 runs; one group per head, 4 of 5), ")
    assert f"r = −{-r:.2f} (95 % interval" in over


def test_only_the_whole_grid_is_the_published_grid(tmp_path, make_run):
    grid_runs(make_run, tmp_path / "whole", whole_grid())
    table = correlations(tmp_path / "whole")
    assert cells(table)[0]["r, published"] == "0.48"
    grid_runs(make_run, tmp_path / "part", whole_grid()[:6], contexts=10000,
              options={"optimizer.lr": 5})  # fmt: skip
    table = correlations(tmp_path / "part")
    assert not any("r, published" in row for row in cells(table))
    assert table.notes[-1].endswith(
        "6 of its 72 points; ranks over 10,000 contexts (82,429); optimizer.lr=5 (20)"
    )


@pytest.mark.parametrize("window", [None, (56.5, 57.8)])
def test_the_published_r_within_a_window_stands_beside_the_published_window_alone(
    tmp_path, make_run, window
):
    *points, (c, k) = whole_grid()
    grid_runs(make_run, tmp_path, points)
    make_run(tmp_path, 1, 60.0, 5000, transform="gss", contexts=PUBLISHED_CONTEXTS,
             changes={"transform.c": c, "transform.k": k})  # fmt: skip
    section = rank_and_perplexity(study_of(tmp_path), window)
    rows = cells(tables(section)["correlation"])
    shown = [row["r, published"] for row in rows if row["groups"] == "GSS over (c, k)"]
    assert shown == ["0.48", "0.24" if window is None else "–"]


def test_a_window_by_outcome_says_so_and_has_no_interval(tmp_path, make_run):
    grid_runs(make_run, tmp_path, whole_grid()[:9])
    section = rank_and_perplexity(study_of(tmp_path), (56.9, 57.1))
    table = tables(section)["correlation"]
    rows = {(row["groups"], row["test perplexities"]): row for row in cells(table)}
    row = rows["GSS over (c, k)", "56.9 to 57.1, by outcome"]
    assert row["Pearson's r"] != "–"
    assert row["95 % interval of r, Fisher"] == row["p of ρ"] == "–"
    assert any("leaves points out by test perplexity itself" in note for note in table.notes)


def test_captions_of_means_say_from_how_many_seeds(tmp_path, make_run):
    grid_runs(make_run, tmp_path, [(c, k) for c in (-1, 0) for k in (2, 2.5)])
    make_run(tmp_path, 2, transform="gss", changes={"transform.c": 0, "transform.k": 2},
             contexts=PUBLISHED_CONTEXTS)  # fmt: skip
    section = rank_and_perplexity(study_of(tmp_path), None)
    captions = [block.caption for block in section.blocks if not isinstance(block, Table)]
    assert len(captions) == 3
    assert all("1 to 2 seeds each, 3 of 4 of a single one" in caption for caption in captions[1:])


@pytest.mark.parametrize("ranked", [0, 2, 3])
def test_a_point_without_a_rank_is_told_from_one_that_was_not_run(tmp_path, make_run, ranked):
    points = [(-1, 2), (-1, 2.5), (0, 2), (0, 2.5)]
    for i, (c, k) in enumerate(points):
        make_run(tmp_path, 1, 57.0, 5000 + i if i < ranked else None, transform="gss",
                 changes={"transform.c": c, "transform.k": k})  # fmt: skip
    for seed in (1, 2):
        make_run(tmp_path, seed)
    section = rank_and_perplexity(study_of(tmp_path), None)
    captions = {block.key: block.caption for block in section.blocks}
    assert "not run" not in captions["grid_perplexity"]
    if ranked == 0:
        assert "grid_rank" not in captions
        return
    lack = {2: "2 points of the grid have", 3: "1 point of the grid has"}[ranked]
    assert captions["grid_rank"].endswith(f"{lack} no rank over so many contexts (–).")


def test_captions_of_ranks_count_the_runs_that_have_one(tmp_path, make_run):
    for c in (-1, 0, 1):
        changes = {"transform.c": c}
        make_run(tmp_path, 1, 57.0 + c, 5000 + c, transform="gss", changes=changes)
        make_run(tmp_path, 2, 57.0 + c, None, transform="gss", changes=changes)
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, rank=None)
    section = rank_and_perplexity(study_of(tmp_path), None)
    blocks = {block.key: block for block in section.blocks}
    assert "one seed each" in blocks["rank_gss"].caption


def test_a_run_with_other_columns_hides_nothing_and_the_page_warns(tmp_path, make_run):
    make_run(tmp_path, 0, options={"windows.test_batch_size": 10}, sizes=(10000, 82420), name="a")
    make_run(tmp_path, 1, 57.1)
    study = study_of(tmp_path)
    first, *_ = answer(study).notes
    assert first.startswith("Warning: a-")
    rows = cells(performance_tables(study)["published"])
    deviations = {row["head"]: row["deviation, published sd"] for row in rows
                  if row["measure"] == "test perplexity"}  # fmt: skip
    assert sorted(deviations.values()) == ["0.2", "–"]


@pytest.mark.parametrize("all_contexts", [82429, 5000])
def test_published_divergence_is_of_the_whole_split_and_of_the_same_experiment(
    tmp_path, make_run, all_contexts
):
    run = make_run(tmp_path, 1, options={"optimizer.lr": 5})
    measured = {"split": "test", "num_contexts": 5000, "all_contexts": all_contexts, "exact": 4.9}
    write_analysis(RunFolder(run), "divergence_test_5000", measured, kind="divergence",
                   schema_version=1, checkpoint="best", averaged=True)  # fmt: skip
    (section,) = Divergence.sections(study_of(tmp_path), Files())
    table = tables(section)["divergence"]
    (row,) = cells(table)
    assert ("Published" in table.caption) == (all_contexts == 5000)
    assert row.get("published, whole split") == (None if all_contexts == 82429 else "4.763")
    assert ["optimizer.lr=5 (20)" in note for note in table.notes] == (
        [] if all_contexts == 82429 else [True]
    )


def test_the_table_of_ranks_says_what_differs(tmp_path, make_run):
    make_run(tmp_path, 1, options={"optimizer.lr": 5}, contexts=PUBLISHED_CONTEXTS)
    (section,) = Rank.sections(study_of(tmp_path), Files())
    (note,) = tables(section)[f"ranks_{PUBLISHED_CONTEXTS}"].notes
    assert "optimizer.lr=5 (20)" in note


def test_a_gap_is_said_to_be_from_training_with_dropout(tmp_path, make_run):
    for count in (5, 15):
        make_run(tmp_path, 1, mixture="softmaxes", changes={"mixture.num_experts": count})
    make_run(tmp_path, 1)
    section = mixtures(study_of(tmp_path))
    assert any("generalisation gap" in column.name for column in section.blocks[0].columns)
    assert "training perplexity is with dropout" in section.intro


def test_time_and_memory_stand_beside_what_the_papers_say(tmp_path, make_run):
    make_run(tmp_path, 1)
    make_run(tmp_path, 1, mixture="softmaxes")
    make_run(tmp_path, 1, transform="gss", options={"optimizer.lr": 5})
    table = performance_tables(study_of(tmp_path))["cost"]
    rows = {row["head"]: row for row in cells(table)}
    assert rows["MoS"]["Parthiban et al. 2021, table 2"] == "1.82"  # 100 / 55
    assert rows["MoS"]["Ganea et al. 2019, results"] == "2.50"  # 150 / 60
    assert rows["MoS"]["remark on time"] == "2 to 6.4 times"
    assert rows["MoS"]["s / epoch, times"] == "1.00"
    assert rows["GSS"]["remark on time"] == "–"
    make_run(tmp_path, 1, mixture="softmaxes", changes={"mixture.num_experts": 5})
    of_k = {row["head"]: row for row in cells(performance_tables(study_of(tmp_path))["cost"])}
    assert of_k["MoS (K=15)"]["remark on time"] == "2 to 6.4 times"
    assert of_k["MoS (K=5)"]["remark on time"] == "–"  # it is of 15 components
    assert " Remarks: " in table.caption
    (note,) = table.notes
    assert note.startswith("GSS is not penn_gss as published")
    table = performance_tables(study_of(tmp_path, "gss"))["cost"]
    assert not any("remark on time" in row for row in cells(table))
    assert "Remarks" not in table.caption


def test_the_noises_of_table_15_are_named_until_they_are_measured(tmp_path, make_run):
    run = make_run(tmp_path, 1)
    study = study_of(tmp_path)
    for noises in ([1e-20], [1e-2, 1e-20, 1e-32]):
        noise = [{"c": c, "press_rank": 10, "effective_rank": {}} for c in noises]
        write_analysis(RunFolder(run), "press_robustness", {"noise": noise, "true_rank": 10},
                       kind="press_robustness", schema_version=1, checkpoint="best",
                       averaged=True)  # fmt: skip
        (section,) = PressRobustness.sections(study, Files())
        lines = [line for line in section.missing if "table 15" in line]
        assert len(lines) == (1 if len(noises) == 1 else 0)
        assert all(line.endswith("'noise=[0.01,1e-32]'") for line in lines)
        (table, *_) = section.blocks
        assert "table 15 (c from 0.01 to 1e-32)" in table.caption


def test_of_several_configurations_the_robustness_section_says_which_it_shows(tmp_path, make_run):
    content = {"noise": [{"c": 0.1, "press_rank": 10, "effective_rank": {}}], "true_rank": 10}
    for transform, k in (("identity", None), ("outside", None), ("gss", 2.0), ("gss", 2.5)):
        changes = None if k is None else {"transform.k": k}
        run = make_run(tmp_path, 1, 57.0 - (k or 0), transform=transform, changes=changes)
        write_analysis(RunFolder(run), "press_robustness", content, kind="press_robustness",
                       schema_version=1, checkpoint="best", averaged=True)  # fmt: skip
    (section,) = PressRobustness.sections(study_of(tmp_path), Files())
    table, drawing = section.blocks
    assert [row["head"] for row in cells(table)] == ["Softmax", "GSS", "Cube"]
    for block in (table, drawing):
        assert block.caption.endswith("Shown: GSS (k=2.5). 1 further group is not among them."), (
            block.caption
        )


def test_a_head_alone_has_no_table_against_a_baseline(tmp_path, make_run):
    make_run(tmp_path, 1, 57.0)
    assert "significance" not in performance_tables(study_of(tmp_path))
    make_run(tmp_path, 1, 56.0, transform="gss")
    assert len(performance_tables(study_of(tmp_path))["significance"].rows) == 1


def test_every_two_groups_that_differ_in_more_than_the_head_are_named(tmp_path, make_run):
    for seed in (1, 2):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        make_run(tmp_path, seed, 56.0 + 0.1 * seed, transform="gss")
        make_run(tmp_path, seed, 55.0 + 0.1 * seed, transform="outside",
                 options={"optimizer.lr": 5})  # fmt: skip
    (table,) = (
        block for block in pairwise_tests(study_of(tmp_path)).blocks if block.key == "pairs"
    )
    assert table.notes == [
        "Softmax and Cube; GSS and Cube: the runs differ in more than the head: optimizer.lr"
    ]


def test_each_run_says_over_how_many_contexts_its_rank_is(tmp_path, make_run):
    make_run(tmp_path, 1, 57.0, 402, contexts=10000)
    make_run(tmp_path, 2, 57.0, 440, contexts=PUBLISHED_CONTEXTS)
    blocks = runs_section(study_of(tmp_path)).blocks
    (table,) = (block for block in blocks if block.key == "runs")
    ranks = [(row["Press rank"], row["over contexts"]) for row in cells(table)]
    assert ranks == [("402", "10,000"), ("440", "82,429")]


def test_of_runs_some_of_which_never_switched_the_others_are_counted(tmp_path, make_run):
    make_run(tmp_path, 1, 57.0)
    for seed in (1, 2):
        run = RunFolder(make_run(tmp_path, seed, 57.0, trigger="nt"))
    result = run.read_result()
    del result.metrics["switched_after"]
    run.result.unlink()
    publish_result(run.result, result)
    (table,) = averaging(study_of(tmp_path)).blocks
    by_trigger = {row["trigger"]: row["switched after epoch"] for row in cells(table)}
    assert by_trigger == {"ET 200": "1", "NT 5": "1 (1 of 2 seeds)"}
