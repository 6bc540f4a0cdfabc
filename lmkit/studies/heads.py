"""Heads whose context vectors are free parameters: no trunk stands between contexts and words.

Shapes: D context embedding, E word embedding (the d of the sources), K components, V words.

A context embedding of a mixture has D = K (E + 1) numbers, so that its K latents and its K prior
scores, which are linear in it, can take any values at all. Without a mixture D = E. Either way the
head alone limits log P (Ganea et al. 2019, "separate softmax bottleneck from context embedding
bottleneck").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

import torch
from torch import nn

from lmkit.errors.user_error import require_count
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import Mixture
from lmkit.runs.names import head_name, name_of, place_of
from lmkit.studies.study import SyntheticStudy

# the heads of the sources' claims, by option
SOFTMAX, MOC, MOS = "none+identity", "contexts+identity", "softmaxes+identity"
PLIF, MONOTONE_MLP = "none+plif", "none+monotone_mlp"


class FreeHead:
    """A kind of head: makes heads of any size, and has their display names.

    Args:
        option: its name in options and tables, mixture+transform.
        mixture: makes the mixture, given the sizes in `dims`.
        dims: of `in_dim` and `emb_dim` those that the mixture takes.
        transform: makes the transform.
    """

    def __init__(
        self,
        *,
        option: str,
        mixture: partial[Mixture],
        dims: Sequence[str],
        transform: partial[nn.Module],
    ) -> None:
        self.option, self._dims = option, tuple(dims)
        self._mixture, self._transform = mixture, transform
        with torch.device("meta"):
            head = self.build(1, 1)
        parts = (head.mixture, head.transform)
        self.mixture, self.transform = option.split("+")  # their options
        self.mixture_name = name_of(head.mixture) or "no mixture"
        self.transform_name = name_of(head.transform) or "softmax"
        self.name = head_name([name_of(part) for part in parts])
        self.place = tuple(place_of(part) for part in parts)
        self.has_factors = head.has_factors  # rank of log P at most E + 2
        self.components = head.decoder_uses  # of log P: K for a mixture of softmaxes, otherwise 1

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that its parts take: num_experts, knots, units."""
        taken = {**self._mixture.keywords, **self._transform.keywords}
        return {name: taken[name] for name in ("num_experts", "knots", "units") if name in taken}

    def resized(self, sizes: dict[str, int]) -> FreeHead:
        """The same kind with those of `sizes` that its parts take."""
        return FreeHead(
            option=self.option,
            mixture=_with_options(self._mixture, sizes),
            dims=self._dims,
            transform=_with_options(self._transform, sizes),
        )

    def context_dim(self, emb_dim: int) -> int:
        """D of unrestricted context embeddings."""
        num_experts: int | None = self._mixture.keywords.get("num_experts")
        return emb_dim if num_experts is None else num_experts * (emb_dim + 1)

    def build(
        self,
        emb_dim: int,
        num_words: int,
        *,
        context_dim: int | None = None,
        chunk_mb: float | None = None,
    ) -> Head:
        """A head without dropout, its parameters drawn from torch's global generator.

        Args:
            context_dim: D; None for that of `context_dim`.
            chunk_mb: memory of one chunk's logits, MiB; None for the default of `Head`.
        """
        in_dim = self.context_dim(emb_dim) if context_dim is None else context_dim
        sizes = {"in_dim": in_dim, "emb_dim": emb_dim}
        parts = HeadParts(
            mixture=self._mixture(**{name: sizes[name] for name in self._dims}),
            transform=self._transform(),
            word_counts_V=torch.zeros(num_words, dtype=torch.int64),
            chunk_mb=chunk_mb,
        )
        return Head(parts).eval()


def sized(heads: Sequence[FreeHead], num_experts: int, knots: int, units: int) -> list[FreeHead]:
    """The heads with these sizes where their parts take them, in the order of their places.

    Raises: UserError naming the size that is wrong.
    """
    require_count("num_experts", num_experts)
    require_count("knots", knots, 2)
    require_count("units", units)
    sizes = {"num_experts": num_experts, "knots": knots, "units": units}
    return sorted((head.resized(sizes) for head in heads), key=lambda head: head.place)


@dataclass(kw_only=True)
class HeadStudy(SyntheticStudy):
    """A study of heads: gives them their sizes, and puts them in the order of their places."""

    heads: Sequence[FreeHead]  # kinds that are measured
    num_experts: int  # K of mixtures
    knots: int  # of PLIF
    units: int  # of the monotone network

    head_options: ClassVar[Sequence[str]] = ("heads",)

    def __post_init__(self) -> None:
        self.heads = sized(self.heads, self.num_experts, self.knots, self.units)
        self.names = {head.option: head.name for head in self.heads}
        with_factors = {head.option for head in self.heads if head.has_factors}
        self.bounded = {head: name for head, name in self.names.items() if head in with_factors}
        self.unbounded = {
            head: name for head, name in self.names.items() if head not in with_factors
        }


_Part = TypeVar("_Part", bound=nn.Module)


def _with_options(part: partial[_Part], options: dict[str, int]) -> partial[_Part]:
    return partial(part, **{key: options[key] for key in options if key in part.keywords})
