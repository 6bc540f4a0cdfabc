"""What the page says of runs made by hand, among them ones that could be mistaken for others."""

import math
import os
import re
import shutil
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from lmkit.analyses.divergence import Divergence, PairwiseRecord
from lmkit.analyses.embeddings import Embeddings
from lmkit.analyses.press_robustness import PressRobustness, RanksUnderNoise
from lmkit.analyses.rank import Rank, Ranks
from lmkit.cli.finetune import published_config
from lmkit.cli.report import _require_published
from lmkit.errors.user_error import UserError
from lmkit.report import curves, first_screen, tables
from lmkit.report.contents import _models, make_report, measurements
from lmkit.report.tables import cell_text
from lmkit.results.against import against_baseline, points
from lmkit.results.frame import results
from lmkit.results.groups import grouped
from lmkit.runs.analysis_files import write_analysis
from lmkit.runs.checksums import checked_json
from lmkit.runs.folder import RunFolder
from tests.results.forging import change

pytestmark = pytest.mark.usefixtures("undrawn")
SOFTMAX, GSS = (57.10, 57.15, 57.20), (56.30, 56.37, 56.41)


def page_of(root: Path, out: Path, **how) -> str:
    written = make_report(
        results(str(root)),
        **{"analyses": [], "compose": published_config, "baseline": "softmax"} | how,
        out=out,
        title="Heads",
    )
    return written.page.read_text()


@pytest.fixture
def runs(tmp_path, make_run) -> Path:
    """Softmax and GSS over three seeds, as published but for their numbers."""
    for seed, (softmax, gss) in enumerate(zip(SOFTMAX, GSS, strict=True), 1):
        make_run(tmp_path / "runs", seed, softmax)
        make_run(tmp_path / "runs", seed, gss, 8900, transform="gss")
    return tmp_path / "runs"


def cells(html: str) -> dict[str, str]:
    """The cells of the first screen's table, by head."""
    table = html[html.index("<table") : html.index("</table>")]
    rows = re.findall(r"<th [^>]*row_heading[^>]*>([^<]*)</th>\s*<td([^>]*)>([^<]*)</td>", table)
    return {head: f"{attributes} {text}" for head, attributes, text in rows}


@pytest.mark.slow
def test_the_first_screen_has_the_difference_and_what_was_published(runs, tmp_path):
    html = page_of(runs, tmp_path / "out")
    welch = stats.ttest_ind(GSS, SOFTMAX, equal_var=False)
    low, high = (f"{value:.2f}".replace("-", "−") for value in welch.confidence_interval(0.95))
    gss = cells(html)["GSS"]
    assert "−0.79" in gss
    assert f"{low} … {high}" in gss
    assert "valid −0.79" in gss
    assert "better" in gss  # one comparison: Holm's p is Welch's
    assert welch.pvalue < 0.05
    assert "GSS (−0.79) does better than Softmax (57.15)." in html
    assert "valid 59.15" in cells(html)["Softmax"]
    assert "published test" in html
    assert "57.08 ± 0.09" in html  # Parthiban et al. 2021, table 2
    (table,) = (tmp_path / "out" / "tables").glob("*_groups.csv")
    assert "57.08 ± 0.09" in table.read_text("utf-8")
    assert ">the same<" in html
    assert "Perplexity against rank" not in html  # of two heads
    assert "Perplexities are per subword." not in html


def test_of_values_in_several_papers_the_papers_own_are_taken(tmp_path, make_run):
    """Softmax with NT-ASGD: valid 60.83 in Ganea et al. 2019, which has no train, and 60.35 in
    Parthiban et al. 2021, with 34.05 on train.
    """
    make_run(tmp_path / "runs", trigger="nt")
    html = page_of(tmp_path / "runs", tmp_path / "out", paper="Ganea et al. 2019, results")
    assert ">60.83<" in html
    assert "60.35" not in html
    assert "34.05" not in html
    assert (
        "Published: Ganea et al. 2019, results (parameters, s / epoch (V100), valid, test)." in html
    )
    assert "Softmax, as published: AWD-LSTM of Merity et al. 2017, with NT-ASGD; configu" in html
    other = page_of(tmp_path / "runs", tmp_path / "other", paper="Parthiban et al. 2021, table 6")
    assert ">34.05<" in other


def test_a_table_of_variants_has_its_own_row_of_an_experiment_that_others_name(tmp_path, make_run):
    """MoS with K = 15 and NT-ASGD on PTB, without a name of its own in the supplement's tables."""
    make_run(tmp_path / "runs", mixture="softmaxes", trigger="nt", contexts=82_429)
    paper = "Parthiban et al. 2021, figure 6; supplement, tables 4 and 5"
    html = page_of(tmp_path / "runs", tmp_path / "out", baseline="mos", paper=paper)
    said = "supplement, tables 4 and 5 (parameters, train, test, Press rank)"
    assert f"Published: Parthiban et al. 2021, {said}" in html
    assert "58.21" not in html  # valid, of another table
    assert ">22M<" not in html
    assert "Grey: trainings by others, mos_ptb" in html  # under the experiment's name alone


