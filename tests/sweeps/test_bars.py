"""Bars on the terminal while a sweep runs."""

import io
import re
from contextlib import ExitStack

from rich.console import Console
from rich.progress import Progress

from lmkit.runs.lock import RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.sweeps import local
from lmkit.sweeps.local import Watched, bars
from lmkit.sweeps.processes import run_points


def test_each_run_under_way_has_a_bar_of_its_epochs_until_it_ends(sweep_of):
    sweep = sweep_of("ok", "ok [x]", "ok")
    points = sweep.manifest.points
    progress = Progress(console=Console(file=io.StringIO()))
    watched = Watched(sweep, points, progress)
    run_points(sweep, points[:1], [{}], lambda text: None)
    running = sweep.run_folder(points[1])
    running.path.mkdir(parents=True)
    running.write_config("{}")
    with RunLock(running.lock):
        watched.look()
        assert [task.description for task in progress.tasks] == ["mine", "1 ok \\[x]"]
        metrics = MetricsFile(running.metrics)
        metrics.append(5, 3, {"valid/ppl": 90.5})
        metrics.append(6, 4, {"train/nll": 4.5})  # in its last epoch
        watched.look()
        whole, under_way = progress.tasks
    assert (whole.completed, whole.total) == (1, 3)
    assert (under_way.completed, under_way.total) == (3, 4)
    assert under_way.description == "1 ok \\[x], valid 90.50"
    watched.look()
    assert len(progress.tasks) == 1


def test_a_run_that_others_before_it_crowd_out_has_no_bar(sweep_of, monkeypatch):
    monkeypatch.setattr(local, "_SHOWN", 1)
    sweep = sweep_of("ok", "ok")
    progress = Progress(console=Console(file=io.StringIO()))
    watched = Watched(sweep, sweep.manifest.points, progress)
    with ExitStack() as held:
        for folder in reversed([sweep.run_folder(point) for point in sweep.manifest.points]):
            folder.path.mkdir(parents=True)
            folder.write_config("{}")
            held.enter_context(RunLock(folder.lock))
            watched.look()
        assert [task.description for task in progress.tasks] == ["mine", "0 ok"]


def test_a_terminal_sees_them_beside_what_is_said_and_a_file_does_not(sweep_of, monkeypatch):
    monkeypatch.setattr(local, "_LOOK_S", 0.01)
    for is_terminal in (True, False):
        sweep, drawn = sweep_of("0.5"), io.StringIO()
        console = Console(file=drawn, force_terminal=is_terminal, width=100)
        with bars(console, sweep, sweep.manifest.points) as say:
            say("a line [x]")
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.getvalue())
        assert "a line [x]" in text
        assert ("mine" in text) == ("0/1" in text) == is_terminal


def test_what_has_failed_counts_as_ended(sweep_of):
    sweep, progress = sweep_of("fails", "ok"), Progress(console=Console(file=io.StringIO()))
    run_points(sweep, sweep.manifest.points[:1], [{}], lambda text: None)
    Watched(sweep, sweep.manifest.points, progress).look()
    assert progress.tasks[0].completed == 1
