"""Tables and figures over many runs, ours beside the published ones: `lmkit report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_number

if TYPE_CHECKING:
    from lmkit.runs.finished import Collected


@entry_point("report")
def main(config: DictConfig) -> None:
    """Reads the runs, writes the page with its tables and figures, says what was left out."""
    plain = plain_config(config)
    window = _checked_window(plain["window"])
    for option in ("runs", "runs_dir", "baseline", "out"):
        if not isinstance(plain[option], str):
            raise UserError(f"{option} must be a text, but is {plain[option]!r}")
    from rich.console import Console

    from lmkit.report.study_report import make_report

    console = Console()
    with console.status(f"reading {plain['runs']}"):
        collected = _collect(plain["runs"], plain["runs_dir"])
    if not collected.num_runs:
        raise UserError(_nothing_found(plain["runs"], collected))
    with console.status("drawing"):
        out, runs = Path(plain["out"]), Path(plain["runs"])
        page = make_report(collected, plain["baseline"], window, out, runs)
    for each in collected.left_out:
        print(f"left out: {each.name}: {each.reason}")
    print(f"{collected.num_runs:,} runs: {page}")


def _checked_window(window: object) -> tuple[float, float] | None:
    if window is None:
        return None
    if not isinstance(window, list) or len(window) != 2:
        raise UserError(f"window must be two perplexities such as [56.6,57.6], but is {window!r}")
    for value in window:
        require_number("window", value)
    low, high = window
    if low >= high:
        raise UserError(f"window must begin below its end, but is {window!r}")
    return low, high


def _collect(runs: str, runs_dir: str) -> Collected:
    """The runs in a folder, or those of a sweep by its name or folder.

    Raises: UserError when there is neither.
    """
    from lmkit.runs.finished import collect, run_folders
    from lmkit.runs.sweep_folder import MANIFEST, SweepFolder

    path = Path(runs)
    is_sweep = (path / MANIFEST).is_file()
    if path.is_dir() and not is_sweep:
        return collect(run_folders(path))
    if not is_sweep and not (Path(runs_dir) / "sweeps" / runs / MANIFEST).is_file():
        raise UserError(
            f"runs={runs} is no folder, and no sweep of that name is in {runs_dir}/sweeps; give a "
            "folder of runs, or a sweep's name or folder"
        )
    sweep = SweepFolder.find(runs, runs_dir)
    return collect(sweep.run_folder(point).path for point in sweep.manifest.points)


def _nothing_found(runs: str, collected: Collected) -> str:
    if not collected.left_out:
        return f"runs={runs} holds no run; give a folder of runs, such as runs"
    first = collected.left_out[0]
    more = len(collected.left_out) - 1
    others = f" (and {more} more)" if more else ""
    return f"runs={runs} holds no finished run: {first.name}: {first.reason}{others}"
