"""Writes a sweep's W&B workspace to a file, and sends it when asked: `lmkit dashboard`.

It has curves, test perplexity over rank, all spectra in one chart, heat maps over the axes, and
parallel coordinates. Its runs are those that `lmkit sweep sync` has sent to W&B.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from lmkit import tracking
from lmkit.cli.interruption import ends_in_one_line
from lmkit.errors.user_error import UserError
from lmkit.runs.sweep_folder import SweepFolder

UNKNOWN = "ENTITY"  # until the workspace is sent


def dashboard(sweep: SweepFolder, target: str | None, out: Path | None, online: bool) -> None:
    """Writes the workspace of a sweep, and sends it where `online` is set.

    Args:
        target: ENTITY/PROJECT in W&B.
        out: the file; None: workspace.json in the sweep's folder.

    Raises: UserError.
    """
    if target is None and online:
        raise UserError("--online needs to know where to: add ENTITY/PROJECT after the sweep")
    if target is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", target):
        raise UserError(f"ENTITY/PROJECT must be two names with a / between, but is {target!r}")
    project = tracking.summary.project_of(sweep)
    entity, project = (target or f"{UNKNOWN}/{project}").split("/")
    path = out or sweep.path / "workspace.json"
    axes = tracking.summary.axes_of(sweep)
    content = tracking.workspace.workspace(sweep.manifest.name, axes, entity, project)
    if online:
        print(f"workspace: {tracking.publish.send(path, content)}")
    else:
        tracking.publish.write_workspace(path, content)
    print(f"file:      {path}")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="lmkit dashboard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweep", help="name of a sweep, or its folder")
    parser.add_argument("target", nargs="?", metavar="ENTITY/PROJECT", help="where in W&B")
    parser.add_argument("--runs-dir", default="runs", help="where runs are (runs)")
    parser.add_argument("--out", type=Path, help="the file (workspace.json in the sweep's folder)")
    parser.add_argument("--online", action="store_true", help="send it to W&B, too")
    arguments = parser.parse_args()
    with ends_in_one_line():
        sweep = SweepFolder.find(arguments.sweep, arguments.runs_dir)
        dashboard(sweep, arguments.target, arguments.out, arguments.online)
