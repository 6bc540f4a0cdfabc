"""Parameters and FLOPs by part, against counts by hand and against torch's own counter.

Shapes: T window length, B batch, N = T*B contexts, V vocabulary.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lmkit.experiment.model_size import Part, parts, total
from lmkit.heads.head import Head
from lmkit.heads.mixtape import Mixtape
from lmkit.heads.mixtures import Mixture, MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import Identity, PiecewiseLinear
from lmkit.training.language_model import LanguageModel
from lmkit.trunk.awd_lstm import AWDLSTM
from lmkit.trunk.transformer import Transformer
from tests.language_models import head_parts, language_model

V, E, H, D, K = 13, 5, 7, 6, 3
T, B = 4, 3


def model(
    mixture: Mixture,
    transform: nn.Module | None = None,
    tied: bool = True,
):
    trunk = AWDLSTM(num_words=V, emb_dim=E, hidden_dim=H, out_dim=mixture.in_dim, num_layers=2)
    weight = trunk.embedding_weight if tied else None
    made_of = head_parts(mixture, transform or Identity(), V, weight)
    return language_model(trunk, Head(made_of))


def by_name(found: list[Part]) -> dict[str, Part]:
    return {part.name: part for part in found}


def test_counts_of_a_mixture_of_softmaxes_are_those_by_hand():
    found = by_name(parts(model(MixtureOfSoftmaxes(D, E, K, 0.0), PiecewiseLinear(11, 4.0, True))))
    assert found == {
        "embedding = decoder": Part("embedding = decoder", 65, 65, 260, 390, 1170),
        "layers.0": Part("layers.0", 392, 392, 1568, 672, 2016),
        "layers.1": Part("layers.1", 360, 360, 1440, 624, 1872),
        "decoder_bias": Part("decoder_bias", 13, 13, 52, 0, 0),
        "mixture.prior": Part("mixture.prior", 18, 18, 72, 36, 108),
        "mixture.latent": Part("mixture.latent", 105, 105, 420, 180, 540),
        "transform": Part("transform", 0, 11, 44, 0, 0),
    }


def test_a_transformer_has_its_attention_beside_its_matrices():
    trunk = Transformer(
        **{"num_words": V, "emb_dim": E, "hidden_dim": H, "out_dim": D, "num_layers": 2},
        num_heads=2,  # of 4 channels
        ffn_dim=9,
        memory=10,
    )
    head = Head(head_parts(SingleContext(D), Identity(), V))
    found = by_name(parts(language_model(trunk, head)))
    products = H * 3 * 8 + 8 * H + H * 2 * 9 + 9 * H
    count = products + 2 * H  # and two norms
    assert found["layers.1"] == Part(
        "layers.1", count, count, 4 * count, 2 * products, 6 * products
    )
    assert found["attention"] == Part("attention", 0, 0, 0, 2 * 4 * 8 * 11, 3 * 2 * 4 * 8 * 11)
    assert found["input_map"].forward_flops == 2 * E * H
    assert found["output_map"].forward_flops == 2 * H * D


def test_an_untied_embedding_is_looked_up_and_not_multiplied():
    found = by_name(parts(model(SingleContext(D), tied=False)))
    assert found["embedding"] == Part("embedding", V * E, V * E, 4 * V * E, 0, 0)
    assert found["decoder"] == Part("decoder", V * D, V * D, 4 * V * D, 2 * V * D, 6 * V * D)


def test_a_frozen_matrix_saves_its_own_gradient():
    trunk_frozen = model(SingleContext(E))
    trunk_frozen.trunk.layers[0].requires_grad_(False)
    part = by_name(parts(trunk_frozen))["layers.0"]
    assert (part.trainable, part.parameters) == (0, 392)
    assert part.training_flops == 2 * part.forward_flops


@pytest.mark.parametrize("mixture", [SingleContext, MixtureOfContexts, MixtureOfSoftmaxes])
@pytest.mark.parametrize("tied", [True, False])
def test_parts_sum_to_the_model(mixture, tied):
    made = mixture(E) if mixture is SingleContext else mixture(E, E, K, 0.0)
    whole = model(made, PiecewiseLinear(11, 4.0, False), tied)
    found = total(parts(whole))
    sizes = [parameter.numel() for parameter in whole.parameters()]
    assert found.parameters == found.trainable == sum(sizes)
    assert found.num_bytes == 4 * sum(sizes)


def flops_in_place(_total: torch.Size, left: torch.Size, right: torch.Size, **_rest) -> int:
    return 2 * left.numel() * right[1]


def counted_flops(language_model: LanguageModel) -> int:
    """Those that torch counts for a window; in float64 every LSTM is made of counted products."""
    language_model.double().train()
    tokens_TB = torch.randint(V, (T, B))
    # with a gradient of its own, the state takes part in each step's products as all others do
    state = [
        (h.requires_grad_(), c.requires_grad_()) for h, c in language_model.trunk.initial_state(B)
    ]
    in_place = {torch.ops.aten.addmm_: flops_in_place}  # the one product that it leaves out
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        output = language_model.trunk(tokens_TB, state)
        language_model.head.nll(output.dropped_TBD, tokens_TB).backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("mixture", [SingleContext, MixtureOfContexts, MixtureOfSoftmaxes])
def test_flops_are_those_that_torch_counts(mixture, tied):
    made = mixture(E) if mixture is SingleContext else mixture(D, E, K, 0.0)
    whole = model(made, tied=tied)
    found = total(parts(whole))
    assert found.training_flops == 3 * found.forward_flops
    assert counted_flops(whole) == T * B * found.training_flops


def test_flops_of_mixtape_are_those_that_torch_counts():
    whole = model(SingleContext(D), tied=False)
    whole.head = Mixtape(
        head_parts(SingleContext(D), Identity(), V),
        in_dim=D,
        emb_dim=E,
        num_experts=4,
        gate_dim=5,
        own_share=10 / V,
        latent_dropout=0.0,
    )
    found = by_name(parts(whole))
    assert (found["gate_weight"].forward_flops, found["gate_bias"].forward_flops) == (330, 0)
    assert counted_flops(whole) == T * B * total(parts(whole)).training_flops
