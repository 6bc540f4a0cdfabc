"""Ctrl-C and other signals, as typed: saved, left with a status, and gone on with to the same bits.

A callback raises the signals that the file `signals` tells it, so that they come at a known step.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

import pytest
import torch

from lmkit.experiment.conclusion import Conclusion
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.stop_signals import INTERRUPTED, STOPPED
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.callbacks.epoch_end import EpochEnd
from lmkit.training.callbacks.spectrum import SpectrumCallback
from lmkit.training.checkpoint_files import load_checkpoint
from lmkit.training.head_module import HeadModule
from tests.claims.conftest import Lmkit, typed_in
from tests.faults.comparison import assert_same_run, runs_in
from tests.tiny import without

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
MEASURED = ("train", *without("callbacks.spectrum="), "callbacks.spectrum.contexts=40")
LINE = (*MEASURED, "+callbacks.signals._target_=at_step.Signals")
AGAIN = "the same command resumes from"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The run of MEASURED."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        typed_in(folder, monkeypatch)(*MEASURED)
    (made,) = runs_in(folder / "runs")
    return made


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


def test_ctrl_c_saves_and_the_same_command_goes_on_to_the_same_bits(left, lmkit, run, undisturbed):
    assert left("3", signal.SIGINT) == (
        INTERRUPTED,
        f"interrupted: saved at step 3; {AGAIN} there\n",
    )
    assert step(run()) == 3
    lmkit(*LINE)
    resumed = run()
    log = resumed.log.read_text()
    assert resumed.read_result().metrics == undisturbed.read_result().metrics
    assert log.index("; starting\n") < log.index("stopped at step 3: interrupted: saved")
    assert log.index("stopped at step 3") < log.index("resuming after step 3, in epoch 1\n")
    assert log.index("resuming after step 3") < log.index("training stops after epoch 2")


def signal_within(owner: type, method: str, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises SIGTERM once, after a method's first call in an epoch."""
    original, is_raised = getattr(owner, method), False

    @wraps(original)
    def signalled(*args, **options):
        nonlocal is_raised
        result = original(*args, **options)
        trainer = args[0].trainer if isinstance(args[0], HeadModule) else args[1]
        if trainer.current_epoch + 1 == epoch and not is_raised:
            is_raised = True
            signal.raise_signal(signal.SIGTERM)
        return result

    monkeypatch.setattr(owner, method, signalled)


def left_in_validation(lmkit: Lmkit, line: Sequence[str], capsys) -> int:
    """The step at which a run says that it has saved."""
    with pytest.raises(SystemExit) as end:
        lmkit(*line)
    assert end.value.code == STOPPED
    said = capsys.readouterr()
    assert "SIGTERM heard: saving, then stopping\n" in said.out
    saved = re.fullmatch(rf"stopped by SIGTERM: saved at step (\d+); {AGAIN} .*\n", said.err)
    return int(saved[1])


@pytest.mark.parametrize(
    ("owner", "method", "epoch"),  # the weights of the second one are averaged
    [
        (EpochEnd, "_hold", 1),
        (HeadModule, "validation_step", 1),
        (HeadModule, "validation_step", 2),
        (AsgdSwitch, "on_validation_epoch_end", 2),
        (SpectrumCallback, "_measure", 2),
        (HeadModule, "on_train_epoch_end", 2),
    ],
)
def test_asked_within_validation_it_saves_at_once_and_goes_on_to_the_same_bits(
    owner, method, epoch, undisturbed, lmkit, run, monkeypatch, capsys
):
    ends = [row["step"] for row in MetricsFile(undisturbed.metrics).read() if "valid/ppl" in row]
    signal_within(owner, method, epoch, monkeypatch)
    assert left_in_validation(lmkit, MEASURED, capsys) == step(run()) == ends[epoch - 1]
    rows = MetricsFile(run().metrics).read()
    lmkit(*MEASURED)
    assert_same_run(undisturbed, run())
    assert len(rows) < len(MetricsFile(run().metrics).read())
    assert "SIGTERM heard: saving, then stopping\n" in run().log.read_text()