def test_a_p_in_print_is_that_of_its_two_experiments():
    kinds = {"one": "penn_lms_plif", "other": "penn_lms_plif_frozen"}
    seeds = [{"group": g, "seed": s, "test_ppl": 57 + s / 9} for g in kinds for s in range(11)]
    against = pd.DataFrame({"baseline": {"one": None, "other": "one"}, "head_label": kinds})
    beside = pd.DataFrame({"experiment": kinds, "reported_seed": 0})
    (note,) = tables._ten_seeds(pd.DataFrame(seeds), against, beside)
    assert note.endswith("(published: 0.826).")


def test_what_analyses_measured_stands_beside_what_was_published(tmp_path, make_run):
    """The similarity of words: 0.4299 for MEN and Softmax on PTB (Parthiban et al. 2021)."""
    runs = [make_run(tmp_path / "runs"), make_run(tmp_path / "runs", transform="gss")]
    found = {"MEN": 0.44, "WS-353": None, "other": 0.2}
    vectors = {"emb_dim": 400, "has_words": True, "components_75": 1, "components_95": 2}
    vectors |= {"mean_spearman": 0.44, "spearman": found, "pairs": {}, "skipped": {}}
    for run in runs:
        about = {"schema_version": Embeddings.version, "kind": Embeddings.name}
        write_analysis(RunFolder(run), "embeddings", about | vectors)
    paper = "Parthiban et al. 2021, figure 4; supplement, tables 3 and 13"
    html = page_of(tmp_path / "runs", tmp_path / "out", analyses=[Embeddings], paper=paper)
    assert ">0.44 (0.4299)<" in html
    assert ">0.44 (0.4355)<" in html
    assert "In brackets what was published: Parthiban et al. 2021, supplement, table 3." in html
    assert "0.2 (" not in html


def test_what_was_measured_over_other_contexts_is_not_beside_what_was_published(tmp_path, make_run):
    """Yang et al. 2018, table 5: a divergence of 4.869 over all of PTB's valid text."""
    folder = RunFolder(make_run(tmp_path / "runs"))
    about = {"schema_version": Divergence.version, "kind": Divergence.name}
    whole = {"split": "valid", "num_contexts": 73_759, "all_contexts": 73_759, "num_words": 10_000}
    whole |= {"exact": 4.5, "sampled": 4.5, "sampled_standard_error": 0.1, "num_pairs": 9}
    for stem, found in {
        "divergence_valid_73759": whole,
        "divergence_valid_73759_last": whole | {"exact": 3.5},
        "divergence_valid_9000": whole | {"exact": 2.5, "num_contexts": 9_000},
    }.items():
        write_analysis(folder, stem, about | found)
    html = page_of(tmp_path / "runs", tmp_path / "out", analyses=[Divergence])
    assert ">4.5 (4.869)<" in html
    assert "As published: the paper does not say which trigger." in html
    for kind, record in ((Rank, Ranks), (PressRobustness, RanksUnderNoise)):
        of_part = record.model_construct(
            split="valid",
            matrix="log_probs",
            num_contexts=2_000,
            all_contexts=73_759,
            noise=[1e-20],
        )
        assert kind.in_print(of_part) == {}


def test_ranks_stand_beside_the_published_over_as_many_contexts(tmp_path, make_run):
    """Parthiban et al. 2021, table 6, at its number of contexts."""
    make_run(tmp_path / "runs", contexts=82_429)
    make_run(tmp_path / "runs", transform="gss", contexts=82_429)
    html = page_of(tmp_path / "runs", tmp_path / "out")
    assert "published Press rank" in html
    for epsilon, rank in (("3", 52), ("4", 201), ("5", 306)):
        assert f"published 1e−{epsilon}-effective rank" in html
        assert html.count(f">{rank}<") == 3  # of two heads, and published


def test_one_heads_variants_are_points_over_rank_beside_the_published_correlation(
    tmp_path, make_run
):
    for c in range(4):
        for rate in (20, 5):
            options = {"head.transform.c": float(c), "optimizer.lr": rate}
            ppl = 76 + c - rate
            make_run(tmp_path / "runs", 1, ppl, 400 + c, transform="gss", options=options)
    html = page_of(tmp_path / "runs", tmp_path / "out", baseline="gss")
    assert "A point is a variant of the head." in html
    assert "That of the rank itself is 1.00 (published: 0.48, one seed a point; 0.24, test" in html
    assert ">c=0, rate 20<" in html  # of the variant that stands for the head
    of_grid = grouped(results(str(tmp_path / "runs")), "gss")[0]
    of_grid.index = ["of several folders"] * len(of_grid)
    of_grid = points(of_grid)
    assert of_grid["test_ppl"].to_list() == [56, 57, 58, 59]


