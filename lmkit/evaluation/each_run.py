"""The same analysis of one run or of many, each leaving a JSON file in its run's folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from lmkit.errors.user_error import UserError
from lmkit.evaluation.load import LoadedRun, load_run
from lmkit.evaluation.rank import FoundRuns, find_runs, require_writable
from lmkit.runs.atomic import replace_atomically
from lmkit.runs.folder import RunFolder
from lmkit.training.language_model import LanguageModel

Found = TypeVar("Found")
CHECKPOINT = "best"  # what a run's result is about, so what is said of the run is about it too


def each_run(
    path: str, data_root: str | None, threads: int | None, analyse: Callable[[LoadedRun], Found]
) -> dict[str, Found]:
    """What `analyse` finds of the run in `path`, or of each finished one among its folders.

    Runs that cannot be analysed are named and left out, where there are others.

    Args:
        data_root: where the corpora lie now; None: where the runs found them.
        threads: of the CPU; None: as many as the run had.

    Raises: UserError when no run is left.
    """

    def loaded_and_analysed(run: RunFolder) -> Found:
        require_writable(run.analysis)
        loaded = load_run(run.path, CHECKPOINT, data_root, threads)
        if not isinstance(loaded.model, LanguageModel):
            raise UserError("it is no language model of running text, but a dialogue model")
        return analyse(loaded)

    return each_of(find_runs(path), path, loaded_and_analysed)


def each_of(
    found: FoundRuns, path: str, measure: Callable[[RunFolder], Found]
) -> dict[str, Found]:
    """What `measure` finds of each run, by its name; those that it cannot are named and left out.

    Raises: UserError when none of `path` is left, or its only one cannot be measured.
    """
    results, left_out = {}, dict(found.left_out)
    for run in found.runs:
        try:
            results[run.path.name] = measure(run)
        except UserError as error:
            if len(found.runs) == 1 and not left_out:
                raise
            left_out[run.path.name] = str(error)
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}")
    if not results:
        raise UserError(f"no run of run={path} could be measured")
    return results


def write_analysis(run: LoadedRun, kind: str, payload: Mapping[str, object]) -> None:
    """Writes `analysis/<kind>.json` into the run's folder."""
    content = {
        "schema_version": 1,
        "kind": kind,
        "checkpoint": CHECKPOINT,
        "averaged": run.averaged,
        **payload,
    }
    run.folder.analysis.mkdir(exist_ok=True)
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    path = run.folder.analysis / f"{kind}.json"
    replace_atomically(path, lambda file: file.write(text.encode()))
    print(f"written: {path}")
