"""`lmkit sweep`: status and work, as typed."""

import errno
import os
import signal
import socket
import time
from dataclasses import replace
from unittest.mock import Mock

import pytest

from lmkit.cli import sweep as command
from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock, look_at
from lmkit.runs.stop_signals import INTERRUPTED, STOPPED
from lmkit.runs.sweep_folder import Failure, SweepFolder
from lmkit.sweeps import tables
from tests.waiting import meanwhile, wait_for


def typed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["lmkit.cli.sweep", *arguments])
    command.main()


def test_a_failure_shows_in_tables_and_exit_status(sweep_of, monkeypatch, capsys):
    sweep = sweep_of("fails")
    for arguments in (["work", str(sweep.path)], ["status", str(sweep.path)]):
        with pytest.raises(SystemExit) as end:
            typed(monkeypatch, *arguments)
        assert end.value.code == 1
        printed = " ".join(capsys.readouterr().out.split())
        assert "failed after 1 attempt: 0 fails: exit status 1" in printed
        assert "error: the reason why" in printed


def test_the_node_and_job_of_what_fails_or_runs_elsewhere_are_told(sweep_of, monkeypatch, capsys):
    sweep = sweep_of("fails", "waits")
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    fails, waits = sweep.manifest.points
    failure = Failure("exit status 1", [], repeats=True, where="on node7, job 41")
    sweep.record_failure(fails, failure)
    sweep.run_folder(waits).path.mkdir(parents=True)
    sweep.run_folder(waits).write_config("{}")
    with RunLock(sweep.run_folder(waits).lock), pytest.raises(SystemExit):
        typed(monkeypatch, "status", str(sweep.path))
    printed = capsys.readouterr().out
    assert "failed after 1 attempt on node7, job 41: 0 fails: exit status 1" in printed
    assert f"│ running on {socket.gethostname()}, job 42 │" in printed


