"""Beam search over any head's log P, a batch of contexts at a time.

Shapes: B batch, K hypotheses of a beam, N = B*K, V vocabulary, T words so far, D input of the head.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmkit.dialogue.batches import PairBatch, Pairs, PairsDataModule
from lmkit.dialogue.corpus import EOS_ID, UNK_ID
from lmkit.dialogue.module import DialogueModel
from lmkit.dialogue.responses import Replies, evenly
from lmkit.dialogue.seq2seq import State
from lmkit.errors.user_error import UserError
from lmkit.experiment.load import LoadedRun
from lmkit.heads.predictor import exact_evaluation, to_device
from lmkit.measures.perplexity import Perplexity, as_perplexity, mean_nll
from lmkit.presentation.progress import progress_bar

CONTEXTS_PER_BATCH = 32  # a constant, since it changes the last bits


Words = tuple[int, ...]  # of a response, without <eos>


class BeamSearch(NamedTuple):
    """The responses of the highest log P that a beam of hypotheses finds.

    At each word the search keeps the `size` best continuations of all hypotheses of a context. A
    hypothesis that has ended stays among them, and its log P stays as it is. The search is over
    when the best `n_best` have ended, since nothing can overtake them then, or at `max_words`,
    where what has not ended counts as it is. `<unk>` is never chosen.
    """

    size: int  # hypotheses kept for each context
    max_words: int  # of a response
    n_best: int  # responses returned for each context, at most `size`

    def search(self, model: DialogueModel, batch: PairBatch) -> list[list[Words]]:
        """The responses to each context of the batch, the best first."""
        with exact_evaluation(model):
            return self._search(model, to_device(batch, model.device))

    def _search(self, model: DialogueModel, batch: PairBatch) -> list[list[Words]]:
        memory, state = model.trunk.encode(
            batch.context_SB, batch.responder_SB, batch.context_lengths_B
        )
        num_contexts, size = batch.context_SB.shape[1], self.size
        contexts = torch.arange(num_contexts, device=model.device)
        memory = memory.of(contexts.repeat_interleave(size))
        state = _chosen(state, contexts.repeat_interleave(size))
        words_BKT = torch.full((num_contexts, size, 1), EOS_ID, device=model.device)
        # all hypotheses of a context are the same at first: one is enough
        scores_BK = torch.full((num_contexts, size), -torch.inf, device=model.device)
        scores_BK[:, 0] = 0.0
        ended_BK = torch.zeros_like(scores_BK, dtype=torch.bool)
        for _ in range(self.max_words):
            last_1N = words_BKT[:, :, -1].reshape(1, -1)
            hidden_1ND, state = model.trunk.decode(last_1N, memory, state)
            log_probs_NV = model.head.log_probs(hidden_1ND)
            scores_BK, kept_BK, word_BK = self._best(log_probs_NV, scores_BK, ended_BK)
            kept_N = (contexts.unsqueeze(1) * size + kept_BK).reshape(-1)
            state = _chosen(state, kept_N)
            words_BKT = words_BKT.flatten(0, 1)[kept_N].view(num_contexts, size, -1)
            words_BKT = torch.cat([words_BKT, word_BK.unsqueeze(2)], dim=2)
            ended_BK = word_BK == EOS_ID
            if ended_BK[:, : self.n_best].all():
                break
        return self._hypotheses(words_BKT[:, :, 1:], scores_BK)

    def _best(
        self, log_probs_NV: Tensor, scores_BK: Tensor, ended_BK: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations: scores, the hypotheses that they continue, words; (B, K) each."""
        num_contexts, size = scores_BK.shape
        log_probs_NV[:, UNK_ID] = -torch.inf
        log_probs_BKV = log_probs_NV.view(num_contexts, size, -1)
        # a finished hypothesis only continues with another <eos>, at no cost
        log_probs_BKV.masked_fill_(ended_BK.unsqueeze(2), -torch.inf)
        log_probs_BKV[..., EOS_ID].masked_fill_(ended_BK, 0.0)
        joint_BN = (scores_BK.unsqueeze(2) + log_probs_BKV).flatten(1)
        best = joint_BN.topk(size, dim=1)
        num_words = log_probs_BKV.shape[2]
        return best.values, best.indices // num_words, best.indices % num_words

    def _hypotheses(self, words_BKT: Tensor, scores_BK: Tensor) -> list[list[Words]]:
        """A context that has fewer responses than `n_best` in all has these."""
        best = (part[:, : self.n_best].tolist() for part in (words_BKT, scores_BK))
        return [
            [
                tuple(takewhile(lambda word: word != EOS_ID, words))
                for words, score in zip(words_KT, scores_K, strict=True)
                if score > -torch.inf
            ]
            for words_KT, scores_K in zip(*best, strict=True)
        ]


def answer(
    run: LoadedRun, split: str, num_pairs: int | None, search: BeamSearch
) -> tuple[Perplexity, int, list[Replies]]:
    """Perplexity of all responses of a split, its number of pairs, and the model's answers to its
    contexts, with a bar.

    Args:
        num_pairs: how many contexts are answered, evenly spaced; None: all.

    Raises: UserError when the run is not of a dialogue model, or the split has fewer pairs.
    """
    model, data = run.model, run.data
    if not isinstance(model, DialogueModel) or not isinstance(data, PairsDataModule):
        raise UserError("it is no dialogue run")
    pairs = data.pairs(split)
    if num_pairs is not None and num_pairs > len(pairs):
        raise UserError(
            f"pairs={num_pairs} is more than the {len(pairs):,} pairs of the {split} split; "
            f"pairs=all takes these"
        )
    windows = data.eval_batches(split)
    measured = as_perplexity(mean_nll(model, windows), windows.num_targets)
    chosen = evenly(len(pairs), num_pairs or len(pairs))
    answers: list[Replies] = []
    vocabulary = data.corpus.vocabulary
    with progress_bar() as progress:
        task = progress.add_task(f"{run.folder.path.name}: contexts", total=len(chosen))
        for start in range(0, len(chosen), CONTEXTS_PER_BATCH):
            part = chosen[start : start + CONTEXTS_PER_BATCH]
            responses = search.search(model, pairs.batch(part))
            for pair, found in zip(part, responses, strict=True):
                reply = Replies(
                    context=_turns(pairs, pair, vocabulary),
                    reference=_spelt(pairs.response(pair)[:-1].tolist(), vocabulary),
                    responses=[_spelt(words, vocabulary) for words in found],
                )
                answers.append(reply)
            progress.advance(task, len(part))
    return measured, len(pairs), answers


def _turns(pairs: Pairs, pair: int, vocabulary: Sequence[str]) -> list[str]:
    words, own = pairs.context(pair)
    turns, start = [], 0
    for end in np.flatnonzero(words == EOS_ID).tolist():
        mark = "> " if own[end] else ""
        turns.append(mark + " ".join(_spelt(words[start:end].tolist(), vocabulary)))
        start = end + 1
    return turns


def _spelt(indices: Sequence[int], vocabulary: Sequence[str]) -> list[str]:
    return [vocabulary[i] for i in indices]


def _chosen(state: State, items: Tensor) -> State:
    """The decoder's state of chosen items of the batch."""
    outputs, cells = (part.index_select(1, items) for part in state)
    return outputs, cells