def test_a_setting_of_the_baselines_variants_alone_has_a_sentence(tmp_path, make_run):
    for seed, ppl in enumerate(SOFTMAX, 1):
        make_run(tmp_path / "runs", seed, ppl)
        make_run(tmp_path / "runs", seed, ppl + 1, options={"head.tie_weights": False})
    html = page_of(tmp_path / "runs", tmp_path / "out")
    assert "All heads are the baseline's; Softmax (tie weights) (57.15) is lowest" in unescape(html)


def test_holms_p_is_over_the_whole_table(runs, tmp_path, make_run):
    p = stats.ttest_ind(GSS, SOFTMAX, equal_var=False).pvalue
    for c in range(3):
        for seed, ppl in enumerate(SOFTMAX, 1):
            make_run(runs, seed, ppl + 0.001 * c, transform="gss", options={"head.transform.c": c})
    page_of(runs, tmp_path / "out")
    rows = pd.read_csv(tmp_path / "out" / "tables" / "answer_heads.csv").dropna(subset="p_welch")
    lowest = rows.loc[rows["p_welch"].idxmin()]
    assert lowest["p_welch"] == pytest.approx(p)
    assert lowest["p_holm"] == pytest.approx(min(1, len(rows) * p))


def test_a_baseline_that_the_table_does_not_show_is_told(runs, tmp_path, make_run):
    """A head that was trained otherwise is compared with the baseline that was trained so too."""
    otherwise = {"windows.batch_size": 80}
    for seed in (1, 2):
        make_run(runs, seed, 70.0 + seed, options=otherwise)
        make_run(runs, seed, 60.0 + seed, transform="outside", options=otherwise)
    html = page_of(runs, tmp_path / "out")
    assert "−10.00*‡" in cells(html)["Cube"]
    assert "Cube (−10.00‡)" in html
    assert "‡ Compared with a baseline trained alike: Cube with 71.50." in html
    assert "‡" not in cells(html)["GSS"]
    (table,) = (tmp_path / "out" / "tables").glob("*_groups.csv")
    rows = pd.read_csv(table, index_col=0)["baseline_ppl"]
    assert rows[rows.index.str.startswith("Cube")].to_list() == [71.5]


def test_a_head_trained_otherwise_than_the_baseline_is_marked_in_the_sentence(
    runs, tmp_path, make_run
):
    for seed, ppl in enumerate(SOFTMAX, 1):
        otherwise = {"windows.batch_size": 80}
        make_run(runs, seed, ppl + 3, transform="outside", options=otherwise)
    html = page_of(runs, tmp_path / "out")
    assert "+3.00*†" in cells(html)["Cube"]
    assert "Cube (+3.00†) does worse" in html


def test_each_head_without_a_test_has_its_reason(runs, tmp_path, make_run):
    make_run(runs, 1, 56.0, mixture="softmaxes")
    for seed in (1, 2):
        make_run(runs, seed, 50.0, transform="outside", options={"max_epochs": 900})
    html = page_of(runs, tmp_path / "out")
    assert "Cube has no test (another training); MoS has no test (one seed)." in html


def test_seeds_without_a_difference_are_the_reason(tmp_path, make_run):
    for seed in (1, 2):
        make_run(tmp_path / "runs", seed)
        make_run(tmp_path / "runs", seed, 56.0, transform="gss")
    assert "GSS has no test (no seed differs)." in page_of(tmp_path / "runs", tmp_path / "out")


def test_ranks_are_of_as_many_runs_as_can_be(tmp_path, make_run):
    for transform in ("identity", "gss"):
        for seed in (1, 2, 3):
            more = {"contexts": 82429} if seed == 3 else {}
            make_run(tmp_path / "runs", seed, 400 + seed, 400 + seed, transform=transform, **more)
        searched = {"transform": transform, "contexts": 2000, "options": {"optimizer.lr": 3}}
        for seed in range(9):
            make_run(tmp_path / "runs", seed, 900.0, 99, **searched)
    runs, _ = grouped(results(str(tmp_path / "runs")))
    assert against_baseline(runs)["rank"].to_list() == [401.5, 401.5]
    html = page_of(tmp_path / "runs", tmp_path / "out")
    assert "Ranks are over 10,000 contexts of the test split." in html
    best = html[html.index("Heads at their best rates") : html.index("rates that were searched")]
    assert "Press rank" in best


def test_a_baseline_of_one_seed_is_the_reason_of_heads_of_several(tmp_path, make_run):
    make_run(tmp_path / "runs")
    for seed in (1, 2):
        make_run(tmp_path / "runs", seed, 56.0 + seed, transform="gss")
    html = page_of(tmp_path / "runs", tmp_path / "out")
    assert "GSS has no test (the baseline has one seed)." in html
    assert "\nthe baseline has one seed\n" in cells(html)["GSS"]


def test_of_two_baselines_the_one_that_others_are_compared_with_is_named(tmp_path, make_run):
    for seed, ppl in enumerate(SOFTMAX, 1):
        make_run(tmp_path / "runs", seed, ppl + 13, options={"head.tie_weights": False})
        make_run(tmp_path / "runs", seed, ppl)
        make_run(tmp_path / "runs", seed, ppl + 3, transform="gss")
    html = page_of(tmp_path / "runs", tmp_path / "out")
    assert "GSS (+3.00) does worse than Softmax (tie weights) (57.15)." in html


