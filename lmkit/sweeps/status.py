"""The state of a sweep's points, read from their run folders, without torch."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lmkit.errors.user_error import UserError
from lmkit.runs.code import code_sha256
from lmkit.runs.folder import RunFolder
from lmkit.runs.heartbeat import server_time_s
from lmkit.runs.lock import is_held
from lmkit.runs.metrics import MetricsFile, Row
from lmkit.runs.result import Result
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder

STATES = ("finished", "running", "failed", "unfinished", "new")


@dataclass(frozen=True)
class Standing:
    """The state of a point."""

    point: Point
    state: str  # one of STATES
    epoch: int | None = None  # the last of a finished point, otherwise the current one, from 1
    valid_ppl: float | None = None  # the best of a finished point, otherwise the latest
    test_ppl: float | None = None
    press_rank: int | None = None
    seconds_per_epoch: float | None = None
    seconds_left: float | None = None  # at most, since patience may end the run earlier
    failure: Failure | None = None
    code_has_changed: bool = False  # since a finished point was trained

    @property
    def is_finished(self) -> bool:
        """Whether nothing of the point is left to train."""
        return self.state == "finished"


@dataclass(frozen=True)
class Estimate:
    """What is left of a sweep, estimated from the runs so far."""

    seconds: float  # of training, one run after another
    num_points: int  # that `seconds` counts
    num_unknown: int  # points of experiments of which no run has trained an epoch


@dataclass(frozen=True)
class UsualCost:
    """What runs of an experiment cost."""

    seconds_per_epoch: float  # the median of finished, otherwise of running runs
    epochs: float | None  # the median of finished runs of the budget; None where there are none


def standings(sweep: SweepFolder, points: Sequence[Point] | None = None) -> list[Standing]:
    """The states of points of the sweep, in order.

    Args:
        points: of the sweep; None: all.

    Raises: UserError naming a file that is damaged.
    """
    runs_dir = sweep.runs_dir
    there = {path.name for path in runs_dir.iterdir()} if runs_dir.is_dir() else set()
    now_s = _now_s(runs_dir)
    return [
        _standing(sweep, point, there, now_s)
        for point in (sweep.manifest.points if points is None else points)
    ]


def counts(standings: Sequence[Standing]) -> dict[str, int]:
    """The number of points in each state, in the order of STATES."""
    number = Counter(standing.state for standing in standings)
    return {state: number[state] for state in STATES}


def estimate(sweep: SweepFolder, standings: Sequence[Standing]) -> Estimate:
    """The training time of all points that have not finished, estimated from other runs of their
    experiments on the same text. The sweep's own runs count, or if it has none yet, others in the
    same folder: finished ones, otherwise running ones, as if each point used up its budget.
    """

    @cache
    def usual(*kind: Any) -> UsualCost | None:
        return _own_cost(standings, *kind) or usual_cost(sweep.runs_dir, *kind)

    left = [standing for standing in standings if not standing.is_finished]
    seconds: list[float] = []  # of those that are known
    for standing in left:
        point = standing.point
        cost = usual(point.experiment, point.max_epochs, point.text)
        epochs = cost and (cost.epochs or standing.point.max_epochs)
        if cost and epochs:
            seconds.append(cost.seconds_per_epoch * max(0.0, epochs - (standing.epoch or 0)))
    return Estimate(sum(seconds), len(seconds), len(left) - len(seconds))


def _standing(sweep: SweepFolder, point: Point, there: set[str], now_s: float | None) -> Standing:
    folder = sweep.run_folder(point)
    if point.run in there and folder.finished_within(point.budget):
        return _done(point, folder.read_result())
    failure = sweep.failure(point)
    if folder.lock.name in there and is_held(folder.lock, now_s):
        state = "running"
    elif failure is not None:
        state = "failed"
    else:
        state = "unfinished" if point.run in there and folder.state() != "new" else "new"
    latest: Row = {}
    if point.run in there:
        with suppress(UserError):  # damaged: the run restores it when it resumes
            latest = MetricsFile(folder.metrics).latest()
    epoch = int(latest["epoch"]) if "epoch" in latest else None
    seconds = latest.get("seconds_per_epoch")
    left = None
    if epoch is not None and seconds is not None and point.max_epochs is not None:
        left = max(0, point.max_epochs - epoch) * seconds
    return Standing(
        point,
        state,
        epoch,
        latest.get("valid/ppl"),
        seconds_per_epoch=seconds,
        seconds_left=left,
        failure=failure,
    )


def _done(point: Point, result: Result) -> Standing:
    metrics: dict[str, Any] = result.metrics
    return Standing(
        point,
        "finished",
        result.budget.epochs,
        metrics.get("valid_ppl"),
        metrics.get("test_ppl"),
        metrics.get("test_spectrum", {}).get("press_rank"),
        result.cost.get("seconds_per_epoch"),
        code_has_changed=result.provenance.get("code_sha256", code_sha256()) != code_sha256(),
    )


def _own_cost(standings: Sequence[Standing], *kind: object) -> UsualCost | None:
    """What the points of an experiment, a budget and a text cost; None if none has trained an
    epoch."""
    alike = [
        each
        for each in standings
        if (each.point.experiment, each.point.max_epochs, each.point.text) == kind
    ]
    done = [each for each in alike if each.is_finished]
    return _usual(
        [each.seconds_per_epoch for each in done] or [each.seconds_per_epoch for each in alike],
        [each.epoch for each in done if each.epoch is not None],
    )


def text_key(config: Mapping[str, Any]) -> str:
    """Equal for configurations with the same text, whose epochs have as many tokens."""
    names = ("name", "title", "short_title")
    data = {key: value for key, value in config.get("data", {}).items() if key not in names}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


def usual_cost(
    runs_dir: Path, experiment: str, max_epochs: int | None, text: str | None
) -> UsualCost | None:
    """What runs of the experiment cost; None if none has trained an epoch.

    Args:
        max_epochs: the budget of the finished runs that show how many epochs are usual.
        text: the `text_key` of the runs that count; None: any, for the sweeps of earlier versions.
    """
    finished, epochs, under_way = [], [], []
    for path in runs_dir.glob(f"{experiment}-{'?' * 12}"):
        folder = RunFolder(path)
        try:
            if text is not None and text_key(folder.read_config()) != text:
                continue
            if folder.result.exists():
                result = folder.read_result()
                finished.append(result.cost.get("seconds_per_epoch"))
                if result.budget.max_epochs == max_epochs:
                    epochs.append(result.budget.epochs)
            else:
                under_way.append(MetricsFile(folder.metrics).latest().get("seconds_per_epoch"))
        except UserError:
            continue  # a damaged one is reported where it is needed
    return _usual(finished or under_way, epochs)


def _usual(seconds_per_epoch: Sequence[float | None], epochs: Sequence[int]) -> UsualCost | None:
    known = [each for each in seconds_per_epoch if each is not None]
    if not known:
        return None
    return UsualCost(statistics.median(known), statistics.median(epochs) if epochs else None)


def _now_s(runs_dir: Path) -> float | None:
    try:
        return server_time_s(runs_dir)
    except OSError:
        return None
