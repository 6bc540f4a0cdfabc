"""Multi-facet softmax against the paper's formula, context by context and word by word, in float64.

Shapes: T window length, B batch, D trunk output, E embedding, K softmaxes, J partitions,
F = J + K - 1 facets, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import MixtureOfSoftmaxes, SingleContext
from lmkit.heads.multi_facet import MultiFacetSoftmax
from lmkit.heads.transforms import Identity

T, B, D, E, V = 7, 3, 6, 5, 23


def multi_facet(
    parts: HeadParts, num_experts: int = 3, num_partitions: int = 4, latent_dropout: float = 0.0
) -> MultiFacetSoftmax:
    return MultiFacetSoftmax(
        parts,
        in_dim=D,
        emb_dim=E,
        num_experts=num_experts,
        num_partitions=num_partitions,
        latent_dropout=latent_dropout,
    )


@pytest.fixture
def make_facets(make_transform):
    """In float64, with large weights, in chunks of `rows` contexts."""

    def make(
        transform: str = "identity",
        rows: int = 4,
        num_experts: int = 3,
        num_partitions: int = 4,
        num_words: int = V,
    ) -> MultiFacetSoftmax:
        torch.manual_seed(3)
        parts = HeadParts(
            mixture=SingleContext(D),
            transform=make_transform(transform),
            word_counts_V=torch.zeros(num_words),
            chunk_mb=rows * 4 * num_experts * num_words * 8 / 2**20,
        )
        head = multi_facet(parts, num_experts, num_partitions).double()
        for name, parameter in head.named_parameters():
            if not name.startswith("transform"):
                nn.init.normal_(parameter)
        assert head._rows() == rows
        return head

    return make


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(8)
    hidden_TBD = torch.randn(T, B, D, generator=random, dtype=torch.float64)
    return hidden_TBD, torch.randint(V, (T, B), generator=random)


def plain_log_probs(head: MultiFacetSoftmax, hidden_TBD: Tensor) -> Tensor:
    weights, num_parts = head.mixture, head.num_partitions
    rows = []
    for h in hidden_TBD.reshape(-1, D):
        facets = torch.tanh(weights.latent.weight @ h + weights.latent.bias).view(-1, E)
        prior = torch.softmax(weights.prior.weight @ h, 0)
        p = 0.0
        for k, share in enumerate(prior):
            logits = []
            for v, (w, b) in enumerate(zip(head.decoder_weight, head.decoder_bias, strict=True)):
                facet = facets[v % num_parts] if k == 0 else facets[num_parts + k - 1]
                logits.append(facet @ w + b)
            p = p + share * torch.softmax(head.transform(torch.stack(logits)), 0)
        rows.append(p.log())
    return torch.stack(rows)


@pytest.mark.parametrize("transform", ["identity", "gss", "bend"])
def test_log_probs_are_the_formula_and_a_distribution(make_facets, batch, transform):
    head = make_facets(transform)
    found, expected = head.log_probs(batch[0]), plain_log_probs(head, batch[0])
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    assert (found.exp().sum(1) - 1).abs().max() < 1e-12
    token_nll = head.token_nll(*batch)
    assert not token_nll.requires_grad
    picked = -expected.gather(1, batch[1].view(-1, 1)).detach()
    torch.testing.assert_close(token_nll.view(-1, 1), picked)
    assert not head.has_factors


@pytest.mark.parametrize("transform", ["identity", "bend"])
@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_value_and_every_gradient_are_the_formulas(
    make_facets, batch, assert_formula, transform, rows
):
    assert_formula(make_facets(transform, rows), batch, plain_log_probs)


@pytest.mark.parametrize(
    ("num_experts", "num_partitions", "num_words"), [(1, 5, V), (2, 8, 24), (4, 1, V), (2, 9, 7)]
)
def test_other_sizes_are_the_formula_too(
    make_facets, batch, assert_formula, num_experts, num_partitions, num_words
):
    """Not even a partition for each word is needed."""
    head = make_facets("gss", 4, num_experts, num_partitions, num_words)
    assert_formula(head, (batch[0], batch[1] % num_words), plain_log_probs)


@pytest.mark.parametrize("num_experts", [1, 3])
def test_with_one_partition_it_is_mos(make_facets, batch, loss_and_grads, num_experts):
    head = make_facets("gss", num_experts=num_experts, num_partitions=1)
    mixture = MixtureOfSoftmaxes(D, E, num_experts, 0.0)
    parts = HeadParts(mixture=mixture, transform=head.transform, word_counts_V=torch.zeros(V))
    mos = Head(parts).double()
    mos.load_state_dict(head.state_dict())
    expected, found = loss_and_grads(mos, *batch), loss_and_grads(head, *batch)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(head.log_probs(batch[0]), mos.log_probs(batch[0]))
    assert head.mixes_softmaxes
    assert not head.has_factors
    assert make_facets(num_experts=num_experts, num_partitions=1).has_factors is (num_experts == 1)


@pytest.mark.parametrize("num_partitions", [1, 2, 4])
def test_one_softmax_has_rank_j_e_plus_2(make_facets, num_partitions):
    head = make_facets(num_experts=1, num_partitions=num_partitions)
    random = torch.Generator().manual_seed(9)
    hidden_TBD = torch.randn(20, 10, D, generator=random, dtype=torch.float64)
    assert torch.linalg.matrix_rank(head.log_probs(hidden_TBD)) == num_partitions * E + 2


def test_no_tensor_has_n_times_v_elements(make_facets, batch, loss_and_grads, largest_numel):
    head = make_facets(rows=2, num_words=523)
    contexts = T * B
    for call in (lambda: loss_and_grads(head, *batch), lambda: head.token_nll(*batch)):
        assert 2 * 523 <= largest_numel(call) < contexts * 523 / 3
    head.loss = "plain"  # the watch can see what it is to see
    assert largest_numel(lambda: loss_and_grads(head, *batch)) >= contexts * 523


def test_bf16_autocast_is_near_and_the_gradients_are_float32(
    make_facets, batch, assert_near_in_bf16
):
    assert_near_in_bf16(make_facets(), batch)


@pytest.mark.parametrize("num_experts", [1, 3])
def test_logit_range_is_that_of_all_logits(make_facets, batch, num_experts):
    head = make_facets("gss", num_experts=num_experts)
    facets = head.mixture(batch[0]).context_NKE
    logits = torch.stack(list(head._logits_by_word(facets)), dim=1).detach()
    found = head.logit_range(batch[0])
    assert logits.shape == (T * B, num_experts, V)
    for name, x in (("logits", logits), ("transformed_logits", head.transform(logits))):
        for measure in ("min", "mean", "max"):
            expected = getattr(x, measure)()
            torch.testing.assert_close(found[f"{name}_{measure}"], expected, rtol=1e-10, atol=1e-12)
    if num_experts == 1:
        found = head.transformed_logits(batch[0])
        torch.testing.assert_close(found, head.transform(logits).squeeze(1))
        log_p = torch.log_softmax(found, dim=1)
        torch.testing.assert_close(log_p, head.log_probs(batch[0]))


def test_what_cannot_be_is_refused_by_name():
    parts = HeadParts(mixture=SingleContext(D), transform=Identity(), word_counts_V=torch.zeros(V))
    with pytest.raises(UserError, match=r"head=multi_facet.*head/mixture=none.*MixtureOfSoftmaxes"):
        multi_facet(replace(parts, mixture=MixtureOfSoftmaxes(D, E, 2, 0.0)))
    with pytest.raises(UserError, match=r"head\.num_experts.*0"):
        multi_facet(parts, num_experts=0)
    with pytest.raises(UserError, match=r"head\.num_partitions.*0"):
        multi_facet(parts, num_partitions=0)
    with pytest.raises(UserError, match=r"head\.latent_dropout.*1\.0"):
        multi_facet(parts, latent_dropout=1.0)
