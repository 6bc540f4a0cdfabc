"""What a chapter begins with, of hand-made runs whose differences and correlations are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from markupsafe import escape
from scipy import stats

from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import Study, studies
from lmkit.comparison.points import correlations
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError
from lmkit.presentation.tables import decimal
from lmkit.report.answer import Answer, answer
from lmkit.report.contents import make_report
from lmkit.report.performance import pairwise_tests
from lmkit.report.training import order_over_epochs
from lmkit.runs.checksums import checked_json, parse_json
from lmkit.runs.selection import select_runs


def study_of(root: Path) -> Study:
    runs = select_runs("runs", str(root)).runs
    (study,), _ = studies(runs, "softmax", experiment_config, Files())
    return study


def answer_of(root: Path) -> Answer:
    return answer(study_of(root))


def correlated(root: Path) -> dict[str, object]:
    study = study_of(root)
    return {each.name: each for each in correlations(study, study.contexts)}


def verdicts(said: Answer) -> dict[str, str]:
    """What the figure of verdicts says of each head."""
    (axes,) = said.drawings[-1].figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    return dict(zip(labels, [text.get_text() for text in axes.texts], strict=True))


def test_each_head_has_its_difference_its_interval_and_a_verdict(tmp_path, make_run):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        make_run(tmp_path, seed, 56.95 + 0.1 * seed, transform="gss")
        make_run(tmp_path, seed, 54.0 + 0.1 * seed, mixture="softmaxes")
        make_run(tmp_path, seed, 59.0 + 0.1 * seed, transform="outside")
    make_run(tmp_path, 1, 58.0, trigger="nt")  # one seed: no verdict
    said = answer_of(tmp_path)
    assert verdicts(said) == {
        "MoS": "−3.00  (−3.23 … −2.77)  lower",
        "GSS": "−0.05  (−0.28 … 0.18)  undecided",
        "Cube": "2.00  (1.77 … 2.23)  higher",
    }
    rule = said.notes[0]
    assert "below 0.05 after Holm's correction for 3 groups" in rule
    assert "does not mean that there is no difference" in rule


def test_a_verdict_on_more_than_the_head_says_so(tmp_path, make_run):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        make_run(tmp_path, seed, 56.0 + 0.1 * seed, transform="gss", options={"optimizer.lr": 5})
    make_run(tmp_path, 1, 58.0, mixture="softmaxes", options={"optimizer.lr": 10})  # no verdict
    said = answer_of(tmp_path)
    assert verdicts(said)["GSS"].endswith("lower")
    assert said.notes[1] == (
        "GSS: from the baseline the runs differ in more than the head: optimizer.lr."
    )


def test_an_interval_that_holds_0_makes_no_verdict_whatever_p_is(tmp_path, make_run):
    # below 0.001 by Student's test, which takes variances for equal, and 0.2 by Welch's
    for seed, ppl in enumerate((57.0, 57.01, 57.0, 57.01, 57.0, 57.01), 1):
        make_run(tmp_path, seed, ppl)
    for seed, ppl in enumerate((55.9, 56.4), 1):
        make_run(tmp_path, seed, ppl, transform="gss")
    (gss,) = [group.against for group in study_of(tmp_path).groups if group.against]
    assert gss.p_holm < 0.05
    assert gss.unpaired.low < 0 < gss.unpaired.high
    assert verdicts(answer_of(tmp_path))["GSS"].endswith("undecided")


def test_of_many_groups_the_most_certain_are_shown_and_the_rest_are_counted(tmp_path, make_run):
    for seed in (1, 2):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        for i in range(14):
            changes = {"transform.c": float(i)}
            make_run(tmp_path, seed, 57.0 - i + 0.1 * seed, transform="gss", changes=changes)
    said = answer_of(tmp_path)
    shown = verdicts(said)
    assert len(shown) == 12
    assert "GSS (c=13)" in shown
    assert "GSS (c=0)" not in shown
    assert "Of 2 more in the table Against the baseline: " in said.drawings[-1].caption


def test_runs_that_were_best_at_their_last_epoch_are_counted(tmp_path, make_run):
    for seed, max_epochs in ((1, 2), (2, 2), (3, 50)):  # all were best at epoch 2
        make_run(tmp_path, seed, 57.0 + seed, options={"max_epochs": max_epochs})
    (sentence,) = answer_of(tmp_path).notes
    assert sentence == (
        "2 of 3 runs were best at the last epoch that max_epochs allows: their training may have "
        "ended too early."
    )


def test_runs_whose_learning_rate_falls_until_their_last_epoch_are_best_there_as_a_rule(
    tmp_path, make_run
):
    for seed, epochs in ((1, 2), (2, 50)):
        options = {"max_epochs": 2, "schedule.epochs": epochs}
        make_run(tmp_path, seed, 57.0 + seed, options=options)
    (sentence,) = answer_of(tmp_path).notes
    assert sentence.startswith("1 of 2 runs was best at the last epoch")


def test_coefficients_of_different_signs_show_no_tendency(tmp_path, make_run):
    heads = ({}, {"transform": "gss"}, {"transform": "outside"}, {"mixture": "softmaxes"})
    for head, ppl, rank in zip(heads, (57.0, 56.0, 55.0, 70.0), (400, 500, 600, 700), strict=True):
        make_run(tmp_path, 1, ppl, rank, **head)
    said = answer_of(tmp_path)
    assert "Their signs differ" not in said.sentences[0]  # 0.8 and 0.2
    for head, ppl, rank in zip(heads, (57.0, 56.0, 55.0, 56.5), (400, 500, 600, 9000), strict=True):
        make_run(tmp_path / "others", 1, ppl, rank, **head)
    said = answer_of(tmp_path / "others")
    assert said.sentences[0].endswith("Their signs differ, so not even a tendency is visible.")


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, 402),
        ({"head.tie_weights": False, "trunk.out_dim": 300}, 302),
        ({"head.tie_weights": False, "head.decoder_rank": 20}, 22),
    ],
)
def test_the_softmax_bound_is_that_of_the_decoder(tmp_path, make_run, options, bound):
    make_run(tmp_path, 1, 57.0, options=options)
    assert f"Dotted: the softmax bound, {bound}." in answer_of(tmp_path).drawings[0].caption


def test_a_run_is_faint_only_where_its_head_has_a_mean(tmp_path, make_run):
    for seed in (1, 2):
        make_run(tmp_path, seed, 57.0 + seed)
    make_run(tmp_path, 1, 56.0, transform="gss")
    drawing = answer_of(tmp_path).drawings[0]
    (axes,) = drawing.figure.axes
    drawn = [points.get_alpha() for points in axes.collections if len(points.get_offsets())]
    assert drawn.count(0.35) == 1  # Softmax's two runs
    assert drawn.count(1) == 1  # GSS's only run
    assert "the runs of their heads are faint" in drawing.caption


def labels_of_ranks(said: Answer) -> list[str]:
    (axes,) = said.drawings[0].figure.axes
    return sorted(text.get_text() for text in axes.texts)


def test_up_to_three_groups_of_one_head_are_named_each(tmp_path, make_run):
    for seed in (1, 2):
        make_run(tmp_path, seed, 59.0 + 0.1 * seed, 402)
        for i in range(3):
            options = {"head.transform.c": float(i)}
            at = 57.0 - i + 0.1 * seed, 1000 + 900 * i
            make_run(tmp_path, seed, *at, transform="gss", options=options)
    each = [f"GSS (c={c})" for c in (0, 1, 2)]
    assert labels_of_ranks(answer_of(tmp_path)) == [*each, "Softmax"]
    for seed in (1, 2):
        options = {"head.transform.c": 3.0}
        make_run(tmp_path, seed, 53.0 + 0.1 * seed, 4000, transform="gss", options=options)
    assert labels_of_ranks(answer_of(tmp_path)) == ["GSS", "Softmax"]


def test_the_answer_is_yes_only_where_interval_and_p_agree(tmp_path, make_run):
    heads = ({}, {"transform": "gss"}, {"transform": "outside"}, {"mixture": "softmaxes"})
    for i, head in enumerate(heads):
        make_run(tmp_path, 1, 60.0 - i, 1000 + 1000 * i + 10 * (i % 2), **head)
    said = answer_of(tmp_path)  # in perfect order, but of four heads p is 0.083
    assert said.headline == "These 4 heads cannot tell whether a higher rank does better."
    assert "(p 0.083)" in said.sentences[0]
    for i, transform in enumerate(("gss", "outside", "identity")):
        make_run(tmp_path, 1, 55.0 - i, 6000 + 1000 * i, "softmaxes", transform,
                 changes={"mixture.num_experts": 20})  # fmt: skip
    said = answer_of(tmp_path)
    assert said.headline == "Yes: heads with a higher rank have a lower perplexity here."
    assert said.sentences[0].startswith("Over 6 heads (6 runs; one group per head, 6 of 7), ")


def test_a_training_that_failed_stands_apart_everywhere(tmp_path, make_run):
    perplexities, ranks = [58.0, 57.0, 56.0, 59.0], [402, 9000, 8000, 5000]
    make_run(tmp_path, 1, perplexities[0], ranks[0])
    for k, ppl, rank in zip((1.5, 2.0), perplexities[1:3], ranks[1:3], strict=True):
        make_run(tmp_path, 1, ppl, rank, transform="gss", changes={"transform.k": k})
    make_run(tmp_path, 1, perplexities[3], ranks[3], transform="outside")
    without = correlated(tmp_path)
    failed = make_run(tmp_path, 1, 690.0, 1, "softmaxes")
    study = study_of(tmp_path)
    assert [group.label for group in study.failed] == ["MoS, failed"]
    assert study.groups[-1].against is None
    first, *_ = answer(study).notes
    assert first.startswith("1 run has more than twice the median test perplexity")
    assert first.endswith(f": MoS ({failed.name}).")
    found = correlated(tmp_path)
    pooled = found["all heads, pooled"]
    assert pooled.found == without["all heads, pooled"].found
    assert pooled.found.pearson == pytest.approx(stats.pearsonr(ranks, perplexities).statistic)
    assert pooled.note == "1 group of failed training left out"


def test_a_seed_that_failed_leaves_its_group_and_stands_in_a_row_of_its_own(tmp_path, make_run):
    for seed, ppl in ((1, 57.0), (2, 57.2), (3, 57.1)):
        make_run(tmp_path, seed, ppl)
        make_run(tmp_path, seed, 690.0 if seed == 3 else ppl - 1, transform="gss")
    study = study_of(tmp_path)
    assert {group.label: len(group.runs) for group in study.groups} == {
        "Softmax": 3, "GSS": 2, "GSS, failed": 1,
    }  # fmt: skip
    assert study.groups[1].spread("test_ppl").mean == pytest.approx(56.1)


def test_within_a_head_a_training_that_failed_does_not_count(tmp_path, make_run):
    make_run(tmp_path, 1, 57.5)
    for i, ppl in enumerate((57.0, 56.9, 56.7)):
        make_run(tmp_path, 1, ppl, 5000 + i, transform="gss", changes={"transform.k": 2.0 + i})
    without = correlated(tmp_path)
    make_run(tmp_path, 1, 690.0, 9, transform="gss", changes={"transform.k": 9.0})
    found = correlated(tmp_path)
    assert found["within heads (1)"].within == without["within heads (1)"].within
    assert found["within heads (1)"].within.n == 3


def test_groups_that_failed_stand_in_no_figure_test_or_order(tmp_path, make_run):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        make_run(tmp_path, seed, 56.0 + 0.1 * seed, transform="gss")
        if seed < 3:
            make_run(tmp_path, seed, 690.0, mixture="softmaxes")
    make_run(tmp_path, 1, 58.0, mixture="softmaxes", trigger="nt")
    study = study_of(tmp_path)
    assert [group.label for group in study.failed] == ["MoS (ET 200), failed"]
    shown, note = study.shown(8)
    assert [group.label for group in shown] == ["Softmax", "GSS", "MoS"]
    assert note == " Shown: MoS (NT 5)."
    (pairs,) = pairwise_tests(study).blocks
    assert [[cell.text for cell in row[:2]] for row in pairs.rows] == [["Softmax", "GSS"]]
    (order,) = order_over_epochs(study, Files())
    assert "Of 3 pairs of groups" in order.caption
    assert order.rows[-1][0].text == "MoS (ET 200), failed"


def test_within_a_head_points_differ_in_the_head_alone(tmp_path, make_run):
    """Another learning rate moves perplexity and rank; c does neither."""
    for lr, ppl, rank in ((20, 57.0, 9000), (5, 80.0, 400)):
        for c in (-1.0, 0.0, 1.0):
            changes = {"transform.c": c}
            make_run(tmp_path, 1, ppl + 0.1 * c**2, rank + 10 * c, transform="gss",
                     changes=changes, options={"optimizer.lr": lr})  # fmt: skip
    make_run(tmp_path, 1, 58.0)
    (within,) = [each for name, each in correlated(tmp_path).items() if "within" in name]
    assert within.name == "within heads (2)"
    assert within.within.n == 6
    assert within.within.pearson == pytest.approx(0, abs=1e-9)


def say_finetuned(run: Path, trained: Path) -> None:
    """Makes a run one that goes on from another."""
    identity = parse_json((trained / "result.json").read_bytes())["identity"]
    file = run / "identity.json"
    content = parse_json(file.read_bytes())
    content["settings"]["finetuned_from"] = {"identity": identity, "weights_sha256": "w"}
    file.write_bytes(checked_json(content))


def test_within_a_head_one_stage_of_training_counts(tmp_path, make_run):
    make_run(tmp_path, 1, 57.5)
    for i in range(3):
        head = {"transform": "gss", "changes": {"transform.k": 2.0 + i}}
        trained = make_run(tmp_path, 1, 57.0 - i, 5000 + i, **head)
        say_finetuned(make_run(tmp_path, 1, 50.0 + i, 5000 + i, **head, name="tuned"), trained)
    (within,) = [each for name, each in correlated(tmp_path).items() if "within" in name]
    assert (within.within.n, within.within.sets) == (3, 1)
    assert within.within.pearson == pytest.approx(-1)


def test_of_trained_and_finetuned_runs_one_stage_counts(tmp_path, make_run):
    heads = ({}, {"transform": "gss"}, {"transform": "outside"}, {"mixture": "softmaxes"},
             {"mixture": "softmaxes", "transform": "gss"})  # fmt: skip
    for i, head in enumerate(heads):
        trained = make_run(tmp_path, 1, 60.0 - i, 1000 + 900 * i, **head)
        say_finetuned(
            make_run(tmp_path, 2, 58.0 - i, 1500 + 900 * i, **head, name="tuned"), trained
        )
    found = correlated(tmp_path)
    assert found["all heads, pooled"].found.n == 5
    assert "5 groups finetuned left out" in found["all heads, pooled"].note
    assert not any("within" in name for name in found)  # a stage is no setting of a head


def test_runs_with_the_same_digits_count_once(tmp_path, make_run):
    make_run(tmp_path, 1, 58.0, 402)
    make_run(tmp_path, 1, 57.0, 5000, transform="gss", changes={"transform.c": 1.0})
    make_run(tmp_path, 1, 56.0, 6000, mixture="softmaxes")
    assert correlated(tmp_path)["all heads, pooled"].found.n == 3
    make_run(tmp_path, 1, 57.0, 5000, transform="outside")  # computes what GSS does
    pooled = correlated(tmp_path)["all heads, pooled"]
    assert pooled.found.n == 3
    assert pooled.note.startswith("Cube left out: the same digits")


def test_between_heads_is_over_one_configuration_a_head_and_says_which(tmp_path, make_run):
    for seed in (1, 2):
        make_run(tmp_path, seed, 58.0 + 0.1 * seed, 402)
        make_run(tmp_path, seed, 57.0 + 0.1 * seed, 5000, transform="gss")
    make_run(tmp_path, 1, 50.0, 9999, transform="gss", changes={"transform.c": 1.0})
    make_run(tmp_path, 1, 56.0, 6000, mixture="softmaxes")
    between = correlated(tmp_path)["between heads"]
    assert [point.rank for point in between.points] == [402, 5000, 6000]
    assert between.note.startswith("one configuration of each head: of those trained as")
    r = decimal(between.found.pearson, 2)
    assert f"r = {r}" in answer_of(tmp_path).sentences[0]


def test_between_heads_those_count_that_were_trained_as_most_heads_are(tmp_path, make_run):
    make_run(tmp_path, 1, 58.0, 402)
    make_run(tmp_path, 1, 56.0, 6000, transform="outside")
    make_run(tmp_path, 1, 57.0, 5000, transform="gss")
    for seed in (1, 2):
        make_run(tmp_path, seed, 50.0, 9000, transform="gss", options={"optimizer.lr": 5})
    between = correlated(tmp_path)["between heads"]
    assert [point.rank for point in between.points] == [402, 5000, 6000]
    assert between.note.endswith("; all trained alike")


def test_a_training_that_failed_is_nobodys_baseline(tmp_path, make_run):
    for seed in (1, 2):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        make_run(tmp_path, seed, 56.0 + 0.1 * seed, transform="gss", trigger="nt")
        make_run(tmp_path, seed, 690.0, trigger="nt")  # differs from GSS in the head alone
    (gss,) = [group for group in study_of(tmp_path).groups if group.head.family == "gss"]
    assert gss.against.baseline.label == "Softmax (ET 200)"


def test_heads_on_one_fixed_trunk_are_said_to_be_so(tmp_path, make_run):
    def told() -> bool:
        return any("of a fixed trunk" in each for each in answer_of(tmp_path).sentences)

    make_run(tmp_path, 1, 60.0, trunk="fixed trunk")
    make_run(tmp_path, 1, 58.0, 5000, "softmaxes", trunk="fixed trunk")
    assert told()
    make_run(tmp_path, 1, 59.0, 5000, transform="gss")
    assert not told()


def test_runs_without_the_baselines_head_are_shown_and_one_sentence_says_what_is_not(
    tmp_path, make_run, analyses
):
    for seed in (1, 2):
        make_run(tmp_path / "runs", seed, 57.0 + 0.1 * seed, 8000, transform="gss")
        make_run(tmp_path / "runs", seed, 55.0 + 0.1 * seed, 9000, mixture="softmaxes")
    runs = select_runs("runs", str(tmp_path / "runs")).runs
    how = {"analyses": analyses, "experiments": experiment_config, "window": None}
    make_report(runs, baseline="softmax", out=tmp_path / "report", **how)
    said = [note for note in answer_of(tmp_path / "runs").notes if "baseline" in note]
    assert said == [
        "No run here has the baseline's head, softmax, so no difference from it, test against "
        "it or relative cost is shown; baseline= takes gss, mos."
    ]
    page = (tmp_path / "report" / "index.html").read_text()
    assert escape(said[0]) in page
    rows = (tmp_path / "report" / "tables" / "penn_performance.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["head", "GSS", "MoS"]
    assert "p, Student" not in rows[0]
    make_run(tmp_path / "runs", 1)  # with it, nothing is missing
    assert not any("No run here" in note for note in answer_of(tmp_path / "runs").notes)


def test_a_baseline_that_is_no_head_is_an_error_that_names_those_there(tmp_path, make_run):
    make_run(tmp_path, 1, transform="gss")
    runs = select_runs("runs", str(tmp_path)).runs
    with pytest.raises(UserError, match=r"baseline=gsss is the head of no run.*gss"):
        studies(runs, "gsss", experiment_config, Files())
