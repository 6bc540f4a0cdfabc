"""Lightning's callbacks, bars, profilers and environment variables in a run: they work, or are
refused by name.
"""

import os
import signal
from pathlib import Path

import pytest
import torch
from pytorch_lightning import Callback

from lmkit.errors.user_error import UserError
from lmkit.experiment import conclusion
from lmkit.experiment.objects import make_callbacks
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.stop_signals import StopRequested
from lmkit.training.checkpoint_files import load_checkpoint
from lmkit.training.language_model import LanguageModel
from lmkit.training.trainer import Trainer
from tests.forked import Line
from tests.tiny import TINY, trained

CALLBACKS = "pytorch_lightning.callbacks"
KEEPS_BEST = (
    f"+callbacks.kept={{_target_: {CALLBACKS}.ModelCheckpoint, "
    "monitor: valid/ppl, mode: min, filename: mine}"
)


def line(name: str, *options: str) -> list[str]:
    section = f"+callbacks.theirs._target_={CALLBACKS}.{name}"
    return ["train", *TINY, section, *(f"+callbacks.theirs.{each}" for each in options)]


def test_further_checkpoints_are_saved_in_the_runs_folder(lmkit, run):
    lmkit(*line("ModelCheckpoint", "monitor=valid/ppl", "save_top_k=2", "save_last=true"))
    saved = [path.name for path in run().path.glob("lightning/**/*.ckpt")]
    assert len(saved) == 3
    assert "last.ckpt" in saved
    assert not list(Path.cwd().glob("*.ckpt"))


def test_a_summary_of_the_model_is_shown(tmp_path):
    log = tmp_path / "log"
    Line(tmp_path, *line("ModelSummary"), "runs_dir=.", log=log).wait(600)
    assert "Trainable params" in log.read_text()


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
        ("EMAWeightAveraging", {}, "the trigger averages the weights"),
    ],
)
def test_a_callback_that_changes_a_step_is_refused(name, options, reason):
    section = {"_target_": f"{CALLBACKS}.{name}"} | options
    with pytest.raises(UserError, match=rf"^callbacks\.theirs={name} cannot be set: {reason}"):
        make_callbacks({"callbacks": {"theirs": section}}, None)


class Compiles(Callback):
    def setup(self, trainer, pl_module, stage):
        pl_module.trunk = torch.compile(pl_module.trunk)


class Plateau(LanguageModel):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "valid/ppl"},
        }


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (
            f"+callbacks.compiles._target_={__name__}.Compiles",
            r"renamed or added weights \(trunk\.",
        ),
        (f"module._target_={__name__}.Plateau", "Plateau has a ReduceLROnPlateau, whose last step"),
    ],
)
def test_what_no_run_could_be_read_or_resumed_with_is_refused(tmp_path, option, reason):
    with pytest.raises(UserError, match=reason):
        trained(tmp_path, *TINY, option)
    assert not list(tmp_path.glob("*/checkpoints/*"))


def test_what_lightnings_callbacks_monitor_is_known_after_a_stop_in_validation(
    tmp_path, monkeypatch
):
    """A speed is reported at the end of an epoch's last batch, before the checkpoint."""
    line = (*TINY, "max_epochs=2")
    line += (f"+callbacks.es={{_target_: {CALLBACKS}.EarlyStopping, monitor: tokens_per_second}}",)
    begin = LanguageModel.on_validation_epoch_start

    def stop(self: LanguageModel) -> None:
        begin(self)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as within:
        within.setattr(LanguageModel, "on_validation_epoch_start", stop)
        with pytest.raises(StopRequested):
            trained(tmp_path, *line)
    assert trained(tmp_path, *line).read_result().budget.epochs == 2


@pytest.mark.parametrize("option", ["LIMIT_TRAIN_BATCHES", "MAX_EPOCHS"])
def test_trainer_options_in_the_environment_change_nothing(monkeypatch, option):
    monkeypatch.setenv(f"PL_TRAINER_{option}", "5")
    trainer = Trainer(accelerator="cpu")
    assert (trainer.limit_train_batches, trainer.max_epochs) == (1.0, -1)


def callback_state(folder: RunFolder) -> dict:
    """The state of the user's ModelCheckpoint in last.ckpt."""
    callbacks = load_checkpoint(folder.last)["callbacks"]
    (state,) = (callbacks[key] for key in callbacks if key.startswith("ModelCheckpoint"))
    return state


