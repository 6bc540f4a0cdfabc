"""Ctrl-C and other signals, as typed: saved, left with a status, and gone on with to the same bits.

A callback raises the signals that the file `signals` tells it, so that they come at a known step.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lmkit.runs.folder import RunFolder
from lmkit.runs.leave import INTERRUPTED, LEFT
from lmkit.training.checkpoint_files import load_checkpoint
from tests.claims.conftest import TINY, Lmkit

AT_STEP = """
import json, signal
from pathlib import Path
import pytorch_lightning as pl

class Signals(pl.Callback):
    def __init__(self):
        self.raise_at("start")

    def on_train_batch_end(self, trainer, *args):
        self.raise_at(str(trainer.global_step))

    def raise_at(self, moment):
        file = Path("signals")
        left = json.loads(file.read_text()) if file.exists() else {}
        now = left.pop(moment, [])
        file.write_text(json.dumps(left))
        for number in now:
            signal.raise_signal(number)
"""
LINE = ("train", *TINY, "+callbacks.signals._target_=at_step.Signals")
AGAIN = "the same command again goes on from"


@pytest.fixture
def left(lmkit: Lmkit, tmp_path: Path, capsys) -> Callable[..., tuple[object, str]]:
    """Trains with signals at a moment; returns the exit status and what stderr says."""
    (tmp_path / "at_step.py").write_text(AT_STEP)

    def train(moment: str, *numbers: int) -> tuple[object, str]:
        (tmp_path / "signals").write_text(json.dumps({moment: numbers}))
        with pytest.raises(SystemExit) as end:
            lmkit(*LINE)
        assert not list(tmp_path.glob("runs/*.lock"))
        return end.value.code, capsys.readouterr().err

    return train


def step(run: RunFolder) -> int:
    return load_checkpoint(run.last)["global_step"]


def test_ctrl_c_saves_and_the_same_command_goes_on_to_the_same_bits(left, lmkit, run, tmp_path):
    assert left("3", signal.SIGINT) == (
        INTERRUPTED,
        f"interrupted: saved at step 3; {AGAIN} there\n",
    )
    assert step(run()) == 3
    lmkit(*LINE)
    resumed = run()
    log = resumed.log.read_text()
    lmkit(*LINE, "runs_dir=undisturbed")
    (undisturbed,) = (RunFolder(p.parent) for p in tmp_path.glob("undisturbed/*/config.yaml"))
    assert resumed.read_result().metrics == undisturbed.read_result().metrics
    assert log.index("; starting\n") < log.index("stopped at step 3: interrupted: saved")
    assert log.index("stopped at step 3") < log.index("resuming after step 3, in epoch 1\n")
    assert log.index("resuming after step 3") < log.index("training stops after epoch 2")


def test_a_second_ctrl_c_ends_at_once_without_saving(left, run):
    text = f"interrupted: {AGAIN} the last checkpoint\n"
    assert left("3", signal.SIGINT, signal.SIGINT) == (INTERRUPTED, text)
    assert not run().last.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_is_as_the_end_of_a_job(left, run, number):
    text = f"asked to leave by {signal.Signals(number).name}: saved at step 3; {AGAIN} there\n"
    assert left("3", number) == (LEFT, text)
    assert step(run()) == 3


def test_under_nohup_a_closed_terminal_ends_nothing(lmkit, run, tmp_path):
    (tmp_path / "at_step.py").write_text(AT_STEP)
    (tmp_path / "signals").write_text(json.dumps({"3": [signal.SIGHUP]}))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        lmkit(*LINE)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert run().state() == "finished"


@pytest.mark.parametrize(
    ("number", "status", "text"),
    [
        (signal.SIGINT, INTERRUPTED, "interrupted"),
        (signal.SIGTERM, LEFT, "asked to leave by SIGTERM"),
        (signal.SIGHUP, LEFT, "asked to leave by SIGHUP"),
    ],
)
def test_signals_before_training_end_in_order(left, tmp_path, number, status, text):
    assert left("start", number) == (status, f"{text}: {AGAIN} the last checkpoint\n")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, LEFT), (signal.SIGHUP, LEFT)],
)
@pytest.mark.parametrize("command", [["train"], ["evaluate", "run=none"]])
def test_signals_while_it_is_imported_end_in_order(tmp_path, command, number, status):
    """A module of that name in the current folder stands in for PyTorch."""
    stand_in = f"import os; os.kill(os.getpid(), {int(number)})"
    for name in ("torch", "numpy"):
        (tmp_path / f"{name}.py").write_text(stand_in)
    ended = subprocess.run(
        [sys.executable, "-m", "lmkit", *command],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
    )
    said = "interrupted" if number == signal.SIGINT else "asked to leave by"
    assert ended.returncode == status, ended.stderr
    assert ended.stderr.startswith(said)
    assert ended.stderr.count("\n") == 1
    assert ("checkpoint" in ended.stderr) == (command == ["train"])
