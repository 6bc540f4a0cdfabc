"""Records finished runs in W&B from their folders, and can upload them: `lmkit sync RUNS`."""

import sys

from lmkit.cli.interruption import ends_in_one_line
from lmkit.cli.words import RUNS_DIR, TRUTH, Command, Option
from lmkit.presentation.tables import counted
from lmkit.runs.folder import NOT_FINISHED
from lmkit.runs.selection import select_runs, sweeps_of_runs

COMMAND = Command(
    "lmkit sync",
    "RUNS",
    """\
Records finished runs in W&B from their folders, whole and each under one id, whether they trained
with W&B or without. RUNS is a run, a folder of runs, a sweep, as lmkit report takes them. A record
is in the folder of its run. Of a sweep, runs that have no group get the sweep as theirs.""",
    {"online": Option("false", "true: uploads them too", TRUTH), "runs_dir": RUNS_DIR},
)


@ends_in_one_line("the same command records them again")
def main() -> None:
    """Reads the command line; ends with status 1 when a finished run is left out."""
    places, given = COMMAND.read(sys.argv[1:])
    from lmkit.tracking.sync import record_all, upload  # they bring wandb

    selected = select_runs("runs", places, given["runs_dir"])
    sweeps = sweeps_of_runs("runs", places, given["runs_dir"])
    records, damaged = record_all(selected.runs, sweeps)
    for name, reason in {**selected.left_out, **damaged}.items():
        print(f"left out: {name}: {reason}")
    print(f"{counted(len(records), 'run')} recorded, each in wandb/ of its folder")
    if given["online"] == "true" and records:
        upload(records)
    unfinished = [why for why in selected.left_out.values() if why in NOT_FINISHED.values()]
    if damaged or len(unfinished) < len(selected.left_out):
        sys.exit(1)
