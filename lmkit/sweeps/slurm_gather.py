"""From a sweep's points to SLURM's jobs and back: submits, waits, gathers each by itself.

So a job that dies ends no other; one that dies without a word is noticed, since SLURM is asked
which are left. The jobs do not need the process that submitted them: killed and started again, it
finds those still queued or running.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lmkit.errors.user_error import UserError
from lmkit.runs.leave import AskedToLeave, Leave
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder
from lmkit.sweeps.outcome import Outcome, Say, Tally, is_held, tail
from lmkit.sweeps.slurm_job import Ended, TrainPoint
from lmkit.sweeps.slurm_queue import Queue, has_ended

POLL_S = 2.0  # between two looks at the jobs' results
ASK_S = 10.0  # between two questions to SLURM
RESULT_WITHIN_S = 10.0  # after a job's end: file servers may be slow to show its result
LOOK_AGAIN_S = 30.0  # between two looks at a lock that another process holds


@dataclass
class _Waiting:
    point: Point
    attempt: int  # the coming one, from 1
    not_before: float = 0.0  # time.monotonic()
    is_held: bool = False


@dataclass
class _Queued:
    waiting: _Waiting
    log_start: int  # where the job began in the run's log
    ended_at: float | None = None  # time.monotonic() at which SLURM was first seen to say so


class Jobs:
    """The points of one launch, from waiting to their outcome.

    Args:
        sweep: the sweep.
        points: what is left of it.
        queue: its jobs, perhaps with some of an earlier launch.
        max_array: jobs in an array at most.
        environment: added to the runs'.
        say: is told what happens.
    """

    def __init__(
        self,
        sweep: SweepFolder,
        points: Sequence[Point],
        queue: Queue,
        max_array: int,
        environment: Mapping[str, str],
        say: Say,
    ) -> None:
        self.sweep, self.queue, self.say = sweep, queue, say
        self.max_array, self.environment = max_array, environment
        self.tally = Tally(sweep, len(points), say)
        self.waiting = [_Waiting(point, 1) for point in points]
        self.queued: dict[str, _Queued] = {}  # by the job's id
        self._ask_at = 0.0

    def gather(self) -> list[Outcome]:
        """Returns when all points have finished or failed. Raises: AskedToLeave for a signal."""
        with Leave() as leave:
            self.adopt()
            while self.waiting or self.queued:
                if leave.asked:
                    raise AskedToLeave(leave.asked)
                self.submit()
                self.collect()
                time.sleep(POLL_S)
        return self.tally.outcomes

    def adopt(self) -> None:
        """Takes on the jobs that an earlier launch has left in the queue.

        Raises: UserError when SLURM does not answer.
        """
        states = self.queue.states()
        if states is None:
            raise UserError("squeue, which tells the jobs of a sweep, does not answer here")
        waiting = {each.point.run: each for each in self.waiting}
        for job_id, state in states.items():
            point = None if has_ended(state) else self.queue.point(job_id)
            if point is not None and point.run in waiting:
                found = waiting.pop(point.run)
                self.waiting.remove(found)
                self.queued[job_id] = _Queued(found, self._log_size(point))
        if self.queued:
            self.say(f"{len(self.queued):,} jobs of an earlier launch are queued or running")

    def submit(self) -> None:
        """Submits the points that nobody trains and whose time has come.

        What does not fit into one array waits until all of the last one have ended.
        """
        ready = [each for each in list(self.waiting) if self._is_ready(each)]
        room = self.max_array - len(self.queued)
        if not ready or (self.queued and len(ready) > room):
            return
        batch = ready[:room]
        ids = self.queue.submit([self._work(each.point) for each in batch])
        for job_id, each in zip(ids, batch, strict=True):
            self.waiting.remove(each)
            self.queued[job_id] = _Queued(each, self._log_size(each.point))
        numbers = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
        self.say(f"{len(ids):,} jobs submitted: {numbers}")
        self._ask_at = time.monotonic() + ASK_S

    def collect(self) -> None:
        """Takes in the jobs that have ended, with a result or without."""
        for job_id, result in self.queue.results(list(self.queued)).items():
            self._conclude(job_id, self.queued.pop(job_id), result)
        now = time.monotonic()
        if not self.queued or now < self._ask_at:
            return
        self._ask_at = now + ASK_S
        states = self.queue.states()
        if states is None:
            return  # SLURM may come back, and the jobs' results are seen all the same
        for job_id, job in list(self.queued.items()):
            state = states.get(job_id)
            if not has_ended(state):
                job.ended_at = None
            elif job.ended_at is None:
                job.ended_at = now
            elif now - job.ended_at >= RESULT_WITHIN_S:
                self._bury(job_id, self.queued.pop(job_id), state)

    def _is_ready(self, waiting: _Waiting) -> bool:
        if waiting.not_before > time.monotonic():
            return False
        folder = self.sweep.run_folder(waiting.point)
        if folder.finished_within(waiting.point.budget):
            self.waiting.remove(waiting)
            self.tally.end(waiting.point, "finished elsewhere")
            return False
        if is_held(folder.lock):
            self._put_off(waiting)
            return False
        return True

    def _put_off(self, waiting: _Waiting) -> None:
        if not waiting.is_held:
            self.say(f"{waiting.point.label}: another process trains it; looking again later")
        waiting.is_held = True
        waiting.not_before = time.monotonic() + LOOK_AGAIN_S

    def _work(self, point: Point) -> TrainPoint:
        alone = replace(self.sweep.manifest, points=[point])
        return TrainPoint(SweepFolder(self.sweep.path, alone), self.environment)

    def _conclude(self, job_id: str, job: _Queued, result: Ended | str) -> None:
        if isinstance(result, str):  # a traceback
            lines = result.strip().splitlines()[-1:]
            self._again(job_id, job, f"job {job_id} ended in an error: {' '.join(lines)}")
        elif result.how == "held":
            self._put_off(job.waiting)
            self.waiting.append(job.waiting)
        else:
            self.tally.end(job.waiting.point, result.how, result.failure)

    def _bury(self, job_id: str, job: _Queued, state: str | None) -> None:
        """Takes in a job that SLURM has ended and that has left no result."""
        point = job.waiting.point
        if self.sweep.run_folder(point).finished_within(point.budget):
            self.tally.end(point, "finished")
            return
        how = (state or "forgotten by SLURM").lower().replace("_", " ")
        retried = state != "CANCELLED"
        self._again(job_id, job, f"job {job_id} ended without a result: {how}", retried)

    def _again(self, job_id: str, job: _Queued, reason: str, retried: bool = True) -> None:
        point, attempt = job.waiting.point, job.waiting.attempt
        if retried and attempt <= self.sweep.manifest.retries:
            self.say(f"{point.label}: {reason}, attempt {attempt + 1} follows")
            self.waiting.insert(0, _Waiting(point, attempt + 1))
            return
        lines = tail(self.sweep.log(point), job.log_start, 5) + self.queue.log(job_id)
        self.tally.end(point, "failed", Failure(reason, attempt, lines))

    def _log_size(self, point: Point) -> int:
        log = self.sweep.log(point)
        return log.stat().st_size if log.exists() else 0