def test_asked_while_it_is_concluded_the_log_says_so(lmkit, run, monkeypatch, capsys):
    monkeypatch.setattr(Conclusion, "conclude", lambda *_: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit):
        lmkit(*MEASURED)
    assert run().log.read_text().endswith("stopped after training: stopped by SIGTERM\n")


def test_asked_again_within_the_same_validation_nothing_is_left_to_save(
    undisturbed, lmkit, run, monkeypatch, capsys
):
    for _ in range(2):
        signal_within(HeadModule, "validation_step", 2, monkeypatch)
    saved = left_in_validation(lmkit, MEASURED, capsys)
    with pytest.raises(SystemExit) as end:
        lmkit(*MEASURED)
    assert (end.value.code, step(run())) == (STOPPED, saved)
    assert capsys.readouterr().err == f"stopped by SIGTERM: {AGAIN} what was saved\n"
    lmkit(*MEASURED)
    assert_same_run(undisturbed, run())


IN_PLACE = """
import pytorch_lightning as pl

class Doubled(pl.Callback):
    def on_validation_start(self, trainer, module):
        for parameter in module.parameters():
            parameter.data.mul_(2)

    def on_validation_end(self, trainer, module):
        for parameter in module.parameters():
            parameter.data.div_(2)
"""


def test_a_callback_that_validates_other_weights_is_left_in_validation_too(
    lmkit, run, tmp_path, monkeypatch, capsys
):
    (tmp_path / "in_place.py").write_text(IN_PLACE)
    line = (*MEASURED, "+callbacks.doubled._target_=in_place.Doubled", "trigger=never")
    lmkit(*line, "runs_dir=undisturbed")
    capsys.readouterr()
    signal_within(HeadModule, "validation_step", 2, monkeypatch)
    left_in_validation(lmkit, line, capsys)
    lmkit(*line)
    (undisturbed,) = runs_in(tmp_path / "undisturbed")
    assert run().read_result().metrics == undisturbed.read_result().metrics
    weights = [load_checkpoint(each.last)["state_dict"] for each in (run(), undisturbed)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


@pytest.mark.parametrize(
    ("moment", "numbers", "status", "why"),
    [
        ("3", [signal.SIGINT, signal.SIGINT], INTERRUPTED, "interrupted"),  # at once
        ("start", [signal.SIGINT], INTERRUPTED, "interrupted"),
        ("start", [signal.SIGTERM], STOPPED, "stopped by SIGTERM"),
    ],
)
def test_signals_end_in_order_where_nothing_is_saved(
    left, run, tmp_path, moment, numbers, status, why
):
    assert left(moment, *numbers) == (status, f"{why}: {AGAIN} what was saved\n")
    if moment == "start":
        assert not (tmp_path / "runs").exists()
    else:
        assert not run().last.exists()


def typed_with(stand_in: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Types a line in a folder whose modules of these names stand in for PyTorch and numpy."""
    for name in ("torch", "numpy"):
        (folder / f"{name}.py").write_text(stand_in)
    line = [sys.executable, "-m", "lmkit", *command]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("command", "number", "status"),
    [(["train"], signal.SIGINT, INTERRUPTED), (["evaluate", "run=none"], signal.SIGTERM, STOPPED)],
)
def test_signals_while_it_is_imported_end_in_order(tmp_path, command, number, status):
    stand_in = f"import os; os.kill(os.getpid(), {int(number)})"
    ended = typed_with(stand_in, tmp_path, *command)
    said = "interrupted" if number == signal.SIGINT else "stopped by"
    assert ended.returncode == status, ended.stderr
    assert ended.stderr.startswith(said)
    assert ended.stderr.count("\n") == 1
    assert ("what was saved" in ended.stderr) == (command == ["train"])


def test_ctrl_c_after_the_last_line_prints_nothing(tmp_path):
    """Libraries have work to do when Python exits, which PyTorch registers as it is imported."""
    interrupt = f"os.kill(os.getpid(), {int(signal.SIGINT)})"
    stand_in = f"import atexit, os; atexit.register(lambda: {interrupt}); {interrupt}"
    ended = typed_with(stand_in, tmp_path, "train")
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == f"interrupted: {AGAIN} what was saved\n"
