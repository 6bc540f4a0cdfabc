"""Finetuning: a run of its own that starts with the best weights of a finished one."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from lmkit.analyses.gradient_bottleneck import GradientBottleneck
from lmkit.analyses.measuring import measure_runs
from lmkit.analyses.rank import Rank
from lmkit.cli import finetune
from lmkit.cli.entry import compose, plain_config
from lmkit.errors.user_error import UserError
from lmkit.experiment import load
from lmkit.experiment.definition import define
from lmkit.experiment.load import load_run
from lmkit.experiment.run import run
from lmkit.measures.perplexity import perplexity
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.selection import select_runs
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from lmkit.sweeps.status import standings
from lmkit.training.callbacks.asgd_switch import load_evaluated_weights
from lmkit.training.checkpoint_files import load_checkpoint, write_tensors
from tests.faults.comparison import assert_same_run, contents
from tests.results.forging import change

QUIET = ["logger=csv", "callbacks.progress_bar=null", "callbacks.spectrum=null"]


def composed(start: RunFolder, *overrides: str) -> dict:
    """The configuration of the run that finetunes another."""
    options = [f"run={start.path}", *QUIET, "max_epochs=3", *overrides]
    return finetune.run_config(plain_config(compose("finetune", options)))


def finetuned(start: RunFolder, *overrides: str) -> RunFolder:
    return run(composed(start, *overrides))


@pytest.fixture(scope="module")
def child(toy_run, tmp_path_factory) -> RunFolder:
    """Finetuned for three epochs, elsewhere than its start is."""
    return finetuned(toy_run, f"runs_dir={tmp_path_factory.mktemp('finetuned')}", "lr=5")


def test_the_first_run_is_not_written_to_and_pointed_at(toy_copy):
    before = contents(toy_copy.path)
    child = finetuned(toy_copy, "max_epochs=1")
    assert contents(toy_copy.path) == before
    assert child.path.parent == toy_copy.path.parent
    assert child.path.name.startswith("toy_finetune-")
    result, config = child.read_result(), yaml.safe_load(child.config.read_text())
    digest = toy_copy.read_result().identity
    settings = child.read_identity().settings
    start = result.provenance["finetuned_from"]
    for found in (start, config["finetuned_from"], settings["finetuned_from"]):
        assert found["identity"] == digest
    assert Path(start["folder"]) == toy_copy.path
    assert start["test_ppl"] == toy_copy.read_result().metrics["test_ppl"]
    # what is not finetuning's is as in that run
    theirs = yaml.safe_load(toy_copy.config.read_text())
    for section in ("data", "trunk", "head", "objective", "optimizer", "windows", "seed"):
        assert config[section] == theirs[section]
    # finished, it is skipped, and goes on under a larger budget
    written = child.last.stat().st_mtime_ns
    assert finetuned(toy_copy, "max_epochs=1").path == child.path
    assert child.last.stat().st_mtime_ns == written
    finetuned(toy_copy, "max_epochs=2")
    assert child.read_result().budget.epochs == 2


def test_averages_from_the_first_step_on_beginning_with_the_best_weights(child, toy_run):
    checkpoint = load_checkpoint(child.last)
    switch = checkpoint["callbacks"]["AsgdSwitch"]
    assert switch["switched_after"] == 0
    assert switch["count"] == checkpoint["global_step"] > 0
    rows = [row for row in MetricsFile(child.metrics).read() if "valid/ppl" in row]
    assert [row["averaging"] for row in rows] == [1.0, 1.0, 1.0]
    best = min(row["valid/ppl"] for row in rows)
    at_first = toy_run.read_result().metrics["valid_ppl"]
    assert child.read_result().metrics["valid_ppl"] == min(best, at_first)
    # near where it began, and not there
    untrained = toy_run.read_result().metrics["train_ppl"]
    assert rows[0]["train/ppl"] < 1.2 * untrained


def test_a_start_that_is_never_beaten_stays_the_best(toy_run, tmp_path):
    """At an lr at which nothing is learnt."""
    child = finetuned(toy_run, f"runs_dir={tmp_path}", "lr=1e5", "max_epochs=2")
    found, before = child.read_result().metrics, toy_run.read_result().metrics
    assert found["best_epoch"] == 0
    for name in ("train_ppl", "valid_ppl", "test_ppl"):
        assert found[name] == before[name]
    ours, theirs = (load_run(f.path, "best", None, None) for f in (child, toy_run))
    assert ours.averaged == theirs.averaged
    for name, weight in ours.model.state_dict().items():
        assert torch.equal(weight, theirs.model.state_dict()[name]), name
    # it can be measured as any other run, and finetuned itself
    gradients = GradientBottleneck(split="test", contexts=50, checkpoint="best")
    assert measure_runs(gradients, [child]).left_out == {}
    grandchild = finetuned(child, "max_epochs=1")
    start = grandchild.read_result().provenance["finetuned_from"]
    assert start["identity"] == child.read_result().identity
    # weights alone are nothing to resume from
    child.last.write_bytes(b"")
    with pytest.raises(
        UserError, match=r"last\.ckpt is damaged .*; to train the run again, remove"
    ):
        load_checkpoint(child.last)


def test_its_identity_is_of_the_first_run_and_the_options(toy_copy, toy_run, tmp_path):
    def digest(folder: RunFolder, *overrides: str) -> str:
        return define(composed(folder, *overrides)).identity.digest

    own = digest(toy_run)
    assert own == digest(toy_copy)  # the same run elsewhere
    assert own == digest(toy_run, "max_epochs=9", "n=7")  # budget
    assert own == digest(toy_run, f"runs_dir={tmp_path}", "callbacks.checkpoints.every_minutes=7")
    assert own == digest(toy_run, "lr=3")  # as in that run
    assert own != digest(toy_run, "lr=4")
    assert own != toy_run.read_result().identity
    content = load_checkpoint(toy_copy.best)
    content["callbacks"]["AsgdSwitch"]["averages"]["head.decoder_bias"][0] += 1e-3
    write_tensors(toy_copy.best, content)
    assert own != digest(toy_copy)  # other weights, as after more epochs


def test_one_that_goes_on_ends_with_the_same_bits(toy_run, child, tmp_path):
    own = (f"runs_dir={tmp_path}", "lr=5")
    finetuned(toy_run, *own, "max_epochs=1")
    assert_same_run(child, finetuned(toy_run, *own))


def test_other_commands_take_it_for_the_run_that_it_is(child):
    rank = Rank(split="test", contexts=100, matrix="log_probs", checkpoint="best")
    (selected,) = select_runs("run", str(child.path.parent)).runs
    assert selected.folder.path == child.path
    ((_, found),) = measure_runs(rank, [selected.folder]).measured
    assert (found.label, found.record.num_contexts) == (child.path.name, 100)
    result = child.read_result()
    loaded = load_run(child.path, "best", None, None)
    found = perplexity(loaded.model, loaded.data.eval_batches("test"), "test")
    assert found.perplexity == result.metrics["test_ppl"]
    content = load_checkpoint(child.best)
    assert load_evaluated_weights(loaded.model, content) is loaded.averaged
    point = Point("finetuned", [], child.path.name, "toy_finetune", 3, 5)
    runs_dir = str(child.path.parent)
    sweep = SweepFolder.of(Manifest("mine", runs_dir, runs_dir, 0, [point]))
    (standing,) = standings(sweep)
    assert (standing.state, standing.epoch) == ("finished", 3)
    assert standing.test_ppl == result.metrics["test_ppl"]


def test_its_table_has_the_perplexities_of_its_start_too(toy_run, child, capsys):
    finetuned(toy_run, f"runs_dir={child.path.parent}", "lr=5")
    shown = capsys.readouterr().out
    assert "already finished" in shown
    ours, theirs = (run.read_result().metrics for run in (child, toy_run))
    for split in ("train", "valid", "test"):
        name = f"{split}_ppl"
        both = rf"{ours[name]:.2f} \(before: {theirs[name]:.2f}\)"
        assert re.search(rf"{split} perplexity\W+{both}", shown)


def test_another_text_is_refused(toy_copy):
    """Its words have other numbers."""
    config = composed(toy_copy)
    change(toy_copy.path, "identity.json", lambda of: of["settings"].update(data_sha256="0"))
    with pytest.raises(UserError, match="finetuning needs what the run was trained on"):
        run(config)
    assert [path.name for path in toy_copy.path.parent.glob("toy_finetune-*")] == []


def test_a_class_that_was_edited_is_refused(toy_copy, monkeypatch):
    monkeypatch.setattr(load, "own_classes", lambda _: {"tests.live_bytes.LiveBytes": "before"})
    with pytest.raises(UserError, match=r"LiveBytes has changed .* bring the earlier code back$"):
        composed(toy_copy)


def test_weights_that_change_under_way_are_refused(toy_copy):
    config = composed(toy_copy)
    content = load_checkpoint(toy_copy.best)
    content["state_dict"]["head.transform.raw_slopes"] += 1
    content["callbacks"]["AsgdSwitch"]["averages"] = {}
    write_tensors(toy_copy.best, content)
    with pytest.raises(UserError, match=r"best\.ckpt has changed meanwhile"):
        run(config)


def test_a_seed_of_its_own_makes_another_run_and_none_that_of_its_start(toy_run):
    assert composed(toy_run)["seed"] == 141
    assert composed(toy_run, "seed=404")["seed"] == 404
    with pytest.raises(UserError, match="seed must be"):
        composed(toy_run, "seed=-1")
