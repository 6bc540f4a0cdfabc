"""Points on this machine, each in a process of its own: as many at a time as there is room for."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from itertools import cycle, islice

from lmkit.errors.user_error import UserError, require_count, require_list
from lmkit.runs.sweep_folder import Point, SweepFolder
from lmkit.sweeps import tables
from lmkit.sweeps.bars import bars
from lmkit.sweeps.processes import Environment, run_points
from lmkit.sweeps.quoting import typed


class Packed:
    """Several runs at a time; each sees only the GPU assigned to it.

    A run has as many CPU threads as its option `threads` says, which is part of its identity:
    `runs` times `threads` should be no more than the machine's cores.

    Args:
        runs: runs at a time, all devices together; None: `per_device` on each.
        devices: GPUs to share out, as CUDA_VISIBLE_DEVICES names them; None: all that are visible;
            an empty list: none is assigned, and a run takes what it finds.
        per_device: runs on one GPU at a time, when `runs` is None.

    Raises: UserError for a value that is wrong.
    """

    def __init__(
        self, runs: int | None, devices: Sequence[int | str] | None, per_device: int
    ) -> None:
        require_count("hydra.launcher.per_device", per_device)
        if runs is not None:
            require_count("hydra.launcher.runs", runs)
        if devices is not None:
            require_list("hydra.launcher.devices", devices, "[0,1]", may_be_empty=True)
        names = visible_devices() if devices is None else [str(name) for name in devices]
        if not names and runs is None:
            raise UserError(
                "there is no GPU to share out: set the number of runs at a time with "
                "hydra.launcher.runs=N"
            )
        each: list[Environment] = [{"CUDA_VISIBLE_DEVICES": name} for name in names] or [{}]
        # of each slot: the devices in turn
        self.environments = list(islice(cycle(each), runs or len(names) * per_device))

    def __call__(self, sweep: SweepFolder, points: Sequence[Point]) -> None:
        train_here(sweep, points, self.environments)


class Workers:
    """Runs nothing itself: `lmkit sweep work` trains the points, on any node."""

    def __call__(self, sweep: SweepFolder, points: Sequence[Point]) -> None:
        work = typed(["sweep", "work", str(sweep.path)])
        print(f"waiting for workers ({len(points):,}): {work}", flush=True)


def train_here(
    sweep: SweepFolder, points: Sequence[Point], environments: Sequence[Environment]
) -> set[str]:
    """Trains points under bars, and says as each ends. Returns: the runs that were given up."""
    with bars(tables.console(), sweep, points) as say:
        return run_points(sweep, points, environments, say)


def visible_devices() -> list[str]:
    """The GPUs that a process started here may use, found without torch."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.split()