def test_heads_of_a_setting_without_the_baseline_have_their_own_perplexities(tmp_path, make_run):
    for seed, ppl in enumerate(SOFTMAX, 1):
        make_run(tmp_path / "runs", seed, ppl, transform="gss")
        make_run(tmp_path / "runs", seed, ppl + 1, transform="outside")
    html = page_of(tmp_path / "runs", tmp_path / "out")
    assert "No run of the baseline's head counts; GSS is lowest, at 57.15." in unescape(html)
    assert "57.15 ± 0.05\n3 seeds\nvalid 59.15" in cells(html)["GSS"]
    assert "other training" not in html
    make_run(tmp_path / "runs", 1, 50.0, mixture="softmaxes", options={"max_epochs": 900})
    html = page_of(tmp_path / "runs", tmp_path / "out")
    assert "No run of the baseline's head counts; GSS is lowest, at 57.15." in unescape(html)
    assert "(50.00)\nother training, one seed" in cells(html)["MoS"]
    for seed in (1, 2):  # no longer one that most share
        make_run(tmp_path / "other", seed, 60.0, transform="gss")
    make_run(tmp_path / "other", 1, 50.0, mixture="softmaxes", options={"max_epochs": 900})
    html = page_of(tmp_path / "other", tmp_path / "out")
    assert "MoS is lowest, at 50.00." in unescape(html)
    assert "other training" not in html


def test_a_setting_of_one_head_has_its_section_beside_settings_that_compare(
    runs, tmp_path, make_run
):
    make_run(runs, 1, 91.25, sizes=(33278, 245569), transform="gss")
    *_, last = page_of(runs, tmp_path / "out").split("<h2")
    assert "1 run of 1 group" in last
    assert "91.25" in last


def test_panels_of_two_corpora_have_two_titles(runs, tmp_path, make_run):
    for sizes in ((10000, 82429), (33278, 245569)):
        for transform in ("identity", "gss", "outside"):
            make_run(runs, 9, 60.0, sizes=sizes, transform=transform)
    titles = draws(runs, tmp_path).split(" | ")
    assert len(titles) == len(set(titles)) == 2


@pytest.mark.parametrize(
    ("c", "label"), [(-2.0, "GSS (c=−2)"), (-1.5000001, "GSS (c=−1.5000001)"), (None, "GSS")]
)
def test_heads_of_a_setting_are_told_apart_whatever_class_another_setting_has(
    tmp_path, make_run, c, label
):
    for seed in (1, 2):
        for its_c in (-1.5, c):
            options = {"head.transform.c": its_c}
            make_run(tmp_path / "runs", seed, transform="gss", options=options)
        options = {"head.transform": {"_target_": "mine.GSS"}}
        sizes = (33278, 245569)
        make_run(tmp_path / "runs", seed, sizes=sizes, transform="gss", options=options)
        make_run(tmp_path / "runs", seed, sizes=sizes)
        make_run(tmp_path / "runs", seed)
    html = page_of(tmp_path / "runs", tmp_path / "out")
    assert set(cells(html)) == {"Softmax", "GSS (c=−1.5)", label, "GSS"}


def test_perplexities_per_subword_are_called_so_on_a_fixed_trunk_too(tmp_path, make_run):
    for transform in ("identity", "gss"):
        options = {"data.text": {"tokenizer": "bpe"}}
        make_run(tmp_path / "fixed", 1, sizes=(1000, 154785), transform=transform, options=options)
    assert "Perplexities are per subword." in page_of(tmp_path / "fixed", tmp_path / "out")


def measured_divergence(folder: Path, *variants: str) -> None:
    for variant in variants:
        record = PairwiseRecord(
            split=variant, num_contexts=2000, all_contexts=2000, num_words=9, exact=7.1,
            sampled=7.0, sampled_standard_error=None, num_pairs=1000,
        )  # fmt: skip
        about = {"kind": "divergence", "schema_version": Divergence.version}
        stem = f"divergence_{variant}"
        write_analysis(RunFolder(folder), stem, about | record.model_dump())


def test_what_was_measured_otherwise_than_others_is_told_apart(tmp_path):
    heads = {head: tmp_path / head for head in ("Softmax", "GSS")}
    measured_divergence(heads["Softmax"], "test_2000")
    measured_divergence(heads["GSS"], "test_2000", "test_2000_last")
    ((table,), _) = measurements(heads, [Divergence], {})
    of_gss = ["GSS (test 2000)", "GSS (test 2000 last)"]
    assert list(table.text.index) == ["Softmax (test 2000)", *of_gss]


def test_a_damaged_file_hides_no_other_and_those_of_models_of_one_name_are_both_named(tmp_path):
    models = {name: tmp_path / name / "gpt2" for name in "ab"}
    for path in models.values():
        measured_divergence(path, "test_1000", "test_2000")
        (path / "analysis" / "divergence_test_1000.json").write_text("{")
    left_out: dict[str, str] = {}
    ((table,), _) = measurements(models, [Divergence], left_out)
    assert table.text.index.to_list() == ["a", "b"]
    second = models["b"] / "analysis"
    assert list(left_out) == ["gpt2, divergence_test_1000", f"{models['b']}, divergence_test_1000"]
    assert str(second) in left_out[f"{models['b']}, divergence_test_1000"]


