"""Configurations and classes of the user's own, in a sweep, its check, its runs and its workers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from lmkit.runs.holder import this_process
from lmkit.runs.lock import RunLock
from lmkit.runs.sweep_folder import SweepFolder
from tests.forked import typed

FILES = {
    # in the folder that --config-dir adds
    "mine/experiment/own.yaml": """
        # @package _global_
        name: own
        threads: 1
        max_epochs: 1
        data: {train_tokens: 4000, valid_tokens: 500, test_tokens: 500}
        switch_epoch: 1
        logger: {wandb: null}
        callbacks: {spectrum: null}
        conclusion: {contexts: 50}
    """,
    "mine/short.yaml": "defaults: [train, _self_, {override experiment: own}]\n",
    "mine/multirun_sweeps/two_seeds.yaml": """
        # @package _global_
        hydra:
          mode: MULTIRUN
          sweeper:
            params: {experiment: own, seed: "1,2", head/transform: doubled}
    """,
    # in one that hydra.searchpath adds, with signs that overrides must quote
    "it's, more/head/transform/doubled.yaml": "_target_: own_code.Doubled\n",
    "own_code.py": "from lmkit.heads.transforms import Identity\nclass Doubled(Identity): pass\n",
}
OWN = ["--config-dir", "mine", r"hydra.searchpath=['file://it\'s, more']"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a user's, in which the lines are typed."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(content).lstrip())
    return tmp_path


def test_interpolations_of_a_sweeps_file_are_each_runs_own(folder, monkeypatch):
    monkeypatch.setenv("TOKENS", "4000")
    (folder / "mine/multirun_sweeps/ends.yaml").write_text(
        "# @package _global_\n"
        "hydra:\n"
        "  mode: MULTIRUN\n"
        "  sweeper:\n"
        "    params:\n"
        "      {experiment: own, max_epochs: '1,2', switch_epoch: '${max_epochs}',\n"
        "       data.train_tokens: '${oc.env:TOKENS}', patience: '${oc.select:max_epochs}'}\n"
        "    parts: [{head/transform: 'doubled,identity', seed: '1,2'}, {head/transform: gss}]\n"
    )
    planned = typed(
        folder, "train", *OWN, "multirun_sweeps=ends", "hydra/launcher=workers", "seed=5"
    )
    assert planned.returncode == 0, planned.stderr
    assert "seed is as typed in 1 of the sweep's 2 parts" in planned.stdout
    points = SweepFolder.find("ends", str(folder / "runs")).manifest.points
    assert len(points) == 6
    for point in points:
        own = {"switch_epoch=${max_epochs}", "patience=${oc.select:max_epochs}"}
        assert {*own, "data.train_tokens=4000"} < set(point.overrides)
    line = ("train", *OWN, "multirun_sweeps=ends", "hydra/launcher=workers", "max_epochs=1")
    assert typed(folder, *line).returncode == 0  # nobody trains what is left out now
    assert typed(folder, *line[:-1]).returncode == 0
    sweep = SweepFolder.find("ends", str(folder / "runs"))
    lock = RunLock(sweep.run_folder(sweep.manifest.points[0]).lock)
    lock.acquire()
    refused = typed(folder, *line)
    assert "others are training the sweep ends, with 5 runs that this one lacks" in refused.stderr
    lock.release()
    claimed = sweep.manifest.points[1]
    assert sweep.claim(claimed, this_process())  # about to train it
    assert "others are training the sweep ends" in typed(folder, *line).stderr
    sweep.release(claimed)
    assert typed(folder, *line).returncode == 0


@pytest.mark.slow
def test_own_sweeps_experiments_and_heads_reach_the_runs_and_the_workers(folder):
    planned = typed(
        folder, "train", *OWN, "multirun_sweeps=two_seeds", "hydra/launcher=workers", "seed=1"
    )
    assert planned.returncode == 0, planned.stderr
    sweep = SweepFolder.find("two_seeds", str(folder / "runs"))
    assert sweep.manifest.config_arguments == [
        "--config-dir",
        str(folder / "mine"),
        rf"hydra.searchpath=['file://{folder}/it\'s, more']",
    ]
    worked = typed(folder, "sweep", "work", "two_seeds")
    assert worked.returncode == 0, worked.stdout
    (point,) = sweep.manifest.points
    assert sweep.run_folder(point).path.name.startswith("own_doubled-")
    assert "own_code.Doubled" in sweep.run_folder(point).config.read_text()
    again = typed(folder, "train", *OWN, "multirun_sweeps=two_seeds", "dry_run=true")
    assert "2 runs: 1 finished, 1 new" in again.stdout
    (folder / "runs").rename(folder / "archive")
    (archived,) = (folder / "archive").glob("own_doubled-*/")
    shutil.rmtree(archived)
    trained = typed(folder, "sweep", "work", "archive/sweeps/two_seeds")
    assert trained.returncode == 0, trained.stdout
    assert (archived / "result.json").exists()
    assert not (folder / "runs").exists()


def test_an_experiment_may_be_a_sweep(folder, monkeypatch):
    """As in Hydra's manual: the points are single runs, with or without --multirun."""
    own = folder / "mine/experiment/own.yaml"
    section = 'hydra: {mode: MULTIRUN, sweeper: {params: {seed: "1,2"}}}'
    own.write_text(f"{own.read_text()}{section}\n")
    for flags in ((), ("--multirun",), ("hydra.mode=MULTIRUN",)):
        planned = typed(folder, "train", *OWN[:2], "experiment=own", *flags, "dry_run=true")
        assert "2 runs: 2 new" in planned.stdout, planned.stderr
    line = ("train", *OWN[:2], "experiment=own", "hydra/launcher=workers")
    assert typed(folder, *line).returncode == 0
    worked = typed(folder, "sweep", "work", "multirun")
    assert worked.returncode == 0, worked.stdout
    assert len(list(folder.glob("runs/own-*/result.json"))) == 2


@pytest.mark.slow
def test_the_name_of_an_own_configuration_reaches_the_runs(folder):
    line = ["--config-dir", "mine", "--config-name", "short", "--multirun"]
    line += ["head.transform._target_=own_code.Doubled", "seed=1", "sweep.name=mine"]
    (folder / "lmkit").mkdir()  # another checkout, and a script named as a module of Python
    for name in ("lmkit/__init__.py", "profile.py"):
        (folder / name).write_text("raise SystemExit('a file of the folder has run')\n")
    # in new processes, with imports of their own: the sweep's, its check's, its point's
    trained = subprocess.run(
        [sys.executable, "-Pm", "lmkit", "train", *line],  # as the command lmkit is started
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert trained.returncode == 0, trained.stdout + trained.stderr
    (result,) = folder.glob("runs/*/result.json")
    assert result.parent.name.startswith("own_doubled-")
