"""What is measured of a pretrained model beside the spectrum of log P, in the same pass.

Shapes: N contexts, D hidden size.
"""

from __future__ import annotations

import math

from lmkit.heads.head import Head
from lmkit.measures.contexts import ContextBlock
from lmkit.measures.perplexity import safe_exp
from lmkit.spectra.cosine import CosineAccumulator


class TextStatistics:
    """Gathers the likelihood of a text and the contexts' directions.

    Args:
        head: of the model.
    """

    def __init__(self, head: Head) -> None:
        self._head = head
        self._nll_sum = 0.0
        self._cosines = CosineAccumulator()

    def add(self, block: ContextBlock) -> None:
        """Adds contexts; called in evaluation mode."""
        nll_1N = self._head.token_nll(block.hidden_1ND, block.targets_1N)
        self._nll_sum += float(nll_1N.double().sum())
        self._cosines.add(block.hidden_1ND[0])

    @property
    def perplexity(self) -> float:
        """exp of the mean nll of a token, infinity where that overflows."""
        return safe_exp(self._nll_sum / self._cosines.num_vectors)

    def bits_per_byte(self, num_bytes: int | None) -> float | None:
        """The whole nll in bits over the bytes of the text; None where these are unknown."""
        return None if num_bytes is None else self._nll_sum / math.log(2) / num_bytes

    @property
    def mean_cosine(self) -> float | None:
        """Of two contexts; None of a single one."""
        return self._cosines.mean()