def test_what_cannot_be_drawn_is_named_and_its_table_stays(tmp_path, monkeypatch):
    measured_divergence(tmp_path, "test_2000")
    monkeypatch.setattr(Divergence, "caption", "a figure", raising=False)
    monkeypatch.setattr(Divergence, "draw", lambda axes, measured: measured[0].arrays["lost"])
    left_out = {}
    tables, figures = measurements({"Softmax": tmp_path}, [Divergence], left_out)
    assert (len(tables), figures) == (1, [])
    assert left_out == {"divergence, its figure": "it cannot be drawn: KeyError('lost')"}


def test_what_another_seed_was_measured_by_is_on_the_page(runs, tmp_path):
    best = results(str(runs)).sort_values("test_ppl").iloc[0]  # the median one is shown
    measured_divergence(Path(best["folder"]), "test_2000")
    assert "Pairwise divergence" in page_of(runs, tmp_path / "out", analyses=[Divergence])


def test_what_was_measured_of_two_models_of_one_name_is_told_apart_and_has_its_texts(tmp_path):
    models = [RunFolder(tmp_path / place / "gpt2") for place in "ab"]
    measured_divergence(models[0].path, "a.txt_2000", "a.txt_2000@1f0c52ab")
    measured_divergence(models[1].path, "a.txt_2000")
    (table,) = _models(models, [Divergence], {}).tables
    names = ["gpt2 (a.txt 2000)", "gpt2 (a.txt 2000@1f0c52ab)", "gpt2 #2 (a.txt 2000)"]
    assert list(table.text.index) == names


def test_seeds_are_no_points_of_the_correlation(runs, tmp_path, make_run):
    make_run(runs, 1, 56.0, 9981, mixture="softmaxes")
    make_run(runs, 1, 56.5, 3000, transform="outside")
    figure = draws(runs, tmp_path)
    expected = stats.pearsonr(
        [math.log(rank) for rank in (402, 8900, 9981, 3000)], [57.15, sum(GSS) / 3, 56.0, 56.5]
    )
    assert f"r = {expected.statistic:.2f}".replace("-", "−") in figure


def test_what_the_table_does_not_compare_is_no_point(runs, tmp_path, make_run):
    make_run(runs, 1, 56.0, 9981, mixture="softmaxes")
    make_run(runs, 1, 56.5, 3000, mixture="softmaxes", transform="outside")
    before = draws(runs, tmp_path)
    assert "r = " in before
    longer = {"max_epochs": 2000}
    make_run(runs, 1, 10.0, 20, mixture="softmaxes", transform="gss", options=longer)
    otherwise = {"windows.batch_size": 80}  # compared with a baseline that the table does not show
    make_run(runs, 1, 70.0, options=otherwise)
    make_run(runs, 1, 10.0, 20, transform="outside", options=otherwise)
    assert draws(runs, tmp_path) == before


def draws(runs: Path, tmp_path: Path) -> str:
    """The titles of the panels of rank and perplexity."""
    table, _ = grouped(results(str(runs)))
    drawn = first_screen.rank_and_perplexity(against_baseline(table))
    return " | ".join(axes.get_title() for axes in drawn.figure.axes)


def test_ranks_over_other_contexts_stand_in_no_column_with_others(runs, tmp_path, make_run):
    make_run(runs, 1, 56.0, 9981, mixture="softmaxes", contexts=500)
    page_of(runs, tmp_path / "out")
    rows = pd.read_csv(tmp_path / "out" / "tables" / "answer_heads.csv").set_index("head_label")
    assert rows.loc["GSS", "rank"] == 8900
    assert pd.isna(rows.loc["MoS", "rank"])


