"""Points on this machine, each in a process of its own, with progress bars."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID

from lmkit.errors.user_error import UserError, require_count, require_list
from lmkit.presentation.progress import progress_bar
from lmkit.runs.quoting import typed
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder
from lmkit.sweeps import tables
from lmkit.sweeps.backlog import Say
from lmkit.sweeps.processes import Environment, run_points
from lmkit.sweeps.status import standings

_LOOK_S = 2.0  # between two scans of the runs' folders
_SHARE = 0.02  # of the time that scans may take: folders on a slow disk are scanned less often
_SHOWN = 8  # bars of running runs


class Packed:
    """Several runs at a time; each sees only the GPU assigned to it.

    A run has as many CPU threads as its option `threads` says, which is part of its identity:
    `runs` times `threads` should be no more than the machine's cores. Its options are explained in
    conf/hydra/launcher/packed.yaml; of an empty list of devices, a run takes what it finds.

    Raises: UserError for a value that is wrong.
    """

    def __init__(
        self, runs: int | None, devices: Sequence[int | str] | None, per_device: int
    ) -> None:
        require_count("hydra.launcher.per_device", per_device)
        if runs is not None:
            require_count("hydra.launcher.runs", runs)
            if per_device != 1:
                raise UserError(
                    f"hydra.launcher.per_device={per_device} has no effect beside "
                    f"hydra.launcher.runs={runs}, which is of all devices together: choose "
                    f"hydra/launcher=packed without runs"
                )
        if devices is not None:
            require_list("hydra.launcher.devices", devices, "[0,1]", may_be_empty=True)
            if runs is not None and runs < len(devices):
                raise UserError(
                    f"hydra.launcher.runs={runs} at a time leave some of {len(devices)} devices "
                    f"idle: choose fewer devices, or with hydra/launcher=packed more runs"
                )
        names = visible_devices() if devices is None else [str(name) for name in devices]
        if not names and runs is None:
            raise UserError(
                "there is no GPU to share out: set the number of runs at a time with "
                "hydra.launcher.runs=N"
            )
        each: list[Environment] = [{"CUDA_VISIBLE_DEVICES": name} for name in names] or [{}]
        # of each slot: the devices in turn
        self.environments = list(islice(cycle(each), runs or len(names) * per_device))

    def __call__(self, sweep: SweepFolder, points: Sequence[Point]) -> dict[str, Failure]:
        return train_here(sweep, points, self.environments)


class Workers:
    """Runs nothing itself: `lmkit sweep work` trains the points, on any node."""

    def __init__(self) -> None:
        """Takes no options, so that one that is given is named."""

    def __call__(self, sweep: SweepFolder, points: Sequence[Point]) -> None:
        work = typed(["sweep", "work", str(sweep.path)])
        print(f"waiting for workers ({len(points):,}): {work}", flush=True)


def train_here(
    sweep: SweepFolder,
    points: Sequence[Point],
    environments: Sequence[Environment],
    leaves: Callable[[bool], bool] = lambda is_idle: False,
) -> dict[str, Failure]:
    """Trains points under bars, and says as each ends. Returns: as `run_points`."""
    with bars(tables.console(), sweep, points) as say:
        return run_points(sweep, points, environments, say, leaves)


def visible_devices() -> list[str]:
    """The GPUs that a process started here may use, found without torch."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.split()


@contextmanager
def bars(console: Console, sweep: SweepFolder, points: Sequence[Point]) -> Iterator[Say]:
    """Shows where the points stand, from their folders, until the block ends.

    Without a terminal there are no bars. Yields: a function that prints a line above the bars.
    """

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    if not console.is_terminal or not points:
        yield say
        return
    is_over = threading.Event()
    with progress_bar(console, refresh_per_second=1) as progress:
        watched = Watched(sweep, points, progress)

        def watch() -> None:
            pause_s = 0.0
            while not is_over.wait(pause_s):
                started = time.monotonic()
                watched.look()
                pause_s = max(_LOOK_S, (time.monotonic() - started) / _SHARE)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield say
        finally:
            is_over.set()
            watcher.join()


class Watched:
    """The points of a launch, as bars."""

    def __init__(self, sweep: SweepFolder, points: Sequence[Point], progress: Progress) -> None:
        self._sweep, self._points, self._progress = sweep, list(points), progress
        self._all = progress.add_task(escape(sweep.manifest.name), total=len(points))
        self._bars: dict[str, TaskID] = {}  # of running runs

    def look(self) -> None:
        """Updates the bars; leaves them unchanged where a file cannot be read."""
        try:
            every = standings(self._sweep, self._points)
        except (UserError, OSError):
            return  # the error is reported when the point ends
        ended = sum(each.is_finished or each.state == "failed" for each in every)
        self._progress.update(self._all, completed=ended)
        running = [each for each in every if each.state == "running"]
        shown = {each.point.run: each for each in running[:_SHOWN]}
        for run in self._bars.keys() - shown.keys():
            self._progress.remove_task(self._bars.pop(run))
        for run, standing in shown.items():
            if run not in self._bars:
                self._bars[run] = self._progress.add_task("", total=standing.point.max_epochs)
            label, valid = escape(standing.point.label), standing.valid_ppl
            words = label if valid is None else f"{label}, valid {valid:.2f}"
            done = standing.epochs_done
            self._progress.update(self._bars[run], description=words, completed=done)
