"""The head: context vectors to distributions over words, one contract for every kind.

Shapes: T window length, B batch, N = T*B contexts, D trunk output, E embedding, K components,
V vocabulary.

A head is a *mixture* composed with a *transform*, over one decoder (weight V x E, bias V):

    log P = logsumexp_K(log_prior + log_softmax_V(transform(context W' + b)))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_choice, require_positive
from lmkit.heads.chunked_loss import chunk_rows
from lmkit.heads.chunked_nll import chunked_nll
from lmkit.heads.low_rank import RankMap, random_factors
from lmkit.heads.mixtures import Mixture, MixtureOutput, SingleContext
from lmkit.heads.transforms import Identity
from lmkit.kernels.cpu_products import product

# MiB. On a CPU larger chunks gain nothing and overflow its caches; a GPU needs large products.
CHUNK_MB = {"cpu": 32, "cuda": 512}


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadParts:
    """The parts of every head, whatever options its class adds.

    Raises: UserError naming the option.
    """

    mixture: Mixture
    transform: nn.Module
    """A pointwise map on logits, see `lmkit.heads.transforms`."""
    word_counts_V: Tensor
    """How often each word occurs in the training text, int64; its length is the vocabulary's
    size. Zeros do where a checkpoint's weights replace those of the head."""
    embedding_weight: nn.Parameter | None = None
    """The V x E parameter to share as the decoder's weight; None for a separate weight."""
    loss: str = "chunked"
    """`chunked`, exact in the memory of one chunk, or `plain`, by `log_probs`."""
    chunk_mb: float | None = None
    """Memory of one chunk's logits, MiB; None for `CHUNK_MB` of the device."""

    def __post_init__(self) -> None:
        if not isinstance(self.mixture, Mixture):
            kind = type(self.mixture)
            raise UserError(
                f"head.mixture._target_={kind.__module__}.{kind.__name__} must be derived from "
                f"lmkit.heads.mixtures.Mixture"
            )
        require_choice("head.loss", self.loss, ("chunked", "plain"))
        if self.chunk_mb is not None:
            require_positive("head.chunk_mb", self.chunk_mb)


