"""Points as processes: failures and kills stay their own, held locks are waited for."""

import errno
import os
import signal
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lmkit.cli.sweep import stop, work
from lmkit.errors.user_error import UserError
from lmkit.runs import lock as locks
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import Locks, RunLock
from lmkit.runs.stop_signals import StopRequested
from lmkit.runs.sweep_folder import Failure, SweepFolder
from lmkit.sweeps import backlog, multirun, planning, processes, tables
from lmkit.sweeps.backlog import Backlog
from lmkit.sweeps.local import Packed, visible_devices
from lmkit.sweeps.processes import run_points, without_result
from lmkit.sweeps.status import standings
from tests.waiting import meanwhile, wait_for


def states(sweep) -> list[str]:
    return [each.state for each in standings(sweep)]


def test_a_point_that_fails_or_is_killed_takes_no_other_down(sweep_of, attempts):
    sweep, said = sweep_of("ok", "crashes", "killed", "killed at the end"), []
    run_points(sweep, sweep.manifest.points, [{}], said.append)
    assert states(sweep) == ["finished", "failed", "finished", "finished"]
    assert [len(each) for each in attempts(sweep)] == [1, 2, 2, 1]
    failure = sweep.failure(sweep.manifest.points[1])
    assert (failure.reason, failure.attempts) == ("exit status 1", 2)
    assert failure.log_tail == ["attempt 2", "RuntimeError: the reason why"]  # of its last alone
    assert "2 killed: killed by SIGKILL, attempt 2 follows" in said
    assert not sweep.run_folder(sweep.manifest.points[3]).lock.exists()
    assert sweep.failure(sweep.manifest.points[2]) is None  # it has finished


def out_of_reach(monkeypatch, place, name: str, times: int, done: bool = False) -> None:
    """The next calls of a function fail as where a file server is out of reach; `done`: only its
    reply is lost.
    """
    real, left = getattr(place, name), [None] * times

    def fail(*args):
        if left:
            left.pop()
            if done:
                real(*args)
            raise OSError(errno.ESTALE, "stale file handle", "a file")
        return real(*args)

    monkeypatch.setattr(place, name, fail)


@pytest.mark.parametrize(
    ("place", "name", "done"),
    [
        (backlog.Locks, "is_held", False),
        (locks.os, "listdir", False),
        (RunFolder, "state", False),
        (SweepFolder, "claim", False),
        (SweepFolder, "claim", True),
        (SweepFolder, "forget_failures", False),
        (SweepFolder, "record_failure", False),
        (SweepFolder, "asked_to_stop_at", False),
        (processes, "make_folder", False),
    ],
)
def test_a_server_out_of_reach_ends_no_worker(sweep_of, attempts, monkeypatch, place, name, done):
    sweep = sweep_of("out of reach", "0.4", "fails")
    monkeypatch.setattr(backlog, "LOOK_AGAIN_S", 0.1)
    monkeypatch.setattr(processes, "LOOK_S", 0.1)
    real = processes._Processes.start

    def start(self):  # from when on the server fails, once
        monkeypatch.setattr(processes._Processes, "start", real)
        out_of_reach(monkeypatch, place, name, 1, done)
        real(self)

    monkeypatch.setattr(processes._Processes, "start", start)
    run_points(sweep, sweep.manifest.points, [{}], lambda text: None)
    assert states(sweep) == ["finished", "finished", "failed"]
    assert [len(each) for each in attempts(sweep)] == [2, 1, 1]


def test_an_earlier_failure_is_not_why_a_point_is_given_up(sweep_of, monkeypatch):
    sweep, said = sweep_of("ok"), []
    (point,) = sweep.manifest.points
    sweep.record_failure(point, Failure("killed by SIGKILL", [], repeats=False))

    def refuse(*_):
        raise UserError("its claim is damaged")

    monkeypatch.setattr(SweepFolder, "claim", refuse)
    given_up = run_points(sweep, [point], [{}], said.append)
    assert (list(given_up), states(sweep)) == ([point.run], ["failed"])
    assert said == ["[1/1] failed (its claim is damaged): 0 ok"]


