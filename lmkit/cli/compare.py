"""Compares two groups of finished runs: `lmkit compare a=RUNS b=RUNS`."""

from __future__ import annotations

import json
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from lmkit.cli.entry import entry_point, plain_config
from lmkit.comparison.group_report import (
    as_csv,
    compare_groups,
    comparison_table,
    ranks_on_test,
)
from lmkit.errors.user_error import UserError, require_count
from lmkit.runs.atomic import replace_atomically
from lmkit.runs.selection import SelectedRun, Selection, select_runs


@entry_point("compare")
def main(config: DictConfig) -> None:
    """Finds the runs, then tests, prints and writes."""
    plain = plain_config(config)
    require_count("seed", plain["seed"], 0)
    out = _checked_out(plain["out"])
    groups = {name: select_runs(name, plain[name]) for name in ("a", "b")}
    _require_comparable(groups)
    a, b = (group.runs for group in groups.values())
    found, contexts = compare_groups(
        [run.result for run in a],
        [run.result for run in b],
        *([ranks_on_test(run.folder, run.result) for run in group] for group in (a, b)),
        seed=plain["seed"],
    )
    for name, group in groups.items():
        print(f"{name}: {len(group.runs)} runs: {_listed(group.runs)}")
    for left_out in {**groups["a"].left_out, **groups["b"].left_out}.items():
        print("left out: {}: {}".format(*left_out))
    Console().print(comparison_table(found, contexts, "a against b"))
    print("a - b below 0: a is better in perplexity; unpaired t-tests, bootstrap interval (BCa)")
    if contexts is None:
        print("ranks: the runs have none at one number of test contexts: lmkit rank")
    if out is not None:
        content = {
            "schema_version": 1,
            "kind": "comparison",
            **{name: [run.folder.path.name for run in g.runs] for name, g in groups.items()},
            "rank_contexts": contexts,
            "comparisons": {measure: found[measure]._asdict() for measure in found},
        }
        text = as_csv(found) if out.suffix == ".csv" else json.dumps(content, indent=2) + "\n"
        replace_atomically(out, lambda file: file.write(text.encode()))
        print(f"written: {out}")


def _checked_out(out: object) -> Path | None:
    if out is None:
        return None
    path = Path(str(out))
    if path.suffix not in (".json", ".csv") or not path.parent.is_dir():
        raise UserError(f"out={out} must be a file .json or .csv in a folder that exists")
    return path


def _require_comparable(groups: dict[str, Selection]) -> None:
    """Raises UserError when the groups share a run, or are not of one corpus."""
    a, b = ({run.folder.path.resolve() for run in group.runs} for group in groups.values())
    if a & b:
        names = ", ".join(sorted(path.name for path in a & b)[:3])
        raise UserError(f"a and b must be different runs, but both hold {names}")
    corpora = {}
    for group in groups.values():
        for run in group.runs:
            settings = run.folder.read_identity().settings
            corpora.setdefault(settings.get("data_sha256"), run.folder.path.name)
    if len(corpora) > 1:
        raise UserError(
            f"perplexities compare on one corpus only, but {' and '.join(corpora.values())} "
            f"are of different ones"
        )


def _listed(runs: list[SelectedRun]) -> str:
    names = [run.folder.path.name for run in runs]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
