"""Tables and figures over many runs, ours beside the published ones: `lmkit report`."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_number
from lmkit.runs.selection import select_runs


@entry_point("report")
def main(config: DictConfig) -> None:
    """Reads the runs, writes the page with its tables and figures, says what was left out."""
    plain = plain_config(config)
    window = _checked_window(plain["window"])
    for option in ("runs_dir", "baseline", "out"):
        if not isinstance(plain[option], str):
            raise UserError(f"{option} must be a text, but is {plain[option]!r}")
    from rich.console import Console

    from lmkit.report.study_report import make_report

    console = Console()
    with console.status(f"reading {plain['runs']}"):
        selection = select_runs("runs", plain["runs"], plain["runs_dir"])
    with console.status("drawing"):
        page = make_report(
            selection, plain["baseline"], window, Path(plain["out"]), Path(str(plain["runs"]))
        )
    for name, reason in selection.left_out.items():
        print(f"left out: {name}: {reason}")
    print(f"{len(selection.runs):,} runs: {page}")


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
