"""The head: context vectors to a distribution over words, one contract for every kind.

Shapes: T window length, B batch, N = T*B contexts, D trunk output, E embedding, K components,
V vocabulary.

A head is a *mixture* composed with a *transform*, over one decoder (weight V x E, bias V):

    log P = logsumexp_K(log_prior + log_softmax_V(transform(context W' + b)))
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_choice, require_positive
from lmkit.heads.chunked_nll import chunk_rows, chunked_nll
from lmkit.heads.mixtures import Mixture, SingleContext
from lmkit.heads.transforms import Identity
from lmkit.trunk.cpu_products import product

# MiB. On a CPU larger chunks gain nothing and leave its caches; a GPU wants large products.
CHUNK_MB = {"cpu": 32, "cuda": 512}


class Head(nn.Module):
    """Any mixture with any transform over one decoder, tied to the embedding if given its weight.

    Args:
        mixture: trunk output (T, B, D) to a `Mixture` (see `lmkit.heads.mixtures`).
        transform: pointwise map on logits (see `lmkit.heads.transforms`).
        num_words: V.
        embedding_weight: the V x E parameter to share, or None for a decoder of its own.
        loss: "chunked", exact in the memory of one chunk, or "plain", by `log_probs`.
        chunk_mb: memory of one chunk's logits, MiB; None for `CHUNK_MB` of the device.
    """

    def __init__(
        self,
        mixture: nn.Module,
        transform: nn.Module,
        num_words: int,
        embedding_weight: nn.Parameter | None = None,
        loss: str = "chunked",
        chunk_mb: float | None = None,
    ) -> None:
        super().__init__()
        require_choice("head.loss", loss, ("chunked", "plain"))
        if chunk_mb is not None:
            require_positive("head.chunk_mb", chunk_mb)
        # the size of context vectors: E, or D where the trunk's output is the context
        context_dim = mixture.in_dim if isinstance(mixture, SingleContext) else mixture.emb_dim
        if embedding_weight is not None and embedding_weight.shape[1] != context_dim:
            raise UserError(_cannot_tie(mixture, context_dim, embedding_weight.shape[1]))
        self.mixture, self.transform = mixture, transform
        self.loss, self.chunk_mb = loss, chunk_mb
        if embedding_weight is None:
            embedding_weight = nn.Parameter(torch.empty(num_words, context_dim).uniform_(-0.1, 0.1))
        self.decoder_weight = embedding_weight
        self.decoder_bias = nn.Parameter(torch.zeros(num_words))

    @property
    def has_factors(self) -> bool:
        """Whether log P = context W' + b - log Z, so that its rank is at most E + 2."""
        return self.mixture.num_experts == 1 and type(self.transform) is Identity

    @property
    def mixes_softmaxes(self) -> bool:
        """Whether log P is the formula above of what `mixture` returns."""
        return True

    @property
    def decoder_uses(self) -> float:
        """Whole products with the decoder's weight that a context takes."""
        return self.mixture.num_experts

    def use_word_counts(self, counts_V: Tensor) -> None:
        """Told before training how often each word is in its text; most heads do not care."""

    def attach(self, trunk: nn.Module) -> None:
        """Told once whose output it is given; most heads do not care."""

    def contexts(self, hidden_TBD: Tensor) -> Mixture:
        """What the decoder's weight is multiplied with, and the log prior."""
        return self.mixture(hidden_TBD)

    def penalty(self, hidden_TBD: Tensor) -> Tensor | float:
        """What the mixture adds to the loss of training beside the nll, nats."""
        penalty = getattr(self.mixture, "penalty", None)
        return penalty(hidden_TBD) if penalty else 0.0

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
        return self.transform(self.logits(context_NE))

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
        return rows.view(*context.shape[:-1], -1)

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
    def logit_range(self, hidden_TBD: Tensor) -> dict[str, Tensor]:
        """Smallest, mean and largest logit of (T, B, D) trunk outputs, before and after the
        transform; taken chunk by chunk, without dropout: logging must draw no random numbers."""
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
            for name, found in ranges.items()
            for measure, value in vars(found).items()
        }

    def logit_chunks(self, hidden_TBD: Tensor) -> Iterator[Tensor]:
        """Logits (..., V) before the transform, of all contexts and components, some at a time."""
        _, context_NKE = self.contexts(hidden_TBD)
        for part in self._chunks(context_NKE):
            yield self.logits(context_NKE[part])

    def _num_logits(self, hidden_TBD: Tensor) -> int:
        num_contexts = hidden_TBD.shape[:-1].numel()
        return num_contexts * self.mixture.num_experts * len(self.decoder_bias)


def _cannot_tie(mixture: nn.Module, context_dim: int, emb_dim: int) -> str:
    if isinstance(mixture, SingleContext):
        option, kind = "trunk.out_dim", " with head/mixture=none"
    else:
        option, kind = "head.mixture.emb_dim", ""
    return (
        f"head.tie_weights=true needs {option} ({context_dim}) equal to trunk.emb_dim ({emb_dim})"
        f"{kind}"
    )


class _Range:
    """Running minimum, mean and maximum; read without waiting for the device."""

    def __init__(self) -> None:
        self.min, self.mean, self.max = torch.inf, 0.0, -torch.inf

    def add(self, x: Tensor, total: int) -> None:
        low, high = torch.aminmax(x)
        self.min, self.max = low.clamp(max=self.min), high.clamp(min=self.max)
        self.mean = self.mean + x.sum() / total
