"""Progress bars of a sweep: its points, and the epochs of each running run."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID

from lmkit.errors.user_error import UserError
from lmkit.presentation.progress import progress_bar
from lmkit.runs.sweep_folder import Point, SweepFolder
from lmkit.sweeps.backlog import Say
from lmkit.sweeps.status import Standing, standings

_LOOK_S = 2.0  # between two scans of the runs' folders
_SHARE = 0.02  # of the time that scans may take: folders on a slow disk are scanned less often
_SHOWN = 8  # bars of running runs


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
    """The points of a launch, as bars.

    Args:
        progress: draws them.
    """

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
            self._progress.update(
                self._bars[run], description=_in_words(standing), completed=standing.epoch or 0
            )


def _in_words(standing: Standing) -> str:
    """`seed=1, valid 130.66`."""
    label = escape(standing.point.label)
    return label if standing.valid_ppl is None else f"{label}, valid {standing.valid_ppl:.2f}"
