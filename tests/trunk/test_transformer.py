"""The Transformer trunk against a plain loop over tokens, written from its formulas.

Shapes: T text length, B batch, V vocabulary.
"""

import cmath
import math

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.trunk.transformer import Transformer
from lmkit.trunk.transformer import rotated as plain_rotated

V, B = 17, 3
SIZES = {"num_words": V, "emb_dim": 6, "hidden_dim": 8, "out_dim": 6, "num_layers": 3}
OWN = {"num_heads": 2, "ffn_dim": 10, "memory": 5}


def trunk(**options: object) -> Transformer:
    torch.manual_seed(2)
    made = Transformer(**SIZES | OWN | options).double()
    with torch.no_grad():  # norms that are no ones
        for layer in made.layers:
            layer.attention_norm.uniform_(0.5, 1.5)
            layer.ffn_norm.uniform_(0.5, 1.5)
    return made


def text(length: int) -> torch.Tensor:
    return torch.randint(V, (length, B), generator=torch.Generator().manual_seed(3))


def norm(x, weight):
    return x / (x.pow(2).mean() + 1e-6).sqrt() * weight


def turned(vector, position):
    """Pairs of channels as complex numbers, times exp(i position 10000^(-2j / C))."""
    pairs = [
        complex(a, b) * cmath.exp(1j * position * 10_000 ** (-2 * j / len(vector)))
        for j, (a, b) in enumerate(vector.view(-1, 2).tolist())
    ]
    return torch.tensor([part for z in pairs for part in (z.real, z.imag)], dtype=torch.float64)


def plain_attention(layer, rows, memory):
    """One text, token by token: every token with those at most `memory` before it."""
    inner, size = layer.inner_dim, layer.head_dim
    q, k, v = ([layer.weight_qkv[i * inner :][:inner] @ row for row in rows] for i in range(3))
    outputs = []
    for t in range(len(rows)):
        heads = []
        for head in range(0, inner, size):
            part = slice(head, head + size)
            seen = range(max(0, t - memory), t + 1)
            query = turned(q[t][part], t)
            scores = torch.stack([query @ turned(k[s][part], s) / math.sqrt(size) for s in seen])
            weights = scores.softmax(0)
            heads.append(sum(w * v[s][part] for w, s in zip(weights, seen, strict=True)))
        outputs.append(layer.weight_attended @ torch.cat(heads))
    return outputs


@torch.no_grad()
def plain(model: Transformer, words: list[int]) -> torch.Tensor:
    """Outputs (T, D) of one text."""
    rows = [model.input_map(model.embedding_weight[word]) for word in words]
    for layer in model.layers:
        normed = [norm(row, layer.attention_norm) for row in rows]
        added = plain_attention(layer, normed, model.memory)
        rows = [row + a for row, a in zip(rows, added, strict=True)]
        for t, row in enumerate(rows):
            gate, up = (layer.weight_gate_up @ norm(row, layer.ffn_norm)).chunk(2)
            rows[t] = row + layer.weight_down @ (gate * gate.sigmoid() * up)
    return torch.stack([model.output_map(norm(row, model.output_norm)) for row in rows])


def in_windows(model: Transformer, tokens_TB: torch.Tensor, lengths: list[int]):
    state, outputs = model.initial_state(B), []
    for window_TB in tokens_TB.split(lengths):
        output = model(window_TB, state)
        state = output.state
        outputs.append(output.raw_TBD)
    return torch.cat(outputs)