def kept_state(folder: RunFolder) -> dict:
    """The same, with paths below the run's folder."""
    state = callback_state(folder).items()
    return {key: str(value).replace(str(folder.path), "") for key, value in state}


def test_a_users_model_checkpoint_keeps_its_best_when_the_budget_grows(tmp_path):
    folder = trained(tmp_path / "grown", *TINY, KEEPS_BEST, "max_epochs=1")
    valid_ppl = folder.read_result().metrics["valid_ppl"]
    assert float(callback_state(folder)["best_model_score"]) == pytest.approx(valid_ppl, rel=1e-6)
    grown = trained(tmp_path / "grown", *TINY, KEEPS_BEST, "max_epochs=3")
    whole = trained(tmp_path / "whole", *TINY, KEEPS_BEST, "max_epochs=3")
    assert kept_state(grown) == kept_state(whole)


def test_a_run_stopped_within_an_epoch_counts_it_after_a_kill_too(tmp_path, monkeypatch, capsys):
    stops = f"+callbacks.timer={{_target_: {CALLBACKS}.Timer, duration: {{seconds: 1.0e-6}}}}"

    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as within:
        within.setattr(conclusion.Conclusion, "conclude", killed)
        with pytest.raises(RuntimeError, match="killed"):
            trained(tmp_path / "killed", *TINY, stops)
    again = trained(tmp_path / "killed", *TINY, stops).read_result()
    assert "stopped early" in capsys.readouterr().out
    whole = trained(tmp_path / "whole", *TINY, stops).read_result()
    assert (whole.budget.epochs, whole.budget.stopped) == (1, "callback")
    assert again.budget == whole.budget
    assert again.metrics == whole.metrics


def test_what_a_callback_logs_has_the_epoch_in_which_it_was_logged_and_a_profile_its_log(tmp_path):
    rate = f"+callbacks.rate._target_={CALLBACKS}.LearningRateMonitor"
    options = (rate, "trainer.log_every_n_steps=5", "+trainer.profiler=simple")
    folder = trained(tmp_path, *TINY, *options)
    rows = MetricsFile(folder.metrics).read()
    ends = [i for i, row in enumerate(rows) if "valid/ppl" in row]
    logged = {i: row["epoch"] for i, row in enumerate(rows) if "lr-SGD" in row}
    assert logged == {i: 1 + (i > ends[0]) for i in logged}
    assert set(logged.values()) == {1, 2}
    log = folder.log.read_text()
    assert "Profiler Report" in log
    assert "run_training_epoch" in log


class OwnSteps(Callback):
    """Logs at a step of its own, as of tokens that were seen, and without a step."""

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.logger.log_metrics({"mine/now": trainer.global_step})
        trainer.logger.log_metrics({"mine/seen": 1.0}, step=10**9)


def test_rows_at_steps_of_ones_own_stay_and_the_test_has_one_after_a_kill_too(
    tmp_path, monkeypatch
):
    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    line = (*TINY, f"+callbacks.own._target_={__name__}.OwnSteps")
    with monkeypatch.context() as within:
        within.setattr(conclusion, "tell", killed)  # after the row of the test
        with pytest.raises(RuntimeError, match="killed"):
            trained(tmp_path, *line)
    rows = MetricsFile(trained(tmp_path, *line).metrics).read()
    assert [row["epoch"] for row in rows if "mine/seen" in row] == [1, 2]
    assert [row["step"] - row["mine/now"] for row in rows if "mine/now" in row] == [0, 0]
    assert sum("test/ppl" in row for row in rows) == 1


@pytest.mark.slow
def test_a_pipe_that_nobody_reads_ends_no_run(tmp_path):
    """As `lmkit train | head -1` has it."""
    bar = f"+callbacks.bar._target_={CALLBACKS}.RichProgressBar"
    os.mkfifo(pipe := tmp_path / "pipe")
    process = Line(tmp_path, "train", *TINY, bar, "runs_dir=.", log=pipe)
    reader = os.open(pipe, os.O_RDONLY)
    os.read(reader, 1)
    os.close(reader)
    process.wait(600)
    (result,) = tmp_path.glob("*/result.json")
    assert RunFolder(result.parent).read_result().budget.epochs == 2
