"""The AWD-LSTM trunk (Merity et al. 2018): token ids to context vectors.

Shapes: T window length, B batch, D features of a layer's input.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from lmkit.kernels.cpu_products import has_onednn, prefers_onednn
from lmkit.kernels.lstm_function import lstm_layer
from lmkit.trunk.dropout import drop_connect, locked_dropout
from lmkit.trunk.trunk import LayeredTrunk, LayerState, State, TrunkOutput

# From these sizes on `lstm_layer` gains more than its Python loop costs
# (tests/benchmarks/RESULTS.md).
FUNCTION_FROM_UNITS = 512  # in float32
FUNCTION_FROM_WEIGHTS = 1_500_000  # in bf16, where the backward of `torch.lstm` is slow
CUDNN_MULTIPLE = 8  # 16 bytes of bfloat16: one load of a GPU's matrix units


class LSTMLayer(nn.LSTMCell):
    """A layer of PyTorch's LSTM cells over the steps of a window.

    DropConnect on the hidden-to-hidden weight has one mask per window.
    """

    def __init__(self, in_dim: int, hidden_dim: int, weight_dropout: float) -> None:
        super().__init__(in_dim, hidden_dim)
        self.weight_dropout = weight_dropout

    def forward(self, x_TBD: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:  # type: ignore[override]
        """Outputs (T, B, H), and the state after the window."""
        dropped_hh = drop_connect(self.weight_hh, self.weight_dropout, self.training)
        weights = [self.weight_ih, dropped_hh, self.bias_ih, self.bias_hh]
        if x_TBD.is_cuda:
            return self._by_cudnn(x_TBD, state, weights)
        if self._takes_function():
            output, h, c = lstm_layer(x_TBD, state[0][0], state[1][0], *weights)
            return output, (h.unsqueeze(0), c.unsqueeze(0))
        output, h, c = torch.lstm(x_TBD, state, weights, True, 1, 0.0, True, False, False)
        return output, (h, c)

    def _takes_function(self) -> bool:
        """Whether a CPU runs `lstm_layer` in place of `torch.lstm`: in training where it is faster,
        which is in large layers, except in float32 where oneDNN, which `torch.lstm` uses, outruns
        the library of single products; and under autocast always where oneDNN has no LSTM of its
        type, so that `torch.lstm` ends with an error (bf16 on a processor that has AVX2 at most).
        """
        if torch.is_autocast_enabled("cpu"):
            if not has_onednn(torch.get_autocast_dtype("cpu")):
                return True
            large = self.weight_ih.numel() + self.weight_hh.numel() >= FUNCTION_FROM_WEIGHTS
        else:
            large = self.hidden_size >= FUNCTION_FROM_UNITS and not prefers_onednn()
        return large and torch.is_grad_enabled()

    @staticmethod
    def _by_cudnn(
        x_TBD: Tensor, state: LayerState, weights: list[Tensor]
    ) -> tuple[Tensor, LayerState]:
        """cuDNN's LSTM in autocast's dtype; the state keeps its own.

        PyTorch's autocast would run cuDNN's LSTM in float16 even if set to bfloat16, and small
        gradients would underflow to zero unless the loss is scaled. Units that stay at zero pad
        sizes to multiples of eight: without them, cuDNN's products of 1150 units take several times
        as long.
        """
        dtype, units = x_TBD.dtype, state[0].shape[-1]
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
        with torch.autocast("cuda", enabled=False):
            x_TBD, h, c = (_widened(given.to(dtype)) for given in (x_TBD, *state))
            weights = _flat([_widened_gates(weight.to(dtype)) for weight in weights])
            # train=True keeps the backward usable in evaluation mode too (dynamic evaluation)
            output, h, c = torch.lstm(x_TBD, (h, c), weights, True, 1, 0.0, True, False, False)
        h, c = (x[..., :units].to(given.dtype) for x, given in zip((h, c), state, strict=True))
        return output[..., :units], (h, c)


def _widened(x: Tensor) -> Tensor:
    """Padded with zeros at the end of its last dimension."""
    missing = -x.shape[-1] % CUDNN_MULTIPLE
    return nn.functional.pad(x, (0, missing)) if missing else x


def _widened_gates(weight: Tensor) -> Tensor:
    """A weight (4H, D) or bias (4H,) of an LSTM, padded with units that stay at zero.

    All weights into such a unit are zero, so its cell, 0.5 c + 0.5 tanh(0), and its output stay
    zero; so are all weights out of it.
    """
    gates = weight.view(4, weight.shape[0] // 4, -1)  # (4, H, D or 1)
    units = -gates.shape[1] % CUDNN_MULTIPLE
    inputs = -gates.shape[2] % CUDNN_MULTIPLE if weight.dim() == 2 else 0
    if units or inputs:
        gates = nn.functional.pad(gates, (0, inputs, 0, units))
    return gates.flatten(0, 1) if weight.dim() == 2 else gates.flatten()


def _flat(weights: list[Tensor]) -> list[Tensor]:
    """Views of one buffer in cuDNN's order, so that cuDNN neither copies nor warns."""
    flat = torch.cat([weight.flatten() for weight in weights])
    parts = torch.split(flat, [weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


@dataclass(kw_only=True, eq=False, repr=False)
class AWDLSTM(LayeredTrunk):
    """LSTM layers with DropConnect on hidden-to-hidden weights (Merity et al. 2018, section 2)."""

    display_name = "AWD-LSTM"

    def __post_init__(self) -> None:
        super().__post_init__()
        dims = [self.emb_dim] + [self.hidden_dim] * (self.num_layers - 1) + [self.out_dim]
        self._units = dims[1:]
        layers = [LSTMLayer(*pair, self.weight_dropout) for pair in pairwise(dims)]
        self.layers = nn.ModuleList(layers)

    def initial_state(self, batch_size: int) -> list[LayerState]:
        """Zeros: h and c of each layer, each (1, B, H)."""
        shapes = [(1, batch_size, units) for units in self._units]
        zeros = self.embedding_weight.new_zeros
        return [(zeros(shape), zeros(shape)) for shape in shapes]

    def forward(self, tokens_TB: Tensor, state: State) -> TrunkOutput:
        x = self.embedded(tokens_TB)
        new_state, layers = [], [x]
        for i, layer in enumerate(self.layers):
            if i:
                x = locked_dropout(x, self.hidden_dropout, self.training)
                layers.append(x)
            x, layer_state = layer(x, state[i])
            new_state.append(layer_state)
        dropped = locked_dropout(x, self.output_dropout, self.training)
        return TrunkOutput(dropped, x, new_state, [*layers, dropped])
