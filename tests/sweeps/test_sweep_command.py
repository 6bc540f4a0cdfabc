"""`lmkit sweep`: status and work, as typed."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from lmkit.cli import sweep as command
from lmkit.runs.lock import look_at
from lmkit.runs.stop_signals import INTERRUPTED, STOPPED
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps import tables


def typed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["lmkit.cli.sweep", *arguments])
    command.main()


def test_work_trains_what_is_left_and_status_tells(sweep_of, attempts, monkeypatch, capsys):
    sweep = sweep_of("ok", "killed", "ok")
    typed(monkeypatch, "work", str(sweep.path))
    assert [len(each) for each in attempts(sweep)] == [1, 2, 1]
    capsys.readouterr()
    typed(monkeypatch, "work", str(sweep.path))  # nothing is left
    assert [len(each) for each in attempts(sweep)] == [1, 2, 1]
    typed(monkeypatch, "status", "mine", "--runs-dir", str(sweep.runs_dir))
    assert "3 runs: 3 done" in capsys.readouterr().out


def test_a_failure_shows_in_tables_and_exit_status(sweep_of, monkeypatch, capsys):
    sweep = sweep_of("fails")
    for arguments in (["work", str(sweep.path)], ["status", str(sweep.path)]):
        with pytest.raises(SystemExit) as end:
            typed(monkeypatch, *arguments)
        assert end.value.code == 1
        printed = " ".join(capsys.readouterr().out.split())
        assert "failed after 2 attempts: 0 fails: exit status 1" in printed
        assert "error: the reason why" in printed


@pytest.mark.parametrize(
    ("numbers", "status", "text"),
    [
        ([signal.SIGTERM], STOPPED, "stopped by SIGTERM"),
        ([signal.SIGHUP], STOPPED, "stopped by SIGHUP"),
        ([signal.SIGINT], INTERRUPTED, "interrupted"),
        ([signal.SIGTERM, signal.SIGINT], INTERRUPTED, "interrupted"),
    ],
)
def test_a_worker_that_is_asked_to_leave_ends_its_run_and_says_so_by_its_status(
    sweep_of, monkeypatch, capsys, numbers, status, text
):
    sweep = sweep_of("deaf" if len(numbers) > 1 else "30")
    lock = sweep.run_folder(sweep.manifest.points[0]).lock
    worker = os.getpid()

    def ask() -> None:
        while not (lock.parent / "e-000000000000" / "attempts").exists():
            time.sleep(0.05)
        for number in numbers:
            os.kill(worker, number)
            time.sleep(0.5)

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(SystemExit) as end:
        typed(monkeypatch, "work", str(sweep.path))
    asking.join()
    assert end.value.code == status
    assert capsys.readouterr().err == f"{text}: the same line again goes on\n"
    state = look_at(lock)
    assert state is None or state.gone  # it has ended


def test_points_that_are_no_longer_asked_for_count_until_they_are_forgotten(
    sweep_of, attempts, monkeypatch, capsys
):
    sweep = sweep_of("ok", "fails", "ok")
    with pytest.raises(SystemExit):
        typed(monkeypatch, "work", str(sweep.path))
    done, failed, other = sweep.manifest.points
    narrowed = SweepFolder(sweep.path, replace(sweep.manifest, points=[other]))
    narrowed.save()
    SweepFolder(sweep.path, replace(sweep.manifest, points=[other])).save()  # typed once more
    assert [point.run for point in narrowed.manifest.earlier] == [done.run, failed.run]
    found = SweepFolder.find(str(sweep.path), ".")
    assert found.manifest == narrowed.manifest
    assert len(found.manifest.all_points) == 3
    typed(monkeypatch, "work", str(sweep.path))  # trains none of them
    assert len(attempts(sweep)[1]) == 2
    typed(monkeypatch, "forget", str(sweep.path))
    assert "2 points forgotten, 1 left" in capsys.readouterr().out
    assert SweepFolder.find(str(sweep.path), ".").manifest.all_points == narrowed.manifest.points
    assert found.failure(failed) is None
    assert sweep.run_folder(done).result.exists()
    sweep.save()  # asks for all of them again
    assert len(SweepFolder.find(str(sweep.path), ".").manifest.points) == 3


def test_an_unknown_sweep_is_one_line(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"^1$"):
        typed(monkeypatch, "status", "mine", "--runs-dir", str(tmp_path))
    error = capsys.readouterr().err
    assert error.startswith("error: mine is no sweep")
    assert error.count("\n") == 1


def test_long_sweeps_show_only_what_is_under_way(sweep_of, capsys):
    sweep = sweep_of(*["ok"] * 41)
    command.status(sweep, tables.console(), shows_all=False)
    assert "40 ok" not in capsys.readouterr().out
    command.status(sweep, tables.console(), shows_all=True)
    assert "40 ok" in capsys.readouterr().out
