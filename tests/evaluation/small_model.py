"""A small model in float64, and a text of one column that it reads."""

from functools import partial

import torch

from lmkit.data.windows import EvalWindows, columns
from lmkit.heads.mixtures import MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import Identity, PiecewiseLinear
from lmkit.training.language_model import LanguageModel
from lmkit.trunk.awd_lstm import AWDLSTM
from lmkit.trunk.transformer import Transformer
from tests.language_models import language_model, tied_head

NUM_WORDS, DIM = 13, 5
KINDS = ("softmax", "mos_plif", "transformer")
# words come again
TEXT = torch.randint(0, NUM_WORDS, (83,), generator=torch.Generator().manual_seed(1))


def small_model(kind: str) -> LanguageModel:
    """An LSTM with a softmax or MoS and PLIF, or a Transformer with a softmax."""
    torch.manual_seed(4)
    options = {"num_words": NUM_WORDS, "emb_dim": DIM, "hidden_dim": 6, "out_dim": DIM}
    options |= {"num_layers": 2}
    places = ("embed", "input", "hidden", "output", "weight")
    options |= {f"{place}_dropout": 0.2 for place in places}
    made = partial(Transformer, num_heads=2, memory=7) if kind == "transformer" else AWDLSTM
    trunk, mixture, transform = made(**options), SingleContext(DIM), Identity()
    if kind == "mos_plif":
        mixture = MixtureOfSoftmaxes(DIM, DIM, 2, 0.2)
        transform = PiecewiseLinear(30, 4.0, frozen=False)
    head = tied_head(trunk, mixture, transform, chunk_mb=0.001)
    model = language_model(trunk, head, transform_lr=0.1).double()
    with torch.no_grad():  # of a size at which much depends on the words
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def windows(length: int) -> EvalWindows:
    """The text in windows of a length."""
    return EvalWindows(columns(TEXT.numpy(), 1), length)