@pytest.mark.parametrize("options", [{}, {"memory": 30}, {"num_heads": 3, "ffn_dim": None}])
def test_it_equals_a_plain_loop_over_tokens(options):
    model, tokens = trunk(**options), text(12)
    found = in_windows(model, tokens, [12])
    for column in range(B):
        expected = plain(model, tokens[:, column].tolist())
        torch.testing.assert_close(found[:, column], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("memory", [1, 5, 30])
@pytest.mark.parametrize("lengths", [[4, 1, 7, 2], [1] * 14, [13, 1]])
def test_the_cut_into_windows_changes_no_output(memory, lengths):
    model, tokens = trunk(memory=memory), text(14)
    whole = in_windows(model, tokens, [14])
    torch.testing.assert_close(in_windows(model, tokens, lengths), whole, rtol=1e-11, atol=1e-13)


def test_dropouts_are_those_of_training_alone():
    rates = dict.fromkeys(["embed", "input", "hidden", "output", "attention", "weight"], 0.3)
    tokens = text(9)
    for name, rate in rates.items():
        model = trunk(**{f"{name}_dropout": rate})
        state = model.initial_state(B)
        one, two = model(tokens, state), model(tokens, state)
        assert not torch.equal(one.dropped_TBD, two.dropped_TBD), name
        model.eval()
        assert torch.equal(model(tokens, state).dropped_TBD, in_windows(trunk(), tokens, [9]))


def dropped(option: str) -> dict[str, torch.Tensor]:
    """Which weights a window of one text left without gradient, by their names in layers."""
    model = trunk(hidden_dim=32, **{option: 0.5})
    tokens = text(9)[:, :1]
    model(tokens, model.initial_state(1)).dropped_TBD.square().sum().backward()
    return {
        name: parameter.grad == 0
        for name, parameter in model.layers.named_parameters()
        if parameter.grad is not None
    }


def test_drop_connect_takes_a_mask_of_each_matrix():
    shares = {name: mask.double().mean().item() for name, mask in dropped("weight_dropout").items()}
    matrices = {name: share for name, share in shares.items() if ".weight_" in name}
    assert len(matrices) == 4 * SIZES["num_layers"]
    assert list(matrices.values()) == pytest.approx([0.5] * len(matrices), abs=0.1)
    assert not any(share for name, share in shares.items() if name not in matrices)


def test_hidden_dropout_has_one_mask_a_window_on_what_each_part_adds():
    ends = ("weight_attended", "weight_down")
    masks = {n: mask for n, mask in dropped("hidden_dropout").items() if n.endswith(ends)}
    assert len(masks) == 2 * SIZES["num_layers"]
    for name, mask in masks.items():
        assert torch.equal(mask.all(1), mask.any(1)), name  # a row, at all places of the window
        assert 6 < mask.all(1).sum() < 26, name
    assert len({tuple(mask.all(1).tolist()) for mask in masks.values()}) == len(masks)


def test_weights_begin_within_the_bounds_of_linear_layers_and_of_gpt2():
    model = trunk(hidden_dim=60, num_heads=3, ffn_dim=None)
    in_dims = {"qkv": 60, "attended": 60, "gate_up": 60, "down": 160}
    for layer in model.layers:
        assert layer.weight_down.shape == (60, 160)  # 8/3 of 60
        for name, in_dim in in_dims.items():
            ends = name in ("attended", "down")  # in the residual stream, of 2 * 3 parts
            bound = (1 / math.sqrt(6) if ends else 1) / math.sqrt(in_dim)
            largest = getattr(layer, f"weight_{name}").abs().max().item()
            assert 0.99 * bound < largest <= bound, name


def test_in_bfloat16_state_and_rotations_stay_in_full_precision(monkeypatch):
    turned_dtypes = set()

    def rotated(x, phase):
        turned_dtypes.add(x.dtype)
        return plain_rotated(x, phase)

    monkeypatch.setattr("lmkit.trunk.transformer.rotated", rotated)
    model, tokens = trunk(hidden_dim=32).float(), text(14)
    whole = in_windows(model, tokens, [14])
    with torch.autocast("cpu", torch.bfloat16):
        output = model(tokens[:9], model.initial_state(B))
        rest = model(tokens[9:], output.state)
    assert {memory.dtype for memory, _ in rest.state} == turned_dtypes == {torch.float32}
    error = (torch.cat([output.raw_TBD, rest.raw_TBD]) - whole).abs().max()
    assert 0 < error < 0.05 * whole.abs().max()


def test_layers_have_the_widths_that_the_options_say():
    model, left = trunk(hidden_dim=9, num_heads=4, output_dropout=0.5), []
    assert model.head_dim == 4  # 9 / 4, rounded up to an even number
    for layer in model.layers:
        layer.register_forward_hook(lambda _, __, out: left.append(out[0]))
    output = model(text(4), model.initial_state(B))
    assert [layer.shape[2] for layer in output.layers_TBD] == [6, 9, 9, 6]
    # the residual stream after each layer but the last, and the output after its dropout
    assert all(map(torch.equal, output.layers_TBD[1:], [*left[:-1], output.dropped_TBD]))
    assert not torch.equal(output.dropped_TBD, output.raw_TBD)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("num_heads", 0), ("memory", 0), ("ffn_dim", 0), ("hidden_dim", 2.5)),
        *(("attention_dropout", 1.0), ("hidden_dropout", -0.1)),
    ],
)
def test_a_bad_value_names_its_option(option, value):
    with pytest.raises(UserError, match=rf"trunk\.{option}"):
        Transformer(**SIZES | OWN | {option: value})
