"""Evaluates a run by a method: searches its values, predicts a split, keeps what it found."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from lmkit.errors.user_error import UserError
from lmkit.evaluation.load import LoadedRun, load_run
from lmkit.evaluation.method import Method, Point, one_column, refuse_what_cannot
from lmkit.evaluation.perplexity import Perplexity
from lmkit.runs.atomic import replace_atomically
from lmkit.runs.folder import RunFolder
from lmkit.training.build import create

SHOWN_POINTS = 5


class EvaluateOptions(NamedTuple):
    """What `lmkit evaluate` is told beside the run and the method."""

    split: str
    checkpoint: str  # "best" or "last"
    data_root: str | None
    threads: int | None
    search: bool
    search_tokens: int | None


class Searched(NamedTuple):
    """What a search found on valid."""

    tokens: int  # predicted, from the start of valid
    points: list[Point]  # the best first


def evaluate(path: str, section: dict, options: EvaluateOptions) -> Perplexity:
    """Evaluates the run in `path` by the method that `section` of the configuration describes.

    Writes `analysis/evaluate_<method>_<split>.json` and prints a table.

    Raises: UserError for whatever the user can mend, as far as possible before the run is loaded.
    """
    method = create(section, "method")
    if not isinstance(method, Method):
        raise UserError(f"method._target_={section['_target_']} must be a lmkit method")
    if options.search and not method.grid():
        raise UserError(
            f"search=true: method={method.kind} has nothing to search; choose cache or dynamic"
        )
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise UserError(f"run={path} is no folder; give the folder of a run, such as runs/NAME-ID")
    refuse_what_cannot(folder, method.kind)
    if not os.access(folder.analysis, os.W_OK):
        raise UserError(f"{folder.analysis} cannot be written: the result would be lost")
    run = load_run(path, options.checkpoint, options.data_root, options.threads)
    searched = None
    if options.search:
        searched = _search(run, method, options.search_tokens)
        method = method.at(searched.points[0].options)
    found = method.measure(run, options.split)
    _write(run, method, options, searched, found)
    _show(run, method, options, searched, found)
    return found


def _search(run: LoadedRun, method: Method, num_tokens: int | None) -> Searched:
    windows = one_column(run, "valid", method.search_length(), num_tokens)
    points = method.search(run, windows)
    return Searched(windows.num_targets, sorted(points, key=lambda point: point.perplexity))


def _write(
    run: LoadedRun,
    method: Method,
    options: EvaluateOptions,
    searched: Searched | None,
    found: Perplexity,
) -> None:
    last = "_last" if options.checkpoint == "last" else ""
    path = run.folder.analysis / f"evaluate_{method.kind}_{options.split}{last}.json"
    search = None
    if searched is not None:
        points = [point.options | {"ppl": point.perplexity} for point in searched.points]
        search = {"split": "valid", "tokens": searched.tokens, "points": points}
    source = dict(run.config["data"])
    if options.data_root is not None:
        source["root"] = options.data_root
    content = {
        "kind": "evaluation",
        "method": method.kind,
        "split": options.split,
        "checkpoint": options.checkpoint,
        "weights": "averaged" if run.averaged else "raw",
        "data_sha256": create(source, "data").fingerprint(),
        "options": method.options(),
        "ppl": found.perplexity,
        "nll": found.nll,
        "bits_per_token": found.bits_per_token,
        "num_tokens": found.num_tokens,
        "search": search,
    }
    text = json.dumps(content, indent=2) + "\n"
    replace_atomically(path, lambda file: file.write(text.encode()))


def _show(
    run: LoadedRun,
    method: Method,
    options: EvaluateOptions,
    searched: Searched | None,
    found: Perplexity,
) -> None:
    table = Table(title=run.folder.path.name, show_header=False)
    if searched is not None:
        for point in searched.points[:SHOWN_POINTS]:
            at = ", ".join(f"{name} {value:g}" for name, value in point.options.items())
            table.add_row(f"valid, first {searched.tokens:,}: {at}", _as_text(point.perplexity))
        table.add_section()
    table.add_row("method", method.kind)
    for name, value in method.options().items():
        table.add_row(name, f"{value:g}" if isinstance(value, float) else str(value))
    table.add_row("weights", "averaged" if run.averaged else "raw")
    table.add_row(f"{options.split} perplexity", _as_text(found.perplexity))
    table.add_row("nats a token", f"{found.nll:.6f}")
    table.add_row("bits a token", f"{found.bits_per_token:.6f}")
    table.add_row("predicted tokens", f"{found.num_tokens:,}")
    Console().print(table)
    if searched is not None:
        for name in _at_the_edge(method, searched.points[0]):
            print(f"the best {name} is at the edge of method.{name}_grid: widen it")


def _as_text(ppl: float) -> str:
    """Of too large an lr the perplexity has hundreds of digits."""
    return f"{ppl:.4f}" if ppl < 1e6 else f"{ppl:.3g}"


def _at_the_edge(method: Method, best: Point) -> list[str]:
    grids = {name: values for name, values in method.grid().items() if len(values) > 2}
    return [n for n, values in grids.items() if best.options[n] in (min(values), max(values))]
