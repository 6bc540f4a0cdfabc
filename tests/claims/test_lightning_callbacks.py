"""Lightning's callbacks in a run: they work, or are refused by name."""

from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError
from lmkit.experiment.run import run as run_of
from tests.tiny import TINY, composed

CALLBACKS = "pytorch_lightning.callbacks"


def line(name: str, *options: str) -> list[str]:
    section = f"+callbacks.theirs._target_={CALLBACKS}.{name}"
    return ["train", *TINY, section, *(f"+callbacks.theirs.{each}" for each in options)]


@pytest.mark.parametrize(
    ("options", "num_saved"),
    [([], 1), (["monitor=valid/ppl", "save_top_k=2", "save_last=true"], 3)],
)
def test_further_checkpoints_are_saved_in_the_runs_folder(lmkit, run, options, num_saved):
    lmkit(*line("ModelCheckpoint", *options))
    saved = [path.name for path in run().path.glob("lightning/**/*.ckpt")]
    assert len(saved) == num_saved
    assert ("last.ckpt" in saved) == bool(options)
    assert not list(Path.cwd().glob("*.ckpt"))


def test_a_metric_that_no_run_has_is_refused_with_those_that_there_are(refused):
    message = refused(*line("EarlyStopping", "monitor=val_loss"))
    assert "`val_loss` which is not available" in message
    assert "`valid/ppl`" in message


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("GradientAccumulationScheduler", {"scheduling": {0: 2}}, "every window is a step"),
        ("StochasticWeightAveraging", {"swa_lrs": 0.1}, "the trigger averages the weights"),
        ("BatchSizeFinder", {}, "windows.batch_size is part of a run's identity"),
        ("LearningRateFinder", {}, "optimizer.lr is part of a run's identity; try values with"),
        ("BackboneFinetuning", {}, "averaging needs the same parameters throughout; trunk"),
        ("ModelPruning", {"pruning_fn": "l1_unstructured"}, "it replaces weights that are shared"),
        ("WeightAveraging", {}, "the trigger averages the weights"),
        ("EMAWeightAveraging", {}, "the trigger averages the weights"),
    ],
)
def test_a_callback_that_changes_a_step_is_refused(tmp_path, name, options, reason):
    config = composed(*TINY) | {"runs_dir": str(tmp_path)}
    config["callbacks"]["theirs"] = {"_target_": f"{CALLBACKS}.{name}"} | options
    with pytest.raises(UserError, match=rf"^callbacks\.theirs={name} cannot be set: {reason}"):
        run_of(config)
    assert not list(tmp_path.iterdir())
