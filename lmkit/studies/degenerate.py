"""Degenerate layers: the bottleneck of a ReLU layer, and what mixtures of experts do about it.

"The softmax bottleneck is a special case of a more general phenomenon" (Orhan 2018): half of the
units of a ReLU layer are off, and so is half of its Jacobian's spectrum. The study takes the
singular values of the Jacobians of dense and convolutional layers at initialisation, without
experts and mixed by softmax and by constant gates, averaged over standard normal inputs.

    y = sum_k g_k(x) f(W_k x),   f = ReLU

Gates are softmax(U x), or constant 1 / K. All weights are drawn by Glorot's uniform rule, without
biases; with one expert and constant gates a layer is the plain dense, or convolutional, ReLU layer.

Shapes: S inputs, any leading dimensions ..., I numbers of an input and O of an output, K experts,
R = min(I, O) singular values; of images C_in and C_out channels, H x W positions.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.func import jacrev, vmap
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_count
from lmkit.presentation.figures import looks
from lmkit.presentation.progress import tracked
from lmkit.studies.study import Findings, SyntheticStudy, require_counts

ZERO = 1e-9  # of the largest singular value: below, a value is rounding
SMALL = 1e-2  # of their root mean square: below, a value counts as near zero
GATES = ("softmax", "constant")
NONE = "none"  # instead of gates: one expert


class Degenerate(SyntheticStudy):
    """Spectra of Jacobians.

    Args:
        width: inputs and outputs of dense layers.
        experts: K.
        inputs: standard normal ones, averaged over.
        draws: of the weights, averaged over.
        image_side, channels, kernel: of convolutional layers.
    """

    def __init__(
        self,
        *,
        width: int,
        experts: Sequence[int],
        inputs: int,
        draws: int,
        image_side: int,
        channels: int,
        kernel: int,
    ) -> None:
        require_counts("experts", experts, 2)
        counts = {"width": width, "image_side": image_side}
        for option, count in counts.items():
            require_count(option, count, 2)
        counts = {"inputs": inputs, "draws": draws, "channels": channels, "kernel": kernel}
        for option, count in counts.items():
            require_count(option, count)
        if kernel % 2 == 0:
            raise UserError(f"kernel must be odd, but is {kernel}")
        self.experts, self.inputs, self.draws = experts, inputs, draws
        self.layers: dict[str, Callable[..., nn.Module]] = {
            "dense": partial(DenseExperts, width, width),
            "convolutional": partial(ConvExperts, channels, channels, kernel=kernel),
        }
        self.shapes = {"dense": (width,), "convolutional": (channels, image_side, image_side)}

    def run(self, seed: int) -> Findings:
        kinds = [(NONE, 1), *itertools.product(GATES, self.experts)]
        points = list(itertools.product(self.layers, kinds))
        rows = []
        for layer, (gates, count) in tracked(points, "degenerate"):
            torch.manual_seed(seed)
            drawn = []
            for _ in range(self.draws):
                used = "constant" if gates == NONE else gates
                made = self.layers[layer](num_experts=count, gates=used)
                inputs = torch.randn(self.inputs, *self.shapes[layer])
                drawn.append(singular_values(made, inputs))
            for values_R in torch.cat(drawn):
                names = {"layer": layer, "gates": gates, "experts": count}
                index = range(1, len(values_R) + 1)
                rows.append(pd.DataFrame({"index": index, "value": values_R}).assign(**names))
        frame = pd.concat(rows)
        spectra = frame.groupby(["layer", "gates", "experts", "index"], sort=False)["value"]
        means = spectra.mean().reset_index()
        return Findings(means, _shares(rows), self._figure(means))

    def _figure(self, means: pd.DataFrame) -> Figure:
        """The blog's figure, and the same of convolutional layers: a column for each gate."""
        figure = Figure(figsize=(8, 6), layout="constrained")
        grid = figure.subplots(len(self.layers), len(GATES), squeeze=False)
        for (layer, row), (i, gates) in itertools.product(
            zip(self.layers, grid, strict=True), enumerate(GATES)
        ):
            shown = means[(means["layer"] == layer) & means["gates"].isin((NONE, gates))]
            for (count, own), look in zip(shown.groupby("experts"), looks(), strict=False):
                label = layer if count == 1 else f"K = {count}"
                row[i].plot(own["index"], own["value"], label=label, **look)
            row[i].set(title=f"{layer}, {gates} gates", xlabel="index of singular value")
            row[i].legend(fontsize=7)
            row[0].set_ylabel("mean singular value")
        return figure


