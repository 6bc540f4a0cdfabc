"""Points as processes: failures and kills stay their own, held locks are waited for."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.lock import RunLock
from lmkit.sweeps import launcher, processes
from lmkit.sweeps.launcher import is_held
from lmkit.sweeps.local import Local, Packed, Workers, visible_devices
from lmkit.sweeps.processes import run_points


def test_a_point_that_fails_or_is_killed_takes_no_other_down(sweep_of, attempts):
    sweep, said = sweep_of("ok", "fails", "killed", "ok"), []
    outcomes = run_points(sweep, sweep.manifest.points, [{}], said.append)
    how = {outcome.point.label: outcome.how for outcome in outcomes}
    assert how == {
        "0 ok": "finished",
        "1 fails": "failed",
        "2 killed": "finished",
        "3 ok": "finished",
    }
    assert [len(each) for each in attempts(sweep)] == [1, 2, 2, 1]
    (failure,) = (outcome.failure for outcome in outcomes if outcome.failure)
    assert (failure.reason, failure.attempts) == ("exit status 1", 2)
    assert failure.log_tail == ["attempt 2", "error: the reason why"]  # of its last attempt alone
    assert "2 killed: killed by SIGKILL, attempt 2 follows" in said


def test_failures_are_remembered_until_the_point_finishes(sweep_of):
    sweep = sweep_of("fails", "ok")
    run_points(sweep, sweep.manifest.points, [{}], lambda text: None)
    failed, fine = sweep.manifest.points
    assert sweep.failure(failed).log_tail[-1] == "error: the reason why"
    assert sweep.failure(fine) is None
    failed.overrides[1] = "ok"
    run_points(sweep, sweep.manifest.points, [{}], lambda text: None)
    assert sweep.failure(failed) is None


def test_what_is_finished_is_not_started_again(sweep_of, attempts):
    sweep = sweep_of("ok", "ok")
    for expected in ("finished", "finished elsewhere"):
        outcomes = run_points(sweep, sweep.manifest.points, [{}], lambda text: None)
        assert [outcome.how for outcome in outcomes] == [expected, expected]
    assert [len(each) for each in attempts(sweep)] == [1, 1]


@pytest.mark.parametrize("finishes", [True, False])
def test_a_point_that_another_process_trains_is_looked_at_again(
    sweep_of, attempts, monkeypatch, finishes
):
    monkeypatch.setattr(processes, "LOOK_AGAIN_S", 0.2)
    sweep = sweep_of("ok", "ok")
    held = sweep.run_folder(sweep.manifest.points[0])
    lock = RunLock(held.lock)
    lock.acquire()

    def end() -> None:
        done = sweep.run_folder(sweep.manifest.points[1]).result
        while not done.exists():
            time.sleep(0.05)
        if finishes:
            held.path.mkdir(parents=True)
            held.result.write_bytes(done.read_bytes())
        lock.release()

    other = threading.Thread(target=end)
    other.start()
    said = []
    outcomes = run_points(sweep, sweep.manifest.points, [{}], said.append)
    other.join()
    assert said[0] == "0 ok: another process trains it; checking again later"
    assert [outcome.point.label for outcome in outcomes] == ["1 ok", "0 ok"]
    assert outcomes[1].how == ("finished elsewhere" if finishes else "finished")
    assert [len(each) for each in attempts(sweep)] == [0 if finishes else 1, 1]


def test_a_refusal_by_the_lock_is_no_failure_whatever_the_log_says(sweep_of, attempts, monkeypatch):
    """Two launches may start a point at the same time: each has seen that nobody trains it."""
    monkeypatch.setattr(processes, "LOOK_AGAIN_S", 0.2)
    looks = iter([False])
    sweep, said = sweep_of("talks"), []
    lock = RunLock(sweep.run_folder(sweep.manifest.points[0]).lock)
    lock.acquire()

    def hear(text: str) -> None:
        said.append(text)
        lock.release()

    monkeypatch.setattr(launcher, "is_held", lambda lock: next(looks, True) and is_held(lock))
    (outcome,) = run_points(sweep, sweep.manifest.points, [{}], hear)
    assert said[0] == "0 talks: another process trains it; checking again later"
    assert outcome.how == "finished"
    assert [len(each) for each in attempts(sweep)] == [1]


def test_a_point_killed_at_its_very_end_has_finished(sweep_of, attempts):
    sweep = sweep_of("killed at the end")
    (outcome,) = run_points(sweep, sweep.manifest.points, [{}], lambda text: None)
    assert outcome.how == "finished"
    assert [len(each) for each in attempts(sweep)] == [1]
    assert not sweep.run_folder(sweep.manifest.points[0]).lock.exists()


def test_two_sweeps_over_the_same_points_train_each_once(sweep_of, attempts, monkeypatch):
    monkeypatch.setattr(processes, "LOOK_AGAIN_S", 0.2)
    sweep = sweep_of(*["0.4"] * 5)
    found = {}

    def run(name: int) -> None:
        points = sweep.manifest.points
        found[name] = run_points(sweep, points, [{}], lambda text: None)

    threads = [threading.Thread(target=run, args=(name,)) for name in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(outcomes) for outcomes in found.values()] == [5, 5]
    assert not any(o.failure for outcomes in found.values() for o in outcomes)
    assert [len(each) for each in attempts(sweep)] == [1] * 5


def test_packed_runs_at_a_time_and_shares_the_devices_out(sweep_of, attempts):
    sweep = sweep_of(*["together"] * 4)
    launcher = Packed(runs=None, devices=[3, "MIG-1"], per_device=2)
    assert launcher.slots() == 4
    outcomes = launcher.launch(sweep, sweep.manifest.points, lambda text: None)
    assert [outcome.how for outcome in outcomes] == ["finished"] * 4
    assert sorted(device for each in attempts(sweep) for device in each) == [
        "3",
        "3",
        "MIG-1",
        "MIG-1",
    ]


def test_packed_without_a_gpu_needs_to_be_told_how_many(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match=r"hydra\.launcher\.runs=N"):
        Packed(runs=None, devices=None, per_device=1)
    assert Packed(runs=3, devices=None, per_device=1).environments() == [{}, {}, {}]
    with pytest.raises(UserError, match=r"hydra\.launcher\.runs"):
        Packed(runs=0, devices=None, per_device=1)
    assert Local().slots() == 1


def test_points_left_to_workers_are_not_run(sweep_of, attempts):
    sweep, said = sweep_of("ok"), []
    assert Workers().launch(sweep, sweep.manifest.points, said.append) == []
    assert said == [f"waiting for workers (1): lmkit sweep work {sweep.path}"]
    assert attempts(sweep) == [[]]


def test_a_process_that_ends_well_without_a_result_has_failed(sweep_of):
    sweep = sweep_of("ok")
    elsewhere = sweep.run_folder(sweep.manifest.points[0]).path.with_name("elsewhere")
    sweep.manifest.points[0].overrides[0] = str(elsewhere)
    (outcome,) = run_points(sweep, sweep.manifest.points, [{}], lambda text: None)
    assert "the kind of device" in outcome.failure.reason


def test_visible_devices_are_those_named_in_the_environment(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, GPU-5")
    assert visible_devices() == ["1", "GPU-5"]


def test_an_interrupted_sweep_ends_what_it_started(sweep_of, monkeypatch):
    sweep = sweep_of("30")
    lock = sweep.run_folder(sweep.manifest.points[0]).lock
    started = []

    def interrupt_once_it_trains(launched) -> None:
        if lock.exists():
            started.extend(run.process for run in launched.running)
            raise KeyboardInterrupt

    monkeypatch.setattr(processes._Processes, "collect", interrupt_once_it_trains)
    with pytest.raises(KeyboardInterrupt):
        run_points(sweep, sweep.manifest.points, [{}], lambda text: None)
    (process,) = started
    assert process.returncode is not None
    assert not lock.exists()  # it ended of itself, and gave its lock back


def test_launching_needs_no_torch():
    code = "import sys, lmkit.cli.sweep; print(*sys.modules.keys() & {'torch', 'hydra', 'numpy'})"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == ""
