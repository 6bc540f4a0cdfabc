"""The chunked loss holds one chunk's logits and saves nothing but gradients.

Shapes: T window length, B batch, N = T*B contexts, K components, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lmkit.heads.chunks import chunk_rows, chunked_mean
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import MixtureOfSoftmaxes
from lmkit.studies.cost import LiveBytes
from tests.heads.conftest import plain_nll

T, B = 7, 3  # 21 contexts
Loss = Callable[[Head, Tensor, Tensor], Tensor]


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
    inputs = [x.detach().requires_grad_() for x in head.contexts(hidden_TBD)]
    weights = head.formula_weights()
    nll = chunked_mean(head, weights, inputs, targets_TB.view(-1), head._rows())
    of_head = ("decoder_weight", "decoder_bias", "transform.slopes", "transform.intercepts")
    assert [x.shape for x in nll.grad_fn.saved_tensors] == [
        x.shape for x in [*inputs, *map(weights.get, of_head)]
    ]


def test_no_tensor_has_n_times_v_elements(
    mixture_kind, transform_kind, make_head, make_batch, loss_and_grads, largest_numel
):
    rows, num_words, contexts = 4, 523, 20 * 4
    head = make_head(mixture_kind, transform_kind, rows, num_words)
    batch = make_batch(head, 20, 4)
    largest = largest_numel(lambda: loss_and_grads(head, *batch))
    assert rows * num_words <= largest < contexts * num_words / 4
    largest = largest_numel(lambda: loss_and_grads(head, *batch, loss=plain_nll))
    assert largest >= contexts * num_words  # the watch can see what it is to see


def test_the_buffer_is_no_larger_than_the_contexts_need(
    make_head, make_batch, loss_and_grads, largest_numel
):
    head = make_head("softmaxes", "identity", rows=10_000)
    largest = largest_numel(lambda: loss_and_grads(head, *make_batch(head, T, B)))
    assert largest == T * B * head.mixture.num_components * len(head.decoder_bias)


def peak_bytes(transform: nn.Module, num_experts: int, loss: Loss = Head.nll) -> int:
    num_words, dim = 2000, 8
    mixture = MixtureOfSoftmaxes(dim, dim, num_experts, 0.0)
    parts = HeadParts(
        mixture=mixture,
        transform=transform,
        word_counts_V=torch.zeros(num_words),
        chunk_mb=1,
    )
    head = Head(parts)
    hidden_TBD = torch.randn(16, 8, dim, requires_grad=True)
    targets_TB = torch.randint(num_words, (16, 8))
    with LiveBytes() as live:
        loss(head, hidden_TBD, targets_TB).backward()
    return live.peak


def test_peak_memory_does_not_grow_with_the_number_of_experts(transform_kind, make_transform):
    """All logits would be 128 * 2000 * 4 bytes = 1 MB times K."""
    transform = make_transform(transform_kind)
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


def test_a_budget_too_small_for_one_context_takes_one_at_a_time():
    assert chunk_rows(10**9, 4, 0.001) == 1
