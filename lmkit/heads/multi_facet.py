"""Multi-facet softmax: a mixture of softmaxes, the first of which has several contexts.

Chang and McCallum 2022, "Softmax Bottleneck Makes Language Models Unable to Represent Multi-mode
Word Distributions", section 3. The vocabulary is divided into J partitions, word v in partition
v mod J, and the first softmax computes each partition's logits from a separate context, a facet:

    z_1v = f_{v mod J} . w_v + b_v        z_kv = f_{J + k - 2} . w_v + b_v    for k = 2 .. K
    log P = logsumexp_k(log prior_k + log softmax_v(transform(z_k)))

As in their code, only the first softmax is partitioned, by v mod J, and K = 3, J = 4. There, facets
and prior are linear maps of many states of GPT-2, from its last layers at the last words, and the
decoder has no bias. Here, as in MoS (Yang et al. 2018), the maps take only the trunk's output, the
facets are tanh under locked dropout, and the prior has no bias, so that J = 1 is MoS. For K = 1 and
no transform the rank of log P is at most J E + 2.

Shapes: T window length, B batch, N = T*B contexts, n contexts of a chunk, D trunk output,
E embedding, K softmaxes, J partitions, F = J + K - 1 facets, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_count
from lmkit.heads.autograd_chunks import called, product
from lmkit.heads.autograd_head import AutogradHead
from lmkit.heads.chunked_loss import chunk_rows
from lmkit.heads.head import HeadParts
from lmkit.heads.mixtures import Latents, require_no_mixture


class Facets(Latents):
    """F facets, the partitions' first, and the log prior of K softmaxes."""

    display_name, place = "", 0  # the head says it

    def __init__(
        self,
        in_dim: int,
        emb_dim: int,
        num_experts: int,
        num_partitions: int,
        latent_dropout: float,
    ) -> None:
        require_count("head.num_partitions", num_partitions)
        num_extra = num_partitions - 1
        super().__init__(
            in_dim, emb_dim, num_experts, latent_dropout, num_extra=num_extra, section="head"
        )


class MultiFacetSoftmax(AutogradHead):
    """K softmaxes of J + K - 1 facets; see above.

    Args:
        parts: as of every head; `mixture` must be `SingleContext`: this head is a mixture itself.
        in_dim, emb_dim: D, E.
        num_experts: K.
        num_partitions: J, partitions of the vocabulary in the first softmax.
        latent_dropout: locked dropout on the facets.
    """

    display_name, place = "Multi-facet", 2

    def __init__(
        self,
        parts: HeadParts,
        *,
        in_dim: int,
        emb_dim: int,
        num_experts: int,
        num_partitions: int,
        latent_dropout: float,
    ) -> None:
        require_no_mixture("multi_facet", parts.mixture)
        facets = Facets(in_dim, emb_dim, num_experts, num_partitions, latent_dropout)
        super().__init__(replace(parts, mixture=facets))
        self.num_partitions = num_partitions

    def require_vocabulary(self) -> None:
        num_words = len(self.decoder_bias)
        if self.num_partitions > num_words:
            raise UserError(
                f"head.num_partitions must be at most {num_words:,}, the size of the vocabulary, "
                f"but is {self.num_partitions:,}"
            )

    @property
    def has_factors(self) -> bool:
        return self.num_partitions == 1 and super().has_factors

    @property
    def mixes_softmaxes(self) -> bool:
        return self.num_partitions == 1

    def log_probs(self, hidden_TBD: Tensor) -> Tensor:
        log_prior_NK, facet_NFE = self._inputs(hidden_TBD)
        values = map(self.transform, self._logits_by_word(facet_NFE))
        log_p_NKV = torch.stack([F.log_softmax(values_NV, dim=-1) for values_NV in values], dim=1)
        return torch.logsumexp(log_prior_NK.unsqueeze(-1) + log_p_NKV, dim=1)

    def transformed_logits(self, hidden_TBD: Tensor) -> Tensor:
        (logits_NV,) = self._logits_by_word(self._inputs(hidden_TBD)[1])
        values_NV: Tensor = self.transform(logits_NV)
        return values_NV

    def logit_chunks(self, hidden_TBD: Tensor) -> Iterator[Tensor]:
        weights = self._weights()
        for _, facet_nFE in self._input_chunks(hidden_TBD):
            yield from self._logits(facet_nFE, *weights)

    def _logits_by_word(self, facet_NFE: Tensor) -> Iterator[Tensor]:
        """Logits (N, V) of each softmax in the order of the words."""
        first_NV, *others = self._logits(facet_NFE, *self._weights())
        words_V = torch.arange(first_NV.shape[1], device=first_NV.device)
        yield first_NV[:, self._places(words_V)]
        yield from others

    def _weights(self) -> tuple[list[Tensor], list[Tensor]]:
        count, weight_VE = self.num_partitions, self.decoder_weight
        parts = [weight_VE[j::count].contiguous() for j in range(count)]
        return [*parts, weight_VE], [self.decoder_bias, *self.transform.parameters()]

    def _logits(
        self, facet_nFE: Tensor, matrices: Sequence[Tensor], vectors: Sequence[Tensor]
    ) -> Iterator[Tensor]:
        """Logits (n, V) of each softmax, the first one's partition by partition."""
        *parts, weight_VE = matrices
        bias_V, num_parts = vectors[0], len(parts)
        first = [
            product(facet_nFE[:, j], part) + bias_V[j::num_parts] for j, part in enumerate(parts)
        ]
        yield torch.cat(first, dim=1)
        for facet_nE in facet_nFE[:, num_parts:].unbind(1):
            yield product(facet_nE, weight_VE) + bias_V

    def _places(self, words: Tensor) -> Tensor:
        """Each word's place in the logits of the first softmax, which are ordered by partition."""
        size, longer = divmod(len(self.decoder_bias), self.num_partitions)
        part = words % self.num_partitions
        return part * size + part.clamp(max=longer) + words // self.num_partitions

    def _row_nll(
        self,
        inputs: Sequence[Tensor],
        matrices: Sequence[Tensor],
        vectors: Sequence[Tensor],
        targets_n: Tensor,
    ) -> Tensor:
        log_prior_nK, facet_nFE = inputs
        places, log_p = self._places(targets_n), []
        for logits_nV in self._logits(facet_nFE, matrices, vectors):
            values_nV = called(self.transform, vectors[1:], logits_nV)
            log_p.append(-F.cross_entropy(values_nV, places, reduction="none"))
            places = targets_n
        return -torch.logsumexp(log_prior_nK + torch.stack(log_p, dim=1), dim=1)

    def _rows(self) -> int:
        """Contexts per chunk: autograd holds twice what hand-written gradients would."""
        words, itemsize = len(self.decoder_bias), self.decoder_weight.element_size()
        return chunk_rows(2 * self.mixture.num_experts, words, itemsize, self._chunk_mb())
