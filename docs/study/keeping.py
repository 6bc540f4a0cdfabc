"""Finished runs kept in the repository, and texts filled with what their tables say.

What is kept of a run is what its numbers are read from: no checkpoints, no spectra of inner epochs
and of transformed logits, no rows of single windows, and not the folder in which its corpus lay.

A template says `{table[row][column]:format}`, in Python's format language. A row is named by its
first cell, or by as many as tell all rows of the table apart: `MoS / ET 7 / 5`.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.stats import norm

from lmkit.runs.checksums import checked
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.spectrum_files import read_spectrum

_FILES = ("identity.json", "result.json", "train.log")
_OF_WINDOWS = "train/nll"  # a metric that only rows of single windows have


class Number(float):
    """Formats with a true minus sign."""

    def __format__(self, form: str) -> str:
        return super().__format__(form).replace("-", "−")


Rows = dict[str, dict[str, Number | str]]


def copy_finished(source: Path, target: Path, names: str = "*") -> int:
    """Copies the finished runs of such names that are not there yet. Returns: how many."""
    count = 0
    for result in sorted(source.glob(f"{names}/result.json")):
        run, copy = result.parent, target / result.parent.name
        if copy.exists():
            continue
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as partial:
            whole = Path(partial) / run.name
            whole.mkdir()
            (whole / "config.yaml").write_bytes(config_of(run))
            for name in _FILES:
                if (run / name).exists():
                    shutil.copy2(run / name, whole)
            copy_epochs(run, whole)
            copy_measured(run, whole)
            whole.rename(copy)
        count += 1
    return count


def copy_epochs(run: Path, copy: Path) -> None:
    """The rows of `metrics.csv` that are of epochs and of test."""
    kept = MetricsFile(copy / "metrics.csv")
    for row in MetricsFile(run / "metrics.csv").read():
        if _OF_WINDOWS not in row:
            kept.append(int(row.pop("step")), int(row.pop("epoch")), row)


def copy_measured(run: Path, copy: Path) -> None:
    """Spectra of log P on test and the analyses, where they are not there yet."""
    for file in (*run.glob("spectra/test_log_probs*.npz"), *run.glob("analysis/*.json")):
        target = copy / file.relative_to(run)
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copy2(file, target)


def differing(kept: Path, anew: Path) -> list[str]:
    """What is not the same bits in two runs: metrics of the result, spectra of log P on test."""
    of_kept, of_anew = (RunFolder(run).read_result().metrics for run in (kept, anew))
    names = {name for name in of_kept | of_anew if of_kept.get(name) != of_anew.get(name)}
    for file in kept.glob("spectra/test_log_probs*.npz"):
        one, other = (read_spectrum(run / "spectra" / file.name) for run in (kept, anew))
        if not np.array_equal(one.singular_values_S, other.singular_values_S):
            names.add(file.name)
    return sorted(names)


def compare(kept: Path, anew: Path) -> None:
    """Prints whether finished runs have the digits of those kept; exits 1 if one has not."""
    both = [result.parent for result in sorted(anew.glob("*/result.json"))
            if (kept / result.parent.name).exists()]  # fmt: skip
    if not both:
        sys.exit(f"error: {anew} has no finished run that is kept here")
    others = 0
    for run in both:
        names = differing(kept / run.name, run)
        others += bool(names)
        print(f"{run.name}: {'other ' + ', '.join(names) if names else 'the same digits'}")
    if others:
        sys.exit(1)


def config_of(run: Path) -> bytes:
    """A run's config.yaml without the folders of this machine."""
    config = without_folders(RunFolder(run).read_config())
    return checked(yaml.safe_dump(config, sort_keys=False).encode())


def without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration as where the corpus has no folder, runs lie in `runs`, and the commands are
    those of the repository's root.
    """
    kept = config | {"runs_dir": "runs", "data": config["data"] | {"root": None}}
    data = kept["data"]
    if "text" in data:  # of a head alone: its trunk, and the corpus of that
        is_pretrained = data["_target_"].endswith(".ContextsOfPretrained")
        folder = f"{'docs/study' if is_pretrained else 'runs'}/{Path(data['folder']).name}"
        text = data["text"] | {"root": None}
        data |= {"folder": folder}
        data |= {"text": text | {"tokenizer_of": folder} if is_pretrained else text}
    if "command" in config:
        words = re.sub(r"runs_dir=\S+", "runs_dir=runs", config["command"])
        kept["command"] = re.sub(r"trunk\.of=(?!hf:)\S*/", "trunk.of=runs/", words)
    return kept


def rows_of(path: Path) -> Rows:
    """The rows of a table by their names, each a cell by its column."""
    with path.open(newline="", encoding="utf-8") as file:
        columns, *rows = csv.reader(file)
    cells_each = range(1, len(columns) + 1)
    count = next(n for n in cells_each if len({tuple(row[:n]) for row in rows}) == len(rows))
    names = [" / ".join(row[:count]) for row in rows]
    cells = [dict(zip(columns, map(number_or_text, row), strict=True)) for row in rows]
    return dict(zip(names, cells, strict=True))


def number_or_text(cell: str) -> Number | str:
    try:
        return Number(cell)
    except ValueError:
        return cell


def correlation(x: Sequence[float], y: Sequence[float], *held: Sequence[float]) -> str:
    """Pearson's partial r, given what is held, with Fisher's 95 % interval."""
    given = np.column_stack([np.ones(len(x)), *held])
    a, b = (np.array(v) - given @ np.linalg.lstsq(given, v, rcond=None)[0] for v in (x, y))
    r = a @ b / np.sqrt((a @ a) * (b @ b))
    half = norm.ppf(0.975) / np.sqrt(len(x) - len(held) - 3)
    low, high = (Number(np.tanh(np.arctanh(r) + side * half)) for side in (-1, 1))
    return f"{Number(r):.2f} ({low:.2f} … {high:.2f})"


def copy_report(report: Path, folder: Path) -> None:
    """Its tables as CSV, its figures as SVG and its page, without links to what is not kept."""
    for kind, ending in (("tables", "csv"), ("figures", "svg")):
        shutil.rmtree(folder / kind, ignore_errors=True)
        for file in (report / kind).rglob(f"*.{ending}"):
            copy = folder / kind / file.relative_to(report / kind)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
    page = (report / "index.html").read_text("utf-8")
    page = re.sub(r' · <a href="[^"]+\.(pdf|tex)">[^<]+</a>', "", page)
    (folder / "index.html").write_text(page, "utf-8")


def filled(template: Path, known: Mapping[str, Any]) -> str:
    """A template with numbers in place of what names them; ends where one is unknown."""
    try:
        return template.read_text("utf-8").format(**known)
    except KeyError as error:
        sys.exit(f"error: {template} names a table, a row or a column that is not there: {error}")
    except ValueError as error:
        sys.exit(f"error: {template}: {error}")
