"""Singular values of layers' Jacobians, averaged over standard normal inputs (Orhan 2018).

Shapes: S inputs, I numbers of an input and O of an output, R = min(I, O) singular values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

ZERO = 1e-9  # of the largest singular value: below, a value is rounding
SMALL = 1e-2  # of their root mean square: below, a value counts as near zero


class JacobianSpectrum(NamedTuple):
    """Averages over inputs."""

    values: list[float]  # R, descending
    zero: float  # share of singular values that are 0 but for rounding
    small: float  # share below a hundredth of their root mean square
    smallest: float  # the smallest over the largest


def jacobians(layer: nn.Module, inputs: Tensor) -> Tensor:
    """Jacobians (S, O, I) of a layer at inputs (S, ...), outputs and inputs taken flat."""
    shape = inputs.shape[1:]

    def flat(x_I: Tensor) -> Tensor:
        output: Tensor = layer(x_I.view(1, *shape))
        return output.flatten()

    jacobians_SOI: Tensor = vmap(jacrev(flat), chunk_size=8)(inputs.flatten(1))
    return jacobians_SOI


@torch.no_grad()
def jacobian_spectrum(layer: nn.Module, inputs: Tensor) -> JacobianSpectrum:
    """The spectrum of a layer's Jacobian at inputs (S, ...), in float64."""
    values_SR = torch.linalg.svdvals(jacobians(layer.double(), inputs.double()))
    relative_SR = values_SR / values_SR[:, :1]
    scale_S1 = values_SR.square().mean(1, keepdim=True).sqrt()
    return JacobianSpectrum(
        values_SR.mean(0).tolist(),
        float((relative_SR < ZERO).double().mean()),
        float((values_SR < SMALL * scale_S1).double().mean()),
        float(relative_SR[:, -1].mean()),
    )


def average(spectra: list[JacobianSpectrum]) -> JacobianSpectrum:
    """The mean of spectra of the same size, of layers drawn anew."""
    table = torch.tensor([spectrum.values for spectrum in spectra])
    means = [sum(column) / len(spectra) for column in list(zip(*spectra, strict=True))[1:]]
    return JacobianSpectrum(table.mean(0).tolist(), *means)
