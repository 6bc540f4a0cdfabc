"""Where points stand, by their folders; what is left, by runs so far."""

import errno
import shlex
from dataclasses import replace
from io import StringIO

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from rich.console import Console

from lmkit.errors.user_error import UserError
from lmkit.runs import lock
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.quoting import as_value
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from lmkit.sweeps.processes import command, run_points
from lmkit.sweeps.status import estimate, standings, text_key
from lmkit.sweeps.tables import estimate_line, say_command, summary


def test_every_state_is_told_apart(sweep_of):
    sweep = sweep_of("ok", "fails", "ok", "ok", "ok", "diverges")
    points = sweep.manifest.points
    run_points(sweep, [*points[:2], points[5]], [{}], lambda text: None)
    running, stopped = sweep.run_folder(points[2]), sweep.run_folder(points[3])
    for folder in (running, stopped):
        folder.path.mkdir(parents=True)
        folder.config.write_text("{}\n")
    metrics = MetricsFile(running.metrics)
    metrics.append(5, 1, {"valid/ppl": 90.0, "seconds_per_epoch": 7.0})
    with RunLock(running.lock):
        found = standings(sweep)
    states = ["finished", "failed", "running", "unfinished", "new", "finished"]
    assert [s.state for s in found] == states
    assert summary(found) == (
        "6 runs: 2 finished (1 of them diverged, which lmkit runs calls failed), 1 running, "
        "1 failed, 1 unfinished, 1 new"
    )
    done, failed, going = found[:3]
    assert (done.epoch, done.valid_ppl, done.test_ppl, done.press_rank) == (4, 9.0, 8.0, 7)
    assert failed.failure.log_tail[-1] == "error: the reason why"
    assert (going.epoch, going.valid_ppl, going.seconds_per_epoch) == (1, 90.0, 7.0)
    assert going.seconds_left == 21.0  # three of four epochs
    metrics.append(6, 2, {"train/nll": 4.5})  # of the epoch that has begun
    begun = standings(sweep)[2]
    assert (begun.epoch, begun.valid_ppl, begun.seconds_left) == (2, 90.0, 21.0)
    assert standings(sweep)[2].state == "unfinished"  # its lock is gone


def test_a_listing_that_fails_for_now_makes_no_run_new(sweep_of, monkeypatch):
    sweep = sweep_of("ok")
    folder = sweep.run_folder(sweep.manifest.points[0])
    folder.path.mkdir(parents=True)
    folder.config.write_text("{}\n")

    def fail(path):
        raise OSError(errno.ESTALE, "stale file handle", str(path))

    monkeypatch.setattr(lock.os, "listdir", fail)
    assert [each.state for each in standings(sweep)] == ["unfinished"]


def test_a_damaged_metrics_file_of_an_unfinished_run_keeps_no_sweep_from_going_on(sweep_of):
    sweep = sweep_of("ok", "ok")
    points = sweep.manifest.points
    damaged = sweep.run_folder(points[0])
    damaged.path.mkdir(parents=True)
    damaged.config.write_text("{}\n")
    MetricsFile(damaged.metrics).append(5, 1, {"valid/ppl": 90.0, "seconds_per_epoch": 7.0})
    damaged.metrics.write_text(damaged.metrics.read_text().replace("90.0", "10.0"))
    found = standings(sweep)
    assert [s.state for s in found] == ["unfinished", "new"]
    assert (found[0].epoch, found[0].valid_ppl) == (None, None)
    assert estimate(sweep, found).num_unknown == 2
    run_points(sweep, points, [{}], lambda text: None)
    assert [s.state for s in standings(sweep)] == ["finished", "finished"]


