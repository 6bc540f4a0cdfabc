"""Jobs gathered one by one from a queue that does to them what it is told; no SLURM is there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.lock import RunLock
from lmkit.runs.stop_signals import StopRequested
from lmkit.runs.sweep_folder import Point, SweepFolder
from lmkit.sweeps import slurm_gather, slurm_job
from lmkit.sweeps.launcher import Outcome, is_held
from lmkit.sweeps.slurm_gather import Jobs
from lmkit.sweeps.slurm_job import Ended, TrainPoint


class ScriptedQueue:
    """Ends the jobs of each point, one submission after another, as its label says.

    "ok" publishes a result and hands it back; a state in capitals ends a job without a result;
    "error", "held" and "fails" are handed back; "runs" never ends.
    """

    def __init__(self) -> None:
        self.arrays: list[int] = []  # sizes
        self.jobs: dict[str, tuple[TrainPoint, str]] = {}
        self.answers = True

    def submit(self, work: Sequence[TrainPoint]) -> list[str]:
        self.arrays.append(len(work))
        ids = [f"{len(self.arrays)}_{i}" for i in range(len(work))]
        for job_id, each in zip(ids, work, strict=True):
            number = sum(job.point == each.point for job, _ in self.jobs.values())
            fates = each.point.label.split()[1:]
            self.jobs[job_id] = each, fates[min(number, len(fates) - 1)]
        return ids

    def states(self) -> dict[str, str] | None:
        if not self.answers:
            return None
        known = {job_id: fate if fate.isupper() else "RUNNING" for job_id, (_, fate) in self.all()}
        return {job_id: state for job_id, state in known.items() if state != "FORGOTTEN"}

    def all(self):
        return self.jobs.items()

    def point(self, job_id: str) -> Point | None:
        return self.jobs[job_id][0].point

    def results(self, job_ids: Sequence[str]) -> dict[str, Ended | str]:
        found = {}
        for job_id in job_ids:
            work, fate = self.jobs[job_id]
            if fate == "ok":
                found[job_id] = work()
            elif fate == "held":
                found[job_id] = Ended("held")
            elif fate == "error":
                found[job_id] = "Traceback:\n  line\nOSError: no such node\n"
            elif fate == "fails":
                found[job_id] = work()
        return found

    def log(self, job_id: str) -> list[str]:
        return ["slurmstepd: error: the scheduler's word"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for name in ("POLL_S", "ASK_S", "RESULT_WITHIN_S", "LOOK_AGAIN_S"):
        monkeypatch.setattr(slurm_gather, name, 0.02)


@pytest.fixture
def queue() -> ScriptedQueue:
    return ScriptedQueue()


def gather(sweep: SweepFolder, queue: ScriptedQueue, said: list[str], most=9) -> dict[str, Outcome]:
    jobs = jobs_of(sweep, queue, said, most)
    return {outcome.point.label: outcome for outcome in jobs.gather()}


def jobs_of(sweep: SweepFolder, queue: ScriptedQueue, said: list[str], most: int) -> Jobs:
    return Jobs(
        sweep=sweep,
        points=sweep.manifest.points,
        queue=queue,
        max_array=most,
        environment={},
        say=said.append,
    )


def test_one_array_and_each_job_gathered_by_itself(sweep_of, queue):
    sweep, said = sweep_of("ok", "fails", "ok"), []
    found = gather(sweep, queue, said)
    assert queue.arrays == [3]
    assert [found[label].how for label in ("0 ok", "1 fails", "2 ok")] == [
        "finished",
        "failed",
        "finished",
    ]
    assert found["1 fails"].failure.reason == "exit status 1"
    assert found["1 fails"].failure.log_tail[-1] == "error: the reason why"
    assert said[0] == "3 jobs submitted: 1_0 to 1_2"


def test_a_job_that_dies_without_a_result_is_submitted_again_and_then_given_up(sweep_of, queue):
    sweep, said = sweep_of("ok"), []
    sweep.manifest.points[:] = relabelled(sweep, "0 NODE_FAIL ok", "1 OUT_OF_MEMORY", "2 FORGOTTEN")
    found = gather(sweep, queue, said)
    assert found["0 NODE_FAIL ok"].how == "finished"
    assert "0 NODE_FAIL ok: job 1_0 ended without a result: node fail, attempt 2 follows" in said
    failure = found["1 OUT_OF_MEMORY"].failure
    assert "ended without a result: out of memory" in failure.reason
    assert failure.attempts == 2
    assert failure.log_tail[-1] == "slurmstepd: error: the scheduler's word"
    assert sweep.failure(found["1 OUT_OF_MEMORY"].point) == failure
    assert "forgotten by slurm" in found["2 FORGOTTEN"].failure.reason


def relabelled(sweep: SweepFolder, *labels: str) -> list[Point]:
    """Points of that many runs, whose labels are what becomes of their jobs."""
    runs = sweep.runs_dir.resolve()
    lines = [[str(runs / f"e-{i:012d}"), "ok"] for i in range(len(labels))]
    return [
        Point(label, line, f"e-{i:012d}", "e", 4, None)
        for i, (label, line) in enumerate(zip(labels, lines, strict=True))
    ]


def test_a_cancelled_job_is_not_submitted_again(sweep_of, queue):
    sweep = sweep_of("ok")
    sweep.manifest.points[:] = relabelled(sweep, "0 CANCELLED", "1 ok")
    found = gather(sweep, queue, [])
    assert (found["0 CANCELLED"].failure.attempts, queue.arrays) == (1, [2])


def test_an_error_of_the_job_itself_is_told_in_its_last_line(sweep_of, queue):
    sweep = sweep_of("ok")
    sweep.manifest.points[:] = relabelled(sweep, "0 error")
    failure = gather(sweep, queue, [])["0 error"].failure
    assert failure.reason.endswith("ended in an error: OSError: no such node")


def test_a_job_that_finds_the_lock_held_comes_back_and_is_submitted_later(sweep_of, queue):
    sweep, said = sweep_of("ok"), []
    sweep.manifest.points[:] = relabelled(sweep, "0 held ok")
    assert gather(sweep, queue, said)["0 held ok"].how == "finished"
    assert "0 held ok: another process trains it; checking again later" in said
    assert queue.arrays == [1, 1]


def test_what_another_process_trains_is_not_submitted_until_that_ends(sweep_of, queue):
    sweep, said = sweep_of("ok", "ok"), []
    lock = RunLock(sweep.run_folder(sweep.manifest.points[0]).lock)
    lock.acquire()
    release = threading.Timer(0.4, lock.release)
    release.start()
    found = gather(sweep, queue, said)
    release.join()
    assert queue.arrays == [1, 1]
    assert all(outcome.failure is None for outcome in found.values())


def test_jobs_of_an_earlier_launch_are_adopted_and_not_submitted_twice(sweep_of, queue):
    sweep, said = sweep_of("ok", "ok", "ok"), []
    sweep.manifest.points[:], rest = sweep.manifest.points[:2], sweep.manifest.points[2:]
    jobs_of(sweep, queue, [], 2).submit()
    sweep.manifest.points.extend(rest)
    found = gather(sweep, queue, said)
    assert queue.arrays == [2, 1]
    assert said[0] == "2 jobs of an earlier launch are queued or running"
    assert [outcome.how for outcome in found.values()] == ["finished"] * 3


def test_more_points_than_an_array_may_have_wait_for_its_end(sweep_of, queue):
    sweep = sweep_of(*["ok"] * 5)
    gather(sweep, queue, [], 2)
    assert queue.arrays == [2, 2, 1]


def test_without_an_answer_of_squeue_nothing_is_submitted(sweep_of, queue):
    queue.answers = False
    with pytest.raises(UserError, match=r"squeue.* does not answer"):
        gather(sweep_of("ok"), queue, [])
    assert queue.arrays == []


def test_a_signal_ends_the_launcher_and_leaves_the_jobs(sweep_of, queue):
    sweep = sweep_of("ok")
    sweep.manifest.points[:] = relabelled(sweep, "0 runs")
    threading.Timer(0.3, signal.raise_signal, [signal.SIGTERM]).start()
    with pytest.raises(StopRequested):
        gather(sweep, queue, [])
    assert queue.arrays == [1]


def test_the_job_hands_back_that_another_process_trains_its_point(sweep_of):
    sweep = sweep_of("ok")
    with RunLock(sweep.run_folder(sweep.manifest.points[0]).lock):
        assert TrainPoint(sweep, {})() == Ended("held")


def call_warned(sweep: SweepFolder, number: int, submitit: Callable[..., None]) -> None:
    """Calls a job that hears a signal once its run has begun, under a handler of submitit's."""
    lock = sweep.run_folder(sweep.manifest.points[0]).lock

    def warn() -> None:
        while not lock.exists():
            pass
        signal.raise_signal(number)

    before = signal.signal(number, submitit)
    try:
        threading.Thread(target=warn).start()
        with pytest.raises(SystemExit):
            TrainPoint(sweep, {"CUDA_VISIBLE_DEVICES": "7"})()
    finally:
        signal.signal(number, before)


def test_a_warned_job_ends_its_run_and_then_calls_the_handler_of_submitit(sweep_of, attempts):
    sweep = sweep_of("30")
    lock = sweep.run_folder(sweep.manifest.points[0]).lock
    ran_when_called = []

    def submitit(number: int, frame: object) -> None:
        ran_when_called.append(lock.exists() and is_held(lock))
        raise SystemExit(-1)

    call_warned(sweep, signal.SIGUSR2, submitit)
    assert ran_when_called == [False]
    assert attempts(sweep) == [["7"]]


def test_a_job_that_is_to_end_says_so_once(sweep_of, monkeypatch, capsys):
    """Submitit's handler of SIGTERM returns."""
    monkeypatch.setattr(slurm_job, "KILLED_WITHIN_S", 0)
    call_warned(sweep_of("30"), signal.SIGTERM, lambda number, frame: None)
    assert capsys.readouterr().out.count("stopped by SIGTERM") == 1