@pytest.mark.parametrize(
    ("place", "name"), [(SweepFolder, "claim"), (processes, "make_folder"), (Backlog, "finished")]
)
def test_what_one_process_has_no_right_to_is_left_to_others(sweep_of, monkeypatch, place, name):
    sweep, said = sweep_of("ok"), []
    (point,) = sweep.manifest.points

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied", "a file")

    with monkeypatch.context() as within:
        within.setattr(place, name, refuse)
        given_up = run_points(sweep, [point], [{}], said.append)
    assert [(run, why.attempts) for run, why in given_up.items()] == [(point.run, 0)]
    assert said == ["[1/1] failed ([Errno 13] Permission denied: 'a file'): 0 ok"]
    assert not list((sweep.path / "failures").iterdir())
    assert run_points(sweep, [point], [{}], said.append) == {}


def test_another_sweeper_hears_of_a_point_that_was_given_up_here(sweep_of):
    sweep = sweep_of("ok")
    (point,) = sweep.manifest.points
    job = multirun._job(sweep, point, Failure("no right to", [], repeats=True, attempts=0))
    with pytest.raises(UserError, match="no right to"):
        assert job.return_value


def test_a_point_whose_result_is_damaged_is_another_sweepers_to_try(sweep_of):
    """It fails alone then; the others of its batch are trained."""
    sweep = sweep_of("ok", "ok")
    damaged, other = sweep.manifest.points
    sweep.run_folder(damaged).path.mkdir(parents=True)
    sweep.run_folder(damaged).result.write_text("{")
    assert [multirun._is_left(sweep, point) for point in (damaged, other)] == [True, True]


def test_only_looks_in_a_row_count(sweep_of, monkeypatch):
    """A point that was started is not given up for what could not be read before."""
    sweep, said = sweep_of("ok"), []
    monkeypatch.setattr(backlog, "LOOK_AGAIN_S", 0.0)
    ended = processes._Processes._ended

    def fail_once(*args) -> None:
        monkeypatch.setattr(processes._Processes, "_ended", ended)
        raise OSError(errno.ESTALE, "stale file handle", "a file")

    monkeypatch.setattr(processes._Processes, "_ended", fail_once)
    out_of_reach(monkeypatch, SweepFolder, "claim", backlog.MOST_UNREAD - 1)
    run_points(sweep, sweep.manifest.points, [{}], said.append)
    assert [line.partition(";")[2] for line in said[:2]] == [" looking again later"] * 2
    assert states(sweep) == ["finished"]


def test_a_claim_that_could_not_be_removed_is_its_processs_own(sweep_of, monkeypatch):
    sweep, said = sweep_of("ok"), []
    (point,) = sweep.manifest.points
    assert Backlog(sweep, [point], said.append).take()  # and never given back
    run_points(sweep, [point], [{}], said.append)
    assert said == ["[1/1] finished: 0 ok"]


def test_a_signal_as_the_last_point_ends_is_no_reason_to_go_on(sweep_of):
    sweep = sweep_of("ok")

    def hear(text: str) -> None:
        assert text.endswith("finished: 0 ok")
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StopRequested):
        run_points(sweep, sweep.manifest.points, [{}], hear)


def test_what_can_never_be_read_is_given_up(sweep_of, attempts, monkeypatch):
    sweep, said = sweep_of("ok"), []
    monkeypatch.setattr(backlog, "LOOK_AGAIN_S", 0.0)
    out_of_reach(monkeypatch, RunFolder, "state", backlog.MOST_UNREAD)
    run_points(sweep, sweep.manifest.points, [{}], said.append)
    assert said[0].startswith("0 ok: [Errno 116] stale file handle")
    assert said[0].endswith("looking again later")
    assert said[1].startswith("[1/1] failed ([Errno 116] stale")
    assert attempts(sweep) == [[]]


