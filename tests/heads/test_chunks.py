"""The chunked loss: exact in value and every gradient, in the memory of one chunk.

Shapes: T window length, B batch, N = T*B contexts, K components, V vocabulary.
"""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.heads.chunks import affine, begin_chunk, chunk_rows, shared_weight
from lmkit.heads.head import Head
from lmkit.heads.mixtures import MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import Identity, PiecewiseLinear
from tests.heads.conftest import (
    TRANSFORMS,
    Loss,
    assert_near_in_bf16,
    both_losses,
    loss_and_grads,
    make_batch,
    make_head,
    plain_nll,
    relative_error,
)
from tests.language_models import head_parts
from tests.live_bytes import LiveBytes, largest_numel

T, B = 7, 3  # 21 contexts


def test_value_and_every_gradient_are_those_of_the_whole_log_p(mixture_kind, transform_kind):
    head = make_head(mixture_kind, transform_kind, rows=4)  # the last chunk has one
    found, expected = both_losses(head, *make_batch(head, T, B))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert relative_error(value, expected[name]) < 1e-12, name
    assert found["nll"] > 1
    assert found["hidden"].norm() > 0.01


# one row a chunk, chunks that divide 21, one chunk, one far larger; windows of other shapes
@pytest.mark.parametrize(
    ("rows", "window"),
    [(1, (T, B)), (7, (T, B)), (21, (T, B)), (1000, (T, B)), (7, (1, 1)), (7, (11, 1))],
)
def test_chunks_change_nothing(rows, window):
    head = make_head("softmaxes", "plif", rows)
    found, expected = both_losses(head, *make_batch(head, *window))
    assert all(relative_error(found[name], expected[name]) < 1e-12 for name in found)


@pytest.mark.parametrize("loss", [Head.nll, Head.token_nll])
def test_what_a_transform_makes_of_its_parameters_is_made_once_a_window(loss, monkeypatch):
    head = make_head("softmaxes", "plif", rows=4)
    lines, made = PiecewiseLinear.lines, []
    monkeypatch.setattr(PiecewiseLinear, "lines", lambda self: made.append(1) or lines(self))
    loss(head, *make_batch(head, T, B))
    assert len(made) == 1


def test_the_gradient_scales_with_what_comes_from_above():
    head = make_head("softmaxes", "plif")
    batch = make_batch(head, T, B)
    once, scaled = loss_and_grads(head, *batch), loss_and_grads(head, *batch, scale=-2.5)
    for name in once:
        factor = 1.0 if name == "nll" else -2.5
        torch.testing.assert_close(scaled[name], factor * once[name])


def test_frozen_inputs_get_no_gradient_and_change_no_other():
    head = make_head("softmaxes", "bend")
    batch = make_batch(head, T, B)
    full = loss_and_grads(head, *batch)
    head.decoder_weight.requires_grad_(False)
    head.transform.scale.requires_grad_(False)
    part = loss_and_grads(head, *batch)
    assert full.keys() - part.keys() == {"decoder_weight", "transform.scale"}
    assert all(torch.equal(part[name], full[name]) for name in part)
    head.requires_grad_(False)
    fixed = head.nll(*batch)
    assert not fixed.requires_grad
    assert fixed == full["nll"]


def test_float32_is_within_1e_5_of_float64_and_of_the_whole_log_p(pair):
    head = make_head(*pair, rows=3, num_words=1009)
    batch = make_batch(head, 9, 5)
    if pair[1].startswith("plif"):  # a larger range: what is tested is not only its ends
        head.transform.limit, head.transform.step = 8.0, 16.0 / head.transform.knots
    exact, _ = both_losses(head, *batch)
    head.float()
    found, plain = both_losses(head, batch[0].float(), batch[1])
    for name, value in found.items():
        assert value.dtype == torch.float32
        assert relative_error(value, plain[name]) < 1e-5, name
        if not pair[1].startswith("plif"):  # whose slope jumps where a logit is rounded
            assert relative_error(value, exact[name]) < 1e-5, name


def test_bf16_autocast_is_float32_within_bf16s_rounding(pair):
    head = make_head(*pair, rows=8, num_words=211)
    assert_near_in_bf16(head, make_batch(head, 9, 5))


def test_bf16_normalisers_are_summed_in_float32():
    """In bf16 the sum over 5,000 equal words would stall at 256."""
    words, dim = 5000, 8
    head = Head(head_parts(SingleContext(dim), Identity(), words))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        nll = head.nll(torch.zeros(3, 1, dim), torch.tensor([[0], [1], [2]]))
    assert nll.item() == pytest.approx(math.log(words), rel=1e-6)


def test_without_gradient_nothing_is_saved_and_the_value_is_the_same():
    head = make_head("softmaxes", "plif")
    hidden_TBD, targets_TB = make_batch(head, T, B)
    expected = head.nll(hidden_TBD, targets_TB)
    saved: list[Tensor] = []
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x):
        found = head.nll(hidden_TBD, targets_TB)
    assert not saved
    assert not found.requires_grad
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=0)


def test_no_tensor_has_n_times_v_elements(pair):
    rows, num_words, contexts = 4, 523, 20 * 4
    head = make_head(*pair, rows, num_words)
    batch = make_batch(head, 20, 4)
    largest = largest_numel(lambda: loss_and_grads(head, *batch))
    assert rows * num_words <= largest < contexts * num_words / 3
    largest = largest_numel(lambda: loss_and_grads(head, *batch, loss=plain_nll))
    assert largest >= contexts * num_words  # the watch can see what it is to see


