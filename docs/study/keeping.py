"""Finished runs kept in the repository.

What is kept of a run is what its numbers are read from: no checkpoints but of trunks, no spectra of
inner epochs and of transformed logits, no rows of single windows, and not the folder in which its
corpus lay.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lmkit.runs.array_files import read_spectrum
from lmkit.runs.checksums import checked, checked_json, parse_json
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.training.checkpoint_files import load_checkpoint, write_tensors

_NAMES = ("head_on_*", "*_subwords*")
_FILES = ("identity.json", "result.json", "train.log")
_OF_WINDOWS = "train/nll"  # a metric that only rows of single windows have


def keep(runs: Path, kept: Path) -> None:
    """Copies heads, whole models and trunks that have finished, and what was measured since."""
    if not runs.is_dir():
        sys.exit(f"error: {runs} is no folder of runs")
    count = sum(copy_finished(runs, kept, names) for names in _NAMES)
    for run in kept.iterdir():
        copy_measured(runs / run.name, run)
        best, copy = RunFolder(runs / run.name).best, RunFolder(run).best
        if _is_trunk(run, kept) and best.exists() and not copy.exists():
            content = load_checkpoint(best)
            content["lmkit"]["config"] = without_folders(content["lmkit"]["config"])
            copy.parent.mkdir(exist_ok=True)
            write_tensors(copy, content)
    print(f"kept: {count} more runs")


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
            config = without_folders(RunFolder(run).read_config())
            text = yaml.safe_dump(config, sort_keys=False)
            (whole / "config.yaml").write_bytes(checked(text.encode()))
            for name in _FILES:
                if (run / name).exists():
                    shutil.copy2(run / name, whole)
            for log in whole.glob("train.log"):  # without the folder that they were trained in
                text = log.read_text("utf-8").replace(f"{source.resolve()}/", "runs/")
                log.write_text(text, "utf-8")
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
    """Spectra of log P on test, and losses, where they are not there yet; the analyses also where
    they were made again.
    """
    kinds = ("spectra/test_log_probs*.npz", "analysis/*.json", "analysis/test_nll.npz")
    for file in (file for kind in kinds for file in run.glob(kind)):
        target = copy / file.relative_to(run)
        target.parent.mkdir(exist_ok=True)
        if file.suffix == ".json":
            target.write_bytes(_without_folder(parse_json(file.read_bytes())))
        elif not target.exists():
            shutil.copy2(file, target)


def _without_folder(analysis: dict[str, Any]) -> bytes:
    """A measurement's file, with the last name of the folder that its text lay in."""
    if measured_on := analysis.get("measured_on"):
        measured_on["name"] = Path(measured_on["name"]).name
    return checked_json(analysis)


def compare(kept: Sequence[Path], anew: Path) -> None:
    """Prints whether finished runs have the digits of those kept; exits 1 if one has not."""
    pairs = [(folder / result.parent.name, result.parent) for folder in kept
             for result in sorted(anew.glob("*/result.json"))]  # fmt: skip
    both = [(old, new) for old, new in pairs if old.exists()]
    if not both:
        sys.exit(f"error: {anew} has no finished run that is kept here")
    others = {new.name: differing(old, new) for old, new in both}
    for name, which in others.items():
        print(f"{name}: {'other ' + ', '.join(which) if which else 'the same digits'}")
    if any(others.values()):
        sys.exit(1)


def differing(kept: Path, anew: Path) -> list[str]:
    """What is not the same bits in two runs: metrics of the result, spectra of log P on test."""
    of_kept, of_anew = (RunFolder(run).read_result().metrics for run in (kept, anew))
    names = {n for n in of_kept | of_anew if not _same(of_kept.get(n), of_anew.get(n))}
    for file in kept.glob("spectra/test_log_probs*.npz"):
        one, other = (read_spectrum(run / "spectra" / file.name) for run in (kept, anew))
        if not np.array_equal(one.singular_values_S, other.singular_values_S):
            names.add(file.name)
    return sorted(names)


def _same(one: object, other: object) -> bool:
    """Whether two values are equal; of several measures those that both versions of lmkit take."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same(one[name], other[name]) for name in one.keys() & other.keys())
    return one == other


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


def _is_trunk(run: Path, kept: Path) -> bool:
    """Whether heads are kept that were trained on its contexts."""
    return any(kept.glob(f"head_on_{run.name}*"))
