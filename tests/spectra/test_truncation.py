"""The rank-k approximations of log P against a plain SVD."""

from functools import partial

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.spectra import gram
from lmkit.spectra.truncation import basis_bytes, leading_vectors, rank_losses, ranks_up_to
from tests.live_bytes import LiveBytes


def cut(log_probs_NV, targets_N, ranks, block):
    vectors_Vk = leading_vectors(log_probs_NV.split(block), *log_probs_NV.shape, ranks[-1])
    blocks = zip(log_probs_NV.split(block), targets_N.split(block), strict=True)
    return rank_losses(blocks, vectors_Vk, ranks)


@pytest.mark.parametrize(("num_rows", "num_words"), [(40, 17), (17, 40)])
def test_an_entry_that_is_not_finite_is_named_where_it_stands(num_rows, num_words):
    log_p = torch.randn(num_rows, num_words).log_softmax(1)
    log_p[9, 4] = -torch.inf
    with pytest.raises(UserError, match=r"value -inf in row 9 \(context\), column 4 \(word\)"):
        cut(log_p, torch.zeros(num_rows, dtype=torch.long), [2], block=7)


@pytest.mark.parametrize(("num_rows", "num_words"), [(40, 17), (17, 40), (23, 23)])
def test_every_rank_is_that_of_the_whole_svd(num_rows, num_words):
    generator = torch.Generator().manual_seed(5)
    logits = 2 * torch.randn(num_rows, num_words, generator=generator, dtype=torch.float64)
    log_p = torch.log_softmax(logits, dim=1)
    targets = torch.randint(num_words, (num_rows,), generator=generator)
    ranks = [1, 2, 5, 11, 17]
    found = cut(log_p, targets, ranks, block=7)
    left, values, right = torch.linalg.svd(log_p - log_p.mean(1, keepdim=True))
    for rank, each in zip(ranks, found, strict=True):
        approximation = (left[:, :rank] * values[:rank]) @ right[:rank]
        log_q = torch.log_softmax(approximation, dim=1)
        assert each.rank == rank
        divergence = (log_p.exp() * (log_p - log_q)).sum(1).mean()
        assert each.divergence == pytest.approx(float(divergence), rel=1e-8, abs=1e-12)
        nll = torch.nn.functional.nll_loss(log_q, targets)
        assert each.nll == pytest.approx(float(nll), rel=1e-8)


def test_a_softmax_loses_nothing_from_its_bound_on():
    """With a bias, log P less its rows' means has rank E + 1; float32 rounds its entries."""
    generator = torch.Generator().manual_seed(3)
    context, weight, bias = (
        torch.randn(*shape, generator=generator) for shape in ((300, 6), (50, 6), (50,))
    )
    log_p = torch.log_softmax(context @ weight.T + bias, dim=1)
    targets = torch.randint(50, (300,), generator=generator)
    below, at, all_words = cut(log_p, targets, [6, 7, 50], block=64)
    assert below.divergence > 1e-3
    assert at.divergence < 1e-11
    assert at.nll == pytest.approx(float(torch.nn.functional.nll_loss(log_p, targets)), abs=1e-5)
    assert all_words.divergence < 1e-11


@pytest.mark.parametrize("most", [50, 200])
@pytest.mark.parametrize(("num_rows", "num_words"), [(200, 4000), (200, 240), (400, 200)])
def test_the_vectors_take_no_more_memory_than_is_said(num_rows, num_words, most, monkeypatch):
    small_blocks = partial(gram.GramAccumulator, block_mb=0.01)
    monkeypatch.setattr(gram, "GramAccumulator", small_blocks)
    log_p = torch.log_softmax(torch.randn(num_rows, num_words), dim=1).split(1)
    with LiveBytes() as live:
        leading_vectors(log_p, num_rows, num_words, most)
    workspace = 8 * 2 * min(num_rows, num_words) ** 2  # of the eigensolver, which is not seen
    said = basis_bytes(num_rows, num_words, most, torch.device("cpu")) + 2**16
    assert said - workspace - 2**17 < live.peak <= said


def test_the_ranks_that_are_tried():
    assert ranks_up_to(100) == [8, 16, 24, 32, 48, 64, 96, 100]
    assert ranks_up_to(8) == [8]
    assert ranks_up_to(5) == [5]