def test_workers_train_each_point_once_and_count_its_attempts_together(sweep_of, attempts, quick):
    """With one retry a failing point is started twice, however many try it."""
    sweep = sweep_of("crashes", *["0.4"] * 5)
    together(3, lambda: run_points(sweep, sweep.manifest.points, [{}], lambda text: None))
    run_points(sweep, sweep.manifest.points, [{}], lambda text: None)  # and one who comes later
    assert [len(each) for each in attempts(sweep)] == [2] + [1] * 5
    assert states(sweep) == ["failed"] + ["finished"] * 5


def test_attempts_that_end_at_once_are_all_counted(sweep_of):
    sweep = sweep_of("ok")
    (point,) = sweep.manifest.points
    together(8, lambda: sweep.record_failure(point, Failure("killed", [])))
    assert sweep.failure(point).attempts == 8


def test_a_point_that_another_is_at_is_told_of_once_and_tried_less_and_less_often(
    sweep_of, monkeypatch
):
    """Another process has claimed it, and holds no lock yet."""
    sweep, said, tried, now = sweep_of("ok"), [], [], [0.0]
    monkeypatch.setattr(backlog, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(SweepFolder, "claim", lambda *_: tried.append(now[0]))
    points = Backlog(sweep, sweep.manifest.points, said.append)
    for now[0] in range(100):
        assert points.take() is None
    assert tried == [0, 3, 9, 21, 45, 75]
    assert said == ["0 ok: another process trains it; checking again later"]


def test_a_point_whose_result_is_damaged_takes_no_other_down(sweep_of, attempts):
    sweep = sweep_of("ok", "ok", "ok")
    damaged = sweep.run_folder(sweep.manifest.points[1])
    damaged.path.mkdir(parents=True)
    damaged.result.write_text("{")
    work(sweep, tables.console())
    assert attempts(sweep) == [["none"], [], ["none"]]
    every = standings(sweep)
    assert [each.state for each in every] == ["finished", "failed", "finished"]
    assert "result.json is damaged" in every[1].failure.reason
    assert sweep.failure(sweep.manifest.points[1]).repeats
    stop(sweep)
    assert sweep.asked_to_stop_at() is not None


def test_a_stop_counts_between_two_batches_and_until_a_new_command(sweep_of, attempts, capsys):
    """As another sweeper asks for them, each in less than the time between two looks."""
    sweep, said = sweep_of("ok", "ok"), []
    first, second = sweep.manifest.points
    sweep.begin()
    run_points(sweep, [first], [{}], said.append)
    stop(sweep)
    with pytest.raises(StopRequested):
        run_points(SweepFolder.find(str(sweep.path), "."), [second], [{}], said.append)
    assert said[-1] == "lmkit sweep stop: its runs save and end"
    assert states(sweep) == ["finished", "new"]
    sweep.save(adds=True)  # of the same command
    assert sweep.is_to_stop()
    sweep.save()
    run_points(sweep, [second], [{}], said.append)
    assert states(sweep) == ["finished", "finished"]


def test_a_claim_is_renewed_while_its_run_trains(sweep_of, monkeypatch):
    sweep, stamps = sweep_of("0.4"), set()
    (point,) = sweep.manifest.points
    monkeypatch.setattr(processes, "RENEW_S", 0.05)
    real = processes._Processes.renew

    def renew(self) -> None:
        real(self)
        if self.running:
            stamps.add(sweep._claim(point).stat().st_mtime_ns)

    monkeypatch.setattr(processes._Processes, "renew", renew)
    run_points(sweep, [point], [{}], [].append)
    assert len(stamps) > 1


def test_what_is_finished_is_not_started_again(sweep_of, attempts):
    sweep, said = sweep_of("ok", "ok"), []
    (sweep.path / "logs").rmdir()  # it is made again
    run_points(sweep, sweep.manifest.points, [{}], said.append)
    assert said == ["[1/2] finished: 0 ok", "[2/2] finished: 1 ok"]
    run_points(sweep, sweep.manifest.points, [{}], said.append)
    assert len(said) == 2
    assert [len(each) for each in attempts(sweep)] == [1, 1]
    assert "attempt 1" in sweep.log(sweep.manifest.points[0]).read_text()
    further = [replace(point, max_epochs=9) for point in sweep.manifest.points]
    assert Backlog(sweep, further, said.append).take() is not None


@pytest.mark.parametrize("finishes", [True, False])
def test_a_point_that_another_process_trains_is_looked_at_again(
    sweep_of, attempts, quick, finishes
):
    sweep = sweep_of("ok", "ok")
    held = sweep.run_folder(sweep.manifest.points[0])
    lock = RunLock(held.lock)
    lock.acquire()

    def end() -> None:
        done = sweep.run_folder(sweep.manifest.points[1]).result
        wait_for(done.exists)
        if finishes:
            held.path.mkdir(parents=True)
            held.result.write_bytes(done.read_bytes())
        lock.release()

    said = []
    with meanwhile(end):
        run_points(sweep, sweep.manifest.points, [{}], said.append)
    assert said == [
        "0 ok: another process trains it; checking again later",
        "[1/2] finished: 1 ok",
        f"[2/2] finished{' elsewhere' if finishes else ''}: 0 ok",
    ]
    assert [len(each) for each in attempts(sweep)] == [0 if finishes else 1, 1]


def test_what_this_machine_cannot_train_is_left_to_others(sweep_of, attempts):
    sweep, said = sweep_of("not here", "ok"), []
    given_up = run_points(sweep, sweep.manifest.points, [{}], said.append)
    assert "[1/2] failed (a GPU is needed): 0 not here" in said
    assert [each.attempts for each in given_up.values()] == [0]
    assert sweep.failure(sweep.manifest.points[0]) is None
    assert [len(each) for each in attempts(sweep)] == [1, 1]


def test_where_all_points_crash_they_are_left_to_others(sweep_of, monkeypatch):
    sweep, said, now_s = sweep_of(*["ok"] * 4), [], 0.0
    monkeypatch.setattr(backlog, "time", SimpleNamespace(monotonic=lambda: now_s))
    others = RunLock(sweep.run_folder(sweep.manifest.points[3]).lock)
    others.acquire()
    points = Backlog(sweep, sweep.manifest.points, said.append)

    def crash() -> int:
        taken = points.take().point
        points.failed(taken, Failure("exit status 1", [], repeats=False))
        return sweep.manifest.points.index(taken)

    assert [crash() for _ in range(3)] == [0, 1, 2]
    assert "3 failed in a row: leaves points to others for 2 s" in said
    for rest_s in (2, 4):
        assert points.take() is None
        now_s += rest_s
        crash()
    others.release()
    now_s += 8
    crash()
    assert points.take() is not None  # nobody else is left


def test_a_slot_where_all_points_crash_leaves_them_to_those_that_train(sweep_of, monkeypatch):
    sweep, said, now_s = sweep_of(*["ok"] * 40), [], 0.0
    monkeypatch.setattr(backlog, "time", SimpleNamespace(monotonic=lambda: now_s))
    points = Backlog(sweep, sweep.manifest.points, said.append)
    points.finished(points.take(0).point, 0)
    num_failed = 0
    while (good := points.take(0)) is not None:  # its pauses are not the other's
        while (bad := points.take(1)) is not None:
            points.failed(bad.point, Failure("exit status 1", [], repeats=False), 1)
            num_failed += 1
        points.finished(good.point, 0)
        now_s += 3600
    assert 20 < num_failed < now_s / 3600 + 4
    assert "15 failed in a row: leaves points to others for 3600 s" in said


def test_a_slot_that_pauses_goes_on_once_nobody_else_trains(sweep_of, monkeypatch):
    sweep, said, now_s = sweep_of(*["ok"] * 9), [], 0.0
    monkeypatch.setattr(backlog, "time", SimpleNamespace(monotonic=lambda: now_s))
    points = Backlog(sweep, sweep.manifest.points, said.append)
    points.finished(points.take(0).point, 0)
    good = points.take(0)
    for tail in (["error: out of memory"], [], []):
        now_s += 10
        points.failed(points.take(1).point, Failure("status 74", tail, repeats=False), 1)
    now_s += 10
    points.failed(points.take(1).point, Failure("status 74", ["error: full"], repeats=False), 1)
    assert said[-2].endswith("for 4 s")  # and never longer than 8: the points may be at fault
    for _ in range(6):
        now_s += 600
        points.failed(points.take(1).point, Failure("exit status 1", [], repeats=False), 1)
    assert said[-2].endswith("for 256 s")
    points.finished(good.point, 0)
    now_s += 31
    for _ in range(3):
        points.failed(points.take(1).point, Failure("exit status 1", [], repeats=False), 1)


def test_while_a_disk_is_full_points_wait(sweep_of, attempts, monkeypatch):
    sweep, said, real, left = sweep_of("ok"), [], SweepFolder.claim, [None] * 50
    monkeypatch.setattr(backlog, "LOOK_AGAIN_S", 0.0)

    def claim(*args):
        if not left:
            return real(*args)
        left.pop()
        full = OSError(errno.EDQUOT, "Disk quota exceeded")
        raise UserError("cannot write a claim: Disk quota exceeded") from full

    monkeypatch.setattr(SweepFolder, "claim", claim)
    assert run_points(sweep, sweep.manifest.points, [{}], said.append) == {}
    assert states(sweep) == ["finished"]
    assert sum("Disk quota exceeded" in line for line in said) == 1


def test_whoever_waits_asks_for_the_servers_time_once_a_look(sweep_of, monkeypatch, quick):
    """And not once for each point that others hold, of which it reads ten."""
    sweep, asked = sweep_of(*["ok"] * 30), []
    held = [RunLock(sweep.run_folder(point).lock) for point in sweep.manifest.points]
    for each in held:
        each.acquire()
    real = locks.server_time_s
    monkeypatch.setattr(locks, "server_time_s", lambda folder: asked.append(1) or real(folder))
    waiting = Backlog(sweep, sweep.manifest.points, lambda text: None)
    assert waiting.take() is None
    assert (len(waiting), len(asked)) == (30, 1)
    waiting._look_at = 0.0
    is_held, read = locks.Locks.is_held, []
    monkeypatch.setattr(locks.Locks, "is_held", lambda s, lock: read.append(1) or is_held(s, lock))
    assert waiting.take() is None
    assert (len(asked), len(read)) == (2, 10)
    for each in held:
        each.release()
    waiting._look_at = 0.0
    assert waiting.take() is not None


def test_a_refusal_by_the_lock_is_no_failure_whatever_the_log_says(
    sweep_of, attempts, monkeypatch, quick
):
    """Two launches may start a point at the same time: each has seen that nobody trains it."""
    looks = iter([False])
    sweep, said = sweep_of("talks"), []
    lock = RunLock(sweep.run_folder(sweep.manifest.points[0]).lock)
    lock.acquire()

    def hear(text: str) -> None:
        said.append(text)
        lock.release()

    real = Locks.is_held
    monkeypatch.setattr(Locks, "is_held", lambda *look: next(looks, True) and real(*look))
    run_points(sweep, sweep.manifest.points, [{}], hear)
    assert said[0] == "0 talks: another process trains it; checking again later"
    assert states(sweep) == ["finished"]
    assert [len(each) for each in attempts(sweep)] == [1]


def together(number: int, work) -> None:
    with ExitStack() as all_at_work:
        for _ in range(number):
            all_at_work.enter_context(meanwhile(work))


def test_packed_runs_at_a_time_and_shares_the_devices_out(sweep_of, attempts):
    sweep = sweep_of(*["together"] * 4)
    Packed(runs=None, devices=[3, "MIG-1"], per_device=2)(sweep, sweep.manifest.points)
    assert states(sweep) == ["finished"] * 4
    devices = [device for each in attempts(sweep) for device in each]
    assert sorted(devices) == ["3", "3", "MIG-1", "MIG-1"]


def test_packed_without_a_gpu_needs_to_be_told_how_many(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match=r"hydra\.launcher\.runs=N"):
        Packed(runs=None, devices=None, per_device=1)
    assert Packed(runs=3, devices=None, per_device=1).environments == [{}, {}, {}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, GPU-5")
    assert visible_devices() == ["1", "GPU-5"]
    with pytest.raises(UserError, match=r"hydra\.launcher\.runs"):
        Packed(runs=0, devices=None, per_device=1)
    assert len(Packed(runs=2, devices=[0, 1], per_device=1).environments) == 2


def test_a_process_that_ends_well_without_a_result_has_failed(sweep_of):
    sweep = sweep_of("ok")
    elsewhere = sweep.run_folder(sweep.manifest.points[0]).path.with_name("elsewhere")
    sweep.manifest.points[0].overrides[0] = str(elsewhere)
    run_points(sweep, sweep.manifest.points, [{}], lambda text: None)
    assert sweep.failure(sweep.manifest.points[0]).reason.startswith("no result in ")
    folder = sweep.run_folder(sweep.manifest.points[0])
    folder.path.mkdir(parents=True)
    folder.result.write_text("")  # of fewer epochs
    assert without_result(folder).startswith(f"{folder.path} has finished within a smaller budget")


def test_an_interrupted_sweep_ends_what_it_started(sweep_of, monkeypatch):
    sweep = sweep_of("30")
    folder, started = sweep.run_folder(sweep.manifest.points[0]), []

    def interrupt_once_it_trains(launched) -> None:
        if (folder.path / "attempts").exists():
            started.extend(run.process for run in launched.running)
            raise KeyboardInterrupt

    monkeypatch.setattr(processes._Processes, "collect", interrupt_once_it_trains)
    monkeypatch.setattr(processes, "INTERRUPT_S", 600.0)
    with pytest.raises(KeyboardInterrupt):
        run_points(sweep, sweep.manifest.points, [{}], lambda text: None)
    (process,) = started
    assert process.returncode is not None
    assert not folder.lock.exists()  # it ended of itself, and gave its lock back


def test_a_check_of_points_that_was_killed_says_so(monkeypatch):
    run, program = subprocess.run, "import os; os.kill(os.getpid(), 9)"
    monkeypatch.setattr(
        subprocess, "run", lambda command, **given: run([command[0], "-c", program], **given)
    )
    with pytest.raises(UserError, match=r"^the points cannot be checked: killed by SIGKILL$"):
        planning.check([{}])


def test_a_point_that_was_given_up_just_before_its_claim_is_not_trained(
    sweep_of, attempts, monkeypatch
):
    sweep = sweep_of("fails")
    points, real = sweep.manifest.points, SweepFolder.claim

    def claim(*args) -> bool:  # another process ends the last attempt meanwhile
        monkeypatch.setattr(SweepFolder, "claim", real)
        run_points(sweep, points, [{}], lambda text: None)
        return real(*args)

    monkeypatch.setattr(SweepFolder, "claim", claim)
    given_up = run_points(sweep, points, [{}], lambda text: None)
    assert list(given_up) == [points[0].run]
    assert [len(each) for each in attempts(sweep)] == [1]
    assert not [*(sweep.path / "failures").glob("*.claim")]
