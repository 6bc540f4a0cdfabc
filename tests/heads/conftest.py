"""Every mixture and every transform, built-in and from outside, at sizes that no two share.

Shapes: T window length, B batch, D trunk output, E embedding, K components, V vocabulary.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from lmkit.cli.entry import CONFIGS
from lmkit.heads.direct_output import DirectOutputConnection
from lmkit.heads.head import Head
from lmkit.heads.mixtures import HiddenLayer, MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import (
    GeneralizedSigSoftmax,
    Identity,
    MonotoneMLP,
    PiecewiseLinear,
    SigSoftmax,
)
from tests.language_models import head_parts

D, E, K, V = 6, 5, 3, 13
Loss = Callable[[Head, Tensor, Tensor], Tensor]
# of DOC: contexts of the embedding, none of the first layer, of the second
SIZES = {"emb_dim": E, "hidden_dim": 4, "out_dim": D, "num_layers": 2}
EXPERTS, WEIGHTS = [2, 0, 3], {"latent_dropout": 0.0, "balance_weight": 0.7}


class Cube(nn.Module):
    """A user's transform without parameters."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits + (logits / 3) ** 3


class Bend(nn.Module):
    """A user's transform with parameters, one of them unused and one frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.7, 1.3]))
        self.unused = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.tensor(0.2), requires_grad=False)

    def forward(self, logits: Tensor) -> Tensor:
        return self.scale[0] * logits + self.scale[1] * torch.tanh(logits) + self.frozen


MIXTURES: dict[str, Callable[[], nn.Module]] = {
    "none": lambda: SingleContext(E),
    "hidden": lambda: HiddenLayer(D, E, 7, 0.0),
    "contexts": lambda: MixtureOfContexts(D, E, K, 0.0),
    "softmaxes": lambda: MixtureOfSoftmaxes(D, E, K, 0.0),
    "softmaxes K=1": lambda: MixtureOfSoftmaxes(D, E, 1, 0.0),
    "doc": lambda: DirectOutputConnection(**SIZES, experts=EXPERTS, **WEIGHTS),
}
TRANSFORMS: dict[str, Callable[[], nn.Module]] = {
    "identity": Identity,
    "sigsoftmax": SigSoftmax,
    "gss": lambda: GeneralizedSigSoftmax(c=-0.7, k=0.4),
    "plif": lambda: PiecewiseLinear(9, 2.0, frozen=False),
    "plif frozen": lambda: PiecewiseLinear(8, 2.0, frozen=True),
    "monotone_mlp": lambda: MonotoneMLP(4),
    "cube": Cube,
    "bend": Bend,
}
OF_CONF = {
    file.stem: OmegaConf.to_container(OmegaConf.load(file))
    for file in sorted((CONFIGS / "head" / "transform").glob("*.yaml"))
}
# whatever else conf/head/transform has, but for variants of another file
TRANSFORMS |= {
    name: partial(instantiate, section)
    for name, section in OF_CONF.items()
    if name not in TRANSFORMS and "defaults" not in section
}


def plain_nll(
    head: Head,
    hidden_TBD: Tensor,
    targets_TB: Tensor,
    log_probs: Callable[[Head, Tensor], Tensor] = lambda head, hidden: head.log_probs(hidden),
) -> Tensor:
    """The loss from the whole of log P, by autograd."""
    return -log_probs(head, hidden_TBD).gather(1, targets_TB.view(-1, 1)).mean()


@pytest.fixture(params=list(MIXTURES))
def mixture_kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=list(TRANSFORMS))
def transform_kind(request: pytest.FixtureRequest) -> str:
    return request.param


PAIRS = [(m, "plif" if m != "doc" else "gss") for m in MIXTURES]


@pytest.fixture(params=PAIRS + [("softmaxes", t) for t in TRANSFORMS])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Every mixture and every transform, though not with each other."""
    return request.param


