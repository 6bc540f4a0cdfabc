"""Which contexts an analysis measures: the first ones of a split, or all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lmkit.errors.user_error import require_choice, require_count

if TYPE_CHECKING:  # it brings torch
    from lmkit.data.windows import EvalBatches


class ChosenContexts(NamedTuple):
    """The contexts of one run that are measured."""

    batches: EvalBatches  # of the whole split
    num_contexts: int  # measured, from its start
    available: int  # that the split has


class FirstContexts:
    """The options `split` and `contexts`.

    Args:
        split: train, valid or test.
        contexts: how many contexts, from the split's start, at most; None or "all": all.
        least: the fewest contexts that can be measured.
    """

    def __init__(self, split: str, contexts: int | str | None, least: int = 1) -> None:
        require_choice("split", split, ("train", "valid", "test"))
        self.split = split
        self.contexts: int | None = None  # all
        if contexts is not None and contexts != "all":
            require_count("contexts", contexts, least)
            self.contexts = int(contexts)

    def among(self, batches: EvalBatches, text: str) -> ChosenContexts:
        """Those of the batches; prints a line, with the name of the text, if they have fewer than
        asked for."""
        available = batches.num_targets
        if self.contexts is None or self.contexts <= available:
            return ChosenContexts(batches, self.contexts or available, available)
        print(f"contexts={self.contexts}: {text} has only {available:,}: all are measured")
        return ChosenContexts(batches, available, available)
