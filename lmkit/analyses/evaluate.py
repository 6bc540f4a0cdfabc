"""The perplexity of finished runs by a method: as trained, with a cache, or adapting to the text.

Yang et al. 2018, tables 1 and 2; Merity et al. 2018, tables 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from lmkit.analyses.base import Analysis, Record, Recorded, Subject
from lmkit.errors.user_error import UserError, require_choice, require_count, require_flag

if TYPE_CHECKING:  # it brings torch
    from lmkit.evaluation.method import Method


class Evaluation(Record):
    """A perplexity, and how it was measured."""

    method: str = Field(title="method")
    split: str = Field(title="split")
    # of the method
    options: dict[str, float | int | str | bool | None] = Field(title="options")
    ppl: float = Field(title="perplexity")
    nll: float  # nats a token
    bits_per_token: float
    num_tokens: int  # that were predicted
    word_ppl: float | None = None  # of subwords, as one column of text
    bits_per_byte: float | None = Field(default=None, title="bits per byte")
    # of valid, from its start, that a search predicted
    search_tokens: int | None = Field(default=None, title="searched on tokens")
    # its options and perplexities, the best first
    search_points: list[dict[str, int | float]] = Field(default_factory=list)
    search_diverged: int = 0  # points whose perplexity is not finite
    # options whose best value is the first or last of their grid
    at_edge: list[str] = Field(default_factory=list)


@dataclass(kw_only=True, eq=False)
class Evaluate(Analysis):
    """Predicts a split by a method, whose values may first be searched on valid."""

    name, record, title = "evaluate", Evaluation, "Perplexity by method"
    apart = ("method", "split")

    method: Method  # what predicts
    split: str  # train, valid or test
    checkpoint: str  # best or last
    search: bool  # whether to use the values from the method's grids that are best on valid
    search_tokens: int | None  # predicted tokens of valid for it, from the first; None: all

    def __post_init__(self) -> None:
        from lmkit.evaluation.method import Method  # brings torch, as the method has

        method = self.method
        if not isinstance(method, Method):
            raise UserError(
                f"method._target_ must name a Method, but makes a {type(method).__name__}"
            )
        require_choice("split", self.split, ("train", "valid", "test"))
        require_choice("checkpoint", self.checkpoint, ("best", "last"))
        require_flag("search", self.search)
        if self.search_tokens is not None:
            require_count("search_tokens", self.search_tokens)
            if not self.search:
                raise UserError("search_tokens goes with search=true: nothing is searched here")
        if self.search and not method.grid:
            raise UserError(
                f"search=true: method={method.kind} has nothing to search; choose cache or dynamic"
            )

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.perplexity import text_content

        run, method = subject.loaded_run, self.method
        searched: dict[str, object] = {}
        if self.search:
            searched, best = self._search(subject)
            method = method.at(best)
        measured = method.measure(run, self.split)
        if not math.isfinite(measured.perplexity):
            options = {"method": method.kind} | method.options()
            at = " ".join(f"{option}={value}" for option, value in options.items())
            raise UserError(f"the {self.split} perplexity of {at} is not finite")
        if not run.changed and run.source.fingerprint() != subject.text.sha256:
            raise UserError("the text was edited while it was predicted: measure it again")
        of_the_text = text_content(
            run.model, run.data, run.source, self.split, measured,
            in_one_column=method.in_one_column,
        )  # fmt: skip
        return Recorded(
            Evaluation.model_validate(
                {
                    "method": method.kind,
                    "split": self.split,
                    "options": method.options(),
                    "ppl": measured.perplexity,
                    "nll": measured.nll,
                    "bits_per_token": measured.bits_per_token,
                    "num_tokens": measured.num_tokens,
                    **of_the_text,
                    **searched,
                }
            )
        )

    def lines(self, record: Evaluation) -> list[str]:
        lines = []
        if record.search_diverged:
            points = len(record.search_points) + record.search_diverged
            lines.append(
                f"at {record.search_diverged} of {points} points of the search the perplexity is "
                "not finite"
            )
        at_edge = "the best {0} is at the edge of method.{0}_grid: widen it"
        return lines + [at_edge.format(name) for name in record.at_edge]

    def _search(self, subject: Subject) -> tuple[dict[str, object], dict[str, float]]:
        """What is stored of a search on valid, and the best values."""
        method, asked = self.method, self.search_tokens
        _, data = subject.language_model
        available = len(data.corpus.valid) - 1
        if asked is not None and asked > available:
            raise UserError(
                f"search_tokens={asked} is more than the {available:,} predicted tokens of valid; "
                f"null takes these"
            )
        windows = data.one_column("valid", length=method.length, num_targets=asked)
        tried = method.search(subject.loaded_run, windows)
        points = sorted(tried, key=lambda point: point.perplexity)
        finite = [point for point in points if math.isfinite(point.perplexity)]
        if not finite:
            raise UserError(
                f"the valid perplexity is finite at none of the {len(points)} points of the search"
            )
        best = finite[0].options
        grids = {name: values for name, values in method.grid.items() if len(values) > 2}
        return {
            "search_tokens": windows.num_targets,
            "search_points": [point.options | {"ppl": point.perplexity} for point in finite],
            "search_diverged": len(points) - len(finite),
            "at_edge": [n for n, v in grids.items() if best[n] in (min(v), max(v))],
        }, best
