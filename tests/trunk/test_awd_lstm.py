"""The AWD-LSTM trunk against torch.nn.LSTM; its state, start, precision and dropouts.

Shapes: T window length, B batch, E embedding, H hidden, D trunk output, V vocabulary.
"""

import math

import pytest
import torch
from torch import Tensor

from lmkit.errors.user_error import UserError
from lmkit.trunk.awd_lstm import AWDLSTM, LSTMLayer, _flat

T, B, V, E, H, D = 6, 4, 30, 5, 8, 7
ALL_DROPOUTS = {
    **{"embed_dropout": 0.1, "input_dropout": 0.4, "hidden_dropout": 0.3},
    **{"output_dropout": 0.4, "weight_dropout": 0.5, "embedding_noise": 0.1},
}
ONE_LAYER = {"num_words": V, "emb_dim": 40, "hidden_dim": H, "out_dim": D, "num_layers": 1}


def trunk(num_layers: int = 3, **dropouts: float) -> AWDLSTM:
    sizes = {"num_words": V, "emb_dim": E, "hidden_dim": H, "out_dim": D}
    return AWDLSTM(**sizes, num_layers=num_layers, **dropouts)


def tokens() -> Tensor:
    return torch.randint(V, (T, B))


@pytest.mark.parametrize("cut", [1, 2, T - 1])
def test_two_windows_equal_one_long_window_in_evaluation(cut):
    model = trunk(**ALL_DROPOUTS).double().eval()
    tokens_TB = tokens()
    whole = model(tokens_TB, model.initial_state(B))
    assert torch.equal(whole.dropped_TBD, whole.raw_TBD)
    first = model(tokens_TB[:cut], model.initial_state(B))
    second = model(tokens_TB[cut:], first.state)
    torch.testing.assert_close(torch.cat([first.raw_TBD, second.raw_TBD]), whole.raw_TBD)
    for (h, c), (whole_h, whole_c) in zip(second.state, whole.state, strict=True):
        torch.testing.assert_close(h, whole_h)
        torch.testing.assert_close(c, whole_c)
    assert not torch.allclose(
        model(tokens_TB[cut:], model.initial_state(B)).raw_TBD[:1], second.raw_TBD[:1]
    )


def test_initialised_as_published():
    model = AWDLSTM(num_words=500, emb_dim=40, hidden_dim=64, out_dim=40, num_layers=3)
    ranges = {"embedding_weight": 0.1}
    for i, dim in enumerate([64, 64, 40]):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            ranges[f"layers.{i}.{name}"] = 1 / math.sqrt(dim)
    assert {name for name, _ in model.named_parameters()} == set(ranges)
    for name, p in model.named_parameters():
        bound = ranges[name]
        assert 0.95 * bound < p.abs().max() <= bound
        # uniform: the sample variance of n entries has a relative standard error of sqrt(0.8 / n)
        assert abs(p.var() / (bound**2 / 3) - 1) < 5 * math.sqrt(0.8 / p.numel())


def test_weights_for_a_gpu_are_views_of_one_buffer_in_cudnns_order():
    layer = LSTMLayer(E, H, 0.0)
    weights = list(layer.parameters())
    views = _flat(weights)
    start = views[0].data_ptr()
    for view, weight in zip(views, weights, strict=True):
        assert torch.equal(view, weight)
        assert view.data_ptr() == start
        start += 4 * weight.numel()
    sum(view.sum() for view in views).backward()
    assert all(torch.equal(weight.grad, torch.ones_like(weight)) for weight in weights)


@pytest.mark.parametrize(("inputs", "units"), [(5, 10), (16, 8), (8, 13)])
def test_units_that_stay_at_zero_change_nothing(inputs, units):
    layer = LSTMLayer(inputs, units, 0.0).double()
    x_TBD = torch.randn(T, B, inputs, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn(2, 1, B, units, dtype=torch.float64))
    weights = list(layer.parameters())
    results = []
    for output, (h, c) in (layer(x_TBD, state), layer._by_cudnn(x_TBD, state, weights)):
        loss = output.pow(2).sum() + h.sum() + c.pow(3).sum()
        results.append([output, h, c, *torch.autograd.grad(loss, [x_TBD, *weights])])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("embed_dropout", 1.0), ("input_dropout", -0.1), ("hidden_dropout", 1.5)),
        *(("output_dropout", float("nan")), ("weight_dropout", "0.5"), ("embedding_noise", -1.0)),
        *(("emb_dim", 0), ("hidden_dim", 2.5), ("out_dim", -3), ("num_layers", 0)),
    ],
)
def test_impossible_settings_name_the_option(option, value):
    with pytest.raises(UserError, match=rf"trunk\.{option} must be"):
        AWDLSTM(**ONE_LAYER | {option: value})


@pytest.mark.parametrize("with_gradient", [True, False])
def test_bf16_needs_no_onednn(monkeypatch, with_gradient):
    layer = LSTMLayer(6, 5, weight_dropout=0.0)
    x, state = torch.randn(7, 3, 6), (torch.randn(1, 3, 5), torch.randn(1, 3, 5))
    wanted, _ = layer(x, state)

    def no_kernel(*args):
        raise RuntimeError("could not create a primitive descriptor")

    monkeypatch.setattr("lmkit.trunk.awd_lstm.has_onednn", lambda dtype: False)
    monkeypatch.setattr(torch, "lstm", no_kernel)
    with torch.set_grad_enabled(with_gradient), torch.autocast("cpu", torch.bfloat16):
        output, _ = layer(x, state)
    torch.testing.assert_close(output.float(), wanted, atol=0.02, rtol=0.02)
    assert not torch.equal(output.float(), wanted)  # products take bf16


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
    assert {layer.weight_dropout for layer in trunk(weight_dropout=0.5).layers} == {0.5}


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
    for handed_over, x in zip(output.layers_TBD, after, strict=True):
        assert torch.equal(handed_over, x)
    for place, (x, y) in enumerate(zip(before, after, strict=True)):
        if place in places:
            kept = y != 0
            torch.testing.assert_close(y, 2 * x * kept)
            assert torch.equal(kept, kept[:1].expand_as(kept))
            assert 0.2 < kept.double().mean() < 0.8
        else:
            assert torch.equal(x, y)
