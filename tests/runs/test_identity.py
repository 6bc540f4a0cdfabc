"""The identity changes with what decides the numbers, and with nothing else."""

import copy
import hashlib
import json
from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.identity import IDENTITY_VERSION, identity

OURS = "lmkit.training.callbacks"
TRUNK = "lmkit.trunk.awd_lstm.AWDLSTM"


def config() -> dict:
    return {
        "experiment": "penn_softmax",
        "data": {"_target_": "lmkit.data.corpus.TextCorpus", "root": "/data", "name": "penn"},
        "trunk": {"_target_": TRUNK, "num_layers": 3, "hidden_dropout": 0.225, "tie_weights": True},
        "head": {"mixture": {"num_experts": 15}, "transform": {"k": 0.5, "knots": [-1.0, 2]}},
        "objective": {"ar_weight": 2.0, "tar_weight": 1.0},
        "module": {"transform_lr": 0.02},
        "optimizer": {"_target_": "torch.optim.SGD", "lr": 20.0, "weight_decay": 1.2e-6},
        "schedule": {"bptt": 70},
        "trigger": {"n": 5},
        "windows": {"bptt": 70, "eval_length": 70},
        "seed": 141,
        "threads": 2,
        "trainer": {
            "_target_": "lmkit.training.trainer.Trainer",
            "accelerator": "auto",
            "precision": "32-true",
            "deterministic": True,
            "gradient_clip_val": 0.25,
            "log_every_n_steps": 50,
        },
        "max_epochs": 500,
        "patience": 30,
        "stopping": {"_target_": f"{OURS}.stopping.Patience", "epochs": 30},
        "logger": {"wandb": {"mode": "offline"}},
        "callbacks": {
            "checkpoints": {"_target_": f"{OURS}.epoch_end.EpochEnd", "every_minutes": 10},
            "spectrum": {"_target_": f"{OURS}.spectrum.SpectrumCallback", "every": 1},
            "progress_bar": None,
        },
        "runs_dir": "runs",
    }


def digest(changed: dict, data_sha256: str = "d" * 64, device_kind: str = "cpu") -> str:
    return identity(changed, data_sha256, device_kind).digest


def set_at(option: str, value: object) -> dict:
    changed = config()
    *path, last = option.split(".")
    section = changed
    for key in path:
        section = section[key]
    section[last] = value
    return changed


RELEVANT = {
    **{"trunk.num_layers": 2, "trunk.hidden_dropout": 0.2250000001, "trunk.tie_weights": False},
    **{"trunk.new_option": None, "head.transform.k": 0.7, "head.transform.knots": [2, -1.0]},
    **{"objective.ar_weight": 0.0, "optimizer.lr": 30.0, "trigger": None, "windows.bptt": 35},
    **{"seed": 142, "threads": 1, "trainer.precision": "bf16-mixed"},
    **{"trainer.deterministic": False, "trainer.gradient_clip_val": 0.3},
    **{"trainer.limit_train_batches": 10, "trainer._target_": "my_code.Trainer"},
    **{"module.transform_lr": 0.03, "schedule": {}, "optimizer._target_": "torch.optim.Adam"},
    "callbacks.graphs": {"_target_": f"{OURS}.cuda_graphs.CudaGraphs"},
    "callbacks.swa": {"_target_": "pytorch_lightning.callbacks.StochasticWeightAveraging"},
    "callbacks.mine": {"_target_": "my_code.Shrink", "by": 0.5},
    "callbacks.other": {"_target_": "my_code.Shrink", "by": 0.6},
    **{
        "stopping._target_": f"{OURS}.stopping.NonMonotoneStop",
        "stopping": {"_target_": "my.Stop"},
    },
}
IRRELEVANT = {
    **{"trainer.accelerator": "cpu", "trainer.log_every_n_steps": 7, "trainer.profiler": "simple"},
    **{"trainer.limit_train_batches": None, "max_epochs": 501, "patience": 31, "keep": "none"},
    **{"command": "lmkit train", "experiment": "another_name", "data.root": "/elsewhere"},
    **{"data.name": "penn-copy", "logger.wandb.mode": "online", "runs_dir": "/scratch/runs"},
    **{"callbacks.checkpoints.every_minutes": 1, "callbacks.checkpoints": None},
    **{"callbacks.spectrum": None, "callbacks.spectrum.every": 2, "stopping.epochs": 9},
    "callbacks.progress_bar": {"_target_": f"{OURS}.progress.EpochProgress"},
    "callbacks.lr": {"_target_": "pytorch_lightning.callbacks.LearningRateMonitor"},
    "some_new_section": {"option": 1},
}


