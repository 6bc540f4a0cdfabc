"""The dropouts' mean, variance and mask sharing.

Bounds are five standard errors of what is measured; seeds are fixed.

Shapes: T window length, B batch, D features, E embedding, V vocabulary.
"""

import math

import pytest
import torch
from torch import Tensor

from lmkit.trunk.dropout import drop_connect, embedding_dropout, locked_dropout

RATES = [0.1, 0.4, 0.5, 0.75]


def assert_inverted_bernoulli(mask: Tensor, p: float) -> None:
    """Entries 0 with probability p, else 1 / (1 - p): mean 1, variance p / (1 - p)."""
    kept = mask != 0
    torch.testing.assert_close(mask[kept], torch.full_like(mask[kept], 1 / (1 - p)))
    n = mask.numel()
    deviation = math.sqrt(p / (1 - p))
    assert abs(mask.double().mean() - 1) < 5 * deviation / math.sqrt(n)
    # the variance is a function of the share of kept entries alone: (1/q - 1) at q = 1 - p
    share = kept.double().mean()
    assert abs(share - (1 - p)) < 5 * math.sqrt(p * (1 - p) / n)
    expected = share * (1 - share) / (1 - p) ** 2
    torch.testing.assert_close(mask.double().var(correction=0), expected)


def assert_independent(mask: Tensor, p: float) -> None:
    """Rows and columns (n, m) of a mask share nothing: their means vary as those of coins do."""
    kept = (mask != 0).double()
    for dim, n in ((0, mask.shape[1]), (1, mask.shape[0])):
        coins = mask.shape[dim]
        spread = kept.mean(dim).var() / (p * (1 - p) / coins)
        # a sample variance of n means has a relative standard error of sqrt(2 / n)
        assert abs(spread - 1) < 5 * math.sqrt(2 / n)


@pytest.mark.parametrize("p", RATES)
def test_locked_dropout_has_one_mask_for_all_time_steps(p):
    steps, batch, dim = 9, 150, 200
    x_TBD = torch.rand(steps, batch, dim) + 0.5
    mask_TBD = locked_dropout(x_TBD, p, training=True) / x_TBD
    torch.testing.assert_close(mask_TBD, mask_TBD[:1].expand_as(mask_TBD))
    assert_inverted_bernoulli(mask_TBD[0], p)
    assert_independent(mask_TBD[0], p)


@pytest.mark.parametrize("p", RATES)
def test_embedding_dropout_drops_a_word_everywhere_or_nowhere(p):
    words, dim = 20_000, 3
    weight_VE = torch.rand(words, dim) + 0.5
    every_word_twice = torch.cat([torch.randperm(words), torch.arange(words)]).view(-1, 8)
    embedded_TBE = embedding_dropout(every_word_twice, weight_VE, p, training=True)
    mask = (embedded_TBE / weight_VE[every_word_twice]).view(2, words, dim)
    first = torch.empty(words, dim)
    first[every_word_twice.view(2, words)[0]] = mask[0]
    torch.testing.assert_close(first, mask[1])
    torch.testing.assert_close(mask[1], mask[1][:, :1].expand(words, dim))
    assert_inverted_bernoulli(mask[1][:, 0], p)


@pytest.mark.parametrize("p", RATES)
def test_drop_connect_drops_single_connections(p):
    weight = torch.rand(200, 150) + 0.5
    mask = drop_connect(weight, p, training=True) / weight
    assert_inverted_bernoulli(mask, p)
    assert_independent(mask, p)


def test_a_rate_that_rounds_to_1_drops_all_but_the_rarest():
    assert (drop_connect(torch.ones(50, 40), 0.999999, training=True) == 0).float().mean() > 0.99


def dropouts(p: float, training: bool) -> list[tuple[Tensor, Tensor]]:
    """Of each dropout what it should leave alone, and what it made of that."""
    x, tokens = torch.rand(4, 5, 6), torch.arange(20).view(4, 5)
    weight = torch.rand(20, 6)
    return [
        (x, locked_dropout(x, p, training)),
        (weight[tokens], embedding_dropout(tokens, weight, p, training)),
        (weight, drop_connect(weight, p, training)),
    ]


@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True), (0.0, False)])
def test_nothing_is_dropped_or_drawn_in_evaluation_or_at_rate_zero(p, training):
    expected = dropouts(p, training)
    for whole, outcome in expected:
        assert torch.equal(whole, outcome)
    state = torch.get_rng_state()
    x = torch.ones(2, 2, 2)
    locked_dropout(x, p, training), drop_connect(x, p, training)
    embedding_dropout(torch.zeros(1, 1, dtype=torch.int64), x[0], p, training)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtypes_are_kept(dtype):
    x = torch.ones(3, 4, 5, dtype=dtype)
    assert locked_dropout(x, 0.5, True).dtype == dtype
    assert drop_connect(x, 0.5, True).dtype == dtype
    assert embedding_dropout(torch.zeros(1, 1).long(), x[0], 0.5, True).dtype == dtype
