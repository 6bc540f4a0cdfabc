"""The fixed trunk: stored contexts in, the same contexts out.

Shapes: T window length, B batch, D size of a context.
"""

import math

import torch
from torch import Tensor, nn

from lmkit.errors.user_error import UserError, require_count, require_positive, require_rate
from lmkit.runs.names import FIXED_TRUNK
from lmkit.trunk.dropout import locked_dropout
from lmkit.trunk.trunk import LayerState, State, Trunk, TrunkOutput

BLOCK = 4096  # steps of the columns at a time
ALONE = (
    "a head on a fixed trunk reads stored contexts, and no other text: take the trunk's own run, "
    "or a text that occurs in the split"
)


class FixedTrunk(Trunk):
    """The identity on contexts (T, B, D), with dropout in training.

    Args:
        num_words: V, though it has no word vectors.
        emb_dim: E of the trunk whose contexts these are.
        out_dim: D.
        output_dropout: locked dropout on the contexts; one mask each for single contexts.
        rms: root mean square of the training contexts' numbers, to which one factor brings all
            contexts; None: they stay as they are.
    """

    display_name = FIXED_TRUNK
    num_layers = 0  # whose outputs a head could take, but for the last one's
    factor: Tensor | None

    def __init__(
        self,
        num_words: int,
        *,
        emb_dim: int,
        out_dim: int,
        output_dropout: float = 0.0,
        rms: float | None = None,
    ) -> None:
        nn.Module.__init__(self)  # without the embedding of other trunks
        require_count("trunk.emb_dim", emb_dim)
        require_count("trunk.out_dim", out_dim)
        require_rate("trunk.output_dropout", output_dropout)
        self.emb_dim, self.out_dim, self.output_dropout = emb_dim, out_dim, output_dropout
        if rms is not None:
            require_positive("trunk.rms", rms)
        self.rms = rms
        self.register_buffer("factor", None if rms is None else torch.ones(()))  # till training

    @property
    def embedding_weight(self) -> nn.Parameter:  # type: ignore[override]
        """Raises: UserError, since there is none."""
        raise UserError(
            "trunk=fixed has contexts but no embedding: head.tie_weights=true and lmkit embeddings "
            "need one; head.start=trunk starts with the trunk's own decoder"
        )

    def one_token(self) -> Tensor:
        """A context (1, 1, D)."""
        return torch.zeros(1, 1, self.out_dim)

    def initial_state(self, batch_size: int) -> list[LayerState]:
        """None: the contexts hold it."""
        return []

    def scale(self, contexts_SBD: Tensor) -> float:
        """Finds the factor of `rms` from the training contexts. Returns: their RMS."""
        assert self.factor is not None
        assert self.rms is not None
        parts = torch.split(contexts_SBD, BLOCK)
        squares = math.fsum(float(part.double().square().sum()) for part in parts)
        found = math.sqrt(squares / contexts_SBD.numel())
        self.factor.fill_(self.rms / found)
        return found

    def forward(self, contexts_TBD: Tensor, state: State) -> TrunkOutput:
        """Raises: UserError for token ids."""
        if not contexts_TBD.is_floating_point():
            raise UserError(ALONE)
        raw_TBD = contexts_TBD
        if raw_TBD.dtype == torch.bfloat16:  # the stored dtype, not that of computation
            raw_TBD = raw_TBD.float()
        if self.factor is not None:
            raw_TBD = raw_TBD * self.factor
        dropped_TBD = locked_dropout(raw_TBD, self.output_dropout, self.training)
        return TrunkOutput(dropped_TBD, raw_TBD, [], [dropped_TBD])
