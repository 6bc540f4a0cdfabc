"""Predictions of one run at contexts, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table

from lmkit.analyses.contexts import Context, last_words
from lmkit.evaluation.next_words import NextWords


def entry(
    context: Context, found: NextWords, tokens: np.ndarray, vocabulary: Sequence[str]
) -> dict[str, object]:
    """One context of predictions.json."""
    target = None if context.position is None else vocabulary[tokens[context.position]]
    return {
        "name": context.name,
        "source": context.source,
        "position": context.position,
        "context": last_words(context, tokens, vocabulary),
        "target": target,
        "target_prob": found.target_prob,
        "target_rank": found.target_rank,
        "top": top(found, vocabulary),
    }


def top(found: NextWords, vocabulary: Sequence[str]) -> list[dict[str, object]]:
    """The likeliest words, as predictions.json has them."""
    return [{"word": vocabulary[word], "prob": prob} for word, prob in found.top]


def margin_entries(
    positions: Sequence[int],
    found: Mapping[int, NextWords],
    other: Mapping[int, NextWords],
    tokens: np.ndarray,
    vocabulary: Sequence[str],
) -> list[dict[str, object]]:
    """Contexts with the predictions of both models, those of the other as `other_...`."""
    entries = []
    for position in positions:
        context = Context(f"margin {position}", "margin", position)
        theirs = other[position]
        ratio = found[position].target_prob / theirs.target_prob if theirs.target_prob else np.inf
        entries.append(
            {
                **entry(context, found[position], tokens, vocabulary),
                "other_prob": theirs.target_prob,
                "other_rank": theirs.target_rank,
                "other_top": top(theirs, vocabulary),
                "margin_nats": float(np.log(ratio)) if 0 < ratio < np.inf else None,
            }
        )
    return entries


def contexts_table(entries: Sequence[Mapping], title: str) -> Table:
    """A row for each context."""
    table = Table(title=title, show_lines=True)
    for column in ("context", "last words", "next word"):
        table.add_column(column, overflow="fold")
    table.add_column("its rank", justify="right")
    table.add_column("likeliest, %", overflow="fold")
    for found in entries:
        likeliest = ", ".join(f"{each['word']} {100 * each['prob']:.1f}" for each in found["top"])
        rank = found["target_rank"]
        cells = (found["name"], found["context"], found["target"] or "")
        table.add_row(*map(_plain, cells), "" if rank is None else f"{rank:,}", _plain(likeliest))
    return table


def margins_table(entries: Sequence[Mapping], title: str) -> Table:
    """A row for each context at which one model beats the other."""
    table = Table(title=title, show_lines=True)
    for column in ("last words", "next word"):
        table.add_column(column, overflow="fold")
    for column in ("%", "the other's %"):
        table.add_column(column, justify="right")
    for column in ("likeliest", "the other's"):
        table.add_column(column, overflow="fold")
    for found in entries:
        likeliest = (
            ", ".join(each["word"] for each in found[name]) for name in ("top", "other_top")
        )
        probs = (f"{100 * found[name]:.3g}" for name in ("target_prob", "other_prob"))
        words = map(_plain, (found["context"], found["target"]))
        table.add_row(*words, *probs, *map(_plain, likeliest))
    return table


def _plain(text: str) -> str:
    """Words such as [ are no markup."""
    return text.replace("[", "\\[")
