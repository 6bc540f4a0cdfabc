"""Lightning's own callbacks, bars, profilers and environment variables in a run."""

import os

import pytest

from lmkit.errors.user_error import UserError
from lmkit.experiment import conclusion
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.training.checkpoint_files import load_checkpoint
from tests.forked import Line
from tests.tiny import TINY, trained

KEEPS_BEST = (
    "+callbacks.kept={_target_: pytorch_lightning.callbacks.ModelCheckpoint, "
    "monitor: valid/ppl, mode: min, filename: mine}"
)


@pytest.mark.parametrize("option", ["LIMIT_TRAIN_BATCHES", "GRADIENT_CLIP_VAL", "MAX_TIME"])
def test_trainer_options_from_the_environment_are_refused_by_name(tmp_path, monkeypatch, option):
    monkeypatch.setenv(f"PL_TRAINER_{option}", "5")
    with pytest.raises(UserError, match=rf"^PL_TRAINER_{option} .* trainer\.{option.lower()}="):
        trained(tmp_path / "runs", *TINY)
    assert not (tmp_path / "runs").exists()


def test_an_empty_variable_and_one_of_no_option_change_nothing(tmp_path, monkeypatch):
    """Lightning passes over both."""
    plain = trained(tmp_path / "plain", *TINY).read_result().metrics
    monkeypatch.setenv("PL_TRAINER_LIMIT_TRAIN_BATCHES", "")
    monkeypatch.setenv("PL_TRAINER_NOTHING", "5")
    assert trained(tmp_path / "again", *TINY).read_result().metrics == plain


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
    timer = "pytorch_lightning.callbacks.Timer"
    stops = f"+callbacks.timer={{_target_: {timer}, duration: {{seconds: 1.0e-6}}}}"

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


def test_what_a_callback_logs_has_the_epoch_in_which_it_was_logged(tmp_path):
    rate = "+callbacks.rate._target_=pytorch_lightning.callbacks.LearningRateMonitor"
    folder = trained(tmp_path, *TINY, rate, "trainer.log_every_n_steps=5")
    rows = MetricsFile(folder.metrics).read()
    ends = [i for i, row in enumerate(rows) if "valid/ppl" in row]
    logged = {i: row["epoch"] for i, row in enumerate(rows) if "lr-SGD" in row}
    assert logged == {i: 1 + (i > ends[0]) for i in logged}
    assert set(logged.values()) == {1, 2}


@pytest.mark.parametrize("bar", ["TQDMProgressBar", "RichProgressBar"])
def test_a_pipe_that_nobody_reads_ends_no_run(tmp_path, bar):
    """As `lmkit train | head -1` has it."""
    bar = f"+callbacks.bar={{_target_: pytorch_lightning.callbacks.{bar}}}"
    os.mkfifo(pipe := tmp_path / "pipe")
    process = Line(tmp_path, "train", *TINY, bar, "runs_dir=.", log=pipe)
    reader = os.open(pipe, os.O_RDONLY)
    os.read(reader, 1)
    os.close(reader)
    process.wait(120)
    (result,) = tmp_path.glob("*/result.json")
    assert RunFolder(result.parent).read_result().budget.epochs == 2


def test_a_profile_goes_to_the_runs_log(tmp_path):
    folder = trained(tmp_path, *TINY, "+trainer.profiler=simple")
    log = folder.log.read_text()
    assert "Profiler Report" in log
    assert "run_training_epoch" in log
