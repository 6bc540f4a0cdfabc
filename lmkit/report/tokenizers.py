"""Runs that read one text as different tokens, in measures that still compare.

A perplexity is per token. Per word and per byte, word and subword models compare
(lmkit/measures/perplexity.py has the formulas).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmkit.comparison.cells import MEAN_SD, spread_cell
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.groups import Group
from lmkit.presentation.section import Section
from lmkit.presentation.tables import Column, Heading, Table, millions, number, table_over
from lmkit.runs.finished import FinishedRun


class _TextRuns(NamedTuple):
    """A group, and the study whose tokens it has."""

    study: Study
    group: Facts


def tokenizers(studies: Sequence[Study]) -> list[Section]:
    """A section with a table per test text that runs read as different tokens, otherwise []."""
    by_text: dict[str, list[_TextRuns]] = {}
    for study in studies:
        for group in study.groups:
            text = test_text(group.runs[0]).get("sha256")
            if text is not None:
                by_text.setdefault(str(text), []).append(_TextRuns(study, group))
    of_several = [
        groups for groups in by_text.values() if len({tokens_per_word(g.group) for g in groups}) > 1
    ]
    if not of_several:
        return []
    return [
        Section(
            "tokenizers",
            "Words and subwords",
            "Does a head, or a trunk, do as well with subwords as with words? Perplexities of "
            "different tokens do not compare; those per word and bits per byte do.",
            [_table(index, groups) for index, groups in enumerate(of_several, 1)],
        )
    ]


def tokens_per_word(group: Group) -> float | None:
    """Tokens per word of test, 1 for words; None if test is not text."""
    text = test_text(group.runs[0])
    tokens, words = text.get("tokens"), text.get("words")
    return tokens / words if isinstance(tokens, int) and isinstance(words, int) else None


def test_text(run: FinishedRun) -> Mapping[str, object]:
    """The size of the test text in the run's result; {} if absent."""
    text = run.result.metrics.get("test_text")
    return text if isinstance(text, dict) else {}


def _table(index: int, groups: Sequence[_TextRuns]) -> Table:
    size = test_text(groups[0].group.runs[0])
    caption = (
        f"One test text, {size.get('words'):,} words and {size.get('bytes'):,} bytes, as different "
        "tokens: mean ± one standard deviation over seeds. A word is one between white space, or "
        "the end of a line. The state is carried in one column."
    )
    columns: dict[Heading, Any] = {
        "text and tokens": lambda of: of.study.title,
        "trunk": lambda of: of.group.names.trunk,
        "head": lambda of: of.group.label,
        "seeds": lambda of: len(of.group.runs),
        "parameters, M": lambda of: millions(of.group.parameters_m),
        "tokens per word": lambda of: number(tokens_per_word(of.group), 3),
        Column("test perplexity per token", MEAN_SD): lambda of: spread_cell(
            of.group.spread("test_ppl")
        ),
        Column("per word", MEAN_SD): lambda of: spread_cell(of.group.spread("test_word_ppl")),
        Column("bits per byte", MEAN_SD): lambda of: spread_cell(
            of.group.spread("test_bits_per_byte"), 4
        ),
    }
    title = f"Words and subwords of {groups[0].study.short}"
    key = f"tokenizers_{index}"
    return table_over(groups, key, title, caption, columns, is_main=True)