def singular_values(layer: nn.Module, inputs: Tensor) -> Tensor:
    """Those of a layer's Jacobian (S, R), descending, at inputs (S, ...), in float64."""
    shape = inputs.shape[1:]

    def flat(x_I: Tensor) -> Tensor:
        output: Tensor = layer(x_I.view(1, *shape))
        return output.flatten()

    with torch.no_grad():
        layer = layer.double()
        jacobians_SOI = vmap(jacrev(flat), chunk_size=8)(inputs.double().flatten(1))
        values_SR: Tensor = torch.linalg.svdvals(jacobians_SOI)
    return values_SR


def _shares(spectra: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The share of singular values that are 0 or near it, and the smallest over the largest."""
    lines = [
        {
            **spectrum[["layer", "gates", "experts"]].iloc[0],
            "zero": (spectrum["value"] < ZERO * spectrum["value"].max()).mean(),
            "near zero": (
                spectrum["value"] < SMALL * (spectrum["value"] ** 2).mean() ** 0.5
            ).mean(),
            "smallest / largest": spectrum["value"].min() / spectrum["value"].max(),
        }
        for spectrum in spectra
    ]
    names = ["layer", "gates", "experts"]
    return pd.DataFrame(lines).groupby(names, sort=False).mean().reset_index()


class DenseExperts(nn.Module):
    """K dense ReLU experts: (..., I) to (..., O), with gates (..., K).

    Args:
        in_dim: I. out_dim: O. num_experts: K.
        gates: "softmax" of K linear scores of the input, or "constant" 1 / K.
    """

    def __init__(self, in_dim: int, out_dim: int, num_experts: int, gates: str) -> None:
        super().__init__()
        self.weight_KOI = nn.Parameter(torch.empty(num_experts, out_dim, in_dim))
        for weight_OI in self.weight_KOI.data:
            nn.init.xavier_uniform_(weight_OI)
        self.gate_weight_KI = _gate_weight(gates, num_experts, in_dim)

    def forward(self, x: Tensor) -> Tensor:
        values = F.relu(torch.einsum("...i,koi->...ko", x, self.weight_KOI))
        if self.gate_weight_KI is None:
            return values.mean(-2)
        gates = torch.softmax(x @ self.gate_weight_KI.T, dim=-1)
        return (gates.unsqueeze(-1) * values).sum(-2)


class ConvExperts(nn.Module):
    """K convolutional ReLU experts: (B, C_in, H, W) to (B, C_out, H, W).

    Each position has gates (B, K, H, W) of its own, from the channels there. Borders are padded
    with zeros.

    Args:
        in_channels: C_in. out_channels: C_out. num_experts: K.
        kernel: side of the square kernels, odd.
        gates: as in `DenseExperts`.
    """

    def __init__(
        self, in_channels: int, out_channels: int, num_experts: int, *, kernel: int, gates: str
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        shape = (num_experts, out_channels, in_channels, kernel, kernel)
        self.weight = nn.Parameter(torch.empty(shape))
        for weight in self.weight.data:
            nn.init.xavier_uniform_(weight)
        self.gate_weight_KC = _gate_weight(gates, num_experts, in_channels)

    def forward(self, x: Tensor) -> Tensor:
        stacked = F.conv2d(x, self.weight.flatten(0, 1), padding="same")
        values = F.relu(stacked).view(len(x), self.num_experts, -1, *x.shape[2:])
        if self.gate_weight_KC is None:
            return values.mean(1)
        gates = torch.softmax(torch.einsum("bchw,kc->bkhw", x, self.gate_weight_KC), dim=1)
        return (gates.unsqueeze(2) * values).sum(1)


def _gate_weight(gates: str, num_experts: int, in_dim: int) -> nn.Parameter | None:
    if gates == "constant":
        return None
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_experts, in_dim)))
