"""Peak memory is that of the tensors; what grows with K is what the formulas say."""

from __future__ import annotations

import pytest
import torch

from lmkit.cli.entry import compose, plain_config
from lmkit.studies import cost
from lmkit.studies.heads import HeadSizes
from lmkit.studies.live_bytes import LiveBytes

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
def options() -> cost.Options:
    section = plain_config(compose("synthetic"))["cost"]
    small = {"num_contexts": N, "emb_dim": 4, "chunk_mb": 0.02, "repeats": 1}
    return cost.Options(**section | small)


@pytest.mark.parametrize(
    ("head", "sizes"),
    [
        ("softmaxes+identity", lambda k: HeadSizes(k, 20, 2)),
        ("none+monotone_mlp", lambda k: HeadSizes(2, 20, k)),
    ],
)
def test_plain_losses_hold_n_m_k_numbers_and_chunked_ones_do_not(head, sizes, options):
    def peak(count: int, loss: str) -> float:
        return cost._measure(options, head, WORDS, sizes(count), loss, 1)["peak_mib"] * 2**20

    many = 4 * N * WORDS * 40
    assert peak(40, "plain") >= many
    assert peak(40, "plain") - peak(10, "plain") >= many / 2
    assert peak(40, "chunked") < many / 2


def test_what_would_need_too_much_is_left_out(options):
    huge = HeadSizes(2, 20, 10**6)
    found = cost._measure(options, "none+monotone_mlp", WORDS, huge, "plain", 1)
    assert found == {"seconds": None, "peak_mib": None}
