"""The state of a sweep's points, read from their run folders, without torch."""

import glob
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from lmkit.errors.user_error import UserError
from lmkit.runs.checksums import sha256_of_values
from lmkit.runs.folder import RunFolder, standing
from lmkit.runs.lock import Locks, look_at
from lmkit.runs.metrics import MetricsFile, Row, epochs_done, merged
from lmkit.runs.result import Result
from lmkit.runs.source import code_sha256
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder

STATES = ("finished", "running", "failed", "unfinished", "new")


@dataclass(frozen=True)
class Standing:
    point: Point
    state: str  # one of STATES
    epoch: int | None = None  # the last of a finished point, otherwise the current one, from 1
    valid_ppl: float | None = None  # the best of a finished point, otherwise the latest
    test_ppl: float | None = None
    press_rank: int | None = None
    seconds_per_epoch: float | None = None
    epochs_done: int = 0  # of a point that has not finished: those that are validated
    seconds_left: float | None = None  # at most, since patience may end the run earlier
    failure: Failure | None = None
    has_diverged: bool = False  # a finished point with a perplexity that is not finite
    code_has_changed: bool = False  # since a finished point was trained
    where: str = ""  # a running point is trained, "on node7, job 42"; see `with_places`

    @property
    def is_finished(self) -> bool:
        """Whether nothing of the point is left to train."""
        return self.state == "finished"


@dataclass(frozen=True)
class Estimate:
    """What is left of a sweep, estimated from the runs so far."""

    seconds: float  # of training, one run after another
    num_points: int  # that `seconds` counts
    num_unknown: int  # points of which no run tells how long they take


def standings(sweep: SweepFolder, points: Sequence[Point] | None = None) -> list[Standing]:
    """The states of points of the sweep, in order.

    Args:
        points: of the sweep; None: all. One whose result is damaged has failed.
    """
    locks = Locks(sweep.runs_dir)
    every = sweep.manifest.points if points is None else points
    return [_standing(sweep, point, locks) for point in every]


def estimate(sweep: SweepFolder, standings: Sequence[Standing]) -> Estimate:
    """The training time of all points that have not finished, by runs of their experiments on the
    same text: finished points of the sweep; if there are none, its running points; otherwise other
    finished runs in the same folder. A point trains as many epochs as is usual for its budget.
    """

    @cache
    def others(experiment: str) -> list[tuple[str, Result]]:
        found = []
        for folder, result in finished_runs(sweep.runs_dir, experiment):
            with suppress(UserError):
                found.append((text_key(folder.read_config()), result))
        return found

    @cache
    def usual(experiment: str, *kind: Any) -> tuple[float, float] | None:
        of_points = _usual_of_points(standings, experiment, *kind)
        return of_points or _usual_of_others(others(experiment), *kind)

    left = [each for each in standings if not each.is_finished]
    seconds: list[float] = []  # of those that are known
    for each in left:
        point = each.point
        cost = usual(point.experiment, point.max_epochs, point.text)
        if cost is not None:
            seconds_per_epoch, epochs = cost
            seconds.append(seconds_per_epoch * max(0.0, epochs - each.epochs_done))
    return Estimate(sum(seconds), len(seconds), len(left) - len(seconds))


def _standing(sweep: SweepFolder, point: Point, locks: Locks) -> Standing:
    folder = sweep.run_folder(point)
    try:
        state = standing(folder, locks)
        result = folder.read_result() if state == "finished" else None
    except (UserError, PermissionError) as error:  # where the others stand is told all the same
        return Standing(point, "failed", failure=Failure(str(error), [], True, attempts=0))
    if result is not None:
        if result.budget.suffices_for(point.budget):
            return _done(point, result)
        state = "unfinished"  # the point goes on with the run
    rows: list[Row] = []
    if state != "new":
        with suppress(UserError):  # damaged: the run restores it when it resumes
            rows = MetricsFile(folder.metrics).tail()
    failure = sweep.failure(point)
    if failure is not None and state != "running" and sweep.is_given_up(failure):
        state = "failed"
    latest = merged(rows)
    epoch = int(latest["epoch"]) if rows else None
    done = epochs_done(rows)
    seconds = latest.get("seconds_per_epoch")
    left = None
    if seconds is not None and point.max_epochs is not None:
        left = max(0, point.max_epochs - done) * seconds
    return Standing(
        point,
        state,
        epoch,
        latest.get("valid/ppl"),
        seconds_per_epoch=seconds,
        epochs_done=done,
        seconds_left=left,
        failure=failure,
    )


