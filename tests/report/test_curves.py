"""Curves of perplexity are drawn where the heads can be told apart."""

from lmkit.report.training import Curve, _told_apart


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
