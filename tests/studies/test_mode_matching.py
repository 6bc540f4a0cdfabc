"""What the comparisons with softmax count as observations."""

from __future__ import annotations

import pytest
from scipy.stats import ttest_rel

from lmkit.studies import mode_matching
from lmkit.studies.heads import PLIF, SOFTMAX
from lmkit.studies.mode_matching import ModeMatching, gain
from lmkit.studies.work import Work


def row(head: str, seed: int, dim: int, cross_entropy: float, mode_match: float = 0.5) -> dict:
    names = {"head": head, "alpha": 0.1, "words": 8, "dim": dim, "seed": seed}
    return {**names, "cross_entropy": cross_entropy, "mode_match": mode_match}


def test_targets_fitted_at_several_dimensions_are_one_pair_each():
    softmax = [[2.0, 1.5, 1.0], [2.1, 1.4, 1.2], [1.9, 1.6, 0.9]]  # of a seed, by d
    plif = [[1.8, 1.4, 0.9], [2.0, 1.0, 1.1], [1.9, 1.5, 0.6]]
    rows = [
        row(head, seed, dim, value)
        for head, values in ((SOFTMAX, softmax), (PLIF, plif))
        for seed, own in enumerate(values)
        for dim, value in enumerate(own)
    ]
    found = gain(rows, PLIF, "cross_entropy")
    theirs, ours = ([sum(own) / 3 for own in values] for values in (plif, softmax))
    assert found.pairs == 3
    assert found.difference == pytest.approx(sum(theirs) / 3 - sum(ours) / 3)
    assert found.p_value == pytest.approx(ttest_rel(theirs, ours).pvalue)

    rows = [r | {"mode_match": 1.0} if (r["seed"], r["dim"]) == (1, 1) else r for r in rows]
    solved = gain(rows, PLIF, "cross_entropy")  # all but the one that softmax solves
    assert solved.pairs == 3
    assert solved.difference == pytest.approx((-0.4 / 3 - 0.1 - 0.4 / 3) / 3)


def test_no_two_problems_share_variates(free_heads, monkeypatch):
    first = set()

    def draw(alpha, num_contexts, num_words, random, original=mode_matching.dirichlet_log_probs):
        first.add((alpha, num_words, random.random_sample()))
        return original(alpha, num_contexts, num_words, random)

    monkeypatch.setattr(mode_matching, "dirichlet_log_probs", draw)
    study = ModeMatching(
        heads=[free_heads[SOFTMAX]], alphas=[0.1, 1], seeds=2, num_contexts=3, num_words=4,
        dims=[1, 2], more_words=[5], words_dim=2, num_experts=2, knots=20, units=2, steps=1, lr=0.1,
    )  # fmt: skip
    with Work(None, show=False) as work:
        study.run(7, work)
    problems = sorted((alpha, words) for alpha, words, _ in first)
    assert problems == [(0.1, 4)] * 2 + [(0.1, 5)] * 2 + [(1, 4)] * 2 + [(1, 5)] * 2
    assert len({variate for _, _, variate in first}) == 8
