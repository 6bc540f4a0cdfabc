"""The chunked cross-entropy against the plain formula, and without the tensors it does without.

Shapes: N contexts, D context embedding, V words.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lmkit.heads.head import Head
from lmkit.studies.fit import chunked_cross_entropy
from lmkit.studies.heads import FreeHead

N, V, E = 11, 13, 3
SIZES = {"num_experts": 2, "knots": 9, "units": 4}
NAMES = [
    f"{mixture}+{transform}"
    for mixture in ("none", "contexts", "softmaxes")
    for transform in ("identity", "sigsoftmax", "gss", "plif", "monotone_mlp")
]
ROWS = 4  # contexts per chunk: the last one is not full


def made(kind: FreeHead, **sizes: int) -> tuple[Head, Tensor, Tensor]:
    """A head in float64, context embeddings (N, D) and true probabilities (N, V)."""
    torch.manual_seed(3)
    kind = kind.resized(SIZES | sizes)
    head = kind.build(E, V).double()
    torch.nn.init.normal_(head.decoder_weight)
    torch.nn.init.normal_(head.decoder_bias)
    hidden_ND = torch.randn(N, kind.context_dim(E), dtype=torch.float64, requires_grad=True)
    targets_NV = torch.softmax(3 * torch.randn(N, V, dtype=torch.float64), dim=1)
    targets_NV[0] = 0
    targets_NV[0, 2] = 1  # a probability of 0 is one too
    return head, hidden_ND, targets_NV


def chunk_mb(head: Head) -> float:
    """Of chunks of so many rows, exact in binary."""
    return ROWS * head.mixture.num_components * V * 8 / 2**20


@pytest.mark.parametrize("name", NAMES)
def test_value_and_gradients_are_those_of_the_formula(name, free_heads):
    head, hidden_ND, targets_NV = made(free_heads[name])
    plain = -(targets_NV * head.log_probs(hidden_ND.unsqueeze(0))).sum(1).mean()
    chunked = chunked_cross_entropy(head, hidden_ND, targets_NV, chunk_mb(head))
    torch.testing.assert_close(chunked, plain, rtol=1e-12, atol=0)
    inputs = [hidden_ND, *head.parameters()]
    expected = torch.autograd.grad(0.7 * plain, inputs)
    found = torch.autograd.grad(0.7 * chunked, inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["none+monotone_mlp", "softmaxes+monotone_mlp"])
def test_a_monotone_network_of_a_thousand_units_makes_no_tensor_of_all(
    name, free_heads, largest_numel
):
    head, hidden_ND, targets_NV = made(free_heads[name], units=1000)
    largest = largest_numel(
        lambda: chunked_cross_entropy(head, hidden_ND, targets_NV, chunk_mb(head)).backward()
    )
    assert largest <= max(ROWS * head.mixture.num_components * V, 1000)
    assert all((p.grad.isfinite()).all() for p in head.parameters())


@pytest.mark.parametrize("value", [-50.0, 0.0, 3.0])
def test_the_monotone_network_is_increasing_whatever_its_parameters_are(value, free_heads):
    head, _, _ = made(free_heads["none+monotone_mlp"])
    with torch.no_grad():
        for parameter in head.transform.parameters():
            parameter.fill_(value)
    z = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(head.transform(z).sum(), z)
    assert (slope >= 0).all()
    assert value < 0 or (slope > 0).any()
