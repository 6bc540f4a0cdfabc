"""A small model of any head, in float64, and a text of one column.

Shapes: V vocabulary.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from lmkit.data.windows import EvalWindows, columns
from lmkit.heads.mixtures import MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import (
    GeneralizedSigSoftmax,
    Identity,
    MonotoneMLP,
    PiecewiseLinear,
    SigSoftmax,
)
from lmkit.training.language_model import LanguageModel
from lmkit.trunk.awd_lstm import AWDLSTM
from lmkit.trunk.transformer import Transformer
from tests.language_models import language_model, tied_head

V, D = 13, 5
TRANSFORMS = {
    "softmax": Identity,
    "ss": SigSoftmax,
    "gss": lambda: GeneralizedSigSoftmax(0.5, 2.5),
    "plif": lambda: PiecewiseLinear(30, 4.0, frozen=False),
    "monotone": lambda: MonotoneMLP(4),
}


@pytest.fixture(scope="session")
def small_model() -> Callable[[str], LanguageModel]:
    """Makes the model of a head: a key of TRANSFORMS, "moc", "mos" or "mos_plif".

    Or of another trunk with a softmax: "transformer".
    """

    def make(kind: str) -> LanguageModel:
        torch.manual_seed(4)
        places = ("embed", "input", "hidden", "output", "weight")
        options = {"num_words": V, "emb_dim": D, "hidden_dim": 6, "out_dim": D, "num_layers": 2}
        options |= {f"{place}_dropout": 0.2 for place in places}
        trunks = {"transformer": partial(Transformer, **options, num_heads=2, memory=7)}
        trunk = trunks.get(kind, partial(AWDLSTM, **options))()
        kind = "softmax" if kind in trunks else kind
        mixture, _, transform = kind.rpartition("_")
        if kind in TRANSFORMS:
            mixture, transform = "", kind
        elif kind in ("moc", "mos"):
            mixture, transform = kind, "softmax"
        mixtures = {"": SingleContext(D)}
        mixtures |= {"moc": MixtureOfContexts(D, D, 2, 0.2)}
        mixtures |= {"mos": MixtureOfSoftmaxes(D, D, 2, 0.2)}
        head = tied_head(trunk, mixtures[mixture], TRANSFORMS[transform](), chunk_mb=0.001)
        model = language_model(trunk, head, transform_lr=0.1).double()
        with torch.no_grad():  # of a size at which much depends on the words
            for parameter in model.parameters():
                parameter.mul_(3)
        return model

    return make


@pytest.fixture
def text() -> torch.Tensor:
    """83 words, int64 (83,), in which words come again."""
    return torch.randint(0, V, (83,), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def windows_of() -> Callable[[torch.Tensor, int], EvalWindows]:
    """Windows of a length over a text of one column."""
    return lambda words, length: EvalWindows(columns(words.numpy(), 1), length)