def make_head(mixture: str, transform: str, rows: int = 4, num_words: int = V) -> Head:
    """A head in float64 with weights large enough that logits reach both sides of the bends."""
    torch.manual_seed(11)
    parts = head_parts(MIXTURES[mixture](), TRANSFORMS[transform](), num_words)
    head = Head(parts).double()
    nn.init.normal_(head.decoder_weight)
    nn.init.normal_(head.decoder_bias)
    for name, parameter in head.mixture.named_parameters():
        if name.endswith("weight"):
            nn.init.normal_(parameter)
    # exact in binary: chunks of `rows` contexts
    head.chunk_mb = rows * head.mixture.num_components * num_words * 8 / 2**20
    return head


def make_batch(head: Head, steps: int = 7, batch: int = 3) -> tuple[Tensor, Tensor]:
    """Trunk outputs (T, B, D) in float64 and targets (T, B) for a head."""
    random = torch.Generator().manual_seed(5)
    size = (steps, batch, head.mixture.in_dim)
    hidden_TBD = torch.randn(size, generator=random, dtype=torch.float64)
    targets_TB = torch.randint(len(head.decoder_bias), (steps, batch), generator=random)
    return hidden_TBD, targets_TB


def loss_and_grads(
    head: Head, hidden_TBD: Tensor, targets_TB: Tensor, scale: float = 1.0, loss: Loss = Head.nll
) -> dict[str, Tensor]:
    """A loss and its gradients, of `hidden` and of each trainable parameter by name.

    The loss is `nll`, or that of a function of a head and a batch.
    """
    hidden_TBD = hidden_TBD.detach().requires_grad_()
    trainable = {name: p for name, p in head.named_parameters() if p.requires_grad}
    nll = loss(head, hidden_TBD, targets_TB)
    inputs = {"hidden": hidden_TBD, **trainable}
    grads = torch.autograd.grad(scale * nll, list(inputs.values()), allow_unused=True)
    pairs = zip(inputs.items(), grads, strict=True)
    found = {name: torch.zeros_like(x) if g is None else g for (name, x), g in pairs}
    return {"nll": nll.detach(), **found}


def both_losses(head: Head, hidden_TBD: Tensor, targets_TB: Tensor) -> tuple[dict, dict]:
    """`loss_and_grads` of the chunked loss and of the plain one."""
    plain = loss_and_grads(head, hidden_TBD, targets_TB, loss=plain_nll)
    return loss_and_grads(head, hidden_TBD, targets_TB), plain


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference, relative to that of what is expected.

    Some gradients are zero but for rounding (of a constant added to all logits): below 0.01, well
    under all others, a norm counts as that.
    """
    difference = found.double() - expected.double()
    return float(difference.norm() / expected.double().norm().clamp(min=0.01))


def assert_formula(
    head: Head, batch: tuple[Tensor, Tensor], plain_log_probs: Callable[[Head, Tensor], Tensor]
) -> None:
    """That `nll` and every gradient are those of `plain_log_probs(head, hidden_TBD)`, (N, V)."""
    found = loss_and_grads(head, *batch)
    expected = loss_and_grads(head, *batch, loss=partial(plain_nll, log_probs=plain_log_probs))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert relative_error(value, expected[name]) < 1e-11, name


def assert_logit_range(head: Head, hidden_TBD: Tensor, logits: Tensor) -> None:
    """That the range is that of these logits, before and after the transform."""
    found = head.logit_range(hidden_TBD)
    assert len(found) == 6
    for name, x in (("logits", logits), ("transformed_logits", head.transform(logits))):
        for measure in ("min", "mean", "max"):
            expected = getattr(x, measure)().detach()
            torch.testing.assert_close(found[f"{name}_{measure}"], expected, rtol=1e-10, atol=1e-12)


def assert_near_in_bf16(head: Head, batch: tuple[Tensor, Tensor]) -> None:
    """That under autocast the loss is as near as the plain one is, and gradients are float32."""
    head.float()
    hidden_TBD = batch[0].float()
    exact = loss_and_grads(head, hidden_TBD, batch[1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss_and_grads(head, hidden_TBD, batch[1])
        plain = loss_and_grads(head, hidden_TBD, batch[1], loss=plain_nll)
    assert any((value != exact[name]).any() for name, value in found.items())
    for name, value in found.items():
        assert value.dtype == torch.float32
        allowed = max(0.03, 2 * relative_error(plain[name], exact[name]))
        assert relative_error(value, exact[name]) < allowed, name
