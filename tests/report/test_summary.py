"""What the first sentences of a corpus say of hand-made runs, whose differences are known."""

from __future__ import annotations

from pathlib import Path

from scipy import stats

from lmkit.cli.entry import experiment_config
from lmkit.comparison.baselines import with_baselines
from lmkit.comparison.groups import studies
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import decimal
from lmkit.report.summary import summary
from lmkit.runs.selection import select_runs


def sentences_of(root: Path) -> list[str]:
    (study,), _ = studies(select_runs("runs", str(root)).runs, "softmax", experiment_config)
    return summary(study, with_baselines(study), Files())


def test_each_head_has_its_difference_its_interval_its_seeds_and_a_verdict(tmp_path, make_run):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        make_run(tmp_path, seed, 56.95 + 0.1 * seed, transform="gss")
        make_run(tmp_path, seed, 54.0 + 0.1 * seed, mixture="softmaxes")
        make_run(tmp_path, seed, 59.0 + 0.1 * seed, transform="outside")
    make_run(tmp_path, 1, 58.0, trigger="nt")  # one seed: no verdict
    verdicts, rule, *_ = sentences_of(tmp_path)
    assert verdicts == (
        "Test perplexity minus that of the baseline, Softmax, with the 95 % interval (Welch's t): "
        "MoS −3.00 (−3.23 … −2.77; 3 / 3 seeds): lower; "
        "Cube +2.00 (1.77 … 2.23; 3 / 3 seeds): higher; "
        "GSS −0.05 (−0.28 … 0.18; 3 / 3 seeds): undecided."
    )
    assert "below 0.05 after Holm's correction for 3 heads" in rule
    assert "does not mean that there is no difference" in rule


def test_a_verdict_on_more_than_the_head_says_so(tmp_path, make_run):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        make_run(tmp_path, seed, 56.0 + 0.1 * seed, transform="gss", options={"optimizer.lr": 5})
    make_run(tmp_path, 1, 58.0, mixture="softmaxes", options={"optimizer.lr": 10})  # no verdict
    verdicts, _, unlike, *_ = sentences_of(tmp_path)
    assert verdicts.endswith(": lower.")
    assert unlike == "GSS: from the baseline the runs differ in more than the head: optimizer.lr."


def test_an_interval_that_holds_0_makes_no_verdict_whatever_p_is(tmp_path, make_run):
    # below 0.001 by Student's test, which takes variances for equal, and 0.2 by Welch's
    for seed, ppl in enumerate((57.0, 57.01, 57.0, 57.01, 57.0, 57.01), 1):
        make_run(tmp_path, seed, ppl)
    for seed, ppl in enumerate((55.9, 56.4), 1):
        make_run(tmp_path, seed, ppl, transform="gss")
    study = studies(select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config)[0][0]
    (gss,) = [each for each in with_baselines(study) if each.p_holm is not None]
    assert gss.p_holm < 0.05
    assert gss.comparison.low < 0 < gss.comparison.high
    assert sentences_of(tmp_path)[0].endswith("2 / 6 seeds): undecided.")


def test_of_many_heads_the_most_certain_come_first_and_the_rest_are_counted(tmp_path, make_run):
    for seed in (1, 2):
        make_run(tmp_path, seed, 57.0 + 0.1 * seed)
        for i in range(7):
            changes = {"transform.c": float(i)}
            make_run(tmp_path, seed, 57.0 - i + 0.1 * seed, transform="gss", changes=changes)
    verdicts = sentences_of(tmp_path)[0]
    assert verdicts.count("seeds)") == 5
    assert "(Welch's t): GSS (c=6) −6.00 (" in verdicts
    assert verdicts.endswith("; of 2 more in the table Against the baseline: 1 lower, 1 undecided.")


def test_runs_that_were_best_at_their_last_epoch_are_counted(tmp_path, make_run):
    for seed, max_epochs in ((1, 2), (2, 2), (3, 50)):  # all were best at epoch 2
        make_run(tmp_path, seed, 57.0 + seed, options={"max_epochs": max_epochs})
    (sentence,) = sentences_of(tmp_path)
    assert sentence == (
        "2 of 3 runs were best at the last epoch that max_epochs allows: their training may have "
        "ended too early."
    )


def test_a_training_that_failed_is_told_and_the_correlation_without_it(tmp_path, make_run):
    perplexities, ranks = [58.0, 57.0, 56.0, 59.0], [402, 9000, 8000, 5000]
    make_run(tmp_path, 1, perplexities[0], ranks[0])
    for k, ppl, rank in zip((1.5, 2.0), perplexities[1:3], ranks[1:3], strict=True):
        make_run(tmp_path, 1, ppl, rank, transform="gss", changes={"transform.k": k})
    make_run(tmp_path, 1, perplexities[3], ranks[3], transform="outside")
    assert not any("failed" in each for each in sentences_of(tmp_path))
    failed = make_run(tmp_path, 1, 690.0, 1, "softmaxes")
    *_, told, correlation, without = sentences_of(tmp_path)
    assert told == (
        "1 run has more than twice the median test perplexity, so its training may have failed; "
        f"all tables count it all the same: MoS ({failed.name})."
    )
    assert correlation.startswith("Over 5 groups ")
    heads = [402, 8500, 5000], [58.0, 56.5, 59.0]
    shown = [
        f"r = {decimal(stats.pearsonr(*of_these).statistic, 2)} and "
        f"ρ = {decimal(stats.spearmanr(*of_these).statistic, 2)}"
        for of_these in ((ranks, perplexities), heads)
    ]
    assert without == (
        f"Without the groups of such runs: {shown[0]} over 4 groups; {shown[1]} between heads. "
        "This leaves points out by their outcome, so neither interval nor p is given."
    )