class Head(nn.Module):
    """Any mixture with any transform over one decoder, which may share the embedding's weight.

    Args:
        parts: of the head.
        decoder_rank: r of a decoder's weight W = A B; None for an unfactored W. With it,
            `decoder_weight` is A, and `contexts` returns B h.
    """

    display_name, place = "", 0

    def __init__(self, parts: HeadParts, *, decoder_rank: int | None = None) -> None:
        super().__init__()
        mixture, weight, num_words = parts.mixture, parts.embedding_weight, len(parts.word_counts_V)
        if weight is not None and decoder_rank is not None:
            raise UserError(
                f"head.decoder_rank={decoder_rank} needs head.tie_weights=false: the embedding "
                f"has full rank"
            )
        if weight is not None and weight.shape[1] != mixture.emb_dim:
            raise UserError(_cannot_tie(mixture, weight.shape[1]))
        self.mixture, self.transform = mixture, parts.transform
        self.loss, self.chunk_mb = parts.loss, parts.chunk_mb
        rank_map = None
        if decoder_rank is not None:
            factor_VR, rows_RE = random_factors(num_words, decoder_rank, mixture.emb_dim)
            weight, rank_map = nn.Parameter(factor_VR), RankMap(factor_VR, rows_RE)
        if weight is None:
            weight = nn.Parameter(torch.empty(num_words, mixture.emb_dim).uniform_(-0.1, 0.1))
        self.decoder_weight = weight
        self.decoder_bias = nn.Parameter(torch.zeros(num_words))
        self.rank_map = rank_map  # B

    @property
    def has_factors(self) -> bool:
        """Whether log P = context W' + b - log Z, so that its rank is at most E + 2, or r + 2."""
        return self.mixture.num_experts == 1 and type(self.transform) is Identity

    @property
    def mixes_softmaxes(self) -> bool:
        """Whether log P is the formula above, applied to what `mixture` returns."""
        return True

    def word_weight(self) -> Tensor | None:
        """W (V, E) of the logits before the transform; None where no single matrix makes them
        all."""
        if not self.mixes_softmaxes:
            return None
        weight = self.decoder_weight
        return weight if self.rank_map is None else self.rank_map.whole(weight)

    @property
    def decoder_uses(self) -> float:
        """How many products with the whole decoder weight each context takes."""
        return self.mixture.num_experts

    @property
    def own_uses(self) -> Mapping[str, int]:
        """By name: how many products with one of the head's own parameters each context takes, if
        not one."""
        return {} if self.rank_map is None else {"rank_map.weight": self.mixture.num_experts}

    def attach(self, trunk: nn.Module) -> None:
        """Called once with the trunk that feeds the head; most heads do nothing."""

    def require_vocabulary(self) -> None:
        """Called before training; most heads take any number of words.

        Options are checked before the text is read, with a vocabulary of two words.

        Raises: UserError if there are too few words for the options.
        """

    def contexts(self, hidden_TBD: Tensor) -> MixtureOutput:
        """The vectors that the decoder's weight multiplies, and their log prior."""
        output: MixtureOutput = self.mixture(hidden_TBD)
        if self.rank_map is None:
            return output
        return output._replace(context_NKE=self.rank_map(output.context_NKE))

    def penalty(self, hidden_TBD: Tensor) -> Tensor | float:
        """What the mixture adds to the nll in the training loss, in nats."""
        return self.mixture.penalty(hidden_TBD)

    def nll(self, hidden_TBD: Tensor, targets_TB: Tensor) -> Tensor:
        """Mean negative log-likelihood of the targets, a scalar in nats, for training."""
        targets_N = targets_TB.reshape(-1)
        if not torch.is_grad_enabled():
            return self.token_nll(hidden_TBD, targets_TB).mean()
        if self.loss == "plain":
            return self._plain_nll(hidden_TBD, targets_N)
        log_prior_NK, context_NKE = self.contexts(hidden_TBD)
        return chunked_nll(
            log_prior_NK,
            context_NKE,
            self.decoder_weight,
            self.decoder_bias,
            targets_N,
            self.transform,
            self._chunk_mb(),
        )

    @torch.no_grad()
    def token_nll(self, hidden_TBD: Tensor, targets_TB: Tensor) -> Tensor:
        """Each target's negative log-likelihood (T, B), nats, without gradient."""
        log_prior_NK, context_NKE = self.contexts(hidden_TBD)
        targets_N11 = targets_TB.reshape(-1, 1, 1)
        nll = []
        for part in self._chunks(context_NKE):
            log_p_nKV = self._component_log_probs(context_NKE[part])
            targets = targets_N11[part].expand(-1, context_NKE.shape[1], 1)
            joint_nK = log_prior_NK[part] + log_p_nKV.gather(2, targets).squeeze(2)
            nll.append(-torch.logsumexp(joint_nK, dim=1))
        return torch.cat(nll).view_as(targets_TB)

    def log_probs(self, hidden_TBD: Tensor) -> Tensor:
        """Rows (N, V) of log P, in nats."""
        return self._log_probs(*self.contexts(hidden_TBD))

    def transformed_logits(self, hidden_TBD: Tensor) -> Tensor:
        """Rows (N, V) of the transformed logits of a head with one context (K = 1)."""
        context_NE = self.contexts(hidden_TBD).context_NKE.squeeze(1)
        values_NV: Tensor = self.transform(self.logits(context_NE))
        return values_NV

    @torch.no_grad()
    def factors(self, hidden_TBD: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts (N, E) and log normalisers (N,) of a head that `has_factors`."""
        context_NE = self.contexts(hidden_TBD).context_NKE.squeeze(1)
        parts = [self.logits(context_NE[part]) for part in self._chunks(context_NE.unsqueeze(1))]
        return context_NE, torch.cat([torch.logsumexp(logits, dim=1) for logits in parts])

    def logits(self, context: Tensor) -> Tensor:
        """Logits (..., V) of contexts (..., E), before the transform, in the parameters' dtype."""
        weight = self.decoder_weight
        if torch.is_grad_enabled() or context.dtype != weight.dtype:
            return F.linear(context, weight, self.decoder_bias).to(weight.dtype)
        rows = product(context.flatten(0, -2), weight.T, self.decoder_bias)
        # autocast changes the dtype of an addmm
        return rows.view(*context.shape[:-1], -1).to(weight.dtype)

    def _component_log_probs(self, context_NKE: Tensor) -> Tensor:
        return F.log_softmax(self.transform(self.logits(context_NKE)), dim=-1)

    def _log_probs(self, log_prior_NK: Tensor, context_NKE: Tensor) -> Tensor:
        log_p_NKV = self._component_log_probs(context_NKE)
        return torch.logsumexp(log_prior_NK.unsqueeze(-1) + log_p_NKV, dim=1)

    def _plain_nll(self, hidden_TBD: Tensor, targets_N: Tensor) -> Tensor:
        log_probs_NV = self.log_probs(hidden_TBD)
        return -log_probs_NV.gather(1, targets_N.unsqueeze(1)).mean()

    def _chunk_mb(self) -> float:
        default = CHUNK_MB.get(self.decoder_weight.device.type, CHUNK_MB["cuda"])
        return default if self.chunk_mb is None else self.chunk_mb

    def _chunks(self, context_NKE: Tensor) -> list[slice]:
        num_contexts, num_experts, _ = context_NKE.shape
        itemsize = self.decoder_weight.element_size()
        rows = chunk_rows(num_experts, len(self.decoder_bias), itemsize, self._chunk_mb())
        return [slice(start, start + rows) for start in range(0, num_contexts, rows)]

    @torch.no_grad()
    def logit_range(self, hidden_TBD: Tensor) -> dict[str, Tensor | float]:
        """Smallest, mean and largest logit of (T, B, D) trunk outputs, before and after the
        transform, chunk by chunk and without dropout: logging must draw no random numbers."""
        training = self.mixture.training
        self.mixture.eval()
        num_logits = self._num_logits(hidden_TBD)
        ranges = {"logits": _Range(), "transformed_logits": _Range()}
        for logits in self.logit_chunks(hidden_TBD):
            ranges["logits"].add(logits, num_logits)
            ranges["transformed_logits"].add(self.transform(logits), num_logits)
        self.mixture.train(training)
        return {
            f"{name}_{measure}": value
            for name, seen in ranges.items()
            for measure, value in vars(seen).items()
        }

    def logit_chunks(self, hidden_TBD: Tensor) -> Iterator[Tensor]:
        """Logits (..., V) before the transform, of all contexts and components, chunk by chunk."""
        _, context_NKE = self.contexts(hidden_TBD)
        for part in self._chunks(context_NKE):
            yield self.logits(context_NKE[part])

    def _num_logits(self, hidden_TBD: Tensor) -> int:
        num_contexts = hidden_TBD.shape[:-1].numel()
        return num_contexts * self.mixture.num_experts * len(self.decoder_bias)


def _cannot_tie(mixture: Mixture, emb_dim: int) -> str:
    if isinstance(mixture, SingleContext):
        option, kind = "trunk.out_dim", " with head/mixture=none"
    else:
        option, kind = "head.mixture.emb_dim", ""
    return (
        f"head.tie_weights=true needs {option} ({mixture.emb_dim}) equal to trunk.emb_dim "
        f"({emb_dim}){kind}"
    )


class _Range:
    """Running minimum, mean and maximum; read without waiting for the device."""

    def __init__(self) -> None:
        self.min: Tensor | float = torch.inf
        self.mean: Tensor | float = 0.0
        self.max: Tensor | float = -torch.inf

    def add(self, x: Tensor, total: int) -> None:
        low, high = torch.aminmax(x)
        self.min, self.max = low.clamp(max=self.min), high.clamp(min=self.max)
        self.mean = self.mean + x.sum() / total