def with_places(sweep: SweepFolder, standings: Sequence[Standing]) -> list[Standing]:
    """The standings, and where running points are trained. It reads a lock for each of these."""

    def place(each: Standing) -> str:
        with suppress(UserError, OSError):
            held = look_at(sweep.run_folder(each.point).lock)
            return held.holder.place if held and held.holder else ""
        return ""

    return [
        replace(each, where=place(each)) if each.state == "running" else each for each in standings
    ]


def _done(point: Point, result: Result) -> Standing:
    metrics: dict[str, Any] = result.metrics
    perplexities = [metrics.get(f"{split}_ppl", 1.0) for split in ("train", "valid", "test")]
    return Standing(
        point,
        "finished",
        result.budget.epochs,
        metrics.get("valid_ppl"),
        metrics.get("test_ppl"),
        metrics.get("test_spectrum", {}).get("press_rank"),
        result.cost.get("seconds_per_epoch"),
        has_diverged=not all(map(math.isfinite, perplexities)),
        code_has_changed=result.codes not in ([], [code_sha256()]),
    )


def text_key(config: Mapping[str, Any]) -> str:
    """Equal for configurations with the same text, whose epochs have as many tokens."""
    names = ("name", "title", "short_title")
    data = {key: value for key, value in config.get("data", {}).items() if key not in names}
    return sha256_of_values(data)[:12]


def finished_runs(runs_dir: Path, name: str) -> Iterator[tuple[RunFolder, Result]]:
    """The finished runs of that name in a folder, but for those that cannot be read."""
    for path in runs_dir.glob(f"{glob.escape(name)}-{'?' * 12}"):
        folder = RunFolder(path)
        with suppress(UserError, PermissionError):  # what is damaged is reported where it is needed
            if folder.result.exists():
                yield folder, folder.read_result()


def _usual_of_points(
    standings: Sequence[Standing], experiment: str, max_epochs: int | None, text: str | None
) -> tuple[float, float] | None:
    """Of an experiment's points: the seconds of an epoch, and the epochs of a run."""
    kind = experiment, max_epochs, text
    alike = [e for e in standings if (e.point.experiment, e.point.max_epochs, e.point.text) == kind]
    done = [each for each in alike if each.is_finished]
    epochs = [each.epoch for each in done if each.epoch is not None]
    return _medians([each.seconds_per_epoch for each in done or alike], epochs, max_epochs)


def _usual_of_others(
    finished: Sequence[tuple[str, Result]], max_epochs: int | None, text: str | None
) -> tuple[float, float] | None:
    # None: of a sweep of an earlier version
    alike = [result for key, result in finished if text in (None, key)]
    epochs = [each.budget.epochs for each in alike if each.budget.max_epochs == max_epochs]
    seconds = [each.cost.get("seconds_per_epoch") for each in alike]
    return _medians(seconds, epochs, max_epochs)


def _medians(
    seconds_per_epoch: Sequence[float | None], epochs: Sequence[int], max_epochs: int | None
) -> tuple[float, float] | None:
    known = [each for each in seconds_per_epoch if each is not None]
    usual_epochs = statistics.median(epochs) if epochs else max_epochs
    return (statistics.median(known), usual_epochs) if known and usual_epochs else None
