"""What a trained model answers: perplexity, responses by beam search, their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lmkit.dialogue.batches import Pairs, PairsDataModule
from lmkit.dialogue.beam import BeamSearch
from lmkit.dialogue.corpus import EOS_ID
from lmkit.dialogue.module import DialogueModel
from lmkit.dialogue.scores import MAX_ORDER, SMOOTHING, bleu_scores, distinct
from lmkit.errors.user_error import UserError
from lmkit.training.head_module import safe_exp

CONTEXTS_A_BATCH = 32  # a constant, as it changes the last bits


class DialogueOptions(NamedTuple):
    """What is measured of each run."""

    split: str
    pairs: int | None  # how many of the split's, evenly spaced; None: all
    beam: int
    max_words: int
    n_best: int
    samples: int  # of the pairs, evenly spaced, whose responses are kept


class Answered(NamedTuple):
    """The responses to one context."""

    context: list[str]  # one a turn, with "> " before those of the one who responds
    reference: list[str]
    responses: list[list[str]]  # the best first
    log_probs: list[float]  # nats


def measure_dialogue(
    model: DialogueModel,
    data: PairsDataModule,
    options: DialogueOptions,
    advance: Callable[[int, int], None],
) -> dict[str, object]:
    """What `analysis/dialogue.json` holds of a run, as plain data.

    `advance` is told how many contexts are answered, and of how many.

    Raises: UserError when there are fewer pairs than `options` asks for.
    """
    pairs = data.pairs(options.split)
    if options.pairs is not None and options.pairs > len(pairs):
        raise UserError(
            f"pairs={options.pairs} is more than the {len(pairs):,} pairs of the {options.split} "
            f"split; pairs=all takes these"
        )
    windows = data.eval_windows(options.split)
    nll = model.mean_nll(windows)
    chosen = _evenly(len(pairs), options.pairs or len(pairs))
    search = BeamSearch(options.beam, options.max_words, options.n_best)
    vocabulary = data.corpus.vocabulary
    answered = list(_answers(model, search, pairs, chosen, vocabulary, advance))
    first = [found.responses[0] for found in answered]
    bleu = bleu_scores([a.responses for a in answered], [a.reference for a in answered])
    kept = _evenly(len(answered), min(options.samples, len(answered)))
    return {
        "answered_pairs": len(chosen),
        "all_pairs": len(pairs),
        "perplexity": safe_exp(nll),
        "nll": nll,
        "tokens": windows.num_targets,
        "smoothing": SMOOTHING,
        **{f"bleu{n + 1}_precision": bleu.precision[n] for n in range(MAX_ORDER)},
        **{f"bleu{n + 1}_recall": bleu.recall[n] for n in range(MAX_ORDER)},
        "distinct1": distinct(first, 1),
        "distinct2": distinct(first, 2),
        "response_words": float(np.mean([len(response) for response in first])),
        "reference_words": float(np.mean([len(found.reference) for found in answered])),
        "responses": [answered[i]._asdict() for i in kept],
    }


def _evenly(total: int, number: int) -> list[int]:
    """`number` of `total` indices, evenly spaced, in order."""
    return [i * total // number for i in range(number)]


def _answers(
    model: DialogueModel,
    search: BeamSearch,
    pairs: Pairs,
    chosen: Sequence[int],
    vocabulary: Sequence[str],
    advance: Callable[[int, int], None],
) -> Iterator[Answered]:
    for start in range(0, len(chosen), CONTEXTS_A_BATCH):
        part = chosen[start : start + CONTEXTS_A_BATCH]
        found = search.search(model, pairs.batch(part, 0, 0, False))
        for pair, hypotheses in zip(part, found, strict=True):
            yield Answered(
                _turns(pairs, pair, vocabulary),
                _words(pairs.response(pair)[:-1], vocabulary),
                [_words(hypothesis.words, vocabulary) for hypothesis in hypotheses],
                [hypothesis.log_prob for hypothesis in hypotheses],
            )
        advance(start + len(part), len(chosen))


def _turns(pairs: Pairs, pair: int, vocabulary: Sequence[str]) -> list[str]:
    words, own = pairs.context(pair)
    ends = np.flatnonzero(words == EOS_ID)
    turns, start = [], 0
    for end in ends:
        mark = "> " if own[end] else ""
        turns.append(mark + " ".join(_words(words[start:end], vocabulary)))
        start = end + 1
    return turns


def _words(indices: Sequence[int], vocabulary: Sequence[str]) -> list[str]:
    return [vocabulary[i] for i in indices]
