"""The adversarial head: noise of the formula in training, none in evaluation, in float64.

Shapes: T window length, B batch, D trunk output, E embedding, K components, V vocabulary.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lmkit.errors.user_error import UserError
from lmkit.heads.adversarial import AdversarialHead, worst_noise
from lmkit.heads.head import HeadParts


@pytest.fixture
def pair(make_head):
    """A plain head and an adversarial one that shares all its parts."""

    def make(mixture: str, transform: str, rows: int, epsilon: float = 0.4):
        head = make_head(mixture, transform, rows)
        parts = HeadParts(
            mixture=head.mixture,
            transform=head.transform,
            word_counts_V=torch.zeros(len(head.decoder_bias)),
            embedding_weight=head.decoder_weight,
            chunk_mb=2 * head.chunk_mb,
        )
        noisy = AdversarialHead(parts, epsilon=epsilon)
        noisy.decoder_bias = head.decoder_bias
        return head, noisy

    return make


def plain_nll(head: AdversarialHead, hidden_TBD: Tensor, targets_TB: Tensor) -> Tensor:
    """Context by context: the target's row of the decoder is moved, then all is as ever."""
    log_prior, contexts = head.mixture(hidden_TBD)
    total = 0.0
    for n, target in enumerate(targets_TB.flatten().tolist()):
        w, log_p = head.decoder_weight[target], []
        for k, h in enumerate(contexts[n]):
            moved = head.decoder_weight
            if h @ w > 0:
                noise = -head.epsilon * w.norm() * h / h.norm()
                at_target = torch.zeros_like(moved)
                at_target[target] = noise.detach()
                moved = moved + at_target
            values = head.transform(moved @ h + head.decoder_bias)
            log_p.append(log_prior[n, k] + torch.log_softmax(values, 0)[target])
        total = total - torch.logsumexp(torch.stack(log_p), 0)
    return total / targets_TB.numel()


@pytest.mark.parametrize(
    ("mixture", "transform"),
    [("none", "identity"), ("softmaxes", "gss"), ("softmaxes", "bend"), ("contexts", "plif")],
)
@pytest.mark.parametrize("rows", [1, 4])
def test_value_and_every_gradient_are_the_formulas(
    pair, make_batch, loss_and_grads, relative_error, mixture, transform, rows
):
    head, noisy = pair(mixture, transform, rows)
    batch = make_batch(head)
    found = loss_and_grads(noisy, *batch)
    noisy.nll = lambda hidden, targets: plain_nll(noisy, hidden, targets)
    expected = loss_and_grads(noisy, *batch)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert relative_error(value, expected[name]) < 1e-12, name
    assert found["nll"] > loss_and_grads(head, *batch)["nll"] + 0.01


def test_bf16_autocast_is_near_and_the_gradients_are_float32(pair, make_batch, assert_near_in_bf16):
    head, noisy = pair("softmaxes", "gss", 4)
    assert_near_in_bf16(noisy, make_batch(head))


def test_evaluation_has_no_noise(pair, make_batch, loss_and_grads):
    head, noisy = pair("softmaxes", "gss", 4)
    batch = make_batch(head)
    expected = loss_and_grads(head, *batch)
    found = loss_and_grads(noisy.eval(), *batch)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    noisy.train()
    torch.testing.assert_close(noisy.token_nll(*batch).mean(), expected["nll"])
    assert torch.equal(noisy.log_probs(batch[0]), head.log_probs(batch[0]))


def test_no_other_noise_of_its_length_makes_the_target_less_likely():
    random = torch.Generator().manual_seed(4)
    weight = torch.randn(11, 5, generator=random)
    context = weight[3] + 0.1 * torch.randn(5, generator=random)
    worst = worst_noise(context.view(1, 1, 5), weight[3:4], 0.3)[0, 0]
    torch.testing.assert_close(worst.norm(), 0.3 * weight[3].norm())

    def log_p(noise: Tensor) -> Tensor:
        moved = weight.clone()
        moved[3] += noise
        return torch.log_softmax(moved @ context, 0)[3]

    others = torch.randn(200, 5, generator=random)
    others *= worst.norm() / others.norm(dim=1, keepdim=True)
    assert all(log_p(noise) > log_p(worst) for noise in others)


def test_a_negative_length_is_refused(pair):
    with pytest.raises(UserError, match=r"head\.epsilon"):
        pair("none", "identity", rows=1, epsilon=-0.1)
