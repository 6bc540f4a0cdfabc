"""Spectrum control against a model that computes W and the penalties plainly, in float64.

Shapes: T window length, B batch, D trunk output, E embedding, K components, V vocabulary.
"""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head
from lmkit.heads.mixtures import Mixture, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.spectrum_control import PRIORS, SpectrumControl, prior_shape
from lmkit.heads.transforms import GeneralizedSigSoftmax, Identity
from lmkit.training.callbacks.asgd_switch import STATE_KEY, AsgdSwitch, load_evaluated_weights
from lmkit.training.language_model import LanguageModel
from lmkit.training.triggers import FromStart
from lmkit.trunk.awd_lstm import AWDLSTM
from tests.language_models import head_parts, language_model

V, E, T, B = 17, 5, 6, 3
STRENGTHS = {"spectrum_weight": 5.0, "orthogonality_weight": 0.7}


def controlled(
    mixture: Mixture,
    transform: nn.Module,
    weight: nn.Parameter | None,
    prior: str = "exponential",
    num_words: int = V,
) -> SpectrumControl:
    options = {"prior": prior, "gamma": 0.7, "ratio": 0.4, **STRENGTHS}
    parts = head_parts(mixture, transform, num_words, weight, chunk_mb=0.001)
    return SpectrumControl(parts, **options)


def controlled_model(
    mixture: str = "none", prior: str | None = "exponential", tied: bool = True
) -> LanguageModel:
    """In float64, without dropout; with `prior` None the same model without control."""
    torch.manual_seed(2)
    trunk = AWDLSTM(num_words=V, emb_dim=E, hidden_dim=7, out_dim=E, num_layers=2).double()
    weight = trunk.embedding_weight if tied else None
    made = SingleContext(E), Identity()
    if mixture == "softmaxes":
        made = MixtureOfSoftmaxes(E, E, 3, 0.0), GeneralizedSigSoftmax(c=-0.7, k=0.4)
    head = Head(head_parts(*made, V, weight, chunk_mb=0.001))
    if prior is not None:  # of the weight as it was drawn, in float64
        weight = head.decoder_weight if tied else nn.Parameter(head.decoder_weight.data.double())
        head = controlled(*made, weight, prior)
    return language_model(trunk, head).double()


def moved(model: LanguageModel) -> LanguageModel:
    """With factors that are neither orthonormal nor on the prior."""
    with torch.no_grad():
        for parameter in (model.head.decoder_weight, *model.head.word_map.parameters()):
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def batch() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(V, (T + 1, B), generator=torch.Generator().manual_seed(3))
    return tokens[:-1], tokens[1:]


def factors(head: SpectrumControl) -> tuple[Tensor, Tensor, Tensor]:
    """U, sigma, V."""
    unit = head.word_map.unit
    return head.decoder_weight / unit, head.word_map.sigma_E, head.word_map.right_EE / unit


def product(head: SpectrumControl) -> Tensor:
    left_VE, sigma_E, right_EE = factors(head)
    return left_VE @ torch.diag(sigma_E) @ right_EE.T


def training_loss(model: LanguageModel, tokens: Tensor, targets: Tensor) -> Tensor:
    hidden_TBD = model.head_input(model.trunk(tokens, model.trunk.initial_state(B)))
    return model.head.nll(hidden_TBD, targets) + model.head.penalty(hidden_TBD)


def plain_penalty(head: SpectrumControl) -> Tensor:
    """Entry by entry; the prior's size solves d/dc sum_k (sigma_k - c shape_k)^2 = 0."""
    left, sigma, right = factors(head)
    off = sum(
        (matrix[:, i] @ matrix[:, j] - float(i == j)) ** 2
        for matrix, i, j in itertools.product((left, right), range(E), range(E))
    )
    shape = [1 - 0.6 * (k / (E - 1)) ** 0.7 for k in range(E)]
    if head.prior == "exponential":
        shape = [math.exp(math.log(0.4) * (k / (E - 1)) ** 0.7) for k in range(E)]
    size = sum(sigma[k] * shape[k] for k in range(E)) / sum(value**2 for value in shape)
    from_prior = sum((sigma[k] - size * shape[k]) ** 2 for k in range(E))
    return STRENGTHS["spectrum_weight"] * from_prior + STRENGTHS["orthogonality_weight"] * off


