"""Degenerate layers: the bottleneck of a ReLU layer, and what mixtures of experts do about it.

"The softmax bottleneck is a special case of a more general phenomenon" (Orhan 2018): half of the
units of a ReLU layer are off, and so is half of its Jacobian's spectrum. The study takes the
singular values of the Jacobians of dense and convolutional layers at initialisation, without
experts and mixed by softmax and by constant gates, averaged over standard normal inputs.

Shapes: S inputs, I numbers of an input and O of an output, R = min(I, O) singular values.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.func import jacrev, vmap

from lmkit.errors.user_error import UserError, require_count
from lmkit.presentation.progress import tracked
from lmkit.presentation.style import looks
from lmkit.studies.experts import GATES, ConvExperts, DenseExperts
from lmkit.studies.study import Findings, SyntheticStudy, require_counts

ZERO = 1e-9  # of the largest singular value: below, a value is rounding
SMALL = 1e-2  # of their root mean square: below, a value counts as near zero
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