def refuse(*_: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_what_is_left_goes_by_points_that_have_finished_or_train_or_by_other_runs(
    sweep_of, monkeypatch
):
    sweep = sweep_of("ok", "ok", "ok", "ok")
    done, under_way, *new = sweep.manifest.points
    nothing = estimate(sweep, standings(sweep))
    assert (nothing.num_points, nothing.num_unknown) == (0, 4)
    assert estimate_line(nothing).startswith("no time estimate")
    run_points(sweep, [done], [{}], lambda text: None)  # 10 s an epoch, four epochs
    after = estimate(sweep, standings(sweep))
    assert (after.seconds, after.num_points, after.num_unknown) == (3 * 40.0, 3, 0)
    assert estimate_line(after) == "about 2 min 0 s of training, by runs so far"

    apart = SweepFolder.of(replace(sweep.manifest, name="apart", points=[under_way, *new]))
    assert estimate(apart, standings(apart)).seconds == 3 * 40.0  # by a run beside it
    folder = sweep.run_folder(under_way)
    folder.path.mkdir(parents=True)
    folder.config.write_text("{}\n")
    metrics = MetricsFile(folder.metrics)
    metrics.append(5, 1, {"valid/ppl": 90.0, "seconds_per_epoch": 7.0})
    metrics.append(6, 2, {"train/nll": 4.5})
    assert estimate(apart, standings(apart)).seconds == (3 + 4 + 4) * 7.0
    assert estimate(sweep, standings(sweep)).seconds == (3 + 4 + 4) * 10.0

    with monkeypatch.context() as within:
        within.setattr(RunFolder, "read_result", refuse)  # another user's
        assert estimate(apart, standings(apart)[1:]).num_unknown == 2

    points = [replace(point, max_epochs=20) for point in sweep.manifest.points]
    longer = SweepFolder.of(replace(sweep.manifest, name="longer", points=points))
    assert estimate(longer, standings(longer)[2:]).seconds == 2 * 20 * 10.0


def test_how_long_runs_without_a_limit_train_is_known_once_one_has_finished(sweep_of):
    sweep = sweep_of("ok", "ok")
    points = [replace(point, max_epochs=None, patience=5) for point in sweep.manifest.points]
    unlimited = SweepFolder.of(replace(sweep.manifest, points=points))
    folder = sweep.run_folder(points[0])
    folder.path.mkdir(parents=True)
    folder.config.write_text("{}\n")
    MetricsFile(folder.metrics).append(5, 1, {"valid/ppl": 90.0, "seconds_per_epoch": 7.0})
    assert estimate_line(estimate(unlimited, standings(unlimited))) == (
        "no time estimate: no run of these experiments has trained an epoch on the same text yet, "
        "or finished where max_epochs is null"
    )


def test_points_of_a_sweep_that_was_moved_are_trained_where_it_lies(tmp_path):
    point = Point("seed=1", ["experiment=toy", "runs_dir=runs"], "e-0", "e", 4, None)
    sweep = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 1, [point]))
    assert command(sweep, point)[4:] == [*point.overrides, "hydra.mode=RUN"]
    sweep.save()
    (tmp_path / "runs").rename(tmp_path / "old runs")
    moved = SweepFolder.find("mine", str(tmp_path / "old runs"))
    where = f"runs_dir='{(tmp_path / 'old runs').resolve()}'"
    assert command(moved, point)[4:] == [*point.overrides, "hydra.mode=RUN", where]


def test_runs_on_another_text_tell_nothing_of_the_time(sweep_of):
    """9 s an epoch of 2,000 tokens are not those of a million."""
    sweep = sweep_of("ok", "ok", "ok")
    short, long = ({"data": {"name": "penn", "train_tokens": count}} for count in (2000, None))
    texts = [text_key(short), text_key(short), text_key(long)]
    assert texts[0] == text_key({"data": {"name": "other", "train_tokens": 2000}}) != texts[2]
    points = [replace(p, text=t) for p, t in zip(sweep.manifest.points, texts, strict=True)]
    sweep = SweepFolder.of(replace(sweep.manifest, points=points))
    run_points(sweep, points[:1], [{}], lambda text: None)
    left = estimate(sweep, standings(sweep))
    assert (left.seconds, left.num_points, left.num_unknown) == (4 * 10.0, 1, 1)
    assert "; no run of the experiments of 1 more point has trained" in estimate_line(left)
    sweep.run_folder(points[0]).write_config(yaml.safe_dump(short), lambda: None)
    apart = SweepFolder.of(replace(sweep.manifest, name="apart", points=points[1:]))
    left = estimate(apart, standings(apart))
    assert (left.seconds, left.num_points, left.num_unknown) == (4 * 10.0, 1, 1)


def test_a_sweep_runs_where_the_folder_that_it_was_started_in_is_not(sweep_of, tmp_path):
    sweep = sweep_of("ok")
    elsewhere = replace(sweep.manifest, started_in="/no/such/folder")
    run_points(SweepFolder(sweep.path, elsewhere), elsewhere.points, [{}], lambda text: None)
    assert [each.state for each in standings(sweep)] == ["finished"]


def test_a_sweep_that_is_not_there_is_told_with_the_nearest(sweep_of, tmp_path):
    sweep_of("ok")
    with pytest.raises(UserError, match=r"mime is not a sweep .*did you mean mine"):
        SweepFolder.find("mime", str(tmp_path / "runs"))


@pytest.mark.parametrize("folder", ["runs", "my runs", "a,b 'c'"])
def test_a_command_can_be_typed_whatever_its_paths_hold(folder):
    console = Console(file=StringIO(), width=30)
    say_command(console, "report", f"runs={as_value(folder)}")
    words = shlex.split(console.file.getvalue())
    assert words[:2] == ["lmkit", "report"]
    override = OverridesParser.create().parse_override(words[2])
    assert override.value() == folder


def test_what_failed_and_is_trained_again_is_running(sweep_of):
    sweep = sweep_of("fails")
    (point,) = sweep.manifest.points
    run_points(sweep, [point], [{}], lambda text: None)
    with RunLock(sweep.run_folder(point).lock):
        assert [each.state for each in standings(sweep)] == ["running"]
    assert [each.state for each in standings(sweep)] == ["failed"]
