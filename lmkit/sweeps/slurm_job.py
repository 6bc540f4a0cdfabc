"""What a SLURM job does: it trains one point, and is requeued when it is cut short."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from submitit.core.utils import DelayedSubmission, UncompletedJobError

from lmkit.runs.stop_signals import StopRequested
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder
from lmkit.sweeps.launcher import is_held, tail
from lmkit.sweeps.processes import run_points

KILLED_WITHIN_S = 600.0  # after SIGTERM: a cluster's grace time


class Ended(NamedTuple):
    """What a job returns to the process that submitted it."""

    how: str  # "finished", "finished elsewhere", "failed", or "held": another process trains it
    failure: Failure | None = None


class TrainPoint:
    """Called by submitit in the job, and again each time that the job was requeued. The run is a
    separate process, retried when it fails or is killed. Before the job's time limit, or on
    preemption, SLURM sends SIGUSR2: the run saves and ends, then submitit's own handler requeues
    the job. Clusters without that warning send SIGTERM, and so does `scancel`: the run saves and
    ends likewise, and SLURM does the rest: it requeues what it preempts, and ends what was
    cancelled.

    Args:
        sweep: whose only point is trained.
        environment: added to the run's.
    """

    def __init__(self, sweep: SweepFolder, environment: Mapping[str, str]) -> None:
        self.sweep, self.environment = sweep, dict(environment)

    @property
    def point(self) -> Point:
        """The point that the job trains."""
        return self.sweep.manifest.points[0]

    def __call__(self) -> Ended:
        if is_held(self.sweep.run_folder(self.point).lock):
            return Ended("held")
        try:
            (outcome,) = run_points(self.sweep, [self.point], [self.environment], _say)
        except (
            UncompletedJobError
        ) as error:  # of submitit's handler, to which the signal was passed
            lines = tail(self.sweep.log(self.point))
            failure = Failure(f"{error} (hydra.launcher.max_requeues)", 1, lines)
            self.sweep.record_failure(self.point, failure)
            return Ended("failed", failure)
        except StopRequested:  # printed before submitit's handler, which ignores SIGTERM
            time.sleep(KILLED_WITHIN_S)
            raise SystemExit("the job was asked to end and has not been ended") from None
        return Ended(outcome.how, outcome.failure)

    def checkpoint(self) -> DelayedSubmission:
        """What submitit calls after requeueing: the same, since the run's folder holds the rest."""
        return DelayedSubmission(self)


def _say(text: str) -> None:
    print(text, flush=True)
