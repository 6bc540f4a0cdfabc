"""Where the AWD-LSTM trunk's dropouts and noise act, and what learns through them.

Shapes: T window length, B batch, E embedding, H hidden, D trunk output, V vocabulary.
"""

import math

import pytest
import torch
from torch import Tensor

from lmkit.trunk.awd_lstm import AWDLSTM, LSTMLayer
from tests.trunk.test_awd_lstm import B, D, E, H, T, V, tokens, trunk

ONE_LAYER = {"num_words": V, "emb_dim": 40, "hidden_dim": H, "out_dim": D, "num_layers": 1}


def test_drop_connect_has_one_mask_a_window_on_the_hidden_to_hidden_weight_alone():
    """Every time step sees the same dropped weight: the window is a plain LSTM of it."""
    layer, p = LSTMLayer(E, H, 0.5).double(), 0.5
    x_TBD = torch.randn(T, B, E, dtype=torch.float64)
    state = torch.rand(1, B, H, dtype=torch.float64), torch.zeros(1, B, H, dtype=torch.float64)
    masks = []
    for _ in range(2):
        output, _ = layer(x_TBD, state)
        mix = torch.randn_like(output)
        grads = torch.autograd.grad((output * mix).sum(), list(layer.parameters()))
        found = dict(zip(layer.state_dict(), grads, strict=True))
        masks.append(found["weight_hh"] != 0)  # a connection used in any step has a gradient
        plain = LSTMLayer(E, H, 0.0).double()
        dropped_hh = layer.weight_hh.detach() * masks[-1] / (1 - p)
        plain.load_state_dict(layer.state_dict() | {"weight_hh": dropped_hh})
        expected, _ = plain(x_TBD, state)
        torch.testing.assert_close(output, expected)
        grads = torch.autograd.grad((expected * mix).sum(), list(plain.parameters()))
        for name, grad in zip(plain.state_dict(), grads, strict=True):
            if name == "weight_hh":
                grad = grad * masks[-1] / (1 - p)
            torch.testing.assert_close(found[name], grad)
    assert 0.3 < masks[0].double().mean() < 0.7
    assert not torch.equal(*masks)


def test_the_raw_recurrent_weight_learns_through_the_dropped_one():
    """With torch.nn.utils.parametrize it would silently not (pytorch issue 65688)."""
    model = trunk(weight_dropout=0.5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state = [(h + 0.5, c) for h, c in model.initial_state(B)]
    model(tokens(), state).raw_TBD.sum().backward()
    for layer in model.layers:
        dropped = layer.weight_hh.grad == 0
        assert 0.3 < dropped.double().mean() < 0.7
    optimizer.step()
    for name, p in model.named_parameters():
        assert p.is_leaf
        assert not torch.equal(p, before[name]), name
        moved = p != before[name]
        torch.testing.assert_close(p[moved], (before[name] - p.grad)[moved])


def noise_of(**dropouts: float) -> Tensor:
    """What the embedding of a trunk in training is, less the plain embedding."""
    model = AWDLSTM(**ONE_LAYER, **dropouts)
    inputs = []
    model.layers[0].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    tokens_TB = torch.randint(V, (50, 20))
    model(tokens_TB, model.initial_state(20))
    return (inputs[0] - model.embedding_weight[tokens_TB]).detach()


def test_embedding_noise_is_gaussian_with_the_given_deviation():
    noise = noise_of(embedding_noise=0.3)
    n = noise.numel()  # 40,000
    assert abs(noise.std() / 0.3 - 1) < 5 / math.sqrt(2 * n)
    assert abs(noise.mean()) < 5 * 0.3 / math.sqrt(n)
    kurtosis = (noise / 0.3).pow(4).mean()
    assert abs(kurtosis - 3) < 5 * math.sqrt(96 / n)
    # drawn anew for every step, column and dimension
    assert abs(noise[0].std() / 0.3 - 1) < 5 / math.sqrt(2 * 800)
    assert noise.unique().numel() > 0.99 * n
    assert not noise_of().any()


def test_embedding_noise_comes_before_the_locked_dropout():
    model = AWDLSTM(**ONE_LAYER, input_dropout=0.5, embedding_noise=1.0)
    inputs = []
    model.layers[0].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(tokens(), model.initial_state(B))
    dropped = inputs[0] == 0
    assert 0.3 < dropped.double().mean() < 0.7
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))


@pytest.mark.parametrize(
    ("option", "places"),
    [("input_dropout", {0}), ("hidden_dropout", {1, 2}), ("output_dropout", {3})],
)
def test_locked_dropouts_act_where_their_names_say(option, places):
    """Places: inputs of the three layers, then the output."""
    model = trunk(**{option: 0.5})
    passed, left = [], []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda _, args: passed.append(args[0]))
        layer.register_forward_hook(lambda _, __, out: left.append(out[0]))
    tokens_TB = tokens()
    output = model(tokens_TB, model.initial_state(B))
    before = [model.embedding_weight[tokens_TB], *left]
    after = [*passed, output.dropped_TBD]
    assert torch.equal(output.raw_TBD, left[-1])
    for place, (x, y) in enumerate(zip(before, after, strict=True)):
        if place in places:
            kept = y != 0
            torch.testing.assert_close(y, 2 * x * kept)
            assert torch.equal(kept, kept[:1].expand_as(kept))
            assert 0.2 < kept.double().mean() < 0.8
        else:
            assert torch.equal(x, y)
