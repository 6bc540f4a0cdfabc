"""Curves of perplexity are drawn where the heads can be told apart."""

from types import SimpleNamespace
from typing import Any

from lmkit.report.training import Curve, _drawing, _told_apart


def curve(label: str, is_baseline: bool = False) -> Curve:
    return Curve(label, [], None, is_baseline)


def test_curves_are_differences_from_the_baseline_over_the_second_half() -> None:
    softmax = {1.0: 900.0, 2.0: 300.0, 3.0: 150.0, 4.0: 140.0}
    mos = {1.0: 700.0, 2.0: 290.0, 3.0: 145.0, 4.0: 130.0, 5.0: 120.0}
    shown = [curve("MoS"), curve("Softmax", is_baseline=True)]
    assert _told_apart(shown, [mos, softmax]) == (
        [{3.0: -5.0, 4.0: -10.0}, {3.0: 0.0, 4.0: 0.0}],
        "Softmax",
        3,
    )


def test_without_a_baseline_curves_are_perplexities_and_two_epochs_are_both_shown() -> None:
    points = [{1.0: 9.0, 2.0: 8.0}, {1.0: 7.0, 2.0: 6.0}]
    assert _told_apart([curve("SS"), curve("MoS")], points) == (points, "", 1)


def test_a_caption_says_where_the_baseline_ends_before_others() -> None:
    shown = [
        Curve(label, [{"epoch": e, "valid/ppl": 99.0 - e} for e in range(1, last + 1)], None, base)
        for label, last, base in (("Softmax", 4, True), ("MoS", 6, False))
    ]
    study: Any = SimpleNamespace(short="PTB")
    said = _drawing(shown, "valid/ppl", "curve_valid", "Valid perplexity", "ppl", study, "")
    assert "from epoch 3 on, until that run ends at 4; others go on to 6." in said.caption
    said = _drawing(shown[:1] * 2, "valid/ppl", "curve_valid", "V", "ppl", study, "")
    assert "go on" not in said.caption
