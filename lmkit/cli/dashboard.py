"""Uploads a sweep's W&B workspace: `lmkit dashboard SWEEP ENTITY/PROJECT`.

It has curves, test perplexity over rank and over the options that the sweep varies, all spectra in
one chart, and parallel coordinates. Its runs are those that `lmkit sync` or training has sent.
"""

import re
import sys

from lmkit.cli.command_line import CONFIGS
from lmkit.cli.words import RUNS_DIR, Command
from lmkit.errors.user_error import UserError
from lmkit.runs.sweep_folder import SweepFolder

COMMAND = Command(
    "lmkit dashboard",
    "SWEEP ENTITY/PROJECT",
    (__doc__ or "").strip(),  # python -OO has none
    {"runs_dir": RUNS_DIR},
    least=2,
    most=2,
)


def main() -> None:
    (name, target), given = COMMAND.read(sys.argv[1:])
    from lmkit.sweeps.axes import option_of  # they bring hydra and wandb
    from lmkit.tracking.dashboard import send, workspace

    if not re.fullmatch(r"[\w.-]+/[\w.-]+", target):
        raise UserError(f"ENTITY/PROJECT must be two names with a / between, but is {target!r}")
    sweep = SweepFolder.find(name, given["runs_dir"])
    points = sweep.manifest.points
    lines = [point.overrides for point in points]
    common = set(lines[0]).intersection(*lines[1:]) if lines else set()
    # sweep.*: what tells a run of its sweep
    varied = [o for line in lines for o in line if o not in common and not o.startswith("sweep.")]
    options = [o for o in dict.fromkeys(map(option_of, varied)) if not (CONFIGS / o).is_dir()]
    runs = [point.run for point in points]
    made = workspace(sweep.manifest.name, runs, options, *target.split("/"))
    print(f"workspace: {send(made)}")
