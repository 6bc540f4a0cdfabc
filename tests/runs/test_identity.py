"""The identity changes with what decides the numbers, and with nothing else."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.identity import IDENTITY_VERSION, differences, identity


def config() -> dict:
    return {
        "experiment": "penn_softmax",
        "data": {"_target_": "lmkit.data.corpus.TextCorpus", "root": "/data", "name": "penn"},
        "trunk": {"num_layers": 3, "hidden_dropout": 0.225, "tie_weights": True},
        "head": {"mixture": {"num_experts": 15}, "transform": {"k": 0.5, "knots": [-1.0, 2]}},
        "objective": {"ar_weight": 2.0, "tar_weight": 1.0},
        "optimizer": {"lr": 20.0, "weight_decay": 1.2e-6},
        "trigger": {"n": 5},
        "windows": {"bptt": 70, "eval_length": 70},
        "seed": 141,
        "threads": 2,
        "trainer": {"precision": "32-true", "deterministic": True, "max_epochs": 500},
        "patience": 30,
        "logger": {"mode": "offline"},
        "callbacks": {"progress": {"refresh": 10}},
        "paths": {"runs": "runs"},
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
    "trunk.num_layers": 2,
    "trunk.hidden_dropout": 0.2250000001,
    "trunk.tie_weights": False,
    "trunk.new_option": None,
    "head.mixture.num_experts": 14,
    "head.transform.k": 0.7,
    "head.transform.knots": [2, -1.0],
    "objective.ar_weight": 0.0,
    "optimizer.lr": 30.0,
    "optimizer.weight_decay": 1.3e-6,
    "trigger.n": 6,
    "trigger": None,
    "windows.bptt": 35,
    "windows.eval_length": 71,
    "seed": 142,
    "threads": 1,
    "trainer.precision": "bf16-mixed",
    "trainer.deterministic": False,
}
IRRELEVANT = {
    "trainer.max_epochs": 501,
    "trainer.log_every_n_steps": 7,
    "patience": 31,
    "experiment": "another_name",
    "data.root": "/elsewhere",
    "data.name": "penn-copy",
    "logger.wandb.mode": "online",
    "callbacks.progress.refresh": 1,
    "paths.runs": "/scratch/runs",
    "some_new_section": {"option": 1},
}


@pytest.mark.parametrize("option", RELEVANT)
def test_changes_with_what_decides_the_numbers(option: str) -> None:
    assert digest(set_at(option, RELEVANT[option])) != digest(config())


def test_each_relevant_change_has_an_identity_of_its_own() -> None:
    assert len({digest(set_at(option, value)) for option, value in RELEVANT.items()}) == len(
        RELEVANT
    )


def test_changes_with_data_and_device() -> None:
    assert digest(config(), data_sha256="e" * 64) != digest(config())
    assert digest(config(), device_kind="cuda") != digest(config())


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
    found = identity(given, "d", "cpu")
    assert given == before
    assert found.settings["trunk"] is not given["trunk"]
    assert found.settings["identity_version"] == IDENTITY_VERSION
    assert json.loads(json.dumps(found.settings)) == found.settings


def test_digest_is_pinned() -> None:
    """A folder on disk keeps its name: a change here needs a new IDENTITY_VERSION."""
    assert digest(config()) == "5834cbbbfefe"


def test_same_in_another_process() -> None:
    code = f"from lmkit.runs.identity import identity\nprint(identity({config()!r}, 'd', 'cpu')[1])"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == identity(config(), "d", "cpu").digest


@pytest.mark.parametrize("section", ["trunk", "head", "windows", "seed", "threads", "trainer"])
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
    with pytest.raises(UserError, match=r"trainer\.precision is missing"):
        identity(set_at("trainer", {"deterministic": True}), "d", "cpu")
    with pytest.raises(UserError, match="trainer must be a mapping"):
        identity(set_at("trainer", 3), "d", "cpu")


def test_differences_name_the_options() -> None:
    old = identity(config(), "d", "cpu").settings
    changed = set_at("head.transform.k", 0.7)
    changed["trigger"] = {}
    new = identity(changed, "d", "cpu").settings
    assert differences(old, new) == [
        "head.transform.k: 0.5, now 0.7",
        "trigger: absent, now {}",
        "trigger.n: 5, now absent",
    ]
    assert differences(old, old) == []
