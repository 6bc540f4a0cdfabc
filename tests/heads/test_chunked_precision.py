"""The chunked loss in float32 and under bfloat16 autocast.

Shapes: K components, V vocabulary.
"""

from __future__ import annotations

import math

import pytest
import torch

from lmkit.heads.head import Head
from lmkit.heads.mixtures import SingleContext
from lmkit.heads.transforms import Identity
from tests.heads.conftest import plain_nll
from tests.language_models import head_parts


def test_float32_is_within_1e_5_of_float64_and_of_the_plain_path(
    mixture_kind, transform_kind, make_head, make_batch, both_losses, relative_error
):
    head = make_head(mixture_kind, transform_kind, rows=3, num_words=1009)
    batch = make_batch(head, 9, 5)
    if transform_kind.startswith("plif"):  # a larger range: what is tested is not only its ends
        head.transform.limit, head.transform.step = 8.0, 16.0 / head.transform.knots
    exact, _ = both_losses(head, *batch)
    head.float()
    found, plain = both_losses(head, batch[0].float(), batch[1])
    for name, value in found.items():
        assert value.dtype == torch.float32
        assert relative_error(value, plain[name]) < 1e-5, name
        if not transform_kind.startswith("plif"):  # whose slope jumps where a logit is rounded
            assert relative_error(value, exact[name]) < 1e-5, name


def test_bf16_autocast_is_float32_within_bf16s_rounding(
    mixture_kind, transform_kind, make_head, make_batch, loss_and_grads, relative_error
):
    head = make_head(mixture_kind, transform_kind, rows=8, num_words=211).float()
    hidden_TBD, targets_TB = make_batch(head, 9, 5)
    hidden_TBD = hidden_TBD.float()
    exact = loss_and_grads(head, hidden_TBD, targets_TB)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        chunked = loss_and_grads(head, hidden_TBD, targets_TB)
        plain = loss_and_grads(head, hidden_TBD, targets_TB, loss=plain_nll)
    assert chunked["nll"].dtype == torch.float32
    assert relative_error(chunked["nll"], exact["nll"]) < 4e-3
    for name, value in chunked.items():
        assert value.dtype == exact[name].dtype
        # bf16 keeps 8 bits; the plain path, rounded in as many places, is a yardstick
        assert relative_error(value, exact[name]) < max(
            0.02, 2 * relative_error(plain[name], exact[name])
        ), name


def test_bf16_normalisers_are_summed_in_float32():
    """In bf16 the sum over 5,000 equal words would stall at 256."""
    words, dim = 5000, 8
    head = Head(head_parts(SingleContext(dim), Identity(), words))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        nll = head.nll(torch.zeros(3, 1, dim), torch.tensor([[0], [1], [2]]))
    assert nll.item() == pytest.approx(math.log(words), rel=1e-6)
