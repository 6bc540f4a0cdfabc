"""The base of heads that leave the gradients of their loss to autograd.

Shapes: T window length, B batch, N = T*B contexts, n contexts of a chunk, D trunk output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from lmkit.heads.autograd_chunks import Formula, autograd_nll
from lmkit.heads.head import Head


class AutogradHead(Head):
    """A head given by its formula: `_row_nll` of what `mixture` returns and of `_weights`.

    It takes chunks of `_rows` contexts, with gradients by autograd in training, otherwise without.
    """

    def _weights(self) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Matrices and vectors of the formula, shared by all chunks of a call."""
        raise NotImplementedError

    def _row_nll(
        self,
        inputs: Sequence[Tensor],
        matrices: Sequence[Tensor],
        vectors: Sequence[Tensor],
        targets_n: Tensor,
    ) -> Tensor:
        """Negative log-likelihood (n,) of a chunk's targets, nats."""
        raise NotImplementedError

    def _rows(self) -> int:
        """Contexts of a chunk."""
        raise NotImplementedError

    def nll(self, hidden_TBD: Tensor, targets_TB: Tensor) -> Tensor:
        targets_N = targets_TB.reshape(-1)
        if not torch.is_grad_enabled():
            return self.token_nll(hidden_TBD, targets_TB).mean()
        if self.loss == "plain":
            return self._plain_nll(hidden_TBD, targets_N)
        formula = Formula(self._row_nll, *self._weights())
        return autograd_nll(formula, self.mixture(hidden_TBD), targets_N, self._rows())

    @torch.no_grad()
    def token_nll(self, hidden_TBD: Tensor, targets_TB: Tensor) -> Tensor:
        weights = self._weights()
        targets = torch.split(targets_TB.reshape(-1), self._rows())
        pairs = zip(self._input_chunks(hidden_TBD), targets, strict=True)
        nll = [self._row_nll(inputs, *weights, targets_n) for inputs, targets_n in pairs]
        return torch.cat(nll).view_as(targets_TB)

    def _inputs(self, hidden_TBD: Tensor) -> list[Tensor]:
        """What `mixture` returns, in the parameters' dtype."""
        return [x.to(self.decoder_weight.dtype) for x in self.mixture(hidden_TBD)]

    def _input_chunks(self, hidden_TBD: Tensor) -> Iterator[tuple[Tensor, ...]]:
        parts = (torch.split(x, self._rows()) for x in self._inputs(hidden_TBD))
        return zip(*parts, strict=True)
