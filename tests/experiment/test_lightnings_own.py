"""Lightning's own callbacks, bars, profilers and environment variables in a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmkit.cli.entry import compose, plain_config
from lmkit.errors.user_error import UserError
from lmkit.experiment import conclusion
from lmkit.experiment.run import run
from lmkit.runs.folder import RunFolder
from lmkit.training.checkpoint_files import load_checkpoint
from tests.training.test_trainer import TINY

KEEPS_BEST = (
    "+callbacks.kept={_target_: pytorch_lightning.callbacks.ModelCheckpoint, "
    "monitor: valid/ppl, mode: min, filename: mine}"
)


def config(runs_dir: Path, *overrides: str) -> dict:
    return plain_config(compose("train", [*TINY, f"runs_dir={runs_dir}", *overrides]))


@pytest.mark.parametrize("option", ["LIMIT_TRAIN_BATCHES", "GRADIENT_CLIP_VAL", "MAX_TIME"])
def test_trainer_options_from_the_environment_are_refused_by_name(tmp_path, monkeypatch, option):
    monkeypatch.setenv(f"PL_TRAINER_{option}", "5")
    with pytest.raises(UserError, match=rf"^PL_TRAINER_{option} .* trainer\.{option.lower()}="):
        run(config(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_an_empty_variable_and_one_of_no_option_change_nothing(tmp_path, monkeypatch):
    """Lightning passes over both."""
    plain = run(config(tmp_path / "plain")).read_result().metrics
    monkeypatch.setenv("PL_TRAINER_LIMIT_TRAIN_BATCHES", "")
    monkeypatch.setenv("PL_TRAINER_NOTHING", "5")
    assert run(config(tmp_path / "again")).read_result().metrics == plain


def kept_state(folder: RunFolder) -> dict:
    """The state of the user's ModelCheckpoint in last.ckpt, with paths below the run's folder."""
    callbacks = load_checkpoint(folder.last)["callbacks"]
    (state,) = (callbacks[key] for key in callbacks if key.startswith("ModelCheckpoint"))
    return {key: str(value).replace(str(folder.path), "") for key, value in state.items()}


def test_a_users_model_checkpoint_keeps_its_best_when_the_budget_grows(tmp_path):
    folder = run(config(tmp_path / "grown", KEEPS_BEST, "max_epochs=1"))
    first = load_checkpoint(folder.last)["callbacks"]
    (state,) = (first[key] for key in first if key.startswith("ModelCheckpoint"))
    assert float(state["best_model_score"]) == pytest.approx(
        folder.read_result().metrics["valid_ppl"], rel=1e-6
    )
    grown = run(config(tmp_path / "grown", KEEPS_BEST, "max_epochs=3"))
    whole = run(config(tmp_path / "whole", KEEPS_BEST, "max_epochs=3"))
    assert kept_state(grown) == kept_state(whole)


def test_a_run_stopped_within_an_epoch_counts_it_after_a_kill_too(tmp_path, monkeypatch, capsys):
    timer = "pytorch_lightning.callbacks.Timer"
    stops = f"+callbacks.timer={{_target_: {timer}, duration: {{seconds: 1.0e-6}}}}"

    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as within:
        within.setattr(conclusion.Conclusion, "conclude", killed)
        with pytest.raises(RuntimeError, match="killed"):
            run(config(tmp_path / "killed", stops))
    again = run(config(tmp_path / "killed", stops)).read_result()
    assert "stopped early" in capsys.readouterr().out
    whole = run(config(tmp_path / "whole", stops)).read_result()
    assert (whole.budget.epochs, whole.budget.stopped) == (1, "callback")
    assert again.budget == whole.budget
    assert again.metrics == whole.metrics


@pytest.mark.parametrize("bar", ["TQDMProgressBar", "RichProgressBar"])
def test_a_pipe_that_nobody_reads_ends_no_run(tmp_path, bar):
    """As `lmkit train | head -1` has it."""
    arguments = [*TINY, f"+callbacks.bar={{_target_: pytorch_lightning.callbacks.{bar}}}"]
    command = [sys.executable, "-m", "lmkit", "train", *arguments, f"runs_dir={tmp_path}"]
    reader, writer = os.pipe()
    process = subprocess.Popen(command, stdout=writer, stderr=writer)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    process.wait(120)
    (result,) = tmp_path.glob("*/result.json")
    assert RunFolder(result.parent).read_result().budget.epochs == 2


def test_a_profile_goes_to_the_runs_log(tmp_path):
    folder = run(config(tmp_path, "+trainer.profiler=simple"))
    log = folder.log.read_text()
    assert "Profiler Report" in log
    assert "run_training_epoch" in log
