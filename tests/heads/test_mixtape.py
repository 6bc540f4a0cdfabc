"""Mixtape against the paper's formulas, context by context and word by word, in float64.

Shapes: T window length, B batch, D trunk output, E embedding, K components, G gate embedding,
V vocabulary.
"""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from lmkit.errors.user_error import UserError
from lmkit.heads.head import HeadParts
from lmkit.heads.mixtape import Mixtape, tree_priors
from lmkit.heads.mixtures import Mixture, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import Identity
from tests.heads.conftest import (
    TRANSFORMS,
    assert_formula,
    assert_logit_range,
    assert_near_in_bf16,
    both_losses,
    loss_and_grads,
    make_batch,
    plain_nll,
    relative_error,
)
from tests.live_bytes import largest_numel

T, B, D, E, G, V = 7, 3, 6, 5, 4, 23


def mixtape(
    transform: nn.Module,
    word_counts_V: Tensor,
    num_experts: int = 4,
    own_share: float = 0.3,
    mixture: Mixture | None = None,
) -> Mixtape:
    parts = HeadParts(
        mixture=mixture or SingleContext(D), transform=transform, word_counts_V=word_counts_V
    )
    sizes = {"in_dim": D, "emb_dim": E, "gate_dim": G, "latent_dropout": 0.0}
    return Mixtape(parts, num_experts=num_experts, own_share=own_share, **sizes)


def make_mixtape(
    transform: str = "identity",
    rows: int = 4,
    num_experts: int = 4,
    own_share: float = 0.3,
    num_words: int = V,
) -> Mixtape:
    """In float64, with large weights, in chunks of `rows` contexts."""
    torch.manual_seed(3)
    counts_V = torch.arange(num_words).roll(5)
    head = mixtape(TRANSFORMS[transform](), counts_V, num_experts, own_share).double()
    for name, parameter in head.named_parameters():
        if not name.startswith("transform"):
            nn.init.normal_(parameter)
    head.chunk_mb = 1e-9
    while head._rows() < rows:
        head.chunk_mb *= 1.1
    return head


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    return make_batch(make_mixtape(), T, B)


def plain_log_probs(head: Mixtape, hidden_TBD: Tensor) -> Tensor:
    """By the formulas of section 3 for K = 4, with a gradient."""
    own = head.own_words_R.tolist()
    weights = head.mixture
    rows = []
    for g in hidden_TBD.reshape(-1, D):
        h_KE = torch.tanh(weights.latent.weight @ g + weights.latent.bias).view(4, E)
        u_JG = torch.tanh(weights.gate.weight @ g).view(3, G)
        logits = []
        for v in range(len(head.decoder_bias)):
            row = own.index(v) if v in own else len(own)
            score = u_JG @ head.gate_weight[row] + weights.score.weight @ g + head.gate_bias[:, row]
            a, b, c = torch.sigmoid(score)
            pi = torch.stack([a * b, a * (1 - b), (1 - a) * c, (1 - a) * (1 - c)])
            logits.append(pi @ (h_KE @ head.decoder_weight[v]) + head.decoder_bias[v])
        rows.append(torch.log_softmax(head.transform(torch.stack(logits)), 0))
    return torch.stack(rows)


@pytest.mark.parametrize("transform", ["identity", "gss", "bend"])
def test_log_probs_are_the_formula_and_a_distribution(batch, transform):
    head = make_mixtape(transform)
    found, expected = head.log_probs(batch[0]), plain_log_probs(head, batch[0])
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    assert (found.exp().sum(1) - 1).abs().max() < 1e-12
    targets_N1 = batch[1].view(-1, 1)
    token_nll = head.token_nll(*batch)
    assert not token_nll.requires_grad
    torch.testing.assert_close(token_nll.view(-1, 1), -expected.gather(1, targets_N1).detach())
    assert not head.has_factors


@pytest.mark.parametrize("transform", ["identity", "bend"])
@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_value_and_every_gradient_are_the_formulas(batch, transform, rows):
    assert_formula(make_mixtape(transform, rows), batch, plain_log_probs)


@pytest.mark.parametrize(("num_experts", "own_share"), [(2, 0.01), (4, 1.0), (8, 0.5)])
def test_other_sizes_agree_with_the_materialised_log_p(batch, num_experts, own_share):
    found, plain = both_losses(make_mixtape(num_experts=num_experts, own_share=own_share), *batch)
    for name, value in found.items():
        assert relative_error(value, plain[name]) < 1e-12, name


def test_no_tensor_has_n_times_v_elements(batch):
    head = make_mixtape(rows=2, num_words=523)
    contexts = T * B
    assert 2 * 523 <= largest_numel(lambda: loss_and_grads(head, *batch)) < contexts * 523 / 3
    whole = largest_numel(lambda: loss_and_grads(head, *batch, loss=plain_nll))
    assert whole >= contexts * 523  # the watch can see what it is to see


def test_priors_sum_to_one_and_saturate_without_error():
    priors = tree_priors(60 * torch.randn(9, 7, 5))
    assert priors.shape == (9, 8, 5)
    torch.testing.assert_close(priors.sum(1), torch.ones(9, 5))


def test_frequent_words_have_the_gates_and_a_checkpoint_keeps_which():
    counts_V = torch.tensor([0, 9, 2, 9, 1, *[0] * (V - 5)])
    head = mixtape(Identity(), counts_V, own_share=3 / V)
    assert head.own_words_R.tolist() == [1, 3, 2]
    other = mixtape(Identity(), torch.zeros(V), own_share=3 / V)
    assert other.own_words_R.tolist() == [0, 1, 2]
    other.load_state_dict(head.state_dict())
    assert other.own_words_R.tolist() == [1, 3, 2]


def test_bf16_autocast_is_near_and_the_gradients_are_float32(batch):
    assert_near_in_bf16(make_mixtape(), batch)


def test_logit_range_is_that_of_all_logits(batch):
    head = make_mixtape("gss")
    assert_logit_range(head, batch[0], head.logits(batch[0]))


def test_what_cannot_be_is_refused_by_name():
    made = partial(mixtape, Identity(), torch.zeros(V))
    with pytest.raises(UserError, match=r"head/mixture=none.*MixtureOfSoftmaxes"):
        made(mixture=MixtureOfSoftmaxes(D, E, 2, 0.0))
    with pytest.raises(UserError, match=r"head\.num_experts.*3"):
        made(num_experts=3)
    with pytest.raises(UserError, match=r"head\.own_share"):
        made(own_share=1.5)
