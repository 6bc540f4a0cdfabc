"""Peak memory is that of the tensors; what grows with K is what the formulas say."""

from __future__ import annotations

import pytest
import torch

from lmkit.studies.cost import HeadCost, LiveBytes
from lmkit.studies.heads import MONOTONE_MLP, MOS, FreeHead

N, WORDS = 16, 2000


def test_the_peak_is_what_was_alive_at_a_time():
    with LiveBytes() as live:
        first = torch.ones(1000)  # 4,000 bytes
        second = first * 2  # 4,000 more
        del first
        third = second[:500] + 1  # 2,000; the slice is no storage of its own
        del second, third
        torch.ones(1500)  # 6,000 alone
    assert live.peak == 8000


@pytest.fixture(scope="module")
def cost(free_heads) -> HeadCost:
    return HeadCost(
        heads=[free_heads[MOS]],
        growing_heads=[free_heads[MOS], free_heads[MONOTONE_MLP]],
        words=[20],
        counts=[2],
        counts_words=WORDS,
        num_contexts=N,
        emb_dim=4,
        num_experts=2,
        knots=20,
        units=2,
        chunk_mb=0.02,
        plain_mb=600,
        repeats=1,
    )


@pytest.mark.parametrize("option", [MOS, MONOTONE_MLP])
def test_plain_losses_hold_n_m_k_numbers_and_chunked_ones_do_not(option, cost, free_heads):
    def peak(count: int, loss: str) -> float:
        return cost.measure(grown(free_heads[option], count), WORDS, loss, 1)["peak_mib"] * 2**20

    many = 4 * N * WORDS * 40
    assert peak(40, "plain") >= many
    assert peak(40, "plain") - peak(10, "plain") >= many / 2
    assert peak(40, "chunked") < many / 2


def test_what_would_need_too_much_is_left_out(cost, free_heads):
    huge = grown(free_heads[MONOTONE_MLP], 10**6)
    assert cost.measure(huge, WORDS, "plain", 1) == {"seconds": None, "peak_mib": None}


def grown(head: FreeHead, count: int) -> FreeHead:
    return head.resized(dict.fromkeys(head.sizes, count))
