"""AdamW's groups: what decays, at which lr."""

from functools import partial

import pytest
import torch
from torch import nn

from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head
from lmkit.heads.mixtape import Mixtape
from lmkit.heads.mixtures import MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import Identity, PiecewiseLinear
from lmkit.training.optimizer import AdamW, learning_rate, make_optimizer
from lmkit.trunk.transformer import Transformer
from tests.language_models import head_parts, language_model, tied_head

OPTIONS = {"lr": 0.1, "betas": [0.8, 0.99], "eps": 1e-3, "weight_decay": 0.5, "fused": True}
SIZES = {"num_words": 7, "emb_dim": 4, "hidden_dim": 4, "out_dim": 4, "num_layers": 1}


def test_matrices_alone_decay_and_the_transform_keeps_its_lr():
    trunk = Transformer(**SIZES, num_heads=1, memory=3)
    transform = PiecewiseLinear(11, 4.0, frozen=False)
    model = language_model(trunk, tied_head(trunk, MixtureOfSoftmaxes(4, 4, 2, 0.0), transform))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(
        partial(AdamW, **OPTIONS), model.head, model.named_parameters(), 0.02
    )
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1, 0.02]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 1 - 0.1 * 0.5 if parameter.dim() == 2 else 1
        torch.testing.assert_close(parameter.detach(), factor * before[name], msg=name)


def test_a_bias_of_two_dimensions_does_not_decay():
    trunk = Transformer(**SIZES, num_heads=1, memory=3)
    options = {"in_dim": 4, "emb_dim": 4, "num_experts": 4, "gate_dim": 3, "own_share": 0.5}
    head = Mixtape(head_parts(SingleContext(4), Identity(), 7), **options, latent_dropout=0.0)
    model = language_model(trunk, head)
    optimizer = make_optimizer(partial(AdamW, **OPTIONS), head, model.named_parameters(), 0.02)
    decaying, others = optimizer.param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.5, 0)
    assert any(p is head.gate_bias for p in others["params"])
    assert {p.dim() for p in decaying["params"]} == {2}
    kept = optimizer.state_dict()["param_groups"][0].keys()
    assert kept == torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))]).param_groups[0].keys()


def test_options_are_those_of_pytorchs_own():
    weight = torch.nn.Parameter(torch.ones(3, 2))
    (ours,) = AdamW([{"params": [("weight", weight)]}], **OPTIONS).state_dict()["param_groups"]
    (theirs,) = torch.optim.AdamW(
        [("weight", weight)], **OPTIONS | {"betas": (0.8, 0.99)}
    ).param_groups
    assert ours | {"params": 0} == theirs | {"params": 0}


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("lr", 0, r"optimizer\.lr"),
        ("lr", None, r"^optimizer\.lr must be a finite number"),
        ("weight_decay", -1, r"optimizer\.weight_decay"),
        ("betas", 0.9, r"optimizer\.betas must be a list such as \[0\.9,0\.999\]"),
        ("betas", [0.9], r"optimizer\.betas must be two numbers"),
        ("betas", [0.9, 1.0], r"optimizer\.betas\[1\]"),
        ("eps", 0, r"optimizer\.eps"),
        ("momentum", 0.9, r"no option optimizer\.momentum; it takes lr, betas"),
    ],
)
def test_a_bad_value_names_its_option(option, value, named):
    with pytest.raises(UserError, match=named):
        learning_rate(partial(AdamW, **OPTIONS | {option: value}))


def test_an_optimizer_may_split_parameters_and_takes_no_others():
    def of_size(params, more=()):
        named = [*params[0]["params"], *more]
        groups = [[pair for pair in named if pair[1].dim() == size] for size in (1, 2)]
        return torch.optim.SGD([{"params": group} for group in groups], lr=0.5)

    assert learning_rate(of_size) == 0.5
    own = [("own", nn.Parameter(torch.zeros(1)))]
    with pytest.raises(UserError, match=r"optimizer=SGD cannot be taken: it takes other param"):
        learning_rate(partial(of_size, more=own))


def test_an_optimizer_without_rates_in_its_groups_is_refused():
    class Own(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

    with pytest.raises(UserError, match=r"optimizer=Own cannot be taken: .* no lr, which sched"):
        learning_rate(Own)


def test_steps_that_are_differentiable_are_refused():
    with pytest.raises(UserError, match=r"optimizer\.differentiable must be false"):
        learning_rate(partial(torch.optim.Adam, lr=1.0, differentiable=True))


class OneLr(torch.optim.SGD):
    """One that sorts parameters anew, and forgets what their groups say."""

    def __init__(self, params):
        named = [pair for group in params for pair in group["params"]]
        super().__init__([{"params": [pair]} for pair in named], lr=10.0)


class Stepping(torch.optim.SGD):
    def step(self):
        super().step()


class Silent(torch.optim.SGD):
    def step(self, closure=None):
        super().step()


class Twice(torch.optim.SGD):
    """As sharpness-aware minimisation does."""

    def step(self, closure):
        closure()
        super().step(closure)


class ByShape(torch.optim.SGD):
    def __init__(self, params):
        super().__init__([p for group in params for p in group["params"] if p.dim()], lr=1.0)


class Polyak(torch.optim.SGD):
    def step(self, closure):
        loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data -= loss.item() * parameter.grad.data / parameter.grad.norm()


def test_an_optimizer_of_ones_own_may_need_loss_and_gradients():
    assert learning_rate(partial(Polyak, lr=1.0)) == 1.0


@pytest.mark.parametrize(
    ("factory", "error"),
    [
        (partial(Stepping, lr=1.0), "Stepping cannot be taken: its step must take a closure"),
        (partial(Silent, lr=1.0), "Silent cannot be taken: its step must take a closure"),
        (partial(Twice, lr=1.0), "which computes the loss, and call it once"),
        (ByShape, "has no attribute 'dim'; its groups hold pairs of a parameter's name"),
    ],
)
def test_an_optimizer_of_ones_own_that_training_cannot_take_is_refused(factory, error):
    with pytest.raises(UserError, match=error):
        learning_rate(factory)


def test_an_optimizer_of_ones_own_keeps_the_transforms_rate():
    head = Head(head_parts(SingleContext(6), PiecewiseLinear(5, 1.0, frozen=False), 11))
    with pytest.raises(UserError, match=r"transform learns at module\.transform_lr=0\.02"):
        make_optimizer(OneLr, head, head.named_parameters(), 0.02)


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SparseAdam, torch.optim.ASGD])
def test_an_optimizer_that_needs_another_step_is_refused(kind):
    with pytest.raises(UserError, match=f"optimizer={kind.__name__} cannot be taken: "):
        learning_rate(partial(kind, lr=1.0))
