"""Tables and notes of responses, and which runs are measured anew."""

from __future__ import annotations

import pytest
from scipy import stats

from lmkit.dialogue.responses import MEASURES, Responses
from lmkit.errors.user_error import UserError
from lmkit.presentation.tables import DASH, Table

PPLS = {"softmax": [30.0, 31.0, 32.0], "mos": [28.0, 28.5, 29.5], "moc": [29.0, 30.0, 33.0]}
OPTIONS = {
    "split": "test",
    "pairs": None,
    "beam": 10,
    "max_words": 30,
    "n_best": 5,
    "samples": 20,
    "shown": 1,
    "baseline": None,
}


def responses(**options: object) -> Responses:
    return Responses(**OPTIONS | options)


def content(head: str, ppl: float, corpus: str = "few") -> dict:
    answer = {"context": ["> hello"], "reference": ["how"], "responses": [[head], ["other"]]}
    scores = {name: 0.1 for name, _, _ in MEASURES}
    kept = {"perplexity": ppl, "responses": [answer], "answered_pairs": 1200, "all_pairs": 4000}
    return scores | kept | {"experiment": f"dialogue_{head}", "head": head, "corpus": corpus}


@pytest.fixture
def runs() -> dict[str, dict]:
    return {
        f"dialogue_{head}-{seed}": content(head, ppl)
        for head, ppls in PPLS.items()
        for seed, ppl in enumerate(ppls)
    }


def row(table: Table, title: str) -> list[str]:
    """The texts of a row, the baseline's first."""
    return next([cell.text for cell in cells[1:]] for cells in table.rows if cells[0].text == title)


def test_means_deviations_and_corrected_p_values(runs):
    (table,) = responses().tables(runs)
    raw = [stats.ttest_ind(PPLS[head], PPLS["softmax"]).pvalue for head in ("mos", "moc")]
    holm = [min(1, 2 * raw[0]), max(min(1, 2 * raw[0]), raw[1])]
    expected = ["31.00 ± 1.00", "28.67 ± 0.76", f"{holm[0]:.3f}", "30.67 ± 2.08", f"{holm[1]:.3f}"]
    assert row(table, "perplexity") == expected


def test_another_baseline_can_be_chosen(runs):
    with_moc = responses(baseline="dialogue_moc")
    assert row(with_moc.tables(runs)[0], "perplexity")[0] == "30.67 ± 2.08"
    assert "against dialogue_moc" in with_moc.notes(runs)[0]
    with pytest.raises(UserError, match="baseline=x has no run here; there are dialogue_softmax"):
        responses(baseline="x").tables(runs)


def test_a_measure_that_a_run_has_not_is_left_out(runs):
    runs["dialogue_mos-0"]["distinct2"] = None
    runs["dialogue_mos-1"]["distinct2"] = None
    (table,) = responses().tables(runs)
    assert row(table, "distinct-2")[:3] == ["0.1000 ± 0.0000", "0.1000", DASH]


def test_switchboard_has_the_published_scores_beside_it(runs):
    assert "Yang" not in responses().notes(runs)[0]
    run = {"mos-1": content("mos", 30.0, "switchboard")}
    (table,) = responses().tables(run)
    assert row(table, "perplexity") == ["30.00", "34.657", "33.291", "32.727"]
    assert row(table, "BLEU-4 recall")[1:] == ["0.111", "0.117", "0.123"]
    note = responses().notes(run)[0]
    assert "Yang et al. 2018, table 3" in note
    assert "the figures do not compare" in note


def test_how_bleu_was_smoothed_is_said_and_different_ways_do_not_compare(runs):
    assert "smoothed as smoothing=exp." in responses().notes(runs)[0]
    runs["dialogue_mos-0"] |= {"smoothing": "program", "nltk": "3.9.1"}
    note = responses().notes(runs)[0]
    assert "smoothing=exp or program (nltk 3.9.1), which do not compare." in note


def test_responses_stand_side_by_side(runs):
    (shown,) = responses().notes(runs)[1:]
    assert [line.split() for line in shown.splitlines()] == [
        [],
        [">", "hello"],
        ["(said)", "how"],
        ["dialogue_softmax", "softmax"],
        ["dialogue_mos", "mos"],
        ["dialogue_moc", "moc"],
    ]
    assert len(responses(shown=0).notes(runs)) == 1
