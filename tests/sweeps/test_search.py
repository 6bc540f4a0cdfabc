"""A search by Optuna: bad runs are pruned, and a kill loses nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import look_at
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.search import JOURNAL, Search
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps.status import standings
from tests.forked import Line

RUN = [
    "threads=1",
    "data.train_tokens=4000",
    "data.valid_tokens=500",
    "data.test_tokens=500",
    "trigger.epoch=1",
    "logger=csv",
    "callbacks.spectrum=null",
    "conclusion.contexts=50",
    "max_epochs=12",
]
# with this seed, the rates of the trials are 20, 0.01, 20
SEARCH = [
    "--multirun",
    "hydra/sweeper=search",
    "hydra.sweeper.n_trials=3",
    "hydra.sweeper.sampler._target_=optuna.samplers.RandomSampler",
    "hydra.sweeper.sampler.seed=4",
    "sweep.name=mine",
    "stopping=pruning",
    "optimizer.lr=20,0.01",
]
MEDIAN = ["stopping.pruner.n_startup_trials=1"]
HALVING = ["stopping/pruner=successive_halving", "stopping.pruner.reduction_factor=2"]


def epochs(run: RunFolder) -> list[tuple[int, float]]:
    rows = MetricsFile(run.metrics).read()
    return [(row["epoch"], row["valid/ppl"]) for row in rows if "valid/ppl" in row]


def wait_for(condition) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def under_way(folder: Path) -> list[RunFolder]:
    runs = [RunFolder(lock.with_suffix("")) for lock in folder.glob("runs/*.lock")]
    return [run for run in runs if epochs(run)]


@pytest.mark.slow
@pytest.mark.parametrize("pruner", [MEDIAN, HALVING], ids=["median", "successive_halving"])
def test_a_bad_run_is_pruned_and_a_killed_search_goes_on(tmp_path, pruner):
    line = ["train", *SEARCH, *RUN, *pruner]
    first = Line(tmp_path, *line)
    wait_for(lambda: under_way(tmp_path))
    (run,) = under_way(tmp_path)
    first.kill()
    os.kill(look_at(run.lock).holder.pid, signal.SIGKILL)
    first.wait()
    with (tmp_path / "runs/sweeps/mine" / JOURNAL).open("a") as journal:
        journal.write('{"op_code":')  # what a full disk leaves
    again = Line(tmp_path, *line).ended()
    assert again.returncode == 0, again.stdout + again.stderr
    sweep = SweepFolder.find("mine", str(tmp_path / "runs"))
    (bad, good) = standings(sweep)  # the third trial is the first one's run
    assert (good.state, bad.state) == ("done", "pruned")
    assert [epoch for epoch, _ in epochs(run)] == list(range(1, 13))
    trials = Search(sweep.path).study.trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "PRUNED", "COMPLETE"]
    for trial, point in zip(trials, (good, bad, good), strict=True):
        assert trial.intermediate_values == dict(epochs(sweep.run_folder(point.point)))
    pruned = sweep.run_folder(bad.point)
    result = pruned.read_result()
    assert result.budget.stopped == "pruned"
    assert result.budget.epochs < 12
    plain = Line(tmp_path, "train", *RUN, "optimizer.lr=0.01").ended()
    assert plain.returncode == 0, plain.stdout + plain.stderr
    assert [epoch for epoch, _ in epochs(pruned)] == list(range(1, 13))
    assert pruned.read_result().budget.stopped == "max_epochs"
