"""What one of SLURM's jobs does: it trains one point, and comes back when it is cut short."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import NamedTuple

from submitit.core.utils import DelayedSubmission, UncompletedJobError

from lmkit.runs.leave import AskedToLeave
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder
from lmkit.sweeps.launch import run_points
from lmkit.sweeps.outcome import is_held, tail

KILLED_WITHIN_S = 600.0  # after SIGTERM: a cluster's time of grace


class Ended(NamedTuple):
    """What a job hands back to who submitted it."""

    how: str  # "finished", "finished elsewhere", "failed", or "held": another process trains it
    failure: Failure | None = None


class TrainPoint:
    """Called by submitit in the job, again after each time that the job was put back in the queue.

    The run is a process of its own, tried again when it fails or is killed. Before the job's time
    is over, or when its node is wanted, SLURM sends SIGUSR2: the run saves and ends, then
    submitit's own handler puts the job back into the queue. SIGTERM, which clusters without that
    warning send, and `scancel` too, ends the run likewise; what follows is left to SLURM, which
    queues again what it preempts, and ends what was cancelled.

    Args:
        sweep: whose only point is trained.
        environment: added to the run's.
    """

    def __init__(self, sweep: SweepFolder, environment: Mapping[str, str]) -> None:
        self.sweep, self.environment = sweep, dict(environment)

    @property
    def point(self) -> Point:
        return self.sweep.manifest.points[0]

    def __call__(self) -> Ended:
        if is_held(self.sweep.run_folder(self.point).lock):
            return Ended("held")
        try:
            (outcome,) = run_points(self.sweep, [self.point], [self.environment], _say)
        except AskedToLeave as asked:
            _say(str(asked))
            return self._leave(asked.number)
        return Ended(outcome.how, outcome.failure)

    def checkpoint(self) -> DelayedSubmission:
        """What submitit's handler is to call next time: the same, the run folder has the rest."""
        return DelayedSubmission(self)

    def _leave(self, number: int) -> Ended:
        try:
            if number == signal.SIGUSR2:
                signal.raise_signal(number)  # back in submitit's hands, whose handler exits
            time.sleep(KILLED_WITHIN_S)
        except UncompletedJobError as error:  # by that handler
            lines = tail(self.sweep.log(self.point))
            failure = Failure(f"{error} (hydra.launcher.max_requeues)", 1, lines)
            self.sweep.record_failure(self.point, failure)
            return Ended("failed", failure)
        raise SystemExit("the job was asked to end and has not been ended")


def _say(text: str) -> None:
    print(text, flush=True)