FORGED = {
    "failed": ({"ppl": 150.0}, None, "Failed, in groups of their own: Softmax, failed."),
    "damaged": ({}, lambda run: (run / "result.json").write_text("{"), "result.json is damaged"),
    "other rate": ({"options": {"optimizer.lr": 5}}, None, "1 further group:"),
    "other code": (
        {},
        lambda run: change(run, "result.json", lambda c: c["provenance"]["git"].update(dirty=True)),
        "1 run came from a working tree with changes that no commit has",
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_what_is_not_a_run_like_the_others_is_told_from_them(runs, tmp_path, make_run, forged):
    how, edit, said = FORGED[forged]
    run = make_run(runs, 4, **how)
    if edit:
        edit(run)
    html = page_of(runs, tmp_path / "out")
    assert said in html
    if forged != "other code":  # whose runs count
        assert "GSS (−0.79) does better than Softmax (57.15)." in html


def test_what_is_not_as_published_is_told(runs, tmp_path, make_run):
    make_run(runs, 1, 55.0, 9981, "softmaxes", options={"optimizer.lr": 5})
    html = page_of(runs, tmp_path / "out")
    assert "published Press rank" not in html  # ours are over 10,000 contexts
    assert "1 option<" in html
    assert "MoS not as published: optimizer.lr 5 (20)." in html


def test_spectra_are_drawn_beside_ranks_over_more_contexts(tmp_path, make_run):
    run = make_run(tmp_path / "runs")
    more = {"schema_version": 1, "kind": "rank", "split": "test", "checkpoint": "best"}
    more |= {"spectrum": {"num_contexts": 82429, "press_rank": 402, "effective_rank": {}}}
    (run / "analysis" / "rank_test_log_probs_82429.json").write_bytes(checked_json(more))
    assert "Over 10,000 contexts" in page_of(tmp_path / "runs", tmp_path / "out")


def test_the_papers_test_over_ten_seeds_stands_beside_theirs(tmp_path, make_run):
    ppls = {"identity": [], "gss": []}
    for seed in (141, *range(10)):  # 141 is the seed of the run that was reported
        for transform, mean in (("identity", 57.1), ("gss", 57.0)):
            ppl = 50.0 if seed == 141 else mean + 0.02 * (seed * 7 % 10)
            make_run(tmp_path / "runs", seed, ppl, transform=transform)
            ppls[transform] += [ppl] * (seed != 141)
    html = page_of(tmp_path / "runs", tmp_path / "out")
    p = stats.ttest_ind(ppls["gss"], ppls["identity"]).pvalue
    said = f"over the seeds drawn at random: GSS {p:.3f} (published: 0.262)."
    assert f"Student&#39;s p against Softmax {said}" in html
    assert "11 seeds" in cells(html)["Softmax"]


def test_the_papers_test_takes_the_baseline_that_the_head_is_compared_with(tmp_path, make_run):
    for seed in range(10):
        for transform, mean in (("identity", 57.1), ("gss", 57.0), ("outside", 57.0)):
            # Cube could train longer, and is compared with none
            options = {"max_epochs": 900} if transform == "outside" else {}
            ppl = mean + 0.02 * (seed * 7 % 10)
            make_run(tmp_path / "runs", seed, ppl, transform=transform, options=options)
        worse = {"head.tie_weights": False}
        make_run(tmp_path / "runs", seed, 70.0 + 0.01 * seed, options=worse)
    html = page_of(tmp_path / "runs", tmp_path / "out")
    (said,) = re.findall(r"Student&#39;s p against [^<]*", html)
    assert said.startswith("Student&#39;s p against Softmax (tie weights) over the seeds")
    assert "Cube" not in said
    assert ";" not in said.partition(":")[2]  # but for GSS


def test_what_was_published_of_dynamic_evaluation_stands_beside_what_was_measured(
    tmp_path, make_run
):
    start = make_run(tmp_path / "runs", 28, mixture="softmaxes", trigger="nt", name="penn_mos_nt")
    finetuned = {
        "trigger": "asgd",
        "name": "penn_mos_nt_finetune",
        "options": {"finetuned_from": {"identity": start.name[-12:], "weights_sha256": "1"}},
    }
    run = make_run(tmp_path / "runs", 28, 54.6, mixture="softmaxes", **finetuned)
    make_run(tmp_path / "runs", 28, 57.0, **finetuned)  # not evaluated so
    options = {"lr": 0.002, "decay": 0.02, "epsilon": 0.001, "convention": "code"}
    content = {"schema_version": 1, "kind": "evaluate", "ppl": 47.9, "options": options}
    content["options"] |= {"length": 5, "batch_size": 100}
    (run / "analysis" / "evaluate_dynamic_test.json").write_bytes(checked_json(content))
    page_of(tmp_path / "runs", tmp_path / "out")
    latex = next((tmp_path / "out" / "tables").glob("*_groups.tex")).read_text()
    assert " test, dynamic " in latex
    assert " published test, dynamic " in latex
    assert "47.90" in latex  # ours
    assert "47.69" in latex  # Yang et al. 2018, table 1
    html = (tmp_path / "out" / "index.html").read_text()
    assert "test, dynamic: decay 0.02 (0.075)." in html
    assert html.count("test, dynamic: ") == 1


def test_a_mean_says_of_how_many_seeds_and_there_is_none_over_different_options(runs, tmp_path):
    windows = {"gss": (500, None, 500), "identity": (500, 2000, None)}
    for run in runs.glob("penn_small-*"):
        row = results(str(run)).iloc[0]
        window = windows["gss" if row["head"] == "GSS" else "identity"][row["seed"] - 1]
        content = {"schema_version": 1, "kind": "evaluate", "options": {"window": window}}
        content["ppl"] = 50.0 + row["seed"]
        if window:
            (run / "analysis/evaluate_cache_test.json").write_bytes(checked_json(content))
    html = page_of(runs, tmp_path / "out")
    assert "52.00 ± 1.41 (2 of 3)" in html
    assert "Seeds measured with different options have no mean: test, cache of Softmax." in html
    (of_groups,) = (tmp_path / "out/tables").glob("*_groups.csv")
    by_label = pd.read_csv(of_groups).set_index("label")
    counts = by_label["evaluate_cache_test.ppl count"].to_dict()
    assert counts == {"Softmax": 0, "GSS": 2}
    assert pd.isna(by_label.loc["Softmax", "evaluate_cache_test.ppl mean"])
    for file in runs.glob("*/analysis/evaluate_cache_test.json"):  # as search=true stores it
        change(
            file.parents[1],
            "analysis/evaluate_cache_test.json",
            lambda c: c.update(search_tokens=9),
        )
    assert "have no mean" not in page_of(runs, tmp_path / "out")


@pytest.mark.parametrize(
    ("title", "error"),
    [
        ("Yang et al. 2018, table 4", None),
        ("Yang et al. 2018, table 99", "Yang et al. 2018 has values of .*table 1"),
        ("Yang et al. 2018b", "must begin with one of Parthiban et al. 2021, "),
    ],
)
def test_a_paper_and_its_table_must_have_values(title, error):
    if error is None:
        _require_published(title)
        return
    with pytest.raises(UserError, match=error):
        _require_published(title)


def test_seconds_of_several_devices_are_told_apart(runs, tmp_path):
    for run in runs.glob("penn_small-*"):
        if results(str(run)).iloc[0]["head"] == "GSS":
            change(run, "identity.json", lambda c: c["settings"].update(device_kind="cuda"))
    html = unescape(page_of(runs, tmp_path / "out"))
    assert "Seconds an epoch are of different devices: cpu: Softmax; cuda: GSS." in html
    (of_groups,) = (tmp_path / "out/tables").glob("*_groups.csv")
    by_label = pd.read_csv(of_groups).set_index("head_label")
    assert by_label["device_kind"].to_dict() == {"Softmax": "cpu", "GSS": "cuda"}


def test_a_figure_that_is_there_is_not_made_a_pdf_again(runs, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("lmkit.report.page.to_pdf", lambda figure: drawn.append(figure) or b"pdf")
    page_of(runs, tmp_path)
    first = len(drawn)
    page_of(runs, tmp_path)
    assert len(drawn) == first > 1
    one, another = sorted((tmp_path / "figures").glob("*.svg"))[:2]
    one.write_text("of other runs")
    another.with_suffix(".pdf").unlink()
    page_of(runs, tmp_path)
    assert len(drawn) == first + 2
    assert another.with_suffix(".pdf").read_bytes() == b"pdf"
    assert one.read_text() != "of other runs"


def test_every_digit_is_in_the_csv_and_the_same_runs_give_the_same_bytes(runs, tmp_path):
    first, second = (tmp_path / name for name in ("a", "b"))
    page_of(runs, first)
    page_of(runs, second)
    for path in first.rglob("*.*"):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes(), path
    rows = pd.read_csv(first / "tables" / "answer_heads.csv").set_index("head_label")
    assert rows.loc["GSS", "test_ppl"] == pytest.approx(sum(GSS) / 3, rel=1e-15)
    (of_groups,) = (first / "tables").glob("*_groups.csv")
    by_label = pd.read_csv(of_groups).set_index("label")
    assert by_label.loc["GSS", "test_ppl mean"] == rows.loc["GSS", "test_ppl"]
    assert by_label.loc["GSS", "optimizer.lr"] == 20
    latex = next((first / "tables").glob("*_groups.tex")).read_text()
    assert r"\toprule" in latex


def test_a_report_leaves_no_files_of_an_earlier_one_beside_it_and_all_of_others(
    runs, tmp_path, make_run
):
    make_run(tmp_path / "more", 1, 60.0, trunk="Own", options={"trunk.hidden_dim": 300})
    make_run(tmp_path / "more", 1, 59.0, transform="gss", trunk="Own")
    out = tmp_path / "out"
    page_of(tmp_path / "more", out)
    (out / "figures" / "mine.svg").write_text("<svg/>")
    page_of(runs, out)
    page_of(runs, tmp_path / "new")
    there, new = (
        {path.relative_to(of) for path in of.rglob("*.*")} for of in (out, tmp_path / "new")
    )
    assert there - new == {Path("figures/mine.svg")}
    assert not new - there
    (out / "index.html").write_text('<p><a href="figures/mine.svg">SVG</a></p>')  # another's page
    page_of(runs, out)
    assert (out / "figures" / "mine.svg").exists()


def test_a_baseline_that_nobody_has_is_refused_with_those_there_are(runs, tmp_path):
    with pytest.raises(UserError, match=r"did you mean softmax.*gss"):
        page_of(runs, tmp_path / "out", baseline="sofmax")
    html = page_of(runs, tmp_path / "out", baseline="mos")
    assert "No run of the baseline's head counts" in unescape(html)


def test_no_run_is_an_error_with_the_reason(runs, tmp_path):
    for run in runs.iterdir():
        shutil.rmtree(run / "spectra")
        (run / "result.json").unlink()
    with pytest.raises(UserError, match=r"no run can be reported on: .*it has not finished"):
        page_of(runs, tmp_path / "out", left_out={"analysis/mine.json": "of no analysis"})


def test_names_that_are_long_or_no_utf8_are_written(runs, tmp_path, make_run):
    make_run(runs, 9, 91.25, trunk="長" * 100, transform="gss")
    page_of(runs.rename(tmp_path / os.fsdecode(b"m\xe9moire")), tmp_path / "out")
    assert b"m\xe9moire" in (tmp_path / "out/tables/runs.csv").read_bytes()


def test_large_numbers_have_commas():
    texts = {12345.678: "12,346", 9999.6: "10,000", 1234.56: "1,235", -3.0: "−3", 10**13: "1e+13"}
    assert {value: cell_text(value) for value in texts} == texts


def test_settings_whose_titles_differ_in_signs_alone_have_files_of_their_own(tmp_path, make_run):
    for trunk, dim in (("Own", 400), ("Own†", 300)):
        for seed, ppl in enumerate(SOFTMAX, 1):
            of_trunk = {"trunk": trunk, "options": {"trunk.hidden_dim": dim}}
            make_run(tmp_path / "runs", seed, ppl, **of_trunk)
            make_run(tmp_path / "runs", seed, ppl - dim / 400, transform="gss", **of_trunk)
    page_of(tmp_path / "runs", tmp_path / "out")
    texts = [path.read_text() for path in (tmp_path / "out").rglob("*own*groups*.csv")]
    assert len(texts) == len(set(texts)) == 2


def test_differences_on_valid_are_not_those_on_test(tmp_path, make_run):
    for seed, ppl in enumerate(SOFTMAX, 1):
        make_run(tmp_path / "runs", seed, ppl, valid=60.0 + seed)
        make_run(tmp_path / "runs", seed, ppl - 1, transform="gss", valid=65.0 + seed)
    gss = cells(page_of(tmp_path / "runs", tmp_path / "out"))["GSS"]
    assert "−1.00" in gss
    assert "valid +5.00" in gss


def test_the_baseline_that_is_named_is_lowest_on_valid(tmp_path, make_run):
    for seed, ppl in enumerate(SOFTMAX, 1):
        untied = {"head.tie_weights": False}
        make_run(tmp_path / "runs", seed, ppl + 13, valid=50.0, options=untied)
        make_run(tmp_path / "runs", seed, ppl)
        make_run(tmp_path / "runs", seed, ppl + 3, transform="gss")
    html = page_of(tmp_path / "runs", tmp_path / "out")
    assert re.search(r"than Softmax[^.;]* \(70\.15\)", html)


def test_error_bars_are_of_their_own_axis(runs, monkeypatch):
    drawn = []
    monkeypatch.setattr("matplotlib.axes.Axes.errorbar", lambda _, *of, **__: drawn.append(of))
    monkeypatch.setattr(first_screen, "_FEWEST", 2)
    first_screen.rank_and_perplexity(against_baseline(grouped(results(str(runs)))[0]))
    assert drawn[0] == pytest.approx((402, 57.15, 0.05, 0))


def test_the_run_of_median_perplexity_is_shown(runs):
    table, _ = grouped(results(str(runs)))
    shown = curves.representatives(table, against_baseline(table))
    assert {head: run["test_ppl"] for head, run in shown.items()} == {
        "Softmax": 57.15,
        "GSS": 56.37,
    }


def test_spectra_over_other_contexts_are_not_drawn_with_them(runs, make_run):
    make_run(runs, 1, 56.0, 9981, mixture="softmaxes", contexts=500)
    table, _ = grouped(results(str(runs)))
    shown = curves.representatives(table, against_baseline(table))
    (drawn,) = curves.spectra(shown, {})
    labels = {line.get_label() for axes in drawn.figure.axes for line in axes.get_lines()}
    assert labels >= {"Softmax", "GSS"}
    assert "MoS" not in labels


def test_the_curves_of_others_end_soon_after_ours(runs):
    table, _ = grouped(results(str(runs)))
    shown = curves.representatives(table, against_baseline(table))
    (drawn,) = curves.training(shown, {"penn_mos_nt"}, {})
    (axes,) = drawn.figure.axes
    last = {line.get_label(): max(line.get_xdata(), default=0) for line in axes.get_lines()}
    own = max(last.pop(head) for head in shown)
    assert max(last.values()) <= 1.5 * own


def test_parameters_are_in_thousands(runs, tmp_path):
    cost = results(str(runs)).iloc[0]["cost.parameters"]
    page_of(runs, tmp_path / "out")
    latex = next((tmp_path / "out" / "tables").glob("*_groups.tex")).read_text()
    assert f"& {cost / 1000:,.0f} &" in latex


def test_a_group_of_several_devices_is_told(runs, tmp_path):
    run = next(runs.glob("penn_small-*"))
    change(run, "identity.json", lambda c: c["settings"].update(device_kind="cuda"))
    assert "differ only in their seed, some also in device." in page_of(runs, tmp_path / "out")