def test_each_change_of_what_decides_the_numbers_has_an_identity_of_its_own() -> None:
    digests = {option: digest(set_at(option, value)) for option, value in RELEVANT.items()}
    digests["nothing"] = digest(config())
    digests["the data"] = digest(config(), data_sha256="e" * 64)
    digests["the device"] = digest(config(), device_kind="cuda")
    assert len(set(digests.values())) == len(digests), digests


@pytest.mark.parametrize("option", IRRELEVANT)
def test_does_not_change_with_anything_else(option: str) -> None:
    assert digest(set_at(option, IRRELEVANT[option])) == digest(config())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("optimizer.lr", 20),
        ("trunk.num_layers", 3.0),
        ("optimizer.weight_decay", 0.0000012),
        ("head.transform.knots", (-1, 2.0)),
        ("seed", 141.0),
    ],
)
def test_equal_numbers_are_equal_however_written(option: str, value: object) -> None:
    assert digest(set_at(option, value)) == digest(config())


@pytest.mark.parametrize(
    ("option", "default", "other"),
    [
        ("optimizer.momentum", 0, 0.9),
        ("trunk.embedding_noise", 0.0, 0.1),
        ("trainer.precision", "32-true", "bf16-mixed"),
        ("trainer.limit_train_batches", None, 5),
    ],
)
def test_an_option_at_its_default_is_as_if_not_given(option, default, other):
    section, name = option.split(".")
    absent = config()
    absent[section].pop(name, None)
    assert digest(set_at(option, default)) == digest(absent)
    assert digest(set_at(option, other)) != digest(absent)
    settings = identity(set_at(option, default), "d", "cpu").settings
    assert settings[section][name] == default  # what a run's folder says is said in full


@pytest.fixture
def my_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's file, on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "my_own_code.py"
    file.write_text("class Mine:\n    pass\n")
    return file


@pytest.mark.parametrize(
    "option", ["trunk", "head.transform", "optimizer", "callbacks.mine", "data", "trainer"]
)
def test_the_source_of_a_users_class_counts(my_code: Path, option: str) -> None:
    changed = set_at(option, {"_target_": "my_own_code.Mine"})
    before = identity(changed, "d", "cpu")
    sha256 = hashlib.sha256(my_code.read_bytes()).hexdigest()
    assert before.settings["sources"]["my_own_code.Mine"] == sha256
    my_code.write_text("class Mine:\n    changed = True\n")
    assert identity(changed, "d", "cpu").digest != before.digest


def test_zero_has_no_sign() -> None:
    assert digest(set_at("seed", -0.0)) == digest(set_at("seed", 0))


def test_truth_is_no_number_and_text_is_no_number() -> None:
    digests = {digest(set_at("trunk.tie_weights", value)) for value in (True, 1, "1", "true", None)}
    assert len(digests) == 5


def test_order_of_options_does_not_matter() -> None:
    turned = dict(reversed(config().items()))
    turned["trunk"] = dict(reversed(config()["trunk"].items()))
    assert digest(turned) == digest(config())


def test_config_is_left_alone() -> None:
    given = config()
    before = copy.deepcopy(given)
    made = identity(given, "d", "cpu")
    assert given == before
    assert made.settings["trunk"] is not given["trunk"]
    assert made.settings["identity_version"] == IDENTITY_VERSION
    assert json.loads(json.dumps(made.settings)) == made.settings


def test_digest_is_pinned() -> None:
    """A folder on disk keeps its name: a change here needs a new IDENTITY_VERSION. It is the same
    in every process, however Python seeds its hashes there.
    """
    assert digest(config()) == "384129f6144d"


@pytest.mark.parametrize("section", ["trunk", "trainer", "callbacks"])
def test_missing_section_is_named(section: str) -> None:
    incomplete = config()
    del incomplete[section]
    with pytest.raises(UserError, match=f"^{section} is missing"):
        identity(incomplete, "d", "cpu")


def test_bad_values_are_named() -> None:
    with pytest.raises(UserError, match=r"optimizer\.lr must be a finite number"):
        identity(set_at("optimizer.lr", float("nan")), "d", "cpu")
    with pytest.raises(UserError, match=r"head\.transform\.knots\[1\] .* is a object"):
        identity(set_at("head.transform.knots", [1, object()]), "d", "cpu")
    with pytest.raises(UserError, match=r"callbacks\.progress_bar must be a section, or null"):
        identity(set_at("callbacks.progress_bar", False), "d", "cpu")
