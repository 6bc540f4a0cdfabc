"""The training objective: negative log-likelihood with activation regularisation.

Shapes: T window length, B batch, D trunk output.
"""

from torch import Tensor

from lmkit.errors.user_error import require_at_least


class RegularizedNLL:
    """nll + ar_weight mean(dropped^2) + tar_weight mean((raw_t+1 - raw_t)^2).

    AR acts on the last layer's output after dropout, TAR on that before it (Merity, McCann and
    Socher 2017, sections 2.1 and 2.2, as in the AWD-LSTM authors' code). Both are in float32.
    """

    def __init__(self, ar_weight: float, tar_weight: float) -> None:
        require_at_least("objective.ar_weight", ar_weight, 0)
        require_at_least("objective.tar_weight", tar_weight, 0)
        self.ar_weight, self.tar_weight = ar_weight, tar_weight

    def __call__(self, nll: Tensor, dropped_TBD: Tensor, raw_TBD: Tensor) -> Tensor:
        """The scalar to minimise, nats."""
        loss = nll
        if self.ar_weight:
            loss = loss + self.ar_weight * dropped_TBD.to(nll.dtype).pow(2).mean()
        if self.tar_weight and len(raw_TBD) > 1:
            loss = loss + self.tar_weight * raw_TBD.to(nll.dtype).diff(dim=0).pow(2).mean()
        return loss
