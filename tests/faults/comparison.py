"""What a disturbed folder of runs holds, number by number, against an undisturbed one."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmkit.errors.user_error import UserError
from lmkit.runs.array_files import read_spectrum
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.training.checkpoint_files import load_checkpoint

_COST = ("seconds_per_epoch", "tokens_per_second", "peak_memory_mib")
_REFUSED = "refused"
_TIMED = ("metrics", "Cost", *_COST)  # of a checkpoint: holds times too


def assert_same_run(one: RunFolder, other: RunFolder) -> None:
    assert one.read_result().metrics == other.read_result().metrics
    first, second = load_checkpoint(one.last), load_checkpoint(other.last)
    for name, weight in first["state_dict"].items():
        assert torch.equal(weight, second["state_dict"][name]), name
    averages = first["callbacks"]["AsgdSwitch"]["averages"]
    assert averages
    for name, average in averages.items():
        assert torch.equal(average, second["callbacks"]["AsgdSwitch"]["averages"][name]), name
    assert rows(one) == rows(other)


def differences(disturbed: Path, undisturbed: Path, flipped: Collection[str] = ()) -> list[str]:
    """In what the two folders of runs differ, in words; [] where all numbers are the same.

    Args:
        flipped: names of the file that was changed at rest; lmkit may refuse it as damaged.
    """
    found = []
    theirs, mine = _files(undisturbed), _files(disturbed)
    found += [f"stray file {name}" for name in sorted(mine - theirs)]
    found += [f"missing file {name}" for name in sorted(theirs - mine)]
    for folder in runs_in(undisturbed):
        name = folder.path.name
        if not (disturbed / name).is_dir():
            continue  # all its files are missing
        expected = dict(_numbers(folder, ()))
        seen = dict(_numbers(RunFolder(disturbed / name), flipped))
        refused = tuple(key for key, value in seen.items() if value == _REFUSED)
        for key in {**expected, **seen}:
            if not key.startswith(refused or "?") and seen.get(key) != expected.get(key):
                change = f"{expected.get(key, 'nothing')[:80]} is {seen.get(key, 'nothing')[:80]}"
                found.append(f"{name}: {key}: {change}")
    return found


def runs_in(runs_dir: Path) -> list[RunFolder]:
    return [RunFolder(path.parent) for path in sorted(runs_dir.glob("*/config.yaml"))]


def contents(folder: Path) -> dict[Path, bytes]:
    """Of every file below the folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _numbers(folder: RunFolder, flipped: Collection[str]) -> Iterator[tuple[str, str]]:
    """Every number of a run as text, which tells the bits apart."""
    readers = {
        folder.result.name: lambda: {"metrics": repr(folder.read_result().metrics)},
        folder.metrics.name: lambda: rows(folder),
        folder.last.name: lambda: dict(_flat("", load_checkpoint(folder.last))),
        folder.best.name: lambda: dict(_flat("", load_checkpoint(folder.best))),
    }
    for path in sorted(folder.spectra.glob("*.npz")):
        readers[path.name] = lambda path=path: dict(_flat("", read_spectrum(path)._asdict()))
    for name, read in readers.items():
        try:
            numbers = read()
        except UserError as error:
            yield name, _REFUSED if name in flipped else f"unreadable: {error}"
        else:
            yield from ((f"{name}: {key}", value) for key, value in numbers.items())


def rows(folder: RunFolder) -> dict[str, str]:
    """Of metrics.csv, by number, without times."""
    return {
        str(i): repr({name: value for name, value in row.items() if name not in _COST})
        for i, row in enumerate(MetricsFile(folder.metrics).read())
    }


def _flat(where: str, content: Any) -> Iterator[tuple[str, str]]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            if key not in _TIMED:
                yield from _flat(f"{where}/{key}", value)
    elif isinstance(content, list | tuple):
        for i, value in enumerate(content):
            yield from _flat(f"{where}/{i}", value)
    elif isinstance(content, Tensor):
        bits = content.detach().contiguous().reshape(-1)
        yield where, f"{content.dtype} {tuple(content.shape)} {bits.tolist()!r}"
    elif isinstance(content, np.ndarray):
        yield where, f"{content.dtype} {content.shape} {content.tolist()!r}"
    else:
        yield where, repr(content)
