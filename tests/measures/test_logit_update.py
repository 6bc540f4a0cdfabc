"""The change of log P by a step of gradient descent, against a step that is taken, in float64."""

import copy

import pytest
import torch
from torch import nn

from lmkit.heads.direct_output import DirectOutputConnection
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtape import Mixtape
from lmkit.heads.mixtures import Mixture, MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import GeneralizedSigSoftmax, Identity, MonotoneMLP, PiecewiseLinear
from lmkit.measures.contexts import ContextBlock
from lmkit.measures.gradient_share import logit_update

N, D, V = 30, 4, 23


def made(
    kind: type[Head], mixture: Mixture, transform: nn.Module, num_words: int = V, **options: object
) -> Head:
    torch.manual_seed(1)
    parts = HeadParts(mixture=mixture, transform=transform, word_counts_V=torch.arange(num_words))
    head = kind(parts, **options).double().eval()
    for parameter in head.parameters():
        nn.init.normal_(parameter, std=0.5)
    return head


def heads() -> dict[str, Head]:
    none, sizes = SingleContext(D), {"in_dim": D, "emb_dim": D, "latent_dropout": 0.0}
    layers = {"emb_dim": 2, "hidden_dim": 2, "out_dim": 2, "num_layers": 1}
    doc = DirectOutputConnection(**layers, experts=[1, 2], latent_dropout=0.0, balance_weight=0.0)
    return {
        "softmax": made(Head, none, Identity()),
        "low rank": made(Head, none, Identity(), decoder_rank=1),
        "moc": made(Head, MixtureOfContexts(num_experts=3, **sizes), Identity()),
        "mos": made(Head, MixtureOfSoftmaxes(num_experts=3, **sizes), Identity()),
        "gss": made(Head, none, GeneralizedSigSoftmax(1.0, 3.0)),
        "plif": made(Head, none, PiecewiseLinear(2, 4.0, False)),
        "monotone_mlp": made(Head, none, MonotoneMLP(3)),
        "doc": made(Head, doc, Identity()),
        "mixtape": made(
            Mixtape, none, Identity(), num_experts=4, gate_dim=3, own_share=0.3, **sizes
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", heads())
def test_the_update_is_that_of_a_small_step(name):
    head = heads()[name]
    torch.manual_seed(2)
    hidden = torch.randn(1, N, D, dtype=torch.float64)
    targets = torch.randint(V, (1, N))
    found = logit_update(head, [ContextBlock(hidden[:, :7], targets[:, :7]),
                                ContextBlock(hidden[:, 7:], targets[:, 7:])])  # fmt: skip
    hidden.requires_grad_()
    log_p = head.log_probs(hidden)
    nll = -log_p.gather(1, targets.reshape(-1, 1)).mean()
    parameters = list(head.parameters())
    of_hidden, *others = torch.autograd.grad(nll, [hidden, *parameters])
    assert all(parameter.grad is None for parameter in parameters)

    def stepped(rate: float) -> torch.Tensor:
        moved = copy.deepcopy(head)
        with torch.no_grad():
            for parameter, gradient in zip(moved.parameters(), others, strict=True):
                parameter -= rate * gradient
            return moved.log_probs(hidden - rate * of_hidden)

    update = (stepped(1e-5) - stepped(-1e-5)) / 2e-5
    asked = torch.nn.functional.one_hot(targets[0], V) - log_p.detach().exp()
    centred = update - update.mean(dim=1, keepdim=True)
    cosine = float((centred * asked).sum() / centred.norm() / asked.norm())
    assert found.update_cosine == pytest.approx(cosine, rel=1e-4)
    assert (found.update_contexts, 0 < found.update_cosine < 1) == (N, True)
    sigma = torch.linalg.svdvals(update)
    assert found.update_rank == int((sigma > 1e-6 * sigma[0]).sum())
    bounds = {"softmax": 2 * D + 2, "moc": 2 * D + 2, "low rank": 2 + 2}
    if name in bounds:
        assert found.update_rank == found.update_bound == bounds[name]
    else:
        assert found.update_bound is None
        assert found.update_rank > 2 * D + 2


class InputsAreLogits(Head):
    """A head whose step can be ideal: gradient descent on its inputs moves its logits along -G."""

    def log_probs(self, hidden_TBD: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(hidden_TBD.flatten(0, 1), dim=-1)

    def nll(self, hidden_TBD: torch.Tensor, targets_TB: torch.Tensor) -> torch.Tensor:
        return -self.log_probs(hidden_TBD).gather(1, targets_TB.reshape(-1, 1)).mean()

    def forward(self, inputs: object, targets_n: object) -> torch.Tensor:
        raise AssertionError("nll is its loss")


@pytest.mark.parametrize("num_words", [3, 200, 5_000, 50_000])
def test_the_ideal_step_has_cosine_1_at_every_size_of_vocabulary(num_words):
    """Over targets that log P expects: there the normaliser's constant, the same in V columns, is
    the larger part of the change."""
    torch.manual_seed(4)
    rows = torch.log_softmax(5 * torch.randn(8, num_words, dtype=torch.float64), 1)
    targets = torch.multinomial(rows.exp(), 1).T
    ideal = made(InputsAreLogits, SingleContext(D), Identity(), num_words)
    found = logit_update(ideal, [ContextBlock(rows.unsqueeze(0), targets)])
    assert found.update_cosine == pytest.approx(1, abs=1e-9)
