"""The perplexity of finished runs by a method: as trained, with a cache, or adapting to the text.

Yang et al. 2018, tables 1 and 2; Merity et al. 2018, tables 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from lmkit import evaluation, experiment, measures
from lmkit.analyses.analysis import Analysis, Content
from lmkit.comparison.cells import MEAN_SD, spread_cell
from lmkit.comparison.evaluations import EVALUATE, as_trained, options_text
from lmkit.comparison.facts import Study
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError, require_choice, require_count, require_flag
from lmkit.presentation.section import Section
from lmkit.presentation.tables import Column, Row, Table, decimal, key_values, number

_SHOWN_POINTS = 5


class Evaluate(Analysis):
    """Predicts a split by a method, whose values may first be searched on valid.

    Args:
        method: what predicts.
        split: train, valid or test.
        checkpoint: best or last.
        search: whether to use the values from the method's grids that are best on valid.
        search_tokens: predicted tokens of valid used by the search, from the first; None: all.
    """

    name, schema_version, form = EVALUATE
    order = 20
    takes_dialogue = True

    def __init__(
        self,
        *,
        method: evaluation.method.Method,
        split: str,
        checkpoint: str,
        search: bool,
        search_tokens: int | None,
    ) -> None:
        require_choice("split", split, ("train", "valid", "test"))
        require_choice("checkpoint", checkpoint, ("best", "last"))
        require_flag("search", search)
        if search_tokens is not None:
            require_count("search_tokens", search_tokens)
        if search and not method.grid():
            raise UserError(
                f"search=true: method={method.kind} has nothing to search; choose cache or dynamic"
            )
        self.method, self.split, self.checkpoint = method, split, checkpoint
        self.search, self.search_tokens = search, search_tokens

    def stem(self, content: Content) -> str:
        last = "_last" if self.checkpoint == "last" else ""
        return f"evaluate_{content['method']}_{content['split']}{last}"

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        method, search = self.method, None
        if self.search:
            searched = evaluation.method.search_on_valid(run, method, self.search_tokens)
            finite = [point for point in searched.points if math.isfinite(point.perplexity)]
            if not finite:
                raise UserError(
                    f"the valid perplexity is finite at none of the {len(searched.points)} points "
                    "of the search"
                )
            method = method.at(finite[0].options)
            search = {
                "split": "valid",
                "tokens": searched.tokens,
                "points": [point.options | {"ppl": point.perplexity} for point in finite],
                "diverged": len(searched.points) - len(finite),
            }
        measured = method.measure(run, self.split)
        if not math.isfinite(measured.perplexity):
            values = options_text(method.options())
            what = f"method={method.kind} with {values}" if values else f"method={method.kind}"
            raise UserError(f"the {self.split} perplexity of {what} is not finite")
        of_the_text = measures.perplexity.text_perplexity(
            run.model,
            run.data,
            run.source,
            self.split,
            measured,
            in_one_column=method.in_one_column,
        )
        return {
            "method": method.kind,
            "split": self.split,
            "weights": "averaged" if run.averaged else "raw",
            "data_sha256": run.source.fingerprint(),
            "options": method.options(),
            "ppl": measured.perplexity,
            "nll": measured.nll,
            "bits_per_token": measured.bits_per_token,
            "num_tokens": measured.num_tokens,
            "search": search,
            **measures.perplexity.text_content(of_the_text),
        }

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        return [_table(name, content) for name, content in contents.items()]

    def notes(self, contents: Mapping[str, Content]) -> list[str]:
        notes = []
        edges: dict[str, None] = {}  # in order
        for name, content in contents.items():
            if content["search"] is not None:
                points, diverged = content["search"]["points"], content["search"]["diverged"]
                if diverged:
                    notes.append(
                        f"{name}: at {diverged} of {len(points) + diverged} points of the search "
                        "the perplexity is not finite"
                    )
                best = points[0]
                grids = {name: v for name, v in self.method.grid().items() if len(v) > 2}
                edges |= {n: None for n, v in grids.items() if best[n] in (min(v), max(v))}
        return notes + [
            f"the best {name} is at the edge of method.{name}_grid: widen it" for name in edges
        ]

    @classmethod
    def sections(cls, study: Study, files: Files) -> Sequence[Section]:
        table = _methods_table(study)
        how = "lmkit evaluate run=RUNS method=cache split=valid, and split=test"
        return [
            Section(
                "methods",
                "Cache and dynamic evaluation",
                "How much do a cache and weights that adapt to the text add to each head?",
                [table] if table else [],
                [] if table else [f"no run was evaluated with a cache or dynamically: {how}"],
            )
        ]


def _methods_table(study: Study) -> Table | None:
    """Each group that was evaluated by a method, with its perplexity as trained first."""
    rows: list[Row] = []
    for group in study.groups:
        trained = as_trained(group)
        for each in [trained, *group.evaluations] if group.evaluations else []:
            gain = None
            if each is not trained and each.test and trained.test and each.test.n == trained.test.n:
                gain = each.test.mean - trained.test.mean
            rows.append(
                [
                    group.label,
                    each.method,
                    options_text(each.options),
                    each.num_runs,
                    spread_cell(each.valid, seeds=each.num_runs),
                    spread_cell(each.test, seeds=each.num_runs),
                    number(gain),
                ]
            )
    if not rows:
        return None
    caption = (
        f"Perplexity on {study.short} by method: static is the best weights as they are; mean ± "
        "one standard deviation over runs. Difference: from static, where the same runs have both."
    )
    columns = [
        Column("head", is_text=True),
        Column("method", is_text=True),
        Column("values", is_text=True),
        Column("runs"),
        Column("valid perplexity", MEAN_SD),
        Column("test perplexity", MEAN_SD),
        Column("difference on test"),
    ]
    return Table("methods", "Perplexity by method", caption, columns, rows)


def _table(name: str, content: Content) -> Table:
    rows: list[tuple[str, str]] = []
    if content["search"] is not None:
        tokens = content["search"]["tokens"]
        for point in content["search"]["points"][:_SHOWN_POINTS]:
            at = ", ".join(f"{option} {v:g}" for option, v in point.items() if option != "ppl")
            rows.append((f"valid, first {tokens:,}: {at}", _as_text(point["ppl"])))
    num_points = len(rows)
    rows.append(("method", content["method"]))
    for option, value in content["options"].items():
        rows.append((option, f"{value:g}" if isinstance(value, float) else str(value)))
    rows += [
        ("weights", content["weights"]),
        (f"{content['split']} perplexity", _as_text(content["ppl"])),
        ("nats per token", f"{content['nll']:.6f}"),
        ("bits per token", f"{content['bits_per_token']:.6f}"),
        ("predicted tokens", f"{content['num_tokens']:,}"),
    ]
    if "text" in content:
        rows += [
            ("perplexity per word, one column", _as_text(content["word_ppl"])),
            ("bits per byte, one column", f"{content['bits_per_byte']:.6f}"),
            ("predicted words", f"{content['text']['words']:,}"),
        ]
    return key_values(name, rows, rules=[num_points])


def _as_text(ppl: float) -> str:
    """With too large an lr the perplexity has hundreds of digits."""
    return decimal(ppl, 4) if ppl < 1e6 else f"{ppl:.3g}"
