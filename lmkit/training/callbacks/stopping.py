"""Rules that end a run before its last epoch, by its valid perplexities."""

import math
from abc import ABC, abstractmethod

from lmkit.errors.user_error import UserError, require_at_least, require_count
from lmkit.training.triggers import is_non_monotone


class Stopping(ABC):
    """Ends a run once it is `exhausted`.

    The `history` of valid perplexities is the whole state, not that the run stopped: a run resumed
    with more patience trains on.
    """

    waits_for_averaging = False  # whether epochs before averaging do not count

    def __init__(self) -> None:
        self.history: list[float] = []  # of the evaluated weights, by epoch; head.start=trunk first

    @property
    @abstractmethod
    def exhausted(self) -> bool:
        """Whether the run is to stop."""


class Patience(Stopping):
    """Stops `epochs` epochs after the last better valid perplexity; None: never.

    Epochs before averaging do not count, unless the trigger never starts averaging.

    Args:
        epochs: the patience.
        min_delta: how far below the last better one a valid perplexity must be to be better.

    Raises: UserError naming the option.
    """

    waits_for_averaging = True

    def __init__(self, epochs: int | None, min_delta: float = 0.0) -> None:
        super().__init__()
        if epochs is not None:
            require_count("patience", epochs)
        require_at_least("stopping.min_delta", min_delta, 0)
        self.epochs, self.min_delta = epochs, min_delta

    @property
    def exhausted(self) -> bool:
        best, waited = math.inf, 0  # epochs since the last better valid perplexity
        for valid_ppl in self.history:
            is_better = valid_ppl < best - self.min_delta
            best, waited = (valid_ppl, 0) if is_better else (best, waited + 1)
        return self.epochs is not None and waited >= self.epochs


class NonMonotoneStop(Stopping):
    """Stops when the valid perplexity exceeds the best of all but the last `n` epochs before.

    Finetuning ends like this in the AWD-LSTM authors' code (`finetune.py`, `nonmono`), which
    compares losses, in the same order.
    """

    def __init__(self, n: int | None) -> None:
        super().__init__()
        if n is None:
            raise UserError("stopping=non_monotone needs a number of epochs, such as patience=5")
        require_count("patience", n)  # finetuning has checked its own option
        self.n = n

    @property
    def exhausted(self) -> bool:
        return is_non_monotone(self.history, self.n)
