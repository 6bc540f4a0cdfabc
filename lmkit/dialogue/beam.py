"""Beam search over any head's log P, a batch of contexts at a time.

Shapes: B batch, K hypotheses of a beam, V vocabulary, T words so far, D input of the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.dialogue.batches import PairBatch
from lmkit.dialogue.corpus import EOS_ID, UNK_ID
from lmkit.dialogue.module import DialogueModel
from lmkit.dialogue.seq2seq import State
from lmkit.errors.user_error import UserError, require_count
from lmkit.training.head_module import exact_evaluation, to_device


class Hypothesis(NamedTuple):
    """A response."""

    words: tuple[int, ...]  # <eos> left out
    log_prob: float  # nats, of the words and of the <eos> where it was reached


class BeamSearch:
    """The responses of the highest log P that a beam of hypotheses finds.

    At each word the `size` best continuations of all hypotheses of a context are kept. One that has
    ended stays among them with its log P as it is. It is over when the best `n_best` have ended,
    which nothing can then overtake, or at `max_words`, where what has not ended counts as it is.

    Args:
        size: hypotheses kept for each context.
        max_words: of a response.
        n_best: responses returned for each context.
        excluded: words that are never chosen.
    """

    def __init__(
        self, size: int, max_words: int, n_best: int, excluded: Sequence[int] = (UNK_ID,)
    ) -> None:
        require_count("beam", size)
        require_count("max_words", max_words)
        require_count("n_best", n_best)
        if n_best > size:
            raise UserError(f"n_best must be at most beam, which is {size}, but is {n_best}")
        self.size, self.max_words, self.n_best = size, max_words, n_best
        self.excluded = list(excluded)

    def search(self, model: DialogueModel, batch: PairBatch) -> list[list[Hypothesis]]:
        """For each context of the batch its responses, the best first."""
        with exact_evaluation(model, model.device.type):
            return self._search(model, to_device(batch, model.device))

    def _search(self, model: DialogueModel, batch: PairBatch) -> list[list[Hypothesis]]:
        memory, state = model.trunk.encode(
            batch.context_SB, batch.responder_SB, batch.context_lengths_B
        )
        num_contexts, size = batch.context_SB.shape[1], self.size
        contexts = torch.arange(num_contexts, device=model.device)
        memory = memory.of(contexts.repeat_interleave(size))
        state = _of(state, contexts.repeat_interleave(size))
        words_BKT = torch.full((num_contexts, size, 1), EOS_ID, device=model.device)
        # all hypotheses of a context are the same at first: one is enough
        scores_BK = torch.full((num_contexts, size), -torch.inf, device=model.device)
        scores_BK[:, 0] = 0.0
        ended_BK = torch.zeros_like(scores_BK, dtype=torch.bool)
        for _ in range(self.max_words):
            last_1N = words_BKT[:, :, -1].reshape(1, -1)
            hidden_1ND, state = model.trunk.decode(last_1N, memory, state)
            log_probs_NV = model.head.log_probs(hidden_1ND)
            scores_BK, parents_BK, word_BK = self._best(log_probs_NV, scores_BK, ended_BK)
            parents_N = (contexts.unsqueeze(1) * size + parents_BK).reshape(-1)
            state = _of(state, parents_N)
            words_BKT = words_BKT.flatten(0, 1)[parents_N].view(num_contexts, size, -1)
            words_BKT = torch.cat([words_BKT, word_BK.unsqueeze(2)], dim=2)
            ended_BK = word_BK == EOS_ID
            if ended_BK[:, : self.n_best].all():
                break
        return self._hypotheses(words_BKT[:, :, 1:], scores_BK)

    def _best(
        self, log_probs_NV: Tensor, scores_BK: Tensor, ended_BK: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (B, K) of the best continuations, whose they are, and the words (B, K)."""
        num_contexts, size = scores_BK.shape
        log_probs_NV[:, self.excluded] = -torch.inf
        log_probs_BKV = log_probs_NV.view(num_contexts, size, -1)
        # what has ended goes on with nothing but one more <eos>, which costs nothing
        log_probs_BKV.masked_fill_(ended_BK.unsqueeze(2), -torch.inf)
        log_probs_BKV[..., EOS_ID].masked_fill_(ended_BK, 0.0)
        joint_BN = (scores_BK.unsqueeze(2) + log_probs_BKV).flatten(1)
        found = joint_BN.topk(size, dim=1)
        num_words = log_probs_BKV.shape[2]
        return found.values, found.indices // num_words, found.indices % num_words

    def _hypotheses(self, words_BKT: Tensor, scores_BK: Tensor) -> list[list[Hypothesis]]:
        """A context that has fewer responses than `n_best` in all has these."""
        found = []
        for words_KT, scores_K in zip(words_BKT.tolist(), scores_BK.tolist(), strict=True):
            best = zip(words_KT[: self.n_best], scores_K[: self.n_best], strict=True)
            found.append([Hypothesis(_to_end(w), score) for w, score in best if score > -torch.inf])
        return found


def _of(state: State, items: Tensor) -> State:
    return tuple(part.index_select(1, items) for part in state)


def _to_end(words: list[int]) -> tuple[int, ...]:
    return tuple(words[: words.index(EOS_ID)] if EOS_ID in words else words)