def plain_loss(model: LanguageModel, tokens: Tensor, targets: Tensor) -> Tensor:
    """Of W as it is: looked up in the trunk if tied, then multiplied by the mixture's contexts."""
    head, trunk = model.head, model.trunk
    weight, x = product(head), F.embedding(tokens, trunk.embedding_weight)
    if trunk.embedding_weight is head.decoder_weight:
        x = F.embedding(tokens, weight)
    for layer, state in zip(trunk.layers, trunk.initial_state(B), strict=True):
        x, _ = layer(x, state)
    log_prior, contexts = head.mixture(x)
    log_p = F.log_softmax(head.transform(contexts @ weight.T + head.decoder_bias), dim=-1)
    log_p = torch.logsumexp(log_prior.unsqueeze(-1) + log_p, dim=1)
    nll = -log_p.gather(1, targets.reshape(-1, 1)).mean()
    return nll + plain_penalty(head)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("mixture", ["none", "softmaxes"])
@pytest.mark.parametrize("tied", [True, False])
def test_loss_and_every_gradient_are_those_of_the_product(relative_error, prior, mixture, tied):
    model = moved(controlled_model(mixture, prior, tied))
    parameters = dict(model.named_parameters())
    found, expected = training_loss(model, *batch()), plain_loss(model, *batch())
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    grads = [torch.autograd.grad(loss, [*parameters.values()]) for loss in (found, expected)]
    for name, one, other in zip(parameters, *grads, strict=True):
        assert relative_error(one, other) < 1e-10, name


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("mixture", ["none", "softmaxes"])
def test_it_starts_as_the_head_without_control(mixture, tied):
    rows = []
    for model in (controlled_model(mixture, tied=tied), controlled_model(mixture, None, tied)):
        output = model.trunk(batch()[0], model.trunk.initial_state(B))
        rows.append(model.head.log_probs(model.head_input(output)))
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-12, atol=1e-12)


def test_singular_values_are_sigma_while_the_factors_are_orthonormal():
    model = controlled_model()
    head, sigma = model.head, torch.tensor([3, 0.5, 2, -1, 4], dtype=torch.float64)
    assert head.orthogonality_error() < 1e-24
    head.word_map.sigma_E.data.copy_(sigma)
    values = torch.linalg.svdvals(product(head))
    torch.testing.assert_close(values, sigma.abs().sort(descending=True).values)
    table = model.trunk.word_map(model.trunk.embedding_weight)
    torch.testing.assert_close(table, product(head), rtol=1e-12, atol=1e-12)


def test_priors_fall_from_one_to_the_ratio():
    for shape in (prior_shape(prior, 2.0, 0.1, torch.zeros(9)) for prior in PRIORS):
        torch.testing.assert_close(shape[[0, -1]], torch.tensor([1.0, 0.1]))
        assert (shape.diff() < 0).all()
    geometric = prior_shape("exponential", 1.0, 0.1, torch.zeros(9))
    torch.testing.assert_close(geometric[1:] / geometric[:-1], torch.full((8,), 0.1 ** (1 / 8)))


@pytest.mark.parametrize("prior", PRIORS)
def test_the_penalty_alone_takes_the_factors_to_the_prior(prior):
    head = moved(controlled_model(prior=prior)).head
    assert head.spectrum_error() > 0.01
    assert head.orthogonality_error() > 0.01
    descent = torch.optim.SGD(head.parameters(), lr=0.003)
    for _ in range(800):
        descent.zero_grad()
        head.penalty(torch.zeros(1, 1, E)).backward()
        descent.step()
    assert head.spectrum_error() < 1e-12
    assert head.orthogonality_error() < 1e-12
    shape = prior_shape(prior, 0.7, 0.4, head.word_map.sigma_E)
    values = torch.linalg.svdvals(product(head))
    torch.testing.assert_close(values / values[0], shape, rtol=1e-5, atol=1e-5)


