from __future__ import annotations

import pytest
from scipy import stats

from lmkit.dialogue.dialogue_report import (
    MEASURES,
    ScoredRun,
    dialogue_note,
    dialogue_table,
    samples,
    scored_run,
)
from lmkit.errors.user_error import UserError

PPLS = {"softmax": [30.0, 31.0, 32.0], "mos": [28.0, 28.5, 29.5], "moc": [29.0, 30.0, 33.0]}


def run(head: str, seed: int, ppl: float, corpus: str = "few") -> ScoredRun:
    answer = {"context": ["> hello"], "reference": ["how"], "responses": [[head], ["other"]]}
    found = {name: 0.1 for name, _, _ in MEASURES}
    found |= {"perplexity": ppl, "responses": [answer], "options": {"n_best": 5}}
    found |= {"answered_pairs": 1200, "all_pairs": 4000}
    return ScoredRun(f"dialogue_{head}", seed, head, corpus, found)


@pytest.fixture
def runs() -> list[ScoredRun]:
    return [run(head, seed, ppl) for head, ppls in PPLS.items() for seed, ppl in enumerate(ppls)]


def cells(table) -> dict[str, list[str]]:
    """Each row by its title, the baseline's column first."""
    columns = [list(column.cells) for column in table.columns]
    return {row[0]: list(row[1:]) for row in zip(*columns, strict=True)}


def test_means_deviations_and_corrected_p_values(runs):
    row = cells(dialogue_table(runs, None))["perplexity"]
    raw = [stats.ttest_ind(PPLS[head], PPLS["softmax"]).pvalue for head in ("mos", "moc")]
    holm = [min(1, 2 * raw[0]), max(min(1, 2 * raw[0]), raw[1])]
    expected = ["31.00 ± 1.00", "28.67 ± 0.76", f"{holm[0]:.3f}", "30.67 ± 2.08", f"{holm[1]:.3f}"]
    assert row == expected


def test_another_baseline_can_be_chosen(runs):
    assert cells(dialogue_table(runs, "dialogue_moc"))["perplexity"][0] == "30.67 ± 2.08"
    assert "against dialogue_moc" in dialogue_note(runs, "dialogue_moc")
    with pytest.raises(UserError, match="baseline=x has no run here; there are dialogue_softmax"):
        dialogue_table(runs, "x")


def test_switchboard_has_the_published_scores_beside_it(runs):
    assert "Yang" not in dialogue_note(runs, None)
    table = dialogue_table([run("mos", 1, 30.0, "switchboard")], None)
    assert cells(table)["perplexity"] == ["30.00", "34.657", "33.291", "32.727"]
    assert cells(table)["BLEU-4 recall"][1:] == ["0.111", "0.117", "0.123"]
    note = dialogue_note([run("mos", 1, 30.0, "switchboard")], None)
    assert "Yang et al. 2018, table 3" in note
    assert "the figures do not compare" in note


def test_samples_stand_side_by_side(runs):
    assert [line.split() for line in samples(runs, 1)] == [
        [">", "hello"],
        ["(said)", "how"],
        ["dialogue_softmax", "softmax"],
        ["dialogue_mos", "mos"],
        ["dialogue_moc", "moc"],
    ]
    assert list(samples(runs, 0)) == []


def test_a_run_is_known_by_its_configuration():
    config = {
        "name": "dialogue_moc",
        "seed": 3,
        "data": {"name": "switchboard"},
        "head": {"mixture": {"_target_": "lmkit.heads.mixtures.MixtureOfContexts"}},
    }
    assert scored_run(config, {}) == ScoredRun("dialogue_moc", 3, "moc", "switchboard", {})