@pytest.mark.parametrize(
    ("numbers", "status", "text"),
    [
        ([signal.SIGTERM], STOPPED, "stopped by SIGTERM"),
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
        wait_for((lock.parent / "e-000000000000" / "attempts").exists)
        os.kill(worker, numbers[0])
        for number in numbers[1:]:
            time.sleep(0.5)
            os.kill(worker, number)

    with meanwhile(ask), pytest.raises(SystemExit) as end:
        typed(monkeypatch, "work", str(sweep.path))
    assert end.value.code == status
    assert capsys.readouterr().err == f"{text}: the same command resumes\n"
    state = look_at(lock)
    assert state is None or state.gone  # it has ended


def test_a_worker_goes_on_with_the_points_of_a_later_command(sweep_of, attempts, monkeypatch):
    sweep = sweep_of("waits", "ok")
    first, second = sweep.manifest.points
    SweepFolder(sweep.path, replace(sweep.manifest, points=[first])).save()
    started = sweep.run_folder(first).path / "attempts"

    def ask() -> None:
        wait_for(started.exists)
        SweepFolder(sweep.path, replace(sweep.manifest, points=[first, second])).save()
        started.with_name("go").touch()

    with meanwhile(ask):
        typed(monkeypatch, "work", str(sweep.path))
    assert [len(each) for each in attempts(sweep)] == [1, 1]


def test_a_worker_tries_again_what_it_gave_up_when_the_sweeps_command_is_typed_again(
    sweep_of, attempts, monkeypatch
):
    sweep = sweep_of("fails", "waits", "ok")
    failing, slow, _ = sweep.manifest.points
    started = sweep.run_folder(slow).path / "attempts"
    monkeypatch.setattr(command.random, "randrange", lambda number: 0)

    def ask() -> None:
        wait_for(started.exists)
        failing.overrides[1] = "ok"  # what was wrong is put right
        sweep.save()
        started.with_name("go").touch()

    with meanwhile(ask):
        typed(monkeypatch, "work", str(sweep.path))
    assert [len(each) for each in attempts(sweep)] == [2, 1, 1]


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_worker_ends_though_a_run_of_another_user_cannot_be_read(
    sweep_of, monkeypatch, capsys, is_folder
):
    sweep = sweep_of("ok", "ok")
    private = sweep.run_folder(sweep.manifest.points[0]).path
    private.mkdir(parents=True)
    real = RunFolder.state

    def state(folder: RunFolder) -> str:
        if folder.path == private:
            denied = PermissionError(errno.EACCES, "Permission denied", str(folder.result))
            raise denied if is_folder else UserError(str(denied)) from denied
        return real(folder)

    monkeypatch.setattr(RunFolder, "state", state)
    for action in ("work", "status"):
        with pytest.raises(SystemExit) as end:
            typed(monkeypatch, action, str(sweep.path))
        assert end.value.code == 1
        printed = capsys.readouterr().out
        assert "Permission denied" in printed
    assert "2 runs: 1 finished, 1 failed" in printed
    assert sweep.failure(sweep.manifest.points[0]) is None  # others may have the right


def test_a_point_that_a_worker_may_not_claim_shows_in_its_exit_status(sweep_of, monkeypatch):
    sweep = sweep_of("ok")
    refuse = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied", "a claim"))
    monkeypatch.setattr(SweepFolder, "claim", refuse)
    with pytest.raises(SystemExit) as end:
        typed(monkeypatch, "work", str(sweep.path))
    assert end.value.code == 1


def test_a_worker_goes_on_to_the_budget_of_a_later_command(sweep_of, monkeypatch):
    begun = sweep_of("ok")
    (point,) = begun.manifest.points
    trained = []

    def train(sweep, points, *_):
        trained.extend(each.max_epochs for each in points)
        longer = replace(sweep.manifest, points=[replace(point, max_epochs=8)])
        SweepFolder(sweep.path, longer).save()
        return {}

    monkeypatch.setattr(command, "train_here", train)
    typed(monkeypatch, "work", str(begun.path))
    assert trained == [4, 8]


def test_a_worker_trains_on_each_gpu_that_it_sees(sweep_of, attempts, monkeypatch):
    sweep = sweep_of(*["together"] * 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    with pytest.raises(SystemExit):
        typed(monkeypatch, "work", str(sweep.path), "per_device=many")
    typed(monkeypatch, "work", str(sweep.path), "per_device=2")
    assert sorted(device for each in attempts(sweep) for device in each) == ["2", "2", "5", "5"]


def test_single_points_are_forgotten(sweep_of, monkeypatch, capsys):
    sweep = sweep_of("ok", "fails", "killed")
    with pytest.raises(SystemExit):
        typed(monkeypatch, "forget", str(sweep.path), "points=2 kiled", "dry_run=false")
    assert "matches no point of mine (did you mean 2 killed?)" in capsys.readouterr().err
    for pattern, left in (("1 *", ["0 ok", "2 killed"]), ("e-*0", ["2 killed"])):
        typed(monkeypatch, "forget", str(sweep.path), f"points={pattern}", "dry_run=false")
        assert "1 point forgotten" in capsys.readouterr().out
        found = SweepFolder.find(str(sweep.path), ".").manifest
        assert [point.label for point in found.points] == left
    label = "trunk.drops=[0,0,2] seed=1"
    points = [replace(sweep.manifest.points[0], label=label)]
    SweepFolder(sweep.path, replace(sweep.manifest, points=points)).save()
    typed(monkeypatch, "forget", str(sweep.path), "points=*=[0,0,2]*")
    assert f"would be forgotten: {label}" in capsys.readouterr().out


def test_logs_of_jobs_are_named_while_points_are_new(sweep_of, monkeypatch, capsys):
    """A job's worker may end before it trains anything, and only its log says why."""
    sweep = sweep_of("ok")
    told = f"what its workers said: {sweep.path}/logs/job-*.log"
    for is_told in (False, True):
        typed(monkeypatch, "status", str(sweep.path))
        assert (told in capsys.readouterr().out) == is_told
        (sweep.path / "logs").mkdir(exist_ok=True)
        (sweep.path / "logs" / "job-7_0.log").touch()
    typed(monkeypatch, "work", str(sweep.path))
    capsys.readouterr()
    typed(monkeypatch, "status", str(sweep.path))
    assert told not in capsys.readouterr().out


def test_stop_ends_workers_whose_runs_save(sweep_of, monkeypatch, capsys):
    sweep = sweep_of("30", "ok")
    attempts = sweep.run_folder(sweep.manifest.points[0]).path / "attempts"

    def stop() -> None:
        wait_for(attempts.exists)
        command.stop(SweepFolder.find(str(sweep.path), "."))

    monkeypatch.setattr("random.randrange", lambda stop: 0)
    with meanwhile(stop), pytest.raises(SystemExit) as end:
        typed(monkeypatch, "work", str(sweep.path))
    assert end.value.code == STOPPED
    printed = capsys.readouterr()
    assert "1 run of mine running" in printed.out
    assert "the sweep's own command, or lmkit sweep work, resumes them" in printed.out
    assert printed.err == "stopped by lmkit sweep stop: the same command resumes\n"
    state = look_at(sweep.run_folder(sweep.manifest.points[0]).lock)
    assert state is None or state.gone
    typed(monkeypatch, "forget", str(sweep.path), "points=0 30", "dry_run=false")
    typed(monkeypatch, "work", str(sweep.path))  # a stop that was asked for before is over
    assert "finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["statu", "mine"], "there is no command of lmkit sweep statu (did you mean status?)"),
        (["mine", "status"], "no command of lmkit sweep mine (did you mean status mine?)"),
        (["status", "a", "b"], "'b' is too much; usage: lmkit sweep status SWEEP [option="),
        (["status", "mine", "al=true"], "there is no option al (did you mean all?)"),
        (["status", "mine", "--al"], "there is no flag --al; options are written option=value"),
        (["status", "mine", "runs_dir=nowhere"], "mine is not a sweep in nowhere/sweeps"),
        (["status", 300 * "x"], f"{300 * 'x'}/manifest.json: File name too long"),
    ],
)
def test_a_bad_line_is_one_line(refused, line, expected):
    assert expected in refused("sweep", *line)


def test_long_sweeps_show_only_what_is_under_way(sweep_of, capsys):
    sweep = sweep_of(*["ok"] * 41)
    command.status(sweep, tables.console(), shows_all=False)
    assert "40 ok" not in capsys.readouterr().out
    command.status(sweep, tables.console(), shows_all=True)
    assert "40 ok" in capsys.readouterr().out
