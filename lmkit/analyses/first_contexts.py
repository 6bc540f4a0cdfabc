"""Which contexts an analysis measures: the first ones of a split, or all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lmkit import evaluation
from lmkit.errors.user_error import UserError, require_choice, require_count

if TYPE_CHECKING:  # it brings torch
    from lmkit.data.epochs import EvalBatches


class ChosenContexts(NamedTuple):
    """The contexts of one run that are measured."""

    batches: EvalBatches  # of the whole split
    num_contexts: int  # measured, from its start
    available: int  # that the split has


class FirstContexts:
    """The options `split` and `contexts`.

    Args:
        split: train, valid or test.
        contexts: how many contexts from the split's start; None or "all": all of them.
        least: the fewest contexts that can be measured.
    """

    def __init__(self, split: str, contexts: int | str | None, least: int = 1) -> None:
        require_choice("split", split, ("train", "valid", "test"))
        self.split = split
        self.contexts: int | None = None  # all
        if contexts is not None and contexts != "all":
            require_count("contexts", contexts, least)
            self.contexts = int(contexts)

    def of(self, run: evaluation.load.LoadedRun) -> ChosenContexts:
        """Raises: UserError when the run's split has fewer contexts."""
        return self.among(run.data.eval_batches(self.split), f"the {self.split} split")

    def among(self, batches: EvalBatches, text: str) -> ChosenContexts:
        """Raises: UserError when the batches have fewer contexts; `text` is what they are of."""
        available = batches.num_targets
        count = available if self.contexts is None else self.contexts
        if count > available:
            raise UserError(
                f"contexts={count} is more than the {available:,} contexts of {text}; "
                f"contexts=null takes all of them"
            )
        return ChosenContexts(batches, count, available)

    def __str__(self) -> str:
        """`the first 2,000 test contexts`, for titles."""
        return self.named(self.split)

    def named(self, text: str) -> str:
        """The same of another text than the split, by its name."""
        which = "all" if self.contexts is None else f"the first {self.contexts:,}"
        return f"{which} {text} contexts"


def of_all(count: int, available: int) -> str:
    """`first 2,000`, for a table's cell."""
    return f"all {count:,}" if count == available else f"first {count:,}"
