"""Options of Lightning's Trainer: passed on, refused by name, or honoured by the run itself."""

import inspect

import pytest
import pytorch_lightning as pl
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from lmkit.errors.user_error import UserError
from lmkit.training.checkpoint_files import load_checkpoint
from lmkit.training.trainer import Trainer, check_options
from tests.faults.comparison import assert_same_run
from tests.tiny import TINY, trained

PASSED_ON = {
    *("accelerator", "devices", "precision", "limit_train_batches", "log_every_n_steps"),
    *("num_sanity_val_steps", "enable_model_summary", "gradient_clip_val", "deterministic"),
    *("benchmark", "inference_mode", "profiler", "detect_anomaly", "model_registry"),
    "enable_autolog_hparams",
}
REFUSED = sorted(set(inspect.signature(pl.Trainer.__init__).parameters) - PASSED_ON - {"self"})


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        *((option, 1, rf"^trainer\.{option} cannot be set: ") for option in REFUSED),
        ("devices", 2, r"trainer\.devices must be 1"),
        ("precision", "16-mixed", r"trainer\.precision must be one of"),
        ("limit_train_batches", 0, r"trainer\.limit_train_batches must be"),
        ("limit_train_batches", 0.5, r"trainer\.limit_train_batches must be"),
        ("log_evry_n_steps", 5, r"no option trainer\.log_evry_n_steps.*log_every_n_steps"),
    ],
)
def test_an_option_that_a_run_cannot_honour_is_refused_by_name(option, value, complaint):
    with pytest.raises(UserError, match=complaint):
        check_options({option: value})


def test_every_other_option_is_lightnings_own():
    trainer = Trainer(accelerator="cpu", log_every_n_steps=7, detect_anomaly=True, max_epochs=3)
    assert (trainer.log_every_n_steps, trainer.max_epochs) == (7, 3)
    assert trainer._detect_anomaly
    assert Trainer(accelerator="cpu").max_epochs == -1  # without end
    assert Trainer(accelerator="cpu", precision="bf16-mixed").precision == "bf16-mixed"


def test_a_run_logs_in_every_task_of_a_job(monkeypatch, tmp_path):
    monkeypatch.setattr(rank_zero_only, "rank", 3)  # as Lightning reads SLURM_PROCID
    Trainer(accelerator="cpu")
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 1.0}, 1)
    logger.save()
    assert list(tmp_path.rglob("metrics.csv"))


def test_a_limited_run_that_goes_on_equals_one_that_was_never_stopped(tmp_path):
    limited = (*TINY, "+trainer.limit_train_batches=3")
    left_out = ("~trainer.accelerator", "~trainer.precision")  # which then have their defaults
    stopped = trained(tmp_path / "stopped", *limited, *left_out, "max_epochs=1")
    resumed = trained(tmp_path / "stopped", *limited, "max_epochs=3")
    assert resumed.path == stopped.path
    whole = trained(tmp_path / "whole", *limited, "max_epochs=3")
    assert load_checkpoint(resumed.last)["global_step"] == 9
    assert_same_run(whole, resumed)
