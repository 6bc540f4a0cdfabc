"""Killed at random moments and started again, a run ends with the bits of one never killed."""

import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.experiment.definition import define
from lmkit.experiment.run import run
from lmkit.runs.folder import RunFolder
from lmkit.training.checkpoint_files import load_checkpoint
from tests import tiny
from tests.faults.comparison import rows, runs_in
from tests.forked import spawner, start
from tests.tiny import SMALL
from tests.waiting import wait_for

OPTIONS = (
    *(*SMALL, "data.train_tokens=12000", "windows.batch_size=6", "trainer.log_every_n_steps=5"),
    *("trunk.input_dropout=0.3", "trunk.embed_dropout=0.1", "trunk.weight_dropout=0.3"),
    *("trunk.embedding_noise=0.1", "head/mixture=softmaxes", "head.mixture.num_experts=3"),
    *("head/transform=plif", "head.transform.knots=1000", "trigger.epoch=6"),
    *("objective.ar_weight=2", "objective.tar_weight=1", "optimizer.lr=10", "max_epochs=14"),
)
SAVING = ("callbacks.checkpoints.every_minutes=0.002",)  # of runs to be killed


def composed(runs_dir: Path, *overrides: str) -> dict:
    return tiny.composed(*OPTIONS, *overrides) | {"runs_dir": str(runs_dir)}


def to_the_end(config: dict) -> RunFolder:
    process = started(config)
    process.join()
    assert process.exitcode == 0
    (folder,) = runs_in(Path(config["runs_dir"]))
    return folder


def kill_after(config: dict, rows: int, pause: float = 0.0) -> bool:
    """Whether the run was still going when it was killed, so many rows and seconds on."""

    def written() -> int:
        files = Path(config["runs_dir"]).glob("*/metrics.csv")
        return sum(path.read_bytes().count(b"\n") for path in files)

    goal, process = written() + rows, started(config)
    wait_for(lambda: written() >= goal or not process.is_alive())
    process.join(pause)
    alive = process.is_alive()
    if alive:
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return alive


def started(config: dict) -> multiprocessing.process.BaseProcess:
    process = spawner.Process(target=run, args=(config,))
    start(process)
    return process


def assert_same_run(one: RunFolder, other: RunFolder) -> None:
    assert one.read_result().metrics == other.read_result().metrics
    first, second = load_checkpoint(one.last), load_checkpoint(other.last)
    for name, weight in first["state_dict"].items():
        assert torch.equal(weight, second["state_dict"][name]), name
    averages = first["callbacks"]["AsgdSwitch"]["averages"]
    assert averages
    for name, average in averages.items():
        assert torch.equal(average, second["callbacks"]["AsgdSwitch"]["averages"][name]), name
    assert rows(one) == rows(other)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> RunFolder:
    return to_the_end(composed(tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.slow
def test_ten_kills_change_no_bit(undisturbed, tmp_path):
    moments = random.Random(1)
    config = composed(tmp_path, *SAVING)
    kills = sum(
        kill_after(config, moments.randint(0, 6), moments.uniform(0, 0.05)) for _ in range(10)
    )
    assert kills >= 5, "the run ended before it could be killed often"
    assert_same_run(undisturbed, to_the_end(composed(tmp_path)))


TRANSFORMER = ("trunk=transformer", "trunk.memory=30", "trunk.attention_dropout=0.2")
TRANSFORMER += ("optimizer=adamw", "optimizer.lr=0.003", "schedule=cosine", "schedule.epochs=6")
TRANSFORMER += ("trigger=at_epoch",)


@pytest.mark.slow
def test_kills_change_no_bit_of_a_transformer_nor_does_a_larger_budget(tmp_path):
    options = (*TRANSFORMER, "trigger.epoch=4", "max_epochs=5")
    reference = to_the_end(composed(tmp_path / "undisturbed", *options, "max_epochs=8"))
    killed = tmp_path / "killed"
    kills = sum(kill_after(composed(killed, *options, *SAVING), rows) for rows in (6, 10, 14))
    assert kills, "the run ended before it could be killed"
    to_the_end(composed(killed, *options))
    assert_same_run(reference, to_the_end(composed(killed, *options, "max_epochs=8")))


def test_a_checkpoint_of_another_configuration_is_refused(trained_runs, tmp_path):
    options = (*tiny.TINY, "optimizer.lr=4")
    other = define(tiny.composed(*options) | {"runs_dir": str(tmp_path)}).folder
    other.checkpoints.mkdir(parents=True)
    other.last.write_bytes(tiny.run_of(trained_runs, "toy").last.read_bytes())
    with pytest.raises(UserError, match="another configuration"):
        tiny.trained(tmp_path, *options)