def test_the_penalty_is_added_to_that_of_the_mixture():
    head = controlled_model().head
    own = head.penalty(torch.zeros(1, 1, E))
    head.mixture.penalty = lambda hidden_TBD: torch.tensor(2.0)
    torch.testing.assert_close(head.penalty(torch.zeros(1, 1, E)), own + 2)


def test_the_tied_weight_is_one_set_of_parameters():
    model = controlled_model()
    assert model.trunk.embedding_weight is model.head.decoder_weight
    assert model.trunk.word_map is model.head.word_map
    sizes = [sum(p.numel() for p in m.parameters()) for m in (model, controlled_model(prior=None))]
    assert sizes[0] == sizes[1] + E + E * E
    twin = copy.deepcopy(model)
    assert twin.trunk.word_map is twin.head.word_map is not model.head.word_map


def test_a_checkpoint_gives_the_same_function():
    model, other = moved(controlled_model("softmaxes")), controlled_model("softmaxes")
    other.load_state_dict(model.state_dict())
    assert torch.equal(training_loss(other, *batch()), training_loss(model, *batch()))


def test_averages_are_those_of_the_factors():
    model, switch = controlled_model(), AsgdSwitch(FromStart())
    for _ in range(4):
        moved(model)
        switch.on_train_batch_end(None, model, None, None, 0)
    evaluated = controlled_model()
    content = {"state_dict": model.state_dict(), "callbacks": {STATE_KEY: switch.state_dict()}}
    assert load_evaluated_weights(evaluated, content)
    head, prefix = evaluated.head, "trunk.word_map."
    torch.testing.assert_close(head.word_map.sigma_E, switch.averages[f"{prefix}sigma_E"])
    torch.testing.assert_close(head.word_map.right_EE, switch.averages[f"{prefix}right_EE"])
    torch.testing.assert_close(head.decoder_weight, switch.averages["trunk.embedding_weight"])
    with switch.averaged(model):
        assert torch.equal(training_loss(evaluated, *batch()), training_loss(model, *batch()))


def test_fewer_words_than_dimensions_are_padded():
    weight = nn.Parameter(torch.randn(3, E, dtype=torch.float64))
    drawn = weight.detach().clone()
    head = controlled(SingleContext(E), Identity(), weight, num_words=3)
    torch.testing.assert_close(product(head), drawn)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("prior", "linear", r"head\.prior must be one of exponential, polynomial"),
        ("gamma", 0, r"head\.gamma must be greater than 0"),
        ("ratio", 0, r"head\.ratio must be greater than 0"),
        ("ratio", 1.5, r"head\.ratio must be at most 1"),
        ("spectrum_weight", -1, r"head\.spectrum_weight must be at least 0"),
        ("orthogonality_weight", -1, r"head\.orthogonality_weight must be at least 0"),
    ],
)
def test_bad_options_are_named(option, value, message):
    options = {"prior": "exponential", "gamma": 1.0, "ratio": 0.5, **STRENGTHS, option: value}
    with pytest.raises(UserError, match=message):
        SpectrumControl(head_parts(SingleContext(E), Identity(), V), **options)


def test_a_trunk_that_cannot_look_vectors_up_is_refused_if_tied():
    trunk = nn.Module()
    trunk.embedding_weight = nn.Parameter(torch.randn(V, E))
    controlled(SingleContext(E), Identity(), None).attach(trunk)
    tied = controlled(SingleContext(E), Identity(), trunk.embedding_weight)
    with pytest.raises(UserError, match=r"tie_weights=false with trunk\._target_=torch"):
        tied.attach(trunk)
