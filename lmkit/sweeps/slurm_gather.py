"""From a sweep's points to SLURM's jobs and back: submits them, and gathers each one's outcome.

A job that dies does not end others, and one that dies silently is noticed, since SLURM is asked
which are left. The jobs do not need the process that submitted them: restarted, it finds those
still queued or running.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lmkit.errors.user_error import UserError
from lmkit.runs.stop_signals import StopRequested, StopSignals
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder
from lmkit.sweeps.launcher import Backlog, Outcome, Say, Waiting, tail
from lmkit.sweeps.slurm_job import Ended, TrainPoint
from lmkit.sweeps.slurm_queue import Queue, has_ended

POLL_S = 2.0  # between two checks of the jobs' results
ASK_S = 10.0  # between two queries of SLURM
RESULT_WITHIN_S = 10.0  # after a job's end: file servers may be slow to show its result
LOOK_AGAIN_S = 30.0  # between two checks of a lock that another process holds


@dataclass
class _Queued:
    waiting: Waiting
    log_start: int  # where the job's part of the run's log begins
    ended_at: float | None = None  # time.monotonic() at which SLURM was first seen to say so


class Jobs:
    """The points of one launch, from waiting to their outcome.

    Args:
        sweep: the sweep.
        points: what is left of it.
        queue: its jobs, possibly with some of an earlier launch.
        max_array: the most jobs that an array may have.
        environment: added to the runs'.
        say: called with a line on each event.
    """

    def __init__(
        self,
        *,
        sweep: SweepFolder,
        points: Sequence[Point],
        queue: Queue,
        max_array: int,
        environment: Mapping[str, str],
        say: Say,
    ) -> None:
        self.sweep, self.queue, self.say = sweep, queue, say
        self.max_array, self.environment = max_array, environment
        self.backlog = Backlog(sweep, points, say, LOOK_AGAIN_S)
        self.queued: dict[str, _Queued] = {}  # by the job's id
        self._ask_at = 0.0

    def gather(self) -> list[Outcome]:
        """Returns when all points have finished or failed.

        Raises: StopRequested on a signal, after which the jobs continue, or on `lmkit sweep stop`,
        which ends them.
        """
        before = self.sweep.asked_to_stop_at()
        with StopSignals() as signals:
            self.adopt()
            while self.backlog.waiting or self.queued:
                if signals.requested:
                    raise StopRequested(signals.requested)
                if self.sweep.asked_to_stop_at() != before:
                    raise StopRequested(signal.SIGTERM, "stopped by lmkit sweep stop")
                self.submit()
                self.collect()
                time.sleep(POLL_S)
        return self.backlog.outcomes

    def adopt(self) -> None:
        """Adopts the jobs that an earlier launch left in the queue.

        Raises: UserError when SLURM does not answer.
        """
        states = self.queue.states()
        if states is None:
            raise UserError("squeue, which lists the jobs of a sweep, does not answer here")
        waiting = {each.point.run: each for each in self.backlog.waiting}
        for job_id, state in states.items():
            point = None if has_ended(state) else self.queue.point(job_id)
            if point is not None and point.run in waiting:
                adopted = waiting.pop(point.run)
                self.backlog.waiting.remove(adopted)
                self.queued[job_id] = _Queued(adopted, self._log_size(point))
        if self.queued:
            self.say(f"{len(self.queued):,} jobs of an earlier launch are queued or running")

    def submit(self) -> None:
        """Submits the points that are due and that nobody trains.

        What does not fit into one array waits until all jobs of the last one have ended.
        """
        batch: list[Waiting] = []
        while len(batch) < self.max_array and (waiting := self.backlog.take()):
            batch.append(waiting)
        if not batch or len(batch) + len(self.queued) > self.max_array:
            self.backlog.waiting[:0] = batch
            return
        ids = self.queue.submit([self._work(each.point) for each in batch])
        for job_id, each in zip(ids, batch, strict=True):
            self.queued[job_id] = _Queued(each, self._log_size(each.point))
        numbers = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
        self.say(f"{len(ids):,} jobs submitted: {numbers}")
        self._ask_at = time.monotonic() + ASK_S

    def collect(self) -> None:
        """Handles the jobs that have ended, with a result or without."""
        for job_id, result in self.queue.results(list(self.queued)).items():
            self._ended(job_id, self.queued.pop(job_id), result)
        now = time.monotonic()
        if not self.queued or now < self._ask_at:
            return
        self._ask_at = now + ASK_S
        states = self.queue.states()
        if states is None:
            return  # SLURM may come back, and the jobs' results are seen anyway
        for job_id, job in list(self.queued.items()):
            state = states.get(job_id)
            if not has_ended(state):
                job.ended_at = None
            elif job.ended_at is None:
                job.ended_at = now
            elif now - job.ended_at >= RESULT_WITHIN_S:
                self._ended_silently(job_id, self.queued.pop(job_id), state)

    def _work(self, point: Point) -> TrainPoint:
        alone = replace(self.sweep.manifest, points=[point])
        return TrainPoint(SweepFolder(self.sweep.path, alone), self.environment)

    def _ended(self, job_id: str, job: _Queued, result: Ended | str) -> None:
        if isinstance(result, str):  # a traceback
            last_line = " ".join(result.strip().splitlines()[-1:])
            self._failed(job_id, job, f"job {job_id} ended in an error: {last_line}")
        elif result.how == "held":
            self.backlog.put_off(job.waiting)
        else:
            self.backlog.end(job.waiting.point, result.how, result.failure)

    def _ended_silently(self, job_id: str, job: _Queued, state: str | None) -> None:
        """Handles a job that has ended, according to SLURM, without a result."""
        point = job.waiting.point
        if self.sweep.run_folder(point).finished_within(point.budget):
            self.backlog.end(point, "finished")
            return
        how = (state or "forgotten by SLURM").lower().replace("_", " ")
        reason = f"job {job_id} ended without a result: {how}"
        self._failed(job_id, job, reason, is_retried=state != "CANCELLED")

    def _failed(self, job_id: str, job: _Queued, reason: str, is_retried: bool = True) -> None:
        if is_retried and self.backlog.retry(job.waiting, reason):
            return
        point = job.waiting.point
        lines = tail(self.sweep.log(point), job.log_start, 5) + self.queue.log(job_id)
        self.backlog.end(point, "failed", Failure(reason, job.waiting.attempt, lines))

    def _log_size(self, point: Point) -> int:
        log = self.sweep.log(point)
        return log.stat().st_size if log.exists() else 0
