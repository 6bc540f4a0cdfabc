"""Contexts whose next words are predicted: the papers', the user's, random ones, large margins.

A position is the index in a split of the word to be predicted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lmkit.data.tokenizer import Tokenizer
from lmkit.errors.user_error import UserError
from lmkit.results.published import CORPORA
from lmkit.results.published import published as published_values

_LAST_WORDS = 12  # shown of a context


class Context(NamedTuple):
    """A place at which the next word is predicted."""

    name: str
    source: str  # "published", "position", "text", "random" or "margin"
    position: int | None  # None of a text that is not in the split
    text: tuple[int, ...] = ()  # the words of such a text


def published(tokens: np.ndarray, vocabulary: Sequence[str], split: str) -> list[Context]:
    """The contexts that the papers show, if this is their split: the true words must match."""
    contexts = []
    if (len(vocabulary), split) != (CORPORA["penn"].words, "test"):
        return []
    values = published_values()
    for _, row in values[values["quantity"] == "predictions.context"].iterrows():
        position, name = int(row["value"]), f"{row['paper']}, {row['remark']}"
        if position >= len(tokens) or vocabulary[tokens[position]] != row["row"]:
            return []
        contexts.append(Context(f"{name}: {position}", "published", position))
    return contexts


def at_positions(tokens: np.ndarray, positions: Sequence[int]) -> list[Context]:
    """Raises: UserError when there is nothing before the position, or nothing at it."""
    for position in positions:
        if isinstance(position, bool) or not isinstance(position, int):
            raise UserError(f"positions must be whole numbers, but one is {position!r}")
        if not 1 <= position < len(tokens):
            raise UserError(
                f"positions: {position} is none of 1 to {len(tokens) - 1:,}, the words of the "
                f"split that have one before them"
            )
    return [Context(f"position {position}", "position", position) for position in positions]


def by_text(tokens: np.ndarray, words: Sequence[int], text: str) -> Context:
    """The context after a text's first occurrence in the split, or after the text alone if there is
    none."""
    if len(words) < len(tokens):
        windows = np.lib.stride_tricks.sliding_window_view(tokens, len(words))
        (starts,) = np.nonzero((windows == np.asarray(words)).all(axis=1))
        starts = starts[starts + len(words) < len(tokens)]  # a word must follow
        if len(starts):
            return Context(f"text: {text}", "text", int(starts[0]) + len(words))
    return Context(f"text: {text}", "text", None, tuple(words))


def random_positions(tokens: np.ndarray, count: int, seed: int) -> list[int]:
    """Different positions, in order; all of them where there are no more than `count`."""
    available = len(tokens) - 1
    drawn = np.random.default_rng(seed).choice(available, min(count, available), replace=False)
    positions: list[int] = (drawn + 1).tolist()
    return sorted(positions)


def largest_margins(
    log_probs: np.ndarray, other_log_probs: np.ndarray, count: int
) -> tuple[list[int], list[int]]:
    """Positions with the largest margins in nats, both ways, of the first model over the second on
    the true word; the largest first (as Yang et al. 2018 looked for where MoS beats softmax).

    Args:
        log_probs: of the words at positions 1, 2, ... (num_tokens - 1,).
    """
    order = np.argsort(other_log_probs - log_probs, kind="stable")
    better, worse = order[:count], order[::-1][:count]
    return (better + 1).tolist(), (worse + 1).tolist()


def last_words(context: Context, tokens: np.ndarray, tokenizer: Tokenizer) -> str:
    """The words just before the one to be predicted."""
    words: Sequence[int] = context.text
    if context.position is not None:
        words = tokens[max(0, context.position - _LAST_WORDS) : context.position].tolist()
    return tokenizer.quotation(words[-_LAST_WORDS:])
