"""Writes a sweep's W&B workspace to a file, and uploads it when asked: `lmkit dashboard`.

It has curves, test perplexity over rank, all spectra in one chart, heat maps over the axes, and
parallel coordinates. Its runs are those that `lmkit sweep sync` has sent to W&B.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lmkit import tracking
from lmkit.cli.interruption import ends_in_one_line
from lmkit.cli.words import RUNS_DIR, TRUTH, Command, Option
from lmkit.errors.user_error import UserError
from lmkit.runs.sweep_folder import SweepFolder

UNKNOWN = "ENTITY"  # until the workspace is sent


def dashboard(sweep: SweepFolder, target: str | None, out: str, online: bool) -> None:
    """Writes the workspace of a sweep, and uploads it if `online`.

    Args:
        target: ENTITY/PROJECT in W&B.
        out: the file; "": workspace.json in the sweep's folder.
    """
    if target is None and online:
        raise UserError("online=true needs a destination: add ENTITY/PROJECT after the sweep")
    if target is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", target):
        raise UserError(f"ENTITY/PROJECT must be two names with a / between, but is {target!r}")
    target = target or f"{UNKNOWN}/{tracking.summary.project_of(sweep)}"
    path = Path(out) if out else sweep.path / "workspace.json"
    axes = tracking.summary.axes_of(sweep)
    content = tracking.workspace.workspace(sweep.manifest.name, axes, *target.split("/"))
    if online:
        print(f"workspace: {tracking.publish.send(path, content)}")
    else:
        tracking.publish.write_workspace(path, content)
    print(f"file:      {path}")


COMMAND = Command(
    "lmkit dashboard",
    "SWEEP [ENTITY/PROJECT]",
    __doc__.strip(),
    {
        "out": Option("", "the file; empty: workspace.json in the sweep's folder", is_path=True),
        "online": Option("false", "true: also uploads it to ENTITY/PROJECT in W&B", TRUTH),
        "runs_dir": RUNS_DIR,
    },
    most=2,
)


@ends_in_one_line()
def main() -> None:
    """Reads the command line."""
    (name, *target), given = COMMAND.read(sys.argv[1:])
    sweep = SweepFolder.find(name, given["runs_dir"])
    dashboard(sweep, target[0] if target else None, given["out"], given["online"] == "true")
