"""The chunked loss holds one chunk's logits and saves nothing but gradients.

Shapes: T window length, B batch, N = T*B contexts, K components, V vocabulary.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lmkit.heads.chunked_loss import chunk_rows
from lmkit.heads.chunked_nll import chunked_nll
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import MixtureOfSoftmaxes
from lmkit.studies.cost import LiveBytes

T, B = 7, 3  # 21 contexts


def test_without_gradient_nothing_is_saved_and_the_value_is_the_same(
    mixture_kind, transform_kind, make_head, make_batch
):
    head = make_head(mixture_kind, transform_kind)
    hidden_TBD, targets_TB = make_batch(head, T, B)
    expected = head.nll(hidden_TBD, targets_TB)
    saved: list[Tensor] = []
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x):
        found = head.nll(hidden_TBD, targets_TB)
    assert not saved
    assert not found.requires_grad
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=0)


def test_what_is_saved_is_gradients_of_inputs_alone(make_head, make_batch):
    head = make_head("softmaxes", "plif", rows=2, num_words=101)
    hidden_TBD, targets_TB = make_batch(head, T, B)
    log_prior_NK, context_NKE = (x.detach().requires_grad_() for x in head.mixture(hidden_TBD))
    inputs = [log_prior_NK, context_NKE, head.decoder_weight, head.decoder_bias]
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x):
        chunked_nll(*inputs, targets_TB.view(-1), head.transform, head.chunk_mb)
    shapes = [x.shape for x in [*inputs, head.transform.raw_slopes]]
    assert [x.shape for x in saved] == shapes


def test_no_tensor_has_n_times_v_elements(
    mixture_kind, transform_kind, make_head, make_batch, loss_and_grads, largest_numel
):
    rows, num_words, contexts = 4, 523, 20 * 4
    head = make_head(mixture_kind, transform_kind, rows, num_words)
    batch = make_batch(head, 20, 4)
    largest = largest_numel(lambda: loss_and_grads(head, *batch))
    assert rows * num_words <= largest < contexts * num_words / 4
    head.loss = "plain"
    largest = largest_numel(lambda: loss_and_grads(head, *batch))
    assert largest >= contexts * num_words  # the watch can see what it is to see


def test_the_buffer_is_no_larger_than_the_contexts_need(
    make_head, make_batch, loss_and_grads, largest_numel
):
    head = make_head("softmaxes", "identity", rows=10_000)
    largest = largest_numel(lambda: loss_and_grads(head, *make_batch(head, T, B)))
    assert largest == T * B * head.mixture.num_experts * len(head.decoder_bias)


def peak_bytes(transform: nn.Module, num_experts: int, loss: str) -> int:
    num_words, dim = 2000, 8
    mixture = MixtureOfSoftmaxes(dim, dim, num_experts, 0.0)
    parts = HeadParts(
        mixture=mixture,
        transform=transform,
        word_counts_V=torch.zeros(num_words),
        loss=loss,
        chunk_mb=2,
    )
    head = Head(parts)
    hidden_TBD = torch.randn(16, 8, dim, requires_grad=True)
    targets_TB = torch.randint(num_words, (16, 8))
    with LiveBytes() as live:
        head.nll(hidden_TBD, targets_TB).backward()
    return live.peak


def test_peak_memory_does_not_grow_with_the_number_of_experts(transform_kind, make_transform):
    """All logits would be 128 * 2000 * 4 bytes = 1 MB times K."""
    transform = make_transform(transform_kind)
    five, thirty = (peak_bytes(transform, experts, "chunked") for experts in (5, 30))
    latents = 128 * 30 * 8 * 4  # N * K * E in float32, and their gradients
    assert thirty < 1.1 * five + 2 * latents
    assert 2**20 < five < 10 * 2**20
    assert thirty < peak_bytes(transform, 30, "plain") / 6


@pytest.mark.parametrize(
    ("experts", "words", "itemsize", "chunk_mb", "rows"),
    [(1, 1024, 4, 1, 128), (2, 1024, 4, 1, 64), (15, 33_278, 4, 16, 4), (1, 1024, 8, 1, 64)],
)
def test_chunks_fit_the_budget(experts, words, itemsize, chunk_mb, rows):
    """Logits and their slopes: two numbers per word."""
    assert chunk_rows(experts, words, itemsize, chunk_mb) == rows
    assert 2 * rows * experts * words * itemsize <= chunk_mb * 2**20


def test_a_budget_too_small_for_one_context_takes_one_at_a_time():
    assert chunk_rows(1000, 10**6, 4, 0.001) == 1
