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
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.func import jacrev, vmap
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_count
from lmkit.presentation.figures import looks
from lmkit.presentation.progress import tracked
from lmkit.studies.study import Findings, SyntheticStudy, require_each

ZERO = 1e-9  # of the largest singular value: below, a value is rounding
SMALL = 1e-2  # of their root mean square: below, a value counts as near zero
GATES = ("softmax", "constant")
NONE = "none"  # instead of gates: one expert
POINT = ["layer", "gates", "experts"]  # what tells spectra apart


@dataclass(kw_only=True, eq=False)
class Degenerate(SyntheticStudy):
    """Spectra of Jacobians."""

    width: int  # inputs and outputs of dense layers
    experts: Sequence[int]  # K
    inputs: int  # standard normal ones, averaged over
    draws: int  # of the weights, averaged over
    image_side: int  # of convolutional layers, as the next two
    channels: int
    kernel: int

    def __post_init__(self) -> None:
        require_each("experts", self.experts, require_count, 2)
        for option in ("width", "image_side"):
            require_count(option, getattr(self, option), 2)
        for option in ("inputs", "draws", "channels", "kernel"):
            require_count(option, getattr(self, option))
        if self.kernel % 2 == 0:
            raise UserError(f"kernel must be odd, but is {self.kernel}")
        # channels, side of the images, and kernel; a dense layer is a convolution of one position
        self.layers = {
            "dense": (self.width, 1, 1),
            "convolutional": (self.channels, self.image_side, self.kernel),
        }

    def run(self, seed: int) -> Findings:
        kinds = [(NONE, 1), *itertools.product(GATES, self.experts)]
        points = list(itertools.product(self.layers, kinds))
        spectra = []
        for layer, (gates, count) in tracked(points, "degenerate"):
            channels, side, kernel = self.layers[layer]
            used = "constant" if gates == NONE else gates
            torch.manual_seed(seed)
            drawn = []
            for _ in range(self.draws):
                made = Experts(channels, channels, count, kernel=kernel, gates=used)
                inputs = torch.randn(self.inputs, channels, side, side)
                drawn.append(singular_values(made, inputs))
            for number, values_R in enumerate(torch.cat(drawn)):
                own = pd.DataFrame({"index": range(1, len(values_R) + 1), "value": values_R})
                own = own.assign(layer=layer, gates=gates, experts=count, jacobian=number)
                spectra.append(own)
        frame = pd.concat(spectra)
        by_index = frame.groupby([*POINT, "index"], sort=False)["value"]
        means = by_index.mean().reset_index()
        return Findings(means, _shares(frame), self._figure(means))

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
    with torch.no_grad():
        layer = layer.double()
        of_one = jacrev(lambda x: layer(x.unsqueeze(0)).flatten())
        jacobians_SOI = vmap(of_one, chunk_size=8)(inputs.double()).flatten(2)
        values_SR: Tensor = torch.linalg.svdvals(jacobians_SOI)
    return values_SR


def _shares(spectra: pd.DataFrame) -> pd.DataFrame:
    """The share of singular values that are 0 or near it, and the smallest over the largest."""
    values = spectra.groupby([*POINT, "jacobian"], sort=False)["value"]
    shares = {
        "zero": values.agg(lambda own: (own <= ZERO * own.max()).mean()),
        "near zero": values.agg(lambda own: (own <= SMALL * (own**2).mean() ** 0.5).mean()),
        "smallest / largest": values.min() / values.max(),
    }
    return pd.DataFrame(shares).groupby(POINT, sort=False).mean().reset_index()


class Experts(nn.Module):
    """K convolutional ReLU experts: (B, C_in, H, W) to (B, C_out, H, W).

    Each position has gates (B, K, H, W) of its own, from the channels there. Borders are padded
    with zeros.

    Args:
        in_channels: C_in. out_channels: C_out. num_experts: K.
        kernel: side of the square kernels, odd.
        gates: "softmax" of K linear scores of the input, or "constant" 1 / K.
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
        self.gate_weight_KC: nn.Parameter | None = None
        if gates == "softmax":
            gate_weight_KC = torch.empty(num_experts, in_channels)
            self.gate_weight_KC = nn.Parameter(nn.init.xavier_uniform_(gate_weight_KC))

    def forward(self, x: Tensor) -> Tensor:
        stacked = F.conv2d(x, self.weight.flatten(0, 1), padding="same")
        values = F.relu(stacked).view(len(x), self.num_experts, -1, *x.shape[2:])
        if self.gate_weight_KC is None:
            return values.mean(1)
        gates = torch.softmax(torch.einsum("bchw,kc->bkhw", x, self.gate_weight_KC), dim=1)
        return (gates.unsqueeze(2) * values).sum(1)
