"""Lightning's callbacks that people use, in a run: they work, or are refused by name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.claims.conftest import TINY

FUNCTIONS = """
def started(trainer, module):
    open("started.txt", "w").close()


def size(batch):
    return 10
"""
OF_FUNCTION = "{_target_: hydra.utils.get_method, path: functions.%s}"


def line(name: str, *options: str) -> list[str]:
    section = f"+callbacks.theirs._target_=pytorch_lightning.callbacks.{name}"
    return ["train", *TINY, section, *(f"+callbacks.theirs.{each}" for each in options)]


def test_a_run_takes_callbacks_of_lightnings(lmkit, run, tmp_path):
    """Those that do not meet, in one run."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    named = {
        "DeviceStatsMonitor": [] if find_spec("psutil") else None,
        "LambdaCallback": [f"on_train_start={OF_FUNCTION % 'started'}"],
        "LearningRateMonitor": [],
        "ModelSummary": [],
        "OnExceptionCheckpoint": ["dirpath=saved"],
        "RichModelSummary": [],
        "SpikeDetection": [],
        "ThroughputMonitor": [f"batch_size_fn={OF_FUNCTION % 'size'}"],
        "BasePredictionWriter": [],
        "Timer": ["duration={hours: 1}"],
    }
    taken = {name: options for name, options in named.items() if options is not None}
    sections = [
        f"+callbacks.{name.lower()}.{each}"
        for name, options in taken.items()
        for each in (f"_target_=pytorch_lightning.callbacks.{name}", *options)
    ]
    lmkit("train", *TINY, *sections)
    assert run().state() == "finished"
    assert (tmp_path / "started.txt").exists()
    said = run().read_config()["callbacks"]
    assert {name.lower() for name in taken} <= said.keys()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("EarlyStopping", ["monitor=valid/ppl", "patience=1"]),
        ("ModelCheckpoint", []),
        ("ModelCheckpoint", ["monitor=valid/ppl", "save_top_k=2", "save_last=true"]),
        ("RichProgressBar", []),
        ("TQDMProgressBar", []),
    ],
)
def test_a_run_takes_a_callback_of_lightnings(lmkit, run, name, options):
    lmkit(*line(name, *options))
    assert run().state() == "finished"
    saved = [path.name for path in run().path.glob("lightning/**/*.ckpt")]
    if name == "ModelCheckpoint":
        assert len(saved) == (3 if options else 1)
        assert ("last.ckpt" in saved) == bool(options)
    assert not list(Path.cwd().glob("*.ckpt"))


def test_a_metric_that_no_run_has_is_refused_with_those_that_there_are(refused):
    message = refused(*line("EarlyStopping", "monitor=val_loss"))
    assert "`val_loss` which is not available" in message
    assert "`valid/ppl`" in message


@pytest.mark.skipif(find_spec("psutil") is not None, reason="the package is there")
def test_a_callback_without_its_package_is_refused(refused):
    assert "`psutil` is not installed" in refused(*line("DeviceStatsMonitor"))


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("GradientAccumulationScheduler", ["scheduling={0: 2}"], "every window is a step"),
        ("StochasticWeightAveraging", ["swa_lrs=0.1"], "the trigger averages the weights"),
        ("BatchSizeFinder", [], "windows.batch_size is part of a run's identity"),
        ("LearningRateFinder", [], "optimizer.lr is part of a run's identity; try values with"),
        ("BackboneFinetuning", [], "averaging needs the same parameters throughout; trunk"),
        ("ModelPruning", ["pruning_fn=l1_unstructured"], "it replaces weights that are shared"),
        ("WeightAveraging", [], "the trigger averages the weights"),
        ("EMAWeightAveraging", [], "the trigger averages the weights"),
    ],
)
def test_a_callback_that_changes_a_step_is_refused(refused, tmp_path, name, options, reason):
    message = refused(*line(name, *options))
    assert message.startswith(f"callbacks.theirs={name} cannot be set: {reason}")
    assert not (tmp_path / "runs").exists()