def peak_bytes(transform: nn.Module, num_experts: int, loss: Loss = Head.nll) -> int:
    num_words, dim = 2000, 8
    mixture = MixtureOfSoftmaxes(dim, dim, num_experts, 0.0)
    head = Head(head_parts(mixture, transform, num_words, chunk_mb=1))
    hidden_TBD = torch.randn(16, 8, dim, requires_grad=True)
    targets_TB = torch.randint(num_words, (16, 8))
    with LiveBytes() as live:
        loss(head, hidden_TBD, targets_TB).backward()
    return live.peak


@pytest.mark.parametrize("transform_kind", ["identity", "plif", "monotone_mlp", "cube"])
def test_peak_memory_does_not_grow_with_the_number_of_experts(transform_kind):
    """All logits would be 128 * 2000 * 4 bytes = 1 MB times K."""
    transform = TRANSFORMS[transform_kind]()
    five, thirty = (peak_bytes(transform, experts) for experts in (5, 30))
    latents = 128 * 30 * 8 * 4  # N * K * E in float32, and their gradients
    assert thirty < 1.1 * five + 2 * latents
    assert 2**20 < five < 10 * 2**20
    assert thirty < peak_bytes(transform, 30, plain_nll) / 6


@pytest.mark.parametrize(
    ("logits", "itemsize", "chunk_mb", "rows"),
    [(1024, 4, 1, 256), (2048, 4, 1, 128), (15 * 33_278, 4, 16, 8), (1024, 8, 1, 128)],
)
def test_a_chunks_logits_fill_the_budget(logits, itemsize, chunk_mb, rows):
    assert chunk_rows(logits, itemsize, chunk_mb) == rows
    assert rows * logits * itemsize <= chunk_mb * 2**20 < (rows + 1) * logits * itemsize
    assert chunk_rows(10**9, itemsize, 0.001) == 1  # too small for one context


WORDS, DIM = 7, 5  # rows and columns of a shared weight


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("dtype", "product_dtype", "tolerance"),
    [
        (torch.float64, torch.float64, 1e-12),
        (torch.float32, torch.float32, 1e-5),
        (torch.float32, torch.bfloat16, 0.05),
    ],
)
def test_gradients_of_chunks_are_summed_in_the_weights_own_dtype(
    dtype, product_dtype, tolerance, with_bias
):
    weight_VE, bias_V = torch.randn(WORDS, DIM, dtype=dtype), torch.randn(WORDS, dtype=dtype)
    x = torch.randn(6, 2, DIM, dtype=dtype)
    pull = torch.randn(6, 2, WORDS, dtype=dtype)
    plain = [value.clone().requires_grad_() for value in (weight_VE, bias_V, x)]
    expected = F.linear(plain[2], plain[0], plain[1] if with_bias else None)
    expected.backward(pull)

    shared = [shared_weight(p, product_dtype, learns=True) for p in (weight_VE, bias_V)]
    for part in (slice(0, 3), slice(3, 5), slice(5, 6)):
        own = x[part].requires_grad_()
        begin_chunk(shared)
        found = affine(own, shared[0], shared[1] if with_bias else None)
        again = affine(own, shared[0], None)  # a second product leaves the first as it is
        assert found.dtype == again.dtype == dtype
        torch.testing.assert_close(found, expected[part], rtol=tolerance, atol=tolerance)
        found.backward(pull[part])
        grad = plain[2].grad[part]
        torch.testing.assert_close(own.grad, grad, rtol=tolerance, atol=2 * tolerance)
    for mine, theirs in zip(shared[: 1 + with_bias], plain, strict=False):
        assert mine.grad.dtype == dtype
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=tolerance, atol=4 * tolerance)
    assert torch.equal(shared[0].detach(), weight_VE)


def test_what_learns_nothing_costs_no_product():
    shared = shared_weight(torch.randn(WORDS, DIM), torch.float32, learns=False)
    x = torch.randn(3, DIM, requires_grad=True)
    affine(x, shared).sum().backward()
    assert shared.grad is None
    torch.testing.assert_close(x.grad, shared.detach().sum(0).expand(3, DIM))


@pytest.mark.parametrize("with_gradient", [True, False])
def test_a_plain_weight_is_multiplied_in_its_dtype_under_autocast_too(with_gradient):
    weight_VE, x = torch.randn(WORDS, DIM), torch.randn(4, 3, DIM)
    with torch.set_grad_enabled(with_gradient):
        exact = affine(x, weight_VE, torch.ones(WORDS))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = affine(x, weight_VE, torch.ones(WORDS))
    torch.testing.assert_close(exact, x @ weight_VE.T + 1)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_deterministic_and_as_on_a_cpu(pair, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    head = make_head(*pair, rows=4)
    hidden_TBD, targets_TB = make_batch(head, T, B)
    expected = loss_and_grads(head, hidden_TBD, targets_TB)
    head.cuda()
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (
            loss_and_grads(head, hidden_TBD.cuda(), targets_TB.cuda()) for _ in range(2)
        )
    finally:
        torch.use_deterministic_algorithms(False)
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        assert relative_error(value.cpu(), expected[name]) < 1e-12, name
