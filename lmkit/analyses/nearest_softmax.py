"""How much of a model's log P no softmax of its dimension can have: KL from the nearest one.

Ranks count directions however small they are, and `truncation` weighs rare words as much as
frequent ones. This is the distance itself, in nats a context: see `lmkit.spectra.nearest_softmax`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from lmkit.analyses.base import OfContexts, Record, Recorded, Subject
from lmkit.errors.user_error import UserError, require_count

if TYPE_CHECKING:  # it brings torch
    from torch import Tensor

    from lmkit.spectra.nearest_softmax import NearestSoftmax


class Distance(Record):
    """Of the softmax that was found; the nearest may be nearer still."""

    split: str
    num_contexts: int = Field(title="contexts")
    all_contexts: int
    num_words: int
    dim: int = Field(title="dimension")  # of the softmax
    divergence: float = Field(title="KL, nats")  # nats a context
    perplexity: float = Field(title="perplexity")  # the model's own, of the words that follow
    nearest_perplexity: float = Field(title="of the nearest")
    iterations: int
    held_out: int | None = None  # contexts; None in files of before
    held_out_divergence: float | None = Field(None, title="held out, nats")  # nats a context


@dataclass(kw_only=True, eq=False)
class NearestSoftmaxDistance(OfContexts):
    """The distance of log P from the softmaxes of a dimension."""

    name, record, least = "nearest_softmax", Distance, 2
    title, apart = "Distance from the nearest softmax", ("split", "num_contexts", "dim")

    dim: int | None  # of the softmax; None: that of the model's decoder
    iterations: int  # of L-BFGS, at most
    held_out: int  # contexts

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim is not None:
            require_count("dim", self.dim)
        require_count("iterations", self.iterations)
        require_count("held_out", self.held_out, 0)

    def measure(self, subject: Subject) -> Recorded:
        import torch

        from lmkit.measures.contexts import log_prob_blocks
        from lmkit.measures.memory import require_memory
        from lmkit.measures.perplexity import safe_exp
        from lmkit.spectra.nearest_softmax import working_bytes

        model, chosen = subject.model, self.chosen(subject)
        num_words, own_dim = model.head.decoder_weight.shape
        dim, smaller = self.dim or own_dim, min(chosen.num_contexts, num_words)
        if dim >= smaller:
            raise UserError(
                f"a softmax of dimension {dim} is every matrix of {chosen.num_contexts:,} contexts "
                f"x {num_words:,} words: choose dim less than {smaller:,}"
            )
        left = chosen.available - chosen.num_contexts
        held_out = min(self.held_out, left, chosen.num_contexts)  # fewer take less time, and memory
        wanted = chosen._replace(num_contexts=chosen.num_contexts + held_out)
        require_memory(
            working_bytes(wanted.num_contexts, num_words, dim),
            model.device,
            f"the nearest softmax to {chosen.num_contexts:,} contexts x {num_words:,} words",
            "choose fewer contexts with contexts=N, or a smaller dim",
        )
        blocks = log_prob_blocks(model, wanted.with_bar(subject.name, "log P"), wanted.num_contexts)
        log_probs, targets = map(torch.cat, zip(*blocks, strict=True))
        found, others = self._found(subject.name, log_probs, targets, chosen.num_contexts, dim)
        return Recorded(
            Distance(
                split=chosen.split,
                num_contexts=chosen.num_contexts,
                all_contexts=chosen.available,
                num_words=num_words,
                dim=dim,
                divergence=found.divergence,
                perplexity=safe_exp(found.own_nll),
                nearest_perplexity=safe_exp(found.nll),
                iterations=found.iterations,
                held_out=held_out,
                held_out_divergence=others,
            )
        )

    def _found(
        self, name: str, log_probs_NV: Tensor, targets_N: Tensor, num_fitted: int, dim: int
    ) -> tuple[NearestSoftmax, float | None]:
        """The nearest softmax over the first rows, and how far one with its decoder is over the
        others; None if there are none.
        """
        from lmkit.presentation.progress import progress_bar
        from lmkit.spectra.nearest_softmax import nearest_contexts, nearest_softmax

        fitted, others = slice(num_fitted), slice(num_fitted, None)
        with progress_bar() as progress:
            task = progress.add_task(f"{name}: iterations", total=self.iterations)
            found = nearest_softmax(
                log_probs_NV[fitted],
                targets_N[fitted],
                dim,
                self.iterations,
                lambda done: progress.update(task, completed=done),
            )
            progress.update(task, total=found.iterations)
            if not len(log_probs_NV[others]):
                return found, None
            task = progress.add_task(f"{name}: held out", total=self.iterations)
            divergence, done = nearest_contexts(
                log_probs_NV[others],
                found.weight_VD,
                found.bias_V,
                self.iterations,
                lambda done: progress.update(task, completed=done),
            )
            progress.update(task, total=done)
        return found, divergence
