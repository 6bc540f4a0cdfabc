"""Of the workers that have nothing to train one stays, and the others leave."""

import multiprocessing
import os
import signal
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lmkit.cli import sweep as command
from lmkit.runs.lock import look_at
from lmkit.runs.sweep_folder import Failure, SweepFolder
from lmkit.sweeps import processes, tables
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("quick")
forked = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def heartbeats(monkeypatch):
    monkeypatch.setattr(processes, "RENEW_S", 0.3)


def workers(sweep: SweepFolder, number: int) -> list[multiprocessing.process.BaseProcess]:
    def work() -> None:
        is_well = command.work(SweepFolder.find(str(sweep.path), "."), tables.console())
        sys.exit(not is_well)

    started = [forked.Process(target=work) for _ in range(number)]
    for each in started:
        each.start()
    return started


def alive(started: list[multiprocessing.process.BaseProcess]) -> int:
    return sum(each.is_alive() for each in started)


def let_go(sweep: SweepFolder, started: list[multiprocessing.process.BaseProcess]) -> None:
    """Ends the point that waits; all workers end well, and leave nothing behind."""
    (sweep.run_folder(sweep.manifest.points[0]).path / "go").touch()
    for each in started:
        each.join()
    assert {each.exitcode for each in started} == {0}
    assert not [*(sweep.path / "failures").glob("*.claim")]


def test_one_stays_beside_those_that_train(sweep_of, attempts):
    sweep = sweep_of("waits", "ok")
    started = workers(sweep, 4)
    wait_for(lambda: alive(started) == 2)
    time.sleep(1.5)  # five heartbeats
    assert alive(started) == 2
    sweep.save()  # the same command, typed again
    time.sleep(1.5)
    assert alive(started) == 2
    let_go(sweep, started)
    assert [len(each) for each in attempts(sweep)] == [1, 1]


def test_none_leaves_for_one_whose_heart_does_not_beat():
    """It may be dead, on a node that nobody sees from here; then another takes its place."""
    beats = iter([5, 5, 5, None, 6, 6, 7])
    sweep = SimpleNamespace(asked_for_at=lambda: 1, stand_by=lambda me: next(beats))
    worker = command._StandBy(sweep)
    assert [worker.leaves(is_idle=True) for _ in range(4)] == [False] * 4
    late = command._StandBy(sweep)
    assert [late.leaves(is_idle=True) for _ in range(3)] == [False, False, True]


def test_one_that_leaves_what_failed_before_ends_well(sweep_of):
    sweep = sweep_of("waits")
    (trains,) = workers(sweep, 1)
    point = sweep.manifest.points[0]
    wait_for((sweep.run_folder(point).path / "attempts").exists)
    sweep.record_failure(point, Failure("killed", []))  # an earlier attempt
    started = workers(sweep, 2)
    wait_for(lambda: alive(started) == 1)
    let_go(sweep, [trains, *started])


def test_one_that_stays_trains_what_a_later_command_asks_for(sweep_of):
    sweep = sweep_of("waits", "ok")
    first, second = sweep.manifest.points
    SweepFolder(sweep.path, replace(sweep.manifest, points=[first])).save()
    started = workers(sweep, 3)
    wait_for(lambda: alive(started) == 2)
    sweep.save()
    wait_for(lambda: sweep.run_folder(second).state() == "finished")
    assert sweep.run_folder(first).state() != "finished"
    let_go(sweep, started)


def test_one_that_stays_trains_what_another_leaves_as_its_node_dies(sweep_of, attempts):
    sweep = sweep_of("waits")
    run = sweep.run_folder(sweep.manifest.points[0])
    (trains,) = workers(sweep, 1)
    wait_for((run.path / "attempts").exists)
    started = workers(sweep, 3)
    wait_for(lambda: alive(started) == 1)
    held = look_at(run.lock).holder
    for pid in (trains.pid, held.pid):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(attempts(sweep)[0]) == 2)
    let_go(sweep, started)
    assert run.state() == "finished"
