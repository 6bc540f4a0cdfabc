"""The records in a sweep's folder."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lmkit.runs import sweep_folder
from lmkit.runs.holder import this_process
from lmkit.runs.lock import LockState
from lmkit.runs.sweep_folder import Failure, Manifest, Point, SweepFolder

FAILURE = Failure("exit status 1", ["error: no"], repeats=True)


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    point = Point("a", [], "toy-0", "toy", 1, None)
    sweep = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 0, [point]))
    sweep.save()
    return sweep


def test_another_command_of_the_name_forgets_only_what_it_asks_for(sweep: SweepFolder) -> None:
    (point,) = sweep.manifest.points
    sweep.record_failure(point, FAILURE)
    other = replace(point, run="toy-1")
    SweepFolder(sweep.path, replace(sweep.manifest, points=[other])).save()
    assert sweep.failure(point) == FAILURE
    sweep.save()
    assert sweep.failure(point) is None


def test_failures_that_are_half_forgotten_have_no_gap(sweep: SweepFolder) -> None:
    (point,) = sweep.manifest.points
    for _ in range(3):
        sweep.record_failure(point, FAILURE)
    unlink = Path.unlink
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", lambda file, **_: [unlink(file), patch.undo(), 1 / 0])
        with pytest.raises(ZeroDivisionError):  # as if killed after the first
            sweep.forget_failures(point)
    assert (failure := sweep.failure(point)) is not None
    assert failure.attempts == 2
    (sweep.path / "failures" / f"{point.run}.1.json").unlink()  # as if another had come meanwhile
    sweep.save()
    assert list((sweep.path / "failures").iterdir()) == []


def test_a_batch_adds_to_those_before(sweep: SweepFolder) -> None:
    (point,) = sweep.manifest.points
    larger, other = replace(point, max_epochs=2), replace(point, run="toy-1")
    for points, there in (([other], [point, other]), ([larger], [other, larger])):
        SweepFolder(sweep.path, replace(sweep.manifest, points=points)).save(adds=True)
        assert SweepFolder.find(str(sweep.path), ".").manifest.points == there


@pytest.mark.parametrize("content", ["", "{}", '{"reason": 1, "log_tail": []}', "[" * 10**5])
def test_a_damaged_failure_counts(sweep: SweepFolder, content: str) -> None:
    (point,) = sweep.manifest.points
    sweep.record_failure(point, FAILURE)
    (record,) = (sweep.path / "failures").iterdir()
    record.write_text(content)
    assert sweep.failure(point) == Failure("its record is damaged", [], attempts=1)


def claimed_by_a_child(sweep: SweepFolder) -> bool:
    """Whether a forked child gets the next attempt at the sweep's point; it ends with its claim."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if sweep.claim(sweep.manifest.points[0], this_process()) else 3)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 3)
    return status == 0


def test_an_attempt_is_one_process_s_until_it_ends_or_dies(sweep: SweepFolder) -> None:
    (point,) = sweep.manifest.points
    me, another = this_process(), this_process()
    assert sweep.claim(point, me)
    assert sweep.claim(point, me)  # where the server's reply was lost
    assert not sweep.claim(point, another)
    sweep.save()  # keeps the claims of those that live
    assert not sweep.claim(point, another)
    sweep.release(point)
    assert claimed_by_a_child(sweep)
    assert sweep.claim(point, me)  # that process is gone
    assert not claimed_by_a_child(sweep)
    sweep.release(point)
    assert claimed_by_a_child(sweep)
    assert list((sweep.path / "failures").iterdir())
    sweep.save()
    assert not list((sweep.path / "failures").iterdir())


def test_what_killed_processes_left_goes_when_it_is_old(sweep: SweepFolder) -> None:
    old, young = (sweep.path / "failures" / f".{name}.tmp" for name in ("old", "young"))
    for each in (old, young):
        each.touch()
    os.utime(old, (1000, 1000))
    sweep.save()
    assert (old.exists(), young.exists()) == (False, True)


def test_of_two_that_find_a_dead_claim_one_has_the_attempt(sweep, monkeypatch):
    (point,) = sweep.manifest.points
    assert claimed_by_a_child(sweep)  # which is gone
    real, claims = sweep_folder.look_at, []

    def looks(path: Path) -> LockState | None:
        state = real(path)
        if not claims:  # another takes it over between this one's look and what follows
            claims.append(None)
            claims[:] = [sweep.claim(point, this_process())]
        return state

    monkeypatch.setattr(sweep_folder, "look_at", looks)
    assert [sweep.claim(point, this_process()), *claims] == [False, True]


def test_lines_typed_at_the_same_instant_all_add_their_points(tmp_path, monkeypatch):
    def slow(path: Path, read=sweep_folder._read) -> Manifest:
        try:
            return read(path)
        finally:
            time.sleep(0.1)  # between what a line reads and what it writes

    points = [Point(str(i), [f"seed={i}"], f"toy-{i}", "toy", 1, None) for i in range(4)]
    sweeps = [SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 0, [p])) for p in points]
    sweeps[0].save()
    monkeypatch.setattr(sweep_folder, "_read", slow)
    lines = [threading.Thread(target=sweep.save, args=(True,)) for sweep in sweeps[1:]]
    for line in lines:
        line.start()
    for line in lines:
        line.join()
    found = SweepFolder.find("mine", str(tmp_path / "runs"))
    assert len(found.manifest.points) == 4
    assert {path.name for path in found.path.iterdir()} == {"failures", "logs", "manifest.json"}


def test_runs_lie_beside_a_link_to_the_folder_of_sweeps(tmp_path: Path) -> None:
    (tmp_path / "scratch" / "sweeps").mkdir(parents=True)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "sweeps").symlink_to(tmp_path / "scratch" / "sweeps")
    made = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 0, []))
    made.save()
    assert SweepFolder.find("mine", str(tmp_path / "runs")).runs_dir == made.runs_dir
    (tmp_path / "mine_too").symlink_to(made.path)
    assert SweepFolder.find(str(tmp_path / "mine_too"), "runs").runs_dir == tmp_path / "scratch"
